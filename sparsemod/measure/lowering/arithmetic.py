"""Arithmetic of two tensors, or of a tensor and a constant, element by element."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparsemod.measure.graph import Weight
from sparsemod.measure.layout import Axes, Axis, Layout, align, sizes
from sparsemod.measure.lowering.builder import Builder, Handler, array
from sparsemod.measure.lowering.drafts import Bound
from sparsemod.measure.lowering.other import lower_other
from sparsemod.measure.values import Node, Value

__all__ = ["HANDLERS", "rearranged"]


def _binary(builder: Builder, node: Node) -> None:
    """Lower add, sub, rsub, mul, div, maximum and minimum of tensors, constants and numbers."""
    a = node.arguments
    left, right = a["self"], a["other"]
    kind = node.op
    if kind == "rsub":
        kind, left, right = "sub", right, left
    if kind == "div" and a.get("rounding_mode") is not None:
        lower_other(builder, node)
        return
    alpha = float(a.get("alpha", 1) or 1)
    if alpha != 1 and _is_variable(right):
        lower_other(builder, node)
        return
    if _is_variable(left) and _is_variable(right):
        builder.bind(node.outputs[0], _two(builder, node, kind, builder.get(left), builder.get(right)))
        return
    variable, fixed = (left, right) if _is_variable(left) else (right, left)
    values = array(fixed) if isinstance(fixed, Value) else np.array(float(fixed), np.float32)
    name = fixed.source if isinstance(fixed, Value) and fixed.source else f"{node.module or node.op}.constant"
    values, side = values * np.float32(alpha), "y" if variable is left else "x"
    if side == "y" and kind in {"sub", "div"}:
        kind, values = ("add", -values) if kind == "sub" else ("mul", 1 / values)
    elif side == "x" and kind in {"add", "mul", "maximum", "minimum"}:
        side = "y"
    out = node.outputs[0]
    if out is None or prod(out.shape) != prod(variable.shape):
        lower_other(builder, node)
        return
    builder.bind(out, _with_constant(builder, node, kind, variable, values.astype(np.float32), name, side))


def _two(builder: Builder, node: Node, kind: str, left: Bound, right: Bound) -> Bound:
    """Add an operator of two activations that broadcast against each other."""
    aligned = align(left.layout, right.layout)
    if aligned is None:
        left, right = (_one_axis_each(builder, node, bound) for bound in (left, right))
        aligned = align(left.layout, right.layout)
    if aligned is None:
        raise RuntimeError(f"{node.op} of {left.layout.shape} and {right.layout.shape} cannot be expressed")
    left, right = Bound(left.tensor, aligned[0]), Bound(right.tensor, aligned[1])
    dims = tuple(a or b for a, b in zip(left.layout.dims, right.layout.dims, strict=True))
    everything = {axis for axes in dims for axis in axes}
    base = next((bound for bound in (left, right) if everything == set(bound.layout.order)), None)
    order = base.layout.order if base else tuple(axis for axes in dims for axis in axes)
    left, right = (
        builder.arranged(node, bound, tuple(axis for axis in order if axis in bound.layout.order))
        for bound in (left, right)
    )
    shape = builder.tensors[base.tensor].shape if base else sizes(order)
    partial = [_partial_shape(shape, order, bound.layout.order) for bound in (left, right)]
    if None in partial:
        shape = sizes(order)
        partial = [_partial_shape(shape, order, bound.layout.order) for bound in (left, right)]
    tensors = [
        builder.shaped(node, b.tensor, p or shape) for b, p in zip((left, right), partial, strict=True)
    ]
    output = builder.emit(node, kind, tensors, shape, attributes={"constant": None})
    return Bound(output, Layout(dims, order))


def _one_axis_each(builder: Builder, node: Node, bound: Bound) -> Bound:
    bound = builder.canonical(node, bound)
    return Bound(bound.tensor, Layout.of(bound.layout.shape))


def _is_variable(operand: Any) -> bool:
    return isinstance(operand, Value) and operand.data is None


def _with_constant(
    builder: Builder, node: Node, kind: str, source: Value, values: NDArray[Any], name: str, side: str
) -> Bound:
    bound = builder.get(source)
    neutral = {"add": 0.0, "mul": 1.0}.get(kind)
    out_shape = np.broadcast_shapes(source.shape, values.shape)
    if neutral is not None and bool(np.all(values == neutral)) and out_shape == source.shape:
        return bound
    values = values.reshape((1,) * (len(out_shape) - values.ndim) + values.shape)
    layout = Layout(((),) * (len(out_shape) - len(source.shape)) + bound.layout.dims, bound.layout.order)
    bound = Bound(bound.tensor, layout)
    bound, operand = rearranged(builder, node, bound, values)
    shape = builder.tensors[bound.tensor].shape
    weights = [Weight(name, np.array(operand, np.float32), axis=None)]
    return Bound(
        builder.emit(node, kind, [bound.tensor], shape, weights=weights, attributes={"constant": side}),
        layout,
    )


def rearranged(
    builder: Builder, node: Node, bound: Bound, values: NDArray[Any]
) -> tuple[Bound, NDArray[Any]]:
    """Rearrange a constant that broadcasts against a value to the value's memory.

    Returns:
        The value and the constant in a shape that broadcasts against the shape of its tensor.
    """
    layout = bound.layout
    axes: Axes = ()
    split: list[int] = []
    for dim, n in zip(layout.dims, values.shape, strict=True):
        if n > 1:
            axes += dim
            split += sizes(dim)
    inside = [axis for axis in layout.order if axis in axes]
    moved = values.reshape(split).transpose([axes.index(axis) for axis in inside])
    shape = builder.tensors[bound.tensor].shape
    partial = _partial_shape(shape, layout.order, axes)
    if partial is None:
        granular = sizes(layout.order)
        bound = Bound(builder.shaped(node, bound.tensor, granular), layout)
        partial = tuple(axis.size if axis in axes else 1 for axis in layout.order)
    return bound, moved.reshape(partial)


def _partial_shape(shape: tuple[int, ...], order: Axes, axes: Axes) -> tuple[int, ...] | None:
    """Return a shape with 1 where it holds none of the axes; None where an entry holds some and others."""
    rest: list[Axis] = list(order)
    partial: list[int] = []
    for n in shape:
        held: list[Axis] = []
        while prod(sizes(held)) < n:
            held.append(rest.pop(0))
        if prod(sizes(held)) != n or len({axis in axes for axis in held}) > 1:
            return None
        partial.append(n if held and held[0] in axes else 1)
    return tuple(partial)


HANDLERS: dict[str, Handler] = dict.fromkeys(
    ("add", "sub", "rsub", "mul", "div", "maximum", "minimum"), _binary
)
