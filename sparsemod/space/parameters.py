"""What one parameter may hold: frozen descriptors read once from Ax's parameters.

Each kind answers the same few questions: which value a point of the unit interval stands for (`from_unit`),
where a value sits for a model (`encoded`, `positions`), why a value is not allowed (`problem`), and which
allowed value is nearest (`nearest`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from ax.core import parameter as ax

from sparsemod.candidate import ParamValue
from sparsemod.errors import SpaceError

__all__ = ["Choice", "Derived", "Fixed", "Parameter", "Range", "Tunable", "from_ax_parameter"]


@dataclass(frozen=True, slots=True)
class Range:
    """A number between two bounds, both included.

    Attributes:
        step: Distance of neighbouring values: 1 for an integer, ``10 ** -digits`` for a float with digits, 0
            when every float is allowed.
        digits: Decimals of a float, or None.
        scale: ``linear``, ``log`` or ``logit``.
    """

    name: str
    type: type[int] | type[float]
    lower: int | float
    upper: int | float
    step: int | float = 0
    digits: int | None = None
    scale: str = "linear"

    @property
    def n_values(self) -> int | None:
        """How many values there are; None for a continuous range."""
        if self.type is int:
            return int(self.upper - self.lower) + 1
        return round((self.upper - self.lower) / self.step) + 1 if self.step else None

    def from_unit(self, u: float) -> int | float:
        """Decode a point of [0, 1); discrete values share the interval evenly, in log on a log scale.

        Example:
            >>> depth = Range("depth", int, 1, 4, step=1)
            >>> [depth.from_unit(u) for u in (0.0, 0.2499, 0.25, 0.9999)]
            [1, 1, 2, 4]
        """
        n_values = self.n_values
        if n_values is not None and self.scale == "linear":
            return self._snap(self.lower + math.floor(u * n_values) * self.step)
        low, high = self._edges()
        return self._snap(_unscaled(self.scale, low + u * (high - low)))

    def to_unit(self, value: int | float) -> float:
        """Return the middle of the values that `from_unit` decodes to `value`."""
        n_values = self.n_values
        if n_values is not None and self.scale == "linear":
            return ((value - self.lower) / self.step + 0.5) / n_values
        low, high = self._edges()
        return min(max((_scaled(self.scale, value) - low) / (high - low), 0.0), 1.0)

    def encoded(self, values: np.ndarray) -> np.ndarray:
        """Map values onto [0, 1], the bounds onto 0 and 1, in the parameter's scale."""
        low, high = _scaled(self.scale, self.lower), _scaled(self.scale, self.upper)
        scaled = np.log(values) if self.scale != "linear" else values
        if self.scale == "logit":
            scaled = scaled - np.log1p(-values)
        return np.clip((scaled - low) / (high - low), 0.0, 1.0)

    def problem(self, value: object) -> str | None:
        """Say why `value` is not allowed, or None."""
        if not _is_a(value, self.type):
            return f"{self.name}: expected {_article(self.type)}, got {value!r}"
        number: Any = value
        if not self.lower <= number <= self.upper:
            return f"{self.name}: {number!r} is outside [{self.lower}, {self.upper}]"
        if self.digits is not None and round(float(number), self.digits) != number:
            return f"{self.name}: {number!r} has more than {self.digits} digits"
        return None

    def nearest(self, value: object) -> int | float | None:
        """Return the allowed number nearest to `value`, or None when `value` is no number at all."""
        if isinstance(value, int) and self.type is int:
            return int(min(max(value, self.lower), self.upper))
        number = _number(value)
        return None if number is None else self._snap(number)

    def _snap(self, number: float) -> int | float:
        number = min(max(number, self.lower), self.upper)
        if self.type is int:
            return number if isinstance(number, int) else math.floor(number + 0.5)
        return float(number) if self.digits is None else round(float(number), self.digits)

    def _edges(self) -> tuple[float, float]:
        """The scaled ends: half a step beyond the bounds, so that the end values get their share."""
        low, high = self.lower - self.step / 2, self.upper + self.step / 2
        return _scaled(self.scale, low), _scaled(self.scale, high)


@dataclass(frozen=True, slots=True)
class Choice:
    """One of at least two values. `ordered` ones are a scale (`log`: logarithmic), the others are labels."""

    name: str
    type: type[bool] | type[int] | type[float] | type[str]
    values: tuple[ParamValue, ...]
    ordered: bool
    log: bool = False

    @property
    def n_values(self) -> int:
        """How many values there are."""
        return len(self.values)

    @property
    def numeric(self) -> bool:
        """Whether the values are numbers."""
        return self.type in (int, float)

    def from_unit(self, u: float) -> ParamValue:
        """Decode a point of [0, 1); the values share it evenly."""
        return self.values[min(max(math.floor(u * len(self.values)), 0), len(self.values) - 1)]

    def to_unit(self, value: ParamValue) -> float:
        """Return the middle of the points that `from_unit` decodes to `value`."""
        return (self.values.index(value) + 0.5) / len(self.values)

    def positions(self) -> np.ndarray:
        """Return where each value of an ordered choice sits in [0, 1]: by value if numeric, else evenly."""
        if not self.numeric:
            return np.linspace(0.0, 1.0, len(self.values))
        numbers = np.array(self.values, dtype=float)
        scaled = np.log(numbers) if self.log else numbers
        return np.asarray((scaled - scaled.min()) / (scaled.max() - scaled.min()))

    def problem(self, value: object) -> str | None:
        """Say why `value` is not allowed, or None."""
        if _is_a(value, self.type) and value in self.values:
            return None
        return f"{self.name}: {value!r} is none of {', '.join(map(repr, self.values))}"

    def nearest(self, value: object) -> ParamValue:
        """Return the value itself, the nearest number of a numeric choice, or None when nothing is near."""
        if isinstance(value, (bool, int, float, str)) and value in self.values:
            return self.values[self.values.index(value)]
        number = None if self.type in (str, bool) else _number(value)
        if number is None:
            return None
        numbers = [float(v) for v in self.values if v is not None]
        return self.values[min(range(len(numbers)), key=lambda i: (_distance(numbers[i], number), i))]


@dataclass(frozen=True, slots=True)
class Fixed:
    """One value."""

    name: str
    type: type[bool] | type[int] | type[float] | type[str]
    value: ParamValue

    def problem(self, value: object) -> str | None:
        """Say why `value` is not allowed, or None."""
        if _is_a(value, self.type) and value == self.value:
            return None
        return f"{self.name}: {value!r} is not the fixed value {self.value!r}"


@dataclass(frozen=True, slots=True)
class Derived:
    """A linear function of other parameters, or a copy of one; computed, never searched."""

    name: str
    type: type[bool] | type[int] | type[float] | type[str]
    weights: tuple[tuple[str, float], ...]
    intercept: float

    def compute(self, params: Mapping[str, Any]) -> ParamValue:
        """Return the value for parameters that hold all sources."""
        if len(self.weights) == 1 and self.weights[0][1] == 1.0 and self.intercept == 0.0:
            return self.type(params[self.weights[0][0]])
        return self.type(self.intercept + sum(weight * float(params[name]) for name, weight in self.weights))


Tunable = Range | Choice
Parameter = Range | Choice | Fixed | Derived


def from_ax_parameter(parameter: Any) -> Parameter:
    """Read one Ax parameter.

    Raises:
        SpaceError: If it is of a kind that has no meaning here (fidelity, task) or its bounds are unusable.
    """
    name, kind = parameter.name, parameter.python_type
    if parameter.is_fidelity or getattr(parameter, "is_task", False):
        raise SpaceError(
            f"search space: parameter '{name}' is a fidelity or task parameter, not supported here"
        )
    if parameter.is_disabled:
        return Fixed(name, kind, kind(parameter.default_value))
    if isinstance(parameter, ax.RangeParameter):
        return _range(parameter)
    if isinstance(parameter, ax.ChoiceParameter):
        return Choice(name, kind, tuple(parameter.values), parameter.is_ordered, parameter.log_scale)
    if isinstance(parameter, ax.FixedParameter):
        return Fixed(name, kind, parameter.value)
    if isinstance(parameter, ax.DerivedParameter):
        return Derived(name, kind, tuple(parameter.parameter_names_to_weights.items()), parameter.intercept)
    raise SpaceError(f"search space: parameter '{name}' is of the unknown kind {type(parameter).__name__}")


def _range(parameter: Any) -> Range:
    kind = parameter.python_type
    digits = parameter.digits if kind is float else None
    step = 1 if kind is int else 0 if digits is None else 10.0**-digits
    scale = "log" if parameter.log_scale else "logit" if parameter.logit_scale else "linear"
    lower, upper = kind(parameter.lower), kind(parameter.upper)
    where = f"search space: parameter '{parameter.name}'"
    if not (math.isfinite(lower) and math.isfinite(upper) and lower < upper):
        raise SpaceError(f"{where}: expected finite bounds with lower < upper, got [{lower}, {upper}]")
    if (scale == "log" and lower <= 0) or (scale == "logit" and not 0 < lower < upper < 1):
        raise SpaceError(f"{where}: a {scale} scale cannot hold the bounds [{lower}, {upper}]")
    return Range(parameter.name, kind, lower, upper, step, digits, scale)


def _scaled(scale: str, value: float) -> float:
    if scale == "log":
        return math.log(value)
    return math.log(value / (1 - value)) if scale == "logit" else float(value)


def _unscaled(scale: str, value: float) -> float:
    if scale == "log":
        return math.exp(value)
    return 1 / (1 + math.exp(-value)) if scale == "logit" else value


def _is_a(value: object, kind: type) -> bool:
    """Whether a value is of a parameter's type; an integer is a number too, a bool is neither."""
    if kind is bool or isinstance(value, bool):
        return kind is bool and isinstance(value, bool)
    return isinstance(value, (int, float) if kind is float else kind)


def _number(value: object) -> float | None:
    """Read anything number-like (NumPy and torch scalars, numeric text); None when it is not, or is NaN."""
    anything: Any = value
    try:
        number = float(anything)
    except (TypeError, ValueError):
        return None
    except OverflowError:
        number = math.inf if anything > 0 else -math.inf
    return None if math.isnan(number) else number


def _distance(a: float, b: float) -> float:
    return abs(a - b) if math.isfinite(b) else -a if b > 0 else a


def _article(kind: type) -> str:
    return "an integer" if kind is int else "a number"
