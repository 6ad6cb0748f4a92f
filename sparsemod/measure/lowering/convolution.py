"""Convolutions and batch norm."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparsemod.measure.graph import Weight
from sparsemod.measure.layout import Axes, Axis, Layout, sizes
from sparsemod.measure.lowering.builder import Builder, Handler, array
from sparsemod.measure.lowering.drafts import Bound, DraftOperator
from sparsemod.measure.lowering.other import lower_other
from sparsemod.measure.lowering.windows import apply_padding
from sparsemod.measure.values import Node

__all__ = ["HANDLERS", "Image", "as_image", "image_layout", "image_order"]

Image = tuple[int, tuple[Axes, Axes, Axes, Axes]]


def image_dims(layout: Layout, n_spatial: int) -> tuple[Axes, Axes, Axes, Axes]:
    """Return the axes of batch, height, width and channel of a value that PyTorch counts as (N) C (H) (W)."""
    dims = layout.dims if len(layout.dims) == n_spatial + 2 else ((), *layout.dims)
    batch, channel, *spatial = dims
    height, width = (
        ((), ()) if n_spatial == 0 else ((), spatial[0]) if n_spatial == 1 else (spatial[0], spatial[1])
    )
    return batch, height, width, channel


def image_order(layout: Layout, n_spatial: int) -> tuple[Axes, tuple[int, int, int, int]]:
    """Return the order of axes and the shape that an image has as NHWC."""
    dims = image_dims(layout, n_spatial)
    n, h, w, c = (prod(sizes(axes)) for axes in dims)
    return sum(dims, ()), (n, h, w, c)


def as_image(builder: Builder, node: Node, bound: Bound, n_spatial: int) -> Image:
    """Return the tensor that holds a value as NHWC and the axes of N, H, W and C.

    Args:
        builder: The operator list.
        node: The operation that reads it.
        bound: The value, in PyTorch (N, C, H, W), (N, C, L), (N, C), or the same without N.
        n_spatial: 2, 1 or 0.
    """
    order, shape = image_order(bound.layout, n_spatial)
    bound = builder.arranged(node, bound, order)
    return builder.shaped(node, bound.tensor, shape), image_dims(bound.layout, n_spatial)


def image_layout(batch: Axes, spatial: Sequence[int], channel: Axes, n_spatial: int, rank: int) -> Layout:
    """Return the layout of an operator's NHWC output for PyTorch's rank."""
    height, width = ((Axis(n),) if n > 1 else () for n in spatial)
    dims = (batch, channel, *((height, width)[2 - n_spatial :]))
    order = (*batch, *height, *width, *channel)
    return Layout(dims if rank == n_spatial + 2 else dims[1:], order)


def _two(values: int | Sequence[int], n_spatial: int, fill: int) -> tuple[int, int]:
    items = [int(values)] if isinstance(values, int) else [int(v) for v in values]
    if len(items) == 1:
        items = items * n_spatial
    return (fill, items[0]) if n_spatial == 1 else (items[0], items[1])


def _convolution(builder: Builder, node: Node) -> None:
    a = node.arguments
    weight, source, out = a["weight"], a["input"], node.outputs[0]
    n_spatial = len(weight.shape) - 2
    groups = int(a["groups"])
    if weight.data is None or n_spatial > 2 or out is None or (a["bias"] and a["bias"].data is None):
        out_elements = 0 if out is None else prod(out.shape)
        lower_other(builder, node, n_macs=out_elements * prod(weight.shape[1:]))
        return
    tensor, (batch, _, _, _) = as_image(builder, node, builder.get(source), n_spatial)
    stride, dilation = _two(a["stride"], n_spatial, 1), _two(a["dilation"], n_spatial, 1)
    values = array(weight).reshape(*weight.shape[:2], *((1,) * (2 - n_spatial)), *weight.shape[2:])
    kernel = values.shape[2], values.shape[3]
    filter_ = tuple((k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True))
    if isinstance(a["padding"], str):
        before = (0, 0) if a["padding"] == "valid" else ((filter_[0] - 1) // 2, (filter_[1] - 1) // 2)
    else:
        before = _two(a["padding"], n_spatial, 0)
    spatial = _two(out.shape[len(out.shape) - n_spatial :], n_spatial, 1)
    tensor, padding = apply_padding(builder, node, source, tensor, spatial, filter_, stride, before)
    n, _, _, n_inputs = builder.tensors[tensor].shape
    n_outputs = values.shape[0]
    depthwise = groups == n_inputs and groups > 1
    bias = None if a["bias"] is None else array(a["bias"]).copy()
    name = weight.source or f"{node.module}.weight"
    if depthwise:
        folded = Weight(name, _own(values[:, 0].transpose(1, 2, 0)[None]), bias, axis=3)
    else:
        folded = Weight(name, _own(values.transpose(0, 2, 3, 1)), bias, axis=0)
    attributes: dict[str, Any] = {"stride": stride, "dilation": dilation, "padding": padding}
    attributes |= {"depth_multiplier": n_outputs // n_inputs} if depthwise else {"groups": groups}
    output = builder.emit(
        node,
        "depthwise_conv_2d" if depthwise else "conv_2d",
        [tensor],
        (n, *spatial, n_outputs),
        weights=[folded],
        attributes=attributes,
        n_macs=n * prod(spatial) * values.size,
    )
    channel = (Axis(n_outputs),) if n_outputs > 1 else ()
    layout = image_layout(batch, spatial, channel, n_spatial, len(out.shape))
    builder.bind(out, Bound(output, layout))


def _transposed(builder: Builder, node: Node) -> None:
    a = node.arguments
    weight, source, out = a["weight"], a["input"], node.outputs[0]
    n_spatial = len(weight.shape) - 2
    n_macs = prod(source.shape) * prod(weight.shape[1:])
    dilation = _two(a["dilation"], n_spatial, 1) if n_spatial < 3 else ()
    if weight.data is None or n_spatial > 2 or out is None or int(a["groups"]) != 1 or dilation != (1, 1):
        lower_other(builder, node, n_macs=n_macs)
        return
    tensor, (batch, _, _, _) = as_image(builder, node, builder.get(source), n_spatial)
    values = array(weight).reshape(*weight.shape[:2], *((1,) * (2 - n_spatial)), *weight.shape[2:])
    spatial = _two(out.shape[len(out.shape) - n_spatial :], n_spatial, 1)
    n_outputs = values.shape[1]
    bias = None if a["bias"] is None else array(a["bias"]).copy()
    folded = Weight(weight.source or f"{node.module}.weight", _own(values.transpose(1, 2, 3, 0)), bias)
    n = builder.tensors[tensor].shape[0]
    output = builder.emit(
        node,
        "transpose_conv",
        [tensor],
        (n, *spatial, n_outputs),
        weights=[folded],
        attributes={"stride": _two(a["stride"], n_spatial, 1), "crop": _two(a["padding"], n_spatial, 0)},
        n_macs=n_macs,
    )
    channel = (Axis(n_outputs),) if n_outputs > 1 else ()
    builder.bind(out, Bound(output, image_layout(batch, spatial, channel, n_spatial, len(out.shape))))


def _own(values: NDArray[Any]) -> NDArray[np.float32]:
    """Copy to a contiguous array, which later training does not change."""
    return np.array(values, np.float32, order="C")


def _batch_norm(builder: Builder, node: Node) -> None:
    a = node.arguments
    source, mean, variance, out = a["input"], a["running_mean"], a["running_var"], node.outputs[0]
    constants = [value for value in (a["weight"], a["bias"], mean, variance) if value is not None]
    n_spatial = len(source.shape) - 2
    if mean is None or a["training"] or n_spatial > 2 or any(value.data is None for value in constants):
        lower_other(builder, node)
        return
    scale = 1 / np.sqrt(array(variance).astype(np.float64) + float(a["eps"]))
    if a["weight"] is not None:
        scale = scale * array(a["weight"])
    shift = -array(mean).astype(np.float64) * scale
    if a["bias"] is not None:
        shift = shift + array(a["bias"])
    bound = builder.get(source)
    draft = builder.fusable(source)
    if draft is not None and _folds(draft, bound, len(scale)):
        draft.weights = [_scaled(draft.weights[0], scale, shift)]
        builder.bind(out, bound)
        return
    tensor, (batch, _, _, channel) = as_image(builder, node, bound, n_spatial)
    shape = builder.tensors[tensor].shape
    values = scale.astype(np.float32).reshape(1, 1, 1, -1)
    name = (a["weight"] or mean).source or f"{node.module}.weight"
    output = builder.emit(
        node,
        "depthwise_conv_2d" if len(scale) > 1 else "conv_2d",
        [tensor],
        shape,
        weights=[Weight(name, values, shift.astype(np.float32), axis=3 if len(scale) > 1 else 0)],
        attributes={"stride": (1, 1), "dilation": (1, 1), "padding": "valid"}
        | ({"depth_multiplier": 1} if len(scale) > 1 else {"groups": 1}),
        n_macs=prod(shape),
    )
    layout = image_layout(batch, shape[1:3], channel, n_spatial, len(source.shape))
    builder.bind(out, Bound(output, layout))


def _folds(draft: DraftOperator, bound: Bound, n_channels: int) -> bool:
    if draft.kind not in {"conv_2d", "depthwise_conv_2d", "fully_connected", "transpose_conv"}:
        return False
    weight, layout = draft.weights[0], bound.layout
    channel = layout.dims[1]
    return (
        draft.attributes["activation"] == "none"
        and weight.axis is not None
        and weight.values.shape[weight.axis] == n_channels
        and (n_channels == 1 or channel == layout.order[-1:])
    )


def _scaled(weight: Weight, scale: NDArray[np.float64], shift: NDArray[np.float64]) -> Weight:
    shape = [1] * weight.values.ndim
    shape[weight.axis or 0] = -1
    bias = shift if weight.bias is None else weight.bias * scale + shift
    values = (weight.values * scale.reshape(shape)).astype(np.float32)
    return replace(weight, values=values, bias=bias.astype(np.float32))


HANDLERS: dict[str, Handler] = {
    "conv1d": _convolution,
    "conv2d": _convolution,
    "conv3d": _convolution,
    "conv_transpose1d": _transposed,
    "conv_transpose2d": _transposed,
    "conv_transpose3d": _transposed,
    "batch_norm": _batch_norm,
}
