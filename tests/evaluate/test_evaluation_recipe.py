"""Arms that train by a recipe: what it takes over, what it leaves, and what becomes of a wrong one."""

import pickle

import pytest
from evaluate_problem import PARAMETERS, make_task, packed, sequences

from sparsemod.candidate import Candidate, Status
from sparsemod.errors import CandidateError, ConfigError
from sparsemod.evaluate.evaluation import Job, evaluate, predict, test_error
from sparsemod.train.trainer import TorchTrainer

SEARCHABLE = """
epochs: 10
modifiers:
  - !LearningRateFunctionModifier
      lr_func: eval(schedule)
      init_lr: eval(learning_rate)
      final_lr: eval(learning_rate * decay)
      start_epoch: 0
      end_epoch: eval(epochs)
  - !GlobalMagnitudePruningModifier
      init_sparsity: 0.0
      final_sparsity: eval(prune_threshold)
      start_epoch: 0
      end_epoch: eval(epochs * pruned_by)
      update_frequency: eval(1 / steps_per_epoch)
"""
ARM = {**PARAMETERS, "schedule": "cosine", "decay": 0.1, "pruned_by": 0.5}
PRUNING_30 = """
modifiers:
  - !GMPruningModifier
      {init_sparsity: 0, final_sparsity: 0.3, start_epoch: 0, end_epoch: 1, update_frequency: 0.5,
       params: __ALL_PRUNABLE__}
"""
RATE = "modifiers:\n  - !SetLearningRateModifier {learning_rate: 0.01, start_epoch: 0}\n"
QAT = "modifiers:\n  - !QuantizationModifier {start_epoch: 1}\n"


def run(recipe, parameters=PARAMETERS, epochs=3, make=make_task, **changes):
    task = make(recipe=recipe, **changes)
    return evaluate(task, Job(0, Candidate(dict(parameters), stage=1, origin="sobol"), epochs, seed=5))


SEEN = []


class Watching(TorchTrainer):
    """Keeps what it was given."""

    def fit(self, net, train, validation, settings, hooks=()):
        SEEN.append((settings, [type(hook).__name__ for hook in hooks]))
        return super().fit(net, train, validation, settings, hooks)


class Bare:
    """A trainer from before there were recipes."""

    def __init__(self, device):
        pass

    def fit(self, net, train, validation, settings, hooks=()):
        for hook in hooks:
            hook.start(net, 1)
            hook.ready(0)


def hooks_of(recipe, **changes):
    SEEN.clear()
    assert run(recipe, trainer=Watching, **changes).status is Status.COMPLETED
    return SEEN[0]


def test_a_schedule_is_searchable():
    result = run(SEARCHABLE, ARM, epochs=4)
    assert result.status is Status.COMPLETED, result.reason
    assert result.sparsity == pytest.approx(0.5, abs=0.01)
    assert result.best_epoch in (3, 4)
    other = run(SEARCHABLE, {**ARM, "schedule": "linear", "pruned_by": 1.0}, epochs=4)
    assert other.best_epoch == 4
    assert other.weights != result.weights


def test_the_same_job_gives_the_same_result_to_the_last_digit():
    results = [run(SEARCHABLE, ARM) for _ in range(2)]
    assert results[0].weights == results[1].weights
    assert results[0].error == results[1].error


def test_a_task_with_a_recipe_can_be_sent_to_a_worker():
    task = pickle.loads(pickle.dumps(make_task(recipe=SEARCHABLE)))
    assert task.recipe == SEARCHABLE


class TestWhatARecipeTakesOver:
    def test_pruning(self):
        settings, hooks = hooks_of(PRUNING_30, pruning="unstructured", quant_scheme="qat")
        assert hooks == ["RecipeHook", "QATHook"]
        assert settings.learning_gamma == 0.5
        assert run(PRUNING_30, pruning="unstructured").sparsity == pytest.approx(0.3, abs=0.01)

    def test_pruning_where_the_configuration_has_none(self):
        assert run(PRUNING_30).sparsity == pytest.approx(0.3, abs=0.01)

    def test_the_learning_rate(self):
        settings, hooks = hooks_of(RATE, pruning="unstructured")
        assert hooks == ["RecipeHook", "PruningHook"]
        assert (settings.learning_rate, settings.learning_gamma) == (0.02, 1.0)

    def test_quantization(self):
        _, hooks = hooks_of(QAT, pruning="structured", quant_scheme="qat")
        assert hooks == ["RecipeHook", "StructuredPruningHook"]

    def test_nothing_without_a_recipe(self):
        settings, hooks = hooks_of(None, pruning="unstructured", quant_scheme="qat")
        assert hooks == ["PruningHook", "QATHook"]
        assert settings.learning_gamma == 0.5


def test_the_network_that_ships_has_the_recipes_zeros_and_can_be_rebuilt():
    task = make_task(recipe=PRUNING_30 + "  - !QuantizationModifier {start_epoch: 1}\n")
    candidate = Candidate(dict(PARAMETERS), stage=1, origin="sobol")
    result = evaluate(task, Job(0, candidate, 3, seed=5))
    assert result.sparsity == pytest.approx(0.3, abs=0.01)
    assert result.resources.n_nonzero == predict(task, PARAMETERS, epochs=3).n_nonzero
    assert 0.0 <= test_error(task, candidate, result.weights, 5) <= 1.0


def test_thinned_networks_are_predicted_exactly_and_can_be_rebuilt():
    recipe = """
modifiers:
  - !StructuredPruningModifier
      {init_sparsity: 0, final_sparsity: 0.5, start_epoch: 0, end_epoch: 1, update_frequency: 0.5,
       params: [conv.weight]}
  - !LayerThinningModifier
      start_epoch: 2
      param_group_dependency_map: {conv.weight: [norm.weight, out.weight]}
"""
    task = make_task(recipe=recipe)
    candidate = Candidate(dict(PARAMETERS), stage=1, origin="sobol")
    result = evaluate(task, Job(0, candidate, 4, seed=5))
    assert result.status is Status.COMPLETED, result.reason
    assert result.best_epoch in (3, 4)
    assert result.resources == predict(task, PARAMETERS, epochs=4)
    assert result.resources.n_macs * 2 == predict(make_task(), PARAMETERS).n_macs
    assert 0.0 <= test_error(task, candidate, result.weights, 5) <= 1.0


def test_recurrent_networks_train_by_a_recipe():
    distill = "  - !DistillationModifier {start_epoch: 1}\n  - !QuantizationModifier {start_epoch: 2}\n"
    result = run(PRUNING_30 + distill, make=sequences, collate_fn=packed)
    assert result.status is Status.COMPLETED, result.reason
    assert result.sparsity == pytest.approx(0.3, abs=0.01)


@pytest.mark.parametrize(
    ("recipe", "words"),
    [
        ("modifiers:\n  - !ConstantPruningModifier {params: [conv7.weight]}\n", "conv7"),
        ("modifiers:\n  - !SetLearningRateModifier {learning_rate: eval(rate)}\n", "unknown variable 'rate'"),
        ("modifiers:\n  - !SetLearningRateModifier {learning_rate: eval(width)}\n", "learning_rate"),
        ("modifiers:\n  - !EpochRangeModifier {start_epoch: 0, end_epoch: eval(width)}\n", "training has 3"),
        ("modifiers:\n  - !QuantizationModifier {start_epoch: 3}\n", "are over"),
        ("modifiers:\n  - !LayerPruningModifier {layers: [drop]}\n", "end_epoch"),
        (
            "modifiers:\n  - !LayerThinningModifier\n      start_epoch: 0\n      update_epochs: [1, 7]\n"
            "      param_group_dependency_map: {conv.weight: [norm.weight, out.weight]}\n",
            "epoch 7",
        ),
    ],
)
def test_a_recipe_that_does_not_fit_costs_the_arm(recipe, words):
    result = run(recipe)
    assert result.status is Status.FAILED
    assert result.reason.startswith("recipe: ")
    assert words in result.reason
    assert "\n" not in result.reason
    with pytest.raises(CandidateError, match="recipe: "):
        predict(make_task(recipe=recipe), PARAMETERS, epochs=3)


def test_a_trainer_that_knows_no_recipes_ends_the_run():
    with pytest.raises(ConfigError, match="new_optimizer"):
        run(RATE, trainer=Bare)
