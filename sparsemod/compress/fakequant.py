"""The int8 arithmetic of TensorFlow Lite, carried out on float tensors that hold integers.

A quantized tensor is kept as the real values of its grid, `scale * n` with the *centred* integer
`n = q - zero_point`, so that every operator of PyTorch still works on it. Integers up to 2**24 are exact in
float32, which covers the accumulators of networks for microcontrollers.

Rounding follows the interpreter's int8 kernels: `MultiplyByQuantizedMultiplier` of gemmlowp rounds twice, first
the saturating rounding doubling high multiply by a 31-bit factor (half up), then the rounding shift (half away
from zero).
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
    "power_of_two_qparams",
    "quantize_weight",
    "rescale",
    "rescale_factors",
    "round_away",
    "to_grid",
    "weight_scales",
]

WEIGHT_MAX = 127
_BIAS_LIMIT = float(2**29)


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
    """A real multiplier as gemmlowp applies it: `first` before the first rounding, `second` before the second."""

    first: Tensor
    second: Tensor


def activation_qparams(low: float, high: float) -> QParams:
    """Return the asymmetric int8 grid over [low, high], widened so that real zero is one of its points.

    Example:
        >>> activation_qparams(0.0, 2.55)
        QParams(scale=0.009999999776482582, zero_point=-128, bits=8)
        >>> activation_qparams(-1.0, 1.0).zero_point
        0
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


def rescale_factors(multiplier: Tensor) -> Rescale:
    """Split real multipliers (float64, any shape) into gemmlowp's 31-bit factor and power of two.

    Example:
        >>> rescale_factors(torch.tensor(0.375, dtype=torch.float64))
        Rescale(first=tensor(0.7500), second=tensor(0.5000))
    """
    mantissa, exponent = torch.frexp(multiplier.double())
    mantissa = torch.floor(mantissa * 2**31 + 0.5) / 2**31
    exponent = exponent.double()
    left = torch.exp2(exponent.clamp(min=0))
    right = torch.exp2(exponent.clamp(max=0))
    return Rescale((mantissa * left).float(), right.float())


def rescale(accumulator: Tensor, factors: Rescale) -> Tensor:
    """Return the accumulator times the multiplier, rounded twice; works in place on `accumulator`."""
    return round_away(accumulator.mul_(factors.first).add_(0.5).floor_().mul_(factors.second))


def weight_scales(largest: Tensor) -> Tensor:
    """Return float32 scales ``max|w| / 127`` per channel; channels of zeros take the largest scale of the others."""
    scales = largest.float() / WEIGHT_MAX
    spare = scales.max() if scales.numel() and float(scales.max()) > 0 else torch.tensor(1.0 / WEIGHT_MAX)
    return torch.where(scales < torch.finfo(torch.float32).tiny, spare, scales)


def quantize_weight(
    weight: Tensor, bias: Tensor | None, input_scale: float, channels: Tensor, n_channels: int
) -> QuantizedWeight:
    """Quantize a weight symmetrically for each output channel, and the bias at the accumulator's scale.

    A channel whose bias would leave the int32 range at that scale gets a coarser weight scale, as the converter
    of TensorFlow Lite does.

    Args:
        weight: Real weight, any shape.
        bias: Real bias, (n_channels,), or None.
        input_scale: Scale of the operator's input.
        channels: Output channel of each element; an integer tensor that broadcasts to `weight`.
        n_channels: Number of output channels.
    """
    index = channels.expand_as(weight)
    largest = weight.new_zeros(n_channels).scatter_reduce(0, index.flatten(), weight.abs().flatten(), "amax")
    scales = weight_scales(largest)
    if bias is not None:
        scales = torch.maximum(scales, (bias.abs().double() / (input_scale * _BIAS_LIMIT)).float())
    values = round_away(weight / scales[index]).clamp_(-WEIGHT_MAX, WEIGHT_MAX).to(torch.int8)
    if bias is None:
        return QuantizedWeight(values, scales, None)
    steps = round_away(bias.double() / (scales.double() * input_scale))
    return QuantizedWeight(values, scales, steps.to(torch.int32))


def _round_half_away(x: float) -> int:
    return int(math.copysign(math.floor(abs(x) + 0.5), x))
