"""Quantization at run time, alone and together with calibrated quantization."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import prune

from sparsemod.compress.quantization import quantize
from sparsemod.errors import ConfigError


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(2, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.fc = nn.Linear(64, 16)
        self.head = nn.Linear(16, 5)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.norm(self.conv(x))), 2).flatten(1)
        return self.head(F.relu(self.fc(x)))


def inputs(n=64):
    return torch.randn(n, 2, 8, 8, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def net():
    torch.manual_seed(0)
    return Net().eval()


@pytest.mark.parametrize("scheme", ["dynamic", "both"])
@pytest.mark.parametrize("types", [(), None, []])
def test_the_types_are_asked_for(net, scheme, types):
    message = (
        rf"quant_params: quant_scheme '{scheme}' expects the module types .* \[nn.Linear, nn.LSTM\], got none"
    )
    with pytest.raises(ConfigError, match=message):
        quantize(net, scheme, [inputs()], types)


def test_names_are_not_types(net):
    with pytest.raises(ConfigError, match=r"expected module types such as nn\.Linear, got 'Linear'"):
        quantize(net, "dynamic", [inputs()], ["Linear"])


def test_only_the_given_types_are_quantized(net):
    quantized = quantize(net, "dynamic", [inputs()], [nn.Linear])
    assert [(w.module, w.op, w.name) for w in quantized.weights] == [
        ("fc", "linear", "weight"), ("head", "linear", "weight"),
    ]  # fmt: skip
    assert quantized.activations == ()
    difference = (quantized(inputs()) - net(inputs())).abs().max()
    assert 0 < difference < 0.02


def test_a_row_by_hand():
    """Row (0, 2.55) has steps of 0.01, weight steps are 0.01, the bias stays 0.001."""
    layer = nn.Linear(2, 1)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[1.27, 0.104]]))
        layer.bias.fill_(0.001)
    x = torch.tensor([[0.014, 2.55], [0.0, 0.0]])
    outputs = quantize(layer, "dynamic", [x], [nn.Linear])(x)
    assert outputs.flatten().tolist() == pytest.approx([0.01 * 1.27 + 2.55 * 0.1 + 0.001, 0.001])


def test_results_do_not_depend_on_the_batch(net):
    quantized = quantize(net, "dynamic", [inputs()], [nn.Linear, nn.Conv2d])
    alone = torch.cat([quantized(x[None]) for x in inputs()])
    assert torch.allclose(alone, quantized(inputs()), atol=1e-6)


def test_a_container_type_takes_in_what_it_holds():
    net = nn.Sequential(nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 3)))
    assert len(quantize(net, "dynamic", [torch.randn(8, 4)], [nn.Sequential]).weights) == 2


def test_types_that_are_not_there_leave_the_network_in_float(net):
    quantized = quantize(net, "dynamic", [inputs()], [nn.LSTM])
    assert quantized.weights == ()
    assert torch.equal(quantized(inputs()), net(inputs()))


def test_both_quantizes_the_rest_by_calibration(net):
    quantized = quantize(net, "both", [inputs()], [nn.Linear])
    grids = {a.module or a.op: a for a in quantized.activations}
    assert grids["conv"].scale is not None
    assert grids["fc"].scale is None
    assert grids["head"].scale is None
    assert [w.module for w in quantized.weights] == ["conv", "fc", "head"]
    assert quantized.weights[0].bias is not None
    assert quantized.weights[1].bias is None
    assert (quantized(inputs()) - net(inputs())).abs().max() < 0.05


def test_both_rounds_a_run_time_result_that_a_calibrated_operator_takes(net):
    quantized = quantize(net, "both", [inputs()], [nn.Conv2d])
    grids = {a.module or a.op: a for a in quantized.activations}
    assert grids["input"].scale is None
    assert grids["conv"].scale is not None
    assert grids["head"].scale is not None
    assert (quantized(inputs()) - net(inputs())).abs().max() < 0.05


def test_a_masked_weight_keeps_its_zeros(net):
    prune.l1_unstructured(net.fc, "weight", 0.5)
    expected = (net.fc.weight == 0).sum()
    net(inputs())
    for scheme in ("post", "both"):
        quantized = quantize(net, scheme, [inputs()], [nn.Conv2d])
        (weight,) = (w for w in quantized.weights if w.module == "fc")
        assert (weight.values == 0).sum() >= expected
    dynamic = quantize(net, "dynamic", [inputs()], [nn.Linear])
    assert (dynamic(inputs()) - net(inputs())).abs().max() < 0.02


@pytest.mark.filterwarnings("ignore")
def test_agrees_with_torch_on_dense_layers():
    """PyTorch's has one scale for a weight and one grid for a batch: close, not equal."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4)).eval()
    x = torch.randn(64, 16)
    ours = quantize(net, "dynamic", [x], [nn.Linear])(x)
    theirs = torch.ao.quantization.quantize_dynamic(net, {nn.Linear}, dtype=torch.qint8)(x)
    exact = net(x)
    assert (ours - theirs).abs().max() < 0.05
    assert (ours - exact).square().mean() <= (theirs - exact).square().mean()
