"""The recipe that does what the training of an arm does without one: a text to begin with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sparsemod.compress.recipe_errors import RecipeError
from sparsemod.compress.recipe_yaml import yaml_value

__all__ = ["default_recipe"]

SCHEDULE = """
  - !EpochRangeModifier
      start_epoch: 0
      end_epoch: eval(epochs)

  - !LearningRateModifier
      lr_class: StepLR
      lr_kwargs:
        step_size: eval(max(1, round(learning_step * 1000)) / steps_per_epoch)
        gamma: eval(learning_gamma)
      init_lr: eval(learning_rate)
      start_epoch: 0
      end_epoch: eval(epochs)
"""
PRUNING = """
  - !GlobalMagnitudePruningModifier
      init_sparsity: 0.0
      final_sparsity: eval(prune_threshold)
      start_epoch: eval(epochs * 0.1)
      end_epoch: eval(epochs * 0.7)
      update_frequency: eval(epochs * 0.6 / 50)
      params: __ALL_PRUNABLE__
"""
QUANTIZATION = """
  - !QuantizationModifier
      start_epoch: eval(epochs * 0.7)
"""


def default_recipe(
    parametrization: Mapping[str, Any],
    epochs: int,
    steps_per_epoch: int,
    *,
    pruning: bool = True,
    qat: bool = False,
) -> str:
    """Write the recipe that is equivalent to training an arm without one.

    Without a recipe arms are trained by a shorter way to the same end, so the text is for those who want to
    change something. Its variables are the parameters of the arm: in a search every arm puts its own values,
    ``epochs`` and ``steps_per_epoch`` in their place. The schedules are the same; at which steps of the ramp
    the masks are renewed is not, so results are alike and not equal.

    Args:
        parametrization: The arm's; ``learning_rate``, ``learning_gamma``, ``learning_step`` (thousands of
            steps) and, to prune, ``prune_threshold``, where 0 and 1 prune nothing.
        epochs: Epochs of the training.
        steps_per_epoch: Optimizer steps of an epoch.
        pruning: Prune to ``prune_threshold``, all weights ranked together.
        qat: Train on int8 grids in the last epochs.

    Raises:
        RecipeError: A parameter is missing.

    Example:
        >>> arm = {"learning_rate": 0.01, "learning_gamma": 0.5, "learning_step": 0.2, "prune_threshold": 0.8}
        >>> print(default_recipe(arm, epochs=20, steps_per_epoch=34)[:155])
        epochs: 20
        steps_per_epoch: 34
        learning_rate: 0.01
        learning_gamma: 0.5
        learning_step: 0.2
        prune_threshold: 0.8
        <BLANKLINE>
        modifiers:
          - !EpochRangeModifier
              st
    """
    names = ["learning_rate", "learning_gamma", "learning_step"]
    parts = [SCHEDULE]
    if pruning:
        names.append("prune_threshold")
    if missing := [name for name in names if name not in parametrization]:
        raise RecipeError(f"default_recipe: the parametrization has no {', '.join(missing)}")
    if pruning and 0.0 < parametrization["prune_threshold"] < 1.0:
        parts.append(PRUNING)
    else:
        names = names[:3]
    if qat:
        parts.append(QUANTIZATION)
    variables = {"epochs": epochs, "steps_per_epoch": steps_per_epoch}
    variables |= {name: parametrization[name] for name in names}
    lines = [f"{name}: {yaml_value(value)}" for name, value in variables.items()]
    return "\n".join([*lines, "", "modifiers:"]) + "\n".join(parts)
