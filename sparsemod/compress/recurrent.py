"""Recurrent layers unrolled in time, in any arithmetic.

The input projections of all steps are one product. Padded batches are treated as packed ones whose steps all
have the same batch size.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from sparsemod.compress.calls import Call
from sparsemod.compress.fakequant import QParams, activation_qparams, power_of_two_qparams
from sparsemod.compress.recurrent_cells import CELLS, Arithmetic, Cell, State, Step
from sparsemod.errors import UnsupportedOperatorError

__all__ = [
    "RECURRENT",
    "Arithmetic",
    "Layers",
    "Observation",
    "layers_of",
    "make_cells",
    "observe",
    "run_layers",
    "with_weights",
]

RECURRENT = frozenset({
    "lstm", "gru", "rnn_tanh", "rnn_relu", "lstm_cell", "gru_cell", "rnn_tanh_cell", "rnn_relu_cell",
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class Layers:
    """The arguments of a recurrent call in one form.

    Attributes:
        kind: ``lstm``, ``gru``, ``rnn_tanh`` or ``rnn_relu``.
        x: (total steps, features): the steps one after another, longest sequences first.
        batch_sizes: Sequences that are still running at each step.
        states: Initial states, each (layers x directions, batch, hidden).
        n_directions: 1, or 2 when bidirectional.
        restore: Brings the stacked outputs into the shape of the call's result.
        is_cell: The call is a single step and returns its states without a layer dimension.
    """

    kind: str
    x: Tensor
    batch_sizes: list[int]
    states: State
    n_directions: int
    restore: Callable[[Tensor], Tensor]
    is_cell: bool


@dataclass(slots=True)
class Observation:
    """Ranges of the values inside a recurrent call, by name.

    Attributes:
        kind: As in `Layers`.
        low: Smallest element of each.
        high: Largest element of each.
    """

    kind: str
    low: dict[str, float] = field(default_factory=dict)
    high: dict[str, float] = field(default_factory=dict)

    def widen(self, other: Observation) -> None:
        """Take in the ranges of another batch."""
        for name in other.low:
            self.low[name] = float(np.minimum(self.low.get(name, math.inf), other.low[name]))
            self.high[name] = float(np.maximum(self.high.get(name, -math.inf), other.high[name]))

    def grid(self, name: str) -> QParams:
        """Return the int8 grid of a value; 16 bits and a power of two for the LSTM's cell state."""
        if name == "c":
            return power_of_two_qparams(max(-self.low[name], self.high[name]))
        return activation_qparams(self.low[name], self.high[name])

    def output_grid(self, is_cell: bool, output: int) -> QParams:
        """Return the grid of an output of the call."""
        return self.grid("c" if self.kind == "lstm" and output == (1 if is_cell else 2) else "h")

    @property
    def finite(self) -> bool:
        """Whether all ranges are."""
        return all(math.isfinite(bound) for bound in (*self.low.values(), *self.high.values()))


def make_cells(op: str, args: tuple[Any, ...], arithmetic: Arithmetic) -> list[Cell]:
    """Build the cell of each layer and direction of a recurrent call.

    Args:
        op: A name in `RECURRENT`.
        args: Positional arguments, as `nn.LSTM` and its like call it; only the weights are looked at.
        arithmetic: Makes the dense layers.

    Raises:
        UnsupportedOperatorError: The layer has projections (`proj_size`).
    """
    if op.endswith("_cell"):
        weights = tuple(args[2:6]) + (None,) * (6 - len(args))
        return [CELLS[op.removesuffix("_cell")]("l0", arithmetic, *weights)]
    params, has_biases, n_layers, _, _, bidirectional = args[3:9] if _is_packed(args) else args[2:8]
    n_directions = 2 if bidirectional else 1
    count = len(params) // (n_layers * n_directions)
    if count != (4 if has_biases else 2):
        raise UnsupportedOperatorError("quantization: nn.LSTM with proj_size cannot be quantized")
    cells = []
    for index in range(n_layers * n_directions):
        weights = params[index * count : (index + 1) * count]
        layer, direction = divmod(index, n_directions)
        name = f"l{layer}" + ("_reverse" if direction else "")
        cells.append(CELLS[op](name, arithmetic, *weights, *(() if has_biases else (None, None))))
    return cells


def with_weights(op: str, args: tuple[Any, ...], change: Callable[[Tensor], Tensor]) -> tuple[Any, ...]:
    """Return the arguments of a recurrent call with its weights and biases changed.

    Args:
        op: A name in `RECURRENT`.
        args: Positional arguments, as `nn.LSTM` and its like call it.
        change: Applied to every weight and bias.
    """
    if op.endswith("_cell"):
        return (*args[:2], *(None if p is None else change(p) for p in args[2:]))
    at = 3 if _is_packed(args) else 2
    return (*args[:at], [change(p) for p in args[at]], *args[at + 1 :])


def layers_of(op: str, args: tuple[Any, ...]) -> Layers:
    """Bring the arguments of a recurrent call into one form.

    Args:
        op: A name in `RECURRENT`.
        args: Positional arguments, as `nn.LSTM` and its like call it.
    """
    if op.endswith("_cell"):
        states = (args[1],) if isinstance(args[1], Tensor) else tuple(args[1])
        kind = op.removesuffix("_cell")
        return Layers(kind, args[0], [len(args[0])], tuple(s[None] for s in states), 1, lambda y: y, True)
    packed = _is_packed(args)
    hidden = args[2] if packed else args[1]
    states = (hidden,) if isinstance(hidden, Tensor) else tuple(hidden)
    n_directions = 2 if (args[8] if packed else args[7]) else 1
    if packed:
        return Layers(op, args[0], args[1].tolist(), states, n_directions, lambda y: y, False)
    batch_first = bool(args[8])
    steps = args[0].transpose(0, 1) if batch_first else args[0]
    length, batch = steps.shape[:2]

    def restore(y: Tensor) -> Tensor:
        y = y.reshape(length, batch, -1)
        return y.transpose(0, 1) if batch_first else y

    return Layers(
        op, steps.reshape(length * batch, -1), [batch] * length, states, n_directions, restore, False
    )


def run_layers(layers: Layers, cells: list[Cell], arithmetic: Arithmetic) -> Any:
    """Return what the torch function returns, computed step by step in the given arithmetic."""
    x, finals = layers.x, []
    outputs: list[Tensor] = []
    for index, (project, step) in enumerate(cells):
        direction = index % layers.n_directions
        state = tuple(
            arithmetic.at(part, s[index]) for part, s in zip(("h", "c"), layers.states, strict=False)
        )
        output, final = _scan(project(x), layers.batch_sizes, state, step, bool(direction))
        finals.append(final)
        outputs = [output] if direction == 0 else [*outputs, output]
        if direction == layers.n_directions - 1:
            x = torch.cat(outputs, -1) if direction else output
    if layers.is_cell:
        return finals[0] if layers.kind == "lstm" else finals[0][0]
    return layers.restore(x), *(torch.stack(parts) for parts in zip(*finals, strict=True))


def observe(call: Call) -> tuple[Any, Observation]:
    """Run a recurrent call in float and note the ranges of all values that a quantized run rounds."""
    layers = layers_of(call.op, call.args)
    watch = _Watch()
    result = run_layers(layers, make_cells(call.op, call.args, watch), watch)
    low = {name: float(torch.stack(bounds).amin()) for name, bounds in watch.low.items()}
    high = {name: float(torch.stack(bounds).amax()) for name, bounds in watch.high.items()}
    return result, Observation(layers.kind, low, high)


class _Watch:
    """Float arithmetic that notes ranges."""

    def __init__(self) -> None:
        self.low: dict[str, list[Tensor]] = {}
        self.high: dict[str, list[Tensor]] = {}

    def dense(self, name: str, weight: Tensor, bias: Tensor | None) -> Callable[[Tensor], Tensor]:
        return lambda x: self.at(name, F.linear(x, weight, bias))

    def at(self, name: str, x: Tensor) -> Tensor:
        if name.rpartition(".")[2].startswith(("lstm_", "sigmoid", "tanh", "c_part")):
            return x  # their grids are prescribed, or the cell state's
        name = "c" if name == "c_sum" else name
        low, high = torch.aminmax(x)
        self.low.setdefault(name, []).append(low)
        self.high.setdefault(name, []).append(high)
        return x


def _is_packed(args: tuple[Any, ...]) -> bool:
    return isinstance(args[1], Tensor) and not args[1].is_floating_point()


def _scan(x: Tensor, sizes: list[int], state: State, step: Step, reverse: bool) -> tuple[Tensor, State]:
    """Run the steps in time; sequences that have ended, or not begun, keep their state."""
    parts = torch.split(x, sizes)
    outputs: list[Tensor] = [x] * len(parts)
    order = range(len(parts) - 1, -1, -1) if reverse else range(len(parts))
    n_sequences = len(state[0])
    for t in order:
        running = sizes[t]
        if running == n_sequences:
            state = step(parts[t], state)
            outputs[t] = state[0]
            continue
        new = step(parts[t], tuple(s[:running] for s in state))
        outputs[t] = new[0]
        state = tuple(torch.cat([n, s[running:]]) for n, s in zip(new, state, strict=True))
    return torch.cat(outputs), state
