"""Checks of modifiers' arguments: each returns the value to keep, or says what was expected and what came."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from typing import Any

from sparsemod.compress.recipe_errors import RecipeError
from sparsemod.errors import nearest

__all__ = [
    "ALL",
    "ALL_PRUNABLE",
    "boolean",
    "in_range",
    "indices",
    "mapping",
    "names",
    "number",
    "one_of",
    "optional",
]

ALL = "__ALL__"
ALL_PRUNABLE = "__ALL_PRUNABLE__"


def number(value: Any, name: str = "the value") -> float:
    """Return a finite float.

    Raises:
        RecipeError: It is something else.

    Example:
        >>> number("1e-3")
        0.001
    """
    try:
        result = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        result = math.nan
    if not math.isfinite(result):
        raise RecipeError(f"{name} must be a finite number, not {value!r}")
    return result


def in_range(
    name: str, low: float, high: float, *, low_open: bool = False, high_open: bool = False
) -> Callable[[Any], float]:
    """Return a check that a number lies between two limits."""
    interval = f"{'(' if low_open else '['}{low:g}, {high:g}{')' if high_open else ']'}"

    def check(value: Any) -> float:
        result = number(value, name)
        above = result > low if low_open else result >= low
        below = result < high if high_open else result <= high
        if not (above and below):
            raise RecipeError(f"{name} must be in {interval}, not {result:g}")
        return result

    return check


def one_of(name: str, allowed: Collection[str]) -> Callable[[Any], str]:
    """Return a check that a word is among the allowed ones."""

    def check(value: Any) -> str:
        if value not in allowed:
            close = nearest(str(value), allowed)
            raise RecipeError(f"{name} must be one of {', '.join(allowed)}, not {value!r}{close}")
        return str(value)

    return check


def names(name: str) -> Callable[[Any], str | list[str]]:
    """Return a check of a token such as ``__ALL__``, or of a list of names and ``re:`` patterns."""

    def check(value: Any) -> str | list[str]:
        if isinstance(value, str):
            tokens = [token for token in (ALL, ALL_PRUNABLE) if token.lower() == value.lower()]
            if not tokens:
                raise RecipeError(f"{name} must be {ALL}, {ALL_PRUNABLE} or a list, not {value!r}")
            return tokens[0]
        if not isinstance(value, list | tuple) or not all(isinstance(item, str) for item in value):
            raise RecipeError(f"{name} must be a list of names, not {value!r}")
        return list(value)

    return check


def boolean(name: str) -> Callable[[Any], bool]:
    """Return a check of a truth value."""

    def check(value: Any) -> bool:
        if not isinstance(value, bool):
            raise RecipeError(f"{name} must be true or false, not {value!r}")
        return value

    return check


def indices(name: str) -> Callable[[Any], list[int]]:
    """Return a check of a list of indices from 0."""

    def check(value: Any) -> list[int]:
        items = value if isinstance(value, list | tuple) else [None]
        if not all(isinstance(item, int) and not isinstance(item, bool) and item >= 0 for item in items):
            raise RecipeError(f"{name} must be a list of indices, not {value!r}")
        return list(items)

    return check


def mapping(name: str) -> Callable[[Any], dict[str, Any]]:
    """Return a check of values by name."""

    def check(value: Any) -> dict[str, Any]:
        if not isinstance(value, Mapping):
            raise RecipeError(f"{name} must hold values by name, not {value!r}")
        return {str(key): item for key, item in value.items()}

    return check


def optional(check: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a check that lets None pass."""
    return lambda value: None if value is None else check(value)
