"""Fronts and hypervolumes against values worked by hand and against their definitions."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from sparsemod.pareto import hypervolume, pareto_mask

NAN, INF = math.nan, math.inf
small = st.integers(1, 4).flatmap(
    lambda m: arrays(
        np.float64, st.tuples(st.integers(1, 12), st.just(m)), elements=st.integers(0, 5).map(float)
    )
)


def dominates(a, b):
    return bool((a <= b).all() and (a < b).any())


def test_worked_example():
    assert hypervolume([(1, 4), (2, 2), (4, 1)], (5, 5)) == 11.0
    assert pareto_mask([(1, 4), (2, 2), (4, 1), (3, 3)]).tolist() == [True, True, True, False]


def test_equal_points_are_all_on_the_front():
    assert pareto_mask([(1, 2), (1, 2), (2, 1), (2, 2)]).tolist() == [True, True, True, False]


def test_point_that_is_equal_in_one_objective_and_worse_in_another_is_dominated():
    assert pareto_mask([(1, 1), (1, 2)]).tolist() == [True, False]


def test_one_objective_keeps_every_minimum():
    assert pareto_mask([[2.0], [1.0], [1.0]]).tolist() == [False, True, True]
    assert hypervolume([[2.0], [1.0], [7.0]], [5.0]) == 4.0


@pytest.mark.parametrize("bad", [(NAN, 0), (0, NAN), (INF, 0), (-INF, 0), (NAN, NAN)])
def test_failed_measurement_is_never_on_the_front_and_hides_nothing(bad):
    assert pareto_mask([bad, (1, 1)]).tolist() == [False, True]
    assert pareto_mask([bad]).tolist() == [False]


def test_failed_measurement_adds_no_volume():
    assert hypervolume([(1, 1), (NAN, 0), (INF, 0)], (2, 3)) == 2.0
    assert hypervolume([(NAN, NAN)], (2, 3)) == 0.0


def test_points_on_or_beyond_the_reference_add_no_volume():
    assert hypervolume([(2, 0), (5, 5)], (2, 3)) == 0.0
    assert hypervolume([(1, 1), (0, 9)], (2, 3)) == 2.0


def test_no_points():
    assert pareto_mask(np.zeros((0, 3))).tolist() == []
    assert hypervolume(np.zeros((0, 3)), (1, 1, 1)) == 0.0


def test_three_objectives():
    # two unit-depth boxes 2x1x1 and 1x2x1 that share the unit cube
    assert hypervolume([(0, 1, 0), (1, 0, 0)], (2, 2, 1)) == 3.0


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ([1.0, 2.0], r"shape \(n, m\).*got shape \(2,\)"),
        (np.zeros((2, 0)), r"got shape \(2, 0\)"),
        ([[1, 2], [1]], r"\(n, m\) array of numbers"),
        ([["a", "b"]], r"\(n, m\) array of numbers"),
    ],
)
def test_wrong_shapes_are_refused_with_what_was_expected(values, said):
    with pytest.raises(ValueError, match=r"^pareto_mask: .*" + said):
        pareto_mask(values)


@pytest.mark.parametrize(
    ("reference", "said"),
    [
        ((5,), r"reference of shape \(2,\).*got shape \(1,\)"),
        (5, r"got shape \(\)"),
        ((1, INF), "finite reference"),
    ],
)
def test_wrong_reference_is_refused(reference, said):
    with pytest.raises(ValueError, match=said):
        hypervolume([(1, 4)], reference)


def test_minus_infinity_has_no_volume():
    with pytest.raises(ValueError, match="-inf"):
        hypervolume([(-INF, 0)], (1, 1))


def test_arguments_are_not_changed():
    values = np.array([[3.0, 1.0], [1.0, NAN], [2.0, 2.0]])
    before = values.copy()
    pareto_mask(values)
    hypervolume(values, (4, 4))
    np.testing.assert_array_equal(values, before)


@given(small)
def test_front_is_what_the_definition_says(points):
    expected = [not any(dominates(other, point) for other in points) for point in points]
    assert pareto_mask(points).tolist() == expected


@given(small, st.randoms(use_true_random=False))
def test_order_of_points_does_not_matter(points, random):
    order = list(range(len(points)))
    random.shuffle(order)
    assert pareto_mask(points[order]).tolist() == pareto_mask(points)[order].tolist()


@given(small)
def test_volume_of_integer_points_counts_the_dominated_unit_cells(points):
    reference = np.full(points.shape[1], 4.0)
    cells = itertools.product(range(4), repeat=points.shape[1])
    dominated = sum(bool((points <= np.array(cell)).all(axis=1).any()) for cell in cells)
    assert hypervolume(points, reference) == pytest.approx(dominated)


@given(small)
def test_only_the_front_makes_the_volume(points):
    reference = np.full(points.shape[1], 6.0)
    assert hypervolume(points[pareto_mask(points)], reference) == pytest.approx(
        hypervolume(points, reference)
    )
