"""How a candidate is trained, as its parametrization says."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from sparsemod.candidate import Parametrization
from sparsemod.errors import CandidateError

__all__ = ["TrainSettings", "settings"]


@dataclass(frozen=True, slots=True)
class TrainSettings:
    """How one candidate is trained.

    Attributes:
        learning_rate: Adam's, at the start.
        learning_gamma: Factor on the learning rate at every period.
        learning_step: Period of that factor, in thousands of optimizer steps (at least one step).
        batch_size: Samples a step.
        epochs: Passes over the training set, 1 or more.
        seed: Seeds the order of the samples and whatever is random in the network.

    Raises:
        ValueError: A value is out of its range.
    """

    learning_rate: float
    learning_gamma: float
    learning_step: float
    batch_size: int
    epochs: int
    seed: int = 0

    def __post_init__(self) -> None:
        for name, low in (("learning_rate", 0.0), ("learning_gamma", 0.0), ("learning_step", 0.0)):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= low):
                raise ValueError(f"{name} must be a finite number of 0 or more, got {value}")
        for name in ("batch_size", "epochs"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be 1 or more, got {getattr(self, name)}")

    def rate(self, step: int) -> float:
        """Return the learning rate of an optimizer step, counted from 0.

        Example:
            >>> TrainSettings(0.5, 0.1, 2, batch_size=1, epochs=1).rate(1999)
            0.5
            >>> TrainSettings(0.5, 0.1, 2, batch_size=1, epochs=1).rate(2000)
            0.05
        """
        return self.learning_rate * self.learning_gamma ** (step // max(1, round(self.learning_step * 1000)))


def settings(parametrization: Parametrization, epochs: int, seed: int = 0) -> TrainSettings:
    """Read the settings from the mandatory parameters of a parametrization.

    Raises:
        CandidateError: One is missing, not a number or out of its range.
        ValueError: `epochs` is below 1.
    """
    if epochs < 1:
        raise ValueError(f"epochs must be 1 or more, got {epochs}")
    values: dict[str, Any] = {}
    for name in ("learning_rate", "learning_gamma", "learning_step", "batch_size"):
        value = parametrization.get(name)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise CandidateError(f"{name} must be a number, got {value!r}")
        values[name] = round(value) if name == "batch_size" else float(value)
    try:
        return TrainSettings(**values, epochs=epochs, seed=seed)
    except ValueError as error:
        raise CandidateError(str(error)) from error
