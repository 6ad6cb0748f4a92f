"""Recipes at work: the life of modifiers, the wrapped optimizer, state, one shot."""

import math

import pytest
import torch
from torch import nn

from sparsemod.compress.recipe import (
    EpochRangeModifier,
    GMPruningModifier,
    LifecycleError,
    Modifier,
    ScheduledModifier,
    ScheduledModifierManager,
    ScheduledUpdateModifier,
    SetLearningRateModifier,
)


class Recorder(ScheduledUpdateModifier):
    """Notes what is called when."""

    def __init__(self, start=-1.0, end=-1.0, frequency=-1.0, log=None, name=""):
        super().__init__(start_epoch=start, end_epoch=end, end_comparator=-1, update_frequency=frequency)
        self.log = [] if log is None else log
        self.name = name

    def update(self, module, optimizer, epoch, steps_per_epoch):
        super().update(module, optimizer, epoch, steps_per_epoch)
        self.log.append((self.name + "update", epoch))

    def loss_update(self, loss, module, optimizer, epoch, steps_per_epoch, **kwargs):
        return super().loss_update(loss, module, optimizer, epoch, steps_per_epoch, **kwargs) * 2

    def optimizer_pre_step(self, module, optimizer, epoch, steps_per_epoch):
        super().optimizer_pre_step(module, optimizer, epoch, steps_per_epoch)
        self.log.append((self.name + "pre", epoch))

    def optimizer_post_step(self, module, optimizer, epoch, steps_per_epoch):
        super().optimizer_post_step(module, optimizer, epoch, steps_per_epoch)
        self.log.append((self.name + "post", epoch))


class Once(ScheduledModifier):
    """A start and an end."""

    def __init__(self, start=-1.0, end=-1.0):
        super().__init__(start_epoch=start, end_epoch=end, end_comparator=-1)
        self.updates = []

    def update(self, module, optimizer, epoch, steps_per_epoch):
        super().update(module, optimizer, epoch, steps_per_epoch)
        self.updates.append(epoch)


@pytest.fixture
def net():
    return nn.Linear(2, 1, bias=False)


@pytest.fixture
def sgd(net):
    return torch.optim.SGD(net.parameters(), lr=0.1)


def updates_of(modifier, epochs, net):
    modifier.initialize(net)
    done = []
    for epoch in epochs:
        if modifier.update_ready(epoch, 1):
            modifier.scheduled_update(net, None, epoch, 1)
            done.append(epoch)
    return done


class TestLife:
    def test_nothing_before_initialize(self, net, sgd):
        modifier = Once()
        for call in (
            lambda: modifier.update(net, sgd, 0, 1),
            lambda: modifier.update_ready(0, 1),
            lambda: modifier.scheduled_update(net, sgd, 0, 1),
            lambda: modifier.loss_update(torch.tensor(1.0), net, sgd, 0, 1),
            lambda: modifier.optimizer_pre_step(net, sgd, 0, 1),
            lambda: modifier.optimizer_post_step(net, sgd, 0, 1),
            lambda: modifier.start_pending(0, 1),
            lambda: modifier.finalize(net),
        ):
            with pytest.raises(RuntimeError, match="initialized first"):
                call()

    def test_update_is_not_called_directly(self, net, sgd):
        modifier = Once()
        modifier.initialize(net)
        with pytest.raises(RuntimeError, match="scheduled_update"):
            modifier.update(net, sgd, 0, 1)

    def test_update_that_is_not_due(self, net, sgd):
        modifier = Once(start=5)
        modifier.initialize(net)
        with pytest.raises(RuntimeError, match="no update due"):
            modifier.scheduled_update(net, sgd, 4, 1)

    def test_disabled(self, net, sgd):
        modifier = Once()
        modifier.initialize(net)
        modifier.enabled = False
        assert not modifier.update_ready(0, 1)
        with pytest.raises(RuntimeError, match="not enabled"):
            modifier.optimizer_post_step(net, sgd, 0, 1)

    def test_flags(self, net):
        modifier = Once(start=1, end=2)
        modifier.initialize(net)
        assert modifier.initialized
        seen = []
        for epoch in (0, 1, 1.5, 2, 3):
            if modifier.update_ready(epoch, 1):
                modifier.scheduled_update(net, None, epoch, 1)
            seen.append((modifier.started, modifier.ended))
        assert seen == [(False, False), (True, False), (True, False), (True, True), (True, True)]
        modifier.finalize(net)
        assert not modifier.initialized
        modifier.initialize(net)
        assert not modifier.started

    @pytest.mark.parametrize(
        ("span", "expected"),
        [
            ((-1, -1), [0]),
            ((0, -1), [0]),
            ((2, -1), [2]),
            ((2, 4), [2, 4]),
            ((2.5, 3.5), [3, 4]),
            ((2, 2), [2, 3]),
        ],
    )
    def test_starts_and_ends_once(self, net, span, expected):
        assert updates_of(Once(*span), range(8), net) == expected

    @pytest.mark.parametrize(
        ("frequency", "expected"),
        [(-1, [1, 1.5, 2, 2.5, 3]), (1, [1, 2, 3]), (0.75, [1, 2, 3]), (5, [1, 3])],
    )
    def test_updates_in_between(self, net, frequency, expected):
        times = [0.5 * i for i in range(10)]
        assert updates_of(Recorder(1, 3, frequency), times, net) == expected

    def test_rounding_of_epochs_costs_no_update(self, net):
        times = [step / 10 for step in range(40)]
        assert updates_of(Recorder(0, -1, 0.1), times, net) == times

    def test_time_that_is_missed_is_made_up_for(self, net):
        assert updates_of(Once(start=2, end=4), [0, 7, 8], net) == [7, 8]

    def test_plain_modifier(self, net, sgd):
        modifier = Modifier()
        modifier.initialize(net)
        modifier.update(net, sgd, 0, 1)
        assert not modifier.update_ready(0, 1)
        assert modifier.state_dict() == {}
        with pytest.raises(IndexError):
            modifier.load_state_dict({"a": 1})
        modifier.finalize(net)

    def test_cannot_be_rescheduled_while_initialized(self, net):
        modifier = Once(start=1)
        modifier.initialize(net)
        with pytest.raises(AttributeError):
            modifier.start_epoch = 3


class TestWrappedOptimizer:
    def test_order_of_a_step(self, net):
        log = []

        class Optimizer(torch.optim.SGD):
            def step(self, closure=None):
                log.append(("step", None))
                return super().step(closure)

        manager = ScheduledModifierManager(
            [Recorder(0, 2, log=log, name="a "), Recorder(0, 1, log=log, name="b ")]
        )
        wrapped = manager.modify(net, Optimizer(net.parameters(), lr=0.1), steps_per_epoch=2)
        wrapped.step()
        assert [what for what, _ in log] == [
            "b update", "a update", "b pre", "a pre", "step", "b post", "a post",
        ]  # fmt: skip

    def test_time(self, net, sgd):
        recorder = Recorder(0)
        wrapped = ScheduledModifierManager([recorder]).modify(net, sgd, steps_per_epoch=4)
        for _ in range(6):
            wrapped.step()
        assert [epoch for what, epoch in recorder.log if what == "pre"] == [0, 0.25, 0.5, 0.75, 1, 1.25]
        assert (wrapped.wrapped_steps, wrapped.wrapped_epoch) == (6, 1.5)

    def test_start_in_the_middle(self, net, sgd):
        recorder = Recorder(0)
        wrapped = ScheduledModifierManager([recorder]).modify(net, sgd, steps_per_epoch=4, epoch=2.5)
        wrapped.step()
        assert recorder.log[0] == ("update", 2.5)

    @pytest.mark.parametrize("steps", [0, -1])
    def test_steps_per_epoch_must_be_positive(self, net, sgd, steps):
        with pytest.raises(ValueError, match="steps_per_epoch"):
            ScheduledModifierManager([]).modify(net, sgd, steps_per_epoch=steps)

    def test_what_has_no_step(self, net, sgd):
        with pytest.raises(ValueError, match="step"):
            ScheduledModifierManager([]).modify(net, sgd, 1, wrap_optim=object())

    def test_emulated_step_advances_time_only(self, net, sgd):
        recorder = Recorder(0)
        wrapped = ScheduledModifierManager([recorder]).modify(net, sgd, steps_per_epoch=2)
        net.weight.grad = torch.ones_like(net.weight)
        before = net.weight.clone()
        wrapped.emulated_step()
        assert torch.equal(net.weight, before)
        assert wrapped.wrapped_epoch == 0.5

    def test_stands_in_for_the_optimizer(self, net, sgd):
        wrapped = ScheduledModifierManager([]).modify(net, sgd, steps_per_epoch=2)
        assert wrapped.param_groups is sgd.param_groups
        assert wrapped.wrapped is wrapped.wrapped_optimizer is sgd
        assert wrapped.wrapped_module is net
        wrapped.zero_grad()
        wrapped.note = 3
        assert sgd.note == 3
        assert wrapped.step(lambda: torch.tensor(7.0)) == 7.0
        with pytest.raises(AttributeError):
            wrapped.no_such_thing

    def test_wraps_a_scaler(self, net, sgd):
        class Scaler:
            def step(self, optimizer):
                return optimizer.step

        wrapped = ScheduledModifierManager([]).modify(net, sgd, 2, wrap_optim=Scaler())
        assert wrapped.step(sgd) == sgd.step

    def test_loss_update_chains(self, net, sgd):
        manager = ScheduledModifierManager([Recorder(), Recorder(start=3), EpochRangeModifier(0, 1)])
        wrapped = manager.modify(net, sgd, steps_per_epoch=2)
        assert wrapped.loss_update(torch.tensor(1.5)) == 6.0

    def test_disabled_manager_only_counts(self, net, sgd):
        recorder = Recorder(0)
        manager = ScheduledModifierManager([recorder])
        wrapped = manager.modify(net, sgd, steps_per_epoch=2)
        manager.enabled = False
        wrapped.step()
        assert recorder.log == []
        assert wrapped.loss_update(torch.tensor(1.5)) == 1.5
        assert wrapped.wrapped_steps == 1

    def test_disabled_modifier_is_passed_over(self, net, sgd):
        recorder, other = Recorder(0), Recorder(0, 5)
        wrapped = ScheduledModifierManager([recorder, other]).modify(net, sgd, steps_per_epoch=2)
        recorder.enabled = False
        wrapped.step()
        assert recorder.log == []
        assert len(other.log) == 3

    def test_uninitialized_manager(self, net, sgd):
        manager = ScheduledModifierManager([Recorder()])
        for call in (
            lambda: manager.update(net, sgd, 0, 1),
            lambda: manager.finalize(net),
            lambda: manager.loss_update(torch.tensor(1.0), net, sgd, 0, 1),
        ):
            with pytest.raises(LifecycleError):
                call()

    def test_finalize_detaches_all(self, net, sgd):
        manager = ScheduledModifierManager({"a": [Recorder()], "b": [Once()]})
        manager.modify(net, sgd, 1)
        assert all(modifier.initialized for modifier in manager.iter_modifiers())
        manager.finalize(net)
        assert not manager.initialized
        assert not any(modifier.initialized for modifier in manager.iter_modifiers())


def pruning(start=0, end=2, final=0.5, **options):
    return GMPruningModifier(0.0, final, start, end, 1, "__ALL_PRUNABLE__", **options)


class TestOneShot:
    def test_applies_the_end_of_the_recipe(self):
        net = nn.Linear(10, 10)
        manager = ScheduledModifierManager(
            [EpochRangeModifier(0, 5), SetLearningRateModifier(0.1), pruning()]
        )
        manager.apply(net)
        assert int((net.weight == 0).sum()) == 50
        assert not manager.initialized

    def test_by_an_epoch(self):
        net = nn.Linear(10, 10)
        ScheduledModifierManager([pruning(end=2, inter_func="linear")]).apply(net, epoch=1)
        assert int((net.weight == 0).sum()) == 25

    def test_stage_by_stage(self):
        net = nn.Linear(10, 10)
        ScheduledModifierManager({"a": [pruning(0, 2, 0.5)], "b": [pruning(2, 4, 0.75)]}).apply(net)
        assert int((net.weight == 0).sum()) == 75

    def test_without_finalizing_the_masks_go_on(self):
        net = nn.Linear(10, 10)
        manager = ScheduledModifierManager([pruning()])
        manager.apply(net, finalize=False)
        assert manager.initialized
        optimizer = manager.modify(net, torch.optim.SGD(net.parameters(), 0.1), 1, epoch=2.0)
        net(torch.ones(1, 10)).sum().backward()
        optimizer.step()
        assert int((net.weight == 0).sum()) == 50

    def test_single_modifier(self):
        net = nn.Linear(10, 10)
        modifier = pruning()
        modifier.apply(net)
        assert int((net.weight == 0).sum()) == 50
        assert math.isclose(modifier.applied_sparsity, 0.0)


class TestState:
    def trained(self, manager, n_steps=3):
        torch.manual_seed(0)
        net = nn.Linear(10, 10)
        optimizer = manager.modify(net, torch.optim.SGD(net.parameters(), 0.1), steps_per_epoch=1)
        for _ in range(n_steps):
            optimizer.step()
        return net

    @pytest.mark.parametrize("staged", [False, True])
    def test_masks_survive(self, staged):
        def make():
            return ScheduledModifierManager(
                {"a": [pruning()]} if staged else [pruning(), EpochRangeModifier(0, 5)]
            )

        manager = make()
        net = self.trained(manager)
        state = manager.state_dict()
        again = make()
        fresh = nn.Linear(10, 10)
        again.initialize(fresh, epoch=3)
        again.load_state_dict(state)
        assert torch.equal(fresh.weight == 0, net.weight == 0)
        assert again.pruning_modifiers[0].masks.keys() == {"weight"}

    def test_keys(self):
        manager = ScheduledModifierManager([pruning(), EpochRangeModifier(0, 5)])
        assert set(manager.state_dict()) == {modifier.identifier() for modifier in manager.modifiers}
        staged = ScheduledModifierManager({"a": [pruning()]})
        assert set(staged.state_dict()["a"]) == {pruning().identifier()}

    def test_strict(self):
        manager = ScheduledModifierManager([pruning()])
        self.trained(manager)
        state = manager.state_dict()
        key = pruning().identifier()
        for wrong in (
            {},
            {**state, "more": {}},
            {key: {"other": state[key]["weight"]}},
            {key: {"weight": torch.ones(2)}},
        ):
            with pytest.raises(IndexError):
                manager.load_state_dict(wrong)
        manager.load_state_dict({}, strict=False)
        staged = ScheduledModifierManager({"a": [pruning()]})
        staged.initialize(nn.Linear(10, 10))
        with pytest.raises(IndexError, match="stages"):
            staged.load_state_dict({"b": {}})

    def test_needs_a_network(self):
        with pytest.raises(RuntimeError):
            pruning().load_state_dict({"weight": torch.ones(10, 10)})
