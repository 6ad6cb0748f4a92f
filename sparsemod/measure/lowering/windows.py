"""Padding of sliding windows: what a runtime expresses as SAME or VALID, and what needs an operator."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # so that the time of a network can be told without torch
    from sparsemod.measure.lowering.builder import Builder
    from sparsemod.measure.values import Node, Value

__all__ = ["apply_padding", "needed", "same"]

Pads = tuple[tuple[int, int], tuple[int, int]]


def needed(
    size: Sequence[int],
    out: Sequence[int],
    filter_: Sequence[int],
    stride: Sequence[int],
    before: Sequence[int],
) -> Pads:
    """Return the rows and columns of padding (before, after) that the windows really touch.

    Args:
        size: Height and width of the input.
        out: Height and width of the output.
        filter_: Height and width of the window, dilation included.
        stride: Steps of the window.
        before: Padding above and to the left.

    Example:
        A stride of 2 on an even size leaves PyTorch's padding on the far side untouched:

        >>> needed((32, 32), (16, 16), (3, 3), (2, 2), (1, 1))
        ((1, 0), (1, 0))
    """
    (top, bottom), (left, right) = (
        (b, max(0, (o - 1) * s + f - n - b))
        for n, o, f, s, b in zip(size, out, filter_, stride, before, strict=True)
    )
    return (top, bottom), (left, right)


def same(size: Sequence[int], filter_: Sequence[int], stride: Sequence[int]) -> Pads:
    """Return the padding that TensorFlow Lite's SAME stands for: the odd one of it goes to the far side.

    Example:
        >>> same((32, 32), (3, 3), (2, 2))
        ((0, 1), (0, 1))
    """
    totals = [max((ceil(n / s) - 1) * s + f - n, 0) for n, f, s in zip(size, filter_, stride, strict=True)]
    return (totals[0] // 2, totals[0] - totals[0] // 2), (totals[1] // 2, totals[1] - totals[1] // 2)


def apply_padding(
    builder: Builder,
    node: Node,
    source: Value,
    tensor: int,
    out: Sequence[int],
    filter_: Sequence[int],
    stride: Sequence[int],
    before: Sequence[int],
    value: float = 0.0,
) -> tuple[int, str]:
    """Return the tensor that a window reads and ``same`` or ``valid``; adds or removes a pad operator for it.

    Args:
        builder: The operator list.
        node: The windowed operation.
        source: The traced value that it reads.
        tensor: Where that lies, as NHWC.
        out: Height and width of the output.
        filter_: Height and width of the window, dilation included.
        stride: Steps of the window.
        before: Its own padding above and to the left.
        value: What the padding holds.
    """
    _, height, width, _ = builder.tensors[tensor].shape
    pads = needed((height, width), out, filter_, stride, before)
    draft = builder.fusable(source)
    if (
        draft is not None
        and draft.kind == "pad"
        and draft.outputs == [tensor]
        and draft.attributes["value"] == value
    ):
        batch, (top, _), (left, _), channel = draft.attributes["paddings"]
        inner = builder.tensors[draft.inputs[0]].shape
        joined = needed(inner[1:3], out, filter_, stride, (top + before[0], left + before[1]))
        if (batch, channel) == ((0, 0), (0, 0)) and _expressible(inner[1:3], joined, out, filter_, stride):
            builder.operators.remove(draft)
            return draft.inputs[0], "same"
        if any(map(any, pads)) and (batch, channel) == ((0, 0), (0, 0)):
            builder.operators.remove(draft)
            return _padded(builder, node, draft.inputs[0], joined, value), "valid"
    if not any(map(any, pads)):
        return tensor, "valid"
    if _expressible((height, width), pads, out, filter_, stride):
        return tensor, "same"
    return _padded(builder, node, tensor, pads, value), "valid"


def _expressible(
    size: Sequence[int], pads: Pads, out: Sequence[int], filter_: Sequence[int], stride: Sequence[int]
) -> bool:
    fits = all(o == ceil(n / s) for n, o, s in zip(size, out, stride, strict=True))
    return fits and pads == same(size, filter_, stride)


def _padded(builder: Builder, node: Node, tensor: int, pads: Pads, value: float) -> int:
    n, h, w, c = builder.tensors[tensor].shape
    shape = (n, h + sum(pads[0]), w + sum(pads[1]), c)
    attributes = {"paddings": ((0, 0), *pads, (0, 0)), "value": value}
    return builder.emit(node, "pad", [tensor], shape, attributes=attributes)
