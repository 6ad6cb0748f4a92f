"""What each operator of a `.tflite` file means in the words of `sparsemod.measure.graph`.

What has no word there, or is used in a way that has none, is ``other:<NAME>``, with its products counted
where its shapes tell them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from sparsemod.export.tflite_file import FileOperator, FileTensor
from sparsemod.export.tflite_given import Given, Handler, Meaning
from sparsemod.export.tflite_products import PRODUCTS

__all__ = ["meaning"]


def meaning(operator: FileOperator, tensors: Sequence[FileTensor]) -> Meaning:
    """Return what an operator means.

    Args:
        operator: Of the file.
        tensors: Of its list.

    Raises:
        ModelFileError: Its options or shapes contradict each other.
    """
    handler = _HANDLERS.get(operator.code)
    given = Given(operator, tensors)
    if handler is None:
        return given.other()
    found = handler(given)
    return found if given.flows(found.kind) else given.other(found.n_macs)


def _binary(kind: str, table: str) -> Handler:
    def handle(given: Given) -> Meaning:
        held = [given.given(i).constant for i in (0, 1)]
        activation = given.activation(table) if table else "none"
        if all(held) or activation is None:
            return given.other()
        if any(held) and given.given(held.index(True)).dtype not in {"int8", "float32"}:
            return _counted(given) if kind == "add" and held[1] else given.other()
        constant = "x" if held[0] else "y" if held[1] else None
        constants = () if constant is None else (("xy".index(constant), None),)
        return Meaning(kind, constants, {"activation": activation, "constant": constant})

    return handle


def _counted(given: Given) -> Meaning:
    by = given.integers(1)
    if not by or any(by[1:]):
        return given.other()
    return Meaning("count", attributes={"by": by[0]})


def _comparison(kind: str) -> Handler:
    def handle(given: Given) -> Meaning:
        limit = given.integers(1)
        computed = not given.given(0).constant
        return Meaning(kind, attributes={"limit": limit[0]}) if limit and computed else given.other()

    return handle


def _unary(kind: str, table: str = "", **options: tuple[str, Any]) -> Handler:
    """Take over options by their names here: (name in the file, default)."""

    def handle(given: Given) -> Meaning:
        if given.given(0).constant:
            return given.other()
        return Meaning(kind, attributes={k: given.option(table, *option) for k, option in options.items()})

    return handle


def _axis(given: Given, axis: int, rank: int) -> int:
    given.need(-rank <= axis < rank, f"a dimension, got {axis}")
    return axis % rank


def _reduction(kind: str) -> Handler:
    def handle(given: Given) -> Meaning:
        listed, rank = given.integers(1), len(given.given(0).shape)
        if listed is None or given.given(0).constant:
            return given.other()
        axes = tuple(sorted({_axis(given, axis, rank) for axis in listed}))
        keeps = bool(given.option("ReducerOptions", "KeepDims"))
        return Meaning(kind, attributes={"axes": axes, **({"keep_dims": True} if keeps else {})})

    return handle


def _reshape(given: Given) -> Meaning:
    if given.given(0).constant:
        return given.other()
    given.need(given.given(0).n_elements == given.made().n_elements, "as many values")
    return Meaning("reshape")


def _pad(given: Given) -> Meaning:
    listed, rank, value = given.integers(1), len(given.given(0).shape), given.optional(2)
    if listed is None or given.given(0).constant or (value is not None and not value.constant):
        return given.other()
    given.need(len(listed) == 2 * rank and min(listed, default=0) >= 0, "padding of each dimension")
    paddings = tuple((listed[2 * i], listed[2 * i + 1]) for i in range(rank))
    return Meaning("pad", attributes={"paddings": paddings, "value": _pad_value(value)})


def _pad_value(value: FileTensor | None) -> float:
    if value is None or not value.n_elements:
        return 0.0
    stored = float(value.values().reshape(-1)[0])
    if value.dtype == "int8" and stored == -128:
        return -np.inf
    zero = float(value.zero_points[0]) if len(value.zero_points) else 0.0
    return (stored - zero) * (float(value.scales[0]) if len(value.scales) else 1.0)


def _joined(kind: str, table: str) -> Handler:
    def handle(given: Given) -> Meaning:
        if not given.all_computed() or not given.operator.inputs:
            return given.other()
        rank = len(given.made().shape)
        return Meaning(kind, attributes={"axis": _axis(given, int(given.option(table, "Axis")), rank)})

    return handle


def _transpose(given: Given) -> Meaning:
    order, rank = given.integers(1), len(given.given(0).shape)
    if order is None or given.given(0).constant:
        return given.other()
    given.need(sorted(order) == list(range(rank)), "an order of the dimensions")
    return Meaning("transpose", attributes={"permutation": tuple(order)})


def _reverse(given: Given) -> Meaning:
    axes = given.integers(1)
    if axes is None or len(axes) != 1 or given.given(0).constant:
        return given.other()
    return Meaning("reverse", attributes={"axis": _axis(given, axes[0], len(given.given(0).shape))})


def _strided_slice(given: Given) -> Meaning:
    table, shape = "StridedSliceOptions", given.given(0).shape
    parts = [given.integers(i) for i in (1, 2, 3)]
    names = ("Begin", "End", "Ellipsis", "NewAxis", "ShrinkAxis")
    masks = {name: int(given.option(table, f"{name}Mask")) for name in names}
    if given.given(0).constant or masks["Ellipsis"] or masks["NewAxis"]:
        return given.other()
    if any(part is None or len(part) != len(shape) for part in parts):
        return given.other()
    cuts = []
    for i, (n, begin, end, stride) in enumerate(zip(shape, *(part or [] for part in parts), strict=True)):
        bit = 1 << i
        first = 0 if masks["Begin"] & bit else begin + n if begin < 0 else begin
        last = n if masks["End"] & bit else end + n if end < 0 else end
        last = first + 1 if masks["ShrinkAxis"] & bit else min(last, n)
        if stride < 1 or not 0 <= first < last:
            return given.other()
        if (first, last, stride) != (0, n, 1):
            cuts.append({"axis": i, "begin": first, "end": last, "stride": stride})
    return _cut(given, cuts)


def _slice(given: Given) -> Meaning:
    begin, size, shape = given.integers(1), given.integers(2), given.given(0).shape
    if given.given(0).constant or size is None or len(size) != len(shape):
        return given.other()
    if begin is None:
        return Meaning("slice") if not given.given(1).constant else given.other()
    given.need(len(begin) == len(shape), "where each dimension begins")
    ends = [n if s == -1 else b + s for n, b, s in zip(shape, begin, size, strict=True)]
    cuts = [
        {"axis": i, "begin": b, "end": e, "stride": 1}
        for i, (n, b, e) in enumerate(zip(shape, begin, ends, strict=True))
        if (b, e) != (0, n)
    ]
    return _cut(given, cuts)


def _cut(given: Given, cuts: Sequence[dict[str, int]]) -> Meaning:
    if len(cuts) > 1 or not given.given(0).shape:
        return given.other()
    whole = {"axis": 0, "begin": 0, "end": given.given(0).shape[0], "stride": 1}
    return Meaning("strided_slice", attributes=cuts[0] if cuts else whole)


def _update(given: Given) -> Meaning:
    return Meaning("dynamic_update_slice") if given.all_computed() else given.other()


def _gather(given: Given) -> Meaning:
    rows, indices = given.given(0), given.given(1)
    first = given.option("GatherOptions", "Axis") == 0 and given.option("GatherOptions", "BatchDims") == 0
    if not rows.constant or indices.constant or not first or len(rows.shape) != 2:
        return given.other()
    return Meaning("gather", ((0, None),), {"axis": 0})


def _prelu(given: Given) -> Meaning:
    if given.given(0).constant or not given.given(1).constant:
        return given.other()
    return Meaning("prelu", ((1, None),))


def _resize(kind: str, table: str) -> Handler:
    options = {"align_corners": ("AlignCorners", False), "half_pixel_centers": ("HalfPixelCenters", False)}
    return _unary(kind, table, **options)


def _log_softmax(given: Given) -> Meaning:
    return Meaning("log_softmax", attributes={"beta": 1.0})


def _pointwise(names: str) -> dict[str, Handler]:
    return {name.upper(): _unary(name) for name in names.split()}


_HANDLERS: dict[str, Handler] = {
    **PRODUCTS,
    "ADD": _binary("add", "AddOptions"),
    "SUB": _binary("sub", "SubOptions"),
    "MUL": _binary("mul", "MulOptions"),
    "DIV": _binary("div", "DivOptions"),
    "MAXIMUM": _binary("maximum", ""),
    "MINIMUM": _binary("minimum", ""),
    "LESS": _comparison("less"),
    "GREATER": _comparison("greater"),
    **_pointwise("relu relu6 relu_n1_to_1 elu logistic tanh hard_swish abs exp log neg sqrt rsqrt sin cos"),
    **_pointwise("quantize dequantize"),
    "LEAKY_RELU": _unary("leaky_relu", "LeakyReluOptions", alpha=("Alpha", 0.0)),
    "GELU": _unary("gelu", "GeluOptions", approximate=("Approximate", False)),
    "PRELU": _prelu,
    "LOG_SOFTMAX": _log_softmax,
    "SOFTMAX": _unary("softmax", "SoftmaxOptions", beta=("Beta", 0.0)),
    "MEAN": _reduction("mean"),
    "SUM": _reduction("sum"),
    "REDUCE_MAX": _reduction("reduce_max"),
    "REDUCE_MIN": _reduction("reduce_min"),
    "RESHAPE": _reshape,
    "SQUEEZE": _reshape,
    "EXPAND_DIMS": _reshape,
    "PAD": _pad,
    "PADV2": _pad,
    "CONCATENATION": _joined("concatenation", "ConcatenationOptions"),
    "PACK": _joined("pack", "PackOptions"),
    "TRANSPOSE": _transpose,
    "REVERSE_V2": _reverse,
    "STRIDED_SLICE": _strided_slice,
    "SLICE": _slice,
    "DYNAMIC_UPDATE_SLICE": _update,
    "GATHER": _gather,
    "RESIZE_NEAREST_NEIGHBOR": _resize("resize_nearest_neighbor", "ResizeNearestNeighborOptions"),
    "RESIZE_BILINEAR": _resize("resize_bilinear", "ResizeBilinearOptions"),
}
