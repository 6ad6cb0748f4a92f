"""Descriptions of layers, and the analyzer that makes them while a network runs."""

import json

import pytest
import torch
from torch import nn

from sparsemod.errors import ConfigError
from sparsemod.measure.analyzed import AnalyzedLayerDesc, describe_operators
from sparsemod.measure.analyzer import ModuleAnalyzer
from sparsemod.measure.operators import lower

KEYS = [
    "name", "type", "params", "zeroed_params", "prunable_params", "params_dims", "prunable_params_dims",
    "execution_order", "input_shape", "output_shape", "stride", "flops", "total_flops", "terminal",
    "prunable",
]  # fmt: skip


class TestDescription:
    def test_defaults(self):
        desc = AnalyzedLayerDesc("a", "Conv2d")
        assert (desc.params, desc.flops, desc.total_flops, desc.execution_order) == (0, 0, 0, -1)
        assert desc.params_dims is desc.input_shape is desc.stride is None
        assert not desc.terminal
        assert not desc.prunable
        assert AnalyzedLayerDesc("a", "ReLU", params_dims={}).terminal
        assert AnalyzedLayerDesc("a", "Conv2d", prunable_params=1).prunable

    def test_dict(self):
        desc = AnalyzedLayerDesc("a", "Conv2d", params_dims={"weight": (2, 1)}, stride=(1, 1))
        assert list(desc.dict()) == KEYS
        assert desc.dict()["type"] == "Conv2d"
        assert desc.dict()["terminal"] is True

    def test_saved_and_loaded(self, tmp_path):
        path = tmp_path / "new" / "layers.json"
        desc = AnalyzedLayerDesc(
            "a",
            "Conv2d",
            10,
            3,
            8,
            {"weight": (8, 1)},
            {"weight": (8, 1)},
            2,
            ((1, 2),),
            ((1, 3),),
            5,
            7,
            (1, 1),
        )
        AnalyzedLayerDesc.save_descs([desc, AnalyzedLayerDesc("b", "ReLU")], str(path))
        assert list(json.loads(path.read_text())) == ["descriptions"]
        one, two = AnalyzedLayerDesc.load_descs(str(path))
        assert json.dumps(one.dict()) == json.dumps(desc.dict())
        assert one.input_shape == [[1, 2]]
        assert one.terminal
        assert two.dict() == AnalyzedLayerDesc("b", "ReLU").dict()

    @pytest.mark.parametrize("text", [None, "[", "{}", "[1]"])
    def test_what_is_no_such_file(self, tmp_path, text):
        path = tmp_path / "layers.json"
        if text is not None:
            path.write_text(text)
        with pytest.raises(ConfigError):
            AnalyzedLayerDesc.load_descs(path)

    def test_merged(self):
        x = AnalyzedLayerDesc(
            "x", "Conv2d", params=10, zeroed_params=3, flops=5, total_flops=7, execution_order=4
        )
        y = AnalyzedLayerDesc("y", "Linear", params=1, zeroed_params=1, flops=2, total_flops=2)
        merged = AnalyzedLayerDesc.merge_descs(x, [y, y])
        assert (merged.params, merged.zeroed_params, merged.flops, merged.total_flops) == (12, 5, 9, 11)
        assert (merged.name, merged.type_, merged.execution_order) == ("x", "Conv2d", 4)
        assert (x.params, y.params) == (10, 1)


def filled(net, zero_first=False):
    """Weights and biases that are not zero, or whose first output channel is."""
    for module in net.modules():
        if isinstance(module, nn.Linear | nn.Conv1d | nn.Conv2d):
            nn.init.constant_(module.weight, 0.01)
            nn.init.constant_(module.bias, 0.01)
            if zero_first:
                with torch.no_grad():
                    module.weight[0] = 0
    return net


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.seq = nn.Sequential(
            nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 64), nn.Sigmoid()
        )

    def forward(self, x):
        return self.seq(x)


class Conv(nn.Module):
    def __init__(self):
        super().__init__()
        self.seq = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU())
        self.pool, self.head = nn.AdaptiveAvgPool2d(1), nn.Linear(32, 10)

    def forward(self, x):
        return self.head(self.pool(self.seq(x)).flatten(1))


def analyzed(net, *shape, **options):
    analyzer = ModuleAnalyzer(net, enabled=True, **options)
    net(torch.randn(*shape))
    analyzer.enabled = False
    return analyzer


class TestAnalyzer:
    @pytest.mark.parametrize(
        ("zero_first", "name", "numbers"),
        [
            (False, "seq.2", (544, 512, 0, 4, 1056)), (False, "seq.3", (0, 0, 0, 5, 32)),
            (True, "seq.2", (544, 512, 16, 4, 1024)), (False, None, (2800, 2688, 0, 0, 5600)),
            (True, None, (2800, 2688, 56, 0, 5488)), (False, "seq", (2800, 2688, 0, 1, 5600)),
        ],
    )  # fmt: skip
    def test_linear_network(self, zero_first, name, numbers):
        desc = analyzed(filled(Mlp(), zero_first), 1, 8).layer_desc(name)
        assert (
            desc.params, desc.prunable_params, desc.zeroed_params, desc.execution_order, desc.flops
        ) == numbers  # fmt: skip
        assert desc.total_flops == desc.flops

    @pytest.mark.parametrize(
        ("zero_first", "numbers"), [(False, (4640, 4608, 0, 453152)), (True, (4640, 4608, 144, 439040))]
    )
    def test_convolution(self, zero_first, numbers):
        desc = analyzed(filled(Conv(), zero_first), 1, 3, 28, 28).layer_desc("seq.2")
        assert (desc.params, desc.prunable_params, desc.zeroed_params, desc.flops) == numbers
        assert desc.input_shape == ((1, 16, 14, 14),)
        assert desc.output_shape == ((1, 32, 7, 7),)
        assert desc.stride == (2, 2)
        assert desc.params_dims == {"weight": (32, 16, 3, 3), "bias": (32,)}
        assert desc.prunable_params_dims == {"weight": (32, 16, 3, 3)}
        assert desc.terminal
        assert desc.prunable

    def test_zeros_can_be_counted(self):
        analyzer = analyzed(filled(Mlp(), True), 1, 8, ignore_zero=False)
        assert analyzer.layer_desc("seq.2").flops == 1056

    def test_batch(self):
        assert analyzed(filled(Mlp()), 7, 8).layer_desc("seq.2").flops == 7 * 1056

    @pytest.mark.parametrize(
        ("layer", "shape", "flops"),
        [
            (nn.Conv1d(2, 4, 3), (1, 2, 10), 8 * (2 * 24 + 4)),
            (nn.Conv3d(1, 2, 2), (1, 1, 3, 3, 3), 8 * (2 * 16 + 2)),
            (nn.Conv2d(4, 4, 3, groups=4, bias=False), (2, 4, 5, 5), 2 * 9 * 2 * 36),
            (nn.ConvTranspose2d(2, 3, 2, 2), (1, 2, 4, 4), 16 * 2 * 24 + 64 * 3),
            (nn.BatchNorm2d(4), (2, 4, 5, 5), 400), (nn.LayerNorm(8), (3, 8), 48), (nn.GELU(), (3, 8), 24),
            (nn.MaxPool2d(2), (1, 4, 6, 6), 4 * 9 * 4), (nn.AvgPool1d(3), (1, 4, 9), 4 * 3 * 3),
            (nn.AdaptiveAvgPool2d(1), (1, 4, 6, 6), 144), (nn.Dropout(), (3, 8), 0),
            (nn.Flatten(), (3, 8), 0),
            (nn.GRU(4, 8, batch_first=True), (2, 5, 4), 10 * (2 * 288 + 48)),
            (nn.LSTMCell(4, 8), (2, 4), 2 * (768 + 64)),
            (nn.Linear(4, 8), (2, 5, 4), 10 * 72),
        ],
        ids=lambda value: type(value).__name__ if isinstance(value, nn.Module) else None,
    )  # fmt: skip
    def test_kinds_of_layers(self, layer, shape, flops):
        net = nn.Sequential(layer)
        assert analyzed(net, *shape).layer_desc("0").flops == flops

    def test_needs_a_pass(self):
        net = Mlp()
        analyzer = ModuleAnalyzer(net)
        for ask in (analyzer.layer_desc, analyzer.layer_descs):
            with pytest.raises(RuntimeError, match="has not run"):
                ask()
        net(torch.zeros(1, 8))
        with pytest.raises(RuntimeError):
            analyzer.layer_desc()
        analyzer.enabled = True
        net(torch.zeros(1, 8))
        assert analyzer.layer_desc().params == 2800

    def test_unknown_module(self):
        with pytest.raises(ConfigError, match=r"seq\.9"):
            analyzed(Mlp(), 1, 8).layer_desc("seq.9")

    def test_passes_are_added_up_until_it_is_switched_off(self):
        net = filled(Mlp())
        analyzer = ModuleAnalyzer(net, enabled=True)
        for _ in range(3):
            net(torch.zeros(1, 8))
        analyzer.enabled = False
        net(torch.zeros(1, 8))
        desc = analyzer.layer_desc("seq.0")
        assert (desc.flops, desc.total_flops) == (272, 816)
        analyzer.enabled = True
        net(torch.zeros(1, 8))
        assert analyzer.layer_desc("seq.0").total_flops == 272

    def test_a_layer_used_twice(self):
        class Twice(nn.Module):
            def __init__(self):
                super().__init__()
                self.relu = nn.ReLU()

            def forward(self, x):
                return self.relu(self.relu(x))

        desc = analyzed(Twice(), 1, 8).layer_desc("relu")
        assert (desc.flops, desc.total_flops) == (8, 16)

    def test_order(self):
        analyzer = analyzed(Conv(), 1, 3, 28, 28)
        assert [desc.name for desc in analyzer.layer_descs()] == [
            "seq.0",
            "seq.1",
            "seq.2",
            "seq.3",
            "pool",
            "head",
        ]
        assert [desc.name for desc in analyzer.ks_layer_descs()] == ["seq.0", "seq.2", "head"]

    def test_leaves_no_hooks(self):
        net = Mlp()
        analyzed(net, 1, 8)
        assert not any(module._forward_hooks or module._forward_pre_hooks for module in net.modules())

    def test_packed_sequences(self):
        net = nn.Sequential(nn.GRU(4, 8))
        analyzer = ModuleAnalyzer(net, enabled=True)
        net(nn.utils.rnn.pack_sequence([torch.zeros(5, 4), torch.zeros(3, 4)]))
        assert analyzer.layer_desc("0").flops == 8 * (2 * 288 + 48)


def test_operators_of_a_microcontroller():
    net = filled(Conv(), zero_first=True)
    descs = describe_operators(lower(net, torch.zeros(1, 3, 28, 28), scheme="none"))
    first = next(desc for desc in descs if desc.prunable)
    assert (first.name, first.type_) == ("seq.0", "conv_2d")
    assert [desc.execution_order for desc in descs] == list(range(len(descs)))
    assert first.params == 16 * 27 + 16
    assert (first.prunable_params, first.zeroed_params) == (432, 27)
    assert first.total_flops == 2 * 432 * 196
    assert first.flops == 2 * 405 * 196
    assert first.stride == (2, 2)
    assert sum(desc.params for desc in descs) == sum(parameter.numel() for parameter in net.parameters())
    assert all(desc.terminal for desc in descs)
