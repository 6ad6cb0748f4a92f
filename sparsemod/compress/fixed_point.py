"""Fixed-point arithmetic on integer tensors, exactly as the interpreter's int8 kernels do it.

A real factor is a 31-bit integer and a power of two. Multiplying by it rounds twice: the product's upper
half, halves up, then the shift, halves away from zero. The functions of fixed-point numbers (exponential,
logistic, tanh, reciprocal) are those of gemmlowp: a polynomial on a quarter, products of constants for the
bits above it, and three Newton steps. All of it is done on int64 tensors that hold int32 values.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

__all__ = [
    "ONE",
    "Rescaling",
    "exp_on_negative",
    "high_multiply",
    "leading_zeros",
    "log_of_sum",
    "logistic",
    "one_over_one_plus",
    "rescale",
    "rescaling",
    "shift_right",
    "tanh",
]

ONE = 2**31 - 1
"""The largest Q0.31 number, which stands for one."""

_HALF = 2**30


@dataclass(frozen=True, slots=True, eq=False)
class Rescaling:
    """Real factors ``multiplier / 2**31 * 2**shift``.

    Attributes:
        multiplier: int32, one a channel or one in all.
        shift: int32, the same.
    """

    multiplier: NDArray[np.int32]
    shift: NDArray[np.int32]


def rescaling(factors: ArrayLike) -> Rescaling:
    """Return the integer form of real factors.

    Example:
        >>> rescaling([0.375, 1.0])
        Rescaling(multiplier=array([1610612736, 1073741824], dtype=int32), shift=array([-1,  1], dtype=int32))
    """
    mantissa, exponent = np.frexp(np.atleast_1d(np.asarray(factors, np.float64)))
    fixed = np.floor(mantissa * 2.0**31 + 0.5).astype(np.int64)
    carried = fixed == 2**31
    fixed, shift = np.where(carried, fixed // 2, fixed), exponent + carried
    gone = shift < -31
    return Rescaling(np.where(gone, 0, fixed).astype(np.int32), np.where(gone, 0, shift).astype(np.int32))


def rescale(x: Tensor, factors: Rescaling) -> Tensor:
    """Return int64 values times real factors, which go with the last dimension; rounds twice."""
    multiplier = torch.from_numpy(factors.multiplier.astype(np.int64))
    shift = torch.from_numpy(factors.shift.astype(np.int64))
    left, right = shift.clamp(min=0), (-shift).clamp(min=0)
    y = (x << left if int(left.max()) else x) * multiplier
    y = y.add_(_HALF).bitwise_right_shift_(31)
    return shift_right(y, right) if int(right.max()) else y


def high_multiply(a: Tensor, b: Tensor | int) -> Tensor:
    """Return the product of two Q0.31 numbers, rounded to the nearest, halves up."""
    return (a * b).add_(_HALF).bitwise_right_shift_(31)


def shift_right(x: Tensor, exponent: Tensor | int) -> Tensor:
    """Return ``x / 2**exponent``, rounded to the nearest, halves away from zero."""
    exponent = torch.as_tensor(exponent)
    half = (1 << exponent) >> 1
    below = x >> 63  # -1 for negative numbers
    if int(exponent.min()) == 0:
        below = below * (exponent > 0)
    return below.add_(half).add_(x).bitwise_right_shift_(exponent)


def _shift_left(x: Tensor, exponent: Tensor | int) -> Tensor:
    """Return ``x * 2**exponent``, saturated to 32 bits."""
    return (x << exponent).clamp(-(2**31), 2**31 - 1)


# Factors exp(-2**k), k from -2 to 4, as Q0.31: the k-th bit of the argument multiplies by its own.
_EXP_OF_BITS = tuple((k, round(float(np.exp(-(2.0**k))) * 2**31)) for k in range(-2, 5))
_EXP_OF_EIGHTH = round(float(np.exp(-0.125)) * 2**31)
_THIRD = round(2**31 / 3)


def exp_on_negative(x: Tensor, integer_bits: int) -> Tensor:
    """Return exp of non-positive numbers.

    Args:
        x: int64 that holds fixed-point numbers with `integer_bits` before the point, 31 bits in all.
        integer_bits: At most 5.

    Returns:
        Q0.31.
    """
    fraction_bits = 31 - integer_bits
    quarter = 1 << (fraction_bits - 2)
    within = (x & (quarter - 1)) - quarter
    y = _shift_left(within, integer_bits) + (1 << 28)  # the argument plus an eighth
    y2 = high_multiply(y, y)
    y3, y4 = high_multiply(y2, y), high_multiply(y2, y2)
    tail = shift_right(high_multiply(shift_right(y4, 2) + y3, _THIRD) + y2, 1)
    result = _EXP_OF_EIGHTH + high_multiply(y + tail, _EXP_OF_EIGHTH)
    above = within - x
    for k, factor in _EXP_OF_BITS:
        if k < integer_bits:
            bit = (above & (1 << (fraction_bits + k))) != 0
            result = torch.where(bit, high_multiply(result, factor), result)
    return torch.where(x == 0, ONE, result)


def one_over_one_plus(x: Tensor) -> Tensor:
    """Return ``1 / (1 + x)`` for x in [0, 1), both Q0.31."""
    return _shift_left(_newton(x), 1)


def logistic(x: Tensor, integer_bits: int) -> Tensor:
    """Return the logistic function as Q0.31 of fixed-point numbers as in `exp_on_negative`."""
    upper = one_over_one_plus(exp_on_negative(-x.abs(), integer_bits))
    return torch.where(x > 0, upper, torch.where(x == 0, _HALF, ONE - upper))


def tanh(x: Tensor, integer_bits: int) -> Tensor:
    """Return the hyperbolic tangent as Q0.31 of fixed-point numbers as in `exp_on_negative`."""
    e = exp_on_negative(-x.abs(), integer_bits + 1)  # of 2 |x|, with the same bits
    size = _shift_left(_newton(e) - (1 << 29), 2)  # 2 / (1 + e) - 1
    return torch.where(x == 0, 0, torch.where(x < 0, -size, size))


_SQRT_HALF = round(0.5**0.5 * 2**31)
_ROOT = round(0.5**0.25 * 2**31)
_LOG_2 = round(float(np.log(2)) * 2**31)
_NUMERATOR = round(11 / 240 * 2**0.25 * 2**31)
_DENOMINATOR = tuple(round(c * 2**31) for c in (2 / 2**0.25 - 2**0.25, 2**0.25 / 20, 2**0.25 / 4))


def log_of_sum(x: Tensor) -> Tensor:
    """Return the natural logarithm, with 5 bits before the point, of numbers from 1 on with 12.

    The number is a power of two times one near the fourth root of a half, of whose logarithm a quotient of
    polynomials is taken.
    """
    headroom = leading_zeros(x)
    near = _shift_left(high_multiply(_shift_left(x, headroom - 1), _SQRT_HALF), 1)
    power = ((12 - headroom) << 25) + (1 << 23)
    lower_headroom = leading_zeros(high_multiply(x, _SQRT_HALF)) - 1
    r = torch.minimum(near, _shift_left(x, lower_headroom))
    power = torch.maximum(power, ((12 - lower_headroom) << 25) - (1 << 23))
    q = 2 * (r - _ROOT)
    square = high_multiply(q, q)
    numerator = high_multiply(q, r) + high_multiply(high_multiply(q, square), _NUMERATOR)
    constant, of_square, of_q = _DENOMINATOR
    inner = constant + q + high_multiply(square, of_square)
    denominator = high_multiply((r + _ROOT + 1) // 2, inner) + high_multiply(q, of_q)
    fraction = high_multiply(shift_right(numerator, 6), one_over_one_plus(denominator))
    return _shift_left(high_multiply(power, _LOG_2) + fraction, 1)


def leading_zeros(x: Tensor) -> Tensor:
    """Return the zero bits above the highest one of positive int32 values."""
    return 31 - torch.floor(torch.log2(x.double())).long()


def _newton(x: Tensor) -> Tensor:
    """Return ``2 / (1 + x)`` for x in [0, 1), as Q2.29."""
    total = x + ONE
    half = (total + 1) // 2
    y = _constant(48 / 17) + high_multiply(half, -_constant(32 / 17))
    for _ in range(3):
        rest = (1 << 29) - high_multiply(half, y)
        y = y + _shift_left(high_multiply(y, rest), 2)
    return y


def _constant(value: float) -> int:
    return round(value * 2**29)
