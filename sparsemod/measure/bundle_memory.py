"""RAM of a C bundle: where the tensors of a network and the scratch memory of its kernels lie in the arena.

The planner is the interpreter's, with less to place: a reshape's output is its input; what a loop carries
lies in the tensors around it, and its counter in a register.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sparsemod.measure.bundle import LSTM, is_sparse
from sparsemod.measure.graph import Operator, OperatorGraph
from sparsemod.measure.interpreted import interpreted
from sparsemod.measure.memory import Arena, plan_arena
from sparsemod.measure.sparse import depthwise_scratch_bytes, sparse_scratch_bytes

__all__ = ["Layout", "gathering", "layout", "scratch_bytes"]


@dataclass(frozen=True, slots=True)
class Layout:
    """Where everything lies.

    Attributes:
        arena: The plan.
        tensors: Offset of each tensor by its name, those of loops' bodies included. What needs no memory of
            its own (counters, a step that is cut out) is not there.
        scratch: Offset of an operator's scratch memory, by the name of its first output.
    """

    arena: Arena
    tensors: Mapping[str, int]
    scratch: Mapping[str, int]


def layout(graph: OperatorGraph) -> Layout:
    """Plan the arena of a network.

    Args:
        graph: From `sparsemod.measure.operators.lower`, or as the bundle executes it.
    """
    draft = _Draft()
    draft.walk(interpreted(graph))
    names = [name for name in draft.sizes if draft.owner(name) == name]
    first, last = dict(draft.first), dict(draft.last)
    for name in draft.sizes:
        own = draft.owner(name)
        first[own], last[own] = min(first[own], draft.first[name]), max(last[own], draft.last[name])
    scratch = list(draft.scratch)
    arena = plan_arena(
        [draft.sizes[name] for name in names] + [draft.scratch[name][0] for name in scratch],
        [first[name] for name in names] + [draft.scratch[name][1] for name in scratch],
        [last[name] for name in names] + [draft.scratch[name][1] for name in scratch],
    )
    places = dict(zip(names, arena.offsets, strict=False))
    return Layout(
        arena,
        {name: places[draft.owner(name)] for name in draft.sizes},
        dict(zip(scratch, arena.offsets[len(names) :], strict=True)),
    )


@dataclass(slots=True)
class _Draft:
    moment: int = 0
    sizes: dict[str, int] = field(default_factory=dict)
    first: dict[str, int] = field(default_factory=dict)
    last: dict[str, int] = field(default_factory=dict)
    same: dict[str, str] = field(default_factory=dict)
    scratch: dict[str, tuple[int, int]] = field(default_factory=dict)

    def owner(self, name: str) -> str:
        while name in self.same:
            name = self.same[name]
        return name

    def walk(self, graph: OperatorGraph) -> None:
        names = [tensor.name for tensor in graph.tensors]
        for tensor in graph.tensors:
            if tensor.dtype not in {"int32", "bool"}:
                self.sizes.setdefault(tensor.name, tensor.n_bytes)
                self.first.setdefault(tensor.name, self.moment)
                self.last.setdefault(tensor.name, self.moment)
        for operator in graph.operators:
            self.moment += 1
            start = self.moment
            for i in operator.outputs:
                self.first[names[i]] = start
            if operator.kind == "while":
                self._loop(graph, operator)
            elif operator.kind == "reshape":
                self.same[names[operator.outputs[0]]] = names[operator.inputs[0]]
            n_bytes = scratch_bytes(graph, operator)
            if n_bytes:
                self.scratch[names[operator.outputs[0]]] = (n_bytes, start)
            for i in (*operator.inputs, *operator.outputs):
                self.last[names[i]] = self.moment
        for i in graph.outputs:
            self.last[names[i]] = self.moment

    def _loop(self, graph: OperatorGraph, operator: Operator) -> None:
        body: OperatorGraph = operator.attributes["body"]
        around = [graph.tensors[i].name for i in operator.outputs[1:]]
        carried = [body.tensors[i].name for i in body.inputs[1:]]
        self.same[around[0]] = graph.tensors[operator.inputs[0]].name
        self.same |= dict(zip(carried, around, strict=True))
        cut = next(op for op in body.operators if op.kind == "slice")
        for op in body.operators:
            if op.kind == "dynamic_update_slice":
                self.same[body.tensors[op.outputs[0]].name] = body.tensors[op.inputs[0]].name
        self.walk(body)
        del self.sizes[body.tensors[cut.outputs[0]].name]  # read where it lies


def scratch_bytes(graph: OperatorGraph, operator: Operator) -> int:
    """Return the bytes that an operator's kernel needs beside its tensors.

    A convolution gathers two columns of its input, unless they lie there as they are. A sparse one keeps the
    weights of one output channel as a list, as if none of them were zero; a sparse depthwise one those of a
    channel, and the rows of its input. An LSTM has the four gates of a step and the cell state in 16 bits,
    and a state to begin with. All are in float where the activations are.
    """
    quantized = graph.tensors[operator.outputs[0]].dtype == "int8"
    if operator.kind == LSTM:
        return int(operator.attributes["hidden_size"]) * (11 if quantized else 24)
    if not quantized or operator.kind not in {"conv_2d", "depthwise_conv_2d"}:
        return 0
    weight, attributes = operator.weights[0], operator.attributes
    height, width = (int(n) for n in weight.values.shape[1:3])
    sparse = is_sparse(graph, operator, weight)
    if operator.kind == "depthwise_conv_2d":
        if not sparse:
            return 0
        out_width = graph.tensors[operator.outputs[0]].shape[2]
        stride, dilation = attributes["stride"][1], attributes["dilation"]
        return depthwise_scratch_bytes((height, width), dilation, stride, out_width, sparse=True)
    fan_in = height * width * int(weight.values.shape[3])
    if sparse:
        return sparse_scratch_bytes(height * width, fan_in)
    lies_there = gathering(operator) == 1 and (attributes["padding"] == "valid" or width == 1)
    return 0 if lies_there else 2 * fan_in


def gathering(operator: Operator) -> int:
    """Return how the columns of a convolution lie in its input: 1 whole, 0 in runs, -1 in single pixels."""
    height, width = operator.weights[0].values.shape[1:3]
    if operator.attributes["groups"] != 1 or (width > 1 and operator.attributes["dilation"][1] != 1):
        return -1
    return int(height == 1)
