"""ONNX nodes and constants of a network while it is written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparsemod.errors import ConfigError

__all__ = ["Constants", "Nodes", "Weights", "package"]

Permutation = tuple[int, ...]


@dataclass(slots=True)
class Constants:
    """The constants of a file, equal ones once, and the numbering of its values."""

    known: dict[tuple[bytes, str, tuple[int, ...]], str] = field(default_factory=dict)
    arrays: dict[str, NDArray[Any]] = field(default_factory=dict)
    n_values: int = 0

    def name(self, values: NDArray[Any]) -> str:
        """Return the name of a constant."""
        values = np.ascontiguousarray(values).reshape(values.shape)
        key = values.tobytes(), str(values.dtype), values.shape
        if key not in self.known:
            self.known[key] = f"c{len(self.known)}"
            self.arrays[self.known[key]] = values
        return self.known[key]


@dataclass(slots=True)
class Nodes:
    """One list of nodes; those of a loop's body share the constants."""

    constants: Constants = field(default_factory=Constants)
    nodes: list[Any] = field(default_factory=list)

    def add(self, op: str, *inputs: str, n_outputs: int = 1, **attributes: Any) -> str:
        """Add a node and return the name of its first output; the others' end in ``_1``, ``_2``, ..."""
        self.constants.n_values += 1
        name = f"v{self.constants.n_values}"
        outputs = [name, *(f"{name}_{i}" for i in range(1, n_outputs))]
        self.nodes.append(package().helper.make_node(op, list(inputs), outputs, **attributes))
        return name

    def floats(self, *values: float) -> str:
        """Return a float32 constant: a scalar where there is one value."""
        return self.constants.name(np.array(values[0] if len(values) == 1 else values, np.float32))

    def ints(self, *values: int) -> str:
        """Return a vector of int64."""
        return self.constants.name(np.array(values, np.int64))

    def reshaped(self, x: str, shape: Sequence[int]) -> str:
        """Add a reshape."""
        return self.add("Reshape", x, self.ints(*shape))

    def transposed(self, x: str, permutation: Sequence[int]) -> str:
        """Add a transposition unless nothing would move."""
        order = list(permutation)
        return x if order == sorted(order) else self.add("Transpose", x, perm=order)

    def child(self) -> Nodes:
        """Return an empty list for the body of a loop."""
        return Nodes(self.constants)


@dataclass(frozen=True, slots=True)
class Weights:
    """The constants of one operator as values of the file: real numbers, or integers and what they mean.

    Attributes:
        value: Returns the name of the i-th weight, its dimensions permuted if a permutation is given.
        bias: Returns the name of the i-th bias, or an empty string.
    """

    value: Callable[[int, Permutation | None], str]
    bias: Callable[[int], str]


def package() -> Any:
    """Return the package `onnx`.

    Raises:
        ConfigError: It is not installed.
    """
    try:
        import onnx
    except ImportError:
        raise ConfigError("writing ONNX needs the package onnx: pip install 'sparsemod[onnx]'") from None
    return onnx
