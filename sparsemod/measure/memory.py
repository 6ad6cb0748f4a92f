"""RAM of activations: the arena of the runtime's planner and the two models of the SpArSe paper."""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from sparsemod.measure.graph import ITEM_BYTES, OperatorGraph, Weight

__all__ = [
    "Arena",
    "Buffer",
    "buffers",
    "inputs_outputs_bytes",
    "inputs_weights_bytes",
    "live_bytes",
    "plan_arena",
]


@dataclass(frozen=True, slots=True)
class Arena:
    """Where each buffer lies.

    Attributes:
        offsets: Bytes from the start of the arena, in the order of the buffers.
        n_bytes: Size of the arena.
    """

    offsets: tuple[int, ...]
    n_bytes: int


@dataclass(frozen=True, slots=True)
class Buffer:
    """A piece of the arena.

    Attributes:
        n_bytes: Size.
        first: The moment from which on it holds something; operators follow each other from moment 1 on.
        last: The last moment at which it is needed.
        tensors: Ids of the tensors that share it; none for scratch memory and for what is inside a loop.
    """

    n_bytes: int
    first: int
    last: int
    tensors: tuple[int, ...] = ()


def plan_arena(sizes: Sequence[int], first: Sequence[int], last: Sequence[int], alignment: int = 16) -> Arena:
    """Place buffers as TensorFlow Lite Micro's `GreedyMemoryPlanner` does.

    The largest is placed first, of equal ones that with the larger index; each goes to the lowest gap that is
    large enough between those already placed whose lifetimes overlap its own.

    Args:
        sizes: Bytes of each buffer, rounded up to `alignment` here.
        first: Position of the operator from which on a buffer lives.
        last: Position of the last operator that needs it, included.
        alignment: Bytes.

    Raises:
        ValueError: The sequences differ in length.

    Example:
        Two tensors that live together, 112 + 64 bytes when aligned:

        >>> plan_arena([100, 60], [0, 0], [1, 1])
        Arena(offsets=(0, 112), n_bytes=176)
    """
    if not len(sizes) == len(first) == len(last):
        raise ValueError(
            f"expected as many sizes as lifetimes, got {len(sizes)}, {len(first)} and {len(last)}"
        )
    aligned = [-(-size // alignment) * alignment for size in sizes]
    offsets = [0] * len(aligned)
    placed: list[tuple[int, int, int, int]] = []  # by offset: it, the end, first and last moment
    for i in sorted(range(len(aligned)), key=lambda i: (-aligned[i], -i)):
        offset, size, start, stop = 0, aligned[i], first[i], last[i]
        for begin, end, other_start, other_stop in placed:
            if other_start <= stop and start <= other_stop:
                if begin - offset >= size:
                    break
                offset = max(offset, end)
        offsets[i] = offset
        insort(placed, (offset, offset + size, start, stop))
    return Arena(tuple(offsets), max((o + s for o, s in zip(offsets, aligned, strict=True)), default=0))


def buffers(
    graph: OperatorGraph, *, alias: bool, scratch: Sequence[Sequence[int]] = ()
) -> tuple[Buffer, ...]:
    """Return the buffers of a network in the order of its tensors, then the scratch memory of its operators.

    The tensors of a ``while`` operator's lists follow those of the network, and live while it runs.

    Args:
        graph: The operators.
        alias: Whether a reshape's output shares the buffer of its input, as in the `c` runtime;
            the interpreter copies it.
        scratch: For each operator, of the network and then of the lists inside it (the order of
            `OperatorGraph.lists`), the sizes of the pieces of memory that it needs while it runs.
    """
    lifetimes = _Lifetimes()
    spans = lifetimes.mark(graph)
    first, last, owner = list(spans.first), list(spans.last), list(range(len(graph.tensors)))
    for operator in graph.operators:
        if alias and operator.kind == "reshape":
            owner[operator.outputs[0]] = owner[operator.inputs[0]]
    members: dict[int, list[int]] = {}
    for i, own in enumerate(owner):
        members.setdefault(own, []).append(i)
    tensors = [
        Buffer(graph.tensors[own].n_bytes, first[own], max(last[i] for i in ids), tuple(ids))
        for own, ids in members.items()
    ]
    tensors += [
        Buffer(tensor.n_bytes, start, stop)
        for inner, span in lifetimes.nested
        for tensor, start, stop in zip(inner.tensors, span.first, span.last, strict=True)
    ]
    running = [*spans.operators, *(moments for _, span in lifetimes.nested for moments in span.operators)]
    for pieces, (start, stop) in zip(scratch, running, strict=False):
        tensors += [Buffer(n, start, stop) for n in pieces if n]
    return tuple(tensors)


@dataclass(slots=True)
class _Spans:
    """First and last moment of each tensor and of each operator of a list."""

    first: list[int]
    last: list[int]
    operators: list[tuple[int, int]]


@dataclass(slots=True)
class _Lifetimes:
    """Counts moments through a list of operators and the lists inside it, as the interpreter does."""

    moment: int = 0
    nested: list[tuple[OperatorGraph, _Spans]] = field(default_factory=list)

    def mark(self, graph: OperatorGraph) -> _Spans:
        # what a file names and nothing touches gets memory, too, but at no moment: -1, as in the interpreter
        spans = _Spans([-1] * len(graph.tensors), [-1] * len(graph.tensors), [])
        for i in graph.inputs:
            spans.first[i] = spans.last[i] = self.moment
        for operator in graph.operators:
            self.moment += 1
            start = self.moment
            for i in operator.outputs:
                spans.first[i] = start
            inner = [operator.attributes[part] for part in ("condition", "body") if operator.kind == "while"]
            for part in inner:
                self.moment += 1
                place = len(self.nested)
                self.nested.append((part, _Spans([], [], [])))
                self.nested[place] = (part, self.mark(part))
            for i in (*operator.inputs, *operator.outputs):
                spans.last[i] = self.moment
            spans.operators.append((start, self.moment))
        for i in graph.outputs:
            spans.last[i] = self.moment
        return spans


def live_bytes(sizes: Sequence[int], first: Sequence[int], last: Sequence[int]) -> int:
    """Return the largest sum of buffers that live at one time: no plan can be smaller.

    Example:
        >>> live_bytes([100, 60, 10], [0, 0, 2], [1, 1, 2])
        160
    """
    moments = range(max(last, default=-1) + 1)
    return max(
        (sum(s for s, f, l in zip(sizes, first, last, strict=True) if f <= t <= l) for t in moments),
        default=0,
    )


def inputs_weights_bytes(graph: OperatorGraph) -> int:
    """Return the SpArSe paper's first model: the largest sum of an operator's inputs and non-zero weights.

    Weights and biases that are not zero are charged one item each, their indices nothing.

    Source: Fedorov et al., SpArSe: Sparse Architecture Search for CNNs on Resource-Constrained
        Microcontrollers,
    NeurIPS 2019.
    """
    return max(
        (
            sum(graph.tensors[i].n_bytes for i in operator.inputs)
            + sum(_nonzero(weight) * ITEM_BYTES[weight.dtype] for weight in operator.weights)
            for operator in graph.operators
        ),
        default=0,
    )


def _nonzero(weight: Weight) -> int:
    biases = 0 if weight.bias is None else np.count_nonzero(weight.bias)
    return int(np.count_nonzero(weight.values) + biases)


def inputs_outputs_bytes(graph: OperatorGraph) -> int:
    """Return the SpArSe paper's second model: the largest sum of an operator's inputs and outputs."""
    return max(
        (sum(graph.tensors[i].n_bytes for i in (*op.inputs, *op.outputs)) for op in graph.operators),
        default=0,
    )
