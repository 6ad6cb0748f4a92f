"""Static int8 quantization as a user sees it."""

import threading

import numpy as np
import pytest
import torch
from function_net import FunctionNet
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F

from sparsemod.compress.calls import intercepted_pass
from sparsemod.compress.quantization import quantize
from sparsemod.compress.values import tag
from sparsemod.errors import CandidateError, ConfigError, UnsupportedOperatorError


def conv(inputs=2, outputs=4, **options):
    return nn.Conv2d(inputs, outputs, 3, padding=1, **options)


def images(n=64, seed=0):
    return torch.randn(n, 2, 8, 8, generator=torch.Generator().manual_seed(seed))


def seeded(make):
    torch.manual_seed(0)
    return make()


def grids(quantized):
    return [(a.op, a.scale, a.zero_point) for a in quantized.activations]


def dense_by_hand():
    net = nn.Linear(2, 1)
    with torch.no_grad():
        net.weight.copy_(torch.tensor([[1.27, -0.5]]))
        net.bias.copy_(torch.tensor([0.1]))
    return net


def test_a_dense_layer_by_hand():
    """Input steps 2.55 / 255 = 0.01, weight steps 0.01, bias 0.1 / 0.0001 = 1000 steps.

    The outputs in calibration are -1.175, 3.3385 and 0.1: steps (3.3385 + 1.175) / 255 = 0.0177, and zero is
    stored as -128 + 1.175 / 0.0177 = -61.6, so -62. The input (1, 1) makes 100 * 127 - 100 * 50 + 1000 = 8700
    in the accumulator, 0.87 / 0.0177 = 49.15 steps, rounded to 49.
    """
    inputs = torch.tensor([[0.0, 2.55], [2.55, 0.0], [0.0, 0.0]])
    quantized = quantize(dense_by_hand(), "post", [inputs])
    source, result = quantized.activations
    assert (round(source.scale, 6), source.zero_point) == (0.01, -128)
    assert (round(result.scale, 6), result.zero_point) == (0.0177, -62)
    (weight,) = quantized.weights
    assert weight.values.tolist() == [[127, -50]]
    assert weight.bias.tolist() == [1000]
    assert round(float(quantized(torch.tensor([[1.0, 1.0]])) / result.scale)) == 49
    assert float(quantized(torch.tensor([[9.0, 0.0]])) / result.scale) == pytest.approx(127 + 62)


ACTIVATIONS = {
    "F.relu": lambda net, x: F.relu(net.norm(net.conv(x))),
    "torch.relu": lambda net, x: torch.relu(net.norm(net.conv(x))),
    "relu_": lambda net, x: net.norm(net.conv(x)).relu_(),
    "F.relu in place": lambda net, x: F.relu(net.norm(net.conv(x)), inplace=True),
    "module": lambda net, x: net.relu(net.norm(net.conv(x))),
    "module in place": lambda net, x: net.relu_in_place(net.norm(net.conv(x))),
    "clamp": lambda net, x: net.norm(net.conv(x)).clamp(min=0),
    "clamp_min_": lambda net, x: net.norm(net.conv(x)).clamp_min_(0),
    "behind a dropout": lambda net, x: F.relu(F.dropout(net.norm(net.conv(x)), training=False)),
    "statement": lambda net, x: statement(net, x),
}


def statement(net, x):
    y = net.norm(net.conv(x))
    y.relu_()
    return y


def normed():
    torch.manual_seed(0)
    layers = {"conv": conv(), "norm": nn.BatchNorm2d(4), "relu": nn.ReLU(), "relu_in_place": nn.ReLU(True)}
    net = FunctionNet(None, **layers)
    net.norm.running_mean.uniform_(-0.3, 0.3)
    net.norm.running_var.uniform_(0.3, 3)
    nn.init.uniform_(net.norm.weight, -1.5, 1.5)
    nn.init.normal_(net.norm.bias)
    return net


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_an_activation_fuses_however_it_is_written(name):
    net = normed()
    net.function = ACTIVATIONS["F.relu"]
    expected = quantize(net, "post", [images()])(images())
    net.function = ACTIVATIONS[name]
    quantized = quantize(net, "post", [images()])
    assert torch.equal(quantized(images()), expected)
    _, *made = quantized.activations
    assert [a.op for a in made[:2]] == ["conv2d", "batch_norm"]
    assert len({(a.scale, a.zero_point) for a in made}) == 1
    assert made[0].zero_point == -128


@pytest.mark.parametrize(
    "move",
    [
        lambda x: F.max_pool2d(x, 2),
        lambda x: x.flatten(1),
        lambda x: F.pad(x, (1, 1)),
        lambda x: x.permute(0, 2, 3, 1),
        lambda x: x[:, :, 1:],
    ],
)
def test_an_activation_fuses_through_operators_that_move_elements(move):
    behind = seeded(lambda: FunctionNet(lambda net, x: F.relu(move(net.conv(x))), conv=conv()))
    before = seeded(lambda: FunctionNet(lambda net, x: move(F.relu(net.conv(x))), conv=conv()))
    # a slice that is never seen may widen the range, so compare what is rounded
    first = quantize(behind, "post", [images()])
    assert first.activations[1].zero_point == -128
    second = quantize(before, "post", [images()])
    assert (first(images()) - second(images())).abs().max() <= max(a.scale for a in second.activations)


def test_a_value_that_is_used_twice_is_rounded_before_its_activation():
    net = seeded(lambda: FunctionNet(lambda net, x: branch(net.conv(x)), conv=conv()))

    def branch(y):
        return torch.cat([F.relu(y), y.neg()], 1)

    quantized = quantize(net, "post", [images()])
    by_op = {a.op: a for a in quantized.activations}
    assert by_op["conv2d"].zero_point > -100
    assert by_op["conv2d"].scale != by_op["relu"].scale


def test_a_batch_norm_on_a_shared_value_is_not_folded():
    net = normed()
    net.function = lambda net, x: net.norm(y := net.conv(x)) + y
    quantized = quantize(net, "post", [images()])
    scales = {a.op: a.scale for a in quantized.activations}
    assert scales["conv2d"] != scales["batch_norm"]
    assert [w.op for w in quantized.weights] == ["conv2d", "batch_norm"]
    expected = net.eval()(images()).detach()
    assert (quantized(images()) - expected).abs().max() < 4 * scales["add"]


def test_pools_and_reshapes_keep_the_grid():
    def forward(net, x):
        x = F.avg_pool2d(F.max_pool2d(net.conv(x), 2), 2)
        return F.pad(x.transpose(2, 3).reshape(len(x), -1)[:, 1:], (2, 0))

    _, *made = grids(quantize(FunctionNet(forward, conv=conv()), "post", [images()]))
    assert len({grid[1:] for grid in made}) == 1


def test_prescribed_grids():
    def forward(net, x):
        x = net.linear(x.flatten(1))
        return torch.sigmoid(x), torch.tanh(x), x.softmax(1), F.log_softmax(x, 1)

    net = FunctionNet(forward, linear=nn.Linear(128, 4))
    made = {a.op: (a.scale, a.zero_point) for a in quantize(net, "post", [images()]).activations}
    assert made["sigmoid"] == made["softmax"] == (1 / 256, -128)
    assert made["tanh"] == (1 / 128, 0)
    assert made["log_softmax"] == (1 / 16, 127)


@pytest.mark.parametrize("layer", [nn.Embedding(9, 4), nn.Sequential(nn.Embedding(9, 4), nn.Sigmoid())])
def test_an_activation_behind_a_prescribed_grid_is_an_operator(layer):
    net = FunctionNet(lambda net, x: F.relu(net.layer(x) - 0.0), layer=layer)
    behind = FunctionNet(lambda net, x: F.relu(net.layer(x)), layer=layer)
    tokens = torch.arange(9)
    for model in (net, behind):
        outputs = quantize(model, "post", [tokens])(tokens)
        assert (outputs >= 0).all()
        assert (outputs - model(tokens)).abs().max() < 0.03


def test_an_average_rounds_the_stored_integers_half_away_from_zero():
    """With steps of 1 and zero stored as -128, 10 and 11 are stored as -118 and -117: the mean is -118."""
    net = FunctionNet(lambda net, x: x.mean(2))
    calibration = torch.tensor([[[0.0, 255.0]]])
    quantized = quantize(net, "post", [calibration])
    assert float(quantized(torch.tensor([[[10.0, 11.0]]]))) == 10.0
    assert float(quantized(torch.tensor([[[200.0, 201.0]]]))) == 201.0


def test_a_concatenation_has_one_grid_and_its_sole_inputs_take_it_over():
    net = FunctionNet(
        lambda net, x: torch.cat([F.relu(net.a(x)), 3 * net.b(x)], 1), a=conv(), b=conv(bias=False)
    )
    made = {a.module or a.op: a for a in quantize(net, "post", [images()]).activations}
    assert made["a"].scale == made["cat"].scale == made["mul"].scale
    outputs = quantize(net, "post", [images()])(images())
    assert (outputs[:, :4] >= 0).all()


def test_one_layer_called_in_a_loop_has_a_grid_for_each_call():
    def forward(net, x):
        for _ in range(3):
            x = 2 * net.layer(x)
        return x

    net = FunctionNet(forward, layer=nn.Linear(4, 4))
    quantized = quantize(net, "post", [torch.randn(256, 4)])
    assert len({a.scale for a in quantized.activations if a.op == "linear"}) == 3
    assert [w.module for w in quantized.weights] == ["layer"] * 3


def test_calibration_takes_the_range_of_all_batches():
    net = nn.Identity()
    model = FunctionNet(lambda _, x: net(x) * 1.0)
    both = quantize(model, "post", [torch.tensor([[0.0, 1.0]]), torch.tensor([[0.0, 2.0], [-1.0, 0.0]])])
    at_once = quantize(model, "post", [torch.tensor([[0.0, 1.0], [0.0, 2.0], [-1.0, 0.0]])])
    assert grids(both) == grids(at_once)


def test_results_do_not_depend_on_the_batch():
    net = seeded(lambda: nn.Sequential(conv(), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(256, 3)))
    quantized = quantize(net, "post", [images()])
    alone = torch.cat([quantized(image[None]) for image in images()])
    assert torch.equal(alone, quantized(images()))


def test_memory_format_makes_no_difference():
    net = seeded(lambda: nn.Sequential(conv(), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(64, 3)))
    expected = quantize(net, "post", [images()])(images())
    inputs = images().contiguous(memory_format=torch.channels_last)
    net = net.to(memory_format=torch.channels_last)
    assert torch.equal(quantize(net, "post", [inputs])(inputs), expected)


def test_a_network_that_cannot_be_copied():
    net = nn.Sequential(nn.Linear(4, 3))
    net.lock = threading.Lock()
    assert quantize(net, "post", [torch.randn(64, 4)])(torch.randn(2, 4)).shape == (2, 3)


def test_weights_are_those_of_the_moment():
    net = nn.Linear(4, 3)
    quantized = quantize(net, "post", [torch.randn(64, 4)])
    inputs = torch.randn(5, 4)
    before = quantized(inputs)
    nn.init.zeros_(net.weight)
    assert torch.equal(quantized(inputs), before)


def test_in_place_arithmetic_reaches_every_name_of_the_tensor():
    def forward(net, x):
        y = net.conv(x)
        z = y
        y += 1
        y[:, 0] = 0
        z.mul_(2)
        return torch.cat([y, z], 1)

    net = FunctionNet(forward, conv=conv())
    outputs = quantize(net, "dynamic", [images()], [nn.Linear])(images())
    assert torch.equal(outputs, net(images()))


def test_a_buffer_that_is_not_initialised_is_filled_as_it_should():
    def forward(net, x):
        out = torch.empty(len(x), 3, 4)
        for step in range(3):
            out[:, step] = net.layer(x[:, step])
        return out

    net = FunctionNet(forward, layer=nn.Linear(2, 4))
    quantized = quantize(net, "post", [torch.randn(64, 3, 2)])
    x = torch.randn(8, 3, 2)
    assert (quantized(x) - net(x)).abs().max() < 0.5
    assert quantized.activations[-1].scale < 0.05


def test_inner_grids_of_recurrent_layers_are_given():
    net = FunctionNet(lambda net, x: net.gru(x)[0] + net.lstm(x)[0], gru=nn.GRU(3, 4), lstm=nn.LSTM(3, 4))
    quantized = quantize(net, "post", [torch.randn(5, 64, 3)])
    gru, lstm = quantized.inner.values()
    assert set(gru) == {"h", "l0.x", "l0.h", "l0.gates", "l0.reset", "l0.new", "l0.kept", "l0.difference"}
    assert set(lstm) == {"h", "c"}
    assert lstm["c"].bits == 16


def test_results_with_several_tensors():
    net = FunctionNet(
        lambda net, x: {"best": x.max(dim=1).values.flatten(1), "all": [net.conv(x)]}, conv=conv()
    )
    outputs = quantize(net, "post", [images()])(images())
    assert outputs["best"].shape == (64, 64)
    assert outputs["all"][0].shape == (64, 4, 8, 8)


def test_none_is_the_network_itself():
    net = nn.Sequential(conv(), nn.BatchNorm2d(4), nn.Dropout(0.5))
    quantized = quantize(net, "none", [])
    assert torch.equal(quantized(images()), net.eval()(images()))
    assert quantized.weights == quantized.activations == ()


def test_grids_and_results_are_the_same_every_time():
    net = seeded(lambda: nn.Sequential(conv(), nn.ReLU(), nn.Flatten(), nn.Linear(256, 3)))
    first, second = (quantize(net, "post", [images()]) for _ in range(2))
    assert grids(first) == grids(second)
    assert torch.equal(first(images()), second(images()))


class TestRefusals:
    def test_unknown_scheme(self):
        with pytest.raises(ConfigError, match=r"expected one of post, .*got 'posst' \(did you mean 'post'"):
            quantize(nn.Linear(2, 2), "posst", [torch.randn(4, 2)])

    @pytest.mark.parametrize("scheme", ["post", "dynamic"])
    def test_no_calibration(self, scheme):
        with pytest.raises(ConfigError, match="calibration: expected at least one batch"):
            quantize(nn.Linear(2, 2), scheme, [], [nn.Linear])

    def test_values_that_are_not_finite(self):
        net = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
        nn.init.constant_(net[0].weight, float("nan"))
        with pytest.raises(
            CandidateError, match="the output of linear in 0 holds values that are not finite"
        ):
            quantize(net, "post", [torch.randn(4, 2)])

    def test_a_nan_in_a_later_batch_does_not_get_lost(self):
        with pytest.raises(CandidateError, match="input 0 of the network holds values that are not finite"):
            quantize(nn.Linear(1, 1), "post", [torch.ones(1, 1), torch.full((1, 1), float("nan"))])

    def test_another_way_in_a_later_batch(self):
        net = FunctionNet(lambda net, x: net.a(x) if len(x) < 3 else torch.tanh(x), a=nn.Linear(2, 2))
        with pytest.raises(
            CandidateError, match="operator 0 of the network is tanh, in calibration it was linear"
        ):
            quantize(net, "post", [torch.randn(2, 2), torch.randn(3, 2)])
        quantized = quantize(net, "post", [torch.randn(2, 2)])
        with pytest.raises(CandidateError, match="operator 0 of the network is tanh"):
            quantized(torch.randn(3, 2))

    def test_a_longer_way_in_a_later_batch(self):
        def forward(net, x):
            for row in range(len(x)):
                x = x * (row + 1)
            return x

        with pytest.raises(
            CandidateError, match="operator 2 of the network is mul, in calibration it was the end"
        ):
            quantize(FunctionNet(forward), "post", [torch.randn(2, 2), torch.randn(3, 2)])

    def test_an_output_that_cannot_be_followed(self):
        net = FunctionNet(lambda net, x: torch.from_numpy(np.tanh(x.numpy())))
        with pytest.raises(CandidateError, match="does not come from its input"):
            quantize(net, "post", [torch.randn(2, 2)])

    @pytest.mark.parametrize("scheme", ["post", "dynamic"])
    @pytest.mark.filterwarnings("ignore")
    def test_a_scripted_module(self, scheme):
        net = nn.Sequential(nn.Linear(2, 2), torch.jit.script(nn.Linear(2, 2)))
        with pytest.raises(UnsupportedOperatorError, match="scripted module 1 hides its operators"):
            quantize(net, scheme, [torch.randn(2, 2)], [nn.Linear])
        assert not net[0]._forward_hooks

    def test_a_failure_of_the_network(self):
        with pytest.raises(CandidateError, match=r"Net\.forward raised RuntimeError: mat1 and mat2"):
            quantize(nn.Linear(3, 2), "post", [torch.randn(2, 2)])

    def test_a_failure_of_the_interpreter_does_not_look_like_one_of_the_network(self):
        def interpret(call):
            raise KeyError(call.op)

        with pytest.raises(KeyError):
            intercepted_pass(nn.Linear(2, 2), tag(torch.randn(2, 2)), interpret)

    def test_a_view_changed_in_place(self):
        def forward(net, x):
            y = net.a(x)
            y[:, :2].relu_()
            return y

        with pytest.raises(UnsupportedOperatorError, match="changes a view of a tensor in place"):
            quantize(FunctionNet(forward, a=nn.Linear(4, 4)), "post", [torch.randn(8, 4)])


@pytest.fixture(scope="module")
def digits():
    data = load_digits()
    x = torch.tensor(data.images[:, None], dtype=torch.float32) / 16
    y = torch.tensor(data.target)
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
    return x[order], y[order]


def test_accuracy_on_digits_stays_within_a_point(digits):
    x, y = digits
    torch.manual_seed(0)
    net = nn.Sequential(
        conv(1, 8), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1, groups=8), nn.BatchNorm2d(8),
        nn.ReLU6(), nn.MaxPool2d(2), nn.Conv2d(8, 16, 3), nn.ReLU(), nn.Flatten(), nn.Linear(64, 10),
    )  # fmt: skip
    optimizer = torch.optim.Adam(net.parameters(), 0.01)
    for step in range(150):
        batch = slice(step * 64 % 1152, step * 64 % 1152 + 64)
        optimizer.zero_grad()
        F.cross_entropy(net(x[batch]), y[batch]).backward()
        optimizer.step()
    net.eval()
    test = slice(1200, None)
    exact = (net(x[test]).argmax(1) == y[test]).float().mean()
    assert exact > 0.93
    quantized = quantize(net, "post", [x[:256]])
    rounded = (quantized(x[test]).argmax(1) == y[test]).float().mean()
    print(f"digits: float {exact:.4f}, int8 {rounded:.4f}")
    assert rounded > exact - 0.01
