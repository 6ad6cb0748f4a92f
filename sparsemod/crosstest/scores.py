"""What the trainings of a test came to, and their means."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from sparsemod.candidate import Evaluation, Resources

__all__ = [
    "MEASURES",
    "Score",
    "Statistic",
    "balanced_accuracy",
    "mean_deviation",
    "score",
    "summary",
    "summed",
]

Confusion = tuple[tuple[int, ...], ...]

MEASURES = (
    "error",
    "accuracy",
    "balanced_accuracy",
    "float_error",
    "validation_error",
    "model_size_bytes",
    "working_memory_bytes",
    "latency_seconds",
    "n_nonzero",
)


@dataclass(frozen=True, slots=True)
class Score:
    """One training of one arm, and how the net that would ship does on the test samples.

    Attributes:
        arm: Its name.
        seed, fold: Which repetition and which fold, from 0.
        subjects: The groups that were tested.
        n_train, n_validation, n_test: Samples of each part.
        n_scored: Test samples behind the collate function, which may cut one to several.
        error, accuracy: Of these; they add up to 1.
        balanced_accuracy: Mean over the classes among them of the share that is found.
        validation_error: On the validation samples.
        float_error: On these, before quantization.
        best_epoch, n_epochs: The epoch that was taken, from 1, and how many there were.
        sparsity: Share of the prunable weights that are zero.
        resources: Of the net.
        seconds: Wall time.
        confusion: Samples by class (rows) and by the class they were taken for (columns).
    """

    arm: str
    seed: int
    fold: int
    subjects: tuple[str, ...]
    n_train: int
    n_validation: int
    n_test: int
    n_scored: int
    error: float
    accuracy: float
    balanced_accuracy: float
    validation_error: float
    float_error: float | None
    best_epoch: int
    n_epochs: int
    sparsity: float
    resources: Resources
    seconds: float
    confusion: Confusion

    def measure(self, name: str) -> float | None:
        """Return one of `MEASURES`; None where it is not known."""
        found = getattr(self, name) if hasattr(self, name) else getattr(self.resources, name)
        return None if found is None or math.isnan(found) else float(found)

    def as_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Score:
        """Rebuild from `as_dict`.

        Raises:
            KeyError, TypeError: It is none.
        """
        plain = {f.name: values[f.name] for f in fields(cls)}
        return cls(
            **{
                **plain,
                "subjects": tuple(map(str, values["subjects"])),
                "resources": Resources.from_dict(values["resources"]),
                "confusion": tuple(tuple(int(n) for n in row) for row in values["confusion"]),
            }
        )


@dataclass(frozen=True, slots=True)
class Statistic:
    """Mean of a measure over trainings, and its sample standard deviation (n - 1), None for a single one."""

    mean: float
    deviation: float | None
    lowest: float
    highest: float
    n: int


def balanced_accuracy(confusion: Confusion) -> float:
    """Return the mean, over the classes that have samples, of the share that is found.

    Example:
        >>> balanced_accuracy(((8, 2), (1, 1)))
        0.65
    """
    shares = [row[k] / sum(row) for k, row in enumerate(confusion) if sum(row)]
    return sum(shares) / len(shares) if shares else math.nan


def summed(confusions: Sequence[Confusion]) -> Confusion:
    """Add confusion matrices.

    Example:
        >>> summed([((1, 0), (2, 3)), ((4, 1), (0, 0))])
        ((5, 1), (2, 3))
    """
    return tuple(tuple(map(sum, zip(*rows, strict=True))) for rows in zip(*confusions, strict=True))


def mean_deviation(values: Sequence[float]) -> Statistic:
    """Return the statistic of values, of which there must be one or more.

    Example:
        >>> mean_deviation([1.0, 2.0, 3.0])
        Statistic(mean=2.0, deviation=1.0, lowest=1.0, highest=3.0, n=3)
    """
    n, mean = len(values), math.fsum(values) / len(values)
    spread = math.fsum((v - mean) ** 2 for v in values)
    return Statistic(mean, math.sqrt(spread / (n - 1)) if n > 1 else None, min(values), max(values), n)


def summary(scores: Sequence[Score]) -> dict[str, Statistic]:
    """Return the statistic of every measure over trainings, each of which counts the same."""
    found = {name: [v for s in scores if (v := s.measure(name)) is not None] for name in MEASURES}
    return {name: mean_deviation(values) for name, values in found.items() if values}


def score(
    arm: str, seed: int, fold: int, subjects: tuple[str, ...], sizes: tuple[int, int, int], done: Evaluation
) -> Score:
    """Make the score of a completed evaluation of a split.

    Raises:
        ValueError: It lacks what a completed one has.
    """
    if done.error is None or done.test_error is None or done.resources is None or done.confusion is None:
        raise ValueError("expected a completed evaluation of a split")
    return Score(
        arm=arm,
        seed=seed,
        fold=fold,
        subjects=subjects,
        n_train=sizes[0],
        n_validation=sizes[1],
        n_test=sizes[2],
        n_scored=sum(map(sum, done.confusion)),
        error=done.test_error,
        accuracy=1.0 - done.test_error,
        balanced_accuracy=balanced_accuracy(done.confusion),
        validation_error=done.error,
        float_error=done.float_error,
        best_epoch=done.best_epoch,
        n_epochs=done.n_epochs,
        sparsity=done.sparsity,
        resources=done.resources,
        seconds=done.seconds,
        confusion=done.confusion,
    )
