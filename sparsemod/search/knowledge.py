"""What the history of a run says, as arrays: errors, costs, the front, and what must not come again."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sparsemod.candidate import Arm, Evaluation, Status
from sparsemod.pareto import pareto_mask
from sparsemod.search.feasibility import Key
from sparsemod.search.inputs import cost_matrix
from sparsemod.search.strategy import Problem

__all__ = ["Knowledge", "effective_epochs", "know"]

Array = NDArray[np.float64]

_SMALLEST_ERROR = 1e-4


@dataclass(frozen=True, slots=True)
class Knowledge:
    """The arms of a history, sorted by what they teach.

    Attributes:
        taken: Identities of all arms.
        trained: Arms with an error and costs, n of them.
        failed: Arms that failed.
        pending: Arms that are being evaluated.
        errors: (n,) natural logarithms of the errors. An error of 0 counts as half the smallest that is not.
        costs: (n, m - 1) objectives besides the error, in bytes and seconds.
        feasible: (n,) whether all limits hold.
        front: Positions in `trained` of the feasible arms that no feasible arm dominates.
    """

    taken: frozenset[Key]
    trained: tuple[Arm, ...]
    failed: tuple[Arm, ...]
    pending: tuple[Arm, ...]
    errors: Array
    costs: Array
    feasible: NDArray[np.bool_]
    front: NDArray[np.intp]


def know(history: Sequence[Arm], problem: Problem) -> Knowledge:
    """Sort a history."""
    complete = [(arm, arm.evaluation) for arm in history if arm.evaluation and _is_complete(arm.evaluation)]
    trained = tuple(arm for arm, _ in complete)
    raw = np.array([evaluation.error for _, evaluation in complete], dtype=float)
    known = [evaluation.resources for _, evaluation in complete if evaluation.resources]
    costs = cost_matrix(known, problem.costs)
    feasible = np.array([problem.constraints.violation(r) is None for r in known], dtype=bool)
    candidates = np.flatnonzero(feasible)
    on_front = pareto_mask(np.column_stack([raw, costs])[candidates])
    floor = max(0.5 * min((e for e in raw if e > 0), default=0.0), _SMALLEST_ERROR)
    return Knowledge(
        frozenset(problem.space.key(arm.candidate.parametrization) for arm in history),
        trained,
        tuple(arm for arm in history if arm.evaluation and not _is_complete(arm.evaluation)),
        tuple(arm for arm in history if arm.evaluation is None),
        np.log(np.maximum(raw, floor)),
        costs,
        feasible,
        candidates[on_front],
    )


def effective_epochs(arm: Arm, by_name: dict[str, Arm]) -> int:
    """Return the epochs an arm has behind it, those of the arms it inherited its weights from included."""
    total, parent = arm.epochs, arm.candidate.parent
    while parent is not None and parent in by_name:
        total += by_name[parent].epochs
        parent = by_name[parent].candidate.parent
    return total


def _is_complete(evaluation: Evaluation) -> bool:
    return (
        evaluation.status is Status.COMPLETED
        and evaluation.error is not None
        and math.isfinite(evaluation.error)
        and evaluation.resources is not None
    )
