"""Scratch memory that kernels ask the arena for while they run."""

from __future__ import annotations

from math import prod

from sparsemod.measure.graph import Operator, OperatorGraph

__all__ = ["scratch_bytes"]

_MVE_CHANNELS = 124  # channels that CMSIS-NN's vector kernel of depthwise convolutions takes at a time
_RECURRENT = {"unidirectional_sequence_lstm": (4, 3), "gru": (3, 1)}  # gates, bytes of state a hidden unit
_DSP = {"cortex-m4", "cortex-m7", "cortex-m33"}


def scratch_bytes(graph: OperatorGraph, operator: Operator, core: str, library: str) -> int:
    """Return the bytes of scratch memory of one operator.

    CMSIS-NN (as reported by its buffer-size functions on 26 shapes): two im2col columns of int16 for a
    convolution larger than 1x1; int16 copies of the window for a depthwise one that is not 3x3, and int32
    sums for an average pool, on cores with DSP instructions; on the M55 int32 columns, and kernel sums of a
    fully connected layer. On the generic core there are none of these.

    Recurrent layers on any core: the gates of a step, in int16 (the interpreter's LSTM keeps four vectors,
    its state lies outside the arena); under `c` the state, too, int8 with the LSTM's cell state in int16. All
    are float32 where the activations are.
    """
    quantized = graph.tensors[operator.outputs[0]].dtype == "int8"
    hidden = operator.attributes.get("hidden_size", 0)
    if hidden:
        gates, state = _RECURRENT.get(operator.kind, (1, 1))
        vectors = gates * (-(-hidden * (2 if quantized else 4) // 16) * 16)
        kept = hidden * (state if quantized else 8 if state == 3 else 4)
        return int(vectors + (kept if library == "c" else 0))
    if core == "generic" or library != "cmsis-nn" or not quantized:
        return 0
    return _cmsis(graph, operator, core)


def _cmsis(graph: OperatorGraph, operator: Operator, core: str) -> int:
    vector = core == "cortex-m55"
    channels = graph.tensors[operator.inputs[0]].shape[-1]
    if operator.kind == "conv_2d":
        fan_in = prod(operator.weights[0].values.shape[1:])
        if prod(operator.weights[0].values.shape[1:3]) == 1:
            return 0
        return 4 * (-(-fan_in // 16) * 16) if vector else 4 * fan_in
    if operator.kind == "depthwise_conv_2d":
        taps = prod(operator.weights[0].values.shape[1:3])
        if vector:
            return 4 * taps * _MVE_CHANNELS
        return 2 * taps * channels if core in _DSP and taps != 9 else 0
    if operator.kind == "average_pool_2d":
        return 4 * channels if core in _DSP else 0
    if operator.kind == "fully_connected":
        return 4 * operator.weights[0].values.shape[0] if vector else 0
    return 0
