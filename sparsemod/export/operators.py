"""What each operator looks like in a `.tflite` file: code, options, and constants that are its inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparsemod.export.flatbuffer import Writer, enum
from sparsemod.measure.graph import Operator

__all__ = ["Form", "form"]

Shapes = Sequence[tuple[int, ...]]
_ACTIVATIONS = {"none": "NONE", "relu": "RELU", "relu6": "RELU6", "relu_n1_to_1": "RELU_N1_TO_1"}


@dataclass(frozen=True, slots=True)
class Form:
    """An operator of the file.

    Attributes:
        code: Name in the schema's ``BuiltinOperator``.
        version: The least version of it that has int8.
        options: Name of its table of options; none where all of them are at their defaults.
        fields: The options.
        constants: int32 inputs behind the tensors.
    """

    code: str
    version: int = 1
    options: str = ""
    fields: Mapping[str, Any] = field(default_factory=dict)
    constants: tuple[NDArray[np.int32], ...] = ()


def form(operator: Operator, inputs: Shapes, outputs: Shapes, writer: Writer) -> Form:
    """Return how an operator is written.

    Args:
        operator: Any but a ``while``.
        inputs: Shapes of its inputs.
        outputs: Shapes of its outputs.
        writer: Where vectors that belong to the options go.
    """
    return _FORMS[operator.kind](operator, inputs, outputs, writer)


def _activation(operator: Operator) -> dict[str, int]:
    name = _ACTIVATIONS[operator.attributes.get("activation", "none")]
    return {"FusedActivationFunction": enum("ActivationFunctionType", name)}


def _window(operator: Operator) -> dict[str, int]:
    height, width = operator.attributes["stride"]
    padding = enum("Padding", operator.attributes["padding"].upper())
    return {"StrideW": width, "StrideH": height, "Padding": padding, **_activation(operator)}


def _ints(values: Any) -> NDArray[np.int32]:
    return np.array(values, np.int32)


def _conv_2d(operator: Operator, inputs: Shapes, outputs: Shapes, writer: Writer) -> Form:
    height, width = operator.attributes["dilation"]
    fields = {"DilationWFactor": width, "DilationHFactor": height, **_window(operator)}
    version = 3 if operator.attributes["groups"] == 1 else 6
    return Form("CONV_2D", version, "Conv2DOptions", fields)


def _depthwise(operator: Operator, inputs: Shapes, outputs: Shapes, writer: Writer) -> Form:
    height, width = operator.attributes["dilation"]
    fields = {
        "DepthMultiplier": operator.attributes["depth_multiplier"],
        "DilationWFactor": width,
        "DilationHFactor": height,
        **_window(operator),
    }
    return Form("DEPTHWISE_CONV_2D", 3, "DepthwiseConv2DOptions", fields)


def _matrix(operator: Operator, inputs: Shapes, outputs: Shapes, writer: Writer) -> Form:
    fields = {**_activation(operator), "KeepNumDims": len(outputs[0]) != 2}
    return Form("FULLY_CONNECTED", 5 if fields["KeepNumDims"] else 4, "FullyConnectedOptions", fields)


def _binary(code: str, options: str) -> Callable[..., Form]:
    def make(operator: Operator, inputs: Shapes, outputs: Shapes, writer: Writer) -> Form:
        return Form(code, 2, options, _activation(operator))

    return make


def _pool(code: str) -> Callable[..., Form]:
    def make(operator: Operator, inputs: Shapes, outputs: Shapes, writer: Writer) -> Form:
        height, width = operator.attributes["filter"]
        fields = {"FilterWidth": width, "FilterHeight": height, **_window(operator)}
        return Form(code, 2, "Pool2DOptions", fields)

    return make


def _plain(code: str, version: int = 2) -> Callable[..., Form]:
    return lambda operator, inputs, outputs, writer: Form(code, version)


def _reduction(code: str) -> Callable[..., Form]:
    def make(operator: Operator, inputs: Shapes, outputs: Shapes, writer: Writer) -> Form:
        axes = _ints(operator.attributes["axes"])
        return Form(code, 2, "ReducerOptions", {"KeepDims": False}, (axes,))

    return make


def _reshape(operator: Operator, inputs: Shapes, outputs: Shapes, writer: Writer) -> Form:
    return Form("RESHAPE", 1, "ReshapeOptions", {"NewShape": writer.numbers("Int32", outputs[0])})


def _pad(operator: Operator, inputs: Shapes, outputs: Shapes, writer: Writer) -> Form:
    code = "PAD" if operator.attributes["value"] == 0 else "PADV2"
    return Form(code, 2, constants=(_ints(operator.attributes["paddings"]),))


def _concatenation(operator: Operator, inputs: Shapes, outputs: Shapes, writer: Writer) -> Form:
    return Form("CONCATENATION", 2, "ConcatenationOptions", {"Axis": operator.attributes["axis"]})


def _pack(operator: Operator, inputs: Shapes, outputs: Shapes, writer: Writer) -> Form:
    fields = {"ValuesCount": len(inputs), "Axis": operator.attributes["axis"]}
    return Form("PACK", 2, "PackOptions", fields)


def _softmax(operator: Operator, inputs: Shapes, outputs: Shapes, writer: Writer) -> Form:
    return Form("SOFTMAX", 2, "SoftmaxOptions", {"Beta": operator.attributes["beta"]})


def _leaky_relu(operator: Operator, inputs: Shapes, outputs: Shapes, writer: Writer) -> Form:
    return Form("LEAKY_RELU", 2, "LeakyReluOptions", {"Alpha": operator.attributes["alpha"]})


def _transpose(operator: Operator, inputs: Shapes, outputs: Shapes, writer: Writer) -> Form:
    return Form("TRANSPOSE", 2, constants=(_ints(operator.attributes["permutation"]),))


def _reverse(operator: Operator, inputs: Shapes, outputs: Shapes, writer: Writer) -> Form:
    return Form("REVERSE_V2", 1, constants=(_ints([operator.attributes["axis"]]),))


def _strided_slice(operator: Operator, inputs: Shapes, outputs: Shapes, writer: Writer) -> Form:
    a, rank = operator.attributes, len(inputs[0])
    begin, end, stride = [0] * rank, list(inputs[0]), [1] * rank
    begin[a["axis"]], end[a["axis"]], stride[a["axis"]] = (
        a["begin"],
        min(a["end"], end[a["axis"]]),
        a["stride"],
    )
    fields = {"BeginMask": 0}
    constants = (_ints(begin), _ints(end), _ints(stride))
    return Form("STRIDED_SLICE", 2, "StridedSliceOptions", fields, constants)


def _slice(operator: Operator, inputs: Shapes, outputs: Shapes, writer: Writer) -> Form:
    return Form("SLICE", 2, constants=(_ints(outputs[0]),))


def _comparison(code: str) -> Callable[..., Form]:
    return lambda operator, inputs, outputs, writer: Form(
        code, constants=(_ints([operator.attributes["limit"], 0]),)
    )


def _count(operator: Operator, inputs: Shapes, outputs: Shapes, writer: Writer) -> Form:
    return Form("ADD", 2, constants=(_ints([operator.attributes["by"], 0]),))


def _resize(operator: Operator, inputs: Shapes, outputs: Shapes, writer: Writer) -> Form:
    a = operator.attributes
    fields = {"AlignCorners": a["align_corners"], "HalfPixelCenters": a["half_pixel_centers"]}
    size = (_ints(outputs[0][1:3]),)
    return Form("RESIZE_NEAREST_NEIGHBOR", 2, "ResizeNearestNeighborOptions", fields, size)


def _lstm(operator: Operator, inputs: Shapes, outputs: Shapes, writer: Writer) -> Form:
    fields = {"FusedActivationFunction": enum("ActivationFunctionType", "TANH"), "TimeMajor": False}
    return Form("UNIDIRECTIONAL_SEQUENCE_LSTM", 1, "UnidirectionalSequenceLSTMOptions", fields)


_FORMS: dict[str, Callable[[Operator, Shapes, Shapes, Writer], Form]] = {
    "conv_2d": _conv_2d,
    "depthwise_conv_2d": _depthwise,
    "fully_connected": _matrix,
    "add": _binary("ADD", "AddOptions"),
    "sub": _binary("SUB", "SubOptions"),
    "mul": _binary("MUL", "MulOptions"),
    "max_pool_2d": _pool("MAX_POOL_2D"),
    "average_pool_2d": _pool("AVERAGE_POOL_2D"),
    "mean": _reduction("MEAN"),
    "sum": _reduction("SUM"),
    "reduce_max": _reduction("REDUCE_MAX"),
    "reduce_min": _reduction("REDUCE_MIN"),
    "reshape": _reshape,
    "pad": _pad,
    "concatenation": _concatenation,
    "pack": _pack,
    "softmax": _softmax,
    "log_softmax": _plain("LOG_SOFTMAX"),
    "logistic": _plain("LOGISTIC"),
    "tanh": _plain("TANH"),
    "relu": _plain("RELU"),
    "elu": _plain("ELU", 1),
    "hard_swish": _plain("HARD_SWISH", 1),
    "leaky_relu": _leaky_relu,
    "quantize": _plain("QUANTIZE"),
    "maximum": _plain("MAXIMUM"),
    "minimum": _plain("MINIMUM"),
    "transpose": _transpose,
    "reverse": _reverse,
    "strided_slice": _strided_slice,
    "slice": _slice,
    "less": _comparison("LESS"),
    "greater": _comparison("GREATER"),
    "count": _count,
    "dynamic_update_slice": _plain("DYNAMIC_UPDATE_SLICE", 1),
    "resize_nearest_neighbor": _resize,
    "unidirectional_sequence_lstm": _lstm,
}
