"""Each kernel of the integer simulation against the real interpreter, over all scales that nets have."""

import pytest
import torch
from function_net import FunctionNet
from torch import nn
from torch.nn import functional as F

from sparsemod.compress.graph_quantization import quantize_graph
from sparsemod.export.tflite import write_tflite
from sparsemod.export.verify import compare
from sparsemod.measure.operators import lower

pytest.importorskip("tflite_micro")


class Net(FunctionNet):
    """Without layers the function needs the input alone."""

    def forward(self, x):
        return super().forward(x) if list(self.children()) else self.function(x)


FUNCTIONS = {
    "logistic": torch.sigmoid,
    "tanh": torch.tanh,
    "softmax": lambda x: x.softmax(-1),
    "log_softmax": lambda x: x.log_softmax(-1),
    "hard_swish": F.hardswish,
    "hard_sigmoid": F.hardsigmoid,
    "silu": F.silu,
    "elu": F.elu,
    "leaky_relu": lambda x: F.leaky_relu(x, 0.13),
    "relu": F.relu,
    "relu6": F.relu6,
    "hardtanh": F.hardtanh,
    "square": lambda x: x * x,
    "add": lambda x: x + x.sigmoid(),
    "sub": lambda x: x - x.tanh(),
    "add a constant": lambda x: x + 1.3,
    "subtract from a constant": lambda x: 2 - x,
    "times a constant": lambda x: x * -0.7,
    "by a constant": lambda x: x / 3.3,
    "minimum": lambda x: torch.minimum(x, x * x),
    "maximum": lambda x: torch.maximum(x, -x),
    "mean": lambda x: x.mean(1),
    "mean of all": lambda x: x.mean((1, 2)),
    "sum": lambda x: x.sum(1),
    "largest": lambda x: x.amax(1),
    "smallest": lambda x: x.amin(1),
    "join": lambda x: torch.cat([x, x.sigmoid(), x * 3], 1),
    "join of twelve": lambda x: torch.cat([x * k for k in range(1, 13)], 1),
    "stack": lambda x: torch.stack([x, x.tanh()], 1),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_values_are_those_of_the_interpreter(name):
    torch.manual_seed(0)
    for scale, offset in ((0.05, 0.0), (1.0, -2.0), (6.0, 0.5), (300.0, 0.0)):
        x = (torch.randn(12, 6, 10) + offset) * scale
        net = Net(FUNCTIONS[name])
        quantized = quantize_graph(lower(net, x[:1]), [x])
        comparison = compare(quantized, write_tflite(quantized), x)
        assert comparison.agrees, (scale, offset, comparison)


LAYERS = {
    "one output channel": nn.Conv2d(6, 1, 3),
    "groups": nn.Conv2d(6, 9, 3, groups=3, padding=1),
    "dilation": nn.Conv2d(6, 5, (1, 2), dilation=(1, 3)),
    "depth multiplier": nn.Conv2d(6, 12, 3, groups=6, stride=2, padding=1),
    "one output": nn.Linear(8, 1),
    "no bias": nn.Linear(8, 3, bias=False),
    "max pool": nn.MaxPool2d(3, 2, 1),
    "average pool": nn.AvgPool2d(3, 2, 1),
    "same average pool": nn.AvgPool2d(3, 1, 1, count_include_pad=False),
    "nearest": nn.Upsample(scale_factor=2),
    "pad": nn.ConstantPad2d((1, 2, 0, 1), 0.7),
    "batch norm": nn.BatchNorm2d(6),
    "many inputs": nn.Sequential(nn.Flatten(), nn.Linear(6 * 56, 4)),
    "transpose": Net(lambda x: x.permute(0, 2, 3, 1).flatten(1) + 1),
    "depth to time": Net(lambda x: x.flatten(2).softmax(1)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_layers_are_those_of_the_interpreter(name):
    torch.manual_seed(0)
    x = torch.randn(12, 6, 7, 8)
    quantized = quantize_graph(lower(LAYERS[name].eval(), x[:1]), [x])
    comparison = compare(quantized, write_tflite(quantized), x)
    assert comparison.agrees, comparison


RECURRENT = {
    "lstm": nn.LSTM(4, 6, batch_first=True),
    "lstm without biases": nn.LSTM(4, 6, batch_first=True, bias=False),
    "two layers": nn.LSTM(4, 6, 2, batch_first=True),
    "two directions": nn.LSTM(4, 6, batch_first=True, bidirectional=True),
    "gru": nn.GRU(4, 6, batch_first=True),
    "gru in two directions": nn.GRU(4, 6, 2, batch_first=True, bidirectional=True),
    "rnn": nn.RNN(4, 6, batch_first=True),
    "rectified rnn": nn.RNN(4, 6, batch_first=True, nonlinearity="relu"),
}


@pytest.mark.parametrize("name", RECURRENT)
@pytest.mark.parametrize("last", [False, True])
def test_recurrent_layers_are_those_of_the_interpreter(name, last):
    torch.manual_seed(0)
    layer = RECURRENT[name]
    net = Net(lambda m, x: m.r(x)[0][:, -1] if last else m.r(x)[0], r=layer)
    x = torch.randn(8, 9, 4) * 3
    quantized = quantize_graph(lower(net, x[:1]), [x])
    comparison = compare(quantized, write_tflite(quantized), x)
    assert comparison.agrees, comparison
