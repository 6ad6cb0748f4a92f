"""Cross splits: every sample is tested once a repetition, and no subject is in two parts."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparsemod.crosstest.splits import Plan, make_splits
from sparsemod.errors import DataError


def parts(found):
    return found.split.train, found.split.validation, found.split.test


def check_partition(splits, n_samples):
    for found in splits:
        assert sorted(np.concatenate(parts(found))) == list(range(n_samples))
        assert all(len(part) for part in parts(found))
    for repetition in {s.seed for s in splits}:
        tested = np.concatenate([s.split.test for s in splits if s.seed == repetition])
        assert sorted(tested) == list(range(n_samples))


@settings(max_examples=60)
@given(
    data=st.data(),
    kind=st.sampled_from(["loso", "groups", "kfold", "stratified"]),
    n_groups=st.integers(3, 9),
    validation=st.floats(0.01, 0.99),
    seeds=st.integers(1, 2),
    seed=st.integers(0, 2**63 - 1),
)
def test_no_subject_is_in_two_parts(data, kind, n_groups, validation, seeds, seed):
    groups = [f"s{k}" for k in range(n_groups)]
    groups += data.draw(st.lists(st.sampled_from(groups), min_size=0, max_size=60))
    groups = data.draw(st.permutations(groups))
    labels = data.draw(st.lists(st.integers(0, 2), min_size=len(groups), max_size=len(groups)))
    plan = Plan(kind, data.draw(st.integers(2, n_groups)), seeds, validation, seed)
    try:
        splits = make_splits(plan, len(groups), groups, labels)
    except DataError as error:
        assert kind != "loso" and "\n" not in str(error)
        return
    check_partition(splits, len(groups))
    for found in splits:
        train, rest, test = ({groups[k] for k in part} for part in parts(found))
        assert not train & rest and not train & test and not rest & test
        assert set(found.subjects) == test
    assert len(splits) == seeds * (n_groups if kind == "loso" else plan.n_splits)


@settings(max_examples=40)
@given(
    kind=st.sampled_from(["kfold", "stratified"]),
    per_class=st.integers(5, 20),
    n_splits=st.integers(2, 5),
    validation=st.floats(0.01, 0.99),
    seed=st.integers(0, 1000),
)
def test_without_groups_every_sample_is_tested_once(kind, per_class, n_splits, validation, seed):
    labels = [k % 3 for k in range(3 * per_class)]
    splits = make_splits(Plan(kind, n_splits, 2, validation, seed), len(labels), None, labels)
    check_partition(splits, len(labels))
    if kind == "stratified":
        for found in splits:
            counts = np.bincount(np.array(labels)[found.split.test], minlength=3)
            assert counts.max() - counts.min() <= 1


def test_loso_tests_the_subjects_in_their_order():
    groups = ["10", "9", "2", "10", "9", "2"]
    splits = make_splits(Plan("loso", seeds=1), 6, groups)
    assert [s.subjects for s in splits] == [("2",), ("9",), ("10",)]
    assert [s.split.test.tolist() for s in splits] == [[2, 5], [1, 4], [0, 3]]


def test_the_share_of_validation_is_of_the_subjects():
    groups = [str(k) for k in range(11) for _ in range(k + 1)]
    for found in make_splits(Plan("loso", validation=0.3), len(groups), groups):
        assert len({groups[k] for k in found.split.validation}) == 3
        assert len({groups[k] for k in found.split.train}) == 7


def test_the_seed_decides_and_repetitions_differ():
    def tests(seed):
        return [s.split.test.tolist() for s in make_splits(Plan("kfold", 3, 2, seed=seed), 30)]

    assert tests(0) == tests(0) != tests(1)
    assert tests(0)[:3] != tests(0)[3:]


@pytest.mark.parametrize(
    ("plan", "groups", "labels", "words"),
    [
        (Plan("loso"), None, None, "split = loso needs groups, the subject of each sample"),
        (Plan("loso"), ["a", "b"] * 5, None, "expected at least 3 groups"),
        (Plan("groups", 5), ["a", "b", "c", "d", "a"] * 2, None, "n_splits = 5: expected at least 5 groups"),
        (Plan("groups", 2), ["a", "b", "c"] * 4, None, "expected 2 or more; take more n_splits"),
        (Plan("kfold", 20), None, None, "n_splits = 20: expected 20 samples or more, got 10"),
        (Plan("stratified", 3), None, [0] * 8 + [1] * 2, "class 1 has 2 samples for 3 folds"),
    ],
)
def test_what_cannot_be_split_is_said_in_one_line(plan, groups, labels, words):
    with pytest.raises(DataError, match=words) as caught:
        make_splits(plan, len(groups or range(10)), groups, labels)
    assert "\n" not in str(caught.value)
