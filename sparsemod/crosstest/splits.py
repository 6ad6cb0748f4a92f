"""Cross splits: which samples train, choose the best epoch and test, by scikit-learn's splitters.

Where there are groups (subjects), every split keeps them whole: none is in two of training, validation and
test.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import (
    GroupKFold,
    GroupShuffleSplit,
    KFold,
    LeaveOneGroupOut,
    ShuffleSplit,
    StratifiedGroupKFold,
    StratifiedKFold,
    StratifiedShuffleSplit,
)

from sparsemod.errors import DataError
from sparsemod.evaluate.task import Split

__all__ = ["NumberedSplit", "Plan", "group_order", "make_splits"]

Indices = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Plan:
    """How to split.

    Attributes:
        split: ``loso``, ``kfold``, ``stratified`` or ``groups``.
        n_splits: Folds; ``loso`` has one a group.
        seeds: How often all of it is done.
        validation: Share of what is not tested (of its groups where there are any) that chooses the epoch.
        seed: The same seed gives the same splits.
    """

    split: str
    n_splits: int = 5
    seeds: int = 1
    validation: float = 0.2
    seed: int = 0


@dataclass(frozen=True, slots=True)
class NumberedSplit:
    """One split and its place.

    Attributes:
        seed, fold: Which repetition and which fold of it, from 0.
        split: The samples.
        subjects: The groups that are tested; empty without groups.
    """

    seed: int
    fold: int
    split: Split
    subjects: tuple[str, ...]


def group_order(groups: Sequence[str]) -> list[str]:
    """Return the different groups, numbers by value and texts by alphabet.

    Example:
        >>> group_order(["10", "9", "10"]), group_order(["b", "a"])
        (['9', '10'], ['a', 'b'])
    """
    names = set(groups)
    try:
        return sorted(names, key=int)
    except ValueError:
        return sorted(names)


def make_splits(
    plan: Plan, n_samples: int, groups: Sequence[str] | None = None, labels: Sequence[int] | None = None
) -> list[NumberedSplit]:
    """Return all splits of a plan, the folds of the first repetition first.

    Args:
        plan: How.
        n_samples: How many there are.
        groups: The group of each sample. ``loso`` and ``groups`` need them; with them ``kfold`` makes folds
            of whole groups, and ``stratified`` such whose classes are as alike as that allows.
        labels: The class of each sample, for ``stratified``.

    Raises:
        DataError: There are no groups or labels where they are needed, or too few for this plan.
    """
    if plan.split in ("loso", "groups") and groups is None:
        raise DataError(f"split = {plan.split} needs groups, the subject of each sample")
    if plan.split == "stratified" and labels is None:
        raise DataError("split = stratified needs the label of each sample")
    names = group_order(groups) if groups is not None else []
    number = {name: k for k, name in enumerate(names)}
    codes = None if groups is None else np.array([number[g] for g in groups])
    y = None if labels is None else np.asarray(labels)
    _check_counts(plan, n_samples, len(names) if groups is not None else None, y)
    return [
        NumberedSplit(
            repetition,
            fold,
            split,
            () if codes is None else tuple(names[k] for k in np.unique(codes[split.test])),
        )
        for repetition in range(plan.seeds)
        for fold, split in enumerate(_repetition(plan, repetition, n_samples, codes, y))
    ]


def _repetition(
    plan: Plan, repetition: int, n_samples: int, codes: Indices | None, y: Indices | None
) -> Iterator[Split]:
    state = _state(plan.seed, repetition)
    everything = np.zeros(n_samples)
    folds = _folds(plan, state, codes is not None).split(everything, y, codes)
    for fold, (rest, test) in enumerate(folds):
        if not len(test):
            raise DataError(f"split = {plan.split}: a fold of {plan.n_splits} is empty; take fewer n_splits")
        chosen = _validation(plan, _state(plan.seed, repetition, fold), rest, codes, y)
        yield Split(np.setdiff1d(rest, chosen), np.sort(chosen), np.sort(test))


def _folds(plan: Plan, state: int, grouped: bool) -> Any:
    if plan.split == "loso":
        return LeaveOneGroupOut()
    shuffled = {"n_splits": plan.n_splits, "shuffle": True, "random_state": state}
    if plan.split == "stratified":
        return StratifiedGroupKFold(**shuffled) if grouped else StratifiedKFold(**shuffled)
    return GroupKFold(**shuffled) if grouped else KFold(**shuffled)


def _validation(plan: Plan, state: int, rest: Indices, codes: Indices | None, y: Indices | None) -> Indices:
    """Choose the validation samples among those that are not tested."""
    n = len(rest) if codes is None else len(np.unique(codes[rest]))
    if n < 2:
        what = "samples" if codes is None else "groups"
        raise DataError(
            f"split = {plan.split}: a fold leaves {n} of the {what} to training and validation, expected 2 "
            "or more; take more n_splits"
        )
    n_chosen = min(max(1, round(plan.validation * n)), n - 1)
    chooser: Any
    if codes is not None:
        chooser = GroupShuffleSplit(1, test_size=n_chosen, random_state=state)
        _, places = next(chooser.split(rest, None, codes[rest]))
    elif plan.split == "stratified" and y is not None and _can_stratify(y[rest], n_chosen):
        chooser = StratifiedShuffleSplit(1, test_size=n_chosen, random_state=state)
        _, places = next(chooser.split(rest, y[rest]))
    else:
        chooser = ShuffleSplit(1, test_size=n_chosen, random_state=state)
        _, places = next(chooser.split(rest))
    chosen: Indices = rest[places]
    return chosen


def _can_stratify(y: Indices, n_chosen: int) -> bool:
    """Say whether each class has a sample for either side."""
    classes, counts = np.unique(y, return_counts=True)
    return bool(counts.min() >= 2) and len(classes) <= n_chosen and len(classes) <= len(y) - n_chosen


def _state(*numbers: int) -> int:
    return int(np.random.SeedSequence(numbers).generate_state(1)[0] & 0x7FFFFFFF)


def _check_counts(plan: Plan, n_samples: int, n_groups: int | None, y: Indices | None) -> None:
    least = 3 if plan.split == "loso" else max(3, plan.n_splits)
    if n_groups is not None and n_groups < least:
        what = "split = loso" if plan.split == "loso" else f"n_splits = {plan.n_splits}"
        raise DataError(
            f"{what}: expected at least {least} groups, so that training, validation and test each have "
            f"their own, got {n_groups}"
        )
    if n_samples < max(3, plan.n_splits):
        raise DataError(
            f"n_splits = {plan.n_splits}: expected {max(3, plan.n_splits)} samples or more, got {n_samples}"
        )
    if plan.split == "stratified" and n_groups is None and y is not None:
        classes, counts = np.unique(y, return_counts=True)
        if counts.min() < plan.n_splits:
            raise DataError(
                f"split = stratified: class {classes[counts.argmin()]} has {counts.min()} samples for "
                f"{plan.n_splits} folds; take fewer n_splits or split = kfold"
            )
