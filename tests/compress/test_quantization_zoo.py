"""Every style of network, under every scheme."""

import copy

import pytest
import quantization_zoo
import torch
from torch import nn

from sparsemod.compress.qat import QATHook
from sparsemod.compress.quantization import quantize


@pytest.fixture(scope="module")
def zoo():
    torch.manual_seed(0)
    return {name: (net, inputs) for name, net, inputs in quantization_zoo.zoo()}


NAMES = [
    "mlp", "lenet", "resnet", "mobile", "eager_stubs", "dense", "inception", "squeeze", "shuffle", "unet",
    "pre_activation", "weight_normed", "conv1d", "lstm", "lstm_packed", "lstm_bidirectional_packed",
    "gru_bidirectional", "gru_packed", "rnn_relu", "lstm_cells", "gru_cells", "conv_lstm", "attention",
    "shared", "raw_parameters", "text", "bytes", "two_inputs",
]  # fmt: skip
# The log softmax has steps of 1/16, and a batch norm on pooled values enlarges the pool's steps.
COARSE = {"lenet": 0.1, "pre_activation": 0.25}


def float_outputs(net, inputs):
    """Run in evaluation mode on a copy of the inputs (networks may write to them)."""
    flags = [module.training for module in net.modules()]
    net.eval()
    with torch.no_grad():
        outputs = net(copy.deepcopy(inputs))
    for module, flag in zip(net.modules(), flags, strict=True):
        module.training = flag
    return outputs


def relative_error(outputs, expected):
    return float(((outputs - expected).square().mean() / expected.var()).sqrt())


def test_every_network_is_covered(zoo):
    assert list(zoo) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_static_int8_follows_the_float_network(zoo, name):
    net, inputs = zoo[name]
    quantized = quantize(net, "post", [inputs])
    outputs = quantized(inputs)
    expected = float_outputs(net, inputs)
    assert outputs.shape == expected.shape
    assert relative_error(outputs, expected) < COARSE.get(name, 0.06)
    assert (outputs.argmax(1) == expected.argmax(1)).float().mean() > 0.85
    assert torch.equal(outputs, quantized(inputs))


@pytest.mark.parametrize("name", NAMES)
def test_outputs_lie_on_the_int8_grid_and_weights_are_int8(zoo, name):
    net, inputs = zoo[name]
    quantized = quantize(net, "post", [inputs])
    last = quantized.activations[-1]
    stored = quantized(inputs) / last.scale + last.zero_point
    assert torch.allclose(stored, stored.round(), atol=1e-3)
    assert stored.min() > -128.5
    assert stored.max() < 127.5
    assert quantized.weights
    for weight in quantized.weights:
        assert weight.values.dtype == torch.int8
        assert weight.values.min() >= -127
        assert (weight.scales > 0).all()
        assert weight.bias is None or weight.bias.dtype == torch.int32


@pytest.mark.parametrize("name", NAMES)
def test_the_network_is_left_as_it_was(zoo, name):
    net, inputs = zoo[name]
    net.train()
    before = copy.deepcopy(net.state_dict())
    kept = copy.deepcopy(inputs)
    random = torch.get_rng_state()
    quantize(net, "post", [inputs])(inputs)
    quantize(net, "dynamic", [inputs], [nn.Linear])(inputs)
    assert torch.equal(random, torch.get_rng_state())
    assert all(module.training for module in net.modules())
    assert not any(module._forward_pre_hooks or module._forward_hooks for module in net.modules())
    after = net.state_dict()
    assert all(torch.equal(before[key], after[key]) for key in before)
    for old, new in zip(tensors(kept), tensors(inputs), strict=True):
        assert torch.equal(old, new)
        assert vars(new) == {}


def tensors(inputs):
    if isinstance(inputs, torch.Tensor):
        return [inputs]
    return [inputs.data] if hasattr(inputs, "data") else list(inputs)


@pytest.mark.parametrize("name", NAMES)
def test_interception_itself_changes_nothing(zoo, name):
    """With no module of the given type everything stays in float, bit for bit (attention is recomposed)."""
    net, inputs = zoo[name]
    outputs = quantize(net, "dynamic", [inputs], [nn.Bilinear])(inputs)
    if name == "attention":
        assert torch.allclose(outputs, float_outputs(net, inputs), atol=1e-5)
    else:
        assert torch.equal(outputs, float_outputs(net, inputs))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("scheme", ["dynamic", "both"])
def test_run_time_quantization_follows_the_float_network(zoo, name, scheme):
    net, inputs = zoo[name]
    types = [nn.Linear, nn.LSTM, nn.GRU, nn.RNNCellBase, nn.Conv2d, nn.Embedding]
    quantized = quantize(net, scheme, [inputs], types)
    assert relative_error(quantized(inputs), float_outputs(net, inputs)) < COARSE.get(name, 0.06)


@pytest.mark.parametrize("name", NAMES)
def test_training_under_fake_quantization_reaches_every_parameter(zoo, name):
    net, inputs = copy.deepcopy(zoo[name][0]), zoo[name][1]
    net.train()
    expected = reached(net, net(inputs))
    hook = QATHook(0.0)
    hook.start(net, 2)
    hook.before_step(0)
    assert reached(net, hook.forward(net, inputs)) == expected


def reached(net, outputs):
    """Return the names of the parameters that a gradient reaches."""
    names, parameters = zip(*net.named_parameters(), strict=True)
    slopes = torch.autograd.grad(outputs.square().sum(), parameters, allow_unused=True)
    assert all(slope is None or slope.isfinite().all() for slope in slopes)
    return {name for name, slope in zip(names, slopes, strict=True) if slope is not None}
