"""What an operator list consists of while it grows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sparsemod.measure.graph import Weight
from sparsemod.measure.layout import Layout

__all__ = ["FUSES_ACTIVATION", "Bound", "DraftOperator", "DraftTensor", "Parts"]

FUSES_ACTIVATION = {
    "conv_2d",
    "depthwise_conv_2d",
    "fully_connected",
    "add",
    "sub",
    "mul",
    "max_pool_2d",
    "average_pool_2d",
    "transpose_conv",
}


@dataclass(slots=True, eq=False)
class DraftTensor:
    """A tensor of the operator list; `n_readers` is the largest number of readers of a value in it."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    n_readers: int = 0


@dataclass(slots=True, eq=False)
class DraftOperator:
    """An operator that later operations may still be fused into."""

    kind: str
    inputs: list[int]
    outputs: list[int]
    weights: list[Weight]
    attributes: dict[str, Any]
    module: str
    n_macs: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Bound:
    """Where a value lies: a tensor of the operator list and the layout of the value in it."""

    tensor: int
    layout: Layout


@dataclass(frozen=True, slots=True, eq=False)
class Parts:
    """A value that is a stack along dimension 0 and is made, part for part, only when it is read."""

    items: tuple[Callable[[], Bound], ...]
