"""What the convolutions, matrices, pools and recurrent layers of a `.tflite` file mean."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from sparsemod.errors import ModelFileError
from sparsemod.export.flatbuffer_reader import name_of
from sparsemod.export.tflite_file import FileTensor
from sparsemod.export.tflite_given import Given, Handler, Meaning

__all__ = ["PRODUCTS"]

_LARGEST_STEP = 2**16  # of a window: stride, dilation, filter


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


PRODUCTS: dict[str, Handler] = {
    "CONV_2D": _convolution("Conv2DOptions", depthwise=False),
    "DEPTHWISE_CONV_2D": _convolution("DepthwiseConv2DOptions", depthwise=True),
    "TRANSPOSE_CONV": _transpose_conv,
    "FULLY_CONNECTED": _matrix,
    "BATCH_MATMUL": _batch_matmul,
    "MAX_POOL_2D": _pool("max_pool_2d"),
    "AVERAGE_POOL_2D": _pool("average_pool_2d"),
    "UNIDIRECTIONAL_SEQUENCE_LSTM": _lstm,
    "UNIDIRECTIONAL_SEQUENCE_RNN": _rnn,
}
