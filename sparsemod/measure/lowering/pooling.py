"""Pooling, reductions and upsampling."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, prod
from typing import Any

from sparsemod.measure.layout import Layout
from sparsemod.measure.lowering.builder import Builder, Handler
from sparsemod.measure.lowering.convolution import as_image, image_layout
from sparsemod.measure.lowering.drafts import Bound
from sparsemod.measure.lowering.other import lower_other
from sparsemod.measure.lowering.windows import apply_padding, needed, same
from sparsemod.measure.values import Node, Value

__all__ = ["HANDLERS"]

_REDUCTIONS = {"mean": "mean", "sum": "sum", "amax": "reduce_max", "amin": "reduce_min"}


def _pair(values: Any, n_spatial: int, fill: int) -> tuple[int, int]:
    items = [int(values)] if isinstance(values, int) else [int(v) for v in values]
    if len(items) == 1:
        items = items * n_spatial
    return (fill, items[0]) if n_spatial == 1 else (items[0], items[1])


def _source(node: Node) -> Value:
    value: Value = node.arguments["self" if "self" in node.arguments else "input"]
    return value


def _pool(builder: Builder, node: Node) -> None:
    """Lower max_pool1d, max_pool2d, avg_pool1d and avg_pool2d."""
    a, out, source = node.arguments, node.outputs[0], _source(node)
    n_spatial = 1 if node.op.endswith("1d") else 2
    maximum = node.op.startswith("max")
    filter_ = _pair(a["kernel_size"], n_spatial, 1)
    stride = _pair(a["stride"] or a["kernel_size"], n_spatial, 1)
    before = _pair(a["padding"], n_spatial, 0)
    dilation = _pair(a.get("dilation", 1), n_spatial, 1)
    divisor = a.get("divisor_override") or prod(filter_)
    if out is None or dilation != (1, 1) or divisor != prod(filter_):
        lower_other(builder, node)
        return
    bound = builder.get(source)
    spatial = _pair(out.shape[len(out.shape) - n_spatial :], n_spatial, 1)
    size = _pair(source.shape[len(source.shape) - n_spatial :], n_spatial, 1)
    pads = needed(size, spatial, filter_, stride, before)
    if not maximum and any(map(any, pads)):
        beyond = any(p[1] > b for p, b in zip(pads, before, strict=True))
        excludes = not a["count_include_pad"] or (beyond and before == (0, 0))
        if (excludes and pads != same(size, filter_, stride)) or (beyond and not excludes):
            lower_other(builder, node)
            return
        if excludes:
            _emit_pool(builder, node, bound, "same", filter_, stride, n_spatial)
            return
    tensor, (batch, _, _, channel) = as_image(builder, node, bound, n_spatial)
    if maximum:
        tensor, padding = apply_padding(builder, node, source, tensor, spatial, filter_, stride, before, -inf)
    else:
        tensor, padding = _averaged(builder, node, tensor, spatial, filter_, stride, before)
    bound = Bound(tensor, bound.layout)
    _emit_pool(builder, node, bound, padding, filter_, stride, n_spatial, (batch, channel))


def _averaged(
    builder: Builder,
    node: Node,
    tensor: int,
    spatial: Sequence[int],
    filter_: tuple[int, int],
    stride: tuple[int, int],
    before: tuple[int, int],
) -> tuple[int, str]:
    """Pad with zeros that count: SAME of the runtime leaves the padding out of the average."""
    n, h, w, c = builder.tensors[tensor].shape
    pads = needed((h, w), spatial, filter_, stride, before)
    if any(map(any, pads)):
        shape = (n, h + sum(pads[0]), w + sum(pads[1]), c)
        attributes = {"paddings": ((0, 0), *pads, (0, 0)), "value": 0.0}
        tensor = builder.emit(node, "pad", [tensor], shape, attributes=attributes)
    return tensor, "valid"


def _emit_pool(
    builder: Builder,
    node: Node,
    bound: Bound,
    padding: str,
    filter_: tuple[int, int],
    stride: tuple[int, int],
    n_spatial: int,
    axes: Any = None,
) -> None:
    out = node.outputs[0]
    if out is None:
        return
    if axes is None:
        tensor, (batch, _, _, channel) = as_image(builder, node, bound, n_spatial)
    else:
        tensor, (batch, channel) = bound.tensor, axes
    n, _, _, c = builder.tensors[tensor].shape
    spatial = _pair(out.shape[len(out.shape) - n_spatial :], n_spatial, 1)
    kind = "max_pool_2d" if "max" in node.op else "average_pool_2d"
    attributes = {"filter": filter_, "stride": stride, "padding": padding}
    output = builder.emit(node, kind, [tensor], (n, *spatial, c), attributes=attributes)
    builder.bind(out, Bound(output, image_layout(batch, spatial, channel, n_spatial, len(out.shape))))


def _adaptive(builder: Builder, node: Node) -> None:
    """Lower adaptive pools whose windows are all of one size."""
    out, source = node.outputs[0], _source(node)
    n_spatial = 1 if node.op.endswith("1d") else 2
    if out is None or (len(node.outputs) > 1 and node.outputs[1] and builder.reads(node.outputs[1])):
        lower_other(builder, node)
        return
    size = _pair(source.shape[len(source.shape) - n_spatial :], n_spatial, 1)
    spatial = _pair(out.shape[len(out.shape) - n_spatial :], n_spatial, 1)
    if any(n % o for n, o in zip(size, spatial, strict=True)):
        lower_other(builder, node)
        return
    bound = builder.get(source)
    if size == spatial:
        builder.bind(out, bound)
        return
    window = size[0] // spatial[0], size[1] // spatial[1]
    _emit_pool(builder, node, bound, "valid", window, window, n_spatial)


def _reduce(builder: Builder, node: Node) -> None:
    """Lower mean, sum, amax and amin; over height and width of an image as pools, which run quicker."""
    a, out, source = node.arguments, node.outputs[0], _source(node)
    if out is None or not source.dtype.is_floating_point:
        lower_other(builder, node)
        return
    rank = len(source.shape)
    listed = a.get("dim")
    listed = [listed] if isinstance(listed, int) else listed
    dims = sorted({int(d) % rank for d in listed} if listed else range(rank))
    bound = builder.get(source)
    reduced = {axis for d in dims for axis in bound.layout.dims[d]}
    kept = tuple(axes if d not in dims else () for d, axes in enumerate(bound.layout.dims))
    if len(out.shape) < rank:
        kept = tuple(axes for d, axes in enumerate(kept) if d not in dims)
    rest = tuple(axis for axis in bound.layout.order if axis not in reduced)
    if not reduced:
        builder.bind(out, Bound(bound.tensor, Layout(kept, rest)))
        return
    shape = builder.tensors[bound.tensor].shape
    places = _places(shape, bound, reduced)
    if places is None:
        granular = [axis.size for axis in bound.layout.order]
        bound = Bound(builder.shaped(node, bound.tensor, granular), bound.layout)
        shape = builder.tensors[bound.tensor].shape
        places = _places(shape, bound, reduced) or []
    pool = {"mean": "average_pool_2d", "amax": "max_pool_2d"}.get(node.op)
    attributes: dict[str, Any]
    if pool and len(shape) == 4 and set(places) <= {1, 2}:
        window = tuple(shape[i] if i in places else 1 for i in (1, 2))
        new = (shape[0], *(1 if i in places else shape[i] for i in (1, 2)), shape[3])
        attributes = {"filter": window, "stride": window, "padding": "valid"}
        output = builder.emit(node, pool, [bound.tensor], new, attributes=attributes)
    else:
        attributes = {"axes": tuple(places)}
        new = tuple(n for i, n in enumerate(shape) if i not in places) or (1,)
        output = builder.emit(node, _REDUCTIONS[node.op], [bound.tensor], new, attributes=attributes)
    builder.bind(out, Bound(output, Layout(kept, rest)))


def _extreme(builder: Builder, node: Node) -> None:
    """Lower max and min over a dimension whose indices nothing reads."""
    a = node.arguments
    indices = node.outputs[1] if len(node.outputs) > 1 else None
    if "other" in a or (indices is not None and builder.reads(indices)):
        lower_other(builder, node)
        return
    arguments = {"self": a["self"], "dim": a.get("dim")}
    _reduce(builder, Node(f"a{node.op}", arguments, node.outputs[:1], node.module))


def _places(shape: tuple[int, ...], bound: Bound, reduced: set[Any]) -> list[int] | None:
    """Return the entries of a shape that hold the axes to reduce; None where one holds others, too."""
    rest, places = list(bound.layout.order), []
    for i, n in enumerate(shape):
        held: list[Any] = []
        while prod(axis.size for axis in held) < n:
            held.append(rest.pop(0))
        if prod(axis.size for axis in held) != n or len({axis in reduced for axis in held}) > 1:
            return None
        if held and held[0] in reduced:
            places.append(i)
    return places


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


HANDLERS: dict[str, Handler] = {
    **dict.fromkeys(("max_pool1d", "max_pool2d", "avg_pool1d", "avg_pool2d"), _pool),
    **dict.fromkeys(
        ("adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_max_pool1d", "adaptive_max_pool2d"),
        _adaptive,
    ),
    **dict.fromkeys(_REDUCTIONS, _reduce),
    **dict.fromkeys(("max", "min"), _extreme),
    **dict.fromkeys(("upsample_nearest1d", "upsample_nearest2d"), _resize),
    **dict.fromkeys(("upsample_linear1d", "upsample_bilinear2d"), _resize),
}
