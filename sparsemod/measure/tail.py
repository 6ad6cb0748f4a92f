"""RAM that TensorFlow Lite Micro takes for its own structures, at the far end of the arena.

In bytes, on a core with pointers of 32 bits: 73 a tensor, constants included, + 7.8 an output channel of a
convolution - 40 a convolution - 62 a fully connected operator + 20 any other operator + 265. Fitted to the
allocations of interpreters on an emulated Cortex-M4; within 3.1 % on 12 networks, 0.5 % on those of MLPerf
Tiny. The state that an LSTM carries from call to call lies there, too, and is added.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator

from sparsemod.measure.graph import Operator, OperatorGraph
from sparsemod.measure.scratch import batch_dimension

__all__ = ["n_file_tensors", "state_bytes", "tail_bytes"]

_TENSOR, _CHANNEL, _CONVOLUTION, _DENSE, _OTHER, _BASE = 73.0, 7.8, -40.0, -62.0, 20.0, 265.0
_CONVOLUTIONS = {"conv_2d", "depthwise_conv_2d", "transpose_conv"}
_LSTM = "unidirectional_sequence_lstm"
_CONSTANTS = {  # attributes that a file holds as tensors of integers
    "mean": ("axes",),
    "sum": ("axes",),
    "reduce_max": ("axes",),
    "reduce_min": ("axes",),
    "transpose": ("permutation",),
    "reverse": ("axis",),
    "less": ("limit",),
    "greater": ("limit",),
    "count": ("by",),
}


def tail_bytes(graph: OperatorGraph, n_tensors: int | None = None) -> int:
    """Return the bytes of the interpreter's own structures.

    Args:
        graph: The operators as the interpreter executes them, from `sparsemod.measure.interpreted` or a file.
        n_tensors: Tensors of the file in all; by default what our own export writes.

    Example:
        A matrix with a bias: input, output and two constants.

        >>> import numpy as np
        >>> from sparsemod.measure.graph import TensorSpec, Weight
        >>> weight = Weight("w", np.ones((3, 4), np.float32), np.ones(3, np.float32))
        >>> tensors = TensorSpec(0, "x", (1, 4), "int8"), TensorSpec(1, "y", (1, 3), "int8")
        >>> dense = Operator("fully_connected", (0,), (1,), (weight,))
        >>> tail_bytes(OperatorGraph(tensors, (dense,), (0,), (1,), (), ()))
        495
    """
    total = _BASE + _TENSOR * (n_file_tensors(graph) if n_tensors is None else n_tensors)
    for part in graph.lists():
        for operator in part.operators:
            if operator.kind in _CONVOLUTIONS:
                total += _CONVOLUTION + _CHANNEL * part.tensors[operator.outputs[0]].shape[-1]
            else:
                total += _DENSE if operator.kind == "fully_connected" else _OTHER
    return round(total) + state_bytes(graph)


def state_bytes(graph: OperatorGraph) -> int:
    """Return the bytes of what is kept from one inference to the next: an LSTM's state, int8 and int16."""
    total = 0
    for part in graph.lists():
        for operator in part.operators:
            if operator.kind == _LSTM:
                n_batch = part.tensors[operator.inputs[0]].shape[batch_dimension(operator)]
                size = n_batch * operator.attributes["hidden_size"]
                total += sum(-(-size * width // 16) * 16 for width in (1, 2))
    return total


def n_file_tensors(graph: OperatorGraph) -> int:
    """Return the tensors of the file that our own export writes: activations, constants, states."""
    return sum(len(part.tensors) + len(set(_constants(part))) + _n_states(part) for part in graph.lists())


def _n_states(graph: OperatorGraph) -> int:
    return 2 * sum(operator.kind == _LSTM for operator in graph.operators)


def _constants(graph: OperatorGraph) -> Iterator[Hashable]:
    """Name the constants of one list, equal ones alike."""
    for operator in graph.operators:
        for i, weight in enumerate(operator.weights):
            yield "weight", weight.name
            if weight.bias is not None:
                yield "bias", weight.name
            elif operator.kind == _LSTM and i < 4:
                yield "zeros", operator.attributes["hidden_size"]
        yield from _integers(graph, operator)


def _integers(graph: OperatorGraph, operator: Operator) -> Iterator[Hashable]:
    kind, attributes = operator.kind, operator.attributes
    for name in _CONSTANTS.get(kind, ()):
        yield "integers", repr(attributes[name])
    if kind == "pad":
        yield "paddings", repr(attributes["paddings"])
        if attributes["value"] != 0:
            yield "value", operator.outputs
    elif kind == "strided_slice":
        rank = len(graph.tensors[operator.inputs[0]].shape)
        whole = list(graph.tensors[operator.inputs[0]].shape)
        for name, others in (("begin", [0] * rank), ("end", whole), ("stride", [1] * rank)):
            others[attributes["axis"]] = attributes[name]
            yield "integers", repr(others)
    elif kind == "slice":
        yield "integers", repr(list(graph.tensors[operator.outputs[0]].shape))
    elif kind.startswith("resize"):
        yield "integers", repr(graph.tensors[operator.outputs[0]].shape[1:3])
    elif kind == "while":
        yield "start", attributes["start"]
        body = attributes["body"]
        for tensor in body.inputs[2:]:
            yield "state", body.tensors[tensor].shape
