"""Scratch memory that kernels ask the arena for while they run."""

from __future__ import annotations

from math import prod

from sparsemod.measure.graph import Operator, OperatorGraph

__all__ = ["batch_dimension", "scratch_buffers"]

_MVE_CHANNELS = 124  # channels that CMSIS-NN's vector kernel of depthwise convolutions takes at a time
_RECURRENT = {"unidirectional_sequence_lstm": (4, 3), "gru": (3, 1)}  # gates, bytes of state a hidden unit
_DSP = {"cortex-m4", "cortex-m7", "cortex-m33"}


def scratch_buffers(graph: OperatorGraph, operator: Operator, core: str, library: str) -> tuple[int, ...]:
    """Return the bytes of each piece of scratch memory of one operator.

    CMSIS-NN (as reported by its buffer-size functions on 26 shapes): two im2col columns of int16 for a
    convolution larger than 1x1; int16 copies of the window for a depthwise one that is not 3x3, and int32
    sums for an average pool, on cores with DSP instructions; on the M55 int32 columns, and kernel sums of a
    fully connected layer. On the generic core there are none of these.

    The interpreter's LSTM keeps the gates of a step as four vectors of int16; its state lies outside the
    arena. Its reductions keep an index for each dimension and axis, means and sums also an int32 an output.
    Under `c` a recurrent layer has the gates of a step, in int16, and the state, int8 with the LSTM's cell
    state in int16. All are float32 where the activations are.
    """
    if not operator.outputs:
        return ()
    quantized = graph.tensors[operator.outputs[0]].dtype == "int8"
    hidden = operator.attributes.get("hidden_size", 0)
    if hidden and library == "c":
        gates, state = _RECURRENT.get(operator.kind, (1, 1))
        vectors = gates * (-(-hidden * (2 if quantized else 4) // 16) * 16)
        return (int(vectors + hidden * (state if quantized else 8 if state == 3 else 4)),)
    if library != "cmsis-nn":
        return ()
    if operator.kind == "unidirectional_sequence_lstm":
        n_batch = graph.tensors[operator.inputs[0]].shape[batch_dimension(operator)]
        return (n_batch * hidden * (2 if quantized else 4),) * 4
    if not quantized:
        return ()
    if operator.kind in {"mean", "sum", "reduce_max", "reduce_min"}:
        indices = (4 * len(graph.tensors[operator.inputs[0]].shape), 4 * len(operator.attributes["axes"]))
        sums = 4 * graph.tensors[operator.outputs[0]].n_elements
        return indices if operator.kind.startswith("reduce") else (sums, *indices)
    if operator.kind == "transpose_conv":
        return (4 * graph.tensors[operator.outputs[0]].n_elements,)
    return () if core == "generic" else (_cmsis(graph, operator, core),)


def batch_dimension(operator: Operator) -> int:
    """Return which dimension of a recurrent operator's input counts sequences; steps first only in files."""
    return 1 if operator.attributes.get("time_major") else 0


def _cmsis(graph: OperatorGraph, operator: Operator, core: str) -> int:
    vector = core == "cortex-m55"
    if operator.kind == "conv_2d":
        fan_in = prod(operator.weights[0].values.shape[1:])
        if prod(operator.weights[0].values.shape[1:3]) == 1:
            return 0
        return 4 * (-(-fan_in // 16) * 16) if vector else 4 * fan_in
    if operator.kind == "depthwise_conv_2d":
        taps = prod(operator.weights[0].values.shape[1:3])
        if vector:
            return 4 * taps * _MVE_CHANNELS
        return 2 * taps * _channels(graph, operator) if core in _DSP and taps != 9 else 0
    if operator.kind == "average_pool_2d":
        return 4 * _channels(graph, operator) if core in _DSP else 0
    if operator.kind == "fully_connected":
        return 4 * operator.weights[0].values.shape[0] if vector else 0
    return 0


def _channels(graph: OperatorGraph, operator: Operator) -> int:
    return graph.tensors[operator.inputs[0]].shape[-1]
