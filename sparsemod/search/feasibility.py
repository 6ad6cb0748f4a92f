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

_ROUNDS = 120
_PATIENCE = 30  # rounds without progress, after which there is none to hope for
_SINGLY = 5  # rounds without progress, after which one parameter is changed at a time
_CHILDREN = 8
_TRIES = 48  # mutations a round, of which those are measured that are new
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

    It gives up early when the nearest one has not come nearer for a while.

    Args:
        starts: Where to begin; those least above the limits survive.
        meter: Measures the mutants.
        rng: Draws them.
        taken: Identities that must not be returned.
        rounds: How often the survivors are mutated at most.

    Returns:
        A feasible configuration that is not taken, or None.
    """
    beam = sorted((s for s in starts if math.isfinite(s.excess)), key=lambda s: s.excess)[:_SURVIVORS]
    seen, nearest, progress = {m.key for m in beam}, math.inf, 0
    for turn in range(rounds if beam else 0):
        if beam[0].excess < nearest:
            nearest, progress = beam[0].excess, turn
        elif turn - progress >= _PATIENCE:
            break
        children = _children(beam, meter, rng, seen, at_most=1 if turn - progress > _SINGLY else 4)
        seen.update(child.key for child in children)
        for child in children:
            if child.feasible and child.key not in taken:
                return child
        pool = {m.key: m for m in (*beam, *children) if math.isfinite(m.excess)}
        beam = sorted(pool.values(), key=lambda m: m.excess)[:_SURVIVORS]
    return None


def _children(
    beam: Sequence[Measured], meter: Meter, rng: np.random.Generator, seen: Set[Key], at_most: int
) -> list[Measured]:
    """Measure mutations of 1 to `at_most` parameters that have not been seen, few more often than many."""
    space = meter.problem.space
    children: dict[Key, Measured] = {}
    for i in range(_TRIES):
        try:
            params = space.mutate(beam[i % len(beam)].params, rng, n=min(int(rng.geometric(0.5)), at_most))
        except SpaceError:
            continue
        if (key := space.key(params)) not in seen:
            children[key] = meter(params)
        if len(children) == _CHILDREN:
            break
    return list(children.values())


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
