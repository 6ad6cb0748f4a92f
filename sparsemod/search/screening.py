"""Predicts what a network costs and whether it can be built, so that only promising ones need to be measured.

Measuring takes about 10 ms a network, predicting microseconds. One Gaussian process a cost, on its
logarithm, with constants fitted to at most 100 networks. Where some networks could not be built or trained,
one more predicts the share that can.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from sparsemod.candidate import Resources
from sparsemod.search.inputs import CAPACITY, cost_matrix
from sparsemod.search.strategy import Problem
from sparsemod.search.surrogate import Features, Surrogate, fit

__all__ = ["Screen"]

Array = NDArray[np.float64]

_POINTS = 100
_LEAST_CHANCE = 0.02  # a prediction of 0 would exclude for good what may only look like something that failed


@dataclass(frozen=True, slots=True)
class Screen:
    """What is predicted of networks before they are measured.

    Attributes:
        names: The costs that are predicted.
        limits: The logarithm of the limit of each; infinite without one.
        costs: One process for the logarithm of each.
        success: A process for 1 where a network could be built and trained and 0 where not; None if all
            could.
    """

    names: tuple[str, ...]
    limits: tuple[float, ...]
    costs: tuple[Surrogate, ...]
    success: Surrogate | None

    @classmethod
    def of(
        cls, problem: Problem, built: Features, resources: Sequence[Resources], failed: Features
    ) -> Screen:
        """Fit to networks with known costs, at least one, and to networks that failed."""
        limits = problem.constraints.limits()
        names = tuple(dict.fromkeys((*problem.costs, *limits, *CAPACITY)))
        logs = _logs(names, resources)
        costs = tuple(fit(built, column, max_points=_POINTS) for column in logs.T)
        success = None
        if len(failed):
            labels = np.concatenate([np.ones(len(built)), np.zeros(len(failed))])
            success = fit(built.join(failed), labels, max_points=2 * _POINTS)
        bounds = tuple(math.log(max(limits[name], 1e-12)) if name in limits else math.inf for name in names)
        return cls(names, bounds, costs, success)

    def predict(self, features: Features) -> tuple[Array, Array]:
        """Return the (n, c) predicted costs and the (n,) chance that a network works and meets all limits."""
        chance, costs = self.chance(features), np.empty((len(features), len(self.names)))
        for i, (process, limit) in enumerate(zip(self.costs, self.limits, strict=True)):
            if math.isfinite(limit):
                mean, deviation = process.predict(features)
                chance = chance * ndtr((limit - mean) / deviation)
            else:
                mean = process.mean(features)
            costs[:, i] = np.exp(mean)
        return costs, chance

    def chance(self, features: Features) -> Array:
        """Return the (n,) chance that a network can be built and trained."""
        if self.success is None:
            return np.ones(len(features))
        return np.clip(self.success.mean(features), _LEAST_CHANCE, 1.0)

    def learn(self, built: Features, resources: Sequence[Resources], failed: Features) -> Screen:
        """Add networks that were measured, and ones that could not be."""
        logs = _logs(self.names, resources)
        costs = tuple(p.condition(built, column) for p, column in zip(self.costs, logs.T, strict=True))
        success = self.success
        if success is not None:
            labels = np.concatenate([np.ones(len(built)), np.zeros(len(failed))])
            success = success.condition(built.join(failed), labels)
        return Screen(self.names, self.limits, costs, success)


def _logs(names: Sequence[str], resources: Sequence[Resources]) -> Array:
    logs: Array = np.log(np.maximum(cost_matrix(resources, names), 1e-12))
    return logs
