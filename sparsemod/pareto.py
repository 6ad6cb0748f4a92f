"""Pareto fronts and hypervolumes of arrays of objective values; less is better everywhere."""

from __future__ import annotations

from collections.abc import Sequence

import moocore
import numpy as np
import numpy.typing as npt

__all__ = ["hypervolume", "pareto_mask"]

Values = npt.NDArray[np.float64] | Sequence[Sequence[float]]


def pareto_mask(values: Values) -> npt.NDArray[np.bool_]:
    """Tell which rows no other row dominates.

    A row dominates another when it is nowhere greater and somewhere less. Equal rows do not dominate each
    other, so all copies of a front point are on the front. A row that holds NaN or an infinity is a failed
    measurement: it is never on the front and dominates nothing.

    Args:
        values: (n, m) objective values, n points of m >= 1 objectives.

    Returns:
        (n,) booleans.

    Raises:
        ValueError: If `values` is not a two-dimensional array of numbers with at least one column.

    Example:
        >>> pareto_mask([[1, 4], [2, 2], [4, 1], [3, 3], [2, 2], [float("nan"), 0]]).tolist()
        [True, True, True, False, True, False]
        >>> pareto_mask([[3], [1], [1]]).tolist()
        [False, True, True]
    """
    points = _matrix("pareto_mask", values)
    mask = np.asarray(np.isfinite(points).all(axis=1))
    if mask.any():
        mask[mask] = moocore.is_nondominated(points[mask], keep_weakly=True)
    return mask


def hypervolume(values: Values, reference: Sequence[float] | npt.NDArray[np.float64]) -> float:
    """Return the volume between the points and a reference that they dominate, exactly.

    Only points that are below the reference in every objective count; rows that hold NaN are ignored.

    Args:
        values: (n, m) objective values.
        reference: (m,) finite upper corner.

    Returns:
        The volume in the product of the objectives' units; 0 when no point counts.

    Raises:
        ValueError: If the shapes do not fit, the reference is not finite, or a value is minus infinity.

    Example:
        >>> hypervolume([[1, 4], [2, 2], [4, 1]], [5, 5])
        11.0
    """
    points = _matrix("hypervolume", values)
    corner = np.asarray(reference, dtype=np.float64)
    if corner.shape != (points.shape[1],):
        raise ValueError(
            f"hypervolume: expected a reference of shape ({points.shape[1]},), one number for each column of "
            f"values, got shape {corner.shape}"
        )
    if not np.isfinite(corner).all():
        raise ValueError(f"hypervolume: expected a finite reference, got {corner.tolist()}")
    if np.isneginf(points).any():
        raise ValueError("hypervolume: a value of -inf has no finite volume")
    inside = points[(points < corner).all(axis=1)]
    if len(inside) == 0:
        return 0.0
    if points.shape[1] == 1:
        return float((corner - inside).max())
    return float(moocore.hypervolume(inside, ref=corner))


def _matrix(function: str, values: Values) -> npt.NDArray[np.float64]:
    """Return the values as (n, m) floats; a ragged, flat or non-numeric array is refused with its shape."""
    try:
        points = np.array(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{function}: expected values as an (n, m) array of numbers: {error}") from None
    if points.ndim != 2 or points.shape[1] == 0:
        raise ValueError(
            f"{function}: expected values of shape (n, m), a row for each point and a column for each "
            f"objective, got shape {points.shape}"
        )
    return points
