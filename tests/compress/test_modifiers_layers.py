"""Thinning and layers that are taken out."""

import pytest
import torch
from torch import nn

from sparsemod.compress.recipe import (
    GMPruningModifier,
    LayerPruningModifier,
    LayerThinningModifier,
    Modifier,
    ScheduledModifierManager,
    StructuredPruningModifier,
)
from sparsemod.compress.thinning import thin


def conv_net():
    net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Conv2d(4, 2, 3))
    with torch.no_grad():
        for channel in (1, 3):
            net[0].weight[channel] = 0
            net[0].bias[channel] = 0
            net[1].bias[channel] = 0
    return net.eval()


MAP = {"0.weight": ["1.weight", "2.weight"]}


def shapes(net):
    return {name: tuple(value.shape) for name, value in net.state_dict().items() if value.dim()}


class TestThin:
    def test_convolution_batch_norm_convolution(self):
        net = conv_net()
        x = torch.randn(2, 1, 8, 8)
        before = net(x)
        thin(net, MAP, 0)
        assert shapes(net) == {
            "0.weight": (2, 1, 3, 3), "0.bias": (2,), "1.weight": (2,), "1.bias": (2,),
            "1.running_mean": (2,),
            "1.running_var": (2,), "2.weight": (2, 2, 3, 3), "2.bias": (2,),
        }  # fmt: skip
        assert net[1].num_features == 2
        assert (net[0].out_channels, net[2].in_channels) == (2, 2)
        assert torch.allclose(net(x), before, atol=1e-6)

    def test_linear_layer_behind_a_flattening(self):
        net = nn.Sequential(nn.Conv2d(1, 4, 3, bias=False), nn.Flatten(), nn.Linear(16, 3))
        with torch.no_grad():
            net[0].weight[[0, 2]] = 0
        x = torch.randn(2, 1, 4, 4)
        before = net(x)
        thin(net, {"0.weight": ["2.weight"]}, 0)
        assert net[2].weight.shape == (3, 8)
        assert net[2].in_features == 8
        assert torch.allclose(net(x), before, atol=1e-6)

    def test_depthwise_convolution_in_between(self):
        net = nn.Sequential(
            nn.Conv2d(1, 4, 1, bias=False), nn.Conv2d(4, 4, 3, groups=4, bias=False), nn.Conv2d(4, 2, 1)
        )
        with torch.no_grad():
            net[0].weight[2] = 0
        x = torch.randn(2, 1, 5, 5)
        before = net(x)
        thin(net, {"0.weight": ["1.weight", "2.weight"]}, 0)
        assert net[1].weight.shape == (3, 1, 3, 3)
        assert net[1].groups == 3
        assert torch.allclose(net(x), before, atol=1e-6)

    def test_input_channels(self):
        net = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
        with torch.no_grad():
            net[1].weight[:, 1] = 0
        x = torch.randn(5, 3)
        before = net(x)
        thin(net, {"1.weight": ["0.weight"]}, 1)
        assert shapes(net) == {"0.weight": (3, 3), "0.bias": (3,), "1.weight": (2, 3), "1.bias": (2,)}
        assert torch.allclose(net(x), before, atol=1e-6)

    def test_groups(self):
        net = nn.ModuleDict({"a": nn.Linear(3, 4), "b": nn.Linear(3, 4), "c": nn.Linear(4, 2)})
        with torch.no_grad():
            net["a"].weight[[0, 1]] = 0
            net["b"].weight[1] = 0
        with pytest.raises(ValueError, match="different channels"):
            thin(net, {"a.weight, b.weight": ["c.weight"]}, 0)
        thin(net, {"a.weight, b.weight": ["c.weight"]}, 0, strict=False)
        assert [net[name].weight.shape for name in "abc"] == [(3, 3), (3, 3), (2, 3)]

    def test_optimizer_and_gradient_go_along(self):
        net = conv_net().train()
        optimizer = torch.optim.Adam(net.parameters(), lr=0.1)
        net(torch.randn(2, 1, 8, 8)).sum().backward()
        optimizer.step()
        with torch.no_grad():
            net[0].weight[[1, 3]] = 0
        momentum = optimizer.state[net[0].weight]["exp_avg"].clone()
        thin(net, MAP, 0, optimizer)
        assert torch.equal(optimizer.state[net[0].weight]["exp_avg"], momentum[[0, 2]])
        assert net[0].weight.grad.shape == net[0].weight.shape
        optimizer.step()
        optimizer.zero_grad()
        net(torch.randn(2, 1, 8, 8)).sum().backward()
        optimizer.step()

    def test_nothing_to_do(self):
        net = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
        assert thin(net, {"0.weight": ["1.weight"]}, 0) == []

    def test_one_channel_stays(self):
        net = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
        nn.init.zeros_(net[0].weight)
        thin(net, {"0.weight": ["1.weight"]}, 0)
        assert net(torch.ones(1, 3)).shape == (1, 2)
        assert net[0].out_features == 1

    @pytest.mark.parametrize(
        ("mapping", "message"),
        [
            ({"0.weigth": []}, "did you mean"), ({"0.weight": ["5.weight"]}, "5.weight"),
            ({"0.bias": []}, "no weight"),
            ({"0.weight": ["3.weight"]}, "entries for 4 channels"), ({"0.weight": ["4.weight_ih_l0"]}, "GRU"),
        ],
    )  # fmt: skip
    def test_refused(self, mapping, message):
        net = nn.Sequential(*conv_net(), nn.Linear(5, 2), nn.GRU(4, 4))
        with pytest.raises(ValueError, match=message):
            thin(net, mapping, 0)

    def test_names_may_be_unknown_where_it_is_not_strict(self):
        net = conv_net()
        thin(net, {"0.weight": ["1.weight", "2.weight", "fused.weight"]}, 0, strict=False)
        assert net[0].out_channels == 2


class TestThinning:
    def test_when(self):
        modifier = LayerThinningModifier(MAP, start_epoch=1, update_epochs=[2, 4.5])
        net = conv_net()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.0)
        wrapped = ScheduledModifierManager([modifier]).modify(net, optimizer, 1)
        seen = []
        for epoch in range(7):
            if epoch == 2:
                with torch.no_grad():
                    net[0].weight[0] = 0
            wrapped.step()
            seen.append(net[0].out_channels)
        assert seen == [4, 2, 1, 1, 1, 1, 1]
        assert not modifier.update_ready(9, 1)

    def test_at_the_latest_when_training_is_over(self):
        net = conv_net()
        manager = ScheduledModifierManager([LayerThinningModifier(MAP, start_epoch=9)])
        manager.modify(net, torch.optim.SGD(net.parameters(), lr=0.0), 1).step()
        manager.finalize(net)
        assert net[0].out_channels == 2

    def test_one_shot(self):
        net = conv_net()
        LayerThinningModifier(MAP).apply(net)
        assert net[0].out_channels == 2

    def test_with_structured_pruning_while_training(self):
        torch.manual_seed(0)
        net = nn.Sequential(
            nn.Conv2d(1, 8, 3),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.Conv2d(8, 4, 3),
            nn.Flatten(),
            nn.Linear(64, 3),
        )
        manager = ScheduledModifierManager(
            [
                StructuredPruningModifier(0.25, 0.5, 0, 2, 1, params=["0.weight"]),
                GMPruningModifier(0.0, 0.5, 0, 1, 1, ["3.weight"]),
                LayerThinningModifier({"0.weight": ["1.weight", "3.weight"]}, start_epoch=2),
            ]
        )
        optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
        wrapped = manager.modify(net, optimizer, 2)
        for _ in range(8):
            optimizer.zero_grad()
            net(torch.randn(4, 1, 8, 8)).square().mean().backward()
            wrapped.step()
        assert net[0].weight.shape == (4, 1, 3, 3)
        assert net[3].weight.shape == (4, 4, 3, 3)
        sparse = next(m for m in manager.modifiers if type(m) is GMPruningModifier)
        assert sparse.masks["3.weight"].shape == (4, 4, 3, 3)
        assert torch.equal(net[3].weight != 0, sparse.masks["3.weight"])
        manager.finalize(net)
        assert net(torch.randn(2, 1, 8, 8)).shape == (2, 3)

    @pytest.mark.parametrize(
        "options",
        [
            {"structure_type": "row"}, {"update_epochs": [2, 1]}, {"update_epochs": [1, 1]},
            {"update_epochs": 3},
            {"strict": 1}, {"param_group_dependency_map": {"a": "b"}},
            {"param_group_dependency_map": [["a"]]},
            {"param_group_dependency_map": {1: ["b"]}},
        ],
    )  # fmt: skip
    def test_refused(self, options):
        with pytest.raises(ValueError):
            LayerThinningModifier(**{"param_group_dependency_map": MAP, **options})


class TestLayerPruning:
    def net(self):
        return nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Sequential(nn.Linear(3, 3)))

    def test_gone_from_start_to_end(self):
        net = self.net()
        layer = net[2][0]
        modifier = LayerPruningModifier(["2.0"], 1, 3)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.0)
        wrapped = ScheduledModifierManager([modifier]).modify(net, optimizer, 1)
        seen = []
        for _ in range(5):
            wrapped.step()
            seen.append(type(net[2][0]).__name__)
        assert seen == ["Linear", "Identity", "Identity", "Linear", "Linear"]
        assert net[2][0] is layer

    def test_without_an_end_they_stay_gone(self):
        net = self.net()
        LayerPruningModifier(["0"]).apply(net)
        assert isinstance(net[0], nn.Identity)

    @pytest.mark.parametrize(
        ("layers", "gone"),
        [("__ALL__", ["0", "1", "2"]), ("__ALL_PRUNABLE__", ["0", "2.0"]), (["1"], ["1"])],
    )
    def test_tokens(self, layers, gone):
        net = self.net()
        LayerPruningModifier(layers).apply(net)
        assert [name for name, module in net.named_modules() if isinstance(module, nn.Identity)] == gone

    def test_unknown_layer(self):
        with pytest.raises(ValueError, match="no layer '3'"):
            LayerPruningModifier(["3"]).initialize(self.net())


@pytest.mark.parametrize(
    "modifier",
    [
        LayerThinningModifier({"a,b": ["c"]}, "channel", 2.0, [3.0, 4.0], False),
        LayerPruningModifier(["a.b"], 1, 3),
        LayerPruningModifier("__ALL_PRUNABLE__"),
    ],
    ids=lambda modifier: type(modifier).__name__,
)
def test_text_makes_the_same_modifier(modifier):
    again = Modifier.load_obj(str(modifier))
    assert type(again) is type(modifier)
    assert again.identifier() == modifier.identifier()
