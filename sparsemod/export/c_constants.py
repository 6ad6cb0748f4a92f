"""The constants of a C bundle: one object, whose size is what the network takes in flash."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["ConstantPool"]

_PER_LINE = 24
_ORDER = {"int32_t": 0, "uint16_t": 1, "int8_t": 2, "uint8_t": 3}


@dataclass(slots=True)
class ConstantPool:
    """Collects arrays and writes them as a structure without gaps.

    Attributes:
        symbol: Name of the object.
    """

    symbol: str
    members: dict[str, tuple[str, NDArray[Any]]] = field(default_factory=dict)
    known: dict[tuple[Any, ...], str] = field(default_factory=dict)

    def add(self, label: str, ctype: str, values: NDArray[Any], key: tuple[Any, ...] | None = None) -> str:
        """Return how code names an array.

        Args:
            label: What its name begins with.
            ctype: ``int32_t``, ``uint16_t``, ``int8_t`` or ``uint8_t``.
            values: Its numbers.
            key: What tells it from other arrays; the same key gives the same array. None is always new.
        """
        if key is not None and key in self.known:
            return f"{self.symbol}.{self.known[key]}"
        name = f"{label}_{len(self.members)}"
        self.members[name] = (ctype, np.ascontiguousarray(values).reshape(-1))
        if key is not None:
            self.known[key] = name
        return f"{self.symbol}.{name}"

    @property
    def n_bytes(self) -> int:
        """Size of the object."""
        total = sum(_width(ctype) * values.size for ctype, values in self.members.values())
        return -(-total // 4) * 4

    def definition(self) -> str:
        """Return the C text of the object; empty where there is nothing in it."""
        if not self.members:
            return ""
        ordered = sorted(self.members.items(), key=lambda item: _ORDER[item[1][0]])
        total = sum(_width(ctype) * values.size for ctype, values in self.members.values())
        declared = [f"    {ctype} {name}[{values.size}];" for name, (ctype, values) in ordered]
        filled = [f"    {{{_numbers(values)}}}," for _, (_, values) in ordered]
        if ordered[0][1][0] != "int32_t" and total % 4:  # nothing else makes the object end at a whole word
            declared.append(f"    uint8_t filling[{-total % 4}];")
            filled.append(f"    {{{', '.join(['0'] * (-total % 4))}}},")
        return (
            "static const struct {\n" + "\n".join(declared) + "\n} " + self.symbol + " = {\n"
            + "\n".join(filled) + "\n};\n"
        )  # fmt: skip


def _width(ctype: str) -> int:
    return {"int32_t": 4, "uint16_t": 2, "int8_t": 1, "uint8_t": 1}[ctype]


def _numbers(values: NDArray[Any]) -> str:
    texts = [_number(int(v)) for v in values]
    lines = [texts[i : i + _PER_LINE] for i in range(0, len(texts), _PER_LINE)]
    return ",\n     ".join(_joined(line) for line in lines)


def _joined(texts: Sequence[str]) -> str:
    return ", ".join(texts)


def _number(value: int) -> str:
    """Return a C literal; the least number of 32 bits has none of its own."""
    return "-2147483647 - 1" if value == -(2**31) else str(value)
