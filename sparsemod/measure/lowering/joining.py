"""Operations that join tensors and pad them."""

from __future__ import annotations

from sparsemod.measure.layout import Axes, Axis, Layout, sizes
from sparsemod.measure.lowering.builder import Builder, Handler
from sparsemod.measure.lowering.convolution import as_image, image_layout
from sparsemod.measure.lowering.drafts import Bound
from sparsemod.measure.lowering.other import lower_other
from sparsemod.measure.values import Node, Value

__all__ = ["HANDLERS"]


def _operands(builder: Builder, node: Node, values: list[Value], dim: int | None) -> list[Bound] | None:
    """Return the tensors to join, arranged alike, or None when one of them is a constant.

    Args:
        builder: The operator list.
        node: The operation.
        values: What it joins.
        dim: The dimension in which they may differ.
    """
    if any(value.data is not None for value in values):
        return None
    bounds = [builder.get(value) for value in values]
    first = bounds[0].layout
    wanted = [first.logical.index(axis) for axis in first.order]
    for i, bound in enumerate(bounds):
        pairs = enumerate(zip(bound.layout.dims, first.dims, strict=True))
        if any(len(a) != len(b) or (d != dim and sizes(a) != sizes(b)) for d, (a, b) in pairs):
            return _joined_canonical(builder, node, bounds)
        order = tuple(bound.layout.logical[j] for j in wanted)
        bounds[i] = builder.arranged(node, bound, order)
    return bounds


def _joined_canonical(builder: Builder, node: Node, bounds: list[Bound]) -> list[Bound]:
    moved = [builder.canonical(node, bound) for bound in bounds]
    return [Bound(bound.tensor, Layout.of(bound.layout.shape)) for bound in moved]


def _cat(builder: Builder, node: Node) -> None:
    values = [v for v in node.arguments["tensors"] if v.shape != (0,)]
    out = node.outputs[0]
    dim = int(node.arguments["dim"]) % len(values[0].shape)
    bounds = _operands(builder, node, values, dim)
    if bounds is None or out is None:
        lower_other(builder, node)
        return
    if len(bounds) == 1:
        builder.bind(out, bounds[0])
        return
    if any(bound.layout.merged(dim) is None for bound in bounds):
        bounds = [builder.canonical(node, bound) for bound in bounds]
    placed = [builder.whole_dim(node, bound, dim) for bound in bounds]
    wide = next((i for i, (bound, _) in enumerate(placed) if bound.layout.dims[dim]), 0)
    model, place = placed[wide]
    tensors = []
    for (bound, _), value in zip(placed, values, strict=True):
        shape = list(builder.tensors[model.tensor].shape)
        shape[place] = value.shape[dim]
        tensors.append(builder.shaped(node, bound.tensor, shape))
    shape[place] = out.shape[dim]
    dtype = builder.tensors[model.tensor].dtype
    output = builder.emit(node, "concatenation", tensors, shape, attributes={"axis": place}, dtype=dtype)
    axis = (Axis(out.shape[dim]),)
    layout = model.layout
    if layout.dims[dim]:
        joined = layout.split(layout.dims[dim][0], axis)
    else:
        joined = _inserted(layout, dim, axis, shape, place)
    builder.bind(out, Bound(output, joined))


def _inserted(layout: Layout, dim: int, axis: Axes, shape: list[int], place: int) -> Layout:
    """Put an axis where a dimension of size 1 has been until now."""
    outer, start = 1, 0
    for n in shape[:place]:
        outer *= n
    before = 1
    while before < outer:
        before *= layout.order[start].size
        start += 1
    dims = (*layout.dims[:dim], axis, *layout.dims[dim + 1 :])
    return Layout(dims, (*layout.order[:start], *axis, *layout.order[start:]))


def _stack(builder: Builder, node: Node) -> None:
    values, out = node.arguments["tensors"], node.outputs[0]
    bounds = _operands(builder, node, values, None)
    if bounds is None or out is None:
        lower_other(builder, node)
        return
    dim = int(node.arguments["dim"]) % len(out.shape)
    stacked = builder.stacked(bounds, 0, node)
    order = [*range(1, dim + 1), 0, *range(dim + 1, len(out.shape))]
    builder.bind(out, Bound(stacked.tensor, stacked.layout.permuted(order)))


def _pad(builder: Builder, node: Node) -> None:
    a, out = node.arguments, node.outputs[0]
    source, flat = a["self"], [int(n) for n in a["pad"]]
    if out is None or min(flat, default=0) < 0:
        lower_other(builder, node)
        return
    rank = len(source.shape)
    pairs = {rank - 1 - i: (flat[2 * i], flat[2 * i + 1]) for i in range(len(flat) // 2)}
    pairs = {dim: pair for dim, pair in pairs.items() if any(pair)}
    bound = builder.get(source)
    value = float(a["value"] or 0)
    if rank in {3, 4} and set(pairs) <= {rank - 1, rank - 2} - {1} and _image_like(bound, rank):
        _pad_image(builder, node, bound, pairs, value)
        return
    for dim, pair in pairs.items():
        bound, place = builder.whole_dim(node, bound, dim)
        shape = list(builder.tensors[bound.tensor].shape)
        paddings = tuple(pair if i == place else (0, 0) for i in range(len(shape)))
        shape[place] += sum(pair)
        attributes = {"paddings": paddings, "value": value}
        output = builder.emit(node, "pad", [bound.tensor], shape, attributes=attributes)
        axis = (Axis(shape[place]),)
        dims = bound.layout.dims[dim]
        layout = (
            bound.layout.split(dims[0], axis) if dims else _inserted(bound.layout, dim, axis, shape, place)
        )
        bound = Bound(output, layout)
    builder.bind(out, bound)


def _image_like(bound: Bound, rank: int) -> bool:
    layout = bound.layout
    channels_last = sum((layout.dims[0], *layout.dims[2:], layout.dims[1]), ())
    return rank == 4 or (layout.order == channels_last and bool(layout.dims[1]))


def _pad_image(
    builder: Builder, node: Node, bound: Bound, pairs: dict[int, tuple[int, int]], value: float
) -> None:
    out = node.outputs[0]
    rank = len(bound.layout.dims)
    tensor, (batch, _, _, channel) = as_image(builder, node, bound, rank - 2)
    n, h, w, c = builder.tensors[tensor].shape
    vertical = pairs.get(2, (0, 0)) if rank == 4 else (0, 0)
    horizontal = pairs.get(rank - 1, (0, 0))
    shape = (n, h + sum(vertical), w + sum(horizontal), c)
    attributes = {"paddings": ((0, 0), vertical, horizontal, (0, 0)), "value": value}
    output = builder.emit(node, "pad", [tensor], shape, attributes=attributes)
    builder.bind(out, Bound(output, image_layout(batch, shape[1:3], channel, rank - 2, rank)))


def _expand(builder: Builder, node: Node) -> None:
    """Lower expand, and copying into a tensor of the network's own."""
    source, out = node.arguments["src" if node.op == "copy" else "self"], node.outputs[0]
    if out is None or source.data is not None:
        lower_other(builder, node)
        return
    bound = builder.get(source)
    missing = len(out.shape) - len(source.shape)
    layout = Layout(((),) * missing + bound.layout.dims, bound.layout.order)
    if layout.shape == out.shape:
        builder.bind(out, Bound(bound.tensor, layout))
        return
    lower_other(builder, node)


HANDLERS: dict[str, Handler] = {
    "cat": _cat,
    "stack": _stack,
    "constant_pad_nd": _pad,
    "expand": _expand,
    "copy": _expand,
}
