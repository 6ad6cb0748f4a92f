"""The parameters that training itself reads, and what they may hold."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from sparsemod.errors import SpaceError
from sparsemod.space.parameters import Choice, Derived, Fixed, Parameter, Range

__all__ = ["MANDATORY", "check_mandatory"]

MANDATORY = ("learning_rate", "learning_gamma", "learning_step", "prune_threshold", "batch_size")


def check_mandatory(parameters: Mapping[str, Parameter], always_active: Collection[str]) -> None:
    """Refuse a space that training cannot use.

    Raises:
        SpaceError: If mandatory parameters are missing (all are named), conditional, not numeric or out of
            bounds.
    """
    missing = [name for name in MANDATORY if name not in parameters]
    if missing:
        plural = "s" if len(missing) > 1 else ""
        raise SpaceError(f"search space: missing the mandatory parameter{plural} {', '.join(missing)}")
    for name in MANDATORY:
        if problem := _problem(name, parameters, always_active):
            raise SpaceError(f"search space: parameter '{name}' {problem}")


def _problem(name: str, parameters: Mapping[str, Parameter], always_active: Collection[str]) -> str | None:
    parameter = parameters[name]
    if name not in always_active:
        return "must always be active, but it depends on another parameter"
    if parameter.type not in (int, float):
        return f"must be numeric (ParameterType.INT or FLOAT), got {parameter.type.__name__} values"
    if name == "batch_size" and parameter.type is not int:
        return "must be of ParameterType.INT, got float values"
    low, high = _bounds(parameter, parameters)
    if name == "batch_size":
        return None if low >= 1 else f"must be 1 or more, got {low:g}"
    if name == "prune_threshold":
        return None if 0 <= low <= high <= 1 else f"must lie in [0, 1], got [{low:g}, {high:g}]"
    return None if low > 0 else f"must be above 0, got {low:g}"


def _bounds(parameter: Parameter, parameters: Mapping[str, Parameter]) -> tuple[float, float]:
    """The least and the greatest value a numeric parameter can take."""
    if isinstance(parameter, Range):
        return float(parameter.lower), float(parameter.upper)
    if isinstance(parameter, Choice):
        numbers = [float(v) for v in parameter.values if v is not None]
        return min(numbers), max(numbers)
    if isinstance(parameter, Fixed):
        return float(parameter.value or 0), float(parameter.value or 0)
    return _derived_bounds(parameter, parameters)


def _derived_bounds(parameter: Derived, parameters: Mapping[str, Parameter]) -> tuple[float, float]:
    low = high = parameter.intercept
    for name, weight in parameter.weights:
        ends = sorted(weight * end for end in _bounds(parameters[name], parameters))
        low, high = low + ends[0], high + ends[1]
    return low, high
