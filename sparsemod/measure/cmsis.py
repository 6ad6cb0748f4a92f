"""How often the parts of CMSIS-NN's kernels are executed, operator by operator, and what that takes.

The terms are those that the counts of single operators follow (`benchmarks/fit_latency.py --cmsis` fits
them): a convolution copies its input as columns and multiplies groups of 4 (16 on the M55) products at a
time.
"""

from __future__ import annotations

from math import prod

import numpy as np

from sparsemod.measure.graph import Operator, OperatorGraph
from sparsemod.measure.kernels import CMSIS_NN, ESTIMATES, Kernels
from sparsemod.measure.lowering.windows import same

__all__ = ["cmsis_instructions", "cmsis_work"]

Work = dict[str, float]

_CONVOLUTIONS = {"conv_2d", "depthwise_conv_2d", "transpose_conv"}
_DENSE = {"fully_connected", "batch_matmul"}
_ARITHMETIC = {"add", "sub", "mul", "div", "maximum", "minimum", "relu", "relu6", "relu_n1_to_1"}
_ARITHMETIC |= {"leaky_relu", "prelu", "abs", "neg", "less", "greater", "count"}
_POOLS = {"max_pool_2d": "max_pool", "average_pool_2d": "average_pool"}
_REDUCTIONS = {
    "mean": "average_pool",
    "sum": "average_pool",
    "reduce_max": "max_pool",
    "reduce_min": "max_pool",
}
_SOFTMAXES = {"softmax", "log_softmax"}
_COPIES = {"concatenation", "pack", "pad", "strided_slice", "slice", "dynamic_update_slice"}
_GATHERS = {"gather", "transpose", "resize_nearest_neighbor", "resize_bilinear", "reverse"}
_CONVERSIONS = {"quantize", "dequantize"}
_STATE = {  # activations and products for each hidden unit at each step
    "unidirectional_sequence_lstm": (5, 4),
    "gru": (3, 6),
    "unidirectional_sequence_rnn": (1, 1),
}


def cmsis_instructions(graph: OperatorGraph, operator: Operator, core: str) -> float:
    """Return the instructions of one operator that is no loop.

    Args:
        graph: The list that it stands in.
        operator: The operator.
        core: A key of `sparsemod.measure.kernels.CMSIS_NN`.
    """
    costs = _COSTS[core]
    return sum(costs[name] * n for name, n in cmsis_work(graph, operator, core).items())


def cmsis_work(graph: OperatorGraph, operator: Operator, core: str) -> Work:
    """Return the executions of an operator's parts by name; an unknown kind adds at each element."""
    kind, shape = operator.kind, graph.tensors[operator.outputs[0]].shape
    out = prod(shape)
    if kind in _CONVOLUTIONS:
        return _convolution(graph, operator, CMSIS_NN[core].group)
    if kind in _DENSE:
        return {"dense.macs": operator.n_macs, "dense.outputs": out}
    if kind in _STATE:
        n_activations, n_products = _STATE[kind]
        return {
            "dense.macs": operator.n_macs,
            "dense.outputs": out * len(operator.weights),
            "activation": out * n_activations,
            "add": out * n_products,
        }
    if kind in _POOLS:
        return {_POOLS[kind]: out * int(prod(operator.attributes["filter"]))}
    read = sum(graph.tensors[i].n_elements for i in operator.inputs)
    if kind in _REDUCTIONS:
        return {_REDUCTIONS[kind]: read}
    if kind.startswith("other:"):
        return {"dense.macs": operator.n_macs, "add": max(out, read)}
    groups = {"softmax": _SOFTMAXES, "add": _ARITHMETIC, "copy": _COPIES, "gather": _GATHERS}
    groups |= {"convert": _CONVERSIONS, "reshape": {"reshape"}}
    return {next((name for name, kinds in groups.items() if kind in kinds), "activation"): out}


def _convolution(graph: OperatorGraph, operator: Operator, group: int) -> Work:
    weight, shape = operator.weights[0].values, graph.tensors[operator.outputs[0]].shape
    out = prod(shape)
    if operator.kind == "depthwise_conv_2d":
        if weight.shape[1:3] != (3, 3):
            return {"depthwise.macs": max(operator.n_macs, out)}
        rows, columns = _valid(graph, operator)
        n, height, width, channels = shape
        taps = n * rows * columns * channels
        return {
            "depthwise_3x3.taps": taps,
            "depthwise_3x3.outputs": out,
            "depthwise_3x3.pixels": n * height * width,
        }
    taps, fan_in = int(prod(weight.shape[1:3])), int(prod(weight.shape[1:]))
    pixels = out // int(weight.shape[0])
    if taps == 1:
        return {"pointwise.macs": operator.n_macs, "pointwise.outputs": out, "pointwise.pixels": pixels}
    whole = fan_in // group * group
    return {
        "convolution.grouped_macs": out * whole,
        "convolution.other_macs": out * (fan_in - whole),
        "convolution.outputs": out,
        "convolution.copied": pixels * fan_in,
        "convolution.taps": pixels * taps,
    }


def _valid(graph: OperatorGraph, operator: Operator) -> tuple[int, int]:
    """Return the kernel rows, and columns, inside the input, summed over the window's positions."""
    _, *size, _ = graph.tensors[operator.inputs[0]].shape
    _, *out, _ = graph.tensors[operator.outputs[0]].shape
    kernel = operator.weights[0].values.shape[1:3]
    stride, dilation = operator.attributes["stride"], operator.attributes["dilation"]
    filter_ = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
    before = (0, 0)
    if operator.attributes["padding"] == "same":
        pads = same(size, filter_, stride)
        before = pads[0][0], pads[1][0]
    counts = []
    for n, o, k, s, d, b in zip(size, out, kernel, stride, dilation, before, strict=True):
        tap = np.arange(k) * d - b  # the window's position i has this tap at i * s + tap
        first = np.maximum(0, -(tap // s))
        last = np.minimum(o - 1, (n - 1 - tap) // s)
        counts.append(int(np.maximum(0, last - first + 1).sum()))
    return counts[0], counts[1]


def _costs(kernels: Kernels) -> Work:
    named = {
        "convolution": ("grouped_macs", "other_macs", "outputs", "copied", "taps"),
        "pointwise": ("macs", "outputs", "pixels"),
        "depthwise_3x3": ("taps", "outputs", "pixels"),
        "dense": ("macs", "outputs"),
    }
    costs = {
        f"{kind}.{part}": cost
        for kind, parts in named.items()
        for part, cost in zip(parts, getattr(kernels, kind), strict=True)
    }
    single = {name: getattr(kernels, name) for name in ("add", "max_pool", "average_pool", "softmax")}
    return costs | single | {"depthwise.macs": kernels.depthwise} | ESTIMATES


_COSTS = {core: _costs(kernels) for core, kernels in CMSIS_NN.items()}
