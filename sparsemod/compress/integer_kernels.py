"""The interpreter's int8 kernels on batches: stored integers in, stored integers out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from sparsemod.compress.fixed_point import (
    exp_on_negative,
    high_multiply,
    leading_zeros,
    log_of_sum,
    one_over_one_plus,
    rescale,
    shift_right,
)
from sparsemod.compress.quantized_graph import QuantizedGraph, QuantizedOperator, StoredWeight
from sparsemod.measure.meanings import aligned, same_pads

__all__ = ["KERNELS", "accumulate", "looked_up"]

Kernel = Callable[[QuantizedGraph, QuantizedOperator, Sequence[Tensor]], Tensor]
_UP = 20  # bits by which the operands of a sum are shifted up


def looked_up(x: Tensor, table: Tensor) -> Tensor:
    """Return the entries of a table over the stored values -128 to 127."""
    return table[x.long() + 128]


def accumulate(x: Tensor, weight: StoredWeight) -> Tensor:
    """Return ``x @ weight.T + bias`` of centred integers (rows, inputs) as int64."""
    matrix = _exact(torch.from_numpy(weight.values), weight.values.shape[1])
    total = (x.to(matrix.dtype) @ matrix.T).long()
    return total if weight.bias is None else total.add_(torch.from_numpy(weight.bias.astype(np.int64)))


def _exact(values: Tensor, fan_in: int) -> Tensor:
    """Return integers as the shortest floats in which sums of this many int8 products are exact."""
    return values.float() if fan_in * 255 * 127 < 2**24 else values.double()


def _stored(x: Tensor, quantized: QuantizedGraph, held: QuantizedOperator) -> Tensor:
    zero_point = quantized.grid(held.operator.outputs[0]).zero_point
    return x.add_(zero_point).clamp_(*held.bounds).to(torch.int8)


def _centred(quantized: QuantizedGraph, held: QuantizedOperator, x: Tensor) -> Tensor:
    return x.to(torch.int32) - quantized.grid(held.operator.inputs[0]).zero_point


def _convolution(quantized: QuantizedGraph, held: QuantizedOperator, xs: Sequence[Tensor]) -> Tensor:
    operator, weight = held.operator, held.weights[0]
    a = operator.attributes
    x = _centred(quantized, held, xs[0].reshape(-1, *xs[0].shape[2:])).permute(0, 3, 1, 2)
    values = torch.from_numpy(weight.values)
    if operator.kind == "depthwise_conv_2d":
        kernel, groups = values.permute(3, 0, 1, 2), x.shape[1]
    else:
        kernel, groups = values.permute(0, 3, 1, 2), a["groups"]
    kernel = _exact(kernel, int(prod(kernel.shape[1:])))
    if a["padding"] == "same":
        filter_ = [(k - 1) * d + 1 for k, d in zip(kernel.shape[2:], a["dilation"], strict=True)]
        x = F.pad(x, same_pads(x.shape[2:], filter_, a["stride"]))
    total = F.conv2d(x.to(kernel.dtype), kernel, None, a["stride"], 0, a["dilation"], groups)
    total = total.permute(0, 2, 3, 1).long()
    if weight.bias is not None:
        total.add_(torch.from_numpy(weight.bias.astype(np.int64)))
    return _stored(rescale(total, held.rescalings[0]), quantized, held)


def _matrix(quantized: QuantizedGraph, held: QuantizedOperator, xs: Sequence[Tensor]) -> Tensor:
    rows = _centred(quantized, held, xs[0]).reshape(-1, held.weights[0].values.shape[1])
    return _stored(rescale(accumulate(rows, held.weights[0]), held.rescalings[0]), quantized, held)


def _operands(
    quantized: QuantizedGraph, held: QuantizedOperator, xs: Sequence[Tensor]
) -> tuple[Tensor, Tensor]:
    """Return left and right operand as centred int64 that broadcast."""
    rank = max(len(quantized.graph.tensors[i].shape) for i in held.operator.inputs)
    centred = [
        aligned(x, rank).long() - quantized.grid(i).zero_point
        for i, x in zip(held.operator.inputs, xs, strict=True)
    ]
    constants = [torch.from_numpy(w.values.astype(np.int64) - w.zero_point) for w in held.weights]
    left, right = (
        (constants + centred) if held.operator.attributes["constant"] == "x" else centred + constants
    )
    return left, right


def _sum(quantized: QuantizedGraph, held: QuantizedOperator, xs: Sequence[Tensor]) -> Tensor:
    left, right, back = held.rescalings
    scaled = [
        rescale((x << _UP)[..., None], factor)[..., 0]
        for x, factor in zip(_operands(quantized, held, xs), (left, right), strict=True)
    ]
    total = scaled[0] + scaled[1] if held.operator.kind == "add" else scaled[0] - scaled[1]
    return _stored(rescale(total[..., None], back)[..., 0], quantized, held)


def _product(quantized: QuantizedGraph, held: QuantizedOperator, xs: Sequence[Tensor]) -> Tensor:
    left, right = _operands(quantized, held, xs)
    return _stored(rescale((left * right)[..., None], held.rescalings[0])[..., 0], quantized, held)


def _reduction(quantized: QuantizedGraph, held: QuantizedOperator, xs: Sequence[Tensor]) -> Tensor:
    axes = [axis + 1 for axis in held.operator.attributes["axes"]]
    total = _centred(quantized, held, xs[0]).sum(axes, dtype=torch.int64)
    return _stored(rescale(total[..., None], held.rescalings[0])[..., 0], quantized, held)


def _extreme(quantized: QuantizedGraph, held: QuantizedOperator, xs: Sequence[Tensor]) -> Tensor:
    axes = [axis + 1 for axis in held.operator.attributes["axes"]]
    return xs[0].amax(axes) if held.operator.kind == "reduce_max" else xs[0].amin(axes)


def _larger(quantized: QuantizedGraph, held: QuantizedOperator, xs: Sequence[Tensor]) -> Tensor:
    rank = max(x.dim() for x in xs) - 1
    operands = [aligned(x, rank) for x in xs] + [torch.from_numpy(w.values) for w in held.weights]
    function = torch.maximum if held.operator.kind == "maximum" else torch.minimum
    return function(*operands)


def _pool(quantized: QuantizedGraph, held: QuantizedOperator, xs: Sequence[Tensor]) -> Tensor:
    a = held.operator.attributes
    x = xs[0].reshape(-1, *xs[0].shape[2:]).permute(0, 3, 1, 2).float()
    pads = same_pads(x.shape[2:], a["filter"], a["stride"]) if a["padding"] == "same" else [0, 0, 0, 0]
    if held.operator.kind == "max_pool_2d":
        y = F.max_pool2d(F.pad(x, pads, value=-128.0), a["filter"], a["stride"])
    else:
        area = prod(a["filter"])
        count = F.avg_pool2d(F.pad(torch.ones_like(x[:1, :1]), pads), a["filter"], a["stride"]) * area
        total = F.avg_pool2d(F.pad(x, pads), a["filter"], a["stride"], divisor_override=1).round().long()
        count = count.round().long()
        half = count // 2
        total = torch.where(total > 0, total + half, total - half)
        y = torch.div(total, count, rounding_mode="trunc")
    return y.permute(0, 2, 3, 1).clamp(*held.bounds).to(torch.int8)


def _exponentials(held: QuantizedOperator, x: Tensor) -> tuple[Tensor, Tensor, Tensor, int]:
    """Return differences to the largest value, as they are and in fixed point, their exponentials, and the
    lowest difference that counts: those beyond would reach exp(-32).
    """
    factor = held.rescalings[0]
    lowest = -int(31 * 2.0**26 / 2.0 ** int(factor.shift[0]))
    difference = x.long() - x.amax(-1, keepdim=True)
    scaled = rescale(difference.clamp(min=lowest)[..., None], factor)[..., 0]
    e = torch.where(difference >= lowest, exp_on_negative(scaled, 5), 0)
    return difference, scaled, e, lowest


def _log_softmax(quantized: QuantizedGraph, held: QuantizedOperator, xs: Sequence[Tensor]) -> Tensor:
    difference, scaled, e, lowest = _exponentials(held, xs[0])
    log = log_of_sum(shift_right(e, 12).sum(-1, keepdim=True))
    least = rescale((log - 2**31)[..., None], held.rescalings[1])[..., 0].clamp(min=lowest - 1)
    y = shift_right(scaled - log, 22) + 127
    return torch.where(difference > least, y.clamp(-128, 127), -128).to(torch.int8)


def _softmax(quantized: QuantizedGraph, held: QuantizedOperator, xs: Sequence[Tensor]) -> Tensor:
    difference, _, e, lowest = _exponentials(held, xs[0])
    counts = difference >= lowest
    total = shift_right(e, 12).sum(-1, keepdim=True)
    headroom = leading_zeros(total)
    reciprocal = one_over_one_plus(((total << headroom) & 0xFFFFFFFF) - 2**31)
    exponent = 12 - headroom + 31 - 8
    y = shift_right(high_multiply(e, reciprocal), exponent)
    return torch.where(counts, (y - 128).clamp(-128, 127), -128).to(torch.int8)


KERNELS: dict[str, Kernel] = {
    **dict.fromkeys(("conv_2d", "depthwise_conv_2d"), _convolution),
    "fully_connected": _matrix,
    **dict.fromkeys(("add", "sub"), _sum),
    "mul": _product,
    **dict.fromkeys(("mean", "sum"), _reduction),
    **dict.fromkeys(("reduce_max", "reduce_min"), _extreme),
    **dict.fromkeys(("maximum", "minimum"), _larger),
    **dict.fromkeys(("max_pool_2d", "average_pool_2d"), _pool),
    "softmax": _softmax,
    "log_softmax": _log_softmax,
}
"""Operators that compute, other than tables, LSTM and what only moves values."""
