"""A float interpreter of operator lists, plain torch: what each operator means."""

import numpy as np
import torch
from torch.nn import functional as F


def run(graph, *inputs):
    """Return the outputs of a graph, in PyTorch's shapes, for inputs in PyTorch's shapes."""
    values = {}
    for port, x in zip(graph.input_ports, inputs, strict=True):
        values[port.tensor] = torch.from_numpy(
            np.ascontiguousarray(port.to_memory(x.numpy(), graph.tensors[port.tensor].shape))
        )
    for operator in graph.operators:
        arguments = [values[i] for i in operator.inputs]
        for i, x in zip(operator.inputs, arguments, strict=True):
            assert tuple(x.shape) == graph.tensors[i].shape
        results = compute(operator, arguments, [graph.tensors[i].shape for i in operator.outputs])
        for i, x in zip(operator.outputs, results, strict=True):
            assert tuple(x.shape) == graph.tensors[i].shape, (operator.kind, x.shape, graph.tensors[i].shape)
            values[i] = x
    return [torch.from_numpy(port.from_memory(values[port.tensor].numpy())) for port in graph.output_ports]


def activated(x, operator):
    name = operator.attributes.get("activation", "none")
    return {
        "none": lambda: x,
        "relu": lambda: x.clamp(min=0),
        "relu6": lambda: x.clamp(0, 6),
        "relu_n1_to_1": lambda: x.clamp(-1, 1),
    }[name]()


def same_pads(size, filter_, stride):
    totals = [max((-(-n // s) - 1) * s + f - n, 0) for n, f, s in zip(size, filter_, stride, strict=True)]
    return [totals[1] // 2, totals[1] - totals[1] // 2, totals[0] // 2, totals[0] - totals[0] // 2]


def nchw(x):
    return x.permute(0, 3, 1, 2)


def nhwc(x):
    return x.permute(0, 2, 3, 1)


def tensor(a):
    return torch.from_numpy(np.array(a))


def convolution(operator, x):
    a, weight = operator.attributes, operator.weights[0]
    bias = None if weight.bias is None else tensor(weight.bias)
    if operator.kind == "depthwise_conv_2d":
        kernel, groups = tensor(weight.values).permute(3, 0, 1, 2), x.shape[3]
    else:
        kernel, groups = tensor(weight.values).permute(0, 3, 1, 2), a["groups"]
    x = nchw(x)
    if a["padding"] == "same":
        filter_ = [(k - 1) * d + 1 for k, d in zip(kernel.shape[2:], a["dilation"], strict=True)]
        x = F.pad(x, same_pads(x.shape[2:], filter_, a["stride"]))
    return nhwc(F.conv2d(x, kernel, bias, a["stride"], 0, a["dilation"], groups))


def pool(operator, x):
    a = operator.attributes
    x = nchw(x)
    pads = same_pads(x.shape[2:], a["filter"], a["stride"]) if a["padding"] == "same" else [0, 0, 0, 0]
    if operator.kind == "max_pool_2d":
        return nhwc(F.max_pool2d(F.pad(x, pads, value=-float("inf")), a["filter"], a["stride"]))
    area = F.avg_pool2d(F.pad(torch.ones_like(x), pads), a["filter"], a["stride"])
    return nhwc(F.avg_pool2d(F.pad(x, pads), a["filter"], a["stride"]) / area)


def recurrent(operator, x):
    values = [tensor(w.values) for w in operator.weights]
    biases = [0 if w.bias is None else tensor(w.bias) for w in operator.weights]
    n = len(values) // 2
    size = operator.attributes["hidden_size"]
    steps = list(range(x.shape[1]))
    if operator.attributes["reverse"]:
        steps.reverse()
    h = c = torch.zeros(x.shape[0], size)
    out = torch.zeros(x.shape[0], x.shape[1], size)
    for t in steps:
        xs = [x[:, t] @ w.T + b for w, b in zip(values[:n], biases[:n], strict=True)]
        hs = [h @ w.T + b for w, b in zip(values[n:], biases[n:], strict=True)]
        if operator.kind == "gru":
            r, z = torch.sigmoid(xs[0] + hs[0]), torch.sigmoid(xs[1] + hs[1])
            h = (1 - z) * torch.tanh(xs[2] + r * hs[2]) + z * h
        elif operator.kind == "unidirectional_sequence_rnn":
            act = torch.relu if operator.attributes["activation"] == "relu" else torch.tanh
            h = act(xs[0] + hs[0])
        else:
            i, f, g, o = (a + b for a, b in zip(xs, hs, strict=True))
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
        out[:, t] = h
    return out


def binary(operator, xs):
    function = {
        "add": torch.add,
        "sub": torch.sub,
        "mul": torch.mul,
        "div": torch.div,
        "maximum": torch.maximum,
        "minimum": torch.minimum,
    }[operator.kind]
    side = operator.attributes["constant"]
    if side is None:
        return function(*xs)
    constant = tensor(operator.weights[0].values)
    return function(xs[0], constant) if side == "y" else function(constant, xs[0])


def resize(operator, x, shape):
    corners = operator.attributes["align_corners"]
    if operator.kind == "resize_nearest_neighbor":
        return nhwc(F.interpolate(nchw(x), shape[1:3], mode="nearest"))
    return nhwc(F.interpolate(nchw(x), shape[1:3], mode="bilinear", align_corners=corners))


def product(operator, xs):
    a = operator.attributes
    xs = list(xs)
    if a["constant"]:
        xs.insert(0 if a["constant"] == "x" else 1, tensor(operator.weights[0].values))
    x, y = xs
    return (x.mT if a["adj_x"] else x) @ (y.mT if a["adj_y"] else y)


UNARY = {
    "relu": lambda x: x.clamp(min=0),
    "relu6": lambda x: x.clamp(0, 6),
    "relu_n1_to_1": lambda x: x.clamp(-1, 1),
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


def compute(operator, xs, shapes):
    kind, a = operator.kind, operator.attributes
    x = xs[0]
    if kind in {"conv_2d", "depthwise_conv_2d"}:
        y = convolution(operator, x)
    elif kind == "transpose_conv":
        weight = operator.weights[0]
        full = F.conv_transpose2d(
            nchw(x),
            tensor(weight.values).permute(3, 0, 1, 2),
            None if weight.bias is None else tensor(weight.bias),
            a["stride"],
        )
        _, height, width, _ = shapes[0]
        top, left = a["crop"]
        missing = [max(0, left + width - full.shape[3]), max(0, top + height - full.shape[2])]
        full = F.pad(full, [0, missing[0], 0, missing[1]])
        y = nhwc(full[:, :, top : top + height, left : left + width])
    elif kind == "fully_connected":
        weight = operator.weights[0]
        y = F.linear(x.reshape(-1, weight.values.shape[1]), tensor(weight.values))
        y = (y if weight.bias is None else y + tensor(weight.bias)).reshape(shapes[0])
    elif kind in {"max_pool_2d", "average_pool_2d"}:
        y = pool(operator, x)
    elif kind in {"add", "sub", "mul", "div", "maximum", "minimum"}:
        y = binary(operator, xs)
    elif kind in {"unidirectional_sequence_lstm", "gru", "unidirectional_sequence_rnn"}:
        return [recurrent(operator, x)]
    elif kind == "reshape":
        y = x.reshape(shapes[0])
    elif kind == "transpose":
        y = x.permute(a["permutation"])
    elif kind == "concatenation":
        y = torch.cat(xs, a["axis"])
    elif kind == "pack":
        y = torch.stack(xs, a["axis"])
    elif kind == "pad":
        flat = [n for pair in reversed(a["paddings"]) for n in pair]
        y = F.pad(x, flat, value=a["value"])
    elif kind == "strided_slice":
        index = [slice(None)] * x.dim()
        index[a["axis"]] = slice(a["begin"], a["end"], a["stride"])
        y = x[tuple(index)]
    elif kind in {"mean", "sum", "reduce_max", "reduce_min"}:
        function = {"mean": torch.mean, "sum": torch.sum, "reduce_max": torch.amax, "reduce_min": torch.amin}[
            kind
        ]
        y = function(x, a["axes"]).reshape(shapes[0])
    elif kind in {"resize_nearest_neighbor", "resize_bilinear"}:
        y = resize(operator, x, shapes[0])
    elif kind == "batch_matmul":
        y = product(operator, xs)
    elif kind == "leaky_relu":
        y = F.leaky_relu(x, a["alpha"])
    elif kind == "gelu":
        y = F.gelu(x, approximate="tanh" if a["approximate"] else "none")
    elif kind == "prelu":
        y = torch.where(x > 0, x, x * tensor(operator.weights[0].values))
    elif kind == "gather":
        y = tensor(operator.weights[0].values)[x]
    else:
        y = UNARY[kind](x)
    return [activated(y, operator)]
