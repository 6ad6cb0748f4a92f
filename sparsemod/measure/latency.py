"""Time of one inference: the instructions of its operators, times cycles an instruction, over the clock."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import numpy as np

from sparsemod.measure.graph import Operator, OperatorGraph
from sparsemod.measure.kernels import CMSIS_NN, ESTIMATES, FLOAT_MAC, PLAIN_C, PLAIN_C_SCALE
from sparsemod.measure.lowering.windows import same
from sparsemod.measure.targets import Target

__all__ = ["LIBRARIES", "instructions", "latency_seconds"]

LIBRARIES = {"tflite-micro": "cmsis-nn", "c": "c"}
"""The kernel library under each runtime."""

_CONVOLUTIONS = {"conv_2d", "depthwise_conv_2d", "transpose_conv"}
_DENSE = {"fully_connected", "batch_matmul"}
_ARITHMETIC = {"add", "sub", "mul", "div", "maximum", "minimum", "relu", "relu6", "relu_n1_to_1"}
_ARITHMETIC |= {"leaky_relu", "prelu", "abs", "neg", "less", "greater", "count"}
_POOLS = {"max_pool_2d", "average_pool_2d"}
_REDUCTIONS = {"mean", "sum", "reduce_max", "reduce_min"}
_SOFTMAXES = {"softmax", "log_softmax"}
_RECURRENT = {"unidirectional_sequence_lstm", "gru", "unidirectional_sequence_rnn"}
_COPIES = {"concatenation", "pack", "pad", "strided_slice", "slice", "dynamic_update_slice"}
_GATHERS = {"gather", "transpose", "resize_nearest_neighbor", "resize_bilinear", "reverse"}
_CONVERSIONS = {"quantize", "dequantize"}
_STATE = {  # activations and products for each hidden unit at each step
    "unidirectional_sequence_lstm": (5, 4),
    "gru": (3, 6),
    "unidirectional_sequence_rnn": (1, 1),
}


def latency_seconds(graph: OperatorGraph, target: Target, runtime: str) -> float:
    """Return the seconds of one inference on a target under ``c`` or ``tflite-micro``."""
    total = sum(
        instructions(graph, operator, target.core, LIBRARIES[runtime]) for operator in graph.operators
    )
    return total * target.cycles_per_instruction / target.clock_hz


def instructions(graph: OperatorGraph, operator: Operator, core: str, library: str) -> float:
    """Return the instructions of one operator.

    Args:
        graph: The operators, for the shapes.
        operator: One of them.
        core: A key of `sparsemod.measure.targets.CORES`; on ``generic`` a multiply-accumulate is one
            instruction and nothing else counts.
        library: ``cmsis-nn`` or ``c``.
    """
    if core == "generic":
        return float(operator.n_macs)
    if operator.kind == "while":
        parts = (operator.attributes["condition"], operator.attributes["body"])
        step = sum(instructions(part, inner, core, library) for part in parts for inner in part.operators)
        return step * int(operator.attributes["n_steps"])
    if not operator.outputs:
        return 0.0
    model: Callable[[OperatorGraph, Operator, str], float] = _plain
    if graph.tensors[operator.outputs[0]].dtype == "float32" and operator.kind not in _CONVERSIONS:
        return _plain(graph, operator, core) + operator.n_macs * FLOAT_MAC.get(core, 0.0)
    if library == "cmsis-nn":
        model = _cmsis
    return model(graph, operator, core)


def _shape(graph: OperatorGraph, operator: Operator) -> tuple[int, ...]:
    return graph.tensors[operator.outputs[0]].shape


def _cmsis(graph: OperatorGraph, operator: Operator, core: str) -> float:
    k, kind = CMSIS_NN[core], operator.kind
    out = prod(_shape(graph, operator))
    if kind in _CONVOLUTIONS:
        weight = operator.weights[0].values
        if kind == "depthwise_conv_2d":
            if weight.shape[1:3] != (3, 3):
                return k.depthwise * max(operator.n_macs, out)
            rows, columns = _valid(graph, operator)
            n, height, width, channels = _shape(graph, operator)
            t, o, p = k.depthwise_3x3
            return t * n * rows * columns * channels + o * out + p * n * height * width
        taps, fan_in = int(prod(weight.shape[1:3])), int(prod(weight.shape[1:]))
        pixels = out // int(weight.shape[0])
        if taps == 1:
            return k.pointwise[0] * operator.n_macs + k.pointwise[1] * out + k.pointwise[2] * pixels
        a, r, o, c, t = k.convolution
        whole = fan_in // k.group * k.group
        products = a * out * whole + r * out * (fan_in - whole)
        return products + o * out + c * pixels * fan_in + t * pixels * taps
    if kind in _DENSE:
        return k.dense[0] * operator.n_macs + k.dense[1] * out
    if kind in _RECURRENT:
        matrices = k.dense[0] * operator.n_macs + k.dense[1] * out * len(operator.weights)
        return matrices + _state(operator, out, ESTIMATES["cmsis-nn"]["activation"], k.add)
    return _elements(graph, operator, "cmsis-nn", k.add, k.max_pool, k.average_pool, k.softmax, k.dense[0])


def _plain(graph: OperatorGraph, operator: Operator, core: str) -> float:
    k, kind, scale = PLAIN_C, operator.kind, PLAIN_C_SCALE.get(core, {})
    out = prod(_shape(graph, operator))
    if kind in {"conv_2d", "depthwise_conv_2d"}:
        weight = operator.weights[0].values
        rows, columns = _valid(graph, operator)
        n, height, width, channels = _shape(graph, operator)
        taps = n * rows * columns * channels
        if kind == "depthwise_conv_2d":
            return scale.get("depthwise", 1.0) * (k.depthwise[0] * taps + k.depthwise[1] * out)
        if prod(weight.shape[1:3]) == 1:
            a, o, p = k.pointwise
            return scale.get("pointwise", 1.0) * (a * operator.n_macs + o * out + p * n * height * width)
        valid_rows = n * rows * width * channels
        m, t, r, o = k.convolution
        n_macs = taps * int(weight.shape[3])
        return scale.get("convolution", 1.0) * (m * n_macs + t * taps + r * valid_rows + o * out)
    if kind in _DENSE or kind == "transpose_conv":
        return scale.get("dense", 1.0) * (k.dense[0] * operator.n_macs + k.dense[1] * out)
    add = k.add * scale.get("add", 1.0)
    if kind in _RECURRENT:
        matrices = k.dense[0] * operator.n_macs + k.dense[1] * out * len(operator.weights)
        return scale.get("dense", 1.0) * matrices + _state(operator, out, ESTIMATES["c"]["activation"], add)
    pools = k.max_pool * scale.get("max_pool", 1.0), k.average_pool * scale.get("average_pool", 1.0)
    softmax, mac = k.softmax * scale.get("softmax", 1.0), k.dense[0] * scale.get("dense", 1.0)
    return _elements(graph, operator, "c", add, *pools, softmax, mac)


def _state(operator: Operator, out: int, activation: float, product: float) -> float:
    n_activations, n_products = _STATE[operator.kind]
    return out * (n_activations * activation + n_products * product)


def _elements(
    graph: OperatorGraph,
    operator: Operator,
    library: str,
    add: float,
    max_pool: float,
    average_pool: float,
    softmax: float,
    mac: float,
) -> float:
    """Return the instructions of what works element by element; an unknown one adds at each element."""
    kind = operator.kind
    out = prod(_shape(graph, operator))
    read = sum(graph.tensors[i].n_elements for i in operator.inputs)
    estimates = ESTIMATES[library]
    if kind in _POOLS:
        window = int(prod(operator.attributes["filter"]))
        return (max_pool if kind == "max_pool_2d" else average_pool) * out * window
    if kind in _REDUCTIONS:
        return (average_pool if kind in {"mean", "sum"} else max_pool) * read
    if kind in _SOFTMAXES:
        return softmax * out
    if kind in _ARITHMETIC:
        return add * out
    if kind in _COPIES:
        return estimates["copy"] * out
    if kind == "reshape":
        return estimates["reshape"] * out
    if kind in _GATHERS:
        return estimates["gather"] * out
    if kind in _CONVERSIONS:
        return estimates["convert"] * out
    if kind.startswith("other:"):
        return mac * operator.n_macs + add * max(out, read)
    return estimates["activation"] * out


def _valid(graph: OperatorGraph, operator: Operator) -> tuple[int, int]:
    """Return the kernel rows, and columns, inside the input, summed over the window's positions."""
    _, *size, _ = graph.tensors[operator.inputs[0]].shape
    _, *out, _ = _shape(graph, operator)
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
