import numpy as np
import pytest
import torch
from function_net import FunctionNet
from torch import nn
from torch.nn import functional as F

from sparsemod.compress.fakequant import QParams, activation_qparams
from sparsemod.compress.graph_quantization import quantize_graph
from sparsemod.compress.quantization import quantize
from sparsemod.errors import CandidateError, ConfigError
from sparsemod.measure.operators import lower


def quantized(net, samples):
    return quantize_graph(lower(net.eval(), samples[:1]), [samples])


def grids_of(result):
    return {t.name: grid for t, grid in zip(result.graph.tensors, result.grids, strict=True)}


def test_grids_span_what_the_samples_take_behind_the_activation():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    x = torch.randn(300, 3)
    result = quantized(net, x)
    with torch.no_grad():
        values = [x, net[:2](x), net(x)]
    for grid, value in zip(result.grids, values, strict=True):
        expected = activation_qparams(float(value.min()), float(value.max()))
        assert grid.zero_point == expected.zero_point
        assert grid.scale == pytest.approx(expected.scale, rel=1e-5)
    assert result.operators[0].bounds == (-128, 127)  # zero is the lowest stored integer
    assert result.grids[1].zero_point == -128


def test_batches_are_taken_together():
    x = torch.arange(12.0).reshape(4, 3)
    net = nn.Linear(3, 2)
    graph = lower(net, x[:1])
    assert grids_of(quantize_graph(graph, [x[:2], x[2:]])) == grids_of(quantize_graph(graph, [x]))


def test_what_only_moves_values_keeps_the_grid():
    net = FunctionNet(lambda m, x: F.max_pool2d(F.pad(x, (1, 1, 1, 1)), 2).mean((2, 3)).reshape(-1, 1, 2))
    result = quantized(net, torch.randn(64, 2, 6, 6))
    assert len({(g.scale, g.zero_point) for g in result.grids}) == 1


def test_prescribed_grids():
    for function, grid in (
        (torch.sigmoid, QParams(1 / 256, -128)),
        (torch.tanh, QParams(1 / 128, 0)),
        (lambda x: x.softmax(-1), QParams(1 / 256, -128)),
        (lambda x: x.log_softmax(-1), QParams(1 / 16, 127)),
    ):
        assert quantized(FunctionNet(lambda m, x, f=function: f(x)), torch.randn(64, 5)).grids[-1] == grid


def test_joined_values_share_a_grid_that_covers_all_of_them():
    net = FunctionNet(lambda m, x: torch.cat([x, m.f(x)], 1), f=nn.Linear(2, 3))
    with torch.no_grad():
        net.f.bias.fill_(50.0)
    result = quantized(net, torch.randn(64, 2))
    assert len({(g.scale, g.zero_point) for g in result.grids}) == 1
    assert result.grids[0].real_range[1] > 49


def test_hard_swish_gets_no_finer_output_than_its_kernel_can_make():
    net = FunctionNet(lambda m, x: F.hardswish(x))
    source, out = quantized(net, torch.linspace(-48, 0, 240).reshape(24, 10)).grids
    assert out.scale == pytest.approx(source.scale / 127, rel=1e-5)
    source, out = quantized(net, torch.linspace(-4, 4, 240).reshape(24, 10)).grids
    assert out.real_range == pytest.approx((-0.375, 4.0), abs=0.02)


def test_weights_are_those_of_the_fake_quant_engine():
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(16, 3)
    ).eval()
    x = torch.randn(256, 2, 4, 4)
    engine = quantize(net, "post", [x]).weights
    stored = [held.weights[0] for held in quantized(net, x).operators]
    np.testing.assert_array_equal(stored[0].values, engine[0].values.permute(0, 2, 3, 1).numpy())
    np.testing.assert_array_equal(stored[0].bias, engine[0].bias.numpy())
    np.testing.assert_allclose(stored[0].scales, engine[0].scales.numpy(), rtol=1e-6)
    columns = torch.arange(16).reshape(4, 2, 2).permute(1, 2, 0).flatten()  # channels lie innermost
    np.testing.assert_array_equal(stored[1].values, engine[1].values[:, columns].numpy())


def test_a_lstm_has_a_power_of_two_for_its_cell_and_a_scale_a_gate():
    torch.manual_seed(0)
    net = FunctionNet(lambda m, x: m.r(x)[0], r=nn.LSTM(3, 4, 2, batch_first=True))
    result = quantized(net, torch.randn(64, 5, 3))
    first, second = result.operators
    assert first.cell == second.cell
    assert np.log2(first.cell.scale) == round(np.log2(first.cell.scale))
    assert [len(w.scales) for w in first.weights] == [1] * 8
    assert [w.bias is None for w in first.weights] == [False] * 4 + [True] * 4
    assert result.grids[1] == result.grids[2]  # layers share the grid of the state


def test_no_samples_and_infinite_values_are_errors():
    graph = lower(nn.Linear(3, 2), torch.zeros(1, 3))
    with pytest.raises(ConfigError, match="expected at least one batch of inputs, got none"):
        quantize_graph(graph, [])
    with pytest.raises(CandidateError, match="tensor input holds values that are not finite"):
        quantize_graph(graph, [torch.tensor([[1.0, float("inf"), 0.0]])])
    with pytest.raises(CandidateError, match=r"expected an input of shape \(1, 3\)"):
        quantize_graph(graph, [torch.zeros(2, 4)])
