"""What each operator of a list is in ONNX (opset 17), on tensors in the list's own memory order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparsemod.errors import UnsupportedOperatorError
from sparsemod.export.onnx_nodes import Nodes, Weights
from sparsemod.measure.graph import Operator
from sparsemod.measure.lowering.windows import same

__all__ = ["activated", "emit"]

Shape = tuple[int, ...]
Emitter = Callable[[Nodes, Operator, Sequence[str], Weights, Sequence[Shape], Shape], str]

_LAST, _FIRST = (0, 2, 3, 1), (0, 3, 1, 2)
_NAMED = {
    "relu": "Relu", "logistic": "Sigmoid", "tanh": "Tanh", "hard_swish": "HardSwish", "elu": "Elu",
    "abs": "Abs", "exp": "Exp", "log": "Log", "neg": "Neg", "sqrt": "Sqrt", "sin": "Sin", "cos": "Cos",
    "quantize": "Identity", "dequantize": "Identity",
}  # fmt: skip
_BINARY = {"add": "Add", "sub": "Sub", "mul": "Mul", "div": "Div", "maximum": "Max", "minimum": "Min"}
_REDUCTIONS = {"mean": "ReduceMean", "reduce_max": "ReduceMax", "reduce_min": "ReduceMin"}


def emit(
    nodes: Nodes, operator: Operator, xs: Sequence[str], weights: Weights, given: Sequence[Shape], made: Shape
) -> str:
    """Add the nodes of an operator and return the name of its output.

    Args:
        nodes: Where they are added.
        operator: Any but a ``while``.
        xs: Names of its inputs.
        weights: Its constants.
        given: Shapes of its inputs.
        made: Shape of its output.

    Raises:
        UnsupportedOperatorError: Names operator and module of what ONNX has no operator for here.
    """
    if operator.kind not in _EMITTERS:
        where = f" of module {operator.module}" if operator.module else ""
        raise UnsupportedOperatorError(f"export: operator {operator.kind}{where} cannot be written as ONNX")
    y = _EMITTERS[operator.kind](nodes, operator, xs, weights, given, made)
    return activated(nodes, y, operator) if operator.kind not in _RECURRENT else y


def activated(nodes: Nodes, x: str, operator: Operator) -> str:
    """Add the activation that is fused into an operator."""
    name = operator.attributes.get("activation", "none")
    return x if name == "none" else _clamped(nodes, x, name)


def _clamped(nodes: Nodes, x: str, name: str) -> str:
    if name == "relu":
        return nodes.add("Relu", x)
    low, high = {"relu6": (0.0, 6.0), "relu_n1_to_1": (-1.0, 1.0)}[name]
    return nodes.add("Clip", x, nodes.floats(low), nodes.floats(high))


def _pads(operator: Operator, size: Sequence[int], window: Sequence[int]) -> list[int]:
    if operator.attributes["padding"] != "same":
        return [0, 0, 0, 0]
    (top, bottom), (left, right) = same(size, window, operator.attributes["stride"])
    return [top, left, bottom, right]


def _convolution(
    nodes: Nodes, operator: Operator, xs: Sequence[str], weights: Weights, given: Sequence[Shape], made: Shape
) -> str:
    a, values = operator.attributes, operator.weights[0].values
    depthwise = operator.kind == "depthwise_conv_2d"
    window = [(k - 1) * d + 1 for k, d in zip(values.shape[1:3], a["dilation"], strict=True)]
    inputs = [nodes.transposed(xs[0], _FIRST), weights.value(0, (3, 0, 1, 2) if depthwise else _FIRST)]
    inputs += filter(None, [weights.bias(0)])
    y = nodes.add(
        "Conv",
        *inputs,
        strides=list(a["stride"]),
        dilations=list(a["dilation"]),
        pads=_pads(operator, given[0][1:3], window),
        group=given[0][3] if depthwise else a["groups"],
    )
    return nodes.transposed(y, _LAST)


def _transpose_conv(
    nodes: Nodes, operator: Operator, xs: Sequence[str], weights: Weights, given: Sequence[Shape], made: Shape
) -> str:
    a, values = operator.attributes, operator.weights[0].values
    inputs = [
        nodes.transposed(xs[0], _FIRST),
        weights.value(0, (3, 0, 1, 2)),
        *filter(None, [weights.bias(0)]),
    ]
    full = nodes.add("ConvTranspose", *inputs, strides=list(a["stride"]))
    begin = list(a["crop"])
    sizes = [(n - 1) * s + k for n, s, k in zip(given[0][1:3], a["stride"], values.shape[1:3], strict=True)]
    missing = [max(0, at + n - size) for at, n, size in zip(begin, made[1:3], sizes, strict=True)]
    if any(missing):
        full = nodes.add("Pad", full, nodes.ints(0, 0, 0, 0, 0, 0, *missing))
    end = [at + n for at, n in zip(begin, made[1:3], strict=True)]
    return nodes.transposed(
        nodes.add("Slice", full, nodes.ints(*begin), nodes.ints(*end), nodes.ints(2, 3)), _LAST
    )


def _pool(
    nodes: Nodes, operator: Operator, xs: Sequence[str], weights: Weights, given: Sequence[Shape], made: Shape
) -> str:
    a = operator.attributes
    more: dict[str, Any] = {} if operator.kind == "max_pool_2d" else {"count_include_pad": 0}
    y = nodes.add(
        "MaxPool" if operator.kind == "max_pool_2d" else "AveragePool",
        nodes.transposed(xs[0], _FIRST),
        kernel_shape=list(a["filter"]),
        strides=list(a["stride"]),
        pads=_pads(operator, given[0][1:3], a["filter"]),
        **more,
    )
    return nodes.transposed(y, _LAST)


def _matrix(
    nodes: Nodes, operator: Operator, xs: Sequence[str], weights: Weights, given: Sequence[Shape], made: Shape
) -> str:
    n_rows, n_inputs = operator.weights[0].values.shape
    rows = prod(given[0]) // n_inputs
    x = xs[0] if given[0] == (rows, n_inputs) else nodes.reshaped(xs[0], (rows, n_inputs))
    y = nodes.add("Gemm", x, weights.value(0, None), *filter(None, [weights.bias(0)]), transB=1)
    return y if made == (rows, n_rows) else nodes.reshaped(y, made)


def _operands(operator: Operator, xs: Sequence[str], weights: Weights) -> list[str]:
    side = operator.attributes["constant"]
    if side is None:
        return list(xs)
    constant = weights.value(0, None)
    return [xs[0], constant] if side == "y" else [constant, xs[0]]


def _binary(
    nodes: Nodes, operator: Operator, xs: Sequence[str], weights: Weights, given: Sequence[Shape], made: Shape
) -> str:
    return nodes.add(_BINARY[operator.kind], *_operands(operator, xs, weights))


def _product(
    nodes: Nodes, operator: Operator, xs: Sequence[str], weights: Weights, given: Sequence[Shape], made: Shape
) -> str:
    operands = _operands(operator, xs, weights)
    shapes = [*given, *(weight.values.shape for weight in operator.weights)]
    if operator.attributes["constant"] == "x":
        shapes.reverse()
    for i, side in enumerate(("adj_x", "adj_y")):
        if operator.attributes[side]:
            rank = len(shapes[i])
            operands[i] = nodes.transposed(operands[i], [*range(rank - 2), rank - 1, rank - 2])
    return nodes.add("MatMul", *operands)


def _named(
    nodes: Nodes, operator: Operator, xs: Sequence[str], weights: Weights, given: Sequence[Shape], made: Shape
) -> str:
    return nodes.add(_NAMED[operator.kind], xs[0])


def _unary(
    nodes: Nodes, operator: Operator, xs: Sequence[str], weights: Weights, given: Sequence[Shape], made: Shape
) -> str:
    kind, a, x = operator.kind, operator.attributes, xs[0]
    if kind in {"relu6", "relu_n1_to_1"}:
        return _clamped(nodes, x, kind)
    if kind == "rsqrt":
        return nodes.add("Reciprocal", nodes.add("Sqrt", x))
    if kind == "leaky_relu":
        return nodes.add("LeakyRelu", x, alpha=float(a["alpha"]))
    if kind == "prelu":
        return nodes.add("PRelu", x, weights.value(0, None))
    if kind == "log_softmax":
        return nodes.add("LogSoftmax", x, axis=-1)
    if kind == "softmax":
        beta = float(a.get("beta", 1.0))
        return nodes.add("Softmax", x if beta == 1.0 else nodes.add("Mul", x, nodes.floats(beta)), axis=-1)
    if a["approximate"]:
        cubic = nodes.add("Mul", nodes.add("Mul", x, x), nodes.add("Mul", x, nodes.floats(0.044715)))
        inner = nodes.add("Mul", nodes.add("Add", x, cubic), nodes.floats(float(np.sqrt(2 / np.pi))))
        bent = nodes.add("Tanh", inner)
    else:
        bent = nodes.add("Erf", nodes.add("Mul", x, nodes.floats(float(np.sqrt(0.5)))))
    half = nodes.add("Mul", x, nodes.floats(0.5))
    return nodes.add("Mul", half, nodes.add("Add", bent, nodes.floats(1.0)))


def _reduction(
    nodes: Nodes, operator: Operator, xs: Sequence[str], weights: Weights, given: Sequence[Shape], made: Shape
) -> str:
    axes = [int(axis) for axis in operator.attributes["axes"]]
    if operator.kind == "sum":
        return nodes.add("ReduceSum", xs[0], nodes.ints(*axes), keepdims=0)
    return nodes.add(_REDUCTIONS[operator.kind], xs[0], axes=axes, keepdims=0)


def _moved(
    nodes: Nodes, operator: Operator, xs: Sequence[str], weights: Weights, given: Sequence[Shape], made: Shape
) -> str:
    kind, a, x = operator.kind, operator.attributes, xs[0]
    if kind == "reshape":
        return nodes.reshaped(x, made)
    if kind == "transpose":
        return nodes.add("Transpose", x, perm=list(a["permutation"]))
    if kind == "concatenation":
        return nodes.add("Concat", *xs, axis=a["axis"])
    if kind == "pack":
        parts = (nodes.add("Unsqueeze", part, nodes.ints(a["axis"])) for part in xs)
        return nodes.add("Concat", *parts, axis=a["axis"])
    if kind == "reverse":
        begin, end, step = nodes.ints(-1), nodes.ints(-(2**31)), nodes.ints(-1)
        return nodes.add("Slice", x, begin, end, nodes.ints(a["axis"]), step)
    if kind == "pad":
        before, after = zip(*a["paddings"], strict=True)
        value = float(a["value"])
        lowest = value if np.isfinite(value) else float(np.finfo(np.float32).min)
        return nodes.add("Pad", x, nodes.ints(*before, *after), nodes.floats(lowest))
    if kind == "strided_slice":
        ends = (nodes.ints(a[name]) for name in ("begin", "end", "axis", "stride"))
        return nodes.add("Slice", x, *ends)
    if kind == "gather":
        return nodes.add("Gather", weights.value(0, None), x)
    bilinear = kind == "resize_bilinear"
    corners, mode = a["align_corners"], "linear" if bilinear else "nearest"
    how = "align_corners" if corners else "half_pixel" if bilinear else "asymmetric"
    more: dict[str, Any] = {} if bilinear else {"nearest_mode": "floor"}
    size = nodes.ints(made[0], made[3], *made[1:3])
    y = nodes.add(
        "Resize",
        nodes.transposed(x, _FIRST),
        "",
        "",
        size,
        mode=mode,
        coordinate_transformation_mode=how,
        **more,
    )
    return nodes.transposed(y, _LAST)


def _recurrent(
    nodes: Nodes, operator: Operator, xs: Sequence[str], weights: Weights, given: Sequence[Shape], made: Shape
) -> str:
    """Write a recurrent layer of real numbers as one node, gates in ONNX's order."""
    op, order, more = _RECURRENT[operator.kind]
    n, size = len(operator.weights) // 2, operator.attributes["hidden_size"]

    def joined(at: int) -> str:
        return nodes.constants.name(np.concatenate([operator.weights[at + i].values for i in order])[None])

    def bias(i: int) -> NDArray[np.float32]:
        values = operator.weights[i].bias
        return np.zeros(size, np.float32) if values is None else values.astype(np.float32)

    biases = nodes.constants.name(np.concatenate([bias(at + i) for at in (0, n) for i in order])[None])
    if op == "RNN":
        more = {"activations": ["Relu" if operator.attributes["activation"] == "relu" else "Tanh"]}
    y = nodes.add(
        op,
        nodes.transposed(xs[0], (1, 0, 2)),
        joined(0),
        joined(n),
        biases,
        hidden_size=size,
        direction="reverse" if operator.attributes["reverse"] else "forward",
        **more,
    )
    y = nodes.transposed(nodes.add("Squeeze", y, nodes.ints(1)), (1, 0, 2))
    return nodes.reshaped(y, made)


_RECURRENT: dict[str, tuple[str, tuple[int, ...], dict[str, Any]]] = {
    "unidirectional_sequence_lstm": ("LSTM", (0, 3, 1, 2), {}),
    "gru": ("GRU", (1, 0, 2), {"linear_before_reset": 1}),
    "unidirectional_sequence_rnn": ("RNN", (0,), {}),
}
_EMITTERS: dict[str, Emitter] = {
    **dict.fromkeys(("conv_2d", "depthwise_conv_2d"), _convolution),
    "transpose_conv": _transpose_conv,
    **dict.fromkeys(("max_pool_2d", "average_pool_2d"), _pool),
    "fully_connected": _matrix,
    "batch_matmul": _product,
    **dict.fromkeys(_BINARY, _binary),
    **dict.fromkeys(_NAMED, _named),
    **dict.fromkeys(
        ("relu6", "relu_n1_to_1", "rsqrt", "leaky_relu", "prelu", "log_softmax", "softmax", "gelu"), _unary
    ),
    **dict.fromkeys((*_REDUCTIONS, "sum"), _reduction),
    **dict.fromkeys(
        ("reshape", "transpose", "concatenation", "pack", "reverse", "pad", "strided_slice", "gather"), _moved
    ),
    **dict.fromkeys(("resize_nearest_neighbor", "resize_bilinear"), _moved),
    **dict.fromkeys(_RECURRENT, _recurrent),
}
