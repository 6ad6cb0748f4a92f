"""Calls, and loops over the elements of arrays, as C text with all sizes in it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from sparsemod.measure.strides import merged

__all__ = ["call", "copy", "for_each", "indented", "nested", "over", "place"]

Strides = Sequence[int]


def call(function: str, *arguments: Any) -> str:
    """Return the statement that calls a function.

    Example:
        >>> call("sm_copy", 3, "x", "y")
        'sm_copy(3, x, y);'
    """
    return f"{function}({', '.join(str(argument) for argument in arguments)});"


def for_each(n: int, statement: str) -> str:
    """Return a loop over ``i0`` around a statement, or the statement where there is one turn."""
    return statement if n == 1 else nested([n], statement)


def nested(sizes: Sequence[int], body: str, first: int = 0) -> str:
    """Return loops around a statement; the variables are ``i0``, ``i1`` and so on."""
    for depth in reversed(range(len(sizes))):
        name = f"i{first + depth}"
        body = f"for (int {name} = 0; {name} < {sizes[depth]}; ++{name}) {{\n{indented(body)}\n}}"
    return body


def over(
    shape: Sequence[int],
    operands: Sequence[tuple[str, Strides]],
    inner: Callable[[int, list[str], list[int]], str],
) -> str:
    """Return loops over all dimensions but the innermost, which a statement works on.

    Args:
        shape: What is walked through.
        operands: Address of the first element, and the strides along `shape`, of each array.
        inner: Called with the number of elements, the addresses and the strides of the innermost dimension.
    """
    sizes, strides = merged(shape, [s for _, s in operands])
    if not sizes:
        sizes, strides = [1], [[0] for _ in operands]
    places = [place(text, s[:-1]) for (text, _), s in zip(operands, strides, strict=True)]
    return nested(sizes[:-1], inner(sizes[-1], places, [s[-1] for s in strides]))


def place(base: str, strides: Strides, first: int = 0) -> str:
    """Return the address behind a base that the loops' variables make."""
    terms = [f"i{first + k}" + (f" * {s}" if s != 1 else "") for k, s in enumerate(strides) if s]
    return " + ".join([base, *terms])


def copy(shape: Sequence[int], out: tuple[str, Strides], source: tuple[str, Strides]) -> str:
    """Return code that copies bytes from one array to another."""

    def inner(n: int, places: list[str], steps: list[int]) -> str:
        if steps == [1, 1]:
            return f"memcpy({places[0]}, {places[1]}, {n});"
        ends = [f"[k * {step}]" if step != 1 else "[k]" for step in steps]
        return f"for (int k = 0; k < {n}; ++k) {{\n    ({places[0]}){ends[0]} = ({places[1]}){ends[1]};\n}}"

    return over(shape, [out, source], inner)


def indented(text: str, by: str = "    ") -> str:
    """Return text with every line that is not empty moved to the right."""
    return "\n".join(by + line if line else line for line in text.split("\n"))
