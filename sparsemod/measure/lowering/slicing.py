"""Operations that cut tensors apart."""

from __future__ import annotations

from math import prod

import torch

from sparsemod.measure.layout import Layout
from sparsemod.measure.lowering.builder import Builder, Handler, array
from sparsemod.measure.lowering.drafts import Bound, Parts
from sparsemod.measure.lowering.other import lower_other
from sparsemod.measure.values import Node, Value

__all__ = ["HANDLERS"]


def _slice(builder: Builder, node: Node) -> None:
    a = node.arguments
    source = a["self"]
    n = source.shape[a["dim"]]
    start, stop, step = slice(a["start"], a["end"], a["step"]).indices(n)
    raw = builder.raw(source)
    if isinstance(raw, Parts) and a["dim"] == 0:
        builder.bind(node.outputs[0], Parts(raw.items[start:stop:step]))
        return
    dim = a["dim"] % len(source.shape)
    builder.bind(node.outputs[0], builder.sliced(node, builder.get(source), dim, start, stop, step))


def _dropped(bound: Bound, dim: int) -> Bound:
    dims = bound.layout.dims
    return Bound(bound.tensor, Layout((*dims[:dim], *dims[dim + 1 :]), bound.layout.order))


def _one(builder: Builder, node: Node, source: Value, dim: int, index: int) -> Bound:
    raw = builder.raw(source)
    if isinstance(raw, Parts) and dim == 0:
        return raw.items[index]()
    return _dropped(builder.sliced(node, builder.get(source), dim, index, index + 1), dim)


def _select(builder: Builder, node: Node) -> None:
    source = node.arguments["self"]
    dim = node.arguments["dim"] % len(source.shape)
    index = int(node.arguments["index"]) % source.shape[dim]
    builder.bind(node.outputs[0], _one(builder, node, source, dim, index))


def _unbind(builder: Builder, node: Node) -> None:
    source = node.arguments["self"]
    dim = node.arguments["dim"] % len(source.shape)
    for i, out in enumerate(node.outputs):
        if out is not None and builder.reads(out):
            builder.bind(out, _one(builder, node, source, dim, i))


def _split(builder: Builder, node: Node) -> None:
    """Lower chunk, split and split_with_sizes; parts that nothing reads are not made."""
    source = node.arguments["self"]
    dim = node.arguments["dim"] % len(source.shape)
    start = 0
    for out in node.outputs:
        if out is None:
            continue
        stop = start + out.shape[dim]
        if builder.reads(out):
            builder.bind(out, builder.sliced(node, builder.get(source), dim, start, stop))
        start = stop


def _index_select(builder: Builder, node: Node) -> None:
    source, index = node.arguments["self"], node.arguments["index"]
    if index.data is None or source.shape[node.arguments["dim"]] != 1 or index.data.numel() != 1:
        lower_other(builder, node)
        return
    builder.bind(node.outputs[0], builder.raw(source))


def _index(builder: Builder, node: Node) -> None:
    """Lower indexing by constants: one element, or dimensions of size 1, as sorting one sequence does."""
    source, out = node.arguments["self"], node.outputs[0]
    positions = [(i, x) for i, x in enumerate(node.arguments["indices"]) if x is not None]
    if out is None or any(x.data is None or x.dtype == torch.bool for _, x in positions):
        lower_other(builder, node)
    elif out.shape == source.shape and all(source.shape[i] == 1 for i, _ in positions):
        builder.bind(out, builder.get(source))
    elif _picks_one(positions):
        builder.bind(out, _picked(builder, node, source, positions))
    else:
        lower_other(builder, node)


def _picks_one(positions: list[tuple[int, Value]]) -> bool:
    """Say whether each index is a single number and the indexed dimensions are neighbours."""
    dims = [i for i, _ in positions]
    return dims == list(range(dims[0], dims[-1] + 1)) and all(prod(x.shape) == 1 for _, x in positions)


def _picked(builder: Builder, node: Node, source: Value, positions: list[tuple[int, Value]]) -> Bound:
    bound = builder.get(source)
    for dim, value in reversed(positions):
        index = int(array(value).item()) % source.shape[dim]
        bound = _dropped(builder.sliced(node, bound, dim, index, index + 1), dim)
    first, n_dims = positions[0][0], max(len(value.shape) for _, value in positions)
    dims = bound.layout.dims
    return Bound(bound.tensor, Layout((*dims[:first], *((),) * n_dims, *dims[first:]), bound.layout.order))


HANDLERS: dict[str, Handler] = {
    "slice": _slice,
    "select": _select,
    "unbind": _unbind,
    **dict.fromkeys(("chunk", "unsafe_chunk", "split", "unsafe_split", "split_with_sizes"), _split),
    "index_select": _index_select,
    "index": _index,
}
