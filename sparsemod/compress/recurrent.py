"""Recurrent layers."""
from __future__ import annotations

from typing import Any

from sparsemod.compress.calls import Call
from sparsemod.compress.fakequant import QParams

RECURRENT = frozenset("lstm gru rnn_tanh rnn_relu lstm_cell gru_cell rnn_tanh_cell rnn_relu_cell".split())


class Observation:
    def widen(self, other: Observation) -> None: ...
    def output_grid(self, output: int) -> QParams: raise NotImplementedError


def observe(call: Call) -> tuple[Any, Observation]:
    raise NotImplementedError
