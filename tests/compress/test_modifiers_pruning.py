"""Pruning by recipe: exact numbers of zeros at each epoch, masks that hold, groups, phases."""

import pytest
import torch
from torch import nn

from sparsemod.compress.recipe import (
    ACDCPruningModifier,
    ConstantPruningModifier,
    GlobalMagnitudePruningModifier,
    GMPruningModifier,
    MagnitudePruningModifier,
    Modifier,
    ScheduledModifierManager,
    StructuredPruningModifier,
)


def of(*weights):
    """A network of linear layers without biases that have these weights."""
    net = nn.Sequential(*(nn.Linear(len(rows[0]), len(rows), bias=False) for rows in weights))
    for layer, rows in zip(net, weights, strict=True):
        layer.weight = nn.Parameter(torch.tensor(rows, dtype=torch.float32))
    return net


def hundred():
    return of([[float(i + 1) for i in range(100)]])


def zeros(net):
    return [int((parameter == 0).sum()) for parameter in net.parameters()]


def prune(modifier, net, n_epochs, steps_per_epoch=1, optimizer=None, look=zeros):
    """What `look(net)` is behind each step."""
    optimizer = optimizer or torch.optim.SGD(net.parameters(), lr=0.0)
    wrapped = ScheduledModifierManager([modifier]).modify(net, optimizer, steps_per_epoch)
    seen = []
    for _ in range(n_epochs * steps_per_epoch):
        wrapped.step()
        seen.append(look(net))
    return seen


def gm(start=0, end=10, frequency=1, init=0.05, final=0.8, params="__ALL_PRUNABLE__", **options):
    return GMPruningModifier(init, final, start, end, frequency, params, **options)


class TestRamp:
    @pytest.mark.parametrize(
        ("how", "epoch", "sparsity"),
        [
            ("cubic", 0, 0.05), ("cubic", 1, 0.25325), ("cubic", 2, 0.416), ("cubic", 5, 0.70625),
            ("cubic", 9, 0.79925),
            ("cubic", 10, 0.8), ("linear", 2, 0.2), ("linear", 5, 0.425), ("inverse_cubic", 5, 0.204725),
            ("cubic", 12, 0.8), ("linear", 12, 0.8), ("inverse_cubic", 12, 0.8),
        ],
    )  # fmt: skip
    def test_sparsity(self, how, epoch, sparsity):
        modifier = gm(inter_func=how)
        modifier.initialize(hundred())
        assert modifier.sparsity("0.weight", epoch) == pytest.approx(sparsity, abs=1e-6)

    def test_exact_zeros(self):
        seen = prune(gm(), hundred(), 13)
        assert [seen[epoch][0] for epoch in (0, 1, 2, 5, 9, 10, 12)] == [5, 25, 42, 71, 80, 80, 80]

    def test_no_update_in_between(self):
        seen = prune(gm(), hundred(), 11, steps_per_epoch=2, look=lambda net: zeros(net)[0])
        assert seen[2:4] == [25, 25]
        modifier = gm()
        modifier.initialize(hundred())
        for epoch in range(10):
            modifier.scheduled_update(nn.Identity(), None, epoch, 2)
        assert not modifier.update_ready(9.5, 2)
        assert modifier.update_ready(10, 2)

    def test_function_is_heeded(self):
        for how, sparsity in (("linear", 0.45), ("cubic", 0.75)):
            modifier = gm(0, 40, 1, 0.05, 0.85, inter_func=how)
            modifier.initialize(hundred())
            assert modifier.sparsity("0.weight", 20) == pytest.approx(sparsity)

    def test_start_equal_to_end_jumps(self):
        assert prune(gm(2, 2), hundred(), 4) == [[0], [0], [80], [80]]

    def test_nothing_before_the_start_and_never_less(self):
        seen = [n for (n,) in prune(gm(3, 7, 0.5), hundred(), 10, steps_per_epoch=4)]
        assert seen[:12] == [0] * 12
        assert seen == sorted(seen)
        assert seen[-1] == 80

    def test_one_mask_update_at_the_first_step(self):
        calls = []

        class Counting(GMPruningModifier):
            def new_masks(self, epoch):
                calls.append(epoch)
                return super().new_masks(epoch)

        prune(Counting(0.05, 0.8, 0, 10, 1, "__ALL_PRUNABLE__"), hundred(), 1)
        assert calls == [0]

    def test_smallest_go_first_and_stay_gone(self):
        net = hundred()
        prune(gm(end=4), net, 6)
        assert net[0].weight.nonzero()[:, 1].tolist() == list(range(80, 100))

    def test_ties_are_counted_exactly(self):
        net = of([[1.0] * 10])
        assert prune(gm(0, 0, final=0.5), net, 1) == [[5]]

    def test_momentum_revives_nothing(self):
        torch.manual_seed(0)
        net = nn.Linear(10, 10)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
        wrapped = ScheduledModifierManager([gm(1, 2, final=0.6, init=0.3)]).modify(net, optimizer, 2)
        for _ in range(8):
            optimizer.zero_grad()
            net(torch.randn(4, 10)).square().sum().backward()
            wrapped.step()
        assert int((net.weight == 0).sum()) == 60


WEIGHTS = {"0.weight", "2.weight_ih_l0", "2.weight_hh_l0"}


class TestParameters:
    def test_each_layer_by_itself_or_all_together(self):
        weights = [[1.0, 2.0], [3.0, 4.0]], [[10.0, 20.0], [30.0, 40.0]]
        assert prune(gm(0, 0, final=0.5), of(*weights), 1) == [[2, 2]]
        together = GlobalMagnitudePruningModifier(0.05, 0.5, 0, 0, 1)
        assert prune(together, of(*weights), 1) == [[4, 0]]
        assert together.global_sparsity
        assert prune(gm(0, 0, final=0.5, global_sparsity=True), of(*weights), 1) == [[4, 0]]

    def test_magnitude_pruning_is_the_same(self):
        assert prune(MagnitudePruningModifier(0.05, 0.8, 0, 10, 1, "__ALL_PRUNABLE__"), hundred(), 3)[2] == [
            42
        ]

    @pytest.mark.parametrize(
        ("params", "expected"),
        [
            (["0.weight"], {"0.weight"}),
            (["re:.*weight"], WEIGHTS),
            ("__ALL_PRUNABLE__", WEIGHTS),
            ("__all_prunable__", WEIGHTS),
            ("__ALL__", WEIGHTS | {"0.bias", "1.weight", "1.bias", "2.bias_ih_l0", "2.bias_hh_l0"}),
        ],
    )
    def test_names(self, params, expected):
        net = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.GRU(4, 4))
        modifier = gm(0, 0, params=params)
        modifier.initialize(net)
        modifier.scheduled_update(net, None, 0, 1)
        assert set(modifier.masks) - {"1.weight"} == expected - {"1.weight"}

    def test_unknown_name(self):
        with pytest.raises(ValueError, match=r"1\.weight"):
            gm(params=["1.weight"]).initialize(hundred())
        with pytest.raises(ValueError, match="params"):
            gm(params="weight")

    def test_a_sparsity_for_each_list(self):
        net = of([[1.0] * 10], [[1.0]] * 20)
        modifier = gm(0, 0, final={0.5: ["0.weight"], 0.8: ["re:1.*"]}, params=[])
        assert prune(modifier, net, 1) == [[5, 16]]

    def test_sparsities_for_lists_exclude_params(self):
        with pytest.raises(ValueError, match="params must be"):
            gm(final={0.5: ["0.weight"]})
        with pytest.raises(ValueError, match="one fraction"):
            gm(final={0.5: ["0.weight"]}, params=[], global_sparsity=True)

    def test_from_what_is_there(self):
        net = of([[0.0, 0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]], [[1.0]] * 10)
        seen = prune(gm(0, 2, init="__FROM_PARAM__", inter_func="linear"), net, 3)
        assert seen == [[2, 0], [5, 4], [8, 8]]

    @pytest.mark.parametrize(
        "options",
        [
            {"init": -0.1}, {"init": 1.1}, {"init": "__PARAM__"}, {"final": 0.0}, {"final": 1.0},
            {"final": {}},
            {"inter_func": "square"}, {"mask_type": "blocks"}, {"mask_type": "filter"},
            {"mask_type": [1, 2, 3]},
            {"frequency": -2}, {"start": 5, "end": 3}, {"leave_enabled": "yes"},
        ],
    )  # fmt: skip
    def test_refused(self, options):
        with pytest.raises(ValueError):
            gm(**options)

    def test_global_means_global(self):
        with pytest.raises(ValueError):
            GlobalMagnitudePruningModifier(0.05, 0.5, 0, 0, 1, global_sparsity=False)


class TestStructure:
    def test_blocks_of_four(self):
        net = of([[1.0] * 4 + [5.0] * 4, [2.0] * 4 + [3.0] * 4])
        prune(gm(0, 0, final=0.5, mask_type="block4"), net, 1)
        assert (net[0].weight != 0).tolist() == [[False] * 4 + [True] * 4] * 2

    def test_blocks_of_any_shape(self):
        net = of([[1.0, 1.0, 5.0, 5.0], [1.0, 1.0, 5.0, 5.0]])
        prune(gm(0, 0, final=0.5, mask_type=[2, 2]), net, 1)
        assert (net[0].weight != 0).tolist() == [[False, False, True, True]] * 2

    def test_two_of_four(self):
        net = of([[1.0, -4.0, 2.0, 3.0], [8.0, 7.0, -6.0, 5.0]])
        prune(gm(0, 0, init=0.5, final=0.5, mask_type="2:4"), net, 1)
        assert (net[0].weight != 0).int().tolist() == [[0, 1, 0, 1], [1, 1, 0, 0]]

    @pytest.mark.parametrize(("init", "final"), [(0.5, 0.75), (0.05, 0.5)])
    def test_two_of_four_has_one_sparsity(self, init, final):
        with pytest.raises(ValueError, match="2:4"):
            gm(init=init, final=final, mask_type="2:4")


class TestEnd:
    @pytest.mark.parametrize(("leave_enabled", "n_zero"), [(True, [2, 2, 2]), (False, [2, 0, 0])])
    def test_masks_stay_or_go(self, leave_enabled, n_zero):
        net = of([[1.0, 2.0, 3.0, 4.0]])
        modifier = gm(0, 0, final=0.5, leave_enabled=leave_enabled)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        wrapped = ScheduledModifierManager([modifier]).modify(net, optimizer, 1)
        seen = []
        for step in range(4):
            net[0].weight.grad = torch.ones_like(net[0].weight) if step > 1 else None
            wrapped.step()
            seen.append(zeros(net)[0])
        assert seen == [2, *n_zero]

    def test_finalize_leaves_the_zeros(self):
        net = of([[1.0, 2.0, 3.0, 4.0]])
        manager = ScheduledModifierManager([gm(0, 5, init=0.5)])
        manager.modify(net, torch.optim.SGD(net.parameters(), lr=0.0), 1).step()
        manager.finalize(net)
        assert zeros(net) == [2]
        assert manager.modifiers[0].masks == {}


class TestConstant:
    def run(self, lr, n_steps=3, momentum=0.0):
        net = of([[0.0, 1.0, 0.0, 2.0]])
        optimizer = torch.optim.SGD(net.parameters(), lr=lr, momentum=momentum)
        wrapped = ScheduledModifierManager([ConstantPruningModifier(["0.weight"])]).modify(net, optimizer, 1)
        for _ in range(n_steps):
            net[0].weight.grad = torch.ones_like(net[0].weight)
            wrapped.step()
        return net[0].weight.tolist()[0]

    def test_zeros_stay(self):
        assert self.run(0.25) == [0, 0.25, 0, 1.25]

    def test_weight_that_passes_through_zero_is_not_frozen(self):
        assert self.run(1.0) == [0, -2, 0, -1]

    def test_lets_go_at_its_end(self):
        net = of([[0.0, 1.0]])
        optimizer = torch.optim.SGD(net.parameters(), lr=1.0)
        modifier = ConstantPruningModifier(["0.weight"], 0, 2)
        wrapped = ScheduledModifierManager([modifier]).modify(net, optimizer, 1)
        seen = []
        for _ in range(4):
            net[0].weight.grad = torch.ones_like(net[0].weight)
            wrapped.step()
            seen.append(float(net[0].weight[0, 0].detach()))
        assert seen == [0, 0, -1, -2]

    def test_made_from_a_sparse_network(self):
        net = of([[0.0, 1.0]], [[1.0]], [[0.0]])
        found = ConstantPruningModifier.from_sparse_model(net)
        assert [modifier.params for modifier in found] == [["0.weight"], ["2.weight"]]


class TestAlternating:
    def modifier(self, start=0, end=20, length=5, **options):
        return ACDCPruningModifier(0.9, start, end, length, "__ALL_PRUNABLE__", **options)

    def test_phases(self):
        seen = prune(self.modifier(), hundred(), 22, look=lambda net: zeros(net)[0])
        # Weights that come back start from zero; with a learning rate of zero they stay there.
        modifier = self.modifier()
        assert [modifier.applied_sparsity(epoch) for epoch in (0, 5, 10, 15, 20)] == [0, 0.9, 0, 0.9, 0.9]
        assert seen[4:6] == [0, 90]

    def test_masks_of_each_epoch(self):
        modifier = self.modifier()
        seen = prune(modifier, hundred(), 22, look=lambda _: bool(modifier.masks))
        assert seen == [False] * 5 + [True] * 5 + [False] * 5 + [True] * 7

    def test_ends_pruned(self):
        assert self.modifier(end=20).end_epoch == 20
        assert self.modifier(end=23).end_epoch == 20
        assert self.modifier(end=12).end_epoch == 10
        assert self.modifier(1, 11, 2).end_epoch == 9
        assert self.modifier(1, 12, 2).end_epoch == 12

    @pytest.mark.parametrize("mask_type", ["filter", "2:4", "blocks"])
    def test_mask_types_that_do_not_fit(self, mask_type):
        with pytest.raises(ValueError, match="mask_type"):
            self.modifier(mask_type=mask_type)

    @pytest.mark.parametrize("span", [(0, 5, 5), (0.5, 20, 5), (0, 20.5, 5), (0, 20, 0), (-1, 20, 5)])
    def test_refused(self, span):
        with pytest.raises(ValueError):
            self.modifier(*span)

    @pytest.mark.parametrize("reset", [True, False])
    def test_momentum_is_reset_when_weights_come_back(self, reset):
        net = of([[1.0, 2.0, 3.0, 4.0]])
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
        modifier = ACDCPruningModifier(0.5, 0, 4, 1, "__ALL_PRUNABLE__", momentum_buffer_reset=reset)
        wrapped = ScheduledModifierManager([modifier]).modify(net, optimizer, 1)
        buffers = []
        for _ in range(3):
            net[0].weight.grad = torch.ones_like(net[0].weight)
            wrapped.step()
            buffers.append(round(float(optimizer.state[net[0].weight]["momentum_buffer"][0, 0]), 6))
        assert buffers == [1.0, 1.9, 1.0 if reset else 2.71]

    def test_momentum_of_adam_is_reset_too(self):
        net = of([[1.0, 2.0, 3.0, 4.0]])
        optimizer = torch.optim.Adam(net.parameters(), lr=0.1)
        modifier = ACDCPruningModifier(0.5, 0, 4, 1, "__ALL_PRUNABLE__")
        wrapped = ScheduledModifierManager([modifier]).modify(net, optimizer, 1)
        for gradient in (1.0, 1.0, 0.0):
            net[0].weight.grad = torch.full_like(net[0].weight, gradient)
            wrapped.step()
        assert float(optimizer.state[net[0].weight]["exp_avg"].abs().max()) == 0.0

    def test_everywhere_together_or_by_layer(self):
        weights = [[1.0, 2.0], [3.0, 4.0]], [[10.0, 20.0], [30.0, 40.0]]
        for together, expected in ((True, [4, 0]), (False, [2, 2])):
            modifier = ACDCPruningModifier(0.5, 0, 2, 1, "__ALL_PRUNABLE__", global_sparsity=together)
            assert prune(modifier, of(*weights), 2)[1] == expected

    def test_masks_go_at_the_end_if_told(self):
        modifier = ACDCPruningModifier(0.5, 0, 2, 1, "__ALL_PRUNABLE__", leave_enabled=False)
        assert prune(modifier, hundred(), 4, look=lambda _: bool(modifier.masks)) == [
            False,
            True,
            False,
            False,
        ]


ROWS = [[1.0, 0.0], [3.0, 4.0], [0.0, 2.0], [5.0, 12.0]]


class TestStructured:
    def modifier(self, final=0.5, **options):
        return StructuredPruningModifier(0.05, final, 0, 0, 1, **options)

    def test_filters(self):
        net = of(ROWS)
        prune(self.modifier(), net, 1)
        assert (net[0].weight == 0).all(dim=1).tolist() == [True, False, True, False]

    def test_channels(self):
        net = of(ROWS)
        prune(self.modifier(mask_type="channel"), net, 1)
        assert (net[0].weight == 0).all(dim=0).tolist() == [True, False]

    def test_convolutions(self):
        net = nn.Sequential(nn.Conv2d(3, 8, 3))
        prune(self.modifier(0.25), net, 1)
        assert int((net[0].weight == 0).flatten(1).all(dim=1).sum()) == 2

    def test_groups_lose_the_same_channels(self):
        # The norms of the rows are 1 5 2 13 and 20 0 9 1: together 21 5 11 14.
        net = nn.ModuleList([of(ROWS), of([[20.0], [0.0], [9.0], [1.0]])])
        modifier = self.modifier(param_groups=[["0.0.weight", "1.0.weight"]])
        prune(modifier, net, 1)
        assert [(layer[0].weight == 0).all(dim=1).tolist() for layer in net] == [
            [False, True, True, False]
        ] * 2

    def test_pruned_channels_stay_pruned(self):
        torch.manual_seed(0)
        net = nn.Linear(6, 12)
        modifier = StructuredPruningModifier(0.25, 0.75, 0, 4, 1)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.3, momentum=0.9)
        wrapped = ScheduledModifierManager([modifier]).modify(net, optimizer, 2)
        gone: set[int] = set()
        for _ in range(12):
            optimizer.zero_grad()
            net(torch.randn(3, 6)).square().sum().backward()
            wrapped.step()
            now = set((net.weight == 0).all(dim=1).nonzero().flatten().tolist())
            assert gone <= now
            gone = now
        assert len(gone) == 9

    def test_a_single_channel_is_left_alone(self):
        net = nn.Sequential(nn.Conv2d(4, 4, 3, groups=4))
        prune(self.modifier(0.9, mask_type="channel"), net, 1)
        assert zeros(net)[0] == 0

    @pytest.mark.parametrize(
        "options",
        [
            {"mask_type": "unstructured"}, {"mask_type": [1, 4]}, {"global_sparsity": True},
            {"param_groups": ["a"]},
            {"param_groups": [["a", "b"], ["b"]]},
        ],
    )  # fmt: skip
    def test_refused(self, options):
        with pytest.raises(ValueError):
            self.modifier(**options)

    def test_groups_that_do_not_fit(self):
        with pytest.raises(ValueError, match="not pruned"):
            self.modifier(param_groups=[["0.weigth"]]).initialize(of(ROWS))
        with pytest.raises(ValueError, match="channels"):
            self.modifier(param_groups=[["0.weight", "1.weight"]]).initialize(of(ROWS, [[1.0] * 4] * 3))


@pytest.mark.parametrize(
    "modifier",
    [
        gm(), gm(mask_type=[1, 4], leave_enabled=False),
        gm(init="__FROM_PARAM__", final={0.5: ["a"]}, params=[]),
        MagnitudePruningModifier(0.05, 0.8, 0, 10, 1, ["re:.*weight"]),
        GlobalMagnitudePruningModifier(0.05, 0.8, 0, 10, 0.1), ConstantPruningModifier(["a"], 1, 3),
        ACDCPruningModifier(0.9, 0, 20, 5, ["a"]), StructuredPruningModifier(0.1, 0.5, 0, 3, 1, [["a", "b"]]),
    ],
    ids=lambda modifier: type(modifier).__name__,
)  # fmt: skip
def test_text_makes_the_same_modifier(modifier):
    again = Modifier.load_obj(str(modifier))
    assert type(again) is type(modifier)
    assert again.identifier() == modifier.identifier()
