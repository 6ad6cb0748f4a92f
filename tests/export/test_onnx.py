"""ONNX files: onnxruntime computes what PyTorch does, and what the integers do."""

import json
import sys

import numpy as np
import pytest
import torch
from random_nets import SPACES, random_net
from torch import nn
from torch.nn import functional as F

from sparsemod.compress.graph_quantization import quantize_graph
from sparsemod.compress.integer import run_integer
from sparsemod.errors import ConfigError, UnsupportedOperatorError
from sparsemod.export.onnx_file import write_onnx, write_onnx_qdq
from sparsemod.export.tflite import Description
from sparsemod.measure.operators import lower

onnx = pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")


def outputs(content, samples):
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    session = ort.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    rows = [session.run(None, {"input_0": samples[i : i + 1].numpy()})[0] for i in range(len(samples))]
    return np.concatenate(rows)


def floats(net, samples):
    return outputs(write_onnx(lower(net, samples[:1], scheme="none")), samples)


@pytest.mark.parametrize("seed", range(200, 203))
@pytest.mark.parametrize("space", SPACES)
def test_real_numbers_are_pytorchs(space, seed):
    net, samples = random_net(space, seed, 8)
    with torch.no_grad():
        assert floats(net, samples) == pytest.approx(net(samples).numpy(), abs=1e-5)


@pytest.mark.parametrize("seed", range(200, 203))
@pytest.mark.parametrize("space", SPACES)
def test_integers_are_those_of_the_simulation(space, seed):
    net, samples = random_net(space, seed, 256)
    quantized = quantize_graph(lower(net, samples[:1]), [samples])
    grid = quantized.grid(quantized.graph.outputs[0])
    expected = run_integer(quantized, samples[:32])[0].numpy()
    steps = np.abs(np.round((outputs(write_onnx_qdq(quantized), samples[:32]) - expected) / grid.scale))
    assert steps.max() <= 1
    has_lstm = any("lstm" in op.kind for op in quantized.graph.operators)
    assert (steps == 0).mean() >= (0.6 if has_lstm else 0.98)


class Function(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function
        self.weight = nn.Parameter(torch.randn(4, 4))

    def forward(self, x):
        return self.function(x, self.weight)


FUNCTIONS = {
    "gelu": lambda x, w: F.gelu(x @ w),
    "gelu_tanh": lambda x, w: F.gelu(x @ w, approximate="tanh"),
    "elu": lambda x, w: F.elu(x @ w),
    "prelu": lambda x, w: F.prelu(x @ w, w[0, :1]),
    "divided": lambda x, w: (x @ w) / (1 + (x @ w).abs()),
    "rsqrt": lambda x, w: x @ w * torch.rsqrt(1 + (x @ w).square().sum(2, keepdim=True)),
    "clamped": lambda x, w: torch.clamp(x @ w, -1, 1) + torch.clamp((x @ w) * 5, 0, 6),
    "extremes": lambda x, w: torch.maximum(x @ w, torch.zeros(4)) - torch.minimum(x @ w, x),
    "log_softmax": lambda x, w: F.log_softmax(x @ w, -1),
    "products": lambda x, w: (x @ w) @ x.transpose(1, 2),
    "stacked": lambda x, w: torch.stack([x @ w, x], 1),
    "transposed": lambda x, w: F.conv_transpose2d(
        x[:, None], w[None, :2, :3, None].expand(1, 2, 3, 3), None, 2
    ),
    "nearest": lambda x, w: F.interpolate((x @ w)[:, None], scale_factor=2),
    "bilinear": lambda x, w: F.interpolate((x @ w)[:, None], scale_factor=2, mode="bilinear"),
    "corners": lambda x, w: F.interpolate((x @ w)[:, None], (9, 9), mode="bilinear", align_corners=True),
    "reduced": lambda x, w: (x @ w).amax(1) + (x @ w).amin(1) + (x @ w).sum(1),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_further_operators(name):
    torch.manual_seed(0)
    net, samples = Function(FUNCTIONS[name]).eval(), torch.randn(4, 5, 4)
    with torch.no_grad():
        assert floats(net, samples) == pytest.approx(net(samples).numpy(), abs=1e-5)


@pytest.mark.parametrize(
    "layer",
    [nn.RNN(4, 6, batch_first=True), nn.RNN(4, 6, nonlinearity="relu", batch_first=True, bidirectional=True)],
)
def test_plain_recurrent_layers(layer):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = layer

        def forward(self, x):
            return self.layer(x)[0].mean(1)

    torch.manual_seed(0)
    net, samples = Net().eval(), torch.randn(64, 7, 4)
    with torch.no_grad():
        assert floats(net, samples) == pytest.approx(net(samples).numpy(), abs=1e-5)
    quantized = quantize_graph(lower(net, samples[:1]), [samples])
    grid = quantized.grid(quantized.graph.outputs[0])
    expected = run_integer(quantized, samples[:16])[0].numpy()
    assert outputs(write_onnx_qdq(quantized), samples[:16]) == pytest.approx(expected, abs=1.01 * grid.scale)


def test_weights_of_a_qdq_file_are_int8_and_its_grids_are_those_of_the_tflite():
    net, samples = random_net("images", 1)
    quantized = quantize_graph(lower(net, samples[:1]), [samples])
    content = write_onnx_qdq(quantized, Description(7, (0.5,), (2.0,)))
    model = onnx.load_from_string(content)
    assert content == write_onnx_qdq(quantized, Description(7, (0.5,), (2.0,)))
    stored = {c.name: onnx.numpy_helper.to_array(c) for c in model.graph.initializer}
    n_values = sum(weight.values.size for held in quantized.operators for weight in held.weights)
    assert sum(a.size for a in stored.values() if a.dtype == np.int8 and a.ndim > 1) == n_values
    made = [n for n in model.graph.node if n.op_type == "QuantizeLinear"]
    grids = [(float(stored[n.input[1]]), int(stored[n.input[2]])) for n in made]
    wanted = [(float(np.float32(g.scale)), g.zero_point) for g in quantized.grids]
    assert set(grids) == set(wanted)
    (entry,) = model.metadata_props
    assert (entry.key, json.loads(entry.value)) == ("sparsemod", {"classes": 7, "mean": [0.5], "std": [2.0]})


def test_an_operator_that_nothing_has_is_named():
    class Net(nn.Module):
        def forward(self, x):
            return torch.cumsum(x, 1)

    graph = lower(nn.Sequential(Net()), torch.randn(1, 4), scheme="none")
    with pytest.raises(UnsupportedOperatorError, match="operator other:cumsum of module 0 cannot be"):
        write_onnx(graph)


def test_without_the_package_it_is_said_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(ConfigError, match=r"pip install 'sparsemod\[onnx\]'"):
        write_onnx(lower(nn.Linear(2, 2), torch.zeros(1, 2), scheme="none"))
