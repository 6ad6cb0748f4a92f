"""The interpreter's int8 LSTM: gates and cell state in 16 bits."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from sparsemod.compress.fakequant import QParams
from sparsemod.compress.fixed_point import rescale
from sparsemod.compress.integer_kernels import accumulate
from sparsemod.compress.quantized_graph import QuantizedOperator
from sparsemod.compress.tables import logistic_16, tanh_16

__all__ = ["lstm"]


def lstm(held: QuantizedOperator, x: Tensor, source: QParams, out: QParams) -> Tensor:
    """Return the states of all steps as stored int8.

    Args:
        held: A ``unidirectional_sequence_lstm``.
        x: (samples, sequences, steps, features) stored int8.
        source: Grid of the input.
        out: Grid of the state.
    """
    if held.cell is None:
        raise RuntimeError("an LSTM without a grid for its cell state")
    samples = len(x)
    x = x.reshape(-1, *x.shape[2:]).to(torch.int32) - source.zero_point
    size = held.operator.attributes["hidden_size"]
    shift = 12 + round(math.log2(held.cell.scale))
    state = torch.zeros(len(x), size, dtype=torch.int32)
    cell = torch.zeros(len(x), size, dtype=torch.int64)
    from_input = [
        _int16(rescale(accumulate(x.reshape(-1, x.shape[2]), weight), factor)).reshape(*x.shape[:2], size)
        for weight, factor in zip(held.weights[:4], held.rescalings[:4], strict=True)
    ]
    forget, enter, emit = held.rescalings[8:]
    states = []
    for t in range(x.shape[1]):
        gates = [
            _int16(own[:, t] + _int16(rescale(accumulate(state, weight), factor)))
            for own, weight, factor in zip(from_input, held.weights[4:], held.rescalings[4:8], strict=True)
        ]
        i, f, o = (logistic_16(gates[k]) for k in (0, 1, 3))
        kept = _int16(rescale(f * cell, forget))
        cell = _int16(kept + _int16(rescale(i * tanh_16(gates[2]), enter)))
        state = rescale(tanh_16(cell, shift) * o, emit) + out.zero_point
        state = state.clamp_(-128, 127)
        states.append(state.to(torch.int8))
        state = (state - out.zero_point).to(torch.int32)
    return torch.stack(states, 1).reshape(samples, -1, x.shape[1], size)


def _int16(x: Tensor) -> Tensor:
    return x.clamp(-(2**15), 2**15 - 1)
