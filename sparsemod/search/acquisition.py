"""Expected hypervolume improvement when only the error is uncertain.

The cost of a network (flash, RAM, latency) is known before it is trained, so of the m objectives one alone is
random. For a candidate with the exact cost vector ``r`` and a random error ``E``,

    EHVI(r) = E[ volume dominated by (E, r) and by no point of the front, up to the reference ]
            = integral over t up to the reference of  P(E < t) * V(t; r)  dt

where ``V(t; r)`` is the volume of costs that ``r`` dominates and no front point with an error of at most
``t`` does. ``V`` is a step function of ``t``, so the integral is a finite sum of closed forms. `decompose`
cuts the region that the front leaves free into boxes once, by sweeping the front in order of error;
`expected_improvement` then needs one product a box and candidate. No sampling and no approximation is
involved, and the number of objectives does not matter: with the error alone, the one box without cost
dimensions gives expected improvement.

Errors come on the scale of the surrogate (the logarithm of the error, where its prediction is Gaussian) and
volumes are measured on that scale too: halving the error is worth the same at 40 % and at 4 %. Costs come
scaled by `Scale`: logarithms, in units of the range seen so far, because halving a network is worth the
same at 100 kB and at 10 kB.

Sources: Emmerich, Deutz, Klinkenberg (2011), "Hypervolume-based expected improvement"; Daulton, Balandat,
Bakshy (2020), "Differentiable expected hypervolume improvement", for the sum over boxes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

__all__ = ["Boxes", "Scale", "decompose", "expected_improvement"]

Array = NDArray[np.float64]

_CHUNK = 2_000_000  # numbers a temporary may hold, so that thousands of candidates stay in the cache's reach
_MARGIN = 0.1  # the reference lies this share of the range behind the worst value, as is usual


@dataclass(frozen=True, slots=True)
class Scale:
    """Maps costs in real units to logarithms in units of the range seen; the reference is behind the worst.

    Attributes:
        low: (m - 1,) logarithm of the smallest cost seen.
        span: (m - 1,) difference to the logarithm of the largest; 1 where all are equal.
    """

    low: Array
    span: Array

    @classmethod
    def of(cls, costs: Array) -> Scale:
        """Take the range from the (n, m - 1) costs seen, in bytes and seconds, n >= 1."""
        logs = _log(costs)
        low = logs.min(axis=0)
        span = logs.max(axis=0) - low
        return cls(low, np.where(span > 1e-9, span, 1.0))

    def __call__(self, costs: Array) -> Array:
        """Return the (n, m - 1) scaled costs; what was seen lies in [0, 1]."""
        scaled: Array = (_log(costs) - self.low) / self.span
        return scaled

    @property
    def reference(self) -> Array:
        """The (m - 1,) costs from which a network is worth nothing, on this scale."""
        return np.full_like(self.low, 1.0 + _MARGIN)


@dataclass(frozen=True, slots=True)
class Boxes:
    """The region that a front leaves free, cut into disjoint boxes.

    Attributes:
        edges: (k,) errors, ascending; the last is the reference's.
        begin: (b,) for each box the number of the edge where it begins, -1 for minus infinity.
        end: (b,) the number of the edge where it ends.
        lower: (b, m - 1) lower corner in the costs, minus infinity where it is open.
        upper: (b, m - 1) upper corner in the costs.
    """

    edges: Array
    begin: NDArray[np.intp]
    end: NDArray[np.intp]
    lower: Array
    upper: Array


def decompose(errors: Array, costs: Array, reference_error: float, reference_costs: Array) -> Boxes:
    """Cut the region that no front point dominates, up to the reference, into boxes.

    Args:
        errors: (n,) errors of the front points, on the scale of the surrogate. Dominated points do no harm.
        costs: (n, m - 1) their costs; m - 1 may be 0.
        reference_error: The error from which a network is worth nothing.
        reference_costs: (m - 1,) the same for the costs.

    Returns:
        The boxes; their number grows about linearly with n for three objectives and quadratically for four.
    """
    n_costs = len(reference_costs)
    inside = (errors < reference_error) & np.all(costs < reference_costs, axis=1)
    errors, costs = errors[inside], costs[inside]
    order = np.argsort(errors, kind="stable")
    edges = np.append(errors[order], reference_error)

    begin = np.full(1, -1)
    lower, upper = np.full((1, n_costs), -np.inf), reference_costs[None, :].copy()
    closed: list[tuple[NDArray[np.intp], int, Array, Array]] = []
    for edge, point in enumerate(costs[order]):
        hit = np.all(upper > point, axis=1)
        if not hit.any():
            continue
        lower_hit, upper_hit = lower[hit], upper[hit]
        closed.append((begin[hit], edge, lower_hit, upper_hit))
        pieces = [(begin[~hit], lower[~hit], upper[~hit])]
        corner = np.maximum(lower_hit, point)
        for axis in range(
            n_costs
        ):  # what the point leaves of a box: below it in `axis`, at or above it before
            cut = lower_hit[:, axis] < corner[:, axis]
            low, high = lower_hit[cut].copy(), upper_hit[cut].copy()
            low[:, :axis] = corner[cut, :axis]
            high[:, axis] = corner[cut, axis]
            pieces.append((np.full(len(low), edge), low, high))
        begin = np.concatenate([piece[0] for piece in pieces])
        lower = np.concatenate([piece[1] for piece in pieces])
        upper = np.concatenate([piece[2] for piece in pieces])
    closed.append((begin, len(edges) - 1, lower, upper))
    return Boxes(
        edges,
        np.concatenate([c[0] for c in closed]),
        np.concatenate([np.full(len(c[0]), c[1]) for c in closed]),
        np.concatenate([c[2] for c in closed]),
        np.concatenate([c[3] for c in closed]),
    )


def expected_improvement(boxes: Boxes, mean: Array, deviation: Array, costs: Array) -> Array:
    """Return the expected hypervolume improvement of each candidate.

    Args:
        boxes: From `decompose`.
        mean: (n,) expected error, on the scale of the surrogate.
        deviation: (n,) its standard deviation; 0 is allowed and gives the improvement itself.
        costs: (n, m - 1) exact costs on the scale of the front's.

    Returns:
        (n,) values of at least 0.

    Example:
        A front of one point (error 2, size 2), reference (4, 4): the certain candidate (1, 1) adds 9 - 4.

        >>> boxes = decompose(np.array([2.0]), np.array([[2.0]]), 4.0, np.array([4.0]))
        >>> expected_improvement(boxes, np.array([1.0]), np.array([0.0]), np.array([[1.0]])).tolist()
        [5.0]
    """
    n_boxes, n_costs = boxes.lower.shape
    step = max(1, _CHUNK // (n_boxes * max(n_costs, 1)))
    values = np.empty(len(mean))
    for start in range(0, len(mean), step):
        part = slice(start, start + step)
        below = _integral(boxes.edges, mean[part, None], deviation[part, None])
        below = np.concatenate(
            [below, np.zeros((len(below), 1))], axis=1
        )  # index -1: the integral from -infinity
        slab = np.maximum(below[:, boxes.end] - below[:, boxes.begin], 0.0)
        for axis in range(n_costs):
            side = boxes.upper[:, axis] - np.maximum(boxes.lower[:, axis], costs[part, axis, None])
            slab *= np.maximum(side, 0.0)
        values[part] = slab.sum(axis=1)
    return values


def _integral(edges: Array, mean: Array, deviation: Array) -> Array:
    """Integrate P(E < t) from minus infinity to each edge: s (z Phi(z) + phi(z)), z = (edge - mean) / s."""
    gap = edges - mean
    z = gap / np.maximum(deviation, 1e-12)
    density = np.exp(-0.5 * z * z) / np.sqrt(2.0 * np.pi)
    integral: Array = np.maximum(gap * ndtr(z) + deviation * density, 0.0)
    return integral


def _log(costs: Array) -> Array:
    logs: Array = np.log(np.maximum(costs, 1e-12))
    return logs
