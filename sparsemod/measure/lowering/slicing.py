"""Operations that cut tensors apart."""

from __future__ import annotations

from sparsemod.measure.layout import Layout
from sparsemod.measure.lowering.builder import Builder, Handler
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
    """Lower indexing of dimensions of size 1, which sorting a batch of one sequence does."""
    source, out = node.arguments["self"], node.outputs[0]
    if out is not None and out.shape == source.shape:
        positions = [(i, x) for i, x in enumerate(node.arguments["indices"]) if x is not None]
        if all(x.data is not None and source.shape[i] == 1 for i, x in positions):
            builder.bind(out, builder.get(source))
            return
    lower_other(builder, node)


HANDLERS: dict[str, Handler] = {
    "slice": _slice,
    "select": _select,
    "unbind": _unbind,
    **dict.fromkeys(("chunk", "unsafe_chunk", "split", "unsafe_split", "split_with_sizes"), _split),
    "index_select": _index_select,
    "index": _index,
}
