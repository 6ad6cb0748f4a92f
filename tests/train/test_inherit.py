"""A child computes what its parent did, as far as their shapes allow."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import TensorDataset

from sparsemod.compress.structured import prune_channels
from sparsemod.train.data import open_data
from sparsemod.train.inherit import inherit
from sparsemod.train.trainer import TorchTrainer, TrainSettings, accuracy


def conv_net(widths=(6, 8), kernels=(3, 3), hidden=12, side=8, padding=None, seed=0, norm=True):
    torch.manual_seed(seed)
    layers, channels = [], 1
    for width, kernel in zip(widths, kernels, strict=True):
        pad = kernel // 2 if padding is None else padding
        side = side + 2 * pad - kernel + 1
        layers += [nn.Conv2d(channels, width, kernel, padding=pad)]
        layers += [nn.BatchNorm2d(width)] if norm else []
        layers += [nn.ReLU()]
        channels = width
    head = [nn.Flatten(), nn.Linear(channels * side * side, hidden), nn.ReLU(), nn.Linear(hidden, 10)]
    return nn.Sequential(*layers, *head)


def shake(net):
    """Give batch norms something to lose."""
    for module in net.modules():
        if isinstance(module, nn.BatchNorm2d):
            for tensor in (module.weight, module.bias, module.running_mean, module.running_var):
                nn.init.uniform_(tensor, 0.5, 1.5)
    return net.eval()


IMAGES = torch.randn(5, 1, 8, 8, generator=torch.Generator().manual_seed(3))


# What stays the same function


@given(
    widths=st.tuples(st.integers(6, 12), st.integers(8, 12)),
    kernels=st.tuples(st.sampled_from([3, 5, 7]), st.sampled_from([3, 5])),
    hidden=st.integers(12, 16),
)
def test_wider_layers_and_larger_kernels_compute_the_same(widths, kernels, hidden):
    parent = shake(conv_net())
    child = conv_net(widths, kernels, hidden, seed=1).eval()
    inherit(child, parent.state_dict())
    assert torch.allclose(child(IMAGES), parent(IMAGES), atol=1e-5)


def test_an_equal_network_is_copied_whole():
    parent = shake(conv_net())
    child = conv_net(seed=1).eval()
    report = inherit(child, parent.state_dict())
    assert torch.equal(child(IMAGES), parent(IMAGES))
    assert report.copied == tuple(parent.state_dict())
    assert report.partly == report.skipped == ()


def test_new_channels_keep_their_initialisation_so_that_they_can_learn():
    parent = conv_net()
    child = conv_net((9, 8), seed=1)
    fresh = child[0].weight.detach().clone()
    inherit(child, parent.state_dict())
    assert torch.equal(child[0].weight[:6], parent[0].weight)
    assert torch.equal(child[0].weight[6:], fresh[6:])
    assert not child[3].weight[:, 6:].any()
    child(IMAGES).sum().backward()
    assert child[3].weight.grad[:, 6:].any()


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
@pytest.mark.parametrize("bidirectional", [False, True])
def test_a_larger_hidden_state_computes_the_same(kind, bidirectional):
    class Recurrent(nn.Module):
        def __init__(self, n_in, hidden):
            super().__init__()
            self.embed = nn.Linear(3, n_in)
            self.rnn = kind(n_in, hidden, num_layers=2, batch_first=True, bidirectional=bidirectional)
            self.head = nn.Linear(hidden * (1 + bidirectional), 4)

        def forward(self, x):
            return self.head(self.rnn(self.embed(x))[0][:, -1])

    torch.manual_seed(0)
    parent, child = Recurrent(5, 6), Recurrent(7, 10)
    inherit(child, parent.state_dict())
    x = torch.randn(3, 9, 3)
    assert torch.allclose(child(x), parent(x), atol=1e-6)


def test_a_recurrent_cell_computes_the_same():
    torch.manual_seed(0)
    parent, child = nn.LSTMCell(3, 4), nn.LSTMCell(3, 6)
    inherit(child, parent.state_dict())
    x = torch.randn(2, 3)
    assert torch.allclose(child(x)[0][:, :4], parent(x)[0], atol=1e-6)


@pytest.mark.parametrize("old", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("new", [5, 6, 7])
@pytest.mark.parametrize("same", [False, True])
def test_a_larger_kernel_computes_the_same_even_when_one_is_even(old, new, same):
    pad = (lambda k: "same") if same else (lambda k: k // 2)
    torch.manual_seed(0)
    parent, child = nn.Conv1d(2, 3, old, padding=pad(old)), nn.Conv1d(2, 3, new, padding=pad(new))
    inherit(child, parent.state_dict())
    x = torch.randn(2, 2, 20)
    a, b = parent(x), child(x)
    n = min(a.shape[2], b.shape[2])
    assert torch.allclose(a[:, :, :n], b[:, :, :n], atol=1e-6)


def test_a_depthwise_convolution_grows_with_its_channels():
    def net(width):
        return nn.Sequential(
            nn.Conv2d(1, width, 1),
            nn.Conv2d(width, width, 3, groups=width),
            nn.Flatten(),
            nn.Linear(width * 36, 2),
        )

    parent, child = net(4), net(7)
    inherit(child, parent.state_dict())
    assert torch.allclose(child(IMAGES), parent(IMAGES), atol=1e-5)


def test_a_transposed_convolution_grows():
    def net(width):
        return nn.Sequential(
            nn.Conv1d(1, width, 3), nn.ConvTranspose1d(width, width, 3), nn.Conv1d(width, 2, 1)
        )

    parent, child = net(3), net(5)
    inherit(child, parent.state_dict())
    x = torch.randn(2, 1, 9)
    assert torch.allclose(child(x), parent(x), atol=1e-6)


def test_an_embedding_grows():
    parent, child = (nn.Sequential(nn.Embedding(5, n), nn.Linear(n, 2)) for n in (3, 6))
    inherit(child, parent.state_dict())
    words = torch.tensor([0, 4, 2])
    assert torch.allclose(child(words), parent(words), atol=1e-6)


def test_a_child_of_a_network_with_channels_taken_out_computes_the_same():
    parent = shake(conv_net())
    prune_channels(parent, IMAGES[:1], 0.5)
    child = conv_net(seed=1).eval()
    inherit(child, parent.state_dict())
    assert torch.allclose(child(IMAGES), parent(IMAGES), atol=1e-5)


# Behind a flattening


def test_a_linear_layer_behind_a_square_map_is_matched_by_channel_at_the_centre():
    def net(channels, side):
        return nn.Sequential(nn.Conv2d(1, channels, 1), nn.Flatten(), nn.Linear(channels * side**2, 2))

    parent, child = net(3, 4), net(5, 6)
    inherit(child, parent.state_dict())
    new, old = child[2].weight.view(2, 5, 6, 6), parent[2].weight.view(2, 3, 4, 4)
    assert torch.equal(new[:, :3, 1:5, 1:5], old)
    assert int((new != 0).sum()) == old.numel()


def test_a_smaller_map_takes_the_centre_of_the_larger():
    def net(side):
        return nn.Sequential(nn.Conv2d(1, 2, 1), nn.Flatten(), nn.Linear(2 * side**2, 3))

    parent, child = net(6), net(4)
    inherit(child, parent.state_dict())
    assert torch.equal(child[2].weight.view(3, 2, 4, 4), parent[2].weight.view(3, 2, 6, 6)[:, :, 1:5, 1:5])


def test_a_map_over_time_is_matched_at_the_centre():
    def net(steps):
        return nn.Sequential(nn.Conv1d(1, 2, 1), nn.ReLU(), nn.Flatten(), nn.Linear(2 * steps, 3))

    parent, child = net(5), net(8)
    inherit(child, parent.state_dict())
    assert torch.equal(child[3].weight.view(3, 2, 8)[:, :, 1:6], parent[3].weight.view(3, 2, 5))


def test_equal_numbers_of_inputs_in_other_channels_are_not_mistaken_for_the_same():
    def net(channels, side):
        return nn.Sequential(nn.Conv2d(1, channels, 1), nn.Flatten(), nn.Linear(channels * side**2, 2))

    parent, child = net(4, 2), net(1, 4)
    report = inherit(child, parent.state_dict())
    assert "2.weight" in report.partly
    assert torch.equal(child[2].weight.view(2, 4, 4)[:, 1:3, 1:3], parent[2].weight.view(2, 4, 2, 2)[:, 0])


# What does not fit


def test_shapes_and_names_that_do_not_correspond_are_skipped_and_reported():
    parent = nn.Sequential(nn.Conv1d(3, 4, 3), nn.Linear(5, 6), nn.ReLU())
    child = nn.Sequential(nn.Linear(3, 4), nn.Linear(5, 7), nn.BatchNorm1d(7))
    before = {name: value.clone() for name, value in child.state_dict().items()}
    report = inherit(child, parent.state_dict())
    assert report.copied == ("0.bias",)
    assert report.partly == ("1.weight", "1.bias")
    assert set(report.skipped) == {"0.weight", *(f"2.{leaf}" for leaf in child[2].state_dict())}
    assert all(torch.equal(child.state_dict()[name], before[name]) for name in report.skipped)


def test_gates_that_do_not_divide_are_skipped():
    report = inherit(nn.LSTM(3, 4), nn.GRU(3, 3).state_dict())
    assert set(report.skipped) == {"weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0"}


@pytest.mark.parametrize(
    "child", [lambda: conv_net((2, 3), hidden=4), lambda: conv_net(kernels=(1, 2), padding=0)]
)
def test_a_smaller_child_takes_what_it_can(child):
    net = child()
    assert inherit(net, shake(conv_net()).state_dict()).skipped == ()
    assert all(value.isfinite().all() for value in net.state_dict().values())


def test_an_empty_parent_changes_nothing():
    child = conv_net()
    report = inherit(child, {})
    assert report.skipped == tuple(child.state_dict())


def test_the_parent_is_untouched_and_nothing_is_shared():
    parent = conv_net()
    state = parent.state_dict()
    before = {name: value.clone() for name, value in state.items()}
    child = conv_net()
    inherit(child, state)
    with torch.no_grad():
        for parameter in child.parameters():
            parameter.add_(1.0)
    assert all(torch.equal(state[name], before[name]) for name in state)


def test_a_child_in_channels_last_format_is_filled_alike():
    parent = shake(conv_net())
    child = conv_net((9, 10), (5, 3), seed=1).eval().to(memory_format=torch.channels_last)
    inherit(child, parent.state_dict())
    assert torch.allclose(child(IMAGES), parent(IMAGES), atol=1e-5)


# On real data


@pytest.fixture(scope="module")
def digits():
    images, labels = load_digits(return_X_y=True)
    x = torch.tensor(images, dtype=torch.float32).view(-1, 1, 8, 8) / 16
    data = [
        open_data(TensorDataset(x[part], torch.tensor(labels[part])))
        for part in (slice(1400), slice(1400, None))
    ]
    parent = conv_net((8, 12), hidden=32)
    TorchTrainer().fit(parent, *data, TrainSettings(3e-3, 1.0, 1, 32, 6))
    return parent.eval(), data[1]


def sliced(child, state):
    """Plain inheritance: what overlaps from the first element on, in every dimension."""
    with torch.no_grad():
        for name, tensor in child.state_dict().items():
            part = tuple(slice(min(n, m)) for n, m in zip(tensor.shape, state[name].shape, strict=True))
            tensor[part] = state[name][part]


@pytest.mark.parametrize(
    ("padding", "kept", "kept_by_slicing"),
    [(None, 0.998, 0.5), (1, 0.6, 0.3)],
    ids=["maps keep their size", "maps shrink"],
)
def test_a_larger_kernel_keeps_the_accuracy_that_plain_slicing_loses(digits, padding, kept, kept_by_slicing):
    parent, validation = digits
    before = accuracy(parent, validation)
    child, plain = (conv_net((8, 12), (5, 5), 32, padding=padding, seed=1).eval() for _ in range(2))
    inherit(child, parent.state_dict())
    sliced(plain, parent.state_dict())
    assert before > 0.9
    assert accuracy(child, validation) > kept * before
    assert accuracy(plain, validation) < kept_by_slicing * before
