"""What drives a search, and what is reported, is the network that ships."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from tiny_problem import arguments, datasets
from torch.utils.data import TensorDataset

from sparsemod import Sparse
from sparsemod.candidate import Status
from sparsemod.measure.operators import lower
from sparsemod.measure.resources import measure
from sparsemod.measure.targets import generic


def errors(result):
    return [a.evaluation.error for a in result.arms]


def test_the_test_set_never_reaches_the_search(tmp_path):
    train, validation, test = datasets()
    wrong = TensorDataset(test.tensors[0], torch.zeros_like(test.tensors[1]))
    right = Sparse(**arguments(tmp_path / "a", datasets=[train, validation, test])).run_sparse()
    other = Sparse(**arguments(tmp_path / "b", datasets=[train, validation, wrong])).run_sparse()
    assert errors(right) == errors(other)
    assert [a.candidate for a in right.arms] == [a.candidate for a in other.arms]
    assert [a.evaluation.test_error for a in right.front] != [a.evaluation.test_error for a in other.front]


def test_reported_resources_are_those_of_the_trained_pruned_network(tmp_path):
    sparse = Sparse(**arguments(tmp_path, r1=3, r2=0, r3=0))
    result = sparse.run_sparse()
    for arm in result.front:
        net = sparse.load_net(arm.name)
        graph = lower(net, datasets()[0].tensors[0][:1])
        assert measure(graph, generic(80_000_000), "c") == replace(arm.evaluation.resources, file_bytes=None)


def test_pruning_makes_the_reported_size_smaller(tmp_path):
    changes = {"r1": 2, "r2": 0, "r3": 0}
    pruned = Sparse(**arguments(tmp_path / "a", **changes)).run_sparse()
    dense = Sparse(**arguments(tmp_path / "b", pruning=False, **changes)).run_sparse()
    for small, large in zip(pruned.arms, dense.arms, strict=True):
        assert small.candidate.parametrization == large.candidate.parametrization
        assert small.evaluation.resources.model_size_bytes < large.evaluation.resources.model_size_bytes
        assert small.evaluation.sparsity == pytest.approx(
            small.candidate.parametrization["prune_threshold"], abs=0.01
        )


def test_a_network_that_learns_nan_fails_and_is_not_pareto_optimal(tmp_path):
    train, validation, test = datasets()
    broken = TensorDataset(torch.full_like(train.tensors[0], 1e38), train.tensors[1])
    result = Sparse(**arguments(tmp_path, datasets=[broken, validation, test], r1=2, r2=1, r3=1)).run_sparse()
    assert all(a.status is Status.FAILED for a in result.arms)
    assert all("nan" in a.evaluation.reason for a in result.arms)
    assert result.front == ()


def test_a_training_batch_above_the_sizes_of_all_sets_is_fine(tmp_path):
    result = Sparse(**arguments(tmp_path, datasets=datasets(n=15), r1=2, r2=1, r3=1)).run_sparse()
    assert all(a.status is Status.COMPLETED for a in result.arms)
    assert np.isfinite(errors(result)).all()


def test_stage_three_learns_from_its_own_arms(tmp_path):
    """The surrogate has seen the arms of the third stage: other results, other children."""
    from dataclasses import replace

    from sparsemod.search.morph import MorphStrategy
    from sparsemod.search.strategy import Problem
    from sparsemod.sparse.before import ResourceCache

    sparse = Sparse(**arguments(tmp_path, r1=4, r2=0, r3=2))
    setup = sparse._setup
    arms = list(sparse.run_sparse().arms)
    problem = Problem(
        setup.space,
        setup.config.objectives,
        ResourceCache(setup),
        setup.config.constraints,
        0,
        1,
        setup.morphisms,
    )
    last = arms[-1]
    better = replace(last, evaluation=replace(last.evaluation, error=0.001))
    strategy = MorphStrategy()
    children = strategy.ask(3, arms, problem)
    other = strategy.ask(3, [*arms[:-1], better], problem)
    assert [c.parametrization for c in children] != [c.parametrization for c in other]
