"""Operations that cut tensors apart, join, pad and repeat them."""

from __future__ import annotations

from typing import Any

from sparsemod.measure.values import Node, Value
from sparsemod.measure.layout import Axes, Axis, Layout
from sparsemod.measure.lowering.builder import Bound, Builder, Handler, Parts
from sparsemod.measure.lowering.convolution import as_image, image_layout
from sparsemod.measure.lowering.elementwise import activation, unary
from sparsemod.measure.lowering.other import lower_other

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


def _operands(builder: Builder, node: Node, values: list[Value]) -> list[Bound] | None:
    """Return the tensors to join, arranged alike, or None when one of them is a constant."""
    if any(value.data is not None for value in values):
        return None
    bounds = [builder.get(value) for value in values]
    first = bounds[0].layout
    wanted = [first.logical.index(axis) for axis in first.order]
    for i, bound in enumerate(bounds):
        if [len(axes) for axes in bound.layout.dims] != [len(axes) for axes in first.dims]:
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
    bounds = _operands(builder, node, values)
    if bounds is None or out is None:
        lower_other(builder, node)
        return
    dim = int(node.arguments["dim"]) % len(out.shape)
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
    bounds = _operands(builder, node, values)
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


def _resize(builder: Builder, node: Node) -> None:
    """Lower upsampling by a factor that output and input size give exactly."""
    a, out = node.arguments, node.outputs[0]
    source = a["self"] if "self" in a else a["input"]
    n_spatial = 1 if node.op.endswith("1d") else 2
    if out is None or source.data is not None:
        lower_other(builder, node)
        return
    factors = [a[key] for key in ("scales", "scales_h", "scales_w") if a.get(key) is not None]
    ratios = [o / n for o, n in zip(out.shape[2:], source.shape[2:], strict=True)]
    if any(abs(f - r) > 1e-9 for f, r in zip(factors, ratios, strict=False)):
        lower_other(builder, node)
        return
    tensor, (batch, _, _, channel) = as_image(builder, node, builder.get(source), n_spatial)
    spatial = ((1,) if n_spatial == 1 else ()) + tuple(out.shape[2:])
    shape = (builder.tensors[tensor].shape[0], *spatial, builder.tensors[tensor].shape[3])
    corners = bool(a.get("align_corners"))
    nearest = "nearest" in node.op
    attributes: dict[str, Any] = {"align_corners": corners, "half_pixel_centers": not nearest and not corners}
    kind = "resize_nearest_neighbor" if nearest else "resize_bilinear"
    output = builder.emit(node, kind, [tensor], shape, attributes=attributes)
    builder.bind(out, Bound(output, image_layout(batch, spatial, channel, n_spatial, len(out.shape))))


def _softmax(builder: Builder, node: Node) -> None:
    a = node.arguments
    source = a["self"]
    bound = builder.get(source)
    dim = int(a["dim"]) % len(source.shape)
    axes = bound.layout.dims[dim]
    order = (*(axis for axis in bound.layout.order if axis not in axes), *axes)
    bound = builder.arranged(node, bound, order)
    n = source.shape[dim]
    shape = builder.tensors[bound.tensor].shape
    if shape[-1] != n:
        rows = 1
        for axis in order[: len(order) - len(axes)]:
            rows *= axis.size
        bound = Bound(builder.shaped(node, bound.tensor, (rows, n)), bound.layout)
    kind = "log_softmax" if "log" in node.op else "softmax"
    builder.bind(node.outputs[0], unary(builder, node, bound, kind, {"beta": 1.0}))


def _threshold(builder: Builder, node: Node) -> None:
    a = node.arguments
    if float(a["threshold"]) == 0 and float(a["value"]) == 0:
        activation(builder, node, 0.0, float("inf"))
    else:
        lower_other(builder, node)


HANDLERS: dict[str, Handler] = {
    "slice": _slice,
    "select": _select,
    "unbind": _unbind,
    **dict.fromkeys(("chunk", "unsafe_chunk", "split", "unsafe_split", "split_with_sizes"), _split),
    "index_select": _index_select,
    "index": _index,
    "cat": _cat,
    "stack": _stack,
    "constant_pad_nd": _pad,
    "expand": _expand,
    "copy": _expand,
    **dict.fromkeys(("upsample_nearest1d", "upsample_nearest2d"), _resize),
    **dict.fromkeys(("upsample_linear1d", "upsample_bilinear2d"), _resize),
    **dict.fromkeys(("softmax", "_softmax", "log_softmax", "_log_softmax"), _softmax),
    "threshold": _threshold,
}
