"""What the surrogate sees of a network: its parameters, how large it is, and how long it is trained."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sparsemod.candidate import Parametrization, Resources
from sparsemod.search.acquisition import Scale
from sparsemod.search.surrogate import Features
from sparsemod.space.space import Space

__all__ = ["CAPACITY", "Inputs", "cost_matrix"]

Array = NDArray[np.float64]

CAPACITY = ("model_size", "latency")


@dataclass(frozen=True, slots=True)
class Inputs:
    """Turns networks into features.

    The error depends on parameters mostly through how much a network holds and computes, which is known
    exactly before training. So the logarithms of flash and latency are features beside the parameters; a
    network far smaller than all that were trained is then expected to be worse than these, not like their
    average.

    Attributes:
        space: Encodes the parameters.
        arc: Whether to tell which parameters are active.
        capacity: The scale of `CAPACITY`.
        epochs: The fewest and the most; where they differ, the logarithm of the epochs is a feature, too.
    """

    space: Space
    arc: bool
    capacity: Scale
    epochs: tuple[int, int]

    def networks(self, configurations: Sequence[Parametrization]) -> Features:
        """Encode parameters alone, what costs depend on."""
        values = self.space.encode(configurations)
        active = self.space.activity(configurations) if self.arc else np.ones(values.shape, dtype=bool)
        return Features(values, active)

    def trainings(self, networks: Features, capacity: Array, epochs: Sequence[int]) -> Features:
        """Add (n, 2) flash and latency, in bytes and seconds, and the epochs: what the error depends on."""
        more = self.capacity(capacity)
        low, high = self.epochs
        if high > low:
            more = np.column_stack([more, np.log(np.maximum(epochs, 1) / low) / math.log(high / low)])
        return networks.beside(more)


def cost_matrix(resources: Sequence[Resources], names: Sequence[str]) -> Array:
    """Return the (n, c) named costs, in bytes and seconds."""
    values = [[r.objective(name) for name in names] for r in resources]
    return np.array(values, dtype=float).reshape(len(resources), len(names))
