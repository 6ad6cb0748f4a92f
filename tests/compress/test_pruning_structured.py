"""Whole channels leave the network, and it still gives logits of the same shape."""

import pytest
import torch
from torch import nn

from sparsemod.compress.structured import StructuredPruningHook, load_resized, prune_channels
from sparsemod.errors import CandidateError

IMAGE = torch.randn(1, 1, 8, 8, generator=torch.Generator().manual_seed(0))


class Residual(nn.Module):
    def __init__(self, width=16, flat=32):
        super().__init__()
        self.stem = nn.Conv2d(1, width, 3, padding=1)
        self.norm = nn.BatchNorm2d(width)
        self.inner = nn.Conv2d(width, width, 3, padding=1)
        self.depthwise = nn.Conv2d(width, width, 3, padding=1, groups=width)
        self.pointwise = nn.Conv2d(width, 24, 1)
        self.hidden = nn.Linear(24 * 16, flat)
        self.head = nn.Linear(flat, 10)

    def forward(self, x):
        x = torch.relu(self.norm(self.stem(x)))
        x = nn.functional.max_pool2d(x + self.inner(x), 2)
        x = torch.relu(self.pointwise(self.depthwise(x)))
        return self.head(torch.relu(self.hidden(torch.flatten(x, 1))))


def residual():
    torch.manual_seed(0)
    return Residual()


def test_half_of_the_channels_go_and_tied_layers_go_together():
    net = residual()
    prune_channels(net, IMAGE, 0.5)
    assert net.stem.weight.shape == (8, 1, 3, 3)
    assert net.norm.num_features == 8
    assert net.inner.weight.shape == (8, 8, 3, 3)
    assert net.depthwise.weight.shape == (8, 1, 3, 3)
    assert net.pointwise.weight.shape == (12, 8, 1, 1)
    assert net.hidden.weight.shape == (16, 12 * 16)
    assert net.head.weight.shape == (10, 16)
    assert net(torch.randn(5, 1, 8, 8)).shape == (5, 10)


def test_a_dead_channel_goes_first_and_the_function_stays():
    net = nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Conv2d(4, 2, 3), nn.Flatten(), nn.Linear(32, 3)
    ).eval()
    net[0].weight.data[[1, 3]] = 0
    net[0].bias.data[[1, 3]] = 0
    net[1].weight.data[[1, 3]] = 0
    net[2].weight.data[:, [1, 3]] = 0
    before = net(IMAGE)
    net_channels = net[2].out_channels
    prune_channels(net, IMAGE, 0.5)
    assert net[0].out_channels == 2
    assert net[2].in_channels == 2
    assert net[2].out_channels == net_channels // 2
    assert net[0].weight.ne(0).any(dim=(1, 2, 3)).all()
    assert net(IMAGE).shape == before.shape


@pytest.mark.parametrize("fraction", [0.01, 0.5, 0.9, 0.999])
def test_at_least_one_channel_stays(fraction):
    net = residual()
    prune_channels(net, IMAGE, fraction)
    assert net.stem.out_channels == max(1, 16 - round(16 * fraction))
    assert net(IMAGE).shape == (1, 10)


@pytest.mark.parametrize("fraction", [0, 1, -1.0, 1.0])
def test_a_fraction_of_zero_or_one_prunes_nothing(fraction):
    net = residual()
    prune_channels(net, IMAGE, fraction)
    assert net.stem.out_channels == 16


def test_convolutions_over_time_and_plain_layers_are_pruned_too():
    for net, example in (
        (nn.Sequential(nn.Conv1d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(64, 4)), torch.randn(1, 3, 10)),
        (nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 4)), torch.randn(1, 6)),
    ):
        prune_channels(net, example, 0.5)
        assert len(net[0].weight) == 4
        assert net(example).shape == (1, 4)


def test_groups_of_a_convolution_lose_the_same_channels():
    net = nn.Sequential(nn.Conv2d(1, 8, 3), nn.Conv2d(8, 16, 3, groups=4), nn.Flatten(), nn.Linear(256, 3))
    prune_channels(net, IMAGE, 0.5)
    assert (net[1].groups, net[1].in_channels, net[1].out_channels) == (4, 4, 8)
    assert net(IMAGE).shape == (1, 3)
    built = nn.Sequential(nn.Conv2d(1, 8, 3), nn.Conv2d(8, 16, 3, groups=4), nn.Flatten(), nn.Linear(256, 3))
    load_resized(built, net.state_dict())
    assert str(built) == str(net)
    assert torch.equal(built(IMAGE), net(IMAGE))


def test_the_training_mode_is_kept():
    net = residual().train()
    prune_channels(net, IMAGE, 0.5)
    assert net.training
    net.eval()
    prune_channels(net, IMAGE, 0.5)
    assert not net.norm.training


def test_a_recurrent_network_is_refused_in_one_line():
    class Recurrent(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn = nn.GRU(4, 8)

        def forward(self, x):
            return self.rnn(x)[0][-1]

    with pytest.raises(
        CandidateError, match=r"^structured pruning needs a network without recurrent layers, rnn is GRU$"
    ):
        prune_channels(Recurrent(), torch.randn(5, 1, 4), 0.5)


def test_a_forward_that_holds_numbers_of_channels_is_refused_in_one_line():
    class Stubborn(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(1, 4, 3)
            self.head = nn.Linear(4 * 36, 2)

        def forward(self, x):
            return self.head(self.conv(x).reshape(-1, 4, 36).reshape(-1, 144))

    with pytest.raises(CandidateError, match=r"^structured pruning") as caught:
        prune_channels(Stubborn(), IMAGE, 0.5)
    assert "\n" not in str(caught.value)


# While a network trains


def run(hook, net, n_steps):
    hook.start(net, n_steps)
    course = []
    for step in range(n_steps):
        hook.before_step(step)
        net.train()
        net(torch.randn(4, 1, 8, 8)).sum().backward()
        replaced = hook.after_step(step)
        course.append((net.stem.out_channels, replaced, hook.ready(step)))
    return course


def test_the_hook_goes_down_in_five_cuts_and_says_when_parameters_are_new():
    course = run(StructuredPruningHook(0.75, IMAGE), residual(), 20)
    widths = [width for width, _, _ in course]
    assert widths == sorted(widths, reverse=True)
    assert (widths[0], widths[-1]) == (16, 4)
    assert [step for step, (_, replaced, _) in enumerate(course) if replaced] == [4, 6, 9, 11, 13]
    assert [ready for _, _, ready in course] == [False] * 13 + [True] * 7


@pytest.mark.parametrize("n_steps", [1, 2, 3])
def test_the_hook_reaches_its_fraction_in_a_very_short_training(n_steps):
    course = run(StructuredPruningHook(0.5, IMAGE), residual(), n_steps)
    assert course[-1] == (8, course[-1][1], True)


def test_the_hook_does_nothing_at_a_threshold_of_one():
    assert set(run(StructuredPruningHook(1.0, IMAGE), residual(), 4)) == {(16, False, True)}


def test_the_ramp_of_the_hook_must_lie_within_the_training():
    with pytest.raises(ValueError, match=r"0 <= start <= end <= 1"):
        StructuredPruningHook(0.5, IMAGE, end=1.1)


# Loading what was pruned


def test_pruned_weights_load_into_a_newly_built_network():
    pruned = residual()
    prune_channels(pruned, IMAGE, 0.6)
    pruned.eval()
    built = Residual().eval()
    load_resized(built, pruned.state_dict())
    assert torch.equal(built(IMAGE), pruned(IMAGE))
    assert str(built) == str(pruned)


def test_loading_copies():
    pruned = nn.Linear(2, 2)
    built = nn.Linear(3, 4)
    load_resized(built, pruned.state_dict())
    assert torch.equal(built.weight, pruned.weight)
    built.weight.data.zero_()
    assert pruned.weight.any()


def test_loading_refuses_the_weights_of_another_network():
    with pytest.raises(ValueError, match=r"another network: 'bias' is in one of them only"):
        load_resized(nn.Linear(2, 2), {"weight": torch.zeros(2, 2)})
