"""Quantization-aware training as a train hook."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from sparsemod.compress.qat import QATHook, fake_quantize_weight
from sparsemod.compress.quantization import quantize
from sparsemod.errors import CandidateError, ConfigError


def problem(seed=0):
    """Which of four random directions an image points to most."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(512, 1, 8, 8, generator=generator)
    directions = torch.randn(64, 4, generator=generator)
    return x, (x.flatten(1) @ directions).argmax(1)


def cnn():
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(inplace=True),
        nn.Conv2d(8, 8, 3, padding=1, groups=8), nn.BatchNorm2d(8), nn.ReLU6(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Dropout(0.1), nn.Linear(128, 4),
    )  # fmt: skip


class LSTM(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.LSTM(8, 16, batch_first=True, bidirectional=True)
        self.head = nn.Linear(32, 4)

    def forward(self, x):
        return self.head(self.rnn(x[:, 0])[0].flatten(1).unflatten(1, (8, 32)).mean(1))


def dense():
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 4))


def train(net, hook, steps=100, rate=3e-3, seed=0):
    """Train and return the losses."""
    x, y = problem()
    optimizer = torch.optim.Adam(net.parameters(), rate)
    hook.start(net, steps)
    generator = torch.Generator().manual_seed(seed)
    losses = []
    for step in range(steps):
        hook.before_step(step)
        batch = torch.randint(0, len(x), (64,), generator=generator)
        optimizer.zero_grad()
        loss = F.cross_entropy(hook.forward(net, x[batch]), y[batch])
        loss.backward()
        optimizer.step()
        hook.after_step(step)
        losses.append(loss.item())
    return losses


def accuracy(forward):
    x, y = problem()
    with torch.no_grad():
        return float((forward(x).argmax(1) == y).float().mean())


@pytest.mark.parametrize("share", [-0.1, 1.0, 3])
def test_the_share_is_checked(share):
    with pytest.raises(ConfigError, match=r"start_fraction: expected a number in \[0, 1\)"):
        QATHook(share)


def test_it_starts_where_it_is_told():
    hook = QATHook(0.7)
    hook.start(nn.Linear(1, 1), 10)
    assert [hook.ready(step) for step in range(10)] == [False] * 7 + [True] * 3
    hook.start(nn.Linear(1, 1), 1)
    assert hook.ready(0)
    late = QATHook(0.99)
    late.start(nn.Linear(1, 1), 10)
    assert [late.ready(step) for step in range(10)] == [False] * 9 + [True]


def test_before_that_the_network_runs_as_it_is():
    torch.manual_seed(0)
    net, x = cnn(), problem()[0]
    hook = QATHook(0.5)
    hook.start(net, 10)
    hook.before_step(4)
    torch.manual_seed(1)
    outputs = hook.forward(net, x)
    torch.manual_seed(1)
    assert torch.equal(outputs, net(x))


@pytest.mark.parametrize("make", [cnn, dense, LSTM])
def test_the_loss_falls_under_fake_quantization(make):
    torch.manual_seed(0)
    net = make()
    losses = train(net, QATHook(0.0))
    assert net.training
    assert sum(losses[-10:]) < 0.95 * sum(losses[:10])


def test_batch_norms_are_frozen_but_trained():
    torch.manual_seed(0)
    net = cnn()
    net(problem()[0])
    mean, factor = net[1].running_mean.clone(), net[1].weight.clone()
    train(net, QATHook(0.0), steps=3)
    assert torch.equal(net[1].running_mean, mean)
    assert not torch.equal(net[1].weight, factor)


def test_training_is_the_same_every_time():
    results = []
    for _ in range(2):
        torch.manual_seed(0)
        net = cnn()
        losses = train(net, QATHook(0.5), steps=30)
        results.append((losses, quantize(net, "qat", [problem()[0]])(problem()[0])))
    assert results[0][0] == results[1][0]
    assert torch.equal(results[0][1], results[1][1])


def test_dropout_is_active_in_training_and_not_in_validation():
    torch.manual_seed(0)
    net, x = cnn(), problem()[0]
    hook = QATHook(0.0)
    hook.start(net, 10)
    hook.before_step(0)
    assert not torch.equal(hook.forward(net, x), hook.forward(net, x))
    net.eval()
    with torch.no_grad():
        assert torch.equal(hook.forward(net, x), hook.forward(net, x))


def test_validation_sees_what_ships():
    torch.manual_seed(0)
    net, x = cnn(), problem()[0]
    hook = QATHook(0.5)
    train(net, hook, steps=60)
    net.eval()
    with torch.no_grad():
        seen = hook.forward(net, x)
    shipped = quantize(net, "qat", [x])(x)
    assert (seen - shipped).square().mean().sqrt() < 0.05 * shipped.std()
    assert (seen.argmax(1) == shipped.argmax(1)).float().mean() > 0.95


def test_quantized_accuracy_is_not_below_that_of_quantizing_afterwards():
    """An outlier channel makes the grid of the hidden layer coarse; training on the grid adapts to it."""
    after, aware = [], []
    for seed in range(3):
        for hook, results in ((QATHook(0.99), after), (QATHook(0.5), aware)):
            torch.manual_seed(seed)
            net = dense()
            with torch.no_grad():
                net[2].weight[0] = 0.0
                net[2].bias[0] = 400.0
                net[4].weight[:, 0] = 0.0
            train(net, hook, steps=200, seed=seed)
            results.append(accuracy(quantize(net, "qat", [problem()[0]])))
    print(f"int8 accuracy: trained in float {after}, on the grid {aware}")
    assert sum(aware) >= sum(after)


def test_parameters_that_are_replaced_are_followed():
    """As structured pruning does between two steps."""
    torch.manual_seed(0)
    net, (x, y) = dense(), problem()
    hook = QATHook(0.0)
    hook.start(net, 10)
    hook.before_step(0)
    hook.forward(net, x)
    net[1], net[2], net[4] = nn.Linear(64, 8), nn.BatchNorm1d(8), nn.Linear(8, 4)
    F.cross_entropy(hook.forward(net, x), y).backward()
    assert net[2].weight.grad.abs().sum() > 0


def test_masked_weights_stay_zero():
    weight = torch.randn(4, 6)
    weight[:, ::2] = 0
    rounded = fake_quantize_weight(weight, torch.arange(4).reshape(-1, 1), 4)
    assert (rounded[:, ::2] == 0).all()


def test_the_gradient_of_a_weight_passes_straight_through():
    weight = torch.randn(4, 6, requires_grad=True)
    fake_quantize_weight(weight, torch.arange(4).reshape(-1, 1), 4).sum().backward()
    assert torch.equal(weight.grad, torch.ones(4, 6))


def test_a_network_that_takes_another_way_is_refused():
    class Wayward(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(2, 2)

        def forward(self, x):
            return torch.tanh(self.layer(x)) if len(x) > 2 else self.layer(x).sigmoid()

    net, hook = Wayward(), QATHook(0.0)
    hook.start(net, 5)
    hook.forward(net, torch.randn(2, 2))
    with pytest.raises(
        CandidateError, match="operator 1 of the network is tanh, in calibration it was sigmoid"
    ):
        hook.forward(net, torch.randn(3, 2))
