import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from integer_reference import multiply

from sparsemod.compress.fixed_point import (
    ONE,
    exp_on_negative,
    high_multiply,
    log_of_sum,
    logistic,
    one_over_one_plus,
    rescale,
    rescaling,
    shift_right,
    tanh,
)


def as_q(values, integer_bits):
    return torch.tensor(np.round(np.asarray(values) * 2.0 ** (31 - integer_bits)).astype(np.int64))


def as_real(x, integer_bits=0):
    return x.numpy() / 2.0 ** (31 - integer_bits)


def test_products_round_halves_up_and_shifts_round_them_away_from_zero():
    # 3 * 2**30 / 2**31 = 1.5, -1.5
    assert high_multiply(torch.tensor([3, -3]), 2**30).tolist() == [2, -1]
    assert shift_right(torch.tensor([6, -6, 5, -5, 7]), 2).tolist() == [2, -2, 1, -1, 2]  # 1.5, 1.25, 1.75
    assert shift_right(torch.tensor([6, -6]), torch.tensor([0, 2])).tolist() == [6, -2]


def test_real_factors_in_integers_by_hand():
    factors = rescaling([0.375, 1.0, 2.0, 2.0**-40])
    assert factors.multiplier.tolist() == [3 * 2**29, 2**30, 2**30, 0]
    assert factors.shift.tolist() == [-1, 1, 2, 0]
    assert rescale(torch.tensor([[4, 4, 4, 4]]), factors).tolist() == [[2, 4, 8, 0]]  # 1.5 away from zero


@given(st.lists(st.integers(-(2**23), 2**23), min_size=1, max_size=20), st.floats(1e-6, 4.0))
def test_rescaling_is_the_interpreters_multiplication(values, factor):
    got = rescale(torch.tensor(values)[:, None], rescaling([factor]))[:, 0]
    np.testing.assert_array_equal(got.numpy(), multiply(np.array(values), factor))


def test_the_functions_are_accurate_to_a_millionth():
    x = np.linspace(-15.9, 0, 2001)
    np.testing.assert_allclose(as_real(exp_on_negative(as_q(x, 5), 5)), np.exp(x), atol=1e-6)
    x = np.linspace(-7.9, 7.9, 2001)
    np.testing.assert_allclose(as_real(logistic(as_q(x, 4), 4)), 1 / (1 + np.exp(-x)), atol=1e-6)
    np.testing.assert_allclose(as_real(tanh(as_q(x, 4), 4)), np.tanh(x), atol=2e-6)
    x = np.linspace(0, 0.999, 500)
    np.testing.assert_allclose(as_real(one_over_one_plus(as_q(x, 0))), 1 / (1 + x), atol=1e-6)
    x = np.geomspace(1, 1000, 500)
    np.testing.assert_allclose(as_real(log_of_sum(as_q(x, 12)), 5), np.log(x), atol=1e-5)


def test_the_functions_at_zero():
    zero = torch.tensor([0])
    assert exp_on_negative(zero, 5).tolist() == [ONE]
    assert logistic(zero, 4).tolist() == [2**30]
    assert tanh(zero, 4).tolist() == [0]
