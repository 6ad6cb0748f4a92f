"""The two quantized arithmetics of recurrent layers.

Static LSTM as in TensorFlow Lite's UNIDIRECTIONAL_SEQUENCE_LSTM: int8 input, hidden state and weights (one
scale for each gate's matrix), gates in 16 bits with 12 behind the point before and 15 behind the sigmoid or
tanh, a cell state in 16 bits whose scale is a power of two. Static GRU and RNN are composed of int8 dense
layers, additions, products, sigmoids and tanhs, each with its own grid. All layers and directions of one call
share the hidden grid.

At run time (dynamic): int8 weights with a scale for each output row; input and hidden state are quantized row
by row, so that no sample's result depends on its batch; gates and states stay in float.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from sparsemod.compress.fakequant import (
    QParams,
    QuantizedWeight,
    centred,
    fake_quantize,
    quantize_rows,
    quantize_weight,
    requantize,
    rescale_factors,
)
from sparsemod.compress.recurrent import Observation
from sparsemod.compress.roles import FIXED

__all__ = ["AtRunTime", "Static"]

_PRESCRIBED = {
    "lstm_sum": QParams(2.0**-12, 0, 16),
    "lstm_gates": QParams(2.0**-15, 0, 16),
    "sigmoid": FIXED["sigmoid"],
    "tanh": FIXED["tanh"],
}
# Sums of two values on the same grid: only saturation remains.
_SUMS = ("lstm_sum", "c_sum")


class Static:
    """Arithmetic with grids from calibration.

    Args:
        observation: Ranges seen in calibration.
        input_grid: Grid of the call's input.

    Attributes:
        weights: The quantized weights by parameter name; filled while the cells are built.
    """

    def __init__(self, observation: Observation, input_grid: QParams) -> None:
        self.weights: dict[str, QuantizedWeight] = {}
        self._observation = observation
        self._input_grid = input_grid
        self._grids: dict[str, QParams] = {}

    def dense(self, name: str, weight: Tensor, bias: Tensor | None) -> Callable[[Tensor], Tensor]:
        """Return a dense layer that rounds its result to int8, or to the 16 bits of an LSTM's gates."""
        layer, _, part = name.partition(".")
        first = part.endswith("x") and layer.removesuffix("_reverse") == "l0"
        source = self._input_grid if first else self._grid("h")
        is_lstm = part.startswith("lstm")
        rows = torch.arange(len(weight), device=weight.device).reshape(-1, 1)
        shared = len(weight) // 4 if is_lstm else 1
        held = quantize_weight(weight, bias, source.scale, rows, len(weight), shared)
        self.weights[f"weight_{'ih' if part.endswith('x') else 'hh'}_{layer}"] = held
        grid = _PRESCRIBED["lstm_sum"] if is_lstm else self._grid(name)
        factors = rescale_factors(held.scales.double() * (source.scale / grid.scale))
        values = held.values.to(weight.dtype)
        offset = None if held.bias is None else held.bias.to(weight.dtype)

        def run(x: Tensor) -> Tensor:
            accumulator = F.linear(centred(x, source), values, offset)
            return requantize(accumulator, factors, grid.bounds(), grid.scale)

        return run

    def at(self, name: str, x: Tensor) -> Tensor:
        """Round to the value's grid."""
        grid = self._grid(name)
        return x.clamp(*grid.real_range) if name in _SUMS else fake_quantize(x, grid)

    def _grid(self, name: str) -> QParams:
        if name not in self._grids:
            observed = "c" if name in ("c_part", "c_sum") else name
            self._grids[name] = _PRESCRIBED.get(name) or self._observation.grid(observed)
        return self._grids[name]


class AtRunTime:
    """Arithmetic with int8 weights and grids made for each row when it comes.

    Args:
        quantized: Returns the int8 form of a weight; it may keep what it has made.
    """

    def __init__(self, quantized: Callable[[str, Tensor], QuantizedWeight]) -> None:
        self._quantized = quantized

    def dense(self, name: str, weight: Tensor, bias: Tensor | None) -> Callable[[Tensor], Tensor]:
        """Return a dense layer that quantizes each row of its input."""
        layer, _, part = name.partition(".")
        held = self._quantized(f"weight_{'ih' if part.endswith('x') else 'hh'}_{layer}", weight)
        real = held.values * held.scales[:, None]
        return lambda x: F.linear(quantize_rows(x, (-1,)), real, bias)

    def at(self, name: str, x: Tensor) -> Tensor:
        """Leave the value in float."""
        return x
