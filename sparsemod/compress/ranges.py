"""Grids of an operator list's tensors, from the values that samples take in it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from sparsemod.compress.fakequant import QParams, activation_qparams, power_of_two_qparams
from sparsemod.errors import CandidateError, ConfigError
from sparsemod.measure.graph import Operator, OperatorGraph
from sparsemod.measure.graph_interpreter import run
from sparsemod.measure.interpreted import FIXED_GRIDS, JOINS, SAME_GRID, Grids

__all__ = ["cell_grid", "grids", "observe"]

RECURRENT = {"unidirectional_sequence_lstm", "while"}
Range = tuple[float, float]
_PRESCRIBED = {
    "unit": QParams(1 / 256, -128),
    "symmetric": QParams(1 / 128, 0),
    "log": QParams(16 / 256, 127),
}


def observe(graph: OperatorGraph, calibration: Iterable[Any]) -> dict[str, Range]:
    """Return smallest and largest value of each tensor of a list by its name, loops' tensors included.

    Args:
        graph: As the interpreter executes it.
        calibration: Batches of the network's inputs.

    Raises:
        ConfigError: There is no batch.
        CandidateError: A value is not finite.
    """
    seen: dict[str, Range] = {}
    padded = {
        graph.tensors[op.outputs[0]].name
        for op in graph.operators
        if op.kind == "pad" and not math.isfinite(op.attributes["value"])
    }

    def note(name: str, x: Tensor) -> None:
        if name in padded:
            return
        low, high = (float(bound) for bound in torch.aminmax(x))
        if not (math.isfinite(low) and math.isfinite(high)):
            raise CandidateError(f"quantization: tensor {name} holds values that are not finite")
        known = seen.get(name, (math.inf, -math.inf))
        seen[name] = min(low, known[0]), max(high, known[1])

    for batch in calibration:
        run(graph, batch, note)
    if not seen:
        raise ConfigError("calibration: expected at least one batch of inputs, got none")
    return seen


def grids(graph: OperatorGraph, ranges: Mapping[str, Range]) -> dict[str, QParams]:
    """Return the grid of each float tensor of a list by its name, loops' tensors included.

    Tensors between which stored integers are only moved share one that covers all of them, and so do the
    states of all layers and directions of one module; those of a softmax, a logistic function or a tanh are
    prescribed.

    Args:
        graph: As the interpreter executes it.
        ranges: From `observe`.
    """
    lists = list(_lists(graph))
    layers: dict[str, list[int]] = {}
    names = [tensor.name for part in lists for tensor in part.tensors]
    number = {name: i for i, name in enumerate(names)}
    sets, prescribed = Grids(len(names)), {}
    gates: list[tuple[int, int]] = []
    for part in lists:
        ids = [number[tensor.name] for tensor in part.tensors]
        for operator in part.operators:
            inputs, outputs = [ids[i] for i in operator.inputs], [ids[i] for i in operator.outputs]
            if operator.kind in RECURRENT:
                layers.setdefault(operator.module, []).append(outputs[-1])
            if operator.kind in SAME_GRID:
                sets.join([*outputs, inputs[0]])
            if operator.kind == "dynamic_update_slice":
                sets.join([*outputs, inputs[1]])
            elif operator.kind in JOINS:
                sets.join([*outputs, *inputs])
            elif operator.kind == "while":
                _join_carried(operator.attributes, inputs[0], outputs, number, sets)
            elif operator.kind == "hard_swish":
                gates.append((inputs[0], outputs[0]))
            elif operator.kind in FIXED_GRIDS:
                prescribed[outputs[0]] = _PRESCRIBED[FIXED_GRIDS[operator.kind]]
    for states in layers.values():
        sets.join(states)
    fixed = {sets.find(i): grid for i, grid in prescribed.items()}
    joined: dict[int, Range] = {}
    for name, (low, high) in ranges.items():
        if name in number:
            i = sets.find(number[name])
            known = joined.get(i, (math.inf, -math.inf))
            joined[i] = min(low, known[0]), max(high, known[1])
    for source, out in gates:
        joined[sets.find(out)] = _coarse_enough(joined[sets.find(source)], joined[sets.find(out)])
    return {
        name: fixed.get(sets.find(i)) or activation_qparams(*joined[sets.find(i)])
        for name, i in number.items()
        if sets.find(i) in joined
    }


def _coarse_enough(source: Range, out: Range) -> Range:
    """Widen the range of a hard swish, whose kernel has 7 bits below the steps of its input and no more."""
    least = 255 / 127 * activation_qparams(*source).scale
    low, high = min(out[0], 0.0), max(out[1], 0.0)
    return low, max(high, low + least)


def cell_grid(graph: OperatorGraph, operator: Operator, ranges: Mapping[str, Range]) -> QParams:
    """Return the 16-bit grid of the cell state of an LSTM, the same for all layers of a module."""
    layers = [op for op in graph.operators if (op.kind, op.module) == (operator.kind, operator.module)]
    bounds = [ranges[f"{graph.tensors[op.outputs[0]].name}:cell"] for op in layers]
    return power_of_two_qparams(max(max(-low, high) for low, high in bounds))


def _lists(graph: OperatorGraph) -> Iterator[OperatorGraph]:
    yield graph
    for operator in graph.operators:
        if operator.kind == "while":
            yield from _lists(operator.attributes["condition"])
            yield from _lists(operator.attributes["body"])


def _join_carried(
    attributes: Mapping[str, Any], source: int, outputs: list[int], number: Mapping[str, int], sets: Grids
) -> None:
    """Let what a loop carries have one grid from the start to the end."""
    condition, body = attributes["condition"], attributes["body"]
    for k in range(1, len(outputs)):
        within = [(condition, condition.inputs[k]), (body, body.inputs[k]), (body, body.outputs[k])]
        sets.join([outputs[k], *(number[part.tensors[i].name] for part, i in within)])
    sets.join([source, outputs[1]])
