"""Recipes as hooks of the trainer: the same training as in a plain loop, and who sets the learning rate."""

from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from sparsemod.errors import CandidateError, ConfigError
from sparsemod.optim import RecipeHook, ScheduledModifierManager, default_recipe
from sparsemod.train.data import open_data
from sparsemod.train.trainer import TorchTrainer, TrainSettings

SETTINGS = TrainSettings(0.02, 1.0, 1, batch_size=16, epochs=4, seed=3)

RECIPE = """
modifiers:
  - !LearningRateFunctionModifier
      lr_func: linear
      init_lr: 0.02
      final_lr: 0.002
      start_epoch: 0
      end_epoch: 4
  - !GlobalMagnitudePruningModifier
      init_sparsity: 0.1
      final_sparsity: 0.5
      start_epoch: 0.5
      end_epoch: 2
      update_frequency: 0.25
  - !QuantizationModifier
      start_epoch: 3
"""


def data(n, seed):
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(n) % 3
    return open_data(TensorDataset(torch.randn(n, 6, generator=generator) + y.view(-1, 1), y))


TRAIN, VALIDATION = data(96, 0), data(60, 1)
STEPS = TRAIN.n_batches(16)


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 3))


def manager(text=RECIPE):
    return ScheduledModifierManager.from_yaml(text)


def fit(text=RECIPE, hooks=(), settings=SETTINGS):
    net = network()
    result = TorchTrainer().fit(net, TRAIN, VALIDATION, settings, [RecipeHook(manager(text)), *hooks])
    return net, result


def zeros(net):
    weights = [net[0].weight, net[2].weight]
    return sum(int((w == 0).sum()) for w in weights)


class Spy:
    """Looks at the optimizer in every step."""

    def __init__(self):
        self.rates = []
        self.n_optimizers = 0

    def start(self, net, n_steps):
        self.net = net

    def new_optimizer(self, optimizer, steps_per_epoch):
        assert steps_per_epoch == STEPS
        self.optimizer = optimizer
        self.n_optimizers += 1
        return optimizer

    def before_step(self, step):
        pass

    def after_step(self, step):
        self.rates.append(self.optimizer.param_groups[0]["lr"])
        return self.replaces(step)

    def replaces(self, step):
        return False

    def ready(self, step):
        return True


class Replacer(Spy):
    """Puts other parameters in the place of the first layer's in the middle of the training."""

    def replaces(self, step):
        if step != 10:
            return False
        self.net[0] = nn.Linear(6, 12)
        return True


def test_it_is_the_training_of_a_plain_loop_to_the_last_digit():
    net, _ = fit()
    plain = network()
    adam = torch.optim.Adam(plain.parameters(), lr=0.02, fused=True)
    recipe = manager()
    optimizer = recipe.modify(plain, adam, steps_per_epoch=STEPS)
    generator = torch.Generator().manual_seed(3)
    for _ in range(4):
        plain.train()
        for x, y in TRAIN.batches(16, generator):
            optimizer.zero_grad()
            nn.functional.cross_entropy(plain(x), y).backward()
            optimizer.step()
    recipe.finalize(plain)
    assert all(torch.equal(a, b) for a, b in zip(net.parameters(), plain.parameters(), strict=True))
    assert zeros(net) == round(0.5 * (72 + 36))


def test_the_best_epoch_has_the_final_sparsity_and_int8_grids():
    _, result = fit()
    assert [epoch.ready for epoch in result.history] == [False, False, False, True]
    assert result.best_epoch == 4


def test_what_ends_with_the_training_is_done_before_the_last_validation():
    net, result = fit("""
modifiers:
  - !GMPruningModifier
      init_sparsity: 0.0
      final_sparsity: 0.75
      start_epoch: 0
      end_epoch: 4
      update_frequency: 1
      params: __ALL_PRUNABLE__
""")
    assert [epoch.ready for epoch in result.history] == [False, False, False, True]
    assert [int((net[i].weight == 0).sum()) for i in (0, 2)] == [54, 27]


def test_after_the_training_the_network_has_its_own_forward_and_no_masks():
    net, _ = fit()
    assert "forward" not in vars(net)
    with torch.no_grad():
        net[0].weight.fill_(1.0)
    assert torch.equal(net(torch.ones(1, 6)), nn.Sequential.forward(net, torch.ones(1, 6)))


def test_the_recipe_alone_sets_the_learning_rate():
    spy = Spy()
    fit(hooks=[spy])
    n_steps = 4 * STEPS
    assert spy.rates == pytest.approx([0.02 - 0.018 * step / n_steps for step in range(n_steps)])


def test_a_rate_that_was_set_once_stays():
    spy = Spy()
    fit("modifiers:\n  - !SetLearningRateModifier {learning_rate: 0.5, start_epoch: 2}\n", [spy])
    assert spy.rates == [0.02] * (2 * STEPS) + [0.5] * (2 * STEPS)


def test_without_a_modifier_of_it_the_rate_follows_the_settings():
    spy = Spy()
    settings = replace(SETTINGS, learning_gamma=0.5, learning_step=0.012)
    fit("modifiers:\n  - !EpochRangeModifier {start_epoch: 0, end_epoch: 4}\n", [spy], settings)
    assert spy.rates == [0.02 * 0.5 ** (step // 12) for step in range(4 * STEPS)]


def test_a_new_optimizer_goes_on_where_the_recipe_is():
    spy = Replacer()
    fit(
        "modifiers:\n"
        "  - !SetLearningRateModifier {learning_rate: 0.5, start_epoch: 1}\n"
        "  - !SetWeightDecayModifier {weight_decay: 0.25, start_epoch: 1}\n",
        [spy],
    )
    assert spy.n_optimizers == 2
    assert spy.rates == [0.02] * STEPS + [0.5] * (3 * STEPS)
    assert spy.optimizer.param_groups[0]["weight_decay"] == 0.25


def test_the_network_is_its_own_teacher():
    text = """
modifiers:
  - !DistillationModifier {start_epoch: 2, hardness: 1.0, temperature: 2.0}
  - !SetLearningRateModifier {learning_rate: 0.02, start_epoch: 0}
"""
    _, result = fit(text)
    _, plain = fit("modifiers:\n  - !SetLearningRateModifier {learning_rate: 0.02, start_epoch: 0}\n")
    # The task's loss does not count any more, and the pupil is hardly moved off its teacher.
    assert result.history[2].loss < 0.05 < plain.history[2].loss
    assert result.history[1].loss == plain.history[1].loss


def test_a_trainer_that_keeps_its_optimizer_to_itself_is_told():
    hook = RecipeHook(manager())
    hook.start(network(), 10)
    with pytest.raises(ConfigError, match="new_optimizer"):
        hook.ready(0)


def test_a_name_that_the_network_has_not_is_an_error_of_the_recipe():
    with pytest.raises(ConfigError, match="conv9"):
        fit("modifiers:\n  - !ConstantPruningModifier {params: [conv9.weight]}\n")


def test_a_loss_that_is_not_finite_is_found():
    with pytest.raises(CandidateError, match="loss became"):
        fit("modifiers:\n  - !SetParamModifier {params: [0.weight], val: .nan}\n")


ARM = {"learning_rate": 0.02, "learning_gamma": 0.5, "learning_step": 0.007, "prune_threshold": 0.5}


class TestDefaultRecipe:
    def text(self, **changes):
        return default_recipe({**ARM, **changes}, epochs=4, steps_per_epoch=STEPS)

    def test_it_has_the_schedule_of_the_learning_rate_of_an_arm(self):
        spy = Spy()
        fit(self.text(), [spy])
        settings = TrainSettings(0.02, 0.5, 0.007, batch_size=16, epochs=4)
        assert spy.rates == [settings.rate(step) for step in range(4 * STEPS)]

    def test_it_prunes_to_the_threshold_and_trains_on(self):
        net, result = fit(self.text())
        assert zeros(net) == 54
        assert [epoch.ready for epoch in result.history] == [False, False, True, True]

    @pytest.mark.parametrize("threshold", [0, 1, 1.0])
    def test_a_threshold_of_0_or_1_prunes_nothing(self, threshold):
        net, _ = fit(self.text(prune_threshold=threshold))
        assert zeros(net) == 0

    def test_qat_begins_where_it_does_without_a_recipe(self):
        text = default_recipe(ARM, 10, STEPS, qat=True)
        assert [m.start_epoch for m in manager(text).quantization_modifiers] == [7.0]

    def test_variables_are_those_of_an_arm(self):
        values = {"epochs": 20, "steps_per_epoch": 10, "learning_step": 0.1, "prune_threshold": 0.9}
        read = ScheduledModifierManager.from_yaml(self.text(), parametrization=values)
        assert read.max_epochs == 20
        assert read.pruning_modifiers[0].final_sparsity == 0.9
        assert read.learning_rate_modifiers[0].lr_kwargs["step_size"] == 10.0

    def test_a_missing_parameter_is_named(self):
        with pytest.raises(ConfigError, match="learning_gamma"):
            default_recipe({"learning_rate": 0.1, "learning_step": 1}, 4, 6)

    def test_an_arm_that_is_not_pruned_needs_no_threshold(self):
        arm = {name: value for name, value in ARM.items() if name != "prune_threshold"}
        assert "Pruning" not in default_recipe(arm, 4, 6, pruning=False)
