"""From a trained arm to its integers: the figures that are reported and the file that ships."""

import sys
from dataclasses import replace
from pathlib import Path

import evaluate_problem as problem
import pytest
import torch
from evaluate_problem import PARAMETERS, make_task, sequences
from torch import nn

from sparsemod.candidate import Candidate, Status
from sparsemod.compress.integer import run_integer
from sparsemod.errors import StoreError, UnsupportedOperatorError
from sparsemod.evaluate.build import opened, rebuild
from sparsemod.evaluate.evaluation import evaluate, test_error
from sparsemod.evaluate.scoring import score, stored_integers
from sparsemod.evaluate.shipping import integer_error, shipped, tflite_file
from sparsemod.evaluate.task import Job
from sparsemod.measure.targets import generic

sys.path.insert(0, str(Path(__file__).parents[1] / "export"))

from random_nets import SPACES, random_net


class Dividing(problem.Net):
    def forward(self, x):
        y = super().forward(x)
        return y / (1.0 + y * y)


def make_job(**parameters):
    return Job(0, Candidate({**PARAMETERS, **parameters}, 1, "sobol"), 2, 5)


TASKS = [
    make_task(pruning="unstructured"),
    make_task(pruning="structured", quant_scheme="qat"),
    make_task(net=problem.Tied),
    sequences(collate_fn=problem.split, splitter=True),
]


@pytest.mark.parametrize("task", TASKS, ids=lambda t: f"{t.net.__name__}-{t.pruning}-{t.quant_scheme}")
def test_stored_weights_give_the_file_of_the_evaluation(task):
    job = make_job(max_len=4)
    plain, found = evaluate(task, job), evaluate(replace(task, export=True), job)
    assert (found.error, found.weights) == (plain.error, plain.weights)
    assert plain.tflite is None and plain.resources.file_bytes is None
    assert found.tflite[4:8] == b"TFL3"
    assert found.resources == replace(plain.resources, file_bytes=len(found.tflite))
    quantized = stored_integers(task, job.candidate, found.weights, job.seed)
    assert tflite_file(task, quantized) == found.tflite
    assert b'{"classes":3}' in found.tflite


@pytest.mark.parametrize("task", TASKS, ids=lambda t: f"{t.net.__name__}-{t.pruning}-{t.quant_scheme}")
def test_reported_errors_are_those_of_the_integers(task):
    job = make_job(max_len=4)
    found = evaluate(task, job)
    scored = score(task, job.candidate, found.weights, job.seed)
    parametrization = job.candidate.parametrization
    net = rebuild(task, parametrization, found.weights, job.seed)
    quantized = shipped(task, net, opened(task, "train", parametrization), job.seed)
    for part, error in (("validation", scored.integer_error), ("test", scored.test_error)):
        n_right = n = 0
        for x, y in opened(task, part, parametrization).batches(7):
            n_right += int((run_integer(quantized, x)[0].argmax(1) == y).sum())
            n += len(y)
        assert error == pytest.approx(1 - n_right / n, abs=1e-12)
    assert scored.integer_error == pytest.approx(found.error, abs=0.05)
    assert scored.reason == ""
    assert scored.file_bytes == len(tflite_file(task, quantized))


def test_packed_sequences_are_filled_up_to_the_length_of_the_example():
    task = sequences(collate_fn=problem.packed)
    job = make_job()
    found = evaluate(task, job)
    assert found.status is Status.COMPLETED
    assert 0.0 <= score(task, job.candidate, found.weights, job.seed).integer_error <= 1.0


@pytest.mark.parametrize(
    ("task", "words"),
    [
        (make_task(net=Dividing), "operator div cannot be exported"),
        (make_task(quant_scheme="none"), "only a network that is int8 throughout"),
        (make_task(quant_scheme="dynamic", quant_params=(nn.Linear,)), "int8 throughout"),
        (make_task(quant_scheme="both", quant_params=(nn.Linear,)), "export: operator"),
    ],
    ids=["operator", "none", "dynamic", "both"],
)
def test_what_cannot_be_exported_keeps_the_figure_of_fake_quantization(task, words):
    job = make_job()
    found = evaluate(task, job)
    scored = score(task, job.candidate, found.weights, job.seed)
    assert words in scored.reason and "\n" not in scored.reason
    assert (scored.integer_error, scored.file_bytes) == (None, None)
    assert scored.test_error == test_error(task, job.candidate, found.weights, job.seed)
    with pytest.raises(UnsupportedOperatorError, match=words):
        stored_integers(task, job.candidate, found.weights, job.seed)
    wanted = evaluate(replace(task, export=True), job)
    assert wanted.status is Status.COMPLETED
    assert (wanted.tflite, wanted.error) == (None, found.error)
    assert words in wanted.unexported


def test_weights_of_another_network_are_refused():
    task = make_task()
    found = evaluate(task, make_job())
    with pytest.raises(StoreError):
        score(make_task(net=problem.Tied), make_job().candidate, found.weights, 0)


@pytest.mark.parametrize("space", SPACES)
def test_the_reported_accuracy_is_the_interpreters(space):
    pytest.importorskip("tflite_micro")
    from sparsemod.compress.integer import quantize
    from sparsemod.export.verify import run_interpreter
    from sparsemod.measure.batches import to_memory

    net, samples = random_net(space, 7, 96)
    with torch.no_grad():
        labels = net(samples).argmax(1)
    data = torch.utils.data.TensorDataset(samples, labels)
    classes = net(samples[:1]).shape[1]
    task = make_task(
        net=lambda *_: net, classes=classes, train=data, validation=data, test=data, target=generic(1e6)
    )
    quantized = shipped(task, net, opened(task, "train", {}), 0)
    (source,) = to_memory(quantized.graph, samples)
    stored = quantize(source, quantized.grid(quantized.graph.inputs[0])).numpy()
    (out,) = run_interpreter(quantized, tflite_file(task, quantized), [stored], 2**16).outputs
    n_right = int((torch.from_numpy(out).reshape(len(samples), -1).argmax(1) == labels).sum())
    error = integer_error(task, quantized, opened(task, "validation", {}), 0)
    assert error == pytest.approx(1 - n_right / len(samples), abs=0.001)
