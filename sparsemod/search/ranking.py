"""Ranks proposals by expected hypervolume improvement: many by predicted costs, few by exact ones."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from sparsemod.candidate import Parametrization, Resources
from sparsemod.search.acquisition import Boxes, Scale, decompose, expected_gain, expected_improvement
from sparsemod.search.feasibility import Key, Measured, Meter
from sparsemod.search.inputs import CAPACITY, Inputs, cost_matrix
from sparsemod.search.knowledge import Knowledge, effective_epochs
from sparsemod.search.pool import Proposal
from sparsemod.search.screening import Screen
from sparsemod.search.strategy import Problem
from sparsemod.search.surrogate import Features, Kernel, fit

__all__ = ["Ranking"]

Array = NDArray[np.float64]

_UNLIMITED = 0.3
_MARGIN = 0.1  # the reference's distance behind the worst error, in units of the range


class Ranking:
    """Values proposals against what is known; one serves one call of a strategy.

    It holds the surrogate of the error, the screen and the decomposed front, and learns what is measured in
    the call. `believe` adds a chosen proposal with its predicted error, so that the next one of a batch
    goes elsewhere (the Kriging believer); arms that are being evaluated are believed from the start.
    """

    def __init__(self, knowledge: Knowledge, problem: Problem, meter: Meter, kernel: Kernel) -> None:
        self.problem, self.meter = problem, meter
        arms = (*knowledge.trained, *knowledge.failed, *knowledge.pending)
        self._by_name = {arm.name: arm for arm in arms}
        epochs = [effective_epochs(arm, self._by_name) for arm in knowledge.trained]
        resources = [r for arm in knowledge.trained if arm.evaluation and (r := arm.evaluation.resources)]
        capacity = cost_matrix(resources, CAPACITY)
        bounds = min([*epochs, problem.epochs]), max([*epochs, problem.epochs])
        self._inputs = Inputs(problem.space, kernel == "arc", Scale.of(capacity), bounds)
        trained = self._inputs.networks([arm.candidate.parametrization for arm in knowledge.trained])
        failed = self._inputs.networks([arm.candidate.parametrization for arm in knowledge.failed])
        self._error = fit(self._inputs.trainings(trained, capacity, epochs), knowledge.errors, kernel)
        self._screen = Screen.of(problem, trained, resources, failed)
        self._learned: set[Key] = set()

        seen = knowledge.costs[knowledge.feasible] if knowledge.feasible.any() else knowledge.costs
        self._scale = Scale.of(seen)
        low, high = float(knowledge.errors.min()), float(knowledge.errors.max())
        self._reference = high + _MARGIN * (high - low) if high > low else high + 1.0
        self._front_errors = knowledge.errors[knowledge.front]
        self._front_costs = self._scale(knowledge.costs[knowledge.front])
        self._boxes = self._decomposed()
        for arm in knowledge.pending:
            params = dict(arm.candidate.parametrization)
            resources_of_arm = meter(params).resources
            if resources_of_arm is not None:
                self._believe(params, effective_epochs(arm, self._by_name), resources_of_arm)

    def screen(self, proposals: Sequence[Proposal]) -> Array:
        """Return (n,) approximate values of proposals, from predicted costs."""
        if not proposals:
            return np.empty(0)
        networks = self._inputs.networks([p.params for p in proposals])
        costs, chance = self._screen.predict(networks)
        by_name = dict(zip(self._screen.names, costs.T, strict=True))
        capacity = np.column_stack([by_name[name] for name in CAPACITY])
        objectives = np.array([by_name[name] for name in self.problem.costs]).T.reshape(len(proposals), -1)
        return self._value(networks, capacity, self._epochs_of(proposals), objectives) * chance

    def measure(self, proposals: Sequence[Proposal]) -> Array:
        """Measure proposals; return (n,) exact values, minus infinity for what is infeasible."""
        measured = [self.meter(p.params) for p in proposals]
        self._learn(measured)
        values = np.full(len(proposals), -np.inf)
        good = [i for i, m in enumerate(measured) if m.feasible]
        if good:
            networks = self._inputs.networks([proposals[i].params for i in good])
            resources = [r for i in good if (r := measured[i].resources)]
            epochs = self._epochs_of([proposals[i] for i in good])
            objectives = cost_matrix(resources, self.problem.costs)
            value = self._value(networks, cost_matrix(resources, CAPACITY), epochs, objectives)
            values[good] = value * self._screen.chance(networks)
        return values

    def best(self, proposals: Sequence[Proposal], n_measured: Sequence[int]) -> Proposal | None:
        """Return the best of what is measured, or None if nothing of it is within the limits.

        Args:
            proposals: Different ones.
            n_measured: How many to measure, in turns: each turn measures those with the largest approximate
                values under what the turns before taught.
        """
        found: dict[Key, tuple[float, Proposal]] = {}
        for n in n_measured:
            rest = [p for p in proposals if p.key not in found]
            some = [rest[i] for i in np.argsort(-self.screen(rest), kind="stable")[:n]]
            found |= {p.key: (v, p) for p, v in zip(some, self.measure(some).tolist(), strict=True)}
        value, best = max(found.values(), key=lambda item: item[0], default=(-math.inf, None))
        return best if value > -math.inf else None

    def believe(self, proposal: Proposal) -> None:
        """Take a measured proposal as trained, with the error that is predicted for it."""
        resources = self.meter(proposal.params).resources
        if resources is not None:
            self._believe(proposal.params, self._epochs_of([proposal])[0], resources)

    def _believe(self, params: Parametrization, epochs: int, resources: Resources) -> None:
        networks = self._inputs.networks([params])
        features = self._inputs.trainings(networks, cost_matrix([resources], CAPACITY), [epochs])
        mean, _ = self._error.predict(features)
        self._error = self._error.condition(features, mean)
        self._front_errors = np.append(self._front_errors, mean)
        costs = self._scale(cost_matrix([resources], self.problem.costs))
        self._front_costs = np.vstack([self._front_costs, costs])
        self._boxes = self._decomposed()

    def _value(self, networks: Features, capacity: Array, epochs: Sequence[int], costs: Array) -> Array:
        """Expected improvement over budgets: up to the reference, and with some weight an unlimited one."""
        mean, deviation = self._error.predict(self._inputs.trainings(networks, capacity, epochs))
        unlimited: float = _UNLIMITED ** costs.shape[1]
        limited = expected_improvement(self._boxes, mean, deviation, self._scale(costs))
        return limited + unlimited * expected_gain(self._boxes.errors[0], mean, deviation)

    def _learn(self, measured: Sequence[Measured]) -> None:
        fresh = {m.key: m for m in measured if m.key not in self._learned}
        self._learned |= fresh.keys()
        built = [m for m in fresh.values() if m.resources is not None]
        failed = [m for m in fresh.values() if m.resources is None]
        if fresh:
            self._screen = self._screen.learn(
                self._inputs.networks([m.params for m in built]),
                [m.resources for m in built if m.resources is not None],
                self._inputs.networks([m.params for m in failed]),
            )

    def _decomposed(self) -> Boxes:
        return decompose(self._front_errors, self._front_costs, self._reference, self._scale.reference)

    def _epochs_of(self, proposals: Sequence[Proposal]) -> list[int]:
        inherited = [0 if p.parent is None else effective_epochs(p.parent, self._by_name) for p in proposals]
        return [self.problem.epochs + epochs for epochs in inherited]
