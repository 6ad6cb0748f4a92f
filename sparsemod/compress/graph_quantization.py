"""From a network's operator list and samples to the same list in integers.

    graph = lower(net, example)
    quantized = quantize_graph(graph, [samples])

The grids come from the values that the samples take in the list itself. `sparsemod.compress.integer` computes
with the result exactly what the chip does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from sparsemod.compress.fakequant import QParams, activation_qparams, quantize_weight
from sparsemod.compress.fixed_point import Rescaling, rescaling
from sparsemod.compress.quantized_graph import QuantizedGraph, QuantizedOperator, StoredWeight
from sparsemod.compress.ranges import Range, cell_grid, grids, observe
from sparsemod.compress.tables import TABLED, quantize_value, table
from sparsemod.errors import UnsupportedOperatorError
from sparsemod.measure.graph import Operator, OperatorGraph, Weight
from sparsemod.measure.interpreted import interpreted

__all__ = ["check_exportable", "quantize_graph"]

_WEIGHTED = {"conv_2d", "depthwise_conv_2d", "fully_connected"}
_SUMS = {"add", "sub"}
_LIMITS: dict[str, tuple[float | None, float | None]] = {
    "none": (None, None),
    "relu": (0.0, None),
    "relu6": (0.0, 6.0),
    "relu_n1_to_1": (-1.0, 1.0),
}
_MOVES = {
    "max_pool_2d", "average_pool_2d", "reshape", "pad", "transpose", "strided_slice", "reverse", "slice",
    "dynamic_update_slice", "concatenation", "pack", "maximum", "minimum", "reduce_max", "reduce_min",
    "resize_nearest_neighbor", "less", "greater", "count",
}  # fmt: skip
_KNOWN = _WEIGHTED | _SUMS | _MOVES | set(TABLED)
_KNOWN |= {"mul", "mean", "sum", "softmax", "log_softmax", "unidirectional_sequence_lstm", "while"}
_MAX_RANK = {"strided_slice": 4, "concatenation": 4, "add": 4, "sub": 4, "mul": 4, "pad": 4, "transpose": 5}


def quantize_graph(graph: OperatorGraph, calibration: Iterable[Any]) -> QuantizedGraph:
    """Return a network in integers.

    Args:
        graph: From `sparsemod.measure.operators.lower`, with int8 throughout (scheme ``post`` or ``qat``).
        calibration: Batches of the network's inputs, 256 samples or more altogether.

    Raises:
        ConfigError: There is no batch.
        UnsupportedOperatorError: An operator is not among those that can be exported, or has floats.
        CandidateError: A value is not finite.

    Example:
        >>> from sparsemod.measure.operators import lower
        >>> net = torch.nn.Linear(4, 2)
        >>> quantized = quantize_graph(lower(net, torch.zeros(1, 4)), [torch.randn(256, 4)])
        >>> quantized.operators[0].weights[0].values.dtype
        dtype('int8')
    """
    listed = interpreted(graph)
    _check(listed)
    ranges = observe(listed, calibration)
    return _quantized(listed, grids(listed, ranges), ranges)


def check_exportable(graph: OperatorGraph) -> None:
    """Refuse a network with what cannot be exported; this can be said before it is trained.

    Args:
        graph: From `sparsemod.measure.operators.lower`.

    Raises:
        UnsupportedOperatorError: Names operator and module.
    """
    _check(interpreted(graph))


def _check(graph: OperatorGraph) -> None:
    for operator in graph.operators:
        reason = _reason(graph, operator)
        if reason:
            where = f" of module {operator.module}" if operator.module else ""
            raise UnsupportedOperatorError(f"export: operator {operator.kind}{where} {reason}")


def _reason(graph: OperatorGraph, operator: Operator) -> str:
    """Return why an operator cannot be exported, or nothing."""
    tensors = [graph.tensors[i] for i in (*operator.inputs, *operator.outputs)]
    if operator.kind not in _KNOWN:
        return "cannot be exported"
    if any(tensor.dtype == "float32" for tensor in tensors):
        return "computes in float32; only a network that is int8 throughout (post or qat) can be exported"
    rank, most = max(len(tensor.shape) for tensor in tensors), _MAX_RANK.get(operator.kind, 6)
    return f"has tensors of {rank} dimensions, at most {most} can be run" if rank > most else ""


def _quantized(
    graph: OperatorGraph, known: Mapping[str, QParams], ranges: Mapping[str, Range]
) -> QuantizedGraph:
    placed = tuple(known.get(tensor.name) for tensor in graph.tensors)
    draft = QuantizedGraph(graph, placed, ())
    operators = tuple(_operator(draft, operator, known, ranges) for operator in graph.operators)
    return QuantizedGraph(graph, placed, operators)


def _operator(
    draft: QuantizedGraph, operator: Operator, known: Mapping[str, QParams], ranges: Mapping[str, Range]
) -> QuantizedOperator:
    kind = operator.kind
    if kind == "while":
        condition, body = (_quantized(operator.attributes[p], known, ranges) for p in ("condition", "body"))
        return QuantizedOperator(operator, condition=condition, body=body)
    if draft.graph.tensors[operator.outputs[0]].dtype != "int8":
        return QuantizedOperator(operator)
    source, out = draft.grid(operator.inputs[0]), draft.grid(operator.outputs[0])
    if kind in TABLED:
        return QuantizedOperator(operator, table=table(kind, operator.attributes, source, out))
    if kind == "unidirectional_sequence_lstm":
        return _lstm(operator, source, out, cell_grid(draft.graph, operator, ranges))
    if kind in {"softmax", "log_softmax"}:
        return QuantizedOperator(operator, rescalings=_softmax_factors(operator, source))
    bounds = _bounds(operator, out)
    if kind in _WEIGHTED:
        stored = stored_weight(operator.weights[0], source)
        channels = _accumulator_factors(stored, source, out, kind == "fully_connected")
        return QuantizedOperator(operator, (stored,), (rescaling(channels),), bounds)
    weights = tuple(_constant(weight, out, kind) for weight in operator.weights)
    if kind in _SUMS or kind == "mul":
        left, right = _operand_scales(draft, operator, weights)
        if kind == "mul":
            factors: tuple[Rescaling, ...] = (rescaling([left * right / float(np.float32(out.scale))]),)
        else:
            twice = 2 * max(left, right)
            back = twice / (2.0**20 * float(np.float32(out.scale)))
            factors = tuple(rescaling([factor]) for factor in (left / twice, right / twice, back))
        return QuantizedOperator(operator, weights, factors, bounds)
    if kind in {"mean", "sum"}:
        shape = draft.graph.tensors[operator.inputs[0]].shape
        count = prod(shape[i] for i in operator.attributes["axes"]) if kind == "mean" else 1
        return QuantizedOperator(operator, (), (_mean_factor(source, out, count),), bounds)
    return QuantizedOperator(operator, weights, (), bounds)


def stored_weight(weight: Weight, source: QParams) -> StoredWeight:
    """Quantize the weight of an operator that sums up products with an input on a grid."""
    values = torch.from_numpy(np.array(weight.values))
    axis = 0 if weight.axis is None else weight.axis
    n = values.shape[axis]
    channels = torch.arange(n).reshape([-1 if i == axis else 1 for i in range(values.dim())])
    bias = None if weight.bias is None else torch.from_numpy(np.array(weight.bias))
    held = quantize_weight(values, bias, source.scale, channels, n, n if weight.axis is None else 1)
    scales = held.scales.numpy()
    return StoredWeight(
        weight.name,
        held.values.numpy(),
        scales[:1] if weight.axis is None else scales,
        0,
        None if held.bias is None else held.bias.numpy(),
        weight.axis,
    )


def _constant(weight: Weight, out: QParams, kind: str) -> StoredWeight:
    """Quantize a constant operand on a grid of its own, or the output's where the kernel wants that."""
    values = weight.values
    grid = activation_qparams(float(values.min()), float(values.max()))
    if kind in {"maximum", "minimum"}:
        grid = out
    steps = values / np.float32(grid.scale)
    stored = np.copysign(np.floor(np.abs(steps) + np.float32(0.5)), steps) + grid.zero_point
    scales = np.array([grid.scale], np.float32)
    return StoredWeight(weight.name, np.clip(stored, -128, 127).astype(np.int8), scales, grid.zero_point)


def _bounds(operator: Operator, out: QParams) -> tuple[int, int]:
    low, high = _LIMITS[operator.attributes.get("activation", "none")]
    return (
        -128 if low is None else max(-128, quantize_value(low, out)),
        127 if high is None else min(127, quantize_value(high, out)),
    )


def _accumulator_factors(
    stored: StoredWeight, source: QParams, out: QParams, is_matrix: bool
) -> NDArray[np.float64]:
    if is_matrix and len(stored.scales) == 1:
        return _product_factors(stored, source, out.scale)
    return float(np.float32(source.scale)) * stored.scales.astype(np.float64) / float(np.float32(out.scale))


def _product_factors(stored: StoredWeight, source: QParams, scale: float) -> NDArray[np.float64]:
    """Return the factor of a matrix with one scale: the kernel multiplies the scales in float32."""
    return (np.float32(source.scale) * stored.scales).astype(np.float64) / float(np.float32(scale))


def _operand_scales(
    draft: QuantizedGraph, operator: Operator, weights: Sequence[StoredWeight]
) -> tuple[float, float]:
    scales = [float(np.float32(draft.grid(i).scale)) for i in operator.inputs]
    constant = [float(weight.scales[0]) for weight in weights]
    left, right = (constant + scales) if operator.attributes["constant"] == "x" else (scales + constant)
    return left, right


def _mean_factor(source: QParams, out: QParams, count: int) -> Rescaling:
    """Return the factor of a sum with the division by the count in its integer form, as the kernel has it."""
    whole = rescaling([float(np.float32(source.scale)) / float(np.float32(out.scale))])
    shift = min(count.bit_length() - 1, 32, 31 + int(whole.shift[0]))
    multiplier = (int(whole.multiplier[0]) << shift) // count
    return Rescaling(np.array([multiplier], np.int32), np.array([int(whole.shift[0]) - shift], np.int32))


def _softmax_factors(operator: Operator, source: QParams) -> tuple[Rescaling, Rescaling]:
    """Return the factor to numbers with 5 bits before the point, and the one back."""
    factor = float(operator.attributes.get("beta", 1.0)) * float(np.float32(source.scale)) * 2.0**26
    forward = rescaling([min(factor, 2.0**31 - 1)])
    back = 2.0 ** (31 - int(forward.shift[0])) / int(forward.multiplier[0])
    return forward, rescaling([back])


def _lstm(operator: Operator, source: QParams, out: QParams, cell: QParams) -> QuantizedOperator:
    stored = [stored_weight(weight, source) for weight in operator.weights[:4]]
    stored += [stored_weight(weight, out) for weight in operator.weights[4:]]
    factors = [_product_factors(weight, source, 2.0**-12) for weight in stored[:4]]
    factors += [_product_factors(weight, out, 2.0**-12) for weight in stored[4:]]
    unit = 2.0**-15
    hidden = unit * unit / float(np.float32(out.scale))
    factors += [np.array([factor]) for factor in (unit, unit * unit / cell.scale, hidden)]
    return QuantizedOperator(operator, tuple(stored), tuple(rescaling(f) for f in factors), cell=cell)
