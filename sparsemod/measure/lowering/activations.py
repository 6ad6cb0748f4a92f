"""Activations, and other functions of single elements; softmax too."""

from __future__ import annotations

from math import inf
from typing import Any

import numpy as np

from sparsemod.measure.lowering.arithmetic import rearranged
from sparsemod.measure.lowering.builder import Builder, Handler, array, constant
from sparsemod.measure.lowering.drafts import FUSES_ACTIVATION, Bound
from sparsemod.measure.lowering.other import lower_other
from sparsemod.measure.values import Node, Value

__all__ = ["HANDLERS"]

_CLAMPS = {(0.0, inf): "relu", (0.0, 6.0): "relu6", (-1.0, 1.0): "relu_n1_to_1"}
_UNARY = {
    "abs": "abs",
    "cos": "cos",
    "exp": "exp",
    "log": "log",
    "neg": "neg",
    "rsqrt": "rsqrt",
    "sigmoid": "logistic",
    "sin": "sin",
    "sqrt": "sqrt",
    "tanh": "tanh",
    "hardswish": "hard_swish",
}


def unary(
    builder: Builder, node: Node, bound: Bound, kind: str, attributes: dict[str, Any] | None = None
) -> Bound:
    """Add an operator that keeps shape and layout."""
    shape = builder.tensors[bound.tensor].shape
    return Bound(builder.emit(node, kind, [bound.tensor], shape, attributes=attributes), bound.layout)


def activation(builder: Builder, node: Node, low: float, high: float) -> None:
    """Clamp to a range: fused in the operator that writes the value where its runtime can."""
    source, out = _input(node), node.outputs[0]
    kind = _CLAMPS.get((low, high))
    if kind is None:
        lower_other(builder, node)
        return
    draft = builder.fusable(source)
    bound = builder.get(source)
    if draft is not None and draft.kind in FUSES_ACTIVATION:
        present = draft.attributes["activation"]
        if present == "none" or present == kind or (present, kind) == ("relu", "relu6"):
            draft.attributes["activation"] = kind
            builder.bind(out, bound)
            return
        if (present, kind) == ("relu6", "relu"):
            builder.bind(out, bound)
            return
    builder.bind(out, unary(builder, node, bound, kind))


def _input(node: Node) -> Value:
    value: Value = node.arguments["self" if "self" in node.arguments else "input"]
    return value


def _relu(builder: Builder, node: Node) -> None:
    activation(builder, node, 0.0, inf)


def _clamp(builder: Builder, node: Node) -> None:
    a = node.arguments
    low = a.get("min", a.get("min_val"))
    high = a.get("max", a.get("max_val"))
    if isinstance(low, Value) or isinstance(high, Value):
        lower_other(builder, node)
        return
    activation(builder, node, -inf if low is None else float(low), inf if high is None else float(high))


def _unary(builder: Builder, node: Node) -> None:
    builder.bind(node.outputs[0], unary(builder, node, builder.get(_input(node)), _UNARY[node.op]))


def _leaky_relu(builder: Builder, node: Node) -> None:
    attributes = {"alpha": float(node.arguments["negative_slope"])}
    builder.bind(node.outputs[0], unary(builder, node, builder.get(_input(node)), "leaky_relu", attributes))


def _elu(builder: Builder, node: Node) -> None:
    a = node.arguments
    if (float(a["alpha"]), float(a["scale"]), float(a["input_scale"])) != (1.0, 1.0, 1.0):
        lower_other(builder, node)
        return
    builder.bind(node.outputs[0], unary(builder, node, builder.get(_input(node)), "elu"))


def _gelu(builder: Builder, node: Node) -> None:
    attributes = {"approximate": node.arguments["approximate"] == "tanh"}
    builder.bind(node.outputs[0], unary(builder, node, builder.get(_input(node)), "gelu", attributes))


def _prelu(builder: Builder, node: Node) -> None:
    a = node.arguments
    weight = a["weight"]
    if weight.data is None:
        lower_other(builder, node)
        return
    bound = builder.get(_input(node))
    slopes = array(weight).reshape(-1)
    shape = [1] * len(bound.layout.dims)
    if slopes.size > 1:
        shape[1] = slopes.size
    bound, values = rearranged(builder, node, bound, slopes.reshape(shape))
    alpha = constant(values, weight.source or f"{node.module}.weight")
    output = builder.emit(node, "prelu", [bound.tensor], builder.tensors[bound.tensor].shape, weights=[alpha])
    builder.bind(node.outputs[0], Bound(output, bound.layout))


def _silu(builder: Builder, node: Node) -> None:
    bound = builder.get(_input(node))
    gate = unary(builder, node, bound, "logistic")
    shape = builder.tensors[bound.tensor].shape
    output = builder.emit(node, "mul", [bound.tensor, gate.tensor], shape, attributes={"constant": None})
    builder.bind(node.outputs[0], Bound(output, bound.layout))


def _hardsigmoid(builder: Builder, node: Node) -> None:
    bound = builder.get(_input(node))
    shape = builder.tensors[bound.tensor].shape
    tensor = bound.tensor
    for kind, number, fused in (("add", 3.0, "relu6"), ("mul", 1 / 6, "none")):
        weight = constant(np.array([number]), f"{node.module or node.op}.{kind}")
        attributes = {"constant": "y", "activation": fused}
        tensor = builder.emit(node, kind, [tensor], shape, weights=[weight], attributes=attributes)
    builder.bind(node.outputs[0], Bound(tensor, bound.layout))


def _power(builder: Builder, node: Node) -> None:
    bound, exponent = builder.get(_input(node)), node.arguments["exponent"]
    if exponent != 2:
        lower_other(builder, node)
        return
    shape = builder.tensors[bound.tensor].shape
    output = builder.emit(node, "mul", [bound.tensor, bound.tensor], shape, attributes={"constant": None})
    builder.bind(node.outputs[0], Bound(output, bound.layout))


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
    **dict.fromkeys(_UNARY, _unary),
    **dict.fromkeys(("hardtanh", "clamp", "clamp_min", "clamp_max"), _clamp),
    **dict.fromkeys(("softmax", "_softmax", "log_softmax", "_log_softmax"), _softmax),
    "relu": _relu,
    "threshold": _threshold,
    "leaky_relu": _leaky_relu,
    "elu": _elu,
    "gelu": _gelu,
    "_prelu_kernel": _prelu,
    "silu": _silu,
    "hardsigmoid": _hardsigmoid,
    "pow": _power,
}
