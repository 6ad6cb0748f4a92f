"""How a value such as the sparsity moves from its first to its last one; pure functions of the time."""

from __future__ import annotations

from typing import Literal

__all__ = ["Interpolation", "interpolate"]

Interpolation = Literal["linear", "cubic", "inverse_cubic"]


def interpolate(
    at: float, start: float, end: float, first: float, last: float, how: Interpolation = "cubic"
) -> float:
    """Return the value at a time; `first` before `start`, `last` from `end` on.

    With ``x = (at - start) / (end - start)`` the share of the way that is done is ``x`` (linear),
    ``1 - (1 - x)**3`` (cubic: fast at first, gentle at the end; Zhu & Gupta 2017, arXiv:1710.01878) or
    ``1 - (1 - x)**(1/3)`` (inverse cubic).

    Args:
        at: The time, in any unit that `start` and `end` share (steps, epochs).
        start: When the way begins.
        end: When it is done; where `end` is not above `start` the value jumps at `start`.
        first: The value at `start`.
        last: The value at `end`.
        how: The curve.

    Raises:
        ValueError: `how` is none of the three.

    Example:
        >>> [round(interpolate(epoch, 0, 10, 0.05, 0.8), 5) for epoch in (0, 1, 2, 5, 9, 10)]
        [0.05, 0.25325, 0.416, 0.70625, 0.79925, 0.8]
    """
    if how not in ("linear", "cubic", "inverse_cubic"):
        raise ValueError(f"interpolation must be linear, cubic or inverse_cubic, got {how!r}")
    if at >= max(start, end):
        return last
    if at <= start:
        return first
    x = (at - start) / (end - start)
    if how == "cubic":
        x = 1.0 - (1.0 - x) ** 3
    elif how == "inverse_cubic":
        x = 1.0 - (1.0 - x) ** (1.0 / 3.0)
    return first + (last - first) * x
