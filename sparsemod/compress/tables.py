"""Functions of one int8 value as tables of 256 values, and the logistic function and tanh of 16 bits.

The tables hold what the interpreter's kernels compute: the logistic function and tanh in fixed point, a
rectifier or a change of grid by one rescaling, hard swish in 16 bits, ELU in float.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sparsemod.compress.fakequant import QParams
from sparsemod.compress.fixed_point import logistic, rescale, rescaling, shift_right, tanh

__all__ = ["SIGMOID_NODES", "TABLED", "logistic_16", "quantize_value", "table", "tanh_16"]

Table = NDArray[np.int8]
_STORED = torch.arange(-128, 128)
_INTEGER_BITS = 4


def table(kind: str, attributes: Mapping[str, Any], source: QParams, out: QParams) -> Table:
    """Return what an operator makes of the stored values -128 to 127.

    Args:
        kind: One of `TABLED`.
        attributes: The operator's.
        source: Grid of its input.
        out: Grid of its output.
    """
    values = TABLED[kind](attributes, source, out)
    return values.clamp(-128, 127).to(torch.int8).numpy()


def quantize_value(value: float, grid: QParams) -> int:
    """Return the stored integer nearest to a real value, not saturated, by float32 as in the kernels."""
    steps = float(np.float32(value) / np.float32(grid.scale))
    return grid.zero_point + int(math.copysign(math.floor(abs(steps) + 0.5), steps))


def _saturating(function: Callable[[Tensor, int], Tensor], bits: int, lowest: int, source: QParams) -> Tensor:
    """Apply a function of Q4.27 numbers that saturates outside of them."""
    mantissa, shift = math.frexp(source.scale * 2.0 ** (31 - _INTEGER_BITS))
    radius = math.floor((2**_INTEGER_BITS - 1) * 2.0 ** (31 - _INTEGER_BITS) / 2.0**shift)
    x = _STORED - source.zero_point
    fixed = rescale(x.clamp(-radius, radius)[:, None], rescaling([math.ldexp(mantissa, shift)]))[:, 0]
    y = shift_right(function(fixed, _INTEGER_BITS), 31 - bits) + lowest
    return torch.where(x <= -radius, -128, torch.where(x >= radius, 127, y))


def _rectified(low: float | None, high: float | None) -> Callable[..., Tensor]:
    def make(attributes: Mapping[str, Any], source: QParams, out: QParams) -> Tensor:
        lowest = -128 if low is None else max(-128, quantize_value(low, out))
        highest = 127 if high is None else min(127, quantize_value(high, out))
        return _on_grid(source, out).clamp(lowest, highest)

    return make


def _on_grid(source: QParams, out: QParams, factor: float = 1.0) -> Tensor:
    """Return the stored values on another grid, not saturated."""
    factors = rescaling([float(np.float32(source.scale)) * factor / float(np.float32(out.scale))])
    return rescale((_STORED - source.zero_point)[:, None], factors)[:, 0] + out.zero_point


def _leaky(attributes: Mapping[str, Any], source: QParams, out: QParams) -> Tensor:
    slope = np.float32(source.scale) * np.float32(attributes["alpha"]) / np.float32(out.scale)
    negative = rescale((_STORED - source.zero_point)[:, None], rescaling([float(slope)]))[:, 0]
    identity = rescaling([float(np.float32(source.scale) / np.float32(out.scale))])
    positive = rescale((_STORED - source.zero_point)[:, None], identity)[:, 0]
    return torch.where(source.zero_point <= _STORED, positive, negative) + out.zero_point


def _hard_swish(attributes: Mapping[str, Any], source: QParams, out: QParams) -> Tensor:
    """Return ``x relu6(x + 3) / 6`` with 7 bits below the input's step, in 16 bits."""
    fine = np.float32(1 / 128) * np.float32(source.scale)
    to_output, output_shift = _factor_16(float(fine / np.float32(out.scale)))
    to_gate, gate_shift = _factor_16(float(fine / np.float32(3 / 32768)))
    x = (_STORED - source.zero_point) << 7
    gate = _saturated(x << max(0, gate_shift - 1))
    gate = _high_multiply_16(gate, to_gate)
    gate = _saturated(gate << 1) if gate_shift > 0 else shift_right(gate, max(0, -gate_shift))
    gate = (gate + 2**15) >> 1
    y = torch.div(gate * _high_multiply_16(x, to_output), 2**15, rounding_mode="trunc")
    return shift_right(y, max(0, -output_shift)) + out.zero_point


def _factor_16(real: float) -> tuple[int, int]:
    factors = rescaling([real])
    return min((int(factors.multiplier[0]) + 2**15) >> 16, 2**15 - 1), int(factors.shift[0])


def _high_multiply_16(x: Tensor, factor: int) -> Tensor:
    product = x * factor
    nudged = product + torch.where(product >= 0, 2**14, 1 - 2**14)
    return torch.div(nudged, 2**15, rounding_mode="trunc")


def _saturated(x: Tensor) -> Tensor:
    return x.clamp(-(2**15), 2**15 - 1)


def _elu(attributes: Mapping[str, Any], source: QParams, out: QParams) -> Tensor:
    x = np.float32(source.scale) * (_STORED.numpy() - source.zero_point).astype(np.float32)
    y = np.where(x < 0, np.expm1(np.minimum(x, np.float32(0))), x) * (np.float32(1) / np.float32(out.scale))
    return torch.from_numpy(np.copysign(np.floor(np.abs(y) + np.float32(0.5)), y)).long() + out.zero_point


TABLED: dict[str, Callable[[Mapping[str, Any], QParams, QParams], Tensor]] = {
    "logistic": lambda a, source, out: _saturating(logistic, 8, -128, source),
    "tanh": lambda a, source, out: _saturating(tanh, 7, 0, source),
    "relu": _rectified(0.0, None),
    "quantize": _rectified(None, None),
    "leaky_relu": _leaky,
    "hard_swish": _hard_swish,
    "elu": _elu,
}
"""Operators that are tables."""


# Nodes that the kernels' table of sigmoid(i / 24) has one step above the nearest integer.
_ROUNDED_UP = [
    4, 8, 12, 14, 15, 16, 17, 19, 20, 21, 22, 25, 27, 28, 29, 30, 31, 33, 34, 35, 37, 39, 40, 41, 43, 44,
    45, 46, 49, 50, 54, 62, 63, 64, 66, 82, 86, 93, 100, 103, 112, 116, 135, 255,
]  # fmt: skip


def _sigmoid_nodes() -> Tensor:
    """Return sigmoid(i / 24) in 16 bits, as in the table that the kernels interpolate in."""
    i = np.arange(257)
    nodes = np.floor(2.0**16 / (1.0 + np.exp(-i / 24.0)) + 0.5)
    nodes[_ROUNDED_UP] += 1
    return torch.from_numpy(nodes.astype(np.int64))


_NODES = _sigmoid_nodes()
SIGMOID_NODES = _NODES[:256].numpy()
"""What `logistic_16` and `tanh_16` look up: sigmoid(i / 24) in 16 bits."""


def logistic_16(x: Tensor) -> Tensor:
    """Return the logistic function with 15 bits below the point of numbers with 12, as int64."""
    scaled = x * 3
    size = scaled.abs()
    at = (size >> 9).clamp(max=255)
    y = (_NODES[at] << 9) + (size & 511) * (_NODES[at + 1] - _NODES[at])
    y = torch.where(at >= 255, 0x7FFF << 10, y)
    return torch.where(scaled >= 0, y + (1 << 9), (1 << 25) - y + (1 << 9) - 1) >> 10


def tanh_16(x: Tensor, shift: int = 0) -> Tensor:
    """Return tanh with 15 bits below the point of numbers with ``12 - shift``, as int64."""
    scaled = (x * 3) << shift if shift >= 0 else (x * 3 + (1 << (-shift - 1))) >> -shift
    size = scaled.abs()
    at = (size >> 8).clamp(max=255)
    y = (_NODES[at] << 8) + (size & 255) * (_NODES[at + 1] - _NODES[at])
    y = torch.where(at >= 255, 0xFFFF << 8, y)
    half = 1 << 23
    return torch.where(scaled >= 0, y - half + (1 << 7), half - y + (1 << 7) - 1) >> 8
