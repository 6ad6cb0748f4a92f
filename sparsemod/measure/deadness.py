"""Which channels of an operator list are zero whatever the input."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparsemod.measure.graph import Operator, OperatorGraph

__all__ = ["MATRICES", "ZERO_TO_ZERO", "dead_channels", "flattened", "has_zero_channels"]

Mask = NDArray[np.bool_]

ZERO_TO_ZERO = {
    "max_pool_2d",
    "average_pool_2d",
    "relu",
    "relu6",
    "relu_n1_to_1",
    "tanh",
    "leaky_relu",
    "prelu",
    "elu",
    "gelu",
    "hard_swish",
    "abs",
    "neg",
    "sqrt",
    "sin",
    "resize_nearest_neighbor",
    "resize_bilinear",
}
_RECTIFIED = {"relu", "relu6"}
MATRICES = {"conv_2d", "fully_connected", "transpose_conv"}


def flattened(values: NDArray[np.float32], n_channels: int) -> NDArray[np.float32] | None:
    """View a weight as (rows, input channels); None where the channels do not divide its columns."""
    if values.shape[-1] % n_channels:
        return None
    return values.reshape(-1, n_channels)


def has_zero_channels(graph: OperatorGraph) -> bool:
    """Return whether any matrix or kernel has an output channel or an input channel without a weight.

    This is quick and rules out the networks that were not pruned.
    """
    for operator in graph.operators:
        if operator.kind == "depthwise_conv_2d":
            if not operator.weights[0].values.any(axis=(0, 1, 2)).all():
                return True
        elif operator.kind in MATRICES:
            values = operator.weights[0].values
            columns = flattened(values, graph.tensors[operator.inputs[0]].shape[-1])
            rows = values.reshape(values.shape[0], -1).any(axis=1)
            if not rows.all() or (columns is not None and not columns.any(axis=0).all()):
                return True
    return False


def dead_channels(graph: OperatorGraph) -> list[Mask]:
    """Return for each tensor which entries of its last dimension are zero for every input."""
    dead = [np.zeros(tensor.shape[-1], bool) for tensor in graph.tensors]
    for operator in graph.operators:
        inputs = [dead[i] for i in operator.inputs]
        for i in operator.outputs:
            found = _dead(graph, operator, inputs, len(dead[i]))
            if found is not None:
                dead[i] = found
    return dead


def _dead(graph: OperatorGraph, operator: Operator, inputs: list[Mask], n_channels: int) -> Mask | None:
    kind, a, x = operator.kind, operator.attributes, inputs[0]
    if kind in MATRICES or kind == "depthwise_conv_2d":
        return _dead_rows(operator, x)
    if kind in {"add", "sub", "maximum", "minimum", "mul"}:
        return _dead_binary(operator, inputs, n_channels)
    if kind in ZERO_TO_ZERO and len(x) == n_channels:
        return x
    if kind == "pad" and a["value"] in {0.0, -inf} and not any(a["paddings"][-1]):
        return x  # padding of minus infinity never is the maximum of a window
    if kind == "reshape":
        return _dead_reshaped(graph, operator, x, n_channels)
    rank = len(graph.tensors[operator.inputs[0]].shape)
    if kind == "concatenation":
        return np.concatenate(inputs) if a["axis"] == rank - 1 else _all(inputs)
    if kind == "pack" and a["axis"] != rank:
        return _all(inputs)
    if kind == "strided_slice":
        return x[a["begin"] : a["end"] : a["stride"]] if a["axis"] == rank - 1 else x
    if kind == "transpose" and a["permutation"][-1] == rank - 1:
        return x
    if kind in {"mean", "sum", "reduce_max", "reduce_min"} and rank - 1 not in a["axes"]:
        return x
    return None


def _all(masks: Sequence[Mask] | Mask) -> Mask:
    return np.asarray(np.asarray(masks).all(axis=0), bool)


def _any(rows: NDArray[Any]) -> Mask:
    return np.asarray(rows.any(axis=1), bool)


def _dead_rows(operator: Operator, source: Mask) -> Mask | None:
    """Return the rows of weights that read only dead channels and whose bias leaves them at zero."""
    weight = operator.weights[0]
    if operator.kind == "depthwise_conv_2d":
        alive = np.repeat(~source, operator.attributes["depth_multiplier"])
        used = _any(weight.values.reshape(-1, len(alive)).T) & alive
    elif operator.attributes.get("groups", 1) != 1:
        used = _any(weight.values.reshape(len(weight.values), -1))
    else:
        columns = flattened(weight.values, len(source))
        if columns is None:
            return None
        used = _any((columns.astype(bool) & ~source).reshape(weight.values.shape[0], -1))
    zero: Mask = ~used
    if weight.bias is None:
        return zero
    rectified = operator.attributes["activation"] in _RECTIFIED
    return zero & (weight.bias <= 0 if rectified else weight.bias == 0)


def _dead_binary(operator: Operator, inputs: list[Mask], n_channels: int) -> Mask | None:
    masks = [np.broadcast_to(mask, n_channels) for mask in inputs]
    product = operator.kind == "mul"
    if operator.attributes["constant"] is None:
        return masks[0] | masks[1] if product else masks[0] & masks[1]
    values = np.atleast_1d(operator.weights[0].values)
    values = np.broadcast_to(values, (*values.shape[:-1], n_channels)).reshape(-1, n_channels)
    if product:
        return masks[0] | ~values.any(axis=0)
    if operator.kind == "add" and operator.attributes["activation"] in _RECTIFIED:
        return masks[0] & (values <= 0).all(axis=0)
    return masks[0] & ~values.any(axis=0)


def _dead_reshaped(graph: OperatorGraph, operator: Operator, source: Mask, n_channels: int) -> Mask | None:
    n = len(source)
    shape = graph.tensors[operator.inputs[0]].shape
    if n == n_channels:
        return source
    if n_channels % n == 0 and n_channels in {prod(shape[-i:]) for i in range(1, len(shape) + 1)}:
        return np.tile(source, n_channels // n)
    if n % n_channels == 0:
        return _all(source.reshape(-1, n_channels))
    return None
