"""The evaluation of a candidate on one split of the data: the search's own, and then the test samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.utils.data import ConcatDataset, Subset, TensorDataset

from sparsemod.candidate import Evaluation, Status
from sparsemod.errors import CandidateError
from sparsemod.evaluate.evaluation import evaluate, test_confusion
from sparsemod.evaluate.task import Job, Task

__all__ = ["evaluate_split", "joined"]


def joined(datasets: Sequence[Any]) -> Any:
    """Put data sets one behind the other; those of tensors stay one, so that they are read as one."""
    if all(isinstance(d, TensorDataset) and len(d.tensors) == 2 for d in datasets):
        parts = list(zip(*(d.tensors for d in datasets), strict=True))
        if all(len({(t.dtype, t.shape[1:]) for t in part}) == 1 for part in parts):
            return TensorDataset(*(torch.cat(part) for part in parts))
    return ConcatDataset(datasets)


def evaluate_split(task: Task, job: Job) -> Evaluation:
    """Train and measure the job's candidate on its split, then score the test samples of the split.

    Args:
        task: Its training set holds all samples.
        job: With a split.

    Returns:
        As `evaluate`, with the test error and the confusion matrix and without the weights.
    """
    split = job.split
    if split is None:
        raise ValueError("a job of a cross test needs a split")
    own = replace(
        task,
        train=Subset(task.train, split.train.tolist()),
        validation=Subset(task.train, split.validation.tolist()),
        test=Subset(task.train, split.test.tolist()),
    )
    evaluation = evaluate(own, job)
    if evaluation.status is not Status.COMPLETED or evaluation.weights is None:
        return evaluation
    try:
        counts = test_confusion(own, job.candidate, evaluation.weights, job.seed)
    except CandidateError as error:
        return Evaluation(Status.FAILED, f"the test samples: {error.reason}", details=error.details)
    n_samples = sum(map(sum, counts))
    right = sum(row[k] for k, row in enumerate(counts))
    test_error = 1.0 - right / n_samples if n_samples else None
    return replace(evaluation, test_error=test_error, confusion=counts, weights=None)
