"""C code of what multiplies with weights: convolutions, matrices, LSTMs."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from sparsemod.compress.quantized_graph import QuantizedOperator, StoredWeight
from sparsemod.compress.tables import SIGMOID_NODES
from sparsemod.errors import UnsupportedOperatorError
from sparsemod.export.c_draft import Draft
from sparsemod.export.c_loops import call, for_each
from sparsemod.export.sparse_weights import encode
from sparsemod.measure.bundle import is_sparse
from sparsemod.measure.bundle_memory import gathering
from sparsemod.measure.lowering.windows import same

__all__ = ["convolution", "fully_connected", "lstm"]

_LARGEST = 2**30  # of an accumulator, shifted to the left by what its rescaling shifts


def convolution(draft: Draft, held: QuantizedOperator) -> str:
    """Return the call of a dense or sparse convolution, depthwise ones included."""
    operator, weight = held.operator, held.weights[0]
    a, depthwise = operator.attributes, operator.kind == "depthwise_conv_2d"
    source, out = draft.shape(operator.inputs[0]), draft.shape(operator.outputs[0])
    kernel = weight.values.shape[1:3]
    filter_ = [(k - 1) * d + 1 for k, d in zip(kernel, a["dilation"], strict=True)]
    pads = same(source[1:3], filter_, a["stride"]) if a["padding"] == "same" else ((0, 0), (0, 0))
    if tuple(kernel) == tuple(a["stride"]) == (1, 1) and not depthwise:
        # All pixels are alike: strips as long as possible.
        source, out = ((1, 1, math.prod(shape[:3]), shape[3]) for shape in (source, out))
    values = weight.values.transpose(3, 1, 2, 0) if depthwise else weight.values
    groups = 1 if depthwise else a["groups"]
    name, sparse = _stored(draft, held, 0, values)
    zero_point = draft.zero_point(operator.inputs[0])
    # The other kernels take the zero point from the input.
    folded = 0 if sparse or depthwise else zero_point
    bias, factors = _summed(draft, held, weight, folded, values.reshape(len(values), -1))
    ends = [
        draft.tensor(i) + (f" + i0 * {math.prod(shape[1:])}" if source[0] > 1 else "")
        for i, shape in ((operator.inputs[0], source), (operator.outputs[0], out))
    ]
    scratch = draft.scratch(operator)
    steps = [*a["stride"], *a["dilation"], pads[0][0], pads[1][0]]
    grids = [zero_point, draft.zero_point(operator.outputs[0]), *held.bounds]
    if sparse:
        draft.use("sparse_depthwise.h" if depthwise else "sparse_conv.h")
        sizes = [*source[1:], *out[1:], *kernel, *([] if depthwise else [groups]), *steps, *grids]
        function = "sm_sparse_depthwise" if depthwise else "sm_sparse_conv"
        ends.append(f"(int32_t *)(void *){scratch}")
        return for_each(source[0], call(function, *sizes, name, bias, *factors, *ends))
    if depthwise:
        draft.use("depthwise.h")
        sizes = [*source[1:], *out[1:3], a["depth_multiplier"], *kernel, *steps, *grids]
        return for_each(source[0], call("sm_depthwise", *sizes, name, bias, *factors, *ends))
    draft.use("conv.h")
    sizes = [*source[1:], *out[1:], *kernel, groups, *steps, *grids, gathering(operator)]
    return for_each(source[0], call("sm_conv", *sizes, name, bias, *factors, *ends, scratch))


def fully_connected(draft: Draft, held: QuantizedOperator) -> str:
    """Return the calls of a matrix, one for each row of the input."""
    operator, weight = held.operator, held.weights[0]
    rows, columns = weight.values.shape
    n = math.prod(draft.shape(operator.inputs[0])) // columns
    bias, factors = _summed(draft, held, weight, draft.zero_point(operator.inputs[0]), weight.values)
    limits = [int(len(weight.scales) > 1), draft.zero_point(operator.outputs[0]), *held.bounds]
    source, out = draft.tensor(operator.inputs[0]), draft.tensor(operator.outputs[0])
    name, sparse = _stored(draft, held, 0, weight.values)
    if not sparse:
        draft.use("matrix.h")
        return call("sm_fully_connected", n, rows, columns, name, bias, *factors, *limits, source, out)
    draft.use("sparse_matrix.h")
    if n > 1:
        source, out = f"{source} + i0 * {columns}", f"{out} + i0 * {rows}"
    shown = (name, rows, columns, bias, *factors, *limits, source, out)
    return for_each(n, call("sm_sparse_fully_connected", *shown))


def lstm(draft: Draft, held: QuantizedOperator) -> str:
    """Return the loop over the steps of an LSTM."""
    operator, cell = held.operator, held.cell
    if cell is None:
        raise RuntimeError("an LSTM without a grid for its cell state")
    n, steps, features = draft.shape(operator.inputs[0])
    hidden = int(operator.attributes["hidden_size"])
    scratch, source, out = draft.scratch(operator), *map(draft.tensor, (*operator.inputs, *operator.outputs))
    zero_point = draft.zero_point(operator.outputs[0])
    lines = []
    for k, weight in enumerate(held.weights):
        rows, columns = weight.values.shape
        grid = operator.inputs[0] if k < 4 else operator.outputs[0]
        bias = _folded(draft, held, weight, draft.zero_point(grid), weight.values, k)
        name, sparse = _stored(draft, held, k, weight.values)
        draft.use("sparse_matrix.h" if sparse else "lstm.h")
        matrix = (name, rows, columns) if sparse else (rows, columns, name)
        rest = (*_factor(held, k), int(k >= 4), "x" if k < 4 else "h", f"gates + {k % 4 * hidden}")
        lines.append(call("sm_sparse_gate" if sparse else "sm_gate", *matrix, bias, *rest))
    draft.use("lstm.h")
    nodes = draft.constants.add("sigmoid", "uint16_t", SIGMOID_NODES, ("sigmoid",))
    shift = 12 + round(math.log2(cell.scale))
    factors = [number for k in (8, 9, 10) for number in _factor(held, k)]
    lines.append(call("sm_lstm_step", hidden, nodes, "gates", *factors, shift, zero_point, "state"))
    lines += ["h = state;", f"state += {hidden};", f"x += {features};"]
    begin = f"{scratch} + {10 * hidden}"
    head = [
        f"const int8_t *x = {source}" + (f" + i0 * {steps * features}" if n > 1 else "") + f", *h = {begin};",
        f"int8_t *state = {out}" + (f" + i0 * {steps * hidden};" if n > 1 else ";"),
        f"int16_t *const gates = (int16_t *)(void *){scratch};",
        f"memset({begin}, {zero_point}, {hidden});",
        f"memset(gates + {4 * hidden}, 0, {2 * hidden});",
        f"for (int t = 0; t < {steps}; ++t) {{",
        *(f"    {line}" for line in lines),
        "}",
    ]
    return for_each(n, "\n".join(head))


def _stored(draft: Draft, held: QuantizedOperator, k: int, rows: NDArray[np.int8]) -> tuple[str, bool]:
    """Return the name of a weight's values, and whether they are a bitmap and the non-zeros.

    Args:
        draft: The bundle.
        held: The operator.
        k: Which of its weights.
        rows: The values with the output channels first, as a sparse kernel reads them.
    """
    operator, weight = held.operator, held.weights[k]
    if is_sparse(draft.graph, operator, operator.weights[k]):
        encoded = np.frombuffer(encode(rows), np.uint8)
        key = (weight.name, operator.kind, "sparse")
        return draft.constants.add("weights", "uint8_t", encoded, key), True
    key = (weight.name, operator.kind, "dense")
    return draft.constants.add("weights", "int8_t", weight.values, key), False


def _summed(
    draft: Draft, held: QuantizedOperator, weight: StoredWeight, zero_point: int, rows: NDArray[np.int8]
) -> tuple[str, tuple[str, str]]:
    """Return the names of biases, multipliers and shifts."""
    bias, factors = _folded(draft, held, weight, zero_point, rows, 0), held.rescalings[0]
    multiplier = draft.constants.add("multiplier", "int32_t", factors.multiplier)
    shift = draft.constants.add("shift", "int8_t", factors.shift.astype(np.int8))
    return bias, (multiplier, shift)


def _folded(
    draft: Draft,
    held: QuantizedOperator,
    weight: StoredWeight,
    zero_point: int,
    rows: NDArray[np.int8],
    k: int,
) -> str:
    """Return the name of the biases from which an input's zero point has been taken."""
    flat = rows.astype(np.int64)
    bias = np.zeros(len(rows), np.int64) if weight.bias is None else weight.bias.astype(np.int64)
    largest = np.abs(bias) + np.abs(flat).sum(1) * 255
    left = np.maximum(held.rescalings[k].shift, 0).astype(np.int64)
    if int((largest << left).max()) >= _LARGEST:
        operator = held.operator
        raise UnsupportedOperatorError(
            f"c: operator {operator.kind} of module {operator.module} has sums of more than 30 bits"
        )
    return draft.constants.add("bias", "int32_t", bias - zero_point * flat.sum(1))


def _factor(held: QuantizedOperator, k: int) -> tuple[int, int]:
    return int(held.rescalings[k].multiplier[0]), int(held.rescalings[k].shift[0])
