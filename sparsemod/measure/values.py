"""The single-assignment form of a trace: values and the operations between them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

__all__ = ["Node", "Value"]


@dataclass(slots=True, eq=False)
class Value:
    """A tensor at one moment.

    Attributes:
        id: Counted in the order of appearance.
        shape: PyTorch's shape.
        dtype: PyTorch's dtype.
        data: The content of a constant; None for what depends on the input.
        source: The parameter or buffer that a constant comes from, if there is one.
    """

    id: int
    shape: tuple[int, ...]
    dtype: torch.dtype
    data: Tensor | None = None
    source: str | None = None


@dataclass(slots=True, eq=False)
class Node:
    """One operation.

    Attributes:
        op: PyTorch's name without overload and in-place mark.
        arguments: By their names in the schema, tensors as values.
        outputs: Its results, None for those that are no tensors.
        module: Qualified name of the module that ran it.
        values: The values among the arguments.
    """

    op: str
    arguments: dict[str, Any]
    outputs: tuple[Value | None, ...]
    module: str
    values: tuple[Value, ...] = field(init=False)

    def __post_init__(self) -> None:
        found: list[Value] = []
        for argument in self.arguments.values():
            if isinstance(argument, Value):
                found.append(argument)
            elif isinstance(argument, list):
                found += [item for item in argument if isinstance(item, Value)]
        self.values = tuple(found)
