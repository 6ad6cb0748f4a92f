import random
from dataclasses import replace

import evaluate_problem as problem
import numpy as np
import pytest
import torch
from evaluate_problem import PARAMETERS, make_task, sequences
from torch import nn
from torch.utils.data import Dataset

from sparsemod.candidate import Candidate, Resources, Status
from sparsemod.errors import CandidateError, DataError, StoreError
from sparsemod.evaluate import evaluation as module
from sparsemod.evaluate.build import load_weights, rebuild
from sparsemod.evaluate.evaluation import evaluate, predict, test_error
from sparsemod.evaluate.task import Job
from sparsemod.measure.layer_table import load_layers
from sparsemod.train.trainer import FitResult


def make_job(index=0, epochs=2, seed=0, parent_weights=None, **parameters):
    return Job(index, Candidate({**PARAMETERS, **parameters}, 1, "sobol"), epochs, seed, parent_weights)


def same(a, b):
    return a == b and a.weights == b.weights


def test_a_trained_candidate_comes_with_everything_that_is_known_of_it():
    found = evaluate(make_task(pruning="unstructured"), make_job(epochs=3))
    assert found.status is Status.COMPLETED
    assert found.reason == found.details == ""
    assert 0.0 <= found.error < 0.4  # chance is 2/3
    assert 0.0 <= found.float_error < 0.4
    assert isinstance(found.resources, Resources)
    assert found.n_epochs == 3
    assert found.best_epoch == 3  # the first one behind the final sparsity
    assert found.sparsity == 108 / 216  # of 54 + 162 weights
    assert found.test_error is None
    assert found.seconds > 0.0
    weights = load_weights(found.weights)
    assert weights["conv.weight"].shape == (6, 1, 3, 3)
    assert sum(int((weights[name] == 0).sum()) for name in ("conv.weight", "out.weight")) == 108
    layers = load_layers(found.layers, "layers")
    assert [layer.module for layer in layers if layer.n_macs] == ["conv", "out"]
    assert sum(layer.weight_bytes for layer in layers) == found.resources.model_size_bytes


def test_same_job_same_evaluation_to_the_last_bit():
    task = make_task(net=problem.Gambler, pruning="unstructured")
    first = evaluate(task, make_job())
    torch.manual_seed(99)
    random.seed(99)
    np.random.seed(99)  # noqa: NPY002
    assert same(evaluate(make_task(net=problem.Gambler, pruning="unstructured"), make_job()), first)
    assert same(evaluate(task, make_job(index=7)), first)
    assert evaluate(task, make_job(seed=1)).weights != first.weights


def test_the_number_of_threads_of_the_process_does_not_matter():
    first = evaluate(make_task(), make_job())
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        assert same(evaluate(make_task(), make_job()), first)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("fate", ["", "forward", "train"])
def test_an_evaluation_leaves_no_trace_in_the_process(fate):
    state = (torch.get_rng_state(), random.getstate(), np.random.get_state()[1])  # noqa: NPY002
    evaluate(make_task(net=problem.Fate), make_job(fate=fate))
    predict(make_task(), PARAMETERS)
    assert torch.equal(torch.get_rng_state(), state[0])
    assert random.getstate() == state[1]
    assert np.array_equal(np.random.get_state()[1], state[2])  # noqa: NPY002
    assert not torch.are_deterministic_algorithms_enabled()


SHIPPING = [
    make_task(),
    make_task(pruning="unstructured"),
    make_task(pruning="structured"),
    make_task(pruning="unstructured", quant_scheme="qat"),
    make_task(pruning="structured", quant_scheme="qat"),
    make_task(quant_scheme="dynamic", quant_params=(nn.Linear,)),
    make_task(quant_scheme="both", quant_params=(nn.Linear,)),
    make_task(quant_scheme="none"),
    make_task(net=problem.Gambler),
    make_task(net=problem.Lazy),
    make_task(net=problem.Tied, pruning="unstructured"),
    make_task(net=problem.net_by_position),
    sequences(collate_fn=problem.packed),
    sequences(collate_fn=problem.split, splitter=True, pruning="unstructured"),
]


@pytest.mark.parametrize("task", SHIPPING, ids=lambda t: f"{t.net.__name__}-{t.pruning}-{t.quant_scheme}")
def test_stored_weights_have_the_error_of_the_evaluation(task):
    job = make_job(seed=3, max_len=4)
    found = evaluate(task, job)
    assert found.reason == ""
    on_validation = replace(task, test=task.validation, validation=None)
    assert test_error(on_validation, job.candidate, found.weights, job.seed) == found.error


def test_the_test_error_is_measured_on_the_test_set():
    job = make_job()
    task = make_task()
    found = evaluate(task, job)
    one_class = replace(task, test=torch.utils.data.Subset(task.test, range(0, 63, 3)))
    net = rebuild(task, job.candidate.parametrization, found.weights, job.seed)
    with torch.no_grad():
        n_right = int((net(task.test.tensors[0][::3]).argmax(1) == 0).sum())
    assert test_error(one_class, job.candidate, found.weights, job.seed) == pytest.approx(
        1 - n_right / 21, abs=0.1
    )


def test_without_quantization_both_errors_are_one():
    found = evaluate(make_task(quant_scheme="none"), make_job())
    assert found.error == found.float_error


def test_resources_are_those_of_the_trained_network():
    found = evaluate(make_task(net=problem.Lazy, pruning="unstructured"), make_job(prune_threshold=0.75))
    n_nonzero = sum(int(value.count_nonzero()) for value in load_weights(found.weights).values())
    assert found.resources.n_nonzero == n_nonzero


@pytest.mark.parametrize(("threshold", "sparsity"), [(0, 0.0), (1, 0.0), (0.25, 54 / 216)])
def test_the_threshold_is_the_share_of_zeros_and_0_or_1_is_none(threshold, sparsity):
    assert (
        evaluate(make_task(pruning="unstructured"), make_job(prune_threshold=threshold)).sparsity == sparsity
    )


def test_the_threshold_is_not_looked_at_without_pruning():
    assert evaluate(make_task(pruning="none"), make_job(prune_threshold=0.5)).sparsity == 0.0


def test_structured_pruning_makes_the_network_smaller():
    dense, pruned = (evaluate(make_task(pruning=p), make_job()) for p in ("none", "structured"))
    assert load_weights(pruned.weights)["conv.weight"].shape == (3, 1, 3, 3)
    assert pruned.sparsity == 0.5  # 27 + 81 of 216 weights are left
    assert pruned.resources.working_memory_bytes < dense.resources.working_memory_bytes
    assert pruned.resources.model_size_bytes < dense.resources.model_size_bytes
    assert pruned.resources.latency_seconds < dense.resources.latency_seconds


@pytest.mark.parametrize("pruning", ["none", "structured"])
def test_weights_of_a_parent_are_inherited(pruning):
    parent = evaluate(make_task(pruning=pruning), make_job()).weights
    child = evaluate(make_task(), make_job(seed=5, learning_rate=0.0, width=9, parent_weights=parent)).weights
    width = 3 if pruning == "structured" else 6
    assert torch.equal(load_weights(child)["conv.weight"][:width], load_weights(parent)["conv.weight"])


REASONS = {
    "init": "Net.__init__ raised KeyError: 'width_2'",
    "forward": "Net.forward raised RuntimeError: mat1 and mat2 shapes cannot be multiplied",
    "train": "Net.forward raised ZeroDivisionError",
    "memory": "Net.forward ran out of memory: ",
    "memory_python": "Net.forward ran out of memory: MemoryError",
    "nan": "loss became nan at step 1",
    "shape": "Net.forward returned shape (4, 2), expected (4, 3), a logit for each class of 4 samples",
    "tuple": "Net.forward returned tuple, expected (4, 3), a logit for each class of 4 samples",
}


@pytest.mark.parametrize("fate", REASONS)
def test_what_goes_wrong_in_the_users_network_fails_the_arm_in_one_line(fate):
    found = evaluate(make_task(net=problem.Fate), make_job(fate=fate))
    assert found.status is Status.FAILED
    assert found.reason.startswith(REASONS[fate])
    assert "\n" not in found.reason
    assert "Traceback" in found.details
    assert found.error is found.resources is found.weights is None


@pytest.mark.parametrize(
    ("task", "parameters", "reason"),
    [
        (make_task(net=problem.not_a_net), {}, "net must build a torch.nn.Module, got str"),
        (sequences(collate_fn=problem.broken_collate), {}, "collate_fn raised OSError: the disk is gone"),
        (sequences(collate_fn=problem.split, splitter=True), {}, "the parametrization has no max_len"),
        (
            make_task(pruning="unstructured"),
            {"prune_threshold": None},
            "prune_threshold must be a number, got None",
        ),
        (make_task(), {"learning_rate": "high"}, "learning_rate must be a number, got 'high'"),
        (
            sequences(collate_fn=problem.packed, pruning="structured"),
            {},
            "structured pruning needs inputs that are tensors",
        ),
    ],
)
def test_other_failures_of_one_arm(task, parameters, reason):
    found = evaluate(task, make_job(**parameters))
    assert found.status is Status.FAILED
    assert found.reason.startswith(reason)


def test_memory_that_runs_out_outside_the_users_code_fails_the_arm_too(monkeypatch):
    monkeypatch.setattr(module, "measure", lambda *args: torch.empty(10**15))
    found = evaluate(make_task(), make_job())
    assert found.reason.startswith("training ran out of memory: ")


@pytest.mark.parametrize("error", [LookupError("a bug"), RuntimeError("a bug")])
def test_a_bug_is_not_a_failed_arm(monkeypatch, error):
    def broken(*args):
        raise error

    monkeypatch.setattr(module, "measure", broken)
    with pytest.raises(type(error), match="a bug"):
        evaluate(make_task(), make_job())


def test_data_that_no_candidate_can_use_end_the_run():
    with pytest.raises(DataError, match=r"labels must be in \[0, 2\), got 2"):
        evaluate(make_task(classes=2), make_job())


def test_the_cost_is_known_before_training():
    for task in (make_task(), make_task(pruning="structured")):
        assert predict(task, PARAMETERS) == evaluate(task, make_job()).resources


def test_the_number_of_weights_that_stay_is_known_before_training():
    task = make_task(net=problem.Lazy, pruning="unstructured")
    assert predict(task, PARAMETERS).n_nonzero == evaluate(task, make_job()).resources.n_nonzero


def test_a_prediction_needs_neither_validation_nor_test_set_and_is_repeatable():
    task = make_task(validation=None, test=None, pruning="unstructured")
    assert predict(task, PARAMETERS) == predict(task, PARAMETERS)
    assert predict(task, {**PARAMETERS, "width": 12}).n_macs == 2 * predict(task, PARAMETERS).n_macs


@pytest.mark.parametrize("fate", ["init", "forward", "shape"])
def test_a_prediction_fails_as_the_evaluation_would(fate):
    with pytest.raises(CandidateError) as caught:
        predict(make_task(net=problem.Fate), {**PARAMETERS, "fate": fate})
    assert caught.value.reason == REASONS[fate]


class Recorder:
    """A user's trainer."""

    calls = ()

    def __init__(self, device):
        self.device = device

    def fit(self, net, train, validation, settings, hooks):
        type(self).calls += (
            (self.device, settings.epochs, settings.seed, [type(h).__name__ for h in hooks]),
        )
        for hook in hooks:
            hook.start(net, 10)
        for step in range(10):
            for hook in hooks:
                hook.before_step(step)
                hook.after_step(step)
        return FitResult(best_epoch=1, n_epochs=4, validation_accuracy=1.0)


class Refuser(Recorder):
    def fit(self, net, train, validation, settings, hooks):
        raise TimeoutError("no licence")


def test_a_users_trainer_trains():
    found = evaluate(make_task(trainer=Recorder, pruning="unstructured"), make_job(epochs=9, seed=4))
    assert Recorder.calls == (("cpu", 9, 4, ["PruningHook"]),)
    assert (found.n_epochs, found.best_epoch, found.sparsity) == (4, 1, 0.5)
    assert (
        evaluate(make_task(trainer=Refuser), make_job()).reason == "trainer raised TimeoutError: no licence"
    )


class Counting(Dataset):
    def __init__(self):
        self.n_reads = 0

    def __len__(self):
        return 32

    def __getitem__(self, index):
        self.n_reads += 1
        return torch.full((1, 8, 8), float(index % 3)), index % 3


def test_a_data_set_is_read_once_for_all_jobs():
    data = Counting()
    task = make_task(train=data)
    predict(task, PARAMETERS)
    n_reads = data.n_reads
    assert n_reads > 0
    evaluate(task, make_job())
    predict(task, PARAMETERS)
    assert data.n_reads == n_reads


def test_packed_sequences_have_the_shape_of_the_split():
    shapes = []

    def net(parametrization, classes, input_shape):
        shapes.append(input_shape)
        return problem.Recurrent(parametrization, classes, input_shape)

    task = sequences(net=net, collate_fn=problem.packed)
    predict(task, PARAMETERS)
    predict(task, {**PARAMETERS, "max_len": 20})
    assert shapes == [(12, 4), (20, 4)]  # the longest sequence of the first ones; what the arm says


def test_weights_that_are_no_safetensors_are_refused():
    import pickle

    with pytest.raises(StoreError, match="expected weights as safetensors bytes"):
        load_weights(pickle.dumps({"conv.weight": torch.zeros(2)}))


def test_weights_of_another_network_are_refused():
    weights = evaluate(make_task(), make_job()).weights
    with pytest.raises(StoreError, match="the stored weights do not fit"):
        test_error(make_task(net=problem.Lazy), make_job().candidate, weights, 0)
