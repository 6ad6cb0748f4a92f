"""Lowering: from any PyTorch network to the list of operators that a microcontroller executes."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
from torch import nn

from sparsemod.measure.channels import remove_dead_channels
from sparsemod.measure.graph import FloatArray, Operator, OperatorGraph, Port, TensorSpec, Weight
from sparsemod.measure.layers import Trace, trace
from sparsemod.measure.layout import Axes, Layout, sizes
from sparsemod.measure.lowering import (
    activations,
    arithmetic,
    convolution,
    joining,
    matrix,
    pooling,
    recurrent,
    slicing,
    views,
)
from sparsemod.measure.lowering.builder import Builder, Handler
from sparsemod.measure.lowering.drafts import Bound
from sparsemod.measure.lowering.other import dtype_of, lower_other
from sparsemod.measure.precision import assign_dtypes
from sparsemod.measure.values import Node, Value

__all__ = ["lower"]

_HANDLERS: dict[str, Handler] = {
    **convolution.HANDLERS,
    **activations.HANDLERS,
    **arithmetic.HANDLERS,
    **joining.HANDLERS,
    **matrix.HANDLERS,
    **pooling.HANDLERS,
    **recurrent.HANDLERS,
    **slicing.HANDLERS,
    **views.HANDLERS,
}
_ALSO_WHOLE = {"layer_norm", "group_norm", "instance_norm", "pixel_shuffle", "pixel_unshuffle", "rms_norm"}
_TAKEN_APART = {"reshape", "flatten", "dropout", "feature_dropout", "alpha_dropout", "contiguous"}
_WHOLE = frozenset(_HANDLERS) - _TAKEN_APART | _ALSO_WHOLE


def lower(
    net: nn.Module,
    example: Any,
    *,
    scheme: str = "post",
    quant_params: Collection[Any] | None = (),
) -> OperatorGraph:
    """Return the operators that the network becomes on a microcontroller.

    The network runs once, in eval mode and without a gradient; its modes, buffers and all random states are
    left as they were. Batch norm is folded, activations are fused, images are stored as NHWC, channels that
    are zero whatever the input are removed.

    Args:
        net: Any network.
        example: One input of batch size 1, a tensor or a `PackedSequence`.
        scheme: ``post`` or ``qat`` (all int8), ``none`` (all float32), ``dynamic`` (int8 weights in the
            modules of `quant_params`, the rest float32) or ``both`` (those modules as in dynamic, the rest
            int8).
        quant_params: Types, or qualified names, of modules.

    Raises:
        CandidateError: The network's own code raised, or its output does not depend on its input.

    Example:
        >>> import torch
        >>> net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten())
        >>> net.append(nn.Linear(16, 2))  # doctest: +ELLIPSIS
        Sequential(...)
        >>> [operator.kind for operator in lower(net, torch.zeros(1, 1, 4, 4)).operators]
        ['conv_2d', 'fully_connected']
    """
    traced = trace(net, example, _WHOLE)
    builder = Builder(traced)
    layouts = [_input_layout(traced, value) for value in traced.inputs]
    for value, (layout, shape) in zip(traced.inputs, layouts, strict=True):
        builder.bind(value, Bound(builder.add_tensor("input", shape, dtype_of(value)), layout))
    for node in traced.nodes:
        _HANDLERS.get(node.op, lower_other)(builder, node)
    outputs = [builder.get(value) for value in traced.outputs]
    input_ports = [_port(i, layout) for i, (layout, _) in enumerate(layouts)]
    output_ports = [_port(bound.tensor, bound.layout) for bound in outputs]
    graph = _finished(builder, input_ports, output_ports)
    graph = remove_dead_channels(graph)
    return assign_dtypes(graph, traced.module_types, scheme, quant_params or ())


def _input_layout(traced: Trace, value: Value) -> tuple[Layout, tuple[int, ...]]:
    """Choose the order of an input in memory: what the first operation with a preference reads as it is."""
    layout = Layout.of(value.shape)
    order: tuple[int, ...] = tuple(range(len(value.shape)))
    shape = value.shape
    if len(value.shape) == 4:
        order = (0, 2, 3, 1)
        shape = tuple(value.shape[i] for i in order)
    seen = {value.id: layout}
    for node in traced.nodes:
        known = next((seen[v.id] for v in node.values if v.id in seen), None)
        if known is None or not node.outputs or node.outputs[0] is None:
            continue
        preferred = _preference(node, known)
        if preferred is not None:
            wanted, shape_wanted = preferred
            if set(wanted) == set(layout.order):
                return Layout(layout.dims, wanted), shape_wanted
            break
        follows = _follow(node, known)
        if follows is None:
            break
        seen[node.outputs[0].id] = follows
    return Layout.of(value.shape, order), shape or (1,)


def _preference(node: Node, layout: Layout) -> tuple[Axes, tuple[int, ...]] | None:
    """Return the order of axes and the shape that an operation reads without moving anything."""
    if node.op in recurrent.HANDLERS:
        dims = layout.dims
        batch, time, features = ((), *dims) if len(dims) == 2 else dims
        if node.arguments.get("batch_first") is False:
            batch, time = time, batch
        return (*batch, *time, *features), tuple(prod(sizes(axes)) for axes in (batch, time, features))
    n_spatial = {"conv1d": 1, "conv2d": 2, "conv_transpose1d": 1, "conv_transpose2d": 2}.get(node.op)
    if node.op == "batch_norm":
        n_spatial = len(layout.dims) - 2
    if node.op in pooling.HANDLERS and "pool" in node.op:
        n_spatial = 1 if node.op.endswith("1d") else 2
    return None if n_spatial is None or n_spatial > 2 else convolution.image_order(layout, n_spatial)


def _follow(node: Node, layout: Layout) -> Layout | None:
    """Return the layout after an operation that has no preference, or None where it cannot be told."""
    out = node.outputs[0]
    if node.op in views.HANDLERS:
        fits = out is not None and prod(out.shape) == prod(layout.shape)  # not behind a pad or a slice
        return views.regrouped(node, layout) if fits else None
    if node.op in {"constant_pad_nd", "slice"}:
        return layout  # the axes stay, though their sizes change
    elementwise = node.op in activations.HANDLERS or node.op in arithmetic.HANDLERS
    return layout if elementwise and out is not None and out.shape == layout.shape else None


def _port(tensor: int, layout: Layout) -> Port:
    split = tuple(axis.size for axis in layout.logical)
    return Port(tensor, layout.shape, split, tuple(layout.logical.index(axis) for axis in layout.order))


def _finished(builder: Builder, input_ports: list[Port], output_ports: list[Port]) -> OperatorGraph:
    """Drop what no output needs, number the tensors in the order of writing and give weights unique names."""
    wanted = {port.tensor for port in output_ports}
    kept = []
    for draft in reversed(builder.operators):
        if wanted.intersection(draft.outputs):
            wanted.update(draft.inputs)
            kept.append(draft)
    kept.reverse()
    order = [port.tensor for port in input_ports] + [tensor for draft in kept for tensor in draft.outputs]
    ids = {old: new for new, old in enumerate(order)}
    drafts = [builder.tensors[old] for old in order]
    tensors = tuple(TensorSpec(i, draft.name, draft.shape, draft.dtype) for i, draft in enumerate(drafts))
    named: dict[str, list[Weight]] = {}
    operators = tuple(
        Operator(
            draft.kind,
            tuple(ids[i] for i in draft.inputs),
            tuple(ids[i] for i in draft.outputs),
            tuple(_unique(weight, named) for weight in draft.weights),
            draft.attributes,
            draft.module,
            draft.n_macs,
        )
        for draft in kept
    )
    inputs = [replace(port, tensor=ids[port.tensor]) for port in input_ports]
    outputs = [replace(port, tensor=ids[port.tensor]) for port in output_ports]
    return OperatorGraph(
        tensors,
        operators,
        tuple(port.tensor for port in inputs),
        tuple(port.tensor for port in outputs),
        tuple(inputs),
        tuple(outputs),
    )


def _unique(weight: Weight, named: dict[str, list[Weight]]) -> Weight:
    """Return the weight of that name that has the same content, or the weight under a name of its own."""
    known = named.setdefault(weight.name, [])
    for i, other in enumerate(known):
        if _equal(weight.values, other.values) and _equal(weight.bias, other.bias):
            return replace(weight, name=weight.name if i == 0 else f"{weight.name}#{i + 1}")
    known.append(weight)
    return weight if len(known) == 1 else replace(weight, name=f"{weight.name}#{len(known)}")


def _equal(a: FloatArray | None, b: FloatArray | None) -> bool:
    return a is b if a is None or b is None else np.array_equal(a, b)
