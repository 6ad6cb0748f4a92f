"""The order of modifiers: by end, then start, then identifier; works on anything, also without these."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

__all__ = ["compare", "compare_ends", "compare_identifiers", "compare_lists", "compare_starts"]


def compare(one: object, two: object) -> int:
    """Order by end, then start, then identifier; -1, 0 or 1."""
    return compare_ends(one, two) or compare_starts(one, two) or compare_identifiers(one, two)


def compare_ends(one: object, two: object) -> int:
    """Order by end; without one first, -1 (never ends) last."""
    return _sign(_end_key(_epoch(one, "end_epoch")), _end_key(_epoch(two, "end_epoch")))


def compare_starts(one: object, two: object) -> int:
    """Order by start; without one first."""
    return _sign(_start_key(_epoch(one, "start_epoch")), _start_key(_epoch(two, "start_epoch")))


def compare_identifiers(one: object, two: object) -> int:
    """Order by identifier, which only makes the order definite."""
    return _sign(_identifier(one), _identifier(two))


def compare_lists(one: Sequence[object], two: Sequence[object]) -> int:
    """Order lists by their largest end, then their smallest start, then their largest identifier.

    In a list, -1 counts below every end, so that a list never ends only if nothing in it does.
    """
    ends = [_end_key(_extreme(max, mods, "end_epoch")) for mods in (one, two)]
    starts = [_start_key(_extreme(min, mods, "start_epoch")) for mods in (one, two)]
    identifiers = [max(map(_identifier, mods), default="") for mods in (one, two)]
    return _sign(*ends) or _sign(*starts) or _sign(*identifiers)


def _epoch(modifier: object, name: str) -> float | None:
    return getattr(modifier, name, None)


def _end_key(end: float | None) -> float:
    return -math.inf if end is None else math.inf if end == -1 else end


def _start_key(start: float | None) -> float:
    return -math.inf if start is None else start


def _extreme(
    pick: Callable[[Iterable[float]], float], modifiers: Iterable[object], name: str
) -> float | None:
    epochs = [epoch for modifier in modifiers if (epoch := _epoch(modifier, name)) is not None]
    return pick(epochs) if epochs else None


def _identifier(modifier: object) -> str:
    return str(modifier.identifier()) if hasattr(modifier, "identifier") else ""


def _sign(one: Any, two: Any) -> int:
    return int(one > two) - int(one < two)
