"""What is reported of an arm on the front, from its stored weights: figures of the integers that ship."""

from __future__ import annotations

from dataclasses import dataclass

from sparsemod.candidate import Candidate
from sparsemod.compress.quantized_graph import QuantizedGraph
from sparsemod.errors import CandidateError
from sparsemod.evaluate.build import opened, rebuild
from sparsemod.evaluate.evaluation import test_error
from sparsemod.evaluate.reproducible import memory_guard
from sparsemod.evaluate.shipping import integer_error, shipped, tflite_file
from sparsemod.evaluate.task import Task

__all__ = ["Score", "score", "stored_integers"]


@dataclass(frozen=True, slots=True)
class Score:
    """Figures of one arm.

    Attributes:
        test_error: 1 - test accuracy; of the integer simulation where `integer_error` is given.
        integer_error: 1 - validation accuracy of the integer simulation, or None.
        file_bytes: Size of the `.tflite` file, or None.
        reason: Why there is no integer simulation, in one line; empty where there is one.
    """

    test_error: float
    integer_error: float | None = None
    file_bytes: int | None = None
    reason: str = ""


def stored_integers(task: Task, candidate: Candidate, weights: bytes, seed: int) -> QuantizedGraph:
    """Return the integers of an arm from its stored weights; the same that its evaluation had.

    Args:
        task: The task it was evaluated under.
        candidate: What was evaluated.
        weights: The `Evaluation`'s weights.
        seed: The job's.

    Raises:
        UnsupportedOperatorError: It cannot be exported.
        CandidateError: The user's code raised.
        StoreError: The weights are unreadable or belong to another network.
    """
    parametrization = candidate.parametrization
    with memory_guard("the network"):
        net = rebuild(task, parametrization, weights, seed)
        return shipped(task, net, opened(task, "train", parametrization), seed)


def score(task: Task, candidate: Candidate, weights: bytes, seed: int) -> Score:
    """Measure an arm by the integer simulation, or by fake quantization where it cannot be exported.

    Args:
        task: The task it was evaluated under.
        candidate: What was evaluated.
        weights: The `Evaluation`'s weights.
        seed: The job's.

    Raises:
        CandidateError: The user's code raised.
        StoreError: The weights are unreadable or belong to another network.
    """
    parametrization = candidate.parametrization
    try:
        quantized = stored_integers(task, candidate, weights, seed)
    except CandidateError as error:
        return Score(test_error(task, candidate, weights, seed), reason=error.reason)
    with memory_guard("the network"):
        validation, test = opened(task, "validation", parametrization), opened(task, "test", parametrization)
        return Score(
            test_error=integer_error(task, quantized, test, seed),
            integer_error=integer_error(task, quantized, validation, seed),
            file_bytes=len(tflite_file(task, quantized)),
        )
