"""The operator list while it grows: tensors, operators, and where each traced value lies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from math import prod
from operator import mul
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sparsemod.measure.graph import Weight
from sparsemod.measure.layers import Trace
from sparsemod.measure.layout import Axes, Axis, Layout, sizes
from sparsemod.measure.lowering.drafts import FUSES_ACTIVATION, Bound, DraftOperator, DraftTensor, Parts
from sparsemod.measure.values import Node, Value

__all__ = ["Builder", "Handler", "array", "constant"]


@dataclass(slots=True, eq=False)
class Builder:
    """Collects operators; every handler of a traced operation adds to it."""

    trace: Trace
    tensors: list[DraftTensor] = field(default_factory=list)
    operators: list[DraftOperator] = field(default_factory=list)
    writer: dict[int, DraftOperator] = field(default_factory=dict)
    _bound: dict[int, Bound | Parts] = field(default_factory=dict)
    _uses: Counter[int] = field(default_factory=Counter)
    _names: Counter[str] = field(default_factory=Counter)
    _moved: dict[tuple[int, Any], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for node in self.trace.nodes:
            self._uses.update(value.id for value in node.values)
        self._uses.update(value.id for value in self.trace.outputs)

    def add_tensor(self, name: str, shape: Sequence[int], dtype: str) -> int:
        """Add a tensor under a unique name and return its id."""
        self._names[name] += 1
        count = self._names[name]
        unique = name if count == 1 else f"{name}#{count}"
        self.tensors.append(DraftTensor(unique, tuple(int(n) for n in shape), dtype))
        return len(self.tensors) - 1

    def bind(self, value: Value | None, bound: Bound | Parts) -> None:
        """Record where a traced value lies."""
        if value is None:
            return
        self._bound[value.id] = bound
        if isinstance(bound, Bound):
            tensor = self.tensors[bound.tensor]
            tensor.n_readers = max(tensor.n_readers, self._uses[value.id])

    def raw(self, value: Value) -> Bound | Parts:
        """Return where a value lies, leaving a stack unmade."""
        return self._bound[value.id]

    def get(self, value: Value) -> Bound:
        """Return where a value lies."""
        bound = self._bound[value.id]
        if isinstance(bound, Parts):
            bound = self.stacked([item() for item in bound.items], 0)
            self.bind(value, bound)
        return bound

    def reads(self, value: Value) -> int:
        """Return how many operations read a value."""
        return self._uses[value.id]

    def emit(
        self,
        node: Node,
        kind: str,
        inputs: Iterable[int],
        shape: Sequence[int],
        *,
        weights: Iterable[Weight] = (),
        attributes: Mapping[str, Any] | None = None,
        n_macs: int = 0,
        dtype: str = "float32",
    ) -> int:
        """Add an operator with one output and return the id of that tensor."""
        return self.emit_many(
            node, kind, inputs, [shape], weights=weights, attributes=attributes, n_macs=n_macs, dtype=dtype
        )[0]

    def emit_many(
        self,
        node: Node,
        kind: str,
        inputs: Iterable[int],
        shapes: Sequence[Sequence[int]],
        *,
        weights: Iterable[Weight] = (),
        attributes: Mapping[str, Any] | None = None,
        n_macs: int = 0,
        dtype: str = "float32",
    ) -> list[int]:
        """Add an operator and return the ids of its outputs."""
        attributes = dict(attributes or {})
        if kind in FUSES_ACTIVATION:
            attributes.setdefault("activation", "none")
        outputs = [
            self.add_tensor(f"{node.module}:{kind}" if node.module else kind, s, dtype) for s in shapes
        ]
        draft = DraftOperator(
            kind, list(inputs), outputs, list(weights), attributes, node.module, int(n_macs)
        )
        self.operators.append(draft)
        for output in outputs:
            self.writer[output] = draft
        return outputs

    def fusable(self, value: Value) -> DraftOperator | None:
        """Return the operator that writes a value if nothing else reads what it writes."""
        bound = self.raw(value)
        if isinstance(bound, Parts) or self.tensors[bound.tensor].n_readers > 1:
            return None
        draft = self.writer.get(bound.tensor)
        return draft if draft is not None and len(draft.outputs) == 1 else None

    def shaped(self, node: Node, tensor: int, shape: Sequence[int]) -> int:
        """Return a tensor with the same content and this shape; adds a reshape if it has another one."""
        shape = tuple(int(n) for n in shape)
        if self.tensors[tensor].shape == shape:
            return tensor
        key = (tensor, shape)
        if key not in self._moved:
            self._moved[key] = self.emit(node, "reshape", [tensor], shape, dtype=self.tensors[tensor].dtype)
        return self._moved[key]

    def arranged(self, node: Node, bound: Bound, order: Axes) -> Bound:
        """Return the value with its axes in this order in memory; adds a transpose if they lie otherwise."""
        present = bound.layout.order
        if present == order:
            return bound
        layout = Layout(bound.layout.dims, order)
        key = (bound.tensor, (present, order))
        if key not in self._moved:
            blocks = _blocks(present, order)
            ranked = sorted(range(len(blocks)), key=lambda i: present.index(blocks[i][0]))
            block_sizes = [prod(sizes(blocks[i])) for i in ranked]
            source = bound.tensor
            groups = _grouped(self.tensors[source].shape, block_sizes)
            if groups is None:
                source = self.shaped(node, source, block_sizes)
                groups = [[i] for i in range(len(block_sizes))]
            permutation = [i for block in range(len(blocks)) for i in groups[ranked.index(block)]]
            own = self.tensors[source].shape
            self._moved[key] = self.emit(
                node,
                "transpose",
                [source],
                [own[i] for i in permutation],
                attributes={"permutation": tuple(permutation)},
                dtype=self.tensors[source].dtype,
            )
        return Bound(self._moved[key], layout)

    def canonical(self, node: Node, bound: Bound) -> Bound:
        """Return the value with its memory in PyTorch's order."""
        return self.arranged(node, bound, bound.layout.logical)

    def whole_dim(self, node: Node, bound: Bound, dim: int) -> tuple[Bound, int]:
        """Make a dimension one axis and one entry of the tensor's shape; return the value and the entry.

        A dimension of size 1 has no place in memory: it is put before the axes of the dimensions that follow
        it.
        """
        merged = bound.layout.merged(dim)
        if merged is None:  # in PyTorch's order the axes of a dimension are neighbours
            return self.whole_dim(node, self.canonical(node, bound), dim)
        bound = Bound(bound.tensor, merged)
        if not merged.dims[dim]:
            return self._slot(node, bound, dim)
        axis = merged.dims[dim][0]
        before = prod(sizes(merged.order[: merged.order.index(axis)]))
        for tensor in (bound.tensor, self.shaped(node, bound.tensor, sizes(merged.order))):
            shape = self.tensors[tensor].shape
            for i, outer in enumerate(accumulate(shape, mul, initial=1)):
                if i < len(shape) and outer == before and shape[i] == axis.size:
                    return Bound(tensor, merged), i
        raise RuntimeError(f"axis of size {axis.size} not found in shape {shape}")

    def _slot(self, node: Node, bound: Bound, dim: int) -> tuple[Bound, int]:
        layout, shape = bound.layout, self.tensors[bound.tensor].shape
        if len(shape) == 4 and shape[-1] == 1 and dim == 1 and len(layout.dims) >= 3:
            return bound, 3
        later = [axis for axes in layout.dims[dim + 1 :] for axis in axes]
        start = min((layout.order.index(axis) for axis in later), default=len(layout.order))
        wanted = [*sizes(layout.order[:start]), 1, *sizes(layout.order[start:])]
        return Bound(self.shaped(node, bound.tensor, wanted), layout), start

    def sliced(self, node: Node, bound: Bound, dim: int, start: int, stop: int, step: int = 1) -> Bound:
        """Return a slice along one dimension, which stays; adds a strided slice if anything is cut off."""
        n = len(range(start, stop, step))
        if n == bound.layout.shape[dim] and step == 1:
            return bound
        bound, place = self.whole_dim(node, bound, dim)
        shape = list(self.tensors[bound.tensor].shape)
        shape[place] = n
        output = self.emit(
            node,
            "strided_slice",
            [bound.tensor],
            shape,
            attributes={"axis": place, "begin": start, "end": stop, "stride": step},
            dtype=self.tensors[bound.tensor].dtype,
        )
        new = (Axis(n),) if n > 1 else ()
        return Bound(output, bound.layout.split(bound.layout.dims[dim][0], new))

    def stacked(self, items: list[Bound], dim: int, node: Node | None = None) -> Bound:
        """Stack values of one shape along a new dimension 0."""
        first = items[0]
        if len(items) == 1:
            return Bound(first.tensor, Layout(((), *first.layout.dims), first.layout.order))
        node = node or Node("stack", {}, (), self.writer[first.tensor].module)
        items = [self.canonical(node, item) for item in items]
        shape = self.tensors[items[0].tensor].shape
        tensors = [self.shaped(node, item.tensor, shape) for item in items]
        dtype = self.tensors[tensors[0]].dtype
        output = self.emit(node, "pack", tensors, (len(items), *shape), attributes={"axis": 0}, dtype=dtype)
        axis = Axis(len(items))
        first = items[0]
        return Bound(output, Layout(((axis,), *first.layout.dims), (axis, *first.layout.order)))


Handler = Callable[[Builder, Node], None]


def _blocks(present: Axes, order: Axes) -> list[Axes]:
    """Cut an order of axes in the longest pieces that are neighbours in the present order, too."""
    blocks: list[Axes] = []
    for axis in order:
        if blocks and present.index(blocks[-1][-1]) + 1 == present.index(axis):
            blocks[-1] = (*blocks[-1], axis)
        else:
            blocks.append((axis,))
    return blocks


def _grouped(shape: tuple[int, ...], block_sizes: list[int]) -> list[list[int]] | None:
    """Deal the entries of a shape out to blocks of these sizes; None where an entry spans a border."""
    groups: list[list[int]] = [[] for _ in block_sizes]
    block, missing = -1, 1
    for i, n in enumerate(shape):
        if n > 1 and missing == 1:
            block += 1
            missing = block_sizes[block]
        if missing % n:
            return None
        missing //= n
        groups[max(block, 0)].append(i)
    return groups


def array(value: Value | Tensor) -> NDArray[Any]:
    """Return a constant as an array: floating ones as float32, others as they are."""
    data = value.data if isinstance(value, Value) else value
    if data is None:
        raise TypeError("expected a constant, got a value that depends on the input")
    data = data.detach().cpu()
    return data.to(torch.float32).numpy() if data.is_floating_point() else data.numpy()


def constant(values: NDArray[Any], name: str, axis: int | None = None) -> Weight:
    """Make the weight of an operand that is a constant."""
    return Weight(name, np.array(values, np.float32), axis=axis)
