"""The layer table: its figures worked by hand, that they add up to the resources, and reading it back."""

import json

import pytest
import torch
from net_zoo import Lambda
from torch import nn

from sparsemod.errors import StoreError
from sparsemod.measure.layer_table import dump_layers, layer_costs, load_layers
from sparsemod.measure.operators import lower
from sparsemod.measure.resources import measure
from sparsemod.measure.targets import TARGETS

BOARD = TARGETS["STM32F446"]


class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3, padding=1, bias=False)
        self.out = nn.Linear(4 * 9, 5)
        with torch.no_grad():
            self.conv.weight.fill_(1.0)
            self.conv.weight[:, :, 0] = 0.0
            self.out.weight.fill_(1.0)
            self.out.bias.fill_(1.0)

    def forward(self, x):
        x = nn.functional.max_pool2d(torch.relu(self.conv(x)), 2)
        return self.out(x.flatten(1))


class Shared(nn.Module):
    """One matrix twice."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 6)

    def forward(self, x):
        return self.layer(torch.relu(self.layer(x)))


def both_ways(kind):
    layer = kind(3, 5, num_layers=2, bidirectional=True, batch_first=True)
    return lambda: Lambda(lambda m, x: m.r(x)[0], r=layer)


def graph(net, *shape):
    torch.manual_seed(0)
    return lower(net.eval(), torch.rand(1, *shape), scheme="post")


def test_each_operator_has_its_figures():
    conv, pool, dense, rest = (
        layer
        for layer in layer_costs(graph(Small(), 1, 6, 6), BOARD, "c")
        if layer.kind not in {"reshape", "transpose"}
    )
    assert (conv.module, conv.kind, conv.activation) == ("conv", "conv_2d", "relu")
    assert (conv.input_shapes, conv.output_shapes) == (((1, 6, 6, 1),), ((1, 6, 6, 4),))
    assert (conv.weight_shapes, conv.n_macs, conv.output_bytes) == (((4, 3, 3, 1),), 6 * 6 * 4 * 9, 144)
    assert (conv.n_parameters, conv.n_nonzero) == (36, 24)
    assert conv.weight_bytes == 5 + 24 + 4 * 4 + 5 * 4  # bitmap of 36 bits, non-zeros, biases, rescalings
    assert (pool.kind, pool.n_macs, pool.weight_bytes, pool.output_bytes) == ("max_pool_2d", 0, 0, 36)
    assert (dense.kind, dense.n_macs, dense.n_parameters) == ("fully_connected", 180, 185)
    assert dense.weight_bytes == 180 + 4 * 5 + 5 * 5
    assert (rest.kind, rest.module, rest.weight_bytes) == (
        "shared constants",
        "",
        2,
    )  # whole words: 65 + 225 + 2


@pytest.mark.parametrize("runtime", ["c", "tflite-micro"])
@pytest.mark.parametrize(
    ("net", "shape"),
    [(Small, (1, 6, 6)), (Shared, (6,)), (both_ways(nn.LSTM), (7, 3)), (both_ways(nn.GRU), (7, 3))],
)
def test_the_table_adds_up_to_the_resources(net, shape, runtime):
    lowered = graph(net(), *shape)
    layers, resources = layer_costs(lowered, BOARD, runtime), measure(lowered, BOARD, runtime)
    assert sum(layer.weight_bytes for layer in layers) == resources.model_size_bytes
    assert min(layer.weight_bytes for layer in layers) >= 0
    assert sum(layer.n_macs for layer in layers) == resources.n_macs
    assert sum(layer.n_parameters for layer in layers) == resources.n_parameters
    assert sum(layer.n_nonzero for layer in layers) == resources.n_nonzero
    assert sum(layer.latency_seconds for layer in layers) == pytest.approx(resources.latency_seconds)


def test_a_shared_weight_is_charged_to_the_first():
    first, second = layer_costs(graph(Shared(), 6), BOARD, "c")
    assert (first.n_parameters, second.n_parameters) == (42, 0)
    assert (first.weight_bytes, second.weight_bytes) == (36 + 24 + 30, 24 + 30)  # biases by the place's grids
    assert second.weight_shapes == ((6, 6),)
    assert second.n_macs == 36


def test_the_table_of_the_lstms_belongs_to_none_of_them():
    net = Lambda(lambda m, x: m.r(x)[0], r=nn.LSTM(4, 4, num_layers=2))
    first, second, *others, rest = layer_costs(lower(net, torch.rand(3, 1, 4)), BOARD, "c")
    assert (first.weight_bytes, second.weight_bytes) == (128 + 8 * 4 * 4, 128 + 8 * 4 * 4)
    assert [layer.weight_bytes for layer in others] == [0] * len(others)
    assert (rest.kind, rest.weight_bytes) == ("shared constants", 512)


def test_the_table_is_read_back_as_it_was():
    layers = layer_costs(graph(Small(), 1, 6, 6), BOARD, "c")
    content = dump_layers(layers)
    assert load_layers(content, "3_0.layers.json") == layers
    assert len(content) < 350 * len(layers)


def damaged():
    content = dump_layers(layer_costs(graph(Small(), 1, 6, 6), BOARD, "c"))
    table = json.loads(content)
    for key, value in [("n_macs", -1), ("n_macs", "many"), ("latency_seconds", None), ("output_shapes", 3)]:
        yield json.dumps([table[0] | {key: value}]).encode()
    del table[0]["kind"]
    yield json.dumps(table).encode()
    yield from (content[:-5], b"", b"{}", b"\xff\xfe", b"[" * 100_000)


@pytest.mark.parametrize("content", list(damaged()), ids=lambda content: content[:20])
def test_a_damaged_table_is_one_line(content):
    with pytest.raises(StoreError, match=r"3_0\.layers\.json: is damaged") as error:
        load_layers(content, "3_0.layers.json")
    assert "\n" not in str(error.value)
