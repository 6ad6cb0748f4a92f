"""How many configurations there are, and every value of a discrete parameter."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sparsemod.candidate import ParamValue
from sparsemod.space.parameters import Choice, Parameter, Range, Tunable

__all__ = ["count", "every_value"]

Children = Mapping[str, Mapping[ParamValue, tuple[str, ...]]]


def count(parameters: Mapping[str, Parameter], children: Children, names: Iterable[str]) -> int | None:
    """Return the number of configurations of the named parameters and all below them; None when infinite.

    Example:
        >>> depth = Range("depth", int, 1, 4, step=1)
        >>> kind = Choice("kind", str, ("conv", "skip"), ordered=True)
        >>> count({"kind": kind, "depth": depth}, {"kind": {"conv": ("depth",)}}, ["kind"])
        5
    """
    total = 1
    for name in names:
        n = _count_one(parameters, children, name)
        if n is None:
            return None
        total *= n
    return total


def every_value(parameter: Tunable) -> list[ParamValue]:
    """Return all values in their order.

    Raises:
        ValueError: If the parameter is continuous.
    """
    if isinstance(parameter, Choice):
        return list(parameter.values)
    if parameter.n_values is None:
        raise ValueError(f"{parameter.name}: a continuous parameter has no list of values")
    return [parameter.nearest(parameter.lower + i * parameter.step) for i in range(parameter.n_values)]


def _count_one(parameters: Mapping[str, Parameter], children: Children, name: str) -> int | None:
    parameter, below = parameters[name], children.get(name, {})
    if isinstance(parameter, Choice):
        counts = [count(parameters, children, below.get(value, ())) for value in parameter.values]
        return None if None in counts else sum(n for n in counts if n is not None)
    if isinstance(parameter, Range):
        return parameter.n_values
    return count(parameters, children, [child for names in below.values() for child in names])
