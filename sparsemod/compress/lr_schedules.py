"""PyTorch's learning-rate schedules as pure functions of the time in epochs, with its names of arguments.

With e the epochs since the start:

- StepLR(step_size, gamma=0.1): ``init gamma^floor(e / step_size)``;
- MultiStepLR(milestones, gamma=0.1): ``init gamma^(milestones passed)``, epochs of the training;
- ExponentialLR(gamma): ``init gamma^floor(e)``;
- CosineAnnealingWarmRestarts(T_0, T_mult=1, eta_min=0), also as (cycle_epochs, lr_min):
  ``eta_min + (init - eta_min) (1 + cos(pi x)) / 2`` with x the share of the cycle (arXiv:1608.03983).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from sparsemod.compress.checks import number
from sparsemod.compress.recipe_errors import RecipeError
from sparsemod.errors import nearest

__all__ = ["LR_CLASSES"]


def _step(rate: float, epoch: float, start: float, arguments: Mapping[str, Any]) -> float:
    step_size, gamma = _take(arguments, step_size=None, gamma=0.1)
    return float(rate * gamma ** math.floor((epoch - start) / _positive(step_size, "step_size")))


def _multi_step(rate: float, epoch: float, start: float, arguments: Mapping[str, Any]) -> float:
    milestones, gamma = _take(arguments, milestones=None, gamma=0.1)
    if not isinstance(milestones, list | tuple):
        raise RecipeError(f"lr_kwargs: milestones must be a list of epochs, not {milestones!r}")
    n_passed = sum(epoch >= number(milestone, "milestones") for milestone in milestones)
    return float(rate * gamma**n_passed)


def _exponential(rate: float, epoch: float, start: float, arguments: Mapping[str, Any]) -> float:
    (gamma,) = _take(arguments, gamma=None)
    return float(rate * gamma ** math.floor(epoch - start))


def _warm_restarts(rate: float, epoch: float, start: float, arguments: Mapping[str, Any]) -> float:
    renamed = {{"cycle_epochs": "T_0", "lr_min": "eta_min"}.get(key, key): v for key, v in arguments.items()}
    length, growth, lowest = _take(renamed, T_0=None, T_mult=1.0, eta_min=0.0)
    length, growth, since = _positive(length, "T_0"), number(growth, "T_mult"), epoch - start
    if growth < 1.0:
        raise RecipeError(f"lr_kwargs: T_mult must be at least 1, not {growth:g}")
    if growth == 1.0:
        since %= length
    while since >= length:
        since, length = since - length, length * growth
    return float(lowest + (rate - lowest) * (1.0 + math.cos(math.pi * since / length)) / 2.0)


LR_CLASSES: Mapping[str, Callable[[float, float, float, Mapping[str, Any]], float]] = {
    "StepLR": _step,
    "MultiStepLR": _multi_step,
    "ExponentialLR": _exponential,
    "CosineAnnealingWarmRestarts": _warm_restarts,
}


def _take(arguments: Mapping[str, Any], **defaults: Any) -> list[Any]:
    """Return the arguments in the order of their defaults; None marks one that must be given."""
    for key in arguments:
        if key not in defaults:
            raise RecipeError(f"lr_kwargs: unknown argument '{key}'{nearest(str(key), defaults)}")
    values = [arguments.get(key, default) for key, default in defaults.items()]
    missing = [key for key, value in zip(defaults, values, strict=True) if value is None]
    if missing:
        raise RecipeError(f"lr_kwargs: {', '.join(missing)} must be given")
    return [value if isinstance(value, list | tuple) else number(value, "lr_kwargs") for value in values]


def _positive(value: Any, name: str) -> float:
    result = number(value, name)
    if result <= 0:
        raise RecipeError(f"lr_kwargs: {name} must be above 0, not {result:g}")
    return result
