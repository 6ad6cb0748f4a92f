"""What each recorded call does when the network runs statically quantized, with the weights it holds."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from sparsemod.compress.calls import Call
from sparsemod.compress.dynamic import RunTimeWeights, prepare, run_dynamic
from sparsemod.compress.fakequant import (
    WEIGHT_MAX,
    QParams,
    QuantizedWeight,
    activation_qparams,
    centred,
    quantize_weight,
    rescale_factors,
    to_grid,
)
from sparsemod.compress.kernels import OPERATORS, Output, average, clamped, generic, keep, main_input, plain
from sparsemod.compress.recurrent import Observation, layers_of, make_cells, run_layers
from sparsemod.compress.recurrent_int8 import Static
from sparsemod.compress.resolve import Resolution, Root
from sparsemod.compress.roles import Weighted, batch_norm_affine, clamp_range, weighted
from sparsemod.compress.trace import Node, Ref, Trace
from sparsemod.compress.values import map_tensors, tag

__all__ = ["Step", "build_step", "folded"]

Step = Callable[[Call], Any]


def build_step(
    trace: Trace, resolution: Resolution, position: int
) -> tuple[Step, dict[str, QuantizedWeight]]:
    """Return what a call of the network does when it runs quantized, and the weights it holds by parameter.

    Args:
        trace: The recorded calls.
        resolution: Their roles and grids.
        position: Which call.
    """
    node, role = trace.nodes[position], resolution.roles[position]
    if role == "plain":
        return plain, {}
    if role == "keep":
        return keep, {}
    if role == "average":
        return average, {}
    if role == "fused":
        return main_input, {}
    roots = [resolution.roots[value] for value in node.outputs]
    if node.dynamic:
        return _dynamic(node, roots)
    outputs = tuple(_output(root, node) for root in roots)
    if node.observation is not None:
        return _recurrent(node, node.observation, resolution, outputs)
    form = weighted(node.op, node.args, node.kwargs, lambda x: isinstance(x, Ref))
    if form is not None:
        weight, bias = folded(form, [trace.nodes[norm] for norm in roots[0].norms])
        return _weighted(form, weight, bias, _grid_of(resolution, form.input), outputs[0])
    if node.op == "embedding" and isinstance(node.args[1], Tensor):
        return _embedding(node.args[1], outputs[0])
    affine = batch_norm_affine(node.args, node.kwargs) if node.op == "batch_norm" else None
    if affine is not None:
        return _norm(affine, node.n_dims, _grid_of(resolution, node.args[0]), outputs[0])
    if clamp_range(node.op, node.args, node.kwargs) is not None:
        return partial(clamped, outputs), {}
    return partial(OPERATORS.get(node.op, generic), outputs), {}


def folded(form: Weighted, norms: list[Node]) -> tuple[Tensor, Tensor | None]:
    """Return weight and bias of an operator with the batch norms behind it folded in (gradients flow)."""
    if not norms:
        return form.weight, form.bias
    weight = form.weight.double()
    bias = form.weight.new_zeros(form.n_channels).double() if form.bias is None else form.bias.double()
    for norm in norms:
        affine = batch_norm_affine(norm.args, norm.kwargs)
        if affine is not None:
            weight = weight * form.per_element(affine[0])
            bias = bias * affine[0] + affine[1]
    return weight.to(form.weight.dtype), bias.to(form.weight.dtype)


def _grid_of(resolution: Resolution, ref: Ref) -> QParams:
    qparams = resolution.roots[ref.index].qparams
    if qparams is None:
        raise RuntimeError(f"value {ref.index} feeds a quantized operator but has no grid")
    return qparams


def _output(root: Root, node: Node) -> Output:
    qparams = root.qparams or activation_qparams(root.low, root.high)  # no static operator: never used
    low, high = root.clamp_low, root.clamp_high
    own = clamp_range(node.op, node.args, node.kwargs)
    if own is not None:
        low, high = max(low, own[0]), min(high, own[1])
    return Output(qparams, qparams.bounds(low, high))


def _weighted(
    form: Weighted, weight: Tensor, bias: Tensor | None, grid: QParams, output: Output
) -> tuple[Step, dict[str, QuantizedWeight]]:
    dtype = form.weight.dtype
    quantized = quantize_weight(weight, bias, grid.scale, form.channels, form.n_channels)
    values = quantized.values.to(dtype)
    steps = None if quantized.bias is None else quantized.bias.to(dtype)
    multiplier = grid.scale * quantized.scales.double() / output.qparams.scale
    factors = rescale_factors(form.per_channel(multiplier))

    def step(call: Call) -> Tensor:
        accumulator = form.accumulate(centred(main_input(call), grid), values, steps)
        return output.requantize(accumulator, factors)

    return step, {"weight": quantized}


def _embedding(table: Tensor, output: Output) -> tuple[Step, dict[str, QuantizedWeight]]:
    """Look rows up in an int8 table whose one scale is the output's."""
    scale = output.qparams.scale
    values = to_grid(table, output.qparams, (-WEIGHT_MAX, WEIGHT_MAX))
    stored = centred(values, output.qparams).to(torch.int8)

    def step(call: Call) -> Tensor:
        return tag(F.embedding(call.args[0], values), qparams=output.qparams)

    return step, {"weight": QuantizedWeight(stored, torch.tensor([scale]), None)}


def _norm(
    affine: tuple[Tensor, Tensor], n_dims: int, grid: QParams, output: Output
) -> tuple[Step, dict[str, QuantizedWeight]]:
    factor, offset = (values.float() for values in affine)
    quantized = quantize_weight(
        factor, offset, grid.scale, torch.arange(len(factor), device=factor.device), len(factor)
    )
    shape = (-1, *[1] * max(0, n_dims - 2))
    values = quantized.values.float().reshape(shape)
    steps = None if quantized.bias is None else quantized.bias.float().reshape(shape)
    multiplier = grid.scale * quantized.scales.double() / output.qparams.scale
    factors = rescale_factors(multiplier.reshape(shape))

    def step(call: Call) -> Tensor:
        accumulator = centred(main_input(call), grid).mul_(values)
        return output.requantize(accumulator if steps is None else accumulator.add_(steps), factors)

    return step, {"weight": quantized}


def _dynamic(node: Node, roots: list[Root]) -> tuple[Step, dict[str, QuantizedWeight]]:
    held: dict[str, QuantizedWeight] = {}
    weights = RunTimeWeights(held.__setitem__)
    prepare(weights, node.op, node.args, node.kwargs)

    def step(call: Call) -> Any:
        places = iter(roots)

        def place(x: Tensor) -> Tensor:
            if not x.is_floating_point():
                return x
            root = next(places)
            if root.qparams is not None:
                return _output(root, node).round(x)
            return tag(x.clamp(root.clamp_low, root.clamp_high))

        return map_tensors(place, run_dynamic(weights, call))

    return step, held


def _recurrent(
    node: Node, observation: Observation, resolution: Resolution, outputs: tuple[Output, ...]
) -> tuple[Step, dict[str, QuantizedWeight]]:
    source = node.args[0]
    grid = _grid_of(resolution, source) if isinstance(source, Ref) else observation.grid("h")
    arithmetic = Static(observation, grid)
    cells = make_cells(node.op, node.args, arithmetic)

    def step(call: Call) -> Any:
        result = run_layers(layers_of(call.op, call.args), cells, arithmetic)
        places = iter(outputs)
        return map_tensors(lambda x: tag(x, qparams=next(places).qparams), result)

    return step, arithmetic.weights
