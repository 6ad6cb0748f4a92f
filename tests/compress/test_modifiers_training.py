"""Learning rates, weight decay, trainable and set parameters."""

import math

import pytest
import torch
from torch import nn

from sparsemod.compress.recipe import (
    EpochRangeModifier,
    GradualParamModifier,
    LearningRateFunctionModifier,
    LearningRateModifier,
    Modifier,
    ScheduledModifierManager,
    SetLearningRateModifier,
    SetParamModifier,
    SetWeightDecayModifier,
    TrainableParamsModifier,
)


def trace(modifier, n_epochs, look, steps_per_epoch=1, lr=0.1, **options):
    """What `look(net, optimizer)` is behind each step of a training."""
    net = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=lr, **options)
    wrapped = ScheduledModifierManager([modifier]).modify(net, optimizer, steps_per_epoch)
    seen = []
    for _ in range(n_epochs * steps_per_epoch):
        wrapped.step()
        seen.append(look(net, optimizer))
    return seen


def rates(modifier, n_epochs, steps_per_epoch=1):
    return trace(modifier, n_epochs, lambda _, optimizer: optimizer.param_groups[0]["lr"], steps_per_epoch)


class TestSetLearningRate:
    def test_value_at_each_epoch(self):
        assert rates(SetLearningRateModifier(0.03, start_epoch=2), 4) == [0.1, 0.1, 0.03, 0.03]
        assert rates(SetLearningRateModifier(0.03), 2) == [0.03, 0.03]

    def test_applied(self):
        modifier = SetLearningRateModifier(0.03)
        assert modifier.applied_learning_rate == -1.0
        rates(modifier, 1)
        assert modifier.applied_learning_rate == 0.03

    def test_groups(self):
        net = nn.Linear(2, 1)
        optimizer = torch.optim.SGD([{"params": [net.weight]}, {"params": [net.bias]}], lr=0.1)
        wrapped = ScheduledModifierManager([SetLearningRateModifier(0.5, param_groups=[1])]).modify(
            net, optimizer, 1
        )
        wrapped.step()
        assert [group["lr"] for group in optimizer.param_groups] == [0.1, 0.5]

    def test_group_that_is_not_there(self):
        with pytest.raises(ValueError, match="has 1 groups"):
            rates(SetLearningRateModifier(0.5, param_groups=[1]), 1)

    @pytest.mark.parametrize("value", [0, -0.1, 1.1, "fast", True])
    def test_range(self, value):
        with pytest.raises(ValueError, match="learning_rate"):
            SetLearningRateModifier(value)

    def test_end_cannot_be_set(self):
        with pytest.raises(ValueError):
            SetLearningRateModifier(0.1).end_epoch = 5


class TestLearningRateFunction:
    def test_linear(self):
        modifier = LearningRateFunctionModifier("linear", 0.1, 0.0, 0, 4)
        assert rates(modifier, 6) == pytest.approx([0.1, 0.075, 0.05, 0.025, 0.0, 0.0])

    def test_linear_in_steps(self):
        modifier = LearningRateFunctionModifier("linear", 0.4, 0.0, 1, 2)
        assert rates(modifier, 3, 2) == pytest.approx([0.1, 0.1, 0.4, 0.2, 0.0, 0.0])

    def test_cosine(self):
        modifier = LearningRateFunctionModifier("cosine", 0.1, 0.02, 0, 4)
        expected = [0.02 + 0.08 * (1 + math.cos(math.pi * e / 4)) / 2 for e in range(5)]
        assert rates(modifier, 6) == pytest.approx([*expected, 0.02])

    def test_cyclic_linear_reaches_the_final_rate_in_each_last_step(self):
        modifier = LearningRateFunctionModifier("cyclic_linear", 0.1, 0.04, 0, 4, cycle_epochs=2)
        first = [0.1, 0.08, 0.06, 0.04]
        assert rates(modifier, 5, 2) == pytest.approx([*first, *first, 0.04, 0.04])

    def test_cyclic_linear_with_a_rest(self):
        modifier = LearningRateFunctionModifier("cyclic_linear", 0.1, 0.04, 0, 3, cycle_epochs=2)
        assert rates(modifier, 4, 2) == pytest.approx([0.1, 0.08, 0.06, 0.04, 0.1, 0.04, 0.04, 0.04])

    def test_cycle_of_one_step(self):
        assert rates(LearningRateFunctionModifier("cyclic_linear", 0.1, 0.04, 0, 2), 2) == [0.1, 0.1]

    @pytest.mark.parametrize(
        "arguments",
        [
            ("squared", 0.1, 0.01, 0, 5), ("linear", 1.1, 0.01, 0, 5), ("linear", 0.1, -0.1, 0, 5),
            ("linear", 0.1, 0.01, 5, 5), ("linear", 0.1, 0.01, 0, -1), ("cyclic_linear", 0.1, 0.01, 0, 5, 0),
        ],
    )  # fmt: skip
    def test_refused(self, arguments):
        with pytest.raises(ValueError):
            LearningRateFunctionModifier(*arguments)


class TestLearningRate:
    def test_step(self):
        modifier = LearningRateModifier("StepLR", {"step_size": 2, "gamma": 0.1}, 0.1, 0, 6)
        assert rates(modifier, 8) == pytest.approx([0.1, 0.1, 0.01, 0.01, 0.001, 0.001, 0.001, 0.001])

    def test_step_later_and_in_steps(self):
        modifier = LearningRateModifier("StepLR", {"step_size": 1, "gamma": 0.5}, 0.8, 1)
        assert rates(modifier, 3, 2) == pytest.approx([0.1, 0.1, 0.8, 0.8, 0.4, 0.4])

    def test_same_as_pytorch(self):
        for name, kwargs in (
            ("StepLR", {"step_size": 3, "gamma": 0.7}),
            ("MultiStepLR", {"milestones": [2, 5], "gamma": 0.5}),
            ("ExponentialLR", {"gamma": 0.9}),
            ("CosineAnnealingWarmRestarts", {"T_0": 3, "T_mult": 2, "eta_min": 0.01}),
        ):
            optimizer = torch.optim.SGD(nn.Linear(1, 1).parameters(), lr=0.2)
            scheduler = getattr(torch.optim.lr_scheduler, name)(optimizer, **kwargs)
            expected = []
            for _ in range(12):
                expected.append(scheduler.get_last_lr()[0])
                optimizer.step()
                scheduler.step()
            assert rates(LearningRateModifier(name, kwargs, 0.2, 0), 12) == pytest.approx(expected), name

    def test_milestones_are_epochs_of_the_training(self):
        modifier = LearningRateModifier("MultiStepLR", {"milestones": [5, 8], "gamma": 0.5}, 0.8, 3)
        assert rates(modifier, 9) == pytest.approx([0.1] * 3 + [0.8, 0.8, 0.4, 0.4, 0.4, 0.2])

    def test_other_names_of_the_restarts(self):
        one = LearningRateModifier("CosineAnnealingWarmRestarts", {"lr_min": 0.01, "cycle_epochs": 4}, 0.1, 0)
        two = LearningRateModifier("CosineAnnealingWarmRestarts", {"eta_min": 0.01, "T_0": 4}, 0.1, 0)
        assert rates(one, 9) == rates(two, 9)
        assert rates(one, 9)[8] == pytest.approx(0.1)

    @pytest.mark.parametrize(
        ("name", "kwargs"),
        [
            ("CyclicLR", {}), ("StepLR", {}), ("StepLR", {"step_size": 0}),
            ("StepLR", {"step_size": 2, "gama": 0.1}),
            ("StepLR", {"step_size": "x"}), ("MultiStepLR", {"milestones": 3}), ("ExponentialLR", {}),
            ("CosineAnnealingWarmRestarts", {"T_0": -1}),
            ("CosineAnnealingWarmRestarts", {"T_0": 2, "T_mult": 0.5}),
        ],
    )  # fmt: skip
    def test_refused(self, name, kwargs):
        with pytest.raises(ValueError):
            LearningRateModifier(name, kwargs, 0.1, 0)


def test_weight_decay():
    modifier = SetWeightDecayModifier(0, start_epoch=1)
    seen = trace(
        modifier, 3, lambda _, optimizer: optimizer.param_groups[0]["weight_decay"], weight_decay=0.01
    )
    assert seen == [0.01, 0, 0]


class TestTrainable:
    def test_switched_off_and_on_again(self):
        modifier = TrainableParamsModifier(["weight"], False, start_epoch=1, end_epoch=3)
        seen = trace(modifier, 5, lambda net, _: (net.weight.requires_grad, net.bias.requires_grad))
        assert seen == [(True, True), (False, True), (False, True), (True, True), (True, True)]

    def test_does_not_move_in_the_step_that_switches_it_off(self):
        net = nn.Linear(2, 1)
        manager = ScheduledModifierManager([TrainableParamsModifier(["weight"], False)])
        wrapped = manager.modify(net, torch.optim.SGD(net.parameters(), 0.1), 1)
        before = net.weight.clone(), net.bias.clone()
        net(torch.ones(1, 2)).sum().backward()
        wrapped.step()
        assert torch.equal(net.weight, before[0])
        assert not torch.equal(net.bias, before[1])

    def test_names(self):
        with pytest.raises(ValueError, match="wieght"):
            TrainableParamsModifier(["wieght"], False).initialize(nn.Linear(2, 1))
        TrainableParamsModifier(["wieght", "bias"], False, params_strict=False).initialize(nn.Linear(2, 1))
        seen = trace(TrainableParamsModifier("__ALL__", False), 1, lambda net, _: net.bias.requires_grad)
        assert seen == [False]
        with pytest.raises(ValueError, match="params"):
            TrainableParamsModifier("weight", False)


class TestSetParam:
    def test_set_once(self):
        modifier = SetParamModifier(["bias"], [0.5], start_epoch=1)
        seen = trace(modifier, 3, lambda net, _: float(net.bias.detach()) == 0.5)
        assert seen == [False, True, True]

    def test_number_fills_any_shape(self):
        assert trace(SetParamModifier("__ALL__", 2.0), 1, lambda net, _: net.weight.tolist()) == [
            [[2.0, 2.0]]
        ]

    def test_other_shape(self):
        with pytest.raises(ValueError, match="shape"):
            SetParamModifier(["weight"], [1.0, 2.0, 3.0]).initialize(nn.Linear(2, 1))
        with pytest.raises(ValueError, match="numbers"):
            SetParamModifier(["weight"], ["a"]).initialize(nn.Linear(2, 1))

    def test_gradually(self):
        modifier = GradualParamModifier(["bias"], [0.0], 1.0, 1, 3, 0.5)
        seen = trace(modifier, 4, lambda net, _: round(float(net.bias.detach()), 6), steps_per_epoch=2)
        assert seen[2:] == [0.0, 0.25, 0.5, 0.75, 1.0, 1.0]


@pytest.mark.parametrize(
    "modifier",
    [
        EpochRangeModifier(0, 3), SetLearningRateModifier(0.1, [0], 2.0),
        SetWeightDecayModifier(0.1, 2.0, [1]),
        LearningRateFunctionModifier("cosine", 0.1, 0.001, 0, 3, param_groups=[0, 1]),
        LearningRateModifier("StepLR", {"step_size": 1.0, "gamma": 0.1}, 0.1, 10, 20),
        TrainableParamsModifier(["re:.*"], True, False), SetParamModifier(["a"], [[0.1, 2]]),
        GradualParamModifier("__ALL__", 0.0, 1.0, 0, 3, 1.0, "cubic"),
    ],
    ids=lambda modifier: type(modifier).__name__,
)  # fmt: skip
def test_text_makes_the_same_modifier(modifier):
    again = Modifier.load_obj(str(modifier))
    assert type(again) is type(modifier)
    assert again.identifier() == modifier.identifier()
