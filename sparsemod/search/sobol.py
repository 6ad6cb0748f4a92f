"""Stage 1: a Sobol sequence over the space; what cannot run on the chip is replaced before it is trained."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sparsemod.candidate import Arm, Candidate
from sparsemod.errors import ExhaustedError
from sparsemod.search.feasibility import Key, Measured, Meter, infeasible, toward_limits
from sparsemod.search.strategy import Problem, generator
from sparsemod.space.sampling import draw

__all__ = ["SobolStrategy", "draw_candidates", "exhausted"]

_DRAWS = 100  # tried for one candidate before it is searched for
_ENUMERABLE = 20_000  # combinations of values a space may have for its last ones to be looked up


@dataclass(frozen=True, slots=True)
class SobolStrategy:
    """Space-filling draws, the documented first stage.

    A draw above a limit or equal to an earlier arm is skipped for good; a call goes on behind the largest
    draw in the history. A draw that cannot be measured is proposed all the same: it fails at once, and its
    reason is recorded.
    """

    name: str = "sobol"
    stage: int = 1

    def ask(self, n: int, history: Sequence[Arm], problem: Problem) -> list[Candidate]:
        """Return the next `n` draws; see `Strategy.ask`."""
        return draw_candidates(n, history, problem, self.stage)


def draw_candidates(n: int, history: Sequence[Arm], problem: Problem, stage: int) -> list[Candidate]:
    """Return the next `n` draws for a stage; also what the other stages begin with when they have no history.

    Raises:
        InfeasibleError: If no configuration within the limits was found and the history holds none either.
        ExhaustedError: If there is no other configuration left.
    """
    rng, meter = generator(problem, stage, history), Meter(problem)
    taken: set[Key] = {problem.space.key(arm.candidate.parametrization) for arm in history}
    position = 1 + max((a.candidate.draw for a in history if a.candidate.draw is not None), default=-1)
    candidates: list[Candidate] = []
    while len(candidates) < n:
        above: list[Measured] = []
        found: Measured | None = None
        for index in range(position, position + _DRAWS):
            position = index + 1
            params = draw(problem.space, problem.seed, index)
            if problem.space.key(params) in taken:
                continue
            measured = meter(params)
            if measured.feasible or measured.resources is None:
                found = measured
                break
            above.append(measured)
        if found is None:
            found = _left_over(meter, rng, taken) or toward_limits(above, meter, rng, taken)
        if found is None:
            found = toward_limits(_within(history, meter), meter, rng, taken)
        if found is None:
            break
        taken.add(found.key)
        candidates.append(Candidate(found.params, stage, "sobol", draw=position - 1))
    if not candidates:
        raise exhausted(history, problem, meter)
    return candidates


def exhausted(history: Sequence[Arm], problem: Problem, meter: Meter) -> Exception:
    """Say why there is no candidate: every one has been tried, or the limits exclude what was not."""
    above = [m for m in meter.measured.values() if m.resources is not None and not m.feasible]
    known = [a.evaluation.resources for a in history if a.evaluation and a.evaluation.resources]
    if above and not any(problem.constraints.violation(r) is None for r in known):
        return infeasible(meter)
    within = " within the limits" if above else ""
    return ExhaustedError(
        f"every configuration of the search space{within} has been evaluated ({len(history)} arms)"
    )


def _within(history: Sequence[Arm], meter: Meter) -> list[Measured]:
    """Return earlier arms within the limits, whose neighbours may be within them, too."""
    limits = meter.problem.constraints
    known = [(a, a.evaluation.resources) for a in history if a.evaluation and a.evaluation.resources]
    space = meter.problem.space
    within = [(dict(a.candidate.parametrization), r) for a, r in known if limits.violation(r) is None]
    return [Measured(params, space.key(params), resources, 0.0) for params, resources in within]


def _left_over(meter: Meter, rng: np.random.Generator, taken: set[Key]) -> Measured | None:
    """Look up a configuration of a small space that the draws did not meet."""
    space = meter.problem.space
    if math.prod(p.n_values or math.inf for p in space.tunable.values()) > _ENUMERABLE:
        return None
    rest = [params for params in space.configurations() if space.key(params) not in taken]
    for i in rng.permutation(len(rest))[: 3 * _DRAWS]:
        measured = meter(rest[i])
        if measured.feasible or measured.resources is None:
            return measured
    return None
