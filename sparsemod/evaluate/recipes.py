"""The recipe of one arm: its text with the arm's values, checked against the length of the training."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sparsemod.candidate import Parametrization
from sparsemod.compress.lifecycle import TOLERANCE

# All from here, since this is the module that makes every modifier known.
from sparsemod.compress.recipe import (
    EpochRangeModifier,
    LayerPruningModifier,
    RecipeError,
    ScheduledModifierManager,
)
from sparsemod.errors import CandidateError

__all__ = ["arm_recipe", "recipe_of_arm"]


def arm_recipe(
    text: str, parametrization: Parametrization, epochs: int | None, steps_per_epoch: int
) -> ScheduledModifierManager:
    """Make the modifiers of a recipe for one arm.

    Args:
        text: The recipe. Its expressions may use the names of the parametrization, ``epochs`` and
            ``steps_per_epoch``; variables of its own by these names give way.
        parametrization: The arm's.
        epochs: How long the arm is trained; None where nobody knows yet, then nothing is checked against it
            and ``epochs`` must be a variable of the recipe if it is used.
        steps_per_epoch: Optimizer steps of an epoch.

    Raises:
        RecipeError: The recipe is wrong, or its epochs are not within the training.
    """
    length = {} if epochs is None else {"epochs": epochs}
    values = {**length, "steps_per_epoch": steps_per_epoch, **parametrization}
    manager = ScheduledModifierManager.from_yaml(f"{text}\n", parametrization=values)
    for modifier in manager.iter_modifiers():
        if epochs is not None:
            _check_schedule(modifier, epochs)
        if isinstance(modifier, LayerPruningModifier) and modifier.end_epoch < 0:
            raise RecipeError(
                "LayerPruningModifier needs an end_epoch, as the networks of a search keep their layers; "
                "let a parameter of the search space leave layers out"
            )
    return manager


@contextmanager
def recipe_of_arm() -> Iterator[None]:
    """Turn what is wrong with a recipe into the failure of one arm.

    Raises:
        CandidateError: A `RecipeError` was raised inside.
    """
    try:
        yield
    except RecipeError as error:
        raise CandidateError(f"recipe: {error}") from error


def _check_schedule(modifier: object, epochs: int) -> None:
    name = type(modifier).__name__
    start, end = getattr(modifier, "start_epoch", -1.0), getattr(modifier, "end_epoch", -1.0)
    last = max(start, end, *getattr(modifier, "update_epochs", ()))
    if last > epochs + TOLERANCE:
        raise RecipeError(f"{name} goes on to epoch {last:g}, but training has {epochs}")
    if start > epochs - TOLERANCE and not isinstance(modifier, EpochRangeModifier):
        raise RecipeError(f"{name} starts at epoch {start:g}, when the {epochs} epochs of training are over")
