"""C code of each operator."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

from sparsemod.compress.integer import quantize
from sparsemod.compress.quantized_graph import QuantizedOperator
from sparsemod.errors import UnsupportedOperatorError
from sparsemod.export.c_draft import Draft
from sparsemod.export.c_loops import call, copy, for_each, indented, nested, over, place
from sparsemod.export.c_products import convolution, fully_connected, lstm
from sparsemod.measure.lowering.windows import same
from sparsemod.measure.strides import broadcast, contiguous, merged

__all__ = ["statements"]

Emit = Callable[[Draft, QuantizedOperator], str]


def statements(draft: Draft, held: QuantizedOperator) -> str:
    """Return the C statements that execute an operator; empty where nothing has to be done.

    Raises:
        UnsupportedOperatorError: The bundle has no kernel for it.
    """
    operator = held.operator
    if held.body is not None:
        return _loop(draft, held)
    if held.table is not None:
        draft.use("elements.h")
        n = math.prod(draft.shape(operator.inputs[0]))
        table = draft.constants.add("table", "int8_t", held.table)
        return call("sm_look_up", n, table, *_ends(draft, held))
    emit = _EMITTERS.get(operator.kind)
    if emit is None:
        where = f" of module {operator.module}" if operator.module else ""
        raise UnsupportedOperatorError(f"c: operator {operator.kind}{where} cannot be exported")
    return emit(draft, held)


def _ends(draft: Draft, held: QuantizedOperator) -> tuple[str, str]:
    return draft.tensor(held.operator.inputs[0]), draft.tensor(held.operator.outputs[0])


def _sum(draft: Draft, held: QuantizedOperator) -> str:
    left, right = _zero_points(draft, held)
    by_left, by_right, back = ((int(f.multiplier[0]), int(f.shift[0])) for f in held.rescalings)
    sign = 1 if held.operator.kind == "add" else -1
    out = draft.zero_point(held.operator.outputs[0])
    return _binary(draft, held, "sm_add", sign, left, *by_left, right, *by_right, *back, out, *held.bounds)


def _product(draft: Draft, held: QuantizedOperator) -> str:
    out, factor = draft.zero_point(held.operator.outputs[0]), held.rescalings[0]
    scale = int(factor.multiplier[0]), int(factor.shift[0])
    return _binary(draft, held, "sm_mul", *_zero_points(draft, held), *scale, out, *held.bounds)


def _larger(draft: Draft, held: QuantizedOperator) -> str:
    return _binary(draft, held, f"sm_{held.operator.kind}")


def _zero_points(draft: Draft, held: QuantizedOperator) -> tuple[int, int]:
    known = [draft.zero_point(i) for i in held.operator.inputs]
    constant = [weight.zero_point for weight in held.weights]
    left, right = (constant + known) if held.operator.attributes["constant"] == "x" else (known + constant)
    return left, right


def _binary(draft: Draft, held: QuantizedOperator, function: str, *settings: int) -> str:
    operator = held.operator
    draft.use("elements.h")
    out = draft.shape(operator.outputs[0])
    operands = [(draft.tensor(i), draft.shape(i)) for i in operator.inputs]
    for weight in held.weights:
        name = draft.constants.add("values", "int8_t", weight.values, (weight.name, operator.kind, "dense"))
        where = 0 if operator.attributes.get("constant") == "x" else len(operands)
        operands.insert(where, (name, weight.values.shape))
    arrays = [(draft.tensor(operator.outputs[0]), contiguous(out))]
    arrays += [(text, broadcast(shape, out)) for text, shape in operands]

    def inner(n: int, places: list[str], steps: list[int]) -> str:
        return call(function, n, steps[1], steps[2], *settings, places[1], places[2], places[0])

    return over(out, arrays, inner)


def _reduction(draft: Draft, held: QuantizedOperator) -> str:
    operator = held.operator
    shape = draft.shape(operator.inputs[0])
    axes = {axis % len(shape) for axis in operator.attributes["axes"]}
    steps = contiguous(shape)
    kept, (kept_steps,) = merged(
        [n for i, n in enumerate(shape) if i not in axes], [[s for i, s in enumerate(steps) if i not in axes]]
    )
    gone, (gone_steps,) = merged([shape[i] for i in sorted(axes)], [[steps[i] for i in sorted(axes)]])
    source, out = _ends(draft, held)
    count = math.prod(gone)
    own = place("from", gone_steps, len(kept))
    start, step, result = _accumulation(draft, held, own, count)
    body = f"const int8_t *const from = {place(source, kept_steps)};\n{start}\n"
    body += nested(gone, step, len(kept)) + f"\n*to++ = {result};"
    return f"int8_t *to = {out};\n{nested(kept, body)}"


def _accumulation(draft: Draft, held: QuantizedOperator, own: str, count: int) -> tuple[str, str, str]:
    """Return how a reduction starts, what it does with an element, and what it comes to."""
    operator = held.operator
    if operator.kind in {"reduce_max", "reduce_min"}:
        sign = ">" if operator.kind == "reduce_max" else "<"
        first = -128 if sign == ">" else 127
        return f"int acc = {first};", f"if (*({own}) {sign} acc) {{\n    acc = *({own});\n}}", "(int8_t)acc"
    draft.use("common.h")
    factor, out = held.rescalings[0], draft.zero_point(operator.outputs[0])
    if (255 * count) << max(0, int(factor.shift[0])) >= 2**30:
        raise UnsupportedOperatorError(
            f"c: operator {operator.kind} of module {operator.module} has sums of more than 30 bits"
        )
    start = f"int32_t acc = {-draft.zero_point(operator.inputs[0]) * count};"
    scaled = f"sm_requantize(acc, {int(factor.multiplier[0])}, {int(factor.shift[0])})"
    return (
        start,
        f"acc += *({own});",
        f"(int8_t)sm_clamp({scaled} + {out}, {held.bounds[0]}, {held.bounds[1]})",
    )


def _pool(draft: Draft, held: QuantizedOperator) -> str:
    operator = held.operator
    draft.use("pool.h")
    a, source, out = operator.attributes, draft.shape(operator.inputs[0]), draft.shape(operator.outputs[0])
    pads = same(source[1:3], a["filter"], a["stride"]) if a["padding"] == "same" else ((0, 0), (0, 0))
    window = [*source[1:], *out[1:3], *a["filter"], *a["stride"], pads[0][0], pads[1][0], *held.bounds]
    function = "sm_max_pool" if operator.kind == "max_pool_2d" else "sm_average_pool"
    ends = [
        text + (f" + i0 * {math.prod(shape[1:])}" if source[0] > 1 else "")
        for text, shape in zip(_ends(draft, held), (source, out), strict=True)
    ]
    return for_each(source[0], call(function, *window, *ends))


def _softmax(draft: Draft, held: QuantizedOperator) -> str:
    draft.use("softmax.h")
    shape = draft.shape(held.operator.inputs[0])
    forward, back = held.rescalings
    shift = int(forward.shift[0])
    lowest = -int(31 * 2.0**26 / 2.0**shift)
    rows = math.prod(shape[:-1]), shape[-1], int(forward.multiplier[0]), shift
    if held.operator.kind == "softmax":
        return call("sm_softmax", *rows, lowest, *_ends(draft, held))
    back_factor = int(back.multiplier[0]), int(back.shift[0])
    return call("sm_log_softmax", *rows, *back_factor, lowest, *_ends(draft, held))


def _nothing(draft: Draft, held: QuantizedOperator) -> str:
    return ""


def _transpose(draft: Draft, held: QuantizedOperator) -> str:
    steps = contiguous(draft.shape(held.operator.inputs[0]))
    order = held.operator.attributes["permutation"]
    return _copied(draft, held, 0, [steps[i] for i in order])


def _reverse(draft: Draft, held: QuantizedOperator) -> str:
    shape, axis = draft.shape(held.operator.inputs[0]), held.operator.attributes["axis"]
    steps = contiguous(shape)
    offset = (shape[axis] - 1) * steps[axis]
    steps[axis] = -steps[axis]
    return _copied(draft, held, offset, steps)


def _strided_slice(draft: Draft, held: QuantizedOperator) -> str:
    a, steps = held.operator.attributes, contiguous(draft.shape(held.operator.inputs[0]))
    offset = range(draft.shape(held.operator.inputs[0])[a["axis"]])[a["begin"]] * steps[a["axis"]]
    steps[a["axis"]] *= a["stride"]
    return _copied(draft, held, offset, steps)


def _copied(draft: Draft, held: QuantizedOperator, offset: int, steps: list[int]) -> str:
    source, out = _ends(draft, held)
    shape = draft.shape(held.operator.outputs[0])
    if len(steps) != len(shape):
        raise RuntimeError(f"{held.operator.kind} changes the number of dimensions")
    return copy(shape, (out, contiguous(shape)), (f"{source} + {offset}" if offset else source, steps))


def _joins(draft: Draft, held: QuantizedOperator) -> str:
    operator = held.operator
    out = draft.shape(operator.outputs[0])
    axis = operator.attributes["axis"] % len(out)
    steps, at, parts = contiguous(out), 0, []
    for i in operator.inputs:
        shape = list(draft.shape(i))
        if operator.kind == "pack":
            shape.insert(axis, 1)
        target = draft.tensor(operator.outputs[0]) + (f" + {at * steps[axis]}" if at else "")
        parts.append(copy(shape, (target, steps), (draft.tensor(i), contiguous(shape))))
        at += shape[axis]
    return "\n".join(parts)


def _pad(draft: Draft, held: QuantizedOperator) -> str:
    operator = held.operator
    paddings, value = operator.attributes["paddings"], float(operator.attributes["value"])
    shape, out = draft.shape(operator.inputs[0]), draft.shape(operator.outputs[0])
    grid = draft.quantized.grid(operator.outputs[0])
    stored = -128 if abs(value) == float("inf") else int(quantize(torch.tensor(value), grid))
    steps, (source, target) = contiguous(out), _ends(draft, held)
    offset = sum(before * step for (before, _), step in zip(paddings, steps, strict=True))
    inside = copy(shape, (f"{target} + {offset}" if offset else target, steps), (source, contiguous(shape)))
    return f"memset({target}, {stored}, {math.prod(out)});\n{inside}"


def _nearest(draft: Draft, held: QuantizedOperator) -> str:
    operator = held.operator
    source, out = draft.shape(operator.inputs[0]), draft.shape(operator.outputs[0])
    (_, height, width, channels), (batch, rows, columns, _) = source, out
    read, written = _ends(draft, held)
    at = f"((i0 * {height} + i1 * {height} / {rows}) * {width} + i2 * {width} / {columns}) * {channels}"
    to = f"((i0 * {rows} + i1) * {columns} + i2) * {channels}"
    body = f"memcpy({written} + {to}, {read} + {at}, {channels});"
    return nested([batch, rows, columns], body)


def _loop(draft: Draft, held: QuantizedOperator) -> str:
    """Return a recurrent layer: the state begins at zero, the counter is a variable of C."""
    operator, body = held.operator, held.body
    if body is None:
        raise RuntimeError("a loop without a body")
    inner = body.graph
    cut = next(op for op in inner.operators if op.kind == "slice")
    count = next(op for op in inner.operators if op.kind == "count")
    n_steps, n_features = inner.tensors[inner.inputs[1]].shape
    source = draft.tensor(operator.inputs[0])
    given = {inner.tensors[cut.outputs[0]].name: f"({source} + step * {n_features})"}
    own = Draft(body, draft.layout, draft.constants, draft.headers, given)
    state, following = own.tensor(inner.inputs[2]), own.tensor(inner.outputs[2])
    hidden = inner.tensors[inner.inputs[2]].n_elements
    lines = []
    for part in body.operators:
        kind = part.operator.kind
        if kind in {"slice", "count"}:
            continue
        if kind == "dynamic_update_slice":
            target, update = own.tensor(part.operator.outputs[0]), own.tensor(part.operator.inputs[1])
            lines.append(f"memcpy({target} + step * {hidden}, {update}, {hidden});")
        else:
            lines.append("{\n" + indented(statements(own, part)) + "\n}")
    lines.append(f"memcpy({state}, {following}, {hidden});")
    forward = count.attributes["by"] > 0
    head = (
        f"int step = 0; step < {n_steps}; ++step"
        if forward
        else f"int step = {n_steps - 1}; step >= 0; --step"
    )
    text = indented("\n".join(lines))
    return f"memset({state}, {body.grid(inner.inputs[2]).zero_point}, {hidden});\nfor ({head}) {{\n{text}\n}}"


_EMITTERS: dict[str, Emit] = {
    "conv_2d": convolution,
    "depthwise_conv_2d": convolution,
    "fully_connected": fully_connected,
    "unidirectional_sequence_lstm": lstm,
    "add": _sum,
    "sub": _sum,
    "mul": _product,
    "maximum": _larger,
    "minimum": _larger,
    "mean": _reduction,
    "sum": _reduction,
    "reduce_max": _reduction,
    "reduce_min": _reduction,
    "max_pool_2d": _pool,
    "average_pool_2d": _pool,
    "softmax": _softmax,
    "log_softmax": _softmax,
    "reshape": _nothing,
    "transpose": _transpose,
    "reverse": _reverse,
    "strided_slice": _strided_slice,
    "concatenation": _joins,
    "pack": _joins,
    "pad": _pad,
    "resize_nearest_neighbor": _nearest,
}
