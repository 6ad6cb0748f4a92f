"""The statically quantized operators: from values on their grids to values on the output's grid.

Where TensorFlow Lite has an int8 kernel, its arithmetic is followed: convolutions, dense layers, products and
matrix products rescale an exact integer accumulator by gemmlowp's double rounding; average pools round the
mean of the stored integers and keep the grid; a concatenation requantizes its operands; the others compute in
float and round once, as the interpreter's 20-bit addition and its tables for sigmoid, tanh and softmax do
within one step. A batch norm that cannot be folded is a 1x1 depthwise convolution.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from sparsemod.compress.calls import Call
from sparsemod.compress.fakequant import (
    QParams,
    Rescale,
    activation_qparams,
    centred,
    requantize,
    rescale_factors,
    round_away,
    to_grid,
)
from sparsemod.compress.values import is_value, map_tensors, tag, tensors_in, value_of

__all__ = ["OPERATORS", "Output", "average", "clamped", "generic", "keep", "main_input", "plain"]


@dataclass(frozen=True, slots=True)
class Output:
    """Where a root puts its result."""

    qparams: QParams
    bounds: tuple[int, int]

    def requantize(self, accumulator: Tensor, factors: Rescale) -> Tensor:
        """Rescale an integer accumulator to the grid and return the tagged real values; works in place."""
        return tag(requantize(accumulator, factors, self.bounds, self.qparams.scale), qparams=self.qparams)

    def round(self, x: Tensor) -> Tensor:
        """Round real values to the grid and tag them."""
        return tag(to_grid(x, self.qparams, self.bounds), qparams=self.qparams)


def main_input(call: Call) -> Tensor:
    """Return the first float value that a call takes."""
    return next(tensor for tensor in call.inputs if tensor.is_floating_point())


def plain(call: Call) -> Any:
    """Run a call that makes no float values."""
    return map_tensors(tag, call.run())


def keep(call: Call) -> Any:
    """Run a call that only moves elements; its results keep the grid."""
    value = next((value_of(x) for x in call.inputs if x.is_floating_point()), None)
    qparams = None if value is None else value.qparams
    fills = call.op == "pad" and qparams is not None
    result = call.run()

    def mark(tensor: Tensor) -> Tensor:
        if not tensor.is_floating_point():
            return tag(tensor)
        return tag(to_grid(tensor, qparams) if fills and qparams is not None else tensor, qparams=qparams)

    return map_tensors(mark, result)


def average(call: Call) -> Tensor:
    """Average the stored integers and round them; the grid stays."""
    x = main_input(call)
    value = value_of(x)
    if value is None or value.qparams is None:
        return tag(call.run())
    grid = value.qparams
    steps = _substituted(call, {id(x): centred(x, grid)})
    stored = round_away(steps + grid.zero_point)
    return tag((stored - grid.zero_point) * grid.scale, qparams=grid)


def generic(outputs: tuple[Output, ...], call: Call) -> Any:
    """Compute in float on values and int8 constants and round the results."""
    arguments = map_tensors(_weight_on_grid, (call.args, dict(call.kwargs)))
    result = call.func(*arguments[0], **arguments[1])
    places = iter(outputs)
    return map_tensors(lambda x: next(places).round(x) if x.is_floating_point() else tag(x), result)


def _sum(outputs: tuple[Output, ...], call: Call) -> Tensor:
    """Add or subtract; constant operands are stored as int8."""
    result: Tensor = call.func(*(_constant_on_grid(x) for x in call.args), **call.kwargs)
    return outputs[0].round(result)


def _product(outputs: tuple[Output, ...], call: Call) -> Any:
    if len(call.args) != 2 or call.kwargs:
        return generic(outputs, call)
    (a, grid_a), (b, grid_b) = (_operand(x) for x in call.args)
    factors = rescale_factors(grid_a.scale * grid_b.scale / outputs[0].qparams.scale)
    multiply = torch.matmul if call.op in ("matmul", "bmm", "mm") else torch.mul
    return outputs[0].requantize(multiply(a, b), factors)


def _quotient(outputs: tuple[Output, ...], call: Call) -> Any:
    """Divide; a constant divisor is stored as its inverse."""
    if len(call.args) != 2 or call.kwargs or is_value(call.args[1]):
        return generic(outputs, call)
    return _product(outputs, Call("mul", torch.mul, (call.args[0], 1.0 / call.args[1]), {}, call.inputs))


def clamped(outputs: tuple[Output, ...], call: Call) -> Tensor:
    """Requantize to a grid whose bounds are those of the clamp."""
    return _to_output(main_input(call), outputs[0])


def _joined(outputs: tuple[Output, ...], call: Call) -> Tensor:
    output = outputs[0]
    parts = [_to_output(x, output) for x in tensors_in(call.args[0] if call.args else call.kwargs["tensors"])]
    result: Tensor = call.func(
        parts, *call.args[1:], **{k: v for k, v in call.kwargs.items() if k != "tensors"}
    )
    return tag(result, qparams=output.qparams)


def _to_output(x: Tensor, output: Output) -> Tensor:
    value = value_of(x)
    grid = None if value is None else value.qparams
    if grid is None:
        return output.round(x)
    if grid == output.qparams and output.bounds == grid.bounds():
        return x
    factors = rescale_factors(grid.scale / output.qparams.scale)
    return output.requantize(centred(x, grid), factors)


def _operand(x: Any) -> tuple[Tensor, QParams]:
    """Return centred integers and the grid of an operand; constants are quantized by their own range."""
    value = value_of(x) if isinstance(x, Tensor) else None
    if value is not None and value.qparams is not None:
        return centred(x, value.qparams), value.qparams
    x = torch.as_tensor(x, dtype=torch.float32)
    grid = activation_qparams(*_finite_range(x))
    return centred(to_grid(x, grid), grid), grid


def _constant_on_grid(x: Any) -> Any:
    if not isinstance(x, Tensor) or value_of(x) is not None or not x.is_floating_point():
        return x
    return to_grid(x, activation_qparams(*_finite_range(x)))


def _weight_on_grid(x: Tensor) -> Tensor:
    return _constant_on_grid(x) if x.dim() > 1 and torch.isfinite(x).all() else x


def _finite_range(x: Tensor) -> tuple[float, float]:
    if not x.numel():
        return 0.0, 0.0
    low, high = (float(bound) for bound in torch.aminmax(x))
    return max(low, -3e38) if low > -math.inf else 0.0, min(high, 3e38) if high < math.inf else 0.0


def _substituted(call: Call, replacements: dict[int, Tensor]) -> Tensor:
    def swap(tensor: Tensor) -> Tensor:
        return replacements.get(id(tensor), tensor)

    result: Tensor = call.func(*map_tensors(swap, call.args), **map_tensors(swap, dict(call.kwargs)))
    return result


OPERATORS: dict[str, Callable[[tuple[Output, ...], Call], Any]] = {
    **dict.fromkeys(("add", "sub", "rsub"), _sum),
    **dict.fromkeys(("mul", "matmul", "bmm", "mm"), _product),
    **dict.fromkeys(("cat", "stack", "hstack", "vstack", "dstack"), _joined),
    "div": _quotient,
}
