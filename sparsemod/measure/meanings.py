"""What each kind of operator computes, in float on (samples, *shape) tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from sparsemod.measure.graph import Operator, Weight
from sparsemod.measure.lowering.windows import same

__all__ = ["aligned", "compute", "move", "same_pads"]

Shape = tuple[int, ...]
_ACTIVATIONS: dict[str, tuple[float | None, float | None]] = {
    "relu": (0.0, None),
    "relu6": (0.0, 6.0),
    "relu_n1_to_1": (-1.0, 1.0),
}
_UNARY: dict[str, Callable[[Tensor], Tensor]] = {
    "logistic": torch.sigmoid,
    "tanh": torch.tanh,
    "hard_swish": F.hardswish,
    "elu": F.elu,
    "abs": torch.abs,
    "exp": torch.exp,
    "log": torch.log,
    "neg": torch.neg,
    "sqrt": torch.sqrt,
    "rsqrt": torch.rsqrt,
    "sin": torch.sin,
    "cos": torch.cos,
    "softmax": lambda x: x.softmax(-1),
    "log_softmax": lambda x: x.log_softmax(-1),
    "quantize": lambda x: x,
    "dequantize": lambda x: x,
}
_BINARY: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "div": torch.div,
    "maximum": torch.maximum,
    "minimum": torch.minimum,
}
_REDUCTIONS: dict[str, Callable[..., Tensor]] = {
    "mean": torch.mean,
    "sum": torch.sum,
    "reduce_max": torch.amax,
    "reduce_min": torch.amin,
}


def compute(
    operator: Operator, xs: Sequence[Tensor], shapes: Sequence[Shape], cell: Callable[[Tensor], None]
) -> list[Tensor]:
    """Return the outputs of an operator.

    Args:
        operator: Any but a ``while``.
        xs: (samples, *shape) of each input.
        shapes: Shape of each output, without the samples.
        cell: Called with each cell state of an LSTM.
    """
    kind, a, x = operator.kind, operator.attributes, xs[0]
    moved = move(operator, xs, shapes[0])
    if moved is not None:
        return [moved]
    if kind in {"unidirectional_sequence_lstm", "gru", "unidirectional_sequence_rnn"}:
        return [_recurrent(operator, x, cell)]
    if kind in {"conv_2d", "depthwise_conv_2d", "transpose_conv", "max_pool_2d", "average_pool_2d"}:
        flat = x.reshape(-1, *x.shape[2:])
        y = _windowed(operator, flat, shapes[0])
    elif kind == "fully_connected":
        weight = operator.weights[0]
        y = F.linear(x.reshape(-1, weight.values.shape[1]), _tensor(weight), _bias(weight))
    elif kind in _BINARY:
        y = _BINARY[kind](*_operands(operator, xs))
    elif kind in _REDUCTIONS:
        y = _REDUCTIONS[kind](x, [axis + 1 for axis in a["axes"]])
    elif kind == "resize_bilinear":
        y = _resized(operator, x.reshape(-1, *x.shape[2:]), shapes[0])
    elif kind == "batch_matmul":
        left, right = _operands(operator, xs)
        y = (left.mT if a["adj_x"] else left) @ (right.mT if a["adj_y"] else right)
    elif kind == "leaky_relu":
        y = F.leaky_relu(x, a["alpha"])
    elif kind == "gelu":
        y = F.gelu(x, approximate="tanh" if a["approximate"] else "none")
    elif kind == "prelu":
        y = torch.where(x > 0, x, x * _tensor(operator.weights[0]))
    elif kind == "gather":
        y = _tensor(operator.weights[0])[x]
    elif kind in _UNARY:
        y = _UNARY[kind](x)
    elif kind in _ACTIVATIONS:
        y = x.clamp(*_ACTIVATIONS[kind])
    else:
        raise ValueError(f"expected an operator that a runtime has, got {kind}")
    activation = a.get("activation", "none")
    return [y if activation == "none" else y.clamp(*_ACTIVATIONS[activation])]


def move(operator: Operator, xs: Sequence[Tensor], shape: Shape) -> Tensor | None:
    """Return the output of an operator that only moves elements, of any dtype; None for the others.

    Args:
        operator: The operator.
        xs: (samples, *shape) of each input.
        shape: Shape of the output, without the samples.
    """
    kind, a, x = operator.kind, operator.attributes, xs[0]
    if kind == "reshape":
        return x.reshape(-1, *shape)
    if kind == "transpose":
        return x.permute(0, *(i + 1 for i in a["permutation"]))
    if kind == "concatenation":
        return torch.cat(list(xs), a["axis"] + 1)
    if kind == "pack":
        return torch.stack(list(xs), a["axis"] + 1)
    if kind == "reverse":
        return x.flip(a["axis"] + 1)
    if kind == "pad":
        return F.pad(x, [n for pair in reversed(a["paddings"]) for n in pair], value=a["value"])
    if kind == "strided_slice":
        index = [slice(None)] * x.dim()
        index[a["axis"] + 1] = slice(a["begin"], a["end"], a["stride"])
        return x[tuple(index)]
    if kind == "resize_nearest_neighbor":
        rows, columns = (torch.arange(n) * own // n for n, own in zip(shape[1:3], x.shape[2:4], strict=True))
        return x[:, :, rows][:, :, :, columns]
    if kind == "slice":
        step = int(xs[1][0, 0])
        return x[:, step : step + 1]
    if kind == "dynamic_update_slice":
        step = int(xs[2][0, 0])
        x = x.clone()
        x[:, step : step + 1] = xs[1]
        return x
    if kind == "count":
        return x + torch.tensor([a["by"], 0])
    if kind in {"less", "greater"}:
        limit = int(a["limit"])
        return x < limit if kind == "less" else x > limit
    return None


def same_pads(size: Sequence[int], filter_: Sequence[int], stride: Sequence[int]) -> list[int]:
    """Return the padding of TensorFlow Lite's SAME as `torch.nn.functional.pad` wants it."""
    (top, bottom), (left, right) = same(size, filter_, stride)
    return [left, right, top, bottom]


def aligned(x: Tensor, rank: int) -> Tensor:
    """Give (samples, *shape) as many dimensions behind the samples as the other operand has."""
    return x.reshape(len(x), *(1,) * (rank + 1 - x.dim()), *x.shape[1:])


def _tensor(weight: Weight) -> Tensor:
    return torch.from_numpy(np.array(weight.values))


def _bias(weight: Weight) -> Tensor | None:
    return None if weight.bias is None else torch.from_numpy(np.array(weight.bias))


def _nchw(x: Tensor) -> Tensor:
    return x.permute(0, 3, 1, 2)


def _windowed(operator: Operator, x: Tensor, shape: Shape) -> Tensor:
    kind = operator.kind
    x = _nchw(x)
    if kind == "transpose_conv":
        return _transposed(operator, x, shape).permute(0, 2, 3, 1)
    return (_pool(operator, x) if "pool" in kind else _convolution(operator, x)).permute(0, 2, 3, 1)


def _convolution(operator: Operator, x: Tensor) -> Tensor:
    a, weight = operator.attributes, operator.weights[0]
    if operator.kind == "depthwise_conv_2d":
        kernel, groups = _tensor(weight).permute(3, 0, 1, 2), x.shape[1]
    else:
        kernel, groups = _tensor(weight).permute(0, 3, 1, 2), a["groups"]
    if a["padding"] == "same":
        filter_ = [(k - 1) * d + 1 for k, d in zip(kernel.shape[2:], a["dilation"], strict=True)]
        x = F.pad(x, same_pads(x.shape[2:], filter_, a["stride"]))
    return F.conv2d(x, kernel, _bias(weight), a["stride"], 0, a["dilation"], groups)


def _transposed(operator: Operator, x: Tensor, shape: Shape) -> Tensor:
    a, weight = operator.attributes, operator.weights[0]
    full = F.conv_transpose2d(x, _tensor(weight).permute(3, 0, 1, 2), _bias(weight), a["stride"])
    _, height, width, _ = shape
    top, left = a["crop"]
    missing = [max(0, left + width - full.shape[3]), max(0, top + height - full.shape[2])]
    full = F.pad(full, [0, missing[0], 0, missing[1]])
    return full[:, :, top : top + height, left : left + width]


def _pool(operator: Operator, x: Tensor) -> Tensor:
    a = operator.attributes
    pads = same_pads(x.shape[2:], a["filter"], a["stride"]) if a["padding"] == "same" else [0, 0, 0, 0]
    if operator.kind == "max_pool_2d":
        return F.max_pool2d(F.pad(x, pads, value=-float("inf")), a["filter"], a["stride"])
    area = F.avg_pool2d(F.pad(torch.ones_like(x[:1]), pads), a["filter"], a["stride"])
    return F.avg_pool2d(F.pad(x, pads), a["filter"], a["stride"]) / area


def _recurrent(operator: Operator, x: Tensor, cell: Callable[[Tensor], None]) -> Tensor:
    samples, x = len(x), x.reshape(-1, *x.shape[2:])
    values, biases = [_tensor(w) for w in operator.weights], [_bias(w) for w in operator.weights]
    n, size = len(values) // 2, operator.attributes["hidden_size"]
    steps = range(x.shape[1] - 1, -1, -1) if operator.attributes["reverse"] else range(x.shape[1])
    h = c = x.new_zeros(len(x), size)
    out = x.new_zeros(len(x), x.shape[1], size)
    for t in steps:
        xs = [F.linear(x[:, t], w, b) for w, b in zip(values[:n], biases[:n], strict=True)]
        hs = [F.linear(h, w, b) for w, b in zip(values[n:], biases[n:], strict=True)]
        if operator.kind == "gru":
            r, z = torch.sigmoid(xs[0] + hs[0]), torch.sigmoid(xs[1] + hs[1])
            h = (1 - z) * torch.tanh(xs[2] + r * hs[2]) + z * h
        elif operator.kind == "unidirectional_sequence_rnn":
            h = (
                torch.relu(xs[0] + hs[0])
                if operator.attributes["activation"] == "relu"
                else (xs[0] + hs[0]).tanh()
            )
        else:
            i, f, g, o = (a + b for a, b in zip(xs, hs, strict=True))
            kept, entered = torch.sigmoid(f) * c, torch.sigmoid(i) * torch.tanh(g)
            c = kept + entered
            for part in (kept, entered, c):
                cell(part)
            h = torch.sigmoid(o) * torch.tanh(c)
        out[:, t] = h
    return out.reshape(samples, -1, *out.shape[1:])


def _operands(operator: Operator, xs: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """Return left and right operand, the constant in its place, with as many dimensions each."""
    side = operator.attributes["constant"]
    if side is None:
        rank = max(x.dim() for x in xs) - 1
        left, right = (aligned(x, rank) for x in xs)
        return left, right
    constant = _tensor(operator.weights[0])
    return (xs[0], constant) if side == "y" else (constant, xs[0])


def _resized(operator: Operator, x: Tensor, shape: Shape) -> Tensor:
    corners: bool = operator.attributes["align_corners"]
    y = F.interpolate(_nchw(x), shape[1:3], mode="bilinear", align_corners=corners)
    return y.permute(0, 2, 3, 1)
