"""Operators that are quantized at run time: int8 weights, activations on grids made from what comes in.

A dense layer's input has a grid for each row, a convolution's for each sample, so that no result depends on
the other samples of the batch; the output is float.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sparsemod.compress.calls import Call
from sparsemod.compress.fakequant import QuantizedWeight, quantize_rows, quantize_weight
from sparsemod.compress.recurrent import RECURRENT, layers_of, make_cells, run_layers
from sparsemod.compress.recurrent_int8 import AtRunTime
from sparsemod.compress.roles import Weighted, weighted
from sparsemod.compress.trace import Ref
from sparsemod.compress.values import is_value, map_tensors, tag, value_of

__all__ = ["RunTimeWeights", "prepare", "run_dynamic"]


class RunTimeWeights:
    """The int8 weights of the modules that are quantized at run time, each made once.

    A weight that the network computes anew for each pass (by a parametrization) is quantized each time.

    Args:
        note: Told of each weight when it is made: parameter name and int8 form.
    """

    def __init__(self, note: Callable[[str, QuantizedWeight], None]) -> None:
        self._note = note
        self._held: dict[int, tuple[Tensor, QuantizedWeight]] = {}

    def get(self, name: str, weight: Tensor, channels: Tensor, n_channels: int) -> QuantizedWeight:
        """Return the int8 form of a weight.

        Args:
            name: Name of the parameter in its module.
            weight: Real weight.
            channels: As in `quantize_weight`.
            n_channels: Number of output channels.
        """
        if id(weight) in self._held:
            return self._held[id(weight)][1]
        made = quantize_weight(weight, None, 1.0, channels, n_channels)
        if isinstance(weight, nn.Parameter):
            self._held[id(weight)] = (weight, made)
            self._note(name, made)
        return made

    def rows(self, name: str, weight: Tensor) -> QuantizedWeight:
        """Return the int8 form of a matrix with one scale for each row."""
        return self.get(name, weight, _rows(weight), len(weight))


def _rows(weight: Tensor) -> Tensor:
    return torch.arange(len(weight), device=weight.device).reshape(-1, 1)


def prepare(weights: RunTimeWeights, op: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    """Quantize the weights of a recorded call, so that they are those of the moment."""
    if op in RECURRENT:
        make_cells(op, args, AtRunTime(weights.rows))
    elif op == "embedding" and isinstance(args[1], Tensor):
        _table(weights, args[1])
    elif (form := weighted(op, args, kwargs, lambda x: isinstance(x, Ref))) is not None:
        weights.get("weight", form.weight, form.channels, form.n_channels)


def run_dynamic(weights: RunTimeWeights, call: Call) -> Any:
    """Carry out one call with int8 weights and its input quantized by what it holds; tag the result."""
    return map_tensors(tag, _compute(weights, call))


def _compute(weights: RunTimeWeights, call: Call) -> Any:
    if call.op in RECURRENT:
        arithmetic = AtRunTime(weights.rows)
        return run_layers(
            layers_of(call.op, call.args), make_cells(call.op, call.args, arithmetic), arithmetic
        )
    if call.op == "embedding" and isinstance(table := call.args[1], Tensor) and value_of(table) is None:
        held = _table(weights, table)
        return F.embedding(call.args[0], held.values * held.scales)
    form = weighted(call.op, call.args, call.kwargs, is_value)
    return call.run() if form is None else _multiply(weights, form)


def _table(weights: RunTimeWeights, table: Tensor) -> QuantizedWeight:
    return weights.get("weight", table, torch.zeros_like(table, dtype=torch.long), 1)


def _multiply(weights: RunTimeWeights, form: Weighted) -> Tensor:
    held = weights.get("weight", form.weight, form.channels, form.n_channels)
    x: Tensor = form.input
    dims = (-1,) if form.trailing == 0 else tuple(range(x.dim() - form.trailing - 1, x.dim()))
    real = held.values * form.per_element(held.scales)
    return form.accumulate(quantize_rows(x, dims), real, form.bias)
