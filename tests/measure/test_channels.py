import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from net_zoo import ZOO, built
from torch import nn
from torch.nn import functional as F
from torch.utils import _pytree as pytree

from sparsemod.measure.graph_interpreter import run
from sparsemod.measure.operators import lower
from sparsemod.measure.sizes import n_parameters


def silence(net, share, seed):
    """Zero a random share of the output channels of every layer: weights, biases and normalisation."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for module in net.modules():
            parameters = list(module.parameters(recurse=False))
            normalises = isinstance(module, nn.modules.batchnorm._BatchNorm)
            if not parameters or isinstance(module, nn.RNNBase):
                continue
            dead = torch.rand(len(parameters[0]), generator=generator) < share
            for parameter in parameters:
                if len(parameter) == len(dead):
                    parameter[dead] = 0
            if normalises:
                module.running_mean[dead] = 0
    return net


def assert_same_function(net, x):
    graph = lower(net, x)
    with torch.no_grad():
        expected = pytree.tree_leaves(net.eval()(x))
    for got, want in zip(run(graph, x), expected, strict=True):
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)
    return graph


EXACT = [name for name, (_, _, exact) in ZOO.items() if exact]


@pytest.mark.parametrize(
    "name", [name for name in EXACT if name != "parametrized"]
)  # weight norm of zeros is NaN
@pytest.mark.parametrize("share", [0.4, 0.9])
def test_removing_dead_channels_keeps_the_function(name, share):
    net, x = built(name)
    assert_same_function(silence(net, share, 1), x)


@settings(max_examples=25, deadline=None)
@given(
    st.integers(0, 10**6), st.sampled_from(["plain_cnn", "residual", "squeeze_excite", "inception", "conv1d"])
)
def test_any_pattern_of_dead_channels_keeps_the_function(seed, name):
    net, x = built(name, seed)
    before = n_parameters(lower(net, x))
    assert n_parameters(assert_same_function(silence(net, 0.5, seed), x)) <= before


def shapes(graph):
    return [graph.tensors[operator.outputs[0]].shape for operator in graph.operators]


def test_a_dead_channel_disappears_through_pool_and_flatten():
    net = nn.Sequential(nn.Conv2d(2, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(16, 3))
    with torch.no_grad():
        net[0].weight[1] = 0
        net[0].bias[1] = -0.5  # nothing is left of it after the ReLU
    graph = assert_same_function(net, torch.randn(1, 2, 6, 6))
    assert shapes(graph) == [(1, 4, 4, 3), (1, 2, 2, 3), (1, 3)]
    assert graph.operators[2].weights[0].values.shape == (3, 12)
    assert [operator.n_macs for operator in graph.operators] == [16 * 3 * 18, 0, 36]


def test_a_channel_with_a_positive_bias_is_not_dead():
    net = nn.Sequential(nn.Conv2d(2, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(64, 3))
    with torch.no_grad():
        net[0].weight[1] = 0
        net[0].bias[1] = 0.5
    assert shapes(assert_same_function(net, torch.randn(1, 2, 6, 6)))[0] == (1, 4, 4, 4)


def test_a_sum_loses_only_the_channels_that_are_dead_on_both_sides():
    class Sum(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Conv2d(1, 4, 1, bias=False), nn.Conv2d(1, 4, 1, bias=False)
            self.c = nn.Conv2d(4, 2, 1)

        def forward(self, x):
            return self.c(self.a(x) + self.b(x))

    net = Sum()
    with torch.no_grad():
        net.a.weight[[0, 1]] = 0
        net.b.weight[[1, 2]] = 0
    assert shapes(assert_same_function(net, torch.randn(1, 1, 3, 3)))[:3] == [(1, 3, 3, 3)] * 3


def test_death_spreads_to_later_layers_and_back_to_what_only_they_read():
    net = nn.Sequential(nn.Conv2d(1, 4, 1, bias=False), nn.Conv2d(4, 4, 1, bias=False), nn.Conv2d(4, 2, 1))
    with torch.no_grad():
        net[0].weight[0] = 0
        net[1].weight[1, 1:] = 0  # reads the dead channel alone
        net[1].weight[:, 2] = 0  # nobody reads channel 2
        net[2].weight[:, 3] = 0
    graph = assert_same_function(net, torch.randn(1, 1, 3, 3))
    assert shapes(graph) == [(1, 3, 3, 2), (1, 3, 3, 2), (1, 3, 3, 2)]


def test_depthwise_layers_lose_the_channel_too():
    net = nn.Sequential(
        nn.Conv2d(2, 6, 1),
        nn.ReLU(),
        nn.Conv2d(6, 12, 3, groups=6, bias=False),
        nn.ReLU(),
        nn.Conv2d(12, 2, 1),
    )
    with torch.no_grad():
        net[0].weight[4] = 0
        net[0].bias[4] = 0
    graph = assert_same_function(net, torch.randn(1, 2, 6, 6))
    assert shapes(graph) == [(1, 6, 6, 5), (1, 4, 4, 10), (1, 4, 4, 2)]


def test_a_layer_that_is_dead_altogether_keeps_one_channel():
    net = nn.Sequential(nn.Conv2d(2, 6, 1, bias=False), nn.ReLU(), nn.Conv2d(6, 2, 1))
    nn.init.zeros_(net[0].weight)
    assert shapes(assert_same_function(net, torch.randn(1, 2, 3, 3)))[0] == (1, 3, 3, 1)


def test_inputs_outputs_and_what_needs_all_channels_stay():
    net = nn.Sequential(nn.Conv2d(3, 4, 1, bias=False), nn.Softmax(1), nn.Conv2d(4, 5, 1, bias=False))
    with torch.no_grad():
        net[0].weight[2] = 0
        net[0].weight[:, 1] = 0
        net[2].weight[3] = 0
    graph = assert_same_function(net, torch.randn(1, 3, 2, 2))
    assert [tensor.shape[-1] for tensor in graph.tensors] == [3, 4, 4, 5]


def test_an_lstm_reads_fewer_features():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.c, self.r = nn.Conv1d(2, 5, 3), nn.LSTM(5, 4, batch_first=True)

        def forward(self, x):
            return self.r(F.relu(self.c(x)).transpose(1, 2))[0][:, -1]

    net = Net()
    with torch.no_grad():
        net.c.weight[3] = 0
        net.c.bias[3] = 0
    graph = assert_same_function(net, torch.randn(1, 2, 9))
    lstm = next(operator for operator in graph.operators if "lstm" in operator.kind)
    assert lstm.weights[0].values.shape == (4, 4)
    assert lstm.n_macs == 7 * (4 * 4 * 4 + 4 * 4 * 4)
