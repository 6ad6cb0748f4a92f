"""The operator list as TensorFlow Lite Micro executes it.

It has no operator for some of what a network needs, so that more than one stands for it:

- An LSTM runs forward only: one in reverse gets a ``reverse`` before and, where all its states are read,
  after it.
- ``gru`` and ``unidirectional_sequence_rnn`` become a ``while`` (see `loops`).
- ``concatenation``, ``pack``, ``maximum`` and ``minimum`` copy stored integers, so all operands must lie on
  one grid. What a sigmoid, tanh or softmax made has a grid that cannot be chosen and gets a ``quantize``.
- A ``concatenation`` takes ten operands at most.
- Clamping to [0, 6] or [-1, 1] apart from another operator keeps the grid or does not exist: a ``mul`` by
  one with the clamp fused chooses its own. The negative of integers does not exist either: ``mul`` by -1.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from sparsemod.measure.graph import Operator, OperatorGraph, TensorSpec, Weight
from sparsemod.measure.loops import RECURRENT_LOOPS, loop_graphs

__all__ = ["FIXED_GRIDS", "JOINS", "SAME_GRID", "Grids", "interpreted"]

FIXED_GRIDS = {"softmax": "unit", "logistic": "unit", "tanh": "symmetric", "log_softmax": "log"}
"""Operators whose output has a prescribed grid, and which ones are the same."""

SAME_GRID = frozenset({
    "max_pool_2d", "average_pool_2d", "reshape", "pad", "transpose", "strided_slice", "reverse", "slice",
    "dynamic_update_slice", "reduce_max", "reduce_min", "resize_nearest_neighbor", "resize_bilinear",
})  # fmt: skip
"""Operators that leave stored integers as they are: the grid of the output is the input's."""

JOINS = frozenset({"concatenation", "pack", "maximum", "minimum"})
"""Operators that do so with several operands."""

_PRODUCTS = {"relu6": (1.0, "relu6"), "relu_n1_to_1": (1.0, "relu_n1_to_1"), "neg": (-1.0, "none")}
_MAX_JOINED = 10
_LSTM = "unidirectional_sequence_lstm"


class Grids:
    """Which tensors share a grid, as a union of sets of ids."""

    def __init__(self, n: int) -> None:
        self._parent = list(range(n))

    def add(self) -> int:
        """Return the id of one more tensor."""
        self._parent.append(len(self._parent))
        return len(self._parent) - 1

    def find(self, i: int) -> int:
        """Return the id that stands for a tensor's set."""
        while self._parent[i] != i:
            self._parent[i] = self._parent[self._parent[i]]
            i = self._parent[i]
        return i

    def join(self, ids: Iterable[int]) -> None:
        """Make one set of the sets of these tensors."""
        first, *others = (self.find(i) for i in ids)
        for other in others:
            self._parent[max(first, other)] = min(first, other)
            first = min(first, other)


def interpreted(graph: OperatorGraph) -> OperatorGraph:
    """Return an operator list of the same function with only what TensorFlow Lite Micro has, where it can be.

    Kinds that only appear in it: ``reverse`` (``axis``); ``while`` (``condition`` and ``body``: operator
    lists whose inputs are what is carried, ``start``: the first step, ``n_steps``; its outputs are what was
    carried in the end: the counter, the input, the state and, ``all_states``, those of all steps); in these
    lists ``less`` and ``greater`` (``limit``) and ``count`` (``by``) over the counter, ``slice`` (of a tensor
    by the counter) and ``dynamic_update_slice`` (of a tensor, what is put in, the counter).

    Args:
        graph: From `sparsemod.measure.operators.lower`.
    """
    draft = _Draft(graph)
    for position, operator in enumerate(graph.operators):
        if position in draft.absorbed:
            continue
        if operator.kind == _LSTM and operator.attributes["reverse"]:
            draft.reversed_lstm(operator)
        elif operator.kind in RECURRENT_LOOPS and graph.tensors[operator.inputs[0]].shape[0] == 1:
            draft.loop(operator)
        elif operator.kind == "concatenation":
            draft.concatenation(operator)
        elif operator.kind in _PRODUCTS:
            factor, activation = _PRODUCTS[operator.kind]
            weight = Weight(operator.kind, np.array([factor], np.float32), axis=None)
            attributes = {"activation": activation, "constant": "y"}
            draft.emit(replace(operator, kind="mul", weights=(weight,), attributes=attributes))
        else:
            draft.emit(operator)
    return _quantized_joins(draft.finished())


@dataclass(slots=True)
class _Draft:
    graph: OperatorGraph
    tensors: list[TensorSpec] = field(init=False)
    operators: list[Operator] = field(default_factory=list)
    absorbed: set[int] = field(default_factory=set)
    replaced: dict[int, Operator] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.tensors = list(self.graph.tensors)

    def tensor(self, name: str, shape: tuple[int, ...], dtype: str) -> int:
        self.tensors.append(TensorSpec(len(self.tensors), name, shape, dtype))
        return len(self.tensors) - 1

    def emit(self, operator: Operator) -> None:
        self.operators.append(self.replaced.get(operator.outputs[0], operator))

    def only_step(self, tensor: int, step: int) -> int | None:
        """Return the position of the operator that cuts one step out, if nothing else reads the sequence."""
        if tensor in self.graph.outputs:
            return None
        readers = [i for i, op in enumerate(self.graph.operators) if tensor in op.inputs]
        if len(readers) != 1:
            return None
        operator = self.graph.operators[readers[0]]
        a = operator.attributes
        fits = operator.kind == "strided_slice" and (a["axis"], a["begin"], a["end"]) == (1, step, step + 1)
        return readers[0] if fits else None

    def reversed_lstm(self, operator: Operator) -> None:
        source, out = self.tensors[operator.inputs[0]], self.tensors[operator.outputs[0]]
        n_steps = source.shape[1]
        turned = self.tensor(f"{out.name}/input", source.shape, source.dtype)
        attributes = {"axis": 1}
        self.operators.append(
            Operator("reverse", operator.inputs, (turned,), (), attributes, operator.module)
        )
        forward = replace(operator, inputs=(turned,), attributes={**operator.attributes, "reverse": False})
        last = self.only_step(out.id, 0)
        if last is not None:
            self.operators.append(forward)
            cut = self.graph.operators[last]
            ends = {"begin": n_steps - 1, "end": n_steps}
            self.replaced[cut.outputs[0]] = replace(cut, attributes={**cut.attributes, **ends})
            return
        states = self.tensor(f"{out.name}/reversed", out.shape, out.dtype)
        self.operators.append(replace(forward, outputs=(states,)))
        self.operators.append(
            Operator("reverse", (states,), operator.outputs, (), attributes, operator.module)
        )

    def loop(self, operator: Operator) -> None:
        source, out = self.tensors[operator.inputs[0]], self.tensors[operator.outputs[0]]
        n_steps, size, reverse = source.shape[1], out.shape[2], operator.attributes["reverse"]
        last = self.only_step(out.id, 0 if reverse else n_steps - 1)
        condition, body = loop_graphs(operator, out.name, n_steps, out.dtype, last is None)
        outputs = [
            self.tensor(f"{out.name}/step", (2,), "int32"),
            self.tensor(f"{out.name}/input", source.shape, source.dtype),
        ]
        if last is None:
            outputs += [self.tensor(f"{out.name}/state", (1, size), out.dtype), out.id]
        else:
            self.absorbed.add(last)
            outputs.append(self.graph.operators[last].outputs[0])
        attributes: dict[str, Any] = {
            "condition": condition,
            "body": body,
            "start": n_steps - 1 if reverse else 0,
            "n_steps": n_steps,
            "all_states": last is None,
        }
        self.operators.append(
            Operator(
                "while", operator.inputs, tuple(outputs), (), attributes, operator.module, operator.n_macs
            )
        )

    def concatenation(self, operator: Operator) -> None:
        axis = operator.attributes["axis"]
        out = self.tensors[operator.outputs[0]]
        inputs = list(operator.inputs)
        while len(inputs) > _MAX_JOINED:
            part = inputs[:_MAX_JOINED]
            shape = list(out.shape)
            shape[axis] = sum(self.tensors[i].shape[axis] for i in part)
            joined = self.tensor(f"{out.name}/{len(inputs)}", tuple(shape), out.dtype)
            self.emit(replace(operator, inputs=tuple(part), outputs=(joined,)))
            inputs = [joined, *inputs[_MAX_JOINED:]]
        self.operators.append(replace(operator, inputs=tuple(inputs)))

    def finished(self) -> OperatorGraph:
        return replace(self.graph, tensors=tuple(self.tensors), operators=tuple(self.operators)).renumbered()


def _quantized_joins(graph: OperatorGraph) -> OperatorGraph:
    """Bring operands with a prescribed grid to the common one of a join."""
    grids = Grids(len(graph.tensors))
    fixed: dict[int, str] = {}
    tensors, operators = list(graph.tensors), []
    for operator in graph.operators:
        if operator.kind in FIXED_GRIDS:
            fixed[grids.find(operator.outputs[0])] = FIXED_GRIDS[operator.kind]
        elif operator.kind in SAME_GRID:
            _join(grids, fixed, (operator.inputs[0], operator.outputs[0]))
        elif operator.kind == "while":
            _join(grids, fixed, (operator.inputs[0], operator.outputs[1]))
            state = _state_grid(operator.attributes["body"])
            if state is not None:
                fixed[grids.find(operator.outputs[2])] = state
            _join(grids, fixed, operator.outputs[2:])
        elif operator.kind in JOINS and tensors[operator.outputs[0]].dtype == "int8":
            kinds = {fixed.get(grids.find(i)) for i in operator.inputs}
            if len(kinds) > 1 or (operator.weights and kinds != {None}):
                prescribed = [i for i in operator.inputs if grids.find(i) in fixed]
                made = [_quantize(i, operator.module, tensors) for i in dict.fromkeys(prescribed)]
                operators += made
                placed = {op.inputs[0]: grids.add() for op in made}
                operator = replace(operator, inputs=tuple(placed.get(i, i) for i in operator.inputs))
            _join(grids, fixed, (*operator.inputs, *operator.outputs))
        operators.append(operator)
    return replace(graph, tensors=tuple(tensors), operators=tuple(operators)).renumbered()


def _quantize(tensor: int, module: str, tensors: list[TensorSpec]) -> Operator:
    """Add a tensor for the values of another one on a grid of its own; return what writes it."""
    source, taken = tensors[tensor], {spec.name for spec in tensors}
    names = (f"{source.name}:quantize{mark}" for mark in ("", *(f"#{i}" for i in range(2, len(taken) + 2))))
    name = next(name for name in names if name not in taken)
    tensors.append(TensorSpec(len(tensors), name, source.shape, "int8"))
    return Operator("quantize", (tensor,), (len(tensors) - 1,), module=module)


def _state_grid(body: OperatorGraph) -> str | None:
    """Return which prescribed grid the state of a loop has, if any."""
    writer = next(op for op in body.operators if op.outputs == (body.outputs[2],))
    return FIXED_GRIDS.get(writer.kind)


def _join(grids: Grids, fixed: dict[int, str], ids: tuple[int, ...]) -> None:
    kinds = [fixed[grids.find(i)] for i in ids if grids.find(i) in fixed]
    grids.join(ids)
    if kinds:
        fixed[grids.find(ids[0])] = kinds[0]
