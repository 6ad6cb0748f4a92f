"""The pruning hook reaches its sparsity exactly, in time, and nothing that is pruned comes back."""

import pytest
import torch
from torch import nn

from sparsemod.compress.masks import prunable_parameters, sparsity
from sparsemod.compress.pruning import PruningHook
from sparsemod.errors import ConfigError


def small_net(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Conv2d(1, 8, 3),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Conv2d(8, 8, 3),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(128, 5),
    )


def train(net, hook, n_steps, optimizer=None, example=None):
    """Make steps that move every weight, and return the sparsity behind each."""
    example = torch.randn(4, 1, 8, 8) if example is None else example
    optimizer = optimizer or torch.optim.Adam(net.parameters(), 0.01)
    hook.start(net, n_steps)
    course = []
    for step in range(n_steps):
        hook.before_step(step)
        optimizer.zero_grad()
        (net(example).square().mean() + sum(p.sum() for p in net.parameters())).backward()
        optimizer.step()
        hook.after_step(step)
        weights = prunable_parameters(net).values()
        course.append(sum(int((w == 0).sum()) for w in weights) / sum(w.numel() for w in weights))
    return course


def n_zeros(net):
    return sum(int((weight == 0).sum()) for weight in prunable_parameters(net).values())


@pytest.mark.parametrize("final", [0.1, 0.5, 0.873, 0.99])
@pytest.mark.parametrize("n_steps", [1, 2, 7, 40])
def test_the_final_number_of_zeros_is_exact_however_short_the_training(final, n_steps):
    net = small_net()
    hook = PruningHook(final)
    train(net, hook, n_steps)
    n_weights = 72 + 576 + 640
    assert n_zeros(net) == round(n_weights * final)
    assert sparsity(hook.masks) == pytest.approx(round(n_weights * final) / n_weights)
    assert hook.ready(n_steps - 1)


def test_the_sparsity_climbs_from_ten_to_seventy_percent_of_the_steps_and_then_stands():
    course = train(small_net(), PruningHook(0.8), 100)
    assert course[:10] == [0.0] * 10
    assert course == sorted(course)
    assert course[39] == pytest.approx(0.8 * (1 - 0.5**3), abs=0.001)  # half of the ramp, cubic
    assert course[68] < 0.8
    assert all(value == pytest.approx(0.8, abs=0.001) for value in course[69:])


def test_it_is_ready_only_when_the_final_sparsity_is_reached():
    hook = PruningHook(0.8)
    net = small_net()
    hook.start(net, 10)
    net(torch.randn(2, 1, 8, 8))
    ready = []
    for step in range(10):
        hook.after_step(step)
        ready.append(hook.ready(step))
    assert ready == [False] * 6 + [True] * 4


@pytest.mark.parametrize("threshold", [0, 1, 0.0, 1.0, -0.5, 2.0])
def test_a_threshold_of_zero_or_one_prunes_nothing_and_is_ready_at_once(threshold):
    net = small_net()
    hook = PruningHook(threshold)
    assert train(net, hook, 10) == [0.0] * 10
    assert hook.ready(0)
    assert hook.masks == {}


@pytest.mark.parametrize(
    "make", [lambda p: torch.optim.SGD(p, 0.1, momentum=0.9), lambda p: torch.optim.Adam(p, 0.1)]
)
def test_momentum_revives_nothing(make):
    net = small_net()
    hook = PruningHook(0.5, start=0.0, end=0.5)
    hook.start(net, 20)
    optimizer = make(net.parameters())
    gone = {}
    for step in range(20):
        optimizer.zero_grad()
        sum(p.square().sum() + p.sum() for p in net.parameters()).backward()
        optimizer.step()
        hook.after_step(step)
        for name, weight in prunable_parameters(net).items():
            if name in gone:
                assert not weight[gone[name]].any()
            gone[name] = weight == 0


def test_weights_that_pass_through_zero_by_chance_are_not_frozen():
    net = nn.Linear(4, 1, bias=False)
    hook = PruningHook(0.5, start=0.0, end=0.01)
    net.weight.data = torch.tensor([[0.1, 0.2, 3.0, 4.0]])
    hook.start(net, 100)
    hook.after_step(0)
    net.weight.data[0, 2] = 0.0
    hook.after_step(1)
    net.weight.data += 1.0
    hook.after_step(2)
    assert net.weight.tolist() == [[0.0, 0.0, 1.0, 5.0]]


def test_masks_are_renewed_about_fifty_times_however_long_the_training():
    hook = PruningHook(0.5)
    hook.start(nn.Linear(100, 10), 10_000)
    seen = set()
    for step in range(10_000):
        hook.after_step(step)
        seen.add(round(sparsity(hook.masks) * 1000))
    assert 45 <= len(seen) <= 55


def test_excluded_weights_stay_and_the_rest_takes_the_sparsity():
    net = small_net()
    train(net, PruningHook(0.5, exclude=["6.weight"]), 10)
    assert int((net[6].weight == 0).sum()) == 0
    assert n_zeros(net) == (72 + 576) // 2
    with pytest.raises(ConfigError, match="no prunable parameter matches 'head'"):
        PruningHook(0.5, exclude=["head"]).start(small_net(), 10)


def test_recurrent_weights_are_pruned():
    net = nn.LSTM(3, 4)
    hook = PruningHook(0.5)
    hook.start(net, 1)
    hook.after_step(0)
    assert n_zeros(net) == (16 * 3 + 16 * 4) // 2


def test_the_last_layer_is_pruned_like_the_others():
    net = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    net[0].weight.data.fill_(2.0)
    net[1].weight.data.fill_(1.0)
    hook = PruningHook(0.5)
    hook.start(net, 1)
    hook.after_step(0)
    assert [int((layer.weight == 0).sum()) for layer in net] == [0, 16]


def test_a_hook_can_be_used_for_a_second_network():
    hook = PruningHook(0.5)
    for seed in (0, 1):
        net = small_net(seed)
        assert train(net, hook, 10)[0] == 0.0
        assert n_zeros(net) == 644


def test_the_ramp_must_lie_within_the_training():
    with pytest.raises(ValueError, match=r"0 <= start <= end <= 1, got start=0.8, end=0.7"):
        PruningHook(0.5, start=0.8)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"structure": "2:4"}, "'2:4' has one sparsity and so no ramp"),
        ({"structure": "filter"}, "scope must be 'local'"),
        ({"structure": "row"}, "structure must be"),
        ({"scope": "layer"}, "scope must be 'global' or 'local'"),
    ],
)
def test_what_does_not_go_together_is_refused_at_once(arguments, message):
    with pytest.raises(ValueError, match=message):
        PruningHook(0.5, **arguments)


def test_whole_filters_can_be_pruned_in_training():
    net = small_net()
    train(net, PruningHook(0.5, structure="filter", scope="local", exclude=["6.weight"]), 10)
    for layer in (net[0], net[3]):
        assert int((layer.weight == 0).flatten(1).all(dim=1).sum()) == 4
        assert int((layer.bias == 0).sum()) == 4


# Channels that are wholly pruned


class Wired(nn.Module):
    """A convolution and its batch norm, registered far apart; a residual; two heads that look alike."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(6, 3)
        self.norm_b = nn.BatchNorm2d(6)
        self.a = nn.Conv2d(1, 6, 3, padding=1)
        self.b = nn.Conv2d(6, 6, 3, padding=1)
        self.norm_a = nn.BatchNorm2d(6)

    def forward(self, x):
        x = torch.relu(self.norm_a(self.a(x)))
        return self.head((x + self.norm_b(self.b(x))).mean([2, 3]))


@pytest.fixture
def wired():
    torch.manual_seed(0)
    net = Wired()
    for norm in (net.norm_a, net.norm_b):
        nn.init.uniform_(norm.weight, 0.5, 1.5)
        nn.init.uniform_(norm.bias, 0.5, 1.5)
    net.a.weight.data[2] *= 1e-4
    net.b.weight.data[4] *= 1e-4
    net.head.weight.data[1] *= 1e-4
    hook = PruningHook(0.5)
    hook.start(net, 4)
    optimizer = torch.optim.Adam(net.parameters(), 1e-5)
    for step in range(4):
        optimizer.zero_grad()
        net(torch.randn(8, 1, 5, 5)).square().mean().backward()
        optimizer.step()
        hook.after_step(step)
    return net.eval()


def test_a_dead_channel_puts_out_exactly_zero(wired):
    assert not wired.a.weight[2].any()
    assert not wired.b.weight[4].any()
    x = torch.randn(3, 1, 5, 5)
    a = wired.norm_a(wired.a(x))
    assert not a[:, 2].any()
    assert not wired.a(x)[:, 2].any()
    assert not wired.norm_b(wired.b(torch.relu(a)))[:, 4].any()


def test_living_channels_keep_their_bias_and_batch_norm(wired):
    alive = [0, 1, 3, 5]
    for tensor in (wired.a.bias, wired.norm_a.weight, wired.norm_a.bias, wired.norm_b.weight):
        assert tensor[alive].ne(0).all()


def test_the_last_layer_keeps_the_bias_of_a_dead_class(wired):
    assert not wired.head.weight[1].any()
    assert wired.head.bias[1] != 0


def test_a_batch_norm_that_reads_something_else_is_left_alone():
    class Summed(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Linear(4, 4)
            self.norm = nn.BatchNorm1d(4)
            self.head = nn.Linear(4, 2)

        def forward(self, x):
            return self.head(self.norm(x + self.a(x)))

    net = Summed()
    net.a.weight.data *= 1e-4
    hook = PruningHook(0.8, start=0.0, end=1.0)
    hook.start(net, 1)
    net(torch.randn(3, 4))
    hook.after_step(0)
    assert not net.a.weight.any()
    assert not net.a.bias.any()
    assert net.norm.weight.all()


def test_a_batch_norm_behind_two_layers_loses_only_what_is_dead_in_both():
    class Shared(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False)
            self.norm = nn.BatchNorm1d(4)
            self.head = nn.Linear(4, 2)

        def forward(self, x):
            return self.head(self.norm(self.a(x)) + self.norm(self.b(x)))

    net = Shared()
    net.a.weight.data[[0, 1]] *= 1e-4
    net.b.weight.data[[1, 2]] *= 1e-4
    hook = PruningHook(0.4)
    hook.start(net, 1)
    net(torch.randn(3, 4))
    hook.after_step(0)
    assert (net.norm.weight != 0).tolist() == [True, False, True, True]


def test_nothing_watches_the_network_after_the_first_step():
    net = small_net()
    train(net, PruningHook(0.5), 2)
    assert not any(module._forward_hooks for module in net.modules())
