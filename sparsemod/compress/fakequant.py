"""The int8 arithmetic of TensorFlow Lite, carried out on float tensors that hold integers.

A quantized tensor is kept as the real values of its grid, `scale * n` with the *centred* integer
`n = q - zero_point`, so that every operator of PyTorch still works on it. Integers up to 2**24 are exact in
float32, which covers the accumulators of networks for microcontrollers.

Rounding follows the interpreter's int8 kernels: `MultiplyByQuantizedMultiplier` of gemmlowp rounds twice,
first the saturating rounding doubling high multiply by a 31-bit factor (half up), then the rounding shift
(half away from zero).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

__all__ = [
    "QParams",
    "QuantizedWeight",
    "Rescale",
    "activation_qparams",
    "centred",
    "fake_quantize",
    "power_of_two_qparams",
    "quantize_rows",
    "quantize_weight",
    "requantize",
    "rescale_factors",
    "round_away",
    "to_grid",
    "weight_scales",
]

WEIGHT_MAX = 127
_BIAS_LIMIT = float(2**29)
_BLOCK = 65536


@dataclass(frozen=True, slots=True)
class QParams:
    """An affine integer grid: ``real = scale * (q - zero_point)`` with q a signed integer of `bits` bits.

    Example:
        >>> QParams(0.5, -128).real_range
        (0.0, 127.5)
    """

    scale: float
    zero_point: int
    bits: int = 8

    @property
    def q_min(self) -> int:
        """Smallest stored integer."""
        return int(-(2 ** (self.bits - 1)))

    @property
    def q_max(self) -> int:
        """Largest stored integer."""
        return int(2 ** (self.bits - 1) - 1)

    @property
    def real_range(self) -> tuple[float, float]:
        """Smallest and largest real value of the grid."""
        return self.scale * (self.q_min - self.zero_point), self.scale * (self.q_max - self.zero_point)

    def bounds(self, low: float = -math.inf, high: float = math.inf) -> tuple[int, int]:
        """Return the centred integers that a value may take after an activation clamped it to [low, high]."""
        lowest, highest = self.q_min - self.zero_point, self.q_max - self.zero_point
        if low > -math.inf:
            lowest = max(lowest, _round_half_away(low / self.scale))
        if high < math.inf:
            highest = min(highest, _round_half_away(high / self.scale))
        return lowest, max(lowest, highest)


@dataclass(frozen=True, slots=True)
class QuantizedWeight:
    """A weight as the chip stores it.

    Attributes:
        values: int8, in PyTorch's layout, within [-127, 127].
        scales: float32, one for each output channel.
        bias: int32 at scale ``input scale * scales``, or None where the operator adds none.
    """

    values: Tensor
    scales: Tensor
    bias: Tensor | None


@dataclass(frozen=True, slots=True)
class Rescale:
    """A real multiplier in gemmlowp's two steps: `first` (float64), round, `second` (float32), round."""

    first: Tensor
    second: Tensor


def activation_qparams(low: float, high: float) -> QParams:
    """Return the asymmetric int8 grid over [low, high], widened so that real zero is one of its points.

    Example:
        >>> activation_qparams(0.0, 2.55)
        QParams(scale=0.009999999776482582, zero_point=-128, bits=8)
        >>> activation_qparams(-1.0, 3.0).zero_point
        -64
    """
    low, high = min(low, 0.0), max(high, 0.0)
    scale = float(np.float32((high - low) / 255))
    if scale < np.finfo(np.float32).tiny:
        return QParams(1.0, 0)
    return QParams(scale, min(127, max(-128, _round_half_away(-128 - low / scale))))


def power_of_two_qparams(bound: float, bits: int = 16) -> QParams:
    """Return the symmetric grid with a power of two as its scale that covers [-bound, bound].

    Example:
        >>> power_of_two_qparams(3.0).scale == 4 / 2**15
        True
    """
    exponent = math.ceil(math.log2(bound)) if bound > 0 else 0
    return QParams(2.0 ** (exponent - (bits - 1)), 0, bits)


def round_away(x: Tensor) -> Tensor:
    """Round to integers, halves away from zero; works in place on `x` and returns it."""
    return x.add_(torch.copysign(torch.tensor(0.5), x)).trunc_()


def to_grid(x: Tensor, qparams: QParams, bounds: tuple[int, int] | None = None) -> Tensor:
    """Return the real values of the grid's points nearest to `x`, saturated.

    Args:
        x: Real values, any shape.
        qparams: The grid.
        bounds: Limits of the centred integers, as from `QParams.bounds`; the grid's own by default.
    """
    low, high = bounds or qparams.bounds()
    return round_away(x / qparams.scale).clamp_(low, high).mul_(qparams.scale)


def centred(x: Tensor, qparams: QParams) -> Tensor:
    """Return the centred integers ``q - zero_point`` of values that lie on the grid, as floats."""
    return (x / qparams.scale).round_()


def fake_quantize(x: Tensor, qparams: QParams) -> Tensor:
    """Return the nearest points of the grid, halves to even; the gradient passes where nothing saturates."""
    if not (torch.is_grad_enabled() and x.requires_grad):
        low, high = qparams.bounds()
        return (x / qparams.scale).round_().clamp_(low, high).mul_(qparams.scale)
    inside = x.clamp(*qparams.real_range)
    with torch.no_grad():
        change = (inside / qparams.scale).round_().mul_(qparams.scale).sub_(inside)
    return inside + change


def quantize_rows(x: Tensor, dims: tuple[int, ...]) -> Tensor:
    """Return `x` on asymmetric int8 grids made for each slice over `dims` from its own range.

    Args:
        x: Real values.
        dims: Dimensions that share a grid; the others have one for each index.
    """
    low = x.amin(dims, keepdim=True).clamp_(max=0)
    scale = (x.amax(dims, keepdim=True).clamp_(min=0) - low).div_(255)
    scale = torch.where(scale < torch.finfo(torch.float32).tiny, torch.ones_like(scale), scale)
    zero_point = round_away(-128 - low / scale)
    return round_away(x / scale).clamp_(-128 - zero_point, 127 - zero_point).mul_(scale)


def rescale_factors(multiplier: Tensor | float) -> Rescale:
    """Split real multipliers (any shape) into gemmlowp's 31-bit factor and power of two.

    Example:
        >>> rescale_factors(0.375)
        Rescale(first=tensor(0.7500, dtype=torch.float64), second=tensor(0.5000))
    """
    mantissa, exponent = torch.frexp(torch.as_tensor(multiplier, dtype=torch.float64))
    mantissa = torch.floor(mantissa * 2**31 + 0.5) / 2**31
    exponent = exponent.double()
    left = torch.exp2(exponent.clamp(min=0))
    right = torch.exp2(exponent.clamp(max=0))
    return Rescale(mantissa * left, right.float())


def requantize(accumulator: Tensor, factors: Rescale, bounds: tuple[int, int], scale: float) -> Tensor:
    """Return ``scale * clamp(round(accumulator * multiplier))``, rounded twice; works in place.

    The first rounding is done in float64, since an accumulator of 24 bits times a factor of 31 is not exact
    in float32. Blocks that stay in the cache make it as quick as float32 over the whole tensor.

    Args:
        accumulator: Integers, (batch, ...).
        factors: From `rescale_factors`, shaped to broadcast to the accumulator.
        bounds: Limits of the centred integers.
        scale: Scale of the output's grid.
    """
    half = torch.tensor(0.5, dtype=accumulator.dtype)
    rows = max(1, _BLOCK * len(accumulator) // max(1, accumulator.numel())) if accumulator.dim() else 1
    for block in torch.split(accumulator, rows) if accumulator.dim() else (accumulator,):
        block.copy_(torch.mul(block, factors.first).add_(0.5).floor_()).mul_(factors.second)
        block.add_(torch.copysign(half, block)).trunc_().clamp_(*bounds).mul_(scale)
    return accumulator


def weight_scales(largest: Tensor) -> Tensor:
    """Return float32 scales ``max|w| / 127``; channels of zeros take the largest scale of the others."""
    scales = largest.float() / WEIGHT_MAX
    spare = scales.max() if scales.numel() and float(scales.max()) > 0 else torch.tensor(1.0 / WEIGHT_MAX)
    return torch.where(scales < torch.finfo(torch.float32).tiny, spare, scales)


def quantize_weight(
    weight: Tensor,
    bias: Tensor | None,
    input_scale: float,
    channels: Tensor,
    n_channels: int,
    shared: int = 1,
) -> QuantizedWeight:
    """Quantize a weight symmetrically for each output channel, and the bias at the accumulator's scale.

    A channel whose bias would leave the int32 range at that scale gets a coarser weight scale, as the
    converter of TensorFlow Lite does.

    Args:
        weight: Real weight, any shape.
        bias: Real bias, (n_channels,), or None.
        input_scale: Scale of the operator's input.
        channels: Output channel of each element; an integer tensor that broadcasts to `weight`.
        n_channels: Number of output channels.
        shared: So many channels in a row share one scale.
    """
    index = channels.expand_as(weight)
    largest = weight.new_zeros(n_channels).scatter_reduce(0, index.flatten(), weight.abs().flatten(), "amax")
    scales = weight_scales(largest.reshape(-1, shared).amax(1)).repeat_interleave(shared)
    if bias is not None:
        floor = (bias.abs().double() / (input_scale * _BIAS_LIMIT)).reshape(-1, shared).amax(1)
        scales = torch.maximum(scales, floor.float().repeat_interleave(shared))
    values = round_away(weight / scales[index]).clamp_(-WEIGHT_MAX, WEIGHT_MAX).to(torch.int8)
    if bias is None:
        return QuantizedWeight(values, scales, None)
    steps = round_away(bias.double() / (scales.double() * input_scale))
    return QuantizedWeight(values, scales, steps.to(torch.int32))


def _round_half_away(x: float) -> int:
    return int(math.copysign(math.floor(abs(x) + 0.5), x))
