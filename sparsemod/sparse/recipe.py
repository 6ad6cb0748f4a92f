"""Checks the recipe of a search when the search is made."""

from __future__ import annotations

import math
from collections.abc import Sequence

from sparsemod.candidate import Parametrization
from sparsemod.compress.recipe_errors import RecipeError
from sparsemod.compress.recipe_source import load_recipe_yaml_str
from sparsemod.config import RunConfig
from sparsemod.errors import ConfigError
from sparsemod.evaluate.recipes import arm_recipe
from sparsemod.space.sampling import draw_many
from sparsemod.space.space import Space

__all__ = ["checked_recipe"]

N_TRIED = 8
"""Configurations that the recipe is tried with; it may fail some of them, but not all."""


def checked_recipe(config: RunConfig, space: Space, n_samples: int, where: str) -> str | None:
    """Return the text of the configuration's recipe, tried with configurations of the space.

    Args:
        config: The configuration.
        space: The search space, whose names the recipe may use.
        n_samples: Samples of the training set.
        where: What an error begins with.

    Raises:
        ConfigError: The recipe cannot be read, cannot be used in any of the stages, or quantizes while the
            configuration's scheme says otherwise.
    """
    if config.recipe is None:
        return None
    try:
        text = load_recipe_yaml_str(config.recipe)
    except RecipeError as error:
        raise ConfigError(f"{where} recipe: {error}") from error
    shown = "" if "\n" in config.recipe else f"{config.recipe}: "
    arms = draw_many(space, config.seed, 0, N_TRIED)
    for stage in config.stages:
        if failure := _failure(text, arms, stage.epochs, n_samples, config.quant_scheme):
            raise ConfigError(f"{where} recipe: {shown}{failure} (epochs{stage.stage} = {stage.epochs})")
    return text


def _failure(
    text: str, arms: Sequence[Parametrization], epochs: int, n_samples: int, scheme: str
) -> str | None:
    """Say why no arm can use the recipe; None when one can."""
    failures: list[str] = []
    for arm in arms:
        try:
            manager = arm_recipe(text, arm, epochs, math.ceil(n_samples / _batch_size(arm)))
        except RecipeError as error:
            failures.append(str(error))
            continue
        if manager.quantization_modifiers and scheme not in ("post", "qat"):
            return f"it quantizes statically, so quant_scheme must be post or qat, not {scheme}"
        return None
    return failures[0]


def _batch_size(arm: Parametrization) -> int:
    value = arm["batch_size"]
    return max(1, round(value)) if isinstance(value, int | float) else 1
