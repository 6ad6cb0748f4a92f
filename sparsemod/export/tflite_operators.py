"""What each operator of a `.tflite` file means in the words of `sparsemod.measure.graph`.

What has no word there, or is used in a way that has none, is ``other:<NAME>``, with its products counted
where its shapes tell them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

from sparsemod.errors import ModelFileError
from sparsemod.export.flatbuffer_reader import name_of
from sparsemod.export.tflite_file import FileOperator, FileTensor

__all__ = ["Given", "Meaning", "meaning"]

_STATEFUL = {"unidirectional_sequence_lstm", "unidirectional_sequence_rnn"}
_LARGEST_STEP = 2**16  # of a window: stride, dilation, filter


@dataclass(frozen=True, slots=True)
class Meaning:
    """An operator in our words.

    Attributes:
        kind: As in `sparsemod.measure.graph`.
        constants: For each weight the place of its values among the inputs, and of its bias or None.
        attributes: By the kind.
        n_macs: Multiply-accumulates.
    """

    kind: str
    constants: tuple[tuple[int, int | None], ...] = ()
    attributes: Mapping[str, Any] = field(default_factory=dict)
    n_macs: int = 0


@dataclass(frozen=True, slots=True)
class Given:
    """An operator of the file with the tensors that it names."""

    operator: FileOperator
    tensors: Sequence[FileTensor]

    @property
    def where(self) -> str:
        """Name the operator for people."""
        return f"operator {self.operator.index} ({self.operator.code})"

    def optional(self, i: int) -> FileTensor | None:
        """Return an input, or None where it is left out."""
        inputs = self.operator.inputs
        return self.tensors[inputs[i]] if i < len(inputs) and inputs[i] >= 0 else None

    def given(self, i: int) -> FileTensor:
        """Return an input that has to be there."""
        tensor = self.optional(i)
        if tensor is None:
            raise ModelFileError(f"damaged: {self.where} has no input {i}")
        return tensor

    def made(self) -> FileTensor:
        """Return the first output."""
        if not self.operator.outputs:
            raise ModelFileError(f"damaged: {self.where} has no output")
        return self.tensors[self.operator.outputs[0]]

    def all_computed(self) -> bool:
        """Whether none of the inputs is a constant."""
        return not any(self.tensors[i].constant for i in self.operator.inputs if i >= 0)

    def flows(self, kind: str) -> bool:
        """Whether what it reads and writes is computed anew at each inference, apart from a layer's state."""
        inputs = [self.tensors[i] for i in self.operator.inputs if i >= 0]
        if kind in _STATEFUL:
            inputs = inputs[:1]
        computed = [tensor for tensor in inputs if not tensor.constant]
        outputs = [self.tensors[i] for i in self.operator.outputs]
        return bool(computed and outputs) and not any(tensor.variable for tensor in (*computed, *outputs))

    def option(self, table: str, name: str, default: Any = 0) -> Any:
        """Return an option of the file's."""
        return self.operator.option(table, name, default)

    def activation(self, table: str) -> str | None:
        """Return the fused activation, or None for one that has no word here."""
        value = self.option(table, "FusedActivationFunction")
        name = (name_of("ActivationFunctionType", value) or "unknown").lower()
        return name if name in {"none", "relu", "relu6", "relu_n1_to_1"} else None

    def need(self, holds: bool, expected: str) -> None:
        """Raise unless something holds of the shapes."""
        if not holds:
            inputs = [list(self.tensors[i].shape) for i in self.operator.inputs if i >= 0]
            raise ModelFileError(
                f"damaged: {self.where}: expected {expected}, got {inputs} to {list(self.made().shape)}"
            )

    def integers(self, i: int) -> list[int] | None:
        """Return a constant input of integers, or None where it is computed or left out."""
        tensor = self.optional(i)
        if tensor is None or not tensor.constant or tensor.dtype not in {"int32", "int64"}:
            return None
        return [int(n) for n in tensor.values().reshape(-1)]

    def other(self, n_macs: int = 0) -> Meaning:
        """Return the meaning of what has no word here; constants of numbers are its weights."""
        names = [i for i, place in enumerate(self.operator.inputs) if place >= 0]
        held = [i for i in names if self.tensors[self.operator.inputs[i]].constant]
        weights = [i for i in held if self.given(i).dtype in {"int4", "int8", "int16", "float16", "float32"}]
        return Meaning(f"other:{self.operator.code}", tuple((i, None) for i in weights), n_macs=n_macs)


Handler = Callable[[Given], Meaning]


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


def _side(given: Given, table: str, name: str) -> int:
    size = int(given.option(table, name))
    if not 1 <= size <= _LARGEST_STEP:
        raise ModelFileError(f"damaged: {given.where}: expected {name} of at least 1, got {size}")
    return size


def _window(given: Given, table: str, kernel: Sequence[int], dilation: tuple[int, int]) -> dict[str, Any]:
    """Return stride and padding, checked against input and output."""
    x, y = given.given(0).shape, given.made().shape
    given.need(len(x) == len(y) == 4 and all(x) and all(y) and x[0] == y[0], "images")
    stride = _side(given, table, "StrideH"), _side(given, table, "StrideW")
    padding = (name_of("Padding", given.option(table, "Padding")) or "unknown").lower()
    for n, o, k, s, d in zip(x[1:3], y[1:3], kernel, stride, dilation, strict=True):
        left_out = (k - 1) * d if padding == "valid" else 0
        given.need(padding in {"same", "valid"} and o == -(-(n - left_out) // s), f"{padding} windows")
    return {"stride": stride, "padding": padding}


def _filter(given: Given) -> FileTensor | None:
    """Return the constant weights of a convolution or matrix; None where they are computed."""
    weight = given.given(1)
    return weight if weight.constant and all(weight.shape) else None


def _bias(given: Given, i: int, n: int) -> int | None:
    bias = given.optional(i)
    if bias is None:
        return None
    numbers = bias.dtype in {"int32", "int64", "float32"}
    given.need(bias.constant and bias.n_elements == n and numbers, f"a bias of {n}")
    return i


def _convolution(table: str, depthwise: bool) -> Handler:
    def handle(given: Given) -> Meaning:
        x, weight, y = given.given(0), _filter(given), given.made()
        activation = given.activation(table)
        if weight is None or activation is None:
            return given.other(y.n_elements * prod(given.given(1).shape[1:]))
        given.need(len(weight.shape) == 4 == len(x.shape), "four dimensions")
        dilation = _side(given, table, "DilationHFactor"), _side(given, table, "DilationWFactor")
        attributes = _window(given, table, weight.shape[1:3], dilation)
        attributes |= {"dilation": dilation, "activation": activation}
        channels, outputs = x.shape[3], y.shape[3]
        if depthwise:
            given.need(weight.shape[0] == 1 and weight.shape[3] == outputs, "a filter a channel")
            given.need(outputs % channels == 0, "a multiple of the channels")
            attributes["depth_multiplier"] = outputs // channels
        else:
            given.need(weight.shape[0] == outputs and channels % weight.shape[3] == 0, "a filter an output")
            attributes["groups"] = channels // weight.shape[3]
        n_macs = prod(y.shape[:3]) * weight.n_elements
        constants = ((1, _bias(given, 2, outputs)),)
        return Meaning("depthwise_conv_2d" if depthwise else "conv_2d", constants, attributes, n_macs)

    return handle


def _transpose_conv(given: Given) -> Meaning:
    table, weight, x, y = "TransposeConvOptions", _filter(given), given.given(2), given.made()
    n_macs = x.n_elements * prod(given.given(1).shape[:3])
    activation = given.activation(table)
    if weight is None or activation is None or not given.given(0).constant:
        return given.other(n_macs)
    given.need(len(weight.shape) == len(x.shape) == len(y.shape) == 4, "four dimensions")
    given.need(weight.shape[3] == x.shape[3] and weight.shape[0] == y.shape[3], "a filter an output")
    stride = _side(given, table, "StrideH"), _side(given, table, "StrideW")
    same = name_of("Padding", given.option(table, "Padding")) == "SAME"
    ends = zip(x.shape[1:3], y.shape[1:3], weight.shape[1:3], stride, strict=True)
    cut = [max(0, (n - 1) * s + k - o) for n, o, k, s in ends]
    crop = (cut[0] // 2, cut[1] // 2) if same else (0, 0)
    attributes = {"stride": stride, "crop": crop, "activation": activation}
    return Meaning("transpose_conv", ((1, _bias(given, 3, y.shape[3])),), attributes, n_macs)


def _matrix(given: Given) -> Meaning:
    x, weight, y = given.given(0), _filter(given), given.made()
    activation = given.activation("FullyConnectedOptions")
    if weight is None or activation is None:
        return given.other(y.n_elements * given.given(1).shape[-1] if given.given(1).shape else 0)
    given.need(len(weight.shape) == 2 and x.n_elements % weight.shape[1] == 0, "a matrix for the input")
    rows = x.n_elements // weight.shape[1]
    given.need(y.n_elements == rows * weight.shape[0], "an output a row of the matrix")
    constants = ((1, _bias(given, 2, weight.shape[0])),)
    return Meaning("fully_connected", constants, {"activation": activation}, rows * weight.n_elements)


def _batch_matmul(given: Given) -> Meaning:
    x, y, out = given.given(0), given.given(1), given.made()
    adj_x, adj_y = (bool(given.option("BatchMatMulOptions", name)) for name in ("AdjX", "AdjY"))
    given.need(len(x.shape) >= 2 and len(y.shape) >= 2, "matrices")
    n_macs = out.n_elements * x.shape[-2 if adj_x else -1]
    if x.constant and y.constant:
        return given.other(n_macs)
    constant = "x" if x.constant else "y" if y.constant else None
    constants = () if constant is None else (("xy".index(constant), None),)
    attributes = {"adj_x": adj_x, "adj_y": adj_y, "constant": constant, "activation": "none"}
    return Meaning("batch_matmul", constants, attributes, n_macs)


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


def _pool(kind: str) -> Handler:
    def handle(given: Given) -> Meaning:
        table = "Pool2DOptions"
        kernel = _side(given, table, "FilterHeight"), _side(given, table, "FilterWidth")
        activation = given.activation(table)
        if given.given(0).constant or activation is None:
            return given.other()
        attributes = _window(given, table, kernel, (1, 1))
        return Meaning(kind, attributes={"filter": kernel, "activation": activation, **attributes})

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


def _lstm(given: Given) -> Meaning:
    table, x = "UnidirectionalSequenceLSTMOptions", given.given(0)
    matrices = [given.optional(i) for i in range(1, 9)]
    n_macs = prod(x.shape[:2]) * sum(m.n_elements for m in matrices if m is not None)
    unlike = [i for i in (9, 10, 11, 16, 17, 20, 21, 22, 23) if given.optional(i) is not None]
    if unlike or any(m is None or not m.constant for m in matrices):
        return given.other(n_macs)
    given.need(len(x.shape) == 3, "sequences")
    hidden = given.given(1).shape[0] if given.given(1).shape else 0
    shapes = [(hidden, x.shape[2])] * 4 + [(hidden, hidden)] * 4
    given.need(hidden > 0 and [m.shape for m in matrices if m is not None] == shapes, "eight matrices")
    constants = tuple((i, _bias(given, 11 + i, hidden) if i < 5 else None) for i in range(1, 9))
    attributes: dict[str, Any] = {"hidden_size": hidden, "reverse": False, "activation": "tanh"}
    if given.option(table, "TimeMajor", False):
        attributes["time_major"] = True
    return Meaning("unidirectional_sequence_lstm", constants, attributes, n_macs)


def _rnn(given: Given) -> Meaning:
    x, (own, state) = given.given(0), (given.given(i) for i in (1, 2))
    n_macs = prod(x.shape[:2]) * (own.n_elements + state.n_elements)
    name = name_of("ActivationFunctionType", given.option("SequenceRNNOptions", "FusedActivationFunction"))
    known = name in {"TANH", "RELU"} and own.constant and state.constant and len(x.shape) == 3
    if not known or len(own.shape) != 2 or own.shape[0] == 0:
        return given.other(n_macs)
    constants = ((1, _bias(given, 3, own.shape[0])), (2, None))
    attributes = {"hidden_size": own.shape[0], "reverse": False, "activation": str(name).lower()}
    return Meaning("unidirectional_sequence_rnn", constants, attributes, n_macs)


def _log_softmax(given: Given) -> Meaning:
    return Meaning("log_softmax", attributes={"beta": 1.0})


def _pointwise(names: str) -> dict[str, Handler]:
    return {name.upper(): _unary(name) for name in names.split()}


_HANDLERS: dict[str, Handler] = {
    "CONV_2D": _convolution("Conv2DOptions", depthwise=False),
    "DEPTHWISE_CONV_2D": _convolution("DepthwiseConv2DOptions", depthwise=True),
    "TRANSPOSE_CONV": _transpose_conv,
    "FULLY_CONNECTED": _matrix,
    "BATCH_MATMUL": _batch_matmul,
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
    "MAX_POOL_2D": _pool("max_pool_2d"),
    "AVERAGE_POOL_2D": _pool("average_pool_2d"),
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
    "UNIDIRECTIONAL_SEQUENCE_LSTM": _lstm,
    "UNIDIRECTIONAL_SEQUENCE_RNN": _rnn,
}
