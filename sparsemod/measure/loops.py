"""Recurrent layers that TensorFlow Lite Micro has no operator for, as a loop over the steps.

A ``while`` carries a counter (step, 0), the whole input, the state, and the states of all steps where
anything reads them. Its body is an operator list of its own: it cuts a step out of the input, computes the
next state and counts. Unrolled, the same layer would take a kilobyte of flash and one of RAM for each step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from sparsemod.measure.graph import Operator, OperatorGraph, TensorSpec, Weight

__all__ = ["RECURRENT_LOOPS", "loop_graphs"]

RECURRENT_LOOPS = ("gru", "unidirectional_sequence_rnn")


@dataclass(slots=True)
class _Body:
    """An operator list while it grows."""

    prefix: str
    dtype: str
    module: str
    tensors: list[TensorSpec] = field(default_factory=list)
    operators: list[Operator] = field(default_factory=list)

    def tensor(self, name: str, shape: tuple[int, ...], dtype: str | None = None) -> int:
        self.tensors.append(
            TensorSpec(len(self.tensors), f"{self.prefix}/{name}", shape, dtype or self.dtype)
        )
        return len(self.tensors) - 1

    def add(
        self,
        kind: str,
        inputs: tuple[int, ...],
        name: str,
        shape: tuple[int, ...],
        weights: tuple[Weight, ...] = (),
        dtype: str | None = None,
        **attributes: Any,
    ) -> int:
        out = self.tensor(name, shape, dtype)
        n_macs = sum(weight.values.size for weight in weights)
        self.operators.append(Operator(kind, inputs, (out,), weights, attributes, self.module, n_macs))
        return out

    def dense(self, source: int, weight: Weight, name: str) -> int:
        shape = (1, int(weight.values.shape[0]))
        return self.add("fully_connected", (source,), name, shape, (weight,), activation="none")

    def binary(self, kind: str, x: int, y: int, name: str, activation: str = "none") -> int:
        shape = self.tensors[x].shape
        return self.add(kind, (x, y), name, shape, activation=activation, constant=None)

    def graph(self, inputs: Sequence[int], outputs: Sequence[int]) -> OperatorGraph:
        return OperatorGraph(
            tuple(self.tensors), tuple(self.operators), tuple(inputs), tuple(outputs), (), ()
        )


def loop_graphs(
    operator: Operator, prefix: str, n_steps: int, dtype: str, all_states: bool
) -> tuple[OperatorGraph, OperatorGraph]:
    """Return condition and body of the loop that computes a recurrent operator over (1, steps, features).

    Args:
        operator: A ``gru`` or ``unidirectional_sequence_rnn``.
        prefix: What the names of the loop's tensors begin with.
        n_steps: Length of the sequence.
        dtype: Of the activations.
        all_states: Whether the states of all steps are kept, not just the last one.
    """
    size = operator.attributes["hidden_size"]
    n_features = int(operator.weights[0].values.shape[1])
    reverse = operator.attributes["reverse"]
    shapes = [(n_steps, n_features), (1, size)] + ([(n_steps, size)] if all_states else [])
    names = ["input", "state", "states"][: len(shapes)]

    def begin(part: str) -> tuple[_Body, list[int]]:
        body = _Body(f"{prefix}/{part}", dtype, operator.module)
        carried = [body.tensor("step", (2,), "int32")]
        carried += [body.tensor(name, shape) for name, shape in zip(names, shapes, strict=True)]
        return body, carried

    condition, carried = begin("condition")
    test, limit = ("greater", -1) if reverse else ("less", n_steps)
    goes_on = condition.add(test, (carried[0],), "goes_on", (2,), dtype="bool", limit=limit)
    body, variables = begin("body")
    x = body.add("slice", (variables[1], variables[0]), "x", (1, n_features))
    step = _gru_step if operator.kind == "gru" else _rnn_step
    state = step(body, operator, x, variables[2])
    results = [variables[1], state]
    if all_states:
        inputs = (variables[3], state, variables[0])
        results.append(body.add("dynamic_update_slice", inputs, "all", shapes[2]))
    counted = body.add("count", (variables[0],), "next", (2,), dtype="int32", by=-1 if reverse else 1)
    return condition.graph(carried, [goes_on]), body.graph(variables, [counted, *results])


def _gru_step(body: _Body, operator: Operator, x: int, state: int) -> int:
    """Add ``new + update * (state - new)``, ``new = tanh(W x + reset * (U state))``."""
    weights = operator.weights
    shape = body.tensors[state].shape
    gates = []
    for i, gate in enumerate(("reset", "update")):
        own = body.dense(x, weights[i], f"{gate}_x"), body.dense(state, weights[3 + i], f"{gate}_h")
        total = body.binary("add", *own, f"{gate}_sum")
        gates.append(body.add("logistic", (total,), gate, shape))
    reset = body.binary("mul", gates[0], body.dense(state, weights[5], "new_h"), "new_reset")
    total = body.binary("add", body.dense(x, weights[2], "new_x"), reset, "new_sum")
    new = body.add("tanh", (total,), "new", shape)
    kept = body.binary("mul", gates[1], body.binary("sub", state, new, "difference"), "kept")
    return body.binary("add", new, kept, "next_state")


def _rnn_step(body: _Body, operator: Operator, x: int, state: int) -> int:
    """Add ``tanh(W x + U state)``, or its rectified sum."""
    own = body.dense(x, operator.weights[0], "state_x"), body.dense(state, operator.weights[1], "state_h")
    if operator.attributes["activation"] == "relu":
        return body.binary("add", *own, "next_state", "relu")
    total = body.binary("add", *own, "state_sum")
    return body.add("tanh", (total,), "next_state", body.tensors[state].shape)
