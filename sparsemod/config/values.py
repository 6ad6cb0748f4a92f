"""Converters of single values: text of a file or a Python value in, the typed value out.

Each raises a `ValueError` whose text goes behind the name of the key: ``expected ..., got ...``.
"""

from __future__ import annotations

import math
import operator
import os
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from sparsemod.candidate import OBJECTIVES, Constraints
from sparsemod.errors import ConfigError, nearest

__all__ = [
    "arm_name",
    "bool_converter",
    "choice",
    "constraints",
    "file_stem",
    "folder",
    "fraction",
    "integer",
    "objectives",
    "positive_number",
    "pruning",
    "recipe",
    "text",
    "truth",
]

_TRUTH = dict.fromkeys(("true", "yes", "on", "1"), True) | dict.fromkeys(("false", "no", "off", "0"), False)
_PRUNING = ("none", "unstructured", "structured")
_SHOWN = 80


def bool_converter(value: object) -> bool:
    """Read a truth value: a bool, or the text true, yes, on, 1, false, no, off or 0 in any case.

    Raises:
        ConfigError: If it is anything else.

    Example:
        >>> bool_converter("True"), bool_converter("off"), bool_converter(False)
        (True, False, False)
    """
    try:
        return truth(value)
    except ValueError as error:
        raise ConfigError(str(error)) from None


def truth(value: object) -> bool:
    """Read a truth value, see `bool_converter`."""
    if isinstance(value, bool):
        return value
    found = _TRUTH.get(value.strip().lower()) if isinstance(value, str) else None
    if found is None:
        raise expected("true or false", value)
    return found


def integer(low: int, high: int | None = None) -> Callable[[object], int]:
    """Return a reader of integers from `low` on: integers, floats without a fraction, and text of either."""
    what = f"an integer of {low} or more" if high is None else f"an integer from {low} to {high}"

    def read(value: object) -> int:
        number = _integer(value)
        if number is None or number < low or (high is not None and number > high):
            raise expected(what, value)
        return number

    return read


def positive_number(value: object) -> float:
    """Read a finite number above zero."""
    try:
        number = float(value) if not isinstance(value, bool) else math.nan  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not (math.isfinite(number) and number > 0):
        raise expected("a number above 0", value)
    return number


def fraction(value: object) -> float:
    """Read a number between 0 and 1, both excluded."""
    try:
        number = positive_number(value)
    except ValueError:
        number = 1.0
    if number >= 1.0:
        raise expected("a number between 0 and 1", value)
    return number


def choice(*allowed: str) -> Callable[[object], str]:
    """Return a reader of one of several words, in any case."""
    what = f"{', '.join(allowed[:-1])} or {allowed[-1]}"

    def read(value: object) -> str:
        word = value.strip().lower() if isinstance(value, str) else None
        if word not in allowed:
            raise expected(what, value, nearest(value, allowed) if isinstance(value, str) else "")
        return word

    return read


def pruning(value: object) -> str:
    """Read `none`, `unstructured` or `structured`; true stands for unstructured, false for none."""
    word = value.strip().lower() if isinstance(value, str) else value
    if isinstance(word, bool) or (isinstance(word, str) and word in _TRUTH):
        return "unstructured" if truth(word) else "none"
    if word not in _PRUNING:
        hint = nearest(word, _PRUNING) if isinstance(word, str) else ""
        raise expected("true, false, unstructured or structured", value, hint)
    return str(word)


def recipe(value: object) -> str:
    """Read the path of a recipe, or its text, which has more than one line."""
    name = os.fspath(value) if isinstance(value, os.PathLike) else value
    if not isinstance(name, str) or not name.strip():
        raise expected("the path of a recipe, or its text", value)
    return name if "\n" in name else name.strip()


def text(value: object) -> str:
    """Read a line of text that is not empty."""
    if not isinstance(value, str) or not value.strip() or not value.isprintable():
        raise expected("a line of text", value)
    return value.strip()


def file_stem(value: object) -> str:
    """Read a name that results files can carry on every system: no folders, no reserved characters.

    `run.json` is a file of every run.
    """
    if (
        not isinstance(value, str)
        or not value.isprintable()
        or not re.fullmatch(r"\w[\w.+ -]{0,99}", value)
        or re.search(r"[ .]$", value)
        or value.lower() == "run"
        or len(os.fsencode(value)) > 200
    ):
        what = "a plain file name without folders, of letters, digits, spaces and _ . + -, other than run"
        raise expected(what, value)
    return value


def folder(value: object) -> Path:
    """Read the path of a folder; `~` is the home folder."""
    what = "the path of a folder"
    if not isinstance(value, (str, os.PathLike)):
        raise expected(what, value)
    name = os.fspath(value)
    if not isinstance(name, str) or not name.strip() or not name.isprintable():
        raise expected(what, value)
    try:
        return Path(name).expanduser()
    except RuntimeError:
        raise expected(f"{what}, but there is no such home folder", value) from None


def objectives(value: object) -> tuple[str, ...]:
    """Read how many objectives, 1 to 4, or which, error included; names come back in the usual order."""
    what = f"1, 2, 3 or 4, or a list of {', '.join(OBJECTIVES)} that includes error"
    number = _integer(value)
    if number is not None:
        if not 1 <= number <= len(OBJECTIVES):
            raise expected(what, value)
        return OBJECTIVES[:number]
    words = re.split(r"[\s,]+", value.strip()) if isinstance(value, str) else value
    if isinstance(words, Mapping) or not isinstance(words, Iterable):
        raise expected(what, value)
    names = list(words)
    for name in names:
        if not isinstance(name, str) or name not in OBJECTIVES:
            raise expected(what, name, nearest(name, OBJECTIVES) if isinstance(name, str) else "")
    if "error" not in names:
        raise expected(what, value)
    if len(set(names)) < len(names):
        raise ValueError(f"an objective is named twice in {_show(value)}")
    return tuple(name for name in OBJECTIVES if name in names)


def constraints(value: object) -> Constraints:
    """Read upper limits: `Constraints`, a dict of them, or text such as ``model_size=32768, latency=0.05``.

    `model_size` and `working_memory` are bytes, `latency` is seconds.
    """
    if isinstance(value, Constraints):
        value = {name: getattr(value, name) for name in OBJECTIVES[1:]}
    if value is None:
        value = {}
    if isinstance(value, str):
        value = _pairs(value)
    if not isinstance(value, Mapping):
        raise expected("limits such as model_size=32768, working_memory=16384, latency=0.05", value)
    limits: dict[str, Any] = {}
    for name, limit in value.items():
        if name not in OBJECTIVES[1:]:
            hint = nearest(name, OBJECTIVES[1:]) if isinstance(name, str) else ""
            raise expected(f"limits on {', '.join(OBJECTIVES[1:])}", name, hint)
        try:
            read: Callable[[object], float] = positive_number if name == "latency" else integer(1)
            limits[name] = None if limit is None else read(limit)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
    return Constraints(**limits)


def arm_name(value: object) -> str:
    """Read the name of an arm, ``<trial>_<index>``; a bare trial number stands for its arm 0.

    Example:
        >>> arm_name("779_0"), arm_name(779)
        ('779_0', '779_0')
    """
    word = value.strip() if isinstance(value, str) else value
    number = None if isinstance(word, str) and "_" in word else _integer(word)
    if number is not None and number >= 0:
        return f"{number}_0"
    if not isinstance(word, str) or not re.fullmatch(r"[0-9]{1,18}_[0-9]{1,18}", word):
        raise expected("the name of an arm, such as 779_0", value)
    return word


def expected(what: str, value: object, hint: str = "") -> ValueError:
    """Return the error that says in one line what was expected and what came."""
    return ValueError(f"expected {what}, got {_show(value)}{hint}")


def _show(value: object) -> str:
    shown = " ".join(repr(value).split())
    return shown if len(shown) <= _SHOWN else f"{shown[: _SHOWN - 3]}..."


def _integer(value: object) -> int | None:
    """Read an integer without losing anything; None when it is none."""
    anything: Any = value
    if isinstance(value, bool):
        return None
    if isinstance(value, str):
        try:
            return int(value)
        except ValueError:
            pass
    try:
        return operator.index(anything)
    except TypeError:
        pass
    try:
        number = float(anything)
    except (TypeError, ValueError, OverflowError):
        return None
    return int(number) if math.isfinite(number) and number == int(number) else None


def _pairs(value: str) -> dict[str, str]:
    """Part ``a=1, b=2`` into its pairs."""
    pairs: dict[str, str] = {}
    for part in filter(None, (piece.strip() for piece in re.split(r"[,\n]", value))):
        name, sign, number = part.partition("=" if "=" in part else ":")
        if not sign:
            raise expected("limits such as model_size=32768, working_memory=16384, latency=0.05", value)
        if name.strip() in pairs:
            raise ValueError(f"{name.strip()} is limited twice in {_show(value)}")
        pairs[name.strip()] = number.strip()
    return pairs
