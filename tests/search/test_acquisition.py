"""Expected hypervolume improvement: values by hand, against brute force and against certain improvements."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

from sparsemod.pareto import hypervolume
from sparsemod.search.acquisition import Scale, decompose, expected_improvement


def improvement(front, reference, point):
    """The hypervolume that a point adds."""
    front = np.asarray(front, dtype=float).reshape(-1, len(reference))
    return hypervolume(np.vstack([front, point]), reference) - hypervolume(front, reference)


def ehvi(front, reference, mean, deviation, costs):
    """One candidate against a front given as rows (error, costs...)."""
    front = np.asarray(front, dtype=float).reshape(-1, len(reference))
    reference = np.asarray(reference, dtype=float)
    boxes = decompose(front[:, 0], front[:, 1:], reference[0], reference[1:])
    values = expected_improvement(boxes, np.array([mean]), np.array([deviation]), np.array([costs], dtype=float))
    return float(values[0])


def test_one_objective_is_expected_improvement():
    # z = (best - mean) / s = 1: s (z Phi(z) + phi(z)) = 0.2 (0.841345 + 0.241971)
    assert ehvi([[1.0], [1.5]], [3.0], 0.8, 0.2, []) == pytest.approx(0.2166631, abs=1e-7)


def test_two_objectives_by_hand():
    # Front (error, size): (1, 3), (2, 2), (3, 1), reference (4, 4). A certain candidate of error 1.5 and size 1.5 adds
    # what lies right of size 1.5: up to size 2 the best error is 3, up to 3 it is 2, beyond that 1 (nothing gained).
    front = [[1, 3], [2, 2], [3, 1]]
    assert ehvi(front, [4, 4], 1.5, 0.0, [1.5]) == pytest.approx((3 - 1.5) * 0.5 + (2 - 1.5) * 1.0)
    assert ehvi(front, [4, 4], 0.5, 0.0, [0.5]) == pytest.approx(3.5 * 0.5 + 2.5 + 1.5 + 0.5)


def test_two_objectives_uncertain_by_hand():
    # One front point (2, 2), reference (4, 4), a candidate of size 1: from size 1 to 2 it is compared with the
    # reference's error, from 2 to 4 with the front's.
    def gain(best):
        z = (best - 2.5) / 0.5
        return 0.5 * (z * norm.cdf(z) + norm.pdf(z))

    assert ehvi([[2, 2]], [4, 4], 2.5, 0.5, [1.0]) == pytest.approx(1.0 * gain(4.0) + 2.0 * gain(2.0))


def test_what_costs_as_much_as_the_reference_is_worth_nothing():
    assert ehvi([[2, 2]], [4, 4], 0.0, 1.0, [4.0]) == 0.0
    assert ehvi([[2, 2]], [4, 4], 0.0, 1.0, [5.0]) == 0.0


def test_an_empty_front_leaves_everything_up_to_the_reference():
    assert ehvi(np.empty((0, 3)), [4, 4, 4], 1.0, 0.0, [2.0, 3.0]) == pytest.approx(3 * 2 * 1)


def test_a_copy_of_a_front_point_adds_nothing_when_certain():
    assert ehvi([[2, 2, 1], [1, 3, 2]], [4, 4, 4], 2.0, 0.0, [2.0, 1.0]) == 0.0


@pytest.mark.parametrize("n_objectives", [1, 2, 3, 4])
def test_against_brute_force_sampling(n_objectives):
    rng = np.random.default_rng(n_objectives)
    front = rng.random((8, n_objectives)) * 3
    reference = np.full(n_objectives, 3.0)
    costs, mean, deviation = rng.random(n_objectives - 1), 0.8, 0.6
    errors = mean + deviation * rng.standard_normal(3000)
    sampled = [improvement(front, reference, [e, *costs]) for e in errors]
    standard_error = np.std(sampled) / math.sqrt(len(sampled))
    assert ehvi(front, reference, mean, deviation, costs) == pytest.approx(np.mean(sampled), abs=4 * standard_error)


points = st.integers(0, 5).map(float)


@given(st.data(), st.integers(1, 4))
def test_without_uncertainty_it_is_the_hypervolume_added(data, n_objectives):
    front = data.draw(st.lists(st.tuples(*[points] * n_objectives), max_size=12))
    point = data.draw(st.tuples(*[points] * n_objectives))
    reference = [4.5] * n_objectives
    expected = improvement(front, reference, point)
    assert ehvi(front, reference, point[0], 0.0, point[1:]) == pytest.approx(expected, abs=1e-9)


@given(st.data(), st.integers(2, 4))
def test_boxes_are_disjoint_and_fill_all_costs(data, n_objectives):
    front = np.array(data.draw(st.lists(st.tuples(*[points] * n_objectives), min_size=1, max_size=10)))
    boxes = decompose(front[:, 0], front[:, 1:], 6.0, np.full(n_objectives - 1, 5.5))
    spot = np.array(data.draw(st.tuples(*[points] * (n_objectives - 1)))) + 0.25
    holders = np.all((boxes.lower < spot) & (spot < boxes.upper), axis=1)
    assert holders.sum() == 1
    affordable = front[np.all(front[:, 1:] <= spot, axis=1), 0]
    assert boxes.errors[boxes.index[holders][0]] == min([6.0, *affordable])


@given(st.integers(0, 2**32 - 1))
def test_less_cost_less_error_and_more_uncertainty_are_never_worth_less(seed):
    rng = np.random.default_rng(seed)
    front = rng.random((6, 3))
    costs, mean = rng.random(2), rng.random()
    value = ehvi(front, [1, 1, 1], mean, 0.1, costs)
    assert ehvi(front, [1, 1, 1], mean, 0.1, costs * [0.9, 1.0]) >= value - 1e-12
    assert ehvi(front, [1, 1, 1], mean - 0.1, 0.1, costs) >= value - 1e-12
    assert ehvi(front, [1, 1, 1], mean, 0.2, costs) >= value - 1e-12


def test_many_candidates_at_once_equal_one_at_a_time():
    rng = np.random.default_rng(0)
    front = rng.random((60, 4))
    boxes = decompose(front[:, 0], front[:, 1:], 1.1, np.full(3, 1.1))
    mean, deviation, costs = rng.random(3000), rng.random(3000), rng.random((3000, 3))
    together = expected_improvement(boxes, mean, deviation, costs)
    for i in (0, 1234, 2999):
        alone = expected_improvement(boxes, mean[[i]], deviation[[i]], costs[[i]])
        assert together[i] == pytest.approx(alone[0], rel=1e-12)


def test_costs_are_scaled_by_logarithm_over_the_range_seen():
    scale = Scale.of(np.array([[100.0, 5.0], [10_000.0, 5.0]]))
    assert scale(np.array([[1000.0, 5.0]])) == pytest.approx(np.array([[0.5, 0.0]]))
    assert scale.reference == pytest.approx([1.1, 1.1])
