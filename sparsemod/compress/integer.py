"""Exact integer simulation: what a quantized network computes on the chip, bit for bit.

logits = run_integer(quantized, inputs)        # floats that lie on the output's grid
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from sparsemod.compress.fakequant import QParams, round_away
from sparsemod.compress.integer_kernels import KERNELS, looked_up
from sparsemod.compress.integer_lstm import lstm
from sparsemod.compress.quantized_graph import QuantizedGraph, QuantizedOperator
from sparsemod.measure.batches import from_memory, to_memory
from sparsemod.measure.meanings import move

__all__ = ["dequantize", "quantize", "run_integer", "run_stored"]

_BLOCK = 2**22  # values in the largest tensor of a block of samples


def run_integer(quantized: QuantizedGraph, inputs: Any) -> list[Tensor]:
    """Return the outputs as real numbers, in PyTorch's shapes.

    Args:
        quantized: From `sparsemod.compress.graph_quantization.quantize_graph`.
        inputs: What the network takes, of any batch size.
    """
    graph = quantized.graph
    real = to_memory(graph, inputs)
    stored = [quantize(x, quantized.grid(i)) for i, x in zip(graph.inputs, real, strict=True)]
    results = run_stored(quantized, stored)
    outputs = [dequantize(x, quantized.grid(i)) for i, x in zip(graph.outputs, results, strict=True)]
    return from_memory(graph, outputs)


def run_stored(quantized: QuantizedGraph, inputs: Sequence[Tensor]) -> list[Tensor]:
    """Return the stored integers of the outputs for those of the inputs, (samples, *shape) int8 each."""
    largest = max(tensor.n_elements for tensor in quantized.graph.tensors)
    rows = max(1, _BLOCK // max(1, largest))
    with torch.no_grad():
        blocks = [
            _run(quantized, [x[at : at + rows] for x in inputs]) for at in range(0, len(inputs[0]), rows)
        ]
    return [torch.cat(parts) for parts in zip(*blocks, strict=True)]


def quantize(x: Tensor, grid: QParams) -> Tensor:
    """Return the nearest stored integers, as the device that feeds the network has to.

    Example:
        >>> quantize(torch.tensor([-1.0, 0.25, 99.0]), QParams(0.1, 5))
        tensor([ -5,   8, 127], dtype=torch.int8)
    """
    steps = round_away(x.float() / torch.tensor(grid.scale, dtype=torch.float32))
    return steps.add_(grid.zero_point).clamp_(-128, 127).to(torch.int8)


def dequantize(x: Tensor, grid: QParams) -> Tensor:
    """Return the real numbers that stored integers stand for."""
    return (x.float() - grid.zero_point) * grid.scale


def _run(quantized: QuantizedGraph, inputs: Sequence[Tensor]) -> list[Tensor]:
    graph = quantized.graph
    values: dict[int, Tensor] = dict(zip(graph.inputs, inputs, strict=True))
    last_reader = {i: at for at, op in enumerate(graph.operators) for i in op.inputs}
    for at, held in enumerate(quantized.operators):
        operator = held.operator
        for i, x in zip(operator.outputs, _results(quantized, held, values), strict=True):
            values[i] = x.reshape(-1, *graph.tensors[i].shape)
        for i in set(operator.inputs):
            if last_reader[i] == at and i not in graph.outputs:
                del values[i]
    return [values[i] for i in graph.outputs]


def _results(quantized: QuantizedGraph, held: QuantizedOperator, values: dict[int, Tensor]) -> list[Tensor]:
    operator = held.operator
    xs = [values[i] for i in operator.inputs]
    if held.body is not None and held.condition is not None:
        return _loop(held.condition, held.body, operator.attributes["start"], xs[0])
    shape = quantized.graph.tensors[operator.outputs[0]].shape
    if operator.kind == "pad":
        return [_padded(quantized, held, xs[0])]
    moved = move(operator, xs, shape)
    if moved is not None:
        return [moved]
    if held.table is not None:
        return [looked_up(xs[0], torch.from_numpy(held.table))]
    if operator.kind == "unidirectional_sequence_lstm":
        grids = quantized.grid(operator.inputs[0]), quantized.grid(operator.outputs[0])
        return [lstm(held, xs[0], *grids)]
    return [KERNELS[operator.kind](quantized, held, xs)]


def _padded(quantized: QuantizedGraph, held: QuantizedOperator, x: Tensor) -> Tensor:
    grid, value = quantized.grid(held.operator.outputs[0]), float(held.operator.attributes["value"])
    stored = int(quantize(torch.tensor(value), grid)) if abs(value) != float("inf") else -128
    flat = [n for pair in reversed(held.operator.attributes["paddings"]) for n in pair]
    return torch.nn.functional.pad(x, flat, value=stored)


def _loop(condition: QuantizedGraph, body: QuantizedGraph, start: int, x: Tensor) -> list[Tensor]:
    shapes = [body.graph.tensors[i].shape for i in body.graph.inputs]
    carried = [torch.tensor([[start, 0]]).expand(len(x), 2), x.reshape(-1, *shapes[1])]
    for i, shape in zip(body.graph.inputs[2:], shapes[2:], strict=True):
        carried.append(torch.full((len(x), *shape), body.grid(i).zero_point, dtype=torch.int8))
    while bool(_run(condition, carried)[0][0, 0]):
        carried = _run(body, carried)
    return carried
