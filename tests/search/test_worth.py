"""What an improvement is worth: from which error a network is useless, how several costs share weight."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from sparsemod.pareto import pareto_mask
from sparsemod.search.acquisition import balanced, worthless_error


@pytest.mark.parametrize(
    ("errors", "chance", "limit"),
    [
        ([0.011, 0.3, 0.9], 0.9, 0.225),  # ten times the best is 0.11, a quarter of guessing is more
        ([0.05, 0.3, 0.9], 0.9, 0.5),  # ten times the best
        ([0.05, 0.3, 0.4], 0.9, 0.4),  # nothing worse has been seen
        ([0.2, 0.6], 0.5, 0.5),  # guessing
    ],
)
def test_the_error_from_which_a_network_is_worth_nothing(errors, chance, limit):
    assert np.exp(worthless_error(np.log(errors), chance)) == pytest.approx(limit)


@pytest.mark.parametrize("errors", [[0.3], [0.9, 0.9], [1.0, 1.0]])
def test_the_best_error_is_always_worth_something(errors):
    assert worthless_error(np.log(errors), 0.9) > np.log(min(errors))


def test_three_costs_weigh_as_much_as_one():
    reference = np.ones(3)
    sides = reference - balanced(np.array([[0.5, 0.5, 0.5]]), reference)
    assert np.prod(sides) == pytest.approx(0.5)
    one = np.ones(1)
    assert balanced(np.array([[0.5]]), one).tolist() == [[0.5]]


@given(hnp.arrays(float, (6, 3), elements=st.floats(-0.5, 1.0).map(lambda x: round(x, 3))))
def test_bending_the_axes_keeps_the_front(costs):
    assert (pareto_mask(balanced(costs, np.full(3, 1.1))) == pareto_mask(costs)).all()
