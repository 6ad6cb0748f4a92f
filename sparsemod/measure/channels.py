"""Removal of channels without effect: those that are zero whatever the input, those that nothing reads.

The channels of a tensor are the entries of its last dimension. Operators tie channels together (a pool its
input's to its output's), read them with weights (a convolution) or need all of them (a softmax). Tied
channels are removed together, where every weight that reads one of them reads zeros or is zero itself.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import prod

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from sparsemod.measure.deadness import (
    MATRICES,
    ZERO_TO_ZERO,
    dead_channels,
    flattened,
    has_zero_channels,
)
from sparsemod.measure.graph import Operator, OperatorGraph, Weight

__all__ = ["remove_dead_channels"]

Mask = NDArray[np.bool_]
Index = NDArray[np.intp]

_ELEMENTWISE = {"add", "sub", "mul", "maximum", "minimum"}
_KEEPS = ZERO_TO_ZERO | {"logistic", "exp", "log", "rsqrt", "cos"}
_RECURRENT = {"unidirectional_sequence_lstm", "gru", "unidirectional_sequence_rnn"}


def remove_dead_channels(graph: OperatorGraph) -> OperatorGraph:
    """Return a graph of the same function without its dead channels; each tensor keeps at least one.

    A channel is dead if its weights and its folded bias are zero, or its bias is not positive under a fused
    ReLU, and what follows from that through pools, sums, joins and further layers.
    """
    while has_zero_channels(graph):
        keep = _kept(graph)
        if all(mask.all() for mask in keep):
            break
        graph = _shrunk(graph, keep)
    return graph


@dataclass(slots=True)
class _Links:
    """What the operators ask of the channels, each of which is numbered from `start` of its tensor on."""

    start: Index
    ties: list[tuple[Index, Index]] = field(default_factory=list)
    blocked: list[Index] = field(default_factory=list)
    readers: list[tuple[Index, Mask]] = field(default_factory=list)

    def of(self, tensor: int) -> Index:
        """Return the numbers of a tensor's channels."""
        return np.arange(self.start[tensor], self.start[tensor + 1])


def _kept(graph: OperatorGraph) -> list[Mask]:
    """Return for each tensor which channels stay."""
    links = _Links(np.cumsum([0, *(tensor.shape[-1] for tensor in graph.tensors)]))
    for i in (*graph.inputs, *graph.outputs):
        links.blocked.append(links.of(i))
    owners: dict[str, Operator] = {}
    for operator in graph.operators:
        if not _link(graph, operator, links):
            links.blocked += [links.of(i) for i in (*operator.inputs, *operator.outputs)]
        _share(operator, owners, links)
    n = int(links.start[-1])
    rows = np.concatenate([np.empty(0, np.intp), *(a for a, _ in links.ties)])
    columns = np.concatenate([np.empty(0, np.intp), *(b for _, b in links.ties)])
    _, group = connected_components(
        coo_array((np.ones(len(rows), np.int8), (rows, columns)), (n, n)), directed=False
    )
    dead = np.concatenate(dead_channels(graph))
    stays = np.zeros(n, bool)
    for index in links.blocked:
        stays[group[index]] = True
    for index, unread in links.readers:
        stays[group[index[~(dead[index] | unread)]]] = True
    while True:
        empty = [
            s for s, e in zip(links.start[:-1], links.start[1:], strict=True) if not stays[group[s:e]].any()
        ]
        if not empty:
            break
        stays[group[empty]] = True
    return [stays[group[s:e]] for s, e in zip(links.start[:-1], links.start[1:], strict=True)]


def _share(operator: Operator, owners: dict[str, Operator], links: _Links) -> None:
    """Tie the channels of operators that share a weight."""
    for weight in operator.weights:
        owner = owners.setdefault(weight.name, operator)
        if owner is operator:
            continue
        for mine, other in ((operator.inputs, owner.inputs), (operator.outputs, owner.outputs)):
            for i, j in zip(mine, other, strict=False):
                a, b = links.of(i), links.of(j)
                if len(a) == len(b):
                    links.ties.append((a, b))
                else:
                    links.blocked += [a, b]


def _link(graph: OperatorGraph, operator: Operator, links: _Links) -> bool:
    """Add what an operator asks of its channels; False where it needs all of them."""
    kind = operator.kind
    inputs, outputs = [links.of(i) for i in operator.inputs], [links.of(i) for i in operator.outputs]
    if kind in MATRICES or kind in _RECURRENT:
        return _link_matrix(operator, inputs[0], outputs[0], links)
    if kind in _ELEMENTWISE or kind in _KEEPS:
        if any(len(index) != len(outputs[0]) for index in inputs):
            return False
        links.ties += [(index, outputs[0]) for index in inputs]
        return True
    if kind == "depthwise_conv_2d":
        links.ties.append((np.repeat(inputs[0], operator.attributes["depth_multiplier"]), outputs[0]))
        return True
    return _link_movement(graph, operator, inputs, outputs[0], links)


def _link_matrix(operator: Operator, source: Index, out: Index, links: _Links) -> bool:
    if operator.attributes.get("groups", 1) != 1:
        return False
    recurrent = operator.kind in _RECURRENT
    matrices = operator.weights[: len(operator.weights) // 2] if recurrent else operator.weights
    unread = np.ones(len(source), bool)
    for weight in matrices:
        columns = flattened(weight.values, len(source))
        if columns is None:
            return False
        unread &= ~columns.any(axis=0)
    links.readers.append((source, unread))
    if recurrent:
        links.blocked.append(out)
    return True


def _link_movement(
    graph: OperatorGraph, operator: Operator, inputs: list[Index], out: Index, links: _Links
) -> bool:
    """Tie the channels of operators that only move values."""
    kind, a = operator.kind, operator.attributes
    shape = graph.tensors[operator.inputs[0]].shape
    rank, last = len(shape), len(shape) - 1
    if kind == "concatenation" and a["axis"] == last:
        links.ties.append((np.concatenate(inputs), out))
        return True
    if kind == "strided_slice" and a["axis"] == last and a["stride"] == 1:
        links.ties.append((inputs[0][a["begin"] : a["end"]], out))
        return True
    if kind == "reshape":
        return _link_reshape(shape, graph.tensors[operator.outputs[0]].shape, inputs[0], out, links)
    keeps = (
        (kind in {"concatenation", "strided_slice", "pack"} and a["axis"] != rank - (kind != "pack"))
        or (kind == "pad" and not any(a["paddings"][-1]))
        or (kind == "transpose" and a["permutation"][-1] == last)
        or (kind in {"mean", "sum", "reduce_max", "reduce_min"} and last not in a["axes"])
    )
    if keeps:
        links.ties += [(index, out) for index in inputs]
    return keeps


def _link_reshape(before: tuple[int, ...], after: tuple[int, ...], a: Index, b: Index, links: _Links) -> bool:
    """Tie the channels through a reshape that keeps, splits or joins the last dimension."""
    if len(a) > len(b):
        return _link_reshape(after, before, b, a, links)
    tail = 1
    for n in reversed(before):
        tail *= n
        if tail >= len(b):
            break
    if tail != len(b):
        return False
    links.ties.append((np.tile(a, len(b) // len(a)), b))
    return True


def _shrunk(graph: OperatorGraph, keep: list[Mask]) -> OperatorGraph:
    """Cut tensors and weights down to the channels that stay."""
    tensors = tuple(
        replace(t, shape=(*t.shape[:-1], int(mask.sum())))
        for t, mask in zip(graph.tensors, keep, strict=True)
    )
    return replace(graph, tensors=tensors, operators=tuple(_cut(op, keep) for op in graph.operators))


def _cut(operator: Operator, keep: list[Mask]) -> Operator:
    source, out = keep[operator.inputs[0]], keep[operator.outputs[0]]
    if source.all() and out.all():
        return operator
    kind, attributes = operator.kind, dict(operator.attributes)
    weights = operator.weights
    if kind in MATRICES:
        weights = (_cut_weight(weights[0], out, source),)
    elif kind in _RECURRENT:
        n = len(weights) // 2
        weights = (*(_cut_weight(w, None, source) for w in weights[:n]), *weights[n:])
    elif kind == "depthwise_conv_2d":
        bias = weights[0].bias
        bias = None if bias is None else bias[out]
        weights = (replace(weights[0], values=np.ascontiguousarray(weights[0].values[..., out]), bias=bias),)
    elif kind == "strided_slice" and len(source) != len(out):
        begin = int(source[: attributes["begin"]].sum())
        attributes |= {"begin": begin, "end": begin + int(out.sum())}
    elif weights and kind in _ELEMENTWISE | _KEEPS:
        weights = tuple(_cut_constant(weight, out) for weight in weights)
    before, after = (sum(w.values.size for w in ws) for ws in (operator.weights, weights))
    n_macs = operator.n_macs * after // before if before else operator.n_macs
    return replace(operator, weights=weights, attributes=attributes, n_macs=n_macs)


def _cut_weight(weight: Weight, rows: Mask | None, columns: Mask) -> Weight:
    values = weight.values
    repeats = prod(values.shape[1:]) // len(columns) if values.ndim == 2 else 1
    values = values[..., np.tile(columns, repeats)]
    bias = weight.bias
    if rows is not None:
        values = values[rows]
        bias = None if bias is None else bias[rows]
    return replace(weight, values=np.ascontiguousarray(values), bias=bias)


def _cut_constant(weight: Weight, out: Mask) -> Weight:
    if weight.values.ndim == 0 or weight.values.shape[-1] != len(out):
        return weight
    return replace(weight, values=np.ascontiguousarray(weight.values[..., out]))
