"""Measuring candidates before they are trained, and finding ones within the limits where these are tight."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

import numpy as np

from sparsemod.candidate import UNITS, ParamValue, Resources
from sparsemod.errors import CandidateError, InfeasibleError, SpaceError
from sparsemod.search.strategy import Problem

__all__ = ["Key", "Measured", "Meter", "infeasible", "toward_limits"]

Key = tuple[ParamValue, ...]

_ROUNDS = 40
_CHILDREN = 8
_SURVIVORS = 3


@dataclass(frozen=True, slots=True)
class Measured:
    """A configuration and what it costs.

    Attributes:
        params: The configuration.
        key: Its identity in the space.
        resources: None when the network cannot be built or measured.
        excess: How far it is above the limits: the sum of the logarithms of value / limit over those that are
            broken; 0 within all of them, infinite when there are no resources.
    """

    params: dict[str, ParamValue]
    key: Key
    resources: Resources | None
    excess: float

    @property
    def feasible(self) -> bool:
        """Whether it can be built and is within the limits."""
        return self.excess == 0.0


class Meter:
    """Measures the configurations of one call of a strategy; each one once."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.measured: dict[Key, Measured] = {}

    def __call__(self, params: Mapping[str, ParamValue]) -> Measured:
        """Return what a configuration costs."""
        key = self.problem.space.key(params)
        if key not in self.measured:
            try:
                resources = self.problem.resources(params)
            except CandidateError:
                self.measured[key] = Measured(dict(params), key, None, math.inf)
            else:
                self.measured[key] = Measured(dict(params), key, resources, self._excess(resources))
        return self.measured[key]

    def __len__(self) -> int:
        return len(self.measured)

    def _excess(self, resources: Resources) -> float:
        if self.problem.constraints.violation(resources) is None:
            return 0.0
        limits = self.problem.constraints.limits()
        ratios = [resources.objective(name) / max(limit, 1e-12) for name, limit in limits.items()]
        return sum(math.log(ratio) for ratio in ratios if ratio > 1.0) or 1e-12


def toward_limits(
    starts: Sequence[Measured], meter: Meter, rng: np.random.Generator, taken: Set[Key], rounds: int = _ROUNDS
) -> Measured | None:
    """Mutate configurations above the limits, keeping those that come nearest, until one is within.

    Args:
        starts: Where to begin; those least above the limits survive.
        meter: Measures the mutants.
        rng: Draws them.
        taken: Identities that must not be returned.
        rounds: How often the survivors are mutated.

    Returns:
        A feasible configuration that is not taken, or None.
    """
    space = meter.problem.space
    beam = sorted((s for s in starts if math.isfinite(s.excess)), key=lambda s: s.excess)[:_SURVIVORS]
    for _ in range(rounds if beam else 0):
        children: dict[Key, Measured] = {}
        for i in range(_CHILDREN):
            try:
                child = meter(space.mutate(beam[i % len(beam)].params, rng, n=int(rng.integers(1, 5))))
            except SpaceError:
                continue
            if child.feasible and child.key not in taken:
                return child
            children[child.key] = child
        pool = {m.key: m for m in beam} | children
        beam = sorted((m for m in pool.values() if math.isfinite(m.excess)), key=lambda m: m.excess)[
            :_SURVIVORS
        ]
    return None


def infeasible(meter: Meter) -> InfeasibleError:
    """Say in one line which limit excludes everything that was measured, and the smallest value seen."""
    problem, tries = meter.problem, [m for m in meter.measured.values() if m.resources is not None]
    if not tries:
        return InfeasibleError(
            f"none of the {len(meter)} configurations that were tried can be built and measured; "
            "run with debug = true to see why"
        )
    smallest = {
        name: (min(m.resources.objective(name) for m in tries if m.resources is not None), limit)
        for name, limit in problem.constraints.limits().items()
    }
    name, (value, limit) = max(smallest.items(), key=lambda item: item[1][0] / max(item[1][1], 1e-12))
    start = f"none of the {len(meter)} configurations that were tried is within the limits"
    if value > limit:
        unit = UNITS[name]
        return InfeasibleError(f"{start}: {name} is at least {value:g} {unit}, its limit is {limit:g} {unit}")
    nearest = min(tries, key=lambda m: m.excess)
    together = problem.constraints.violation(nearest.resources) if nearest.resources is not None else None
    return InfeasibleError(f"{start}: each can be met, but not all together; in the nearest one {together}")
