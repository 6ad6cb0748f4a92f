"""The cells of LSTM, GRU and plain RNN, with their arithmetic as an argument.

A cell asks its arithmetic for dense layers by name and passes every intermediate value by it, so that one
description serves the float run that observes ranges and the quantized ones.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Protocol

import torch
from torch import Tensor

__all__ = ["CELLS", "Arithmetic", "Cell", "State", "Step"]

State = tuple[Tensor, ...]
Step = Callable[[Tensor, State], State]
Cell = tuple[Callable[[Tensor], Tensor], Step]


class Arithmetic(Protocol):
    """How numbers are treated inside a recurrent layer."""

    def dense(self, name: str, weight: Tensor, bias: Tensor | None) -> Callable[[Tensor], Tensor]:
        """Return the dense layer called `name`."""

    def at(self, name: str, x: Tensor) -> Tensor:
        """Return the intermediate value `name` as this arithmetic can hold it."""


def _lstm(
    name: str, arithmetic: Arithmetic, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None, b_hh: Tensor | None
) -> Cell:
    at = arithmetic.at
    bias = None if b_ih is None or b_hh is None else b_ih + b_hh
    from_input = arithmetic.dense(f"{name}.lstm_x", w_ih, bias)
    from_hidden = arithmetic.dense(f"{name}.lstm_h", w_hh, None)
    width = w_hh.shape[1]
    factors = torch.ones(4 * width, device=w_hh.device)
    factors[2 * width : 3 * width] = 2

    def step(x: Tensor, state: State) -> State:
        h, c = state
        gates = torch.sigmoid(at("lstm_sum", x + from_hidden(h)) * factors)
        gates[:, 2 * width : 3 * width].mul_(2).sub_(1)  # tanh(x) = 2 sigmoid(2 x) - 1
        enter, keep, new, out = at("lstm_gates", gates).chunk(4, 1)
        c = at("c_sum", at("c_part", keep * c) + at("c_part", enter * new))
        return at("h", out * at("lstm_gates", _tanh(c))), c

    return from_input, step


def _gru(
    name: str, arithmetic: Arithmetic, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None, b_hh: Tensor | None
) -> Cell:
    at = arithmetic.at
    from_input = arithmetic.dense(f"{name}.x", w_ih, b_ih)
    from_hidden = arithmetic.dense(f"{name}.h", w_hh, b_hh)
    width = w_hh.shape[1]

    def step(x: Tensor, state: State) -> State:
        (h,) = state
        hidden = from_hidden(h)
        sums = at(f"{name}.gates", x[:, : 2 * width] + hidden[:, : 2 * width])
        reset, keep = at("sigmoid", torch.sigmoid(sums)).chunk(2, 1)
        product = at(f"{name}.reset", reset * hidden[:, 2 * width :])
        new = at("tanh", _tanh(at(f"{name}.new", x[:, 2 * width :] + product)))
        change = at(f"{name}.kept", keep * at(f"{name}.difference", h - new))
        return (at("h", new + change),)

    return from_input, step


def _rnn(
    rectified: bool,
    name: str,
    arithmetic: Arithmetic,
    w_ih: Tensor,
    w_hh: Tensor,
    b_ih: Tensor | None,
    b_hh: Tensor | None,
) -> Cell:
    bias = None if b_ih is None or b_hh is None else b_ih + b_hh
    from_input = arithmetic.dense(f"{name}.x", w_ih, bias)
    from_hidden = arithmetic.dense(f"{name}.h", w_hh, None)

    def step(x: Tensor, state: State) -> State:
        total = x + from_hidden(state[0])
        if not rectified:
            total = arithmetic.at(f"{name}.sum", total)
        return (arithmetic.at("h", torch.relu(total) if rectified else _tanh(total)),)

    return from_input, step


CELLS: dict[str, Callable[..., Cell]] = {
    "lstm": _lstm,
    "gru": _gru,
    "rnn_tanh": partial(_rnn, False),
    "rnn_relu": partial(_rnn, True),
}


def _tanh(x: Tensor) -> Tensor:
    """Compute tanh by way of the sigmoid, which PyTorch does several times faster on a CPU."""
    return torch.sigmoid(x * 2).mul_(2).sub_(1)
