"""How often the parts of the C bundle's products with weights are executed.

The counts follow the loops of `sparsemod/export/kernels`: a dense convolution gathers its input as columns
and multiplies two of them with two rows of weights, four products at a time; a depthwise one sums four
channels at a time; a sparse one unpacks the weights of an output
channel and applies them to four pixels at a time. Nothing here is an estimate but the share of empty runs of
sparse weights.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from math import prod

import numpy as np
from numpy.typing import NDArray

from sparsemod.measure.bundle import is_sparse
from sparsemod.measure.bundle_memory import gathering
from sparsemod.measure.graph import Operator, OperatorGraph, Weight
from sparsemod.measure.lowering.windows import same
from sparsemod.measure.sizes import nonzero_int8

__all__ = ["Work", "convolution", "depthwise", "fully_connected", "lstm", "valid_taps"]

Work = dict[str, float]
"""Executions by the name of what is executed."""

Range = tuple[int, int]


def convolution(graph: OperatorGraph, operator: Operator) -> Work:
    """Return the work of a convolution, dense or sparse, that is not depthwise."""
    weight = operator.weights[0]
    axes, out, kernel = _axes(graph, operator)
    batch, n_groups = out[0], int(operator.attributes.get("groups", 1))
    if is_sparse(graph, operator, weight):
        return _times(_sparse_convolution(weight, axes, out, n_groups), batch)
    depth, n_rows = int(weight.values.shape[3]), out[3] // n_groups
    n_taps, n_pixels, direct = prod(kernel), out[1] * out[2], gathering(operator)
    inside = prod(sum(end - begin == k for begin, end in axis) for axis, k in zip(axes, kernel, strict=True))
    inside = 0 if direct < 0 else inside
    valid = prod(sum(end - begin for begin, end in axis) for axis in axes) - inside * n_taps
    padding = (n_pixels - inside) * n_taps - valid
    runs, run = (inside * kernel[0], kernel[1] * depth) if direct == 0 else (0, 0)
    work = {
        "conv.calls": 1.0,
        "conv.groups": n_groups,
        "conv.pixels": n_groups * n_pixels,
        "conv.runs": n_groups * runs,
        "conv.taps": n_groups * valid,
        "conv.copied_words": n_groups * (runs * (run // 4) + valid * (depth // 4)),
        "conv.copied_bytes": n_groups * (runs * (run % 4) + valid * (depth % 4)),
        "conv.padding_taps": n_groups * padding,
        "conv.padding_bytes": n_groups * padding * depth,
    }
    return _times(work | _columns(n_groups * -(-n_pixels // 2), n_rows, n_taps * depth), batch)


def depthwise(graph: OperatorGraph, operator: Operator) -> Work:
    """Return the work of a depthwise convolution."""
    axes, out, kernel = _axes(graph, operator)
    if is_sparse(graph, operator, operator.weights[0]):
        return _times(_sparse_depthwise(graph, operator, out, kernel), out[0])
    (rows, taps), n_pixels = _rows_and_taps(axes), out[1] * out[2]
    fours = out[3] // 4 if operator.attributes.get("depth_multiplier", 1) == 1 else 0
    singles = out[3] - 4 * fours
    work = {
        "depthwise.calls": 1.0,
        "depthwise.pixels": n_pixels,
        "depthwise.fours": n_pixels * fours,
        "depthwise.four_rows": rows * fours,
        "depthwise.four_taps": taps * fours,
        "depthwise.singles": n_pixels * singles,
        "depthwise.single_rows": rows * singles,
        "depthwise.single_taps": taps * singles,
    }
    return _times(work, out[0])


def fully_connected(graph: OperatorGraph, operator: Operator) -> Work:
    """Return the work of a matrix times each row of its input."""
    weight = operator.weights[0]
    rows, columns = (int(n) for n in weight.values.shape)
    n = max(1, graph.tensors[operator.inputs[0]].n_elements // columns)
    if is_sparse(graph, operator, weight):
        work = {"sparse_fc.calls": 1.0, "sparse_fc.rows": rows} | _dots(weight)
        return _times(work, n)
    pairs = -(-rows // 2)
    work = {"fc.calls": 1.0} | _columns(n // 2, rows, columns)
    if n % 2:
        work |= {
            "column.calls": 1.0,
            "column.pairs": pairs,
            "column.fours": pairs * (columns // 4),
            "column.rest": pairs * (columns % 4),
            "column.rows": 2 * pairs,
        }
    return work


def lstm(graph: OperatorGraph, operator: Operator) -> Work:
    """Return the work of an LSTM: eight matrices and the state at each step."""
    n, steps, _ = graph.tensors[operator.inputs[0]].shape
    total: Counter[str] = Counter()
    for k, weight in enumerate(operator.weights):
        rows, columns = (int(n) for n in weight.values.shape)
        pairs = -(-rows // 2)
        if is_sparse(graph, operator, weight):
            total.update({"sparse_gate.calls": 1, "sparse_gate.rows": rows})
            total.update(_dots(weight, "gate_dot"))
        else:
            total.update(
                {
                    "gate.calls": 1,
                    "gate.pairs": pairs,
                    "gate.fours": pairs * (columns // 4),
                    "gate.rest": pairs * (columns % 4),
                    "gate.rows": rows,
                }
            )
        total.update({"gate.added": rows if k >= len(operator.weights) // 2 else 0})
    total.update({"lstm.steps": 1, "lstm.units": int(operator.attributes["hidden_size"])})
    return {"lstm.calls": float(n)} | _times(total, n * steps)


def valid_taps(size: int, out: int, kernel: int, stride: int, dilation: int, pad: int) -> list[Range]:
    """Return for each output along an axis the taps, from and to, that lie in the input.

    Example:
        >>> valid_taps(4, 4, 3, 1, 1, 1)
        [(1, 3), (0, 3), (0, 3), (0, 2)]
    """
    taps = []
    for i in range(out):
        at = i * stride - pad
        begin = 0 if at >= 0 else min(kernel, (dilation - 1 - at) // dilation)
        inside = at + (kernel - 1) * dilation < size
        end = kernel if inside else max(begin, (size - at + dilation - 1) // dilation)
        taps.append((begin, end))
    return taps


def _axes(
    graph: OperatorGraph, operator: Operator
) -> tuple[tuple[list[Range], list[Range]], tuple[int, ...], tuple[int, ...]]:
    """Return the valid taps along both axes, the shape of the output, and the kernel's."""
    source = graph.tensors[operator.inputs[0]].shape
    out = graph.tensors[operator.outputs[0]].shape
    kernel = tuple(int(n) for n in operator.weights[0].values.shape[1:3])
    if kernel == tuple(operator.attributes["stride"]) == (1, 1) and operator.kind == "conv_2d":
        # All pixels are alike and computed as one row.
        source, out = ((1, 1, prod(shape[:3]), shape[3]) for shape in (source, out))
    pads = _pads(operator, source, kernel)
    a = operator.attributes
    rows, columns = (
        valid_taps(source[1 + i], out[1 + i], kernel[i], a["stride"][i], a["dilation"][i], pads[i])
        for i in (0, 1)
    )
    return (rows, columns), out, kernel


def _pads(operator: Operator, source: Sequence[int], kernel: Sequence[int]) -> tuple[int, int]:
    a = operator.attributes
    if a["padding"] != "same":
        return 0, 0
    filter_ = [(k - 1) * d + 1 for k, d in zip(kernel, a["dilation"], strict=True)]
    (top, _), (left, _) = same(source[1:3], filter_, a["stride"])
    return top, left


def _rows_and_taps(axes: tuple[list[Range], list[Range]]) -> tuple[int, int]:
    rows, columns = (sum(end - begin for begin, end in axis) for axis in axes)
    return rows * len(axes[1]), rows * columns


def _columns(calls: int, rows: int, n: int) -> Work:
    pairs = calls * -(-rows // 2)
    return {
        "columns.calls": calls,
        "columns.pairs": pairs,
        "columns.fours": pairs * (n // 4),
        "columns.rest": pairs * (n % 4),
        "columns.rows": calls * rows,
    }


def _times(work: Work | Counter[str], n: int) -> Work:
    return {name: float(n * count) for name, count in work.items()}


def _chunks(n_rows: int, n: int, words: bool) -> tuple[int, int, int]:
    """Return words (only if they may be), chunks and single bytes of a bitmap that is read row by row."""

    def row(at: int) -> tuple[int, int, int]:
        whole = chunks = single = 0
        left = n
        while left > 0:
            if words and left >= 32 and at % 8 == 0:
                whole += left // 32
                at, left = at + left // 32 * 32, left % 32
                continue
            chunk = min(left, 32 - at % 8)
            end = at % 8 + chunk
            chunks += 1
            single += -(-end // 8) if end <= 24 else 0
            at, left = at + chunk, left - chunk
        return whole, chunks, single

    times = Counter(i * n % 8 for i in range(n_rows))
    parts = [(count, row(at)) for at, count in times.items()]
    whole, chunks, single = (sum(count * part[i] for count, part in parts) for i in range(3))
    return whole, chunks, single


def _dots(weight: Weight, name: str = "dot") -> Work:
    rows, columns = (int(n) for n in weight.values.shape)
    words, chunks, single = _chunks(rows, columns, words=True)
    return {
        f"{name}.nonzeros": int(np.count_nonzero(nonzero_int8(weight))),
        f"{name}.words": words,
        f"{name}.chunks": chunks,
        f"{name}.bytes": single,
    }


def _inside(taps: list[Range], kernel: int) -> Range:
    """Return the outputs from and to at which all taps are valid; none where there are fewer than four."""
    begin = next((i for i, (first, _) in enumerate(taps) if first == 0), len(taps))
    end = next((len(taps) - i for i, (_, last) in enumerate(reversed(taps)) if last == kernel), 0)
    return (begin, end) if end - begin >= 4 else (0, 0)


def _outside(taps: list[Range], inside: Range) -> list[Range]:
    return [tap for i, tap in enumerate(taps) if not inside[0] <= i < inside[1]]


def _strips(
    axes: tuple[list[Range], list[Range]], kernel: tuple[int, int]
) -> Iterator[tuple[int, Range, Range, int]]:
    """Yield how often a strip is computed, its rows and columns of taps, and its outputs."""
    in_y, in_x = (_inside(taps, k) for taps, k in zip(axes, kernel, strict=True))
    left_right = Counter(_outside(axes[1], in_x))
    for rows, times in Counter(axes[0]).items():
        yield times, rows, (0, kernel[1]), in_x[1] - in_x[0]
    for rows, times in Counter(_outside(axes[0], in_y)).items():
        for columns, n in left_right.items():
            yield times * n, rows, columns, 1
    if in_y[0] < in_y[1]:
        for columns, n in left_right.items():
            yield n, (0, kernel[0]), columns, in_y[1] - in_y[0]


def _sparse_convolution(
    weight: Weight, axes: tuple[list[Range], list[Range]], out: tuple[int, ...], n_groups: int
) -> Work:
    nonzero: NDArray[np.bool_] = nonzero_int8(weight)
    n_channels, height, width, depth = nonzero.shape
    by_tap = nonzero.sum((0, 3))
    _, chunks, single = _chunks(n_channels, height * width * depth, words=False)
    work: Counter[str] = Counter()
    for times, (top, bottom), (left, right), n in _strips(axes, (height, width)):
        entries = int(by_tap[top:bottom, left:right].sum())
        runs = bottom - top if right - left < width else 1
        work["sparse.strips"] += times * n_channels
        work["sparse.strip_runs"] += times * n_channels * runs
        groups, kind = (-(-n // 4), "four") if n >= 4 else (n, "one")
        work[f"sparse.{kind}s"] += times * groups * n_channels
        work[f"sparse.{kind}_runs"] += times * groups * n_channels * runs
        work[f"sparse.{kind}_entries"] += times * groups * entries
        work["sparse.stored"] += times * n_channels * groups * (4 if n >= 4 else 1)
    return {
        "sparse.calls": 1.0,
        "sparse.channels": n_channels,
        "sparse.rows": n_channels * out[1],
        "sparse.taps": n_channels * height * width,
        "sparse.nonzeros": int(by_tap.sum()),
        "sparse.chunks": chunks,
        "sparse.bytes": single,
        **work,
    }


def _sparse_depthwise(
    graph: OperatorGraph, operator: Operator, out: tuple[int, ...], kernel: tuple[int, ...]
) -> Work:
    weight, a = operator.weights[0], operator.attributes
    source = graph.tensors[operator.inputs[0]].shape
    pads, n = _pads(operator, source, kernel), out[3]
    _, chunks, single = _chunks(n, prod(kernel), words=False)
    row = (out[2] - 1) * a["stride"][1] + (kernel[1] - 1) * a["dilation"][1] + 1
    last = (out[1] - 1) * a["stride"][0] - pads[0] + (kernel[0] - 1) * a["dilation"][0] + 1
    filled, real = last + pads[0], min(last, source[1])
    copied = min(source[2], row - pads[1])
    nine = kernel == (3, 3) and a["dilation"][1] == 1
    work: Work = {
        "sparse_depthwise.calls": 1.0,
        "sparse_depthwise.channels": n,
        "sparse_depthwise.nonzeros": int(np.count_nonzero(nonzero_int8(weight))),
        "sparse_depthwise.chunks": chunks,
        "sparse_depthwise.bytes": single,
        "sparse_depthwise.taps": n * prod(kernel),
        "sparse_depthwise.filled": n * filled,
        "sparse_depthwise.copied": n * real * copied,
        "sparse_depthwise.cleared": n * (filled * row - real * copied),
        "sparse_depthwise.stored": n * out[1] * out[2],
    }
    if nine:
        return work | {
            "sparse_depthwise.nine_rows": n * out[1],
            "sparse_depthwise.nines": n * out[1] * out[2],
        }
    lines = n * out[1] * kernel[0]
    return work | {
        "sparse_depthwise.rows": n * out[1],
        "sparse_depthwise.lines": lines,
        "sparse_depthwise.line_outputs": lines * out[2],
        "sparse_depthwise.line_taps": lines * out[2] * kernel[1],
    }
