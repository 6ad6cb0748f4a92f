import numpy as np
import pytest
import torch
from net_zoo import ZOO, Lambda, Packed, built
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pack_sequence, pad_packed_sequence
from torch.utils import _pytree as pytree

from sparsemod.measure.graph_interpreter import run
from sparsemod.measure.operators import lower
from sparsemod.measure.sizes import n_parameters


def assert_same_function(net, *inputs, **arguments):
    graph = lower(net, *inputs, **arguments)
    with torch.no_grad():
        expected = pytree.tree_leaves(net.eval()(*inputs))
    for got, want in zip(run(graph, list(inputs)), expected, strict=True):
        assert got.shape == want.shape
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)
    return graph


@pytest.mark.parametrize("name", [name for name, (_, _, exact) in ZOO.items() if exact])
def test_the_operators_compute_what_the_network_does(name):
    graph = assert_same_function(*built(name))
    assert not graph.unexportable()


def kinds(net, x, **arguments):
    return [operator.kind for operator in lower(net, x, **arguments).operators]


IMAGE = torch.zeros(1, 3, 8, 8)


def test_convolution_batch_norm_and_activation_are_one_operator():
    net = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4), nn.ReLU6())
    graph = lower(net, IMAGE)
    (operator,) = graph.operators
    assert (operator.kind, operator.module) == ("conv_2d", "0")
    assert dict(operator.attributes) == {
        "activation": "relu6",
        "padding": "same",
        "stride": (1, 1),
        "dilation": (1, 1),
        "groups": 1,
    }
    assert operator.n_macs == 8 * 8 * 4 * 27
    assert [tensor.shape for tensor in graph.tensors] == [(1, 8, 8, 3), (1, 8, 8, 4)]


def test_weights_are_folded_in_the_layout_of_the_runtime():
    net = nn.Sequential(nn.Conv2d(2, 3, (1, 2), bias=False), nn.BatchNorm2d(3, eps=0))
    with torch.no_grad():
        net[0].weight.copy_(torch.arange(12.0).view(3, 2, 1, 2))
        net[1].weight.copy_(torch.tensor([1.0, 2.0, 3.0]))
        net[1].bias.fill_(5)
        net[1].running_mean.fill_(1)
        net[1].running_var.fill_(4)
    (weight,) = lower(net, torch.zeros(1, 2, 1, 2)).weights()
    assert weight.name == "0.weight"
    assert weight.axis == 0
    assert weight.values.shape == (3, 1, 2, 2)
    assert weight.values[1].ravel().tolist() == [4, 6, 5, 7]  # scale 2 / sqrt(4), input channels innermost
    assert weight.bias.tolist() == [4.5, 4, 3.5]  # 5 - 1 * scale


def test_depthwise_weights_have_the_output_channels_last():
    graph = lower(nn.Conv2d(3, 6, 3, groups=3), IMAGE)
    (operator,) = graph.operators
    assert operator.kind == "depthwise_conv_2d"
    assert operator.attributes["depth_multiplier"] == 2
    assert (operator.weights[0].values.shape, operator.weights[0].axis) == ((1, 3, 3, 6), 3)
    assert operator.n_macs == 6 * 6 * 6 * 9


def test_flattening_costs_no_operator_but_permutes_the_columns():
    net = nn.Sequential(nn.Conv2d(1, 2, 1), nn.Flatten(), nn.Linear(8, 1, bias=False))
    with torch.no_grad():
        net[2].weight.copy_(torch.arange(8.0).view(1, 8))
    graph = lower(net, torch.zeros(1, 1, 2, 2))
    assert [operator.kind for operator in graph.operators] == ["conv_2d", "fully_connected"]
    assert graph.operators[1].weights[0].values.tolist() == [[0, 4, 1, 5, 2, 6, 3, 7]]


@pytest.mark.parametrize(
    "pool",
    [
        nn.AdaptiveAvgPool2d(1),
        nn.AvgPool2d(8),
        Lambda(lambda m, x: x.mean([2, 3])),
        Lambda(lambda m, x: x.mean((-1, -2), keepdim=True)),
        Lambda(lambda m, x: F.adaptive_avg_pool2d(x, (1, 1))),
    ],
)
def test_global_average_pooling_is_an_average_pool(pool):
    graph = lower(nn.Sequential(nn.Conv2d(3, 4, 1), pool, nn.Flatten(), nn.Linear(4, 2)), IMAGE)
    assert [operator.kind for operator in graph.operators] == [
        "conv_2d",
        "average_pool_2d",
        "fully_connected",
    ]
    assert graph.operators[1].attributes["filter"] == (8, 8)


def test_padding_of_a_strided_convolution_on_an_even_size_is_an_operator():
    graph = lower(nn.Conv2d(3, 4, 3, stride=2, padding=1), IMAGE)
    pad, convolution = graph.operators
    assert pad.kind == "pad"
    assert pad.attributes["paddings"] == ((0, 0), (1, 0), (1, 0), (0, 0))
    assert convolution.attributes["padding"] == "valid"
    assert [tensor.shape for tensor in graph.tensors] == [(1, 8, 8, 3), (1, 9, 9, 3), (1, 4, 4, 4)]


@pytest.mark.parametrize(
    ("net", "size"),
    [
        (nn.Conv2d(3, 4, 3, stride=2, padding=1), 9),
        (nn.Conv2d(3, 4, 4, padding="same"), 8),
        (nn.Conv2d(3, 4, 5, padding=2), 8),
        (nn.Conv2d(3, 4, 3, padding=2, dilation=2), 8),
        (nn.Sequential(nn.ZeroPad2d((0, 1, 0, 1)), nn.Conv2d(3, 4, 3, stride=2)), 8),
        (nn.MaxPool2d(3, 2, 1), 9),
        (nn.MaxPool2d(2, ceil_mode=True), 9),
        (nn.AvgPool2d(3, 2, 1, count_include_pad=False), 9),
    ],
)
def test_padding_that_is_the_runtimes_same_costs_nothing(net, size):
    (operator,) = lower(net, torch.zeros(1, 3, size, size)).operators
    assert operator.attributes["padding"] == "same"


def test_two_paddings_become_one_operator():
    net = nn.Sequential(nn.ZeroPad2d(1), nn.Conv2d(3, 4, 5, padding=2))
    pad, convolution = lower(net, IMAGE).operators
    assert pad.attributes["paddings"][1:3] == ((3, 3), (3, 3))
    assert convolution.attributes["padding"] == "valid"


def test_a_padded_max_pool_pads_with_what_never_is_the_maximum():
    pad, pool = lower(nn.MaxPool2d(3, 2, 1), IMAGE).operators
    assert pad.attributes["value"] == -float("inf")
    assert pool.kind == "max_pool_2d"


def test_a_one_dimensional_convolution_is_an_image_of_height_one():
    graph = lower(nn.Sequential(nn.Conv1d(6, 8, 5, padding=2), nn.MaxPool1d(2)), torch.zeros(1, 6, 20))
    assert [tensor.shape for tensor in graph.tensors] == [(1, 1, 20, 6), (1, 1, 20, 8), (1, 1, 10, 8)]
    assert graph.operators[0].weights[0].values.shape == (8, 1, 5, 6)


@pytest.mark.parametrize(
    "name", ["plain_cnn", "residual", "depthwise_separable", "conv1d", "sensor_window", "cnn_lstm"]
)
def test_images_and_sequences_are_never_transposed(name):
    graph = lower(*built(name))
    assert not [operator for operator in graph.operators if operator.kind == "transpose"]


def sequences(layer):
    return Lambda(lambda m, x: m.r(x)[0], r=layer)


def test_a_recurrent_layer_is_one_operator_counted_once():
    graph = lower(sequences(nn.LSTM(5, 7, batch_first=True)), torch.zeros(1, 12, 5))
    (operator,) = graph.operators
    assert operator.kind == "unidirectional_sequence_lstm"
    assert operator.n_macs == 12 * 4 * 7 * (5 + 7)
    assert [weight.values.shape for weight in operator.weights] == [(7, 5)] * 4 + [(7, 7)] * 4
    assert operator.weights[1].name == "r.weight_ih_l0.forget"


def test_the_biases_of_a_gate_are_added_up_where_that_is_exact():
    lstm, gru = nn.LSTM(2, 3), nn.GRU(2, 3)
    (operator,) = lower(sequences(lstm), torch.zeros(4, 1, 2)).operators
    expected = (lstm.bias_ih_l0 + lstm.bias_hh_l0)[:3].detach().numpy()
    np.testing.assert_array_equal(operator.weights[0].bias, expected)
    assert [weight.bias is None for weight in operator.weights] == [False] * 4 + [True] * 4
    (operator,) = lower(sequences(gru), torch.zeros(4, 1, 2)).operators
    assert [weight.bias is None for weight in operator.weights] == [False] * 3 + [True, True, False]


def test_layers_and_directions_of_a_recurrent_layer_are_operators():
    net = nn.GRU(5, 7, num_layers=2, bidirectional=True)
    graph = lower(sequences(net), torch.zeros(12, 1, 5))
    assert [operator.kind for operator in graph.operators] == ["gru", "gru", "concatenation"] * 2
    assert [operator.attributes.get("reverse") for operator in graph.operators] == [False, True, None] * 2
    assert sum(operator.n_macs for operator in graph.operators) == 12 * 2 * 3 * 7 * ((5 + 7) + (14 + 7))


def test_a_packed_sequence_is_an_input():
    torch.manual_seed(0)
    net = Packed().eval()
    x = pack_sequence([torch.randn(7, 4)])
    graph = lower(net, x)
    assert graph.tensors[0].shape == (1, 7, 4)
    with torch.no_grad():
        torch.testing.assert_close(run(graph, x.data)[0], net(x), rtol=1e-4, atol=1e-5)


def test_a_sequence_that_is_packed_inside_is_cut_to_its_length():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.r = nn.GRU(4, 5, batch_first=True)

        def forward(self, x):
            packed = pack_padded_sequence(x, torch.tensor([6]), batch_first=True, enforce_sorted=False)
            y, h = self.r(packed)
            return h[-1], pad_packed_sequence(y, batch_first=True)[0].max(1)[0]

    assert_same_function(Net(), torch.randn(1, 9, 4))


@pytest.mark.parametrize("layer", [nn.RNN, nn.GRU, nn.LSTM])
def test_the_last_step_of_a_packed_sequence_is_taken_by_its_length(layer):
    def forward(m, x):
        y, lengths = pad_packed_sequence(m.r(x)[0], batch_first=True)
        return m.f(y[torch.arange(len(lengths)), lengths - 1])

    torch.manual_seed(0)
    net = Lambda(forward, r=layer(4, 5, batch_first=True), f=nn.Linear(5, 3)).eval()
    x = pack_sequence([torch.randn(7, 4)])
    graph = lower(net, x)
    assert not [operator.kind for operator in graph.operators if operator.kind.startswith("other")]
    with torch.no_grad():
        torch.testing.assert_close(run(graph, x.data)[0], net(x), rtol=1e-4, atol=1e-5)


def test_lengths_of_packed_sequences_are_constants():
    def forward(m, x):
        y, lengths = pad_packed_sequence(m.r(x)[0], batch_first=True)
        last = (lengths - 1).view(-1, 1, 1).expand(-1, 1, y.shape[2])
        seen = (torch.arange(y.shape[1])[None] < lengths[:, None])[..., None]
        return m.f(y.gather(1, last).squeeze(1) + (y * seen).sum(1) / lengths[:, None])

    net = Lambda(forward, r=nn.GRU(4, 5, batch_first=True), f=nn.Linear(5, 3))
    kinds = [operator.kind for operator in lower(net, pack_sequence([torch.randn(7, 4)])).operators]
    assert [kind for kind in kinds if kind.startswith("other")] == ["other:gather"]


@pytest.mark.parametrize(
    "pick",
    [
        lambda x: x[:, torch.tensor([2])],
        lambda x: x[:, torch.tensor(-1)],
        lambda x: x[:, torch.tensor([1]), torch.tensor([3])],
        lambda x: x[torch.tensor([0]), torch.tensor([[1]])],
    ],
)
def test_one_element_is_picked_by_constants(pick):
    assert_same_function(Lambda(lambda m, x: pick(torch.relu(x) + 1) * 2), torch.randn(1, 4, 5))


@pytest.mark.parametrize("state", ["returned", "given"])
def test_a_state_that_no_runtime_keeps_is_counted_and_named(state):
    def forward(m, x):
        if state == "returned":
            return m.r(x)[1][1][0]
        return m.r(x, (x[:1, :, :1].repeat(1, 1, 4),) * 2)[0]

    graph = lower(Lambda(forward, r=nn.LSTM(3, 4)), torch.zeros(5, 1, 3))
    (operator,) = [operator for operator in graph.operators if operator.kind.startswith("other:lstm")]
    assert operator.n_macs == 5 * 4 * 4 * 7
    assert operator.module == "r"


def test_quantization_stubs_are_identities():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.quant, self.dequant = torch.ao.quantization.QuantStub(), torch.ao.quantization.DeQuantStub()
            self.c, self.add = nn.Conv2d(3, 4, 1), torch.ao.nn.quantized.FloatFunctional()

        def forward(self, x):
            y = self.c(self.quant(x))
            return self.dequant(self.add.add(y, y))

    assert kinds(Net(), IMAGE) == ["conv_2d", "add"]


def test_what_no_runtime_has_is_counted_and_named_with_its_module():
    net = nn.Sequential(nn.Linear(6, 4), nn.LayerNorm(4), nn.Mish())
    graph = lower(net, torch.zeros(1, 6))
    assert [(op.kind, op.module) for op in graph.unexportable()] == [
        ("other:layer_norm", "1"),
        ("other:mish", "2"),
    ]
    assert [tensor.shape for tensor in graph.tensors] == [(1, 6), (1, 4), (1, 4), (1, 4)]
    assert n_parameters(graph) == 24 + 4 + 8


def test_a_shared_layer_holds_its_weights_once():
    layer = nn.Linear(6, 6)
    graph = lower(nn.Sequential(layer, nn.ReLU(), layer, nn.ReLU(), layer), torch.zeros(1, 6))
    assert len(graph.operators) == 3
    assert n_parameters(graph) == 42
    assert sum(operator.n_macs for operator in graph.operators) == 3 * 36


def test_dropout_and_identity_are_nothing():
    net = nn.Sequential(nn.Dropout(), nn.Linear(3, 2), nn.Identity(), nn.Dropout(), nn.ReLU())
    assert kinds(net, torch.zeros(1, 3)) == ["fully_connected"]


def test_a_value_that_two_operators_read_is_not_fused_away():
    graph = assert_same_function(
        Lambda(
            lambda m, x: m.c(x).relu() + m.c(x).sigmoid() + (y := m.c(x)) * y.relu(), c=nn.Conv2d(3, 2, 1)
        ),
        torch.randn(1, 3, 4, 4),
    )
    assert "relu" in [operator.kind for operator in graph.operators]


def test_token_indices_are_not_quantized():
    net = nn.Sequential(nn.Embedding(10, 4), nn.Flatten(), nn.Linear(24, 2))
    graph = lower(net, torch.zeros(1, 6, dtype=torch.long))
    assert [(tensor.shape, tensor.dtype) for tensor in graph.tensors] == [
        ((1, 6), "int32"),
        ((1, 6, 4), "int8"),
        ((1, 2), "int8"),
    ]


def test_ports_lead_from_pytorchs_order_to_memory_and_back():
    graph = lower(nn.Conv2d(3, 5, 1), IMAGE)
    x = np.random.default_rng(0).random((1, 3, 8, 8))
    memory = graph.input_ports[0].to_memory(x, graph.tensors[0].shape)
    np.testing.assert_array_equal(memory, x.transpose(0, 2, 3, 1))
    y = np.random.default_rng(1).random((1, 8, 8, 5))
    np.testing.assert_array_equal(graph.output_ports[0].from_memory(y), y.transpose(0, 3, 1, 2))


def test_padding_may_be_the_first_thing_and_a_view_the_second():
    net = Lambda(lambda m, x: m.f(F.pad(x, (0, 0, 2, 2)).flatten(1)), f=nn.Linear(32, 2))
    assert_same_function(net, torch.randn(1, 1, 4, 4))
