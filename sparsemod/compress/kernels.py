"""The statically quantized operators: from values on their grids to values on the output's grid.

Where TensorFlow Lite has an int8 kernel, its arithmetic is followed: convolutions, dense layers, products and
matrix products rescale an exact integer accumulator by gemmlowp's double rounding; average pools round the mean of
the stored integers and keep the grid; a concatenation requantizes its operands; the others compute in float and
round once, as the interpreter's 20-bit addition and its tables for sigmoid, tanh and softmax do within one step.
A batch norm that cannot be folded is a 1x1 depthwise convolution.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from sparsemod.compress.calls import Call, map_tensors, tag, tensors_in, value_of
from sparsemod.compress.fakequant import (
    QParams,
    QuantizedWeight,
    activation_qparams,
    centred,
    quantize_weight,
    rescale,
    rescale_factors,
    round_away,
    to_grid,
)
from sparsemod.compress.resolve import Resolution, Root
from sparsemod.compress.roles import Weighted, batch_norm_affine, clamp_range, weighted
from sparsemod.compress.trace import Node, Ref, Trace

__all__ = ["Step", "build_step", "folded", "main_input"]

Step = Callable[[Call], Any]


@dataclass(frozen=True, slots=True)
class _Output:
    """Where a root puts its result."""

    qparams: QParams
    bounds: tuple[int, int]

    def finish(self, steps: Tensor) -> Tensor:
        """Saturate centred integers and return the tagged real values; works in place."""
        return tag(steps.clamp_(*self.bounds).mul_(self.qparams.scale), qparams=self.qparams)

    def round(self, x: Tensor) -> Tensor:
        """Round real values to the grid and tag them."""
        return tag(to_grid(x, self.qparams, self.bounds), qparams=self.qparams)


def build_step(trace: Trace, resolution: Resolution, position: int) -> tuple[Step, dict[str, QuantizedWeight]]:
    """Return what a call of the network does when it runs quantized, and the weights it holds by parameter.

    Args:
        trace: The recorded calls.
        resolution: Their roles and grids.
        position: Which call.
    """
    node, role = trace.nodes[position], resolution.roles[position]
    if role == "plain":
        return _plain, {}
    if role == "keep":
        return _keep, {}
    if role == "average":
        return _average, {}
    if role == "fused":
        return main_input, {}
    roots = [resolution.roots[value] for value in node.outputs]
    outputs = tuple(_output(root, node) for root in roots)
    form = weighted(node.op, node.args, node.kwargs, lambda x: isinstance(x, Ref))
    if form is not None:
        weight, bias = folded(form, [trace.nodes[norm] for norm in roots[0].norms])
        return _weighted(form, weight, bias, _grid_of(resolution, form.input), outputs[0])
    affine = batch_norm_affine(node.args, node.kwargs) if node.op == "batch_norm" else None
    if affine is not None:
        return _norm(affine, node.n_dims, _grid_of(resolution, node.args[0]), outputs[0])
    return partial(_OPERATORS.get(node.op, _generic), outputs), {}


def folded(form: Weighted, norms: list[Node]) -> tuple[Tensor, Tensor | None]:
    """Return weight and bias of an operator with the batch norms behind it folded in (gradients flow)."""
    if not norms:
        return form.weight, form.bias
    weight = form.weight.double()
    bias = torch.zeros(form.n_channels, dtype=torch.float64) if form.bias is None else form.bias.double()
    for norm in norms:
        affine = batch_norm_affine(norm.args, norm.kwargs)
        if affine is not None:
            weight = weight * form.per_element(affine[0])
            bias = bias * affine[0] + affine[1]
    return weight.to(form.weight.dtype), bias.to(form.weight.dtype)


def main_input(call: Call) -> Tensor:
    """Return the first float value that a call takes."""
    return next(tensor for tensor in call.inputs if tensor.is_floating_point())


def _grid_of(resolution: Resolution, ref: Ref) -> QParams:
    qparams = resolution.roots[ref.index].qparams
    if qparams is None:
        raise RuntimeError(f"value {ref.index} feeds a quantized operator but has no grid")
    return qparams


def _output(root: Root, node: Node) -> _Output:
    qparams = root.qparams or activation_qparams(root.low, root.high)
    low, high = root.clamp_low, root.clamp_high
    own = clamp_range(node.op, node.args, node.kwargs)
    if own is not None:
        low, high = max(low, own[0]), min(high, own[1])
    return _Output(qparams, qparams.bounds(low, high))


def _plain(call: Call) -> Any:
    return map_tensors(tag, call.run())


def _keep(call: Call) -> Any:
    value = value_of(main_input(call))
    qparams = None if value is None else value.qparams
    fills = call.op == "pad" and qparams is not None
    result = call.run()

    def mark(tensor: Tensor) -> Tensor:
        if not tensor.is_floating_point():
            return tag(tensor)
        return tag(to_grid(tensor, qparams) if fills and qparams is not None else tensor, qparams=qparams)

    return map_tensors(mark, result)


def _average(call: Call) -> Tensor:
    x = main_input(call)
    value = value_of(x)
    if value is None or value.qparams is None:
        return tag(call.run())
    grid = value.qparams
    steps = _substituted(call, {id(x): centred(x, grid)})
    stored = round_away(steps + grid.zero_point)
    return tag((stored - grid.zero_point) * grid.scale, qparams=grid)


def _weighted(
    form: Weighted, weight: Tensor, bias: Tensor | None, grid: QParams, output: _Output
) -> tuple[Step, dict[str, QuantizedWeight]]:
    dtype = form.weight.dtype
    quantized = quantize_weight(weight, bias, grid.scale, form.channels, form.n_channels)
    values = quantized.values.to(dtype)
    steps = None if quantized.bias is None else quantized.bias.to(dtype)
    multiplier = grid.scale * quantized.scales.double() / output.qparams.scale
    factors = rescale_factors(form.per_channel(multiplier))

    def step(call: Call) -> Tensor:
        accumulator = form.accumulate(centred(main_input(call), grid), values, steps)
        return output.finish(rescale(accumulator, factors))

    return step, {"weight": quantized}


def _norm(
    affine: tuple[Tensor, Tensor], n_dims: int, grid: QParams, output: _Output
) -> tuple[Step, dict[str, QuantizedWeight]]:
    factor, offset = (values.float() for values in affine)
    quantized = quantize_weight(factor, offset, grid.scale, torch.arange(len(factor)), len(factor))
    shape = (-1, *[1] * max(0, n_dims - 2))
    values = quantized.values.float().reshape(shape)
    steps = None if quantized.bias is None else quantized.bias.float().reshape(shape)
    multiplier = grid.scale * quantized.scales.double() / output.qparams.scale
    factors = rescale_factors(multiplier.reshape(shape))

    def step(call: Call) -> Tensor:
        accumulator = centred(main_input(call), grid).mul_(values)
        return output.finish(rescale(accumulator if steps is None else accumulator.add_(steps), factors))

    return step, {"weight": quantized}


def _generic(outputs: tuple[_Output, ...], call: Call) -> Any:
    result = call.run()
    places = iter(outputs)
    return map_tensors(lambda x: next(places).round(x) if x.is_floating_point() else tag(x), result)


def _sum(outputs: tuple[_Output, ...], call: Call) -> Tensor:
    """Add or subtract; constant operands are stored as int8."""
    result: Tensor = call.func(*(_constant_on_grid(x) for x in call.args), **call.kwargs)
    return outputs[0].round(result)


def _product(outputs: tuple[_Output, ...], call: Call) -> Tensor:
    (a, grid_a), (b, grid_b) = (_operand(x) for x in call.args)
    factors = rescale_factors(torch.tensor(grid_a.scale * grid_b.scale / outputs[0].qparams.scale))
    multiply = torch.matmul if call.op in ("matmul", "bmm", "mm") else torch.mul
    return outputs[0].finish(rescale(multiply(a, b), factors))


def _quotient(outputs: tuple[_Output, ...], call: Call) -> Any:
    numerator, denominator = call.args[0], call.args[1]
    tagged = isinstance(denominator, Tensor) and value_of(denominator) is not None
    if tagged or len(call.args) > 2 or call.kwargs:
        return _generic(outputs, call)
    inverse = 1.0 / denominator
    return _product(outputs, Call("mul", torch.mul, (numerator, inverse), {}, call.inputs))


def _requantized(outputs: tuple[_Output, ...], call: Call) -> Tensor:
    return _to_output(main_input(call), outputs[0])


def _joined(outputs: tuple[_Output, ...], call: Call) -> Tensor:
    output = outputs[0]
    parts = [_to_output(x, output) for x in tensors_in(call.args[0] if call.args else call.kwargs["tensors"])]
    result: Tensor = call.func(parts, *call.args[1:], **{k: v for k, v in call.kwargs.items() if k != "tensors"})
    return tag(result, qparams=output.qparams)


def _to_output(x: Tensor, output: _Output) -> Tensor:
    value = value_of(x)
    grid = None if value is None else value.qparams
    if grid is None:
        return output.round(x)
    if grid == output.qparams and output.bounds == grid.bounds():
        return x
    factors = rescale_factors(torch.tensor(grid.scale / output.qparams.scale))
    return output.finish(rescale(centred(x, grid), factors))


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


_OPERATORS: dict[str, Callable[[tuple[_Output, ...], Call], Any]] = {
    **dict.fromkeys(("add", "sub", "rsub"), _sum),
    **dict.fromkeys(("mul", "matmul", "bmm", "mm"), _product),
    **dict.fromkeys(("cat", "stack", "hstack", "vstack", "dstack"), _joined),
    **dict.fromkeys(("relu", "relu6", "hardtanh", "clamp", "clamp_min", "clamp_max", "threshold"), _requantized),
    "div": _quotient,
}
