# ruff: noqa: NPY002
import random

import numpy as np
import pytest
import torch
from net_zoo import Lambda
from torch import nn
from torch.nn import functional as F

from sparsemod.errors import CandidateError
from sparsemod.measure import operators
from sparsemod.measure.operators import lower


def test_modes_are_given_back_module_by_module():
    net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Dropout())
    net.train()
    net[1].eval()  # frozen on purpose
    lower(net, torch.zeros(1, 1, 5, 5))
    assert [module.training for module in net.modules()] == [True, True, False, True]


def test_a_failing_network_is_a_failed_candidate_and_keeps_its_mode():
    net = nn.Sequential(nn.Linear(3, 4), nn.Linear(5, 2)).train()
    with pytest.raises(CandidateError, match=r"^Sequential.forward raised RuntimeError: mat1 and mat2"):
        lower(net, torch.zeros(1, 3))
    assert all(module.training for module in net.modules())
    assert not net[0]._forward_hooks
    assert not net[0]._forward_pre_hooks


def test_a_mistake_of_ours_does_not_pass_for_one_of_the_network(monkeypatch):
    def mistaken(*_):
        raise KeyError("ours")

    monkeypatch.setitem(operators._HANDLERS, "relu", mistaken)
    with pytest.raises(KeyError, match="ours"):
        lower(nn.ReLU(), torch.zeros(1, 3))
    monkeypatch.setattr("sparsemod.measure.storages.Storages.register", mistaken)
    with pytest.raises(KeyError, match="ours"):
        lower(nn.ReLU(), torch.zeros(1, 3))


def test_parameters_buffers_and_the_example_are_left_as_they_were():
    def forward(m, x):
        m.count += 1
        x.add_(1)
        m.c.weight.data.mul_(2)
        y = F.batch_norm(m.c(x), m.n.running_mean, m.n.running_var, training=True)
        return y * m.count

    net = Lambda(forward, c=nn.Conv2d(1, 2, 3), n=nn.BatchNorm2d(2))
    net.register_buffer("count", torch.ones(1))
    before = {name: value.clone() for name, value in net.state_dict().items()}
    example = torch.ones(1, 1, 5, 5)
    lower(net, example)
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    assert torch.equal(example, torch.ones(1, 1, 5, 5))
    assert all(parameter.requires_grad for parameter in net.parameters())


def test_random_numbers_go_on_as_if_nothing_had_happened():
    def forward(m, x):
        return m.f(F.dropout(x, 0.5, training=True) * random.random() * np.random.rand() + torch.randn(3))

    def draw():
        return torch.rand(1).item(), random.random(), np.random.rand()

    def seed():
        torch.manual_seed(1)
        random.seed(1)
        np.random.seed(1)

    net = Lambda(forward, f=nn.Linear(3, 2))
    seed()
    expected = draw()
    seed()
    lower(net, torch.zeros(1, 3))
    assert draw() == expected


def test_an_output_that_ignores_the_input_is_refused():
    net = Lambda(lambda m, x: m.f(torch.zeros(1, 3)), f=nn.Linear(3, 2))
    with pytest.raises(CandidateError, match=r"the output of Lambda.forward does not depend on its input"):
        lower(net, torch.zeros(1, 3))


def test_what_the_output_does_not_need_is_not_counted():
    def forward(m, x):
        m.unused(x)
        return m.f(x)

    net = Lambda(forward, f=nn.Linear(3, 2), unused=nn.Linear(3, 100))
    assert [operator.module for operator in lower(net, torch.zeros(1, 3)).operators] == ["f"]


def test_a_network_with_an_autograd_function_of_its_own_is_traced():
    class Half(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.relu() * 0.5

        @staticmethod
        def backward(ctx, gradient):
            return gradient

    graph = lower(Lambda(lambda m, x: Half.apply(m.f(x)), f=nn.Linear(3, 2)), torch.zeros(1, 3))
    assert [operator.kind for operator in graph.operators] == ["fully_connected", "mul"]


def test_the_network_can_be_trained_afterwards():
    net = nn.Sequential(nn.Linear(3, 2))
    lower(net, torch.zeros(1, 3))
    net(torch.ones(4, 3)).sum().backward()
    assert net[0].weight.grad is not None
    assert all(not parameter.is_inference() for parameter in net.parameters())


def test_two_traces_of_a_network_are_the_same():
    net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(18, 2))
    first, second = (lower(net, torch.zeros(1, 1, 5, 5)) for _ in range(2))
    assert first.tensors == second.tensors
    assert [tensor.name for tensor in first.tensors] == ["input", "0:conv_2d", "3:fully_connected"]
    for a, b in zip(first.weights(), second.weights(), strict=True):
        assert a.name == b.name
        np.testing.assert_array_equal(a.values, b.values)


def test_weights_are_copies_that_training_does_not_change():
    net = nn.Sequential(nn.Linear(3, 2))
    graph = lower(net, torch.zeros(1, 3))
    before = [weight.values.copy() for weight in graph.weights()]
    nn.init.zeros_(net[0].weight)
    nn.init.zeros_(net[0].bias)
    (weight,) = graph.weights()
    np.testing.assert_array_equal(weight.values, before[0])
    assert weight.bias.any()
