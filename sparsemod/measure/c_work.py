"""How often the parts of the C bundle's kernels are executed, operator by operator.

`c_work` gives the executions by name (``conv.pixels``, ``columns.fours``); `sparsemod.measure.c_costs` holds
what one of each takes on a core. Names that end in ``.calls`` are executed once an operator: they hold what
the call itself takes. An operator that the bundle has no kernel for counts as one that it has and that does
about the same.
"""

from __future__ import annotations

from collections import Counter
from math import prod

from sparsemod.measure.bundle import LSTM
from sparsemod.measure.c_products import Work, convolution, depthwise, fully_connected, lstm, valid_taps
from sparsemod.measure.graph import Operator, OperatorGraph
from sparsemod.measure.loops import RECURRENT_LOOPS, loop_graphs
from sparsemod.measure.lowering.windows import same
from sparsemod.measure.strides import broadcast, contiguous, merged

__all__ = ["c_work"]

_SUMS = {"add", "sub"}
_PRODUCTS = {"mul", "div", "prelu", "relu6", "relu_n1_to_1", "neg"}
_LARGER = {"maximum", "minimum"}
_POOLS = {"max_pool_2d": "max_pool", "average_pool_2d": "average_pool"}
_REDUCTIONS = {"mean": "mean", "sum": "mean", "reduce_max": "largest", "reduce_min": "largest"}
_MATRICES = {"transpose_conv", "batch_matmul"}
_COUNTERS = {"slice", "count", "less", "greater"}


def c_work(graph: OperatorGraph, operator: Operator, *, dsp: bool) -> Work:
    """Return the executions of an operator's parts.

    Args:
        graph: The list that it stands in.
        operator: Of `sparsemod.measure.operators.lower` or `sparsemod.measure.interpreted.interpreted`.
        dsp: Whether the core adds products of halves of a word in one instruction: M4, M7, M33, M55.

    Example:
        A matrix of 5 rows and 10 columns takes three pairs of rows, and in each two groups of four products
        and two more:

        >>> import numpy as np
        >>> from sparsemod.measure.graph import TensorSpec, Weight
        >>> x, y = TensorSpec(0, "x", (1, 10), "int8"), TensorSpec(1, "y", (1, 5), "int8")
        >>> product = Operator("fully_connected", (0,), (1,), (Weight("w", np.ones((5, 10), np.float32)),))
        >>> work = c_work(OperatorGraph((x, y), (product,), (0,), (1,), (), ()), product, dsp=True)
        >>> work["column.pairs"], work["column.fours"], work["column.rest"]
        (3.0, 6.0, 6.0)
    """
    kind = operator.kind
    if not operator.outputs or kind == "reshape" or kind in _COUNTERS:
        return {}
    work = _of_kind(graph, operator, dsp)
    return {name: float(count) for name, count in work.items() if count}


def _of_kind(graph: OperatorGraph, operator: Operator, dsp: bool) -> Work:
    kind = operator.kind
    if kind == "conv_2d":
        return convolution(graph, operator)
    if kind == "depthwise_conv_2d":
        return depthwise(graph, operator)
    if kind == "fully_connected":
        return fully_connected(graph, operator)
    if kind == LSTM:
        turned = _sequence_copies(graph, operator) if operator.attributes["reverse"] else {}
        return lstm(graph, operator) | turned
    if kind == "while":
        return _loop(operator.attributes["body"], int(operator.attributes["n_steps"]), dsp)
    if kind in RECURRENT_LOOPS:
        return _recurrent(graph, operator, dsp)
    if kind in _POOLS:
        return _pool(graph, operator, dsp)
    if kind in _REDUCTIONS:
        return _reduction(graph, operator)
    out = graph.tensors[operator.outputs[0]].n_elements
    if kind in {"softmax", "log_softmax"}:
        rows = prod(graph.tensors[operator.outputs[0]].shape[:-1])
        return {f"{kind}.calls": 1, f"{kind}.rows": rows, f"{kind}.elements": out}
    if kind in _MATRICES or kind.startswith("other:"):
        elements = {"add.elements": float(out)} if kind.startswith("other:") else {}
        return {"column.fours": operator.n_macs / 8, "column.rows": float(out), **elements}
    if kind in _SUMS | _PRODUCTS | _LARGER:
        name = "add" if kind in _SUMS else "mul" if kind in _PRODUCTS else "larger"
        return _binary(graph, operator, name)
    copies = _copies(graph, operator)
    return {"table.calls": 1, "table.elements": out} if copies is None else copies


def _binary(graph: OperatorGraph, operator: Operator, name: str) -> Work:
    out = graph.tensors[operator.outputs[0]].shape
    operands = [graph.tensors[i].shape for i in operator.inputs] + [w.values.shape for w in operator.weights]
    steps = [contiguous(out), *(broadcast(shape[-len(out) :], out) for shape in operands)]
    sizes, _ = merged(out, steps)
    return {f"{name}.calls": 1, f"{name}.runs": prod(sizes[:-1]), f"{name}.elements": prod(out)}


def _pool(graph: OperatorGraph, operator: Operator, dsp: bool) -> Work:
    name, a = _POOLS[operator.kind], operator.attributes
    source = graph.tensors[operator.inputs[0]].shape
    batch, height, width, channels = graph.tensors[operator.outputs[0]].shape
    pads = same(source[1:3], a["filter"], a["stride"]) if a["padding"] == "same" else ((0, 0), (0, 0))
    rows, columns = (
        sum(
            end - begin
            for begin, end in valid_taps(source[1 + i], n, a["filter"][i], a["stride"][i], 1, pads[i][0])
        )
        for i, n in ((0, height), (1, width))
    )
    whole = name == "max_pool" and dsp and a.get("activation", "none") == "none"
    fours = channels // 4 if whole else 0
    singles = channels - 4 * fours
    pixels = batch * height * width
    return {
        f"{name}.calls": batch,
        f"{name}.pixels": pixels,
        f"{name}.fours": pixels * fours,
        f"{name}.four_rows": batch * rows * width * fours,
        f"{name}.four_taps": batch * rows * columns * fours,
        f"{name}.singles": pixels * singles,
        f"{name}.single_rows": batch * rows * width * singles,
        f"{name}.single_taps": batch * rows * columns * singles,
    }


def _reduction(graph: OperatorGraph, operator: Operator) -> Work:
    name, shape = _REDUCTIONS[operator.kind], graph.tensors[operator.inputs[0]].shape
    axes = {axis % len(shape) for axis in operator.attributes["axes"]}
    steps = contiguous(shape)
    gone, _ = merged([shape[i] for i in sorted(axes)], [[steps[i] for i in sorted(axes)]])
    n, kept = prod(shape), prod(size for i, size in enumerate(shape) if i not in axes)
    return {
        f"{name}.calls": 1,
        f"{name}.outputs": kept,
        f"{name}.runs": kept * prod(gone[:-1]),
        f"{name}.elements": n,
    }


def _copy(shape: tuple[int, ...], target: list[int], source: list[int]) -> Counter[str]:
    sizes, steps = merged(shape, [target, source])
    if not sizes or [s[-1] for s in steps] == [1, 1]:
        return Counter({"copy.calls": prod(sizes[:-1]), "copy.bytes": prod(shape)})
    return Counter({"copy.runs": prod(sizes[:-1]), "copy.elements": prod(shape)})


def _copies(graph: OperatorGraph, operator: Operator) -> Work | None:
    """Return the work of what moves data; None for other kinds."""
    kind, a = operator.kind, operator.attributes
    out = graph.tensors[operator.outputs[0]].shape
    shape = graph.tensors[operator.inputs[0]].shape
    steps = contiguous(shape)
    if kind == "transpose":
        return _copied(out, [steps[i] for i in a["permutation"]])
    if kind == "reverse":
        steps[a["axis"]] *= -1
        return _copied(out, steps)
    if kind == "strided_slice":
        steps[a["axis"]] *= a["stride"]
        return _copied(out, steps)
    if kind in {"concatenation", "pack"}:
        total: Counter[str] = Counter()
        for i in operator.inputs:
            part = list(graph.tensors[i].shape)
            if kind == "pack":
                part.insert(a["axis"] % len(out), 1)
            total.update(_copy(tuple(part), contiguous(out), contiguous(part)))
        return {"join.calls": 1.0, **total}
    if kind == "pad":
        inside = _copy(shape, contiguous(out), steps)
        return {"fill.calls": 1.0, "fill.bytes": prod(out), **inside}
    if kind in {"resize_nearest_neighbor", "resize_bilinear"}:
        pixels = prod(out[:3])
        return {"nearest.pixels": pixels, "copy.calls": pixels, "copy.bytes": prod(out)}
    if kind in {"dynamic_update_slice", "gather"}:
        return {"copy.calls": 1, "copy.bytes": graph.tensors[operator.inputs[-1]].n_elements}
    return None


def _copied(out: tuple[int, ...], steps: list[int]) -> Work:
    if len(steps) != len(out):
        return {"copy.runs": 1.0, "copy.elements": prod(out)}
    return dict(_copy(out, contiguous(out), steps))


def _sequence_copies(graph: OperatorGraph, operator: Operator) -> Work:
    """Return what it takes to turn a sequence round, and its states."""
    total: Counter[str] = Counter()
    for i in (operator.inputs[0], operator.outputs[0]):
        n, steps, size = graph.tensors[i].shape
        total.update({"copy.calls": n * steps, "copy.bytes": n * steps * size})
    return dict(total)


def _recurrent(graph: OperatorGraph, operator: Operator, dsp: bool) -> Work:
    n, n_steps, _ = graph.tensors[operator.inputs[0]].shape
    dtype = graph.tensors[operator.outputs[0]].dtype
    readers = [op for op in graph.operators if operator.outputs[0] in op.inputs]
    is_read = operator.outputs[0] in graph.outputs or [op.kind for op in readers] != ["strided_slice"]
    _, body = loop_graphs(operator, "", n_steps, dtype, is_read)
    work = _loop(body, n_steps, dsp)
    return {name: n * count for name, count in work.items()}


def _loop(body: OperatorGraph, n_steps: int, dsp: bool) -> Work:
    state = body.tensors[body.inputs[2]].n_elements
    total: Counter[str] = Counter({"loop.steps": 1, "copy.calls": 1, "copy.bytes": state})
    for operator in body.operators:
        for name, count in c_work(body, operator, dsp=dsp).items():
            total[name] += count  # type: ignore[assignment]
    return {"loop.calls": 1.0} | {name: float(n_steps * count) for name, count in total.items()}
