import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from net_zoo import Lambda
from torch import nn

from sparsemod.measure.bundle import Constants, constants
from sparsemod.measure.graph import Operator, OperatorGraph, TensorSpec, Weight
from sparsemod.measure.operators import lower
from sparsemod.measure.sizes import n_nonzero, n_nonzero_int8, n_parameters, weight_bytes


def weight_of(n_zeros, dtype="int8", axis=0):
    values = np.ones((8, 10), np.float32)
    values.ravel()[:n_zeros] = 0
    return Weight("w", values, np.zeros(8, np.float32), dtype, axis)


def in_a_bundle(weight, kind="fully_connected", dtype="int8", **attributes):
    rows, columns = weight.values.shape
    tensors = TensorSpec(0, "x", (1, columns), dtype), TensorSpec(1, "y", (1, rows), dtype)
    operator = Operator(kind, (0,), (1,), (weight,), attributes=attributes)
    return constants(OperatorGraph(tensors, (operator,), (0,), (1,), (), ()))


@pytest.mark.parametrize(
    ("n_zeros", "stored"),
    [(0, 80), (10, 80), (11, 79), (40, 50), (80, 10)],  # bitmap: 80 / 8 + non-zeros, from 12.5 % zeros on
)
def test_a_bundle_stores_dense_or_bitmap_whichever_is_smaller(n_zeros, stored):
    assert in_a_bundle(weight_of(n_zeros)) == Constants(stored, 8 * 4, 8 * 5)


@pytest.mark.parametrize("n_zeros", [0, 40, 80])
def test_the_interpreter_stores_dense(n_zeros):
    assert weight_bytes(weight_of(n_zeros)) == 80 + 8 * 4 + 8 * 4


def test_float_weights_are_four_bytes_whatever_they_are():
    weight = weight_of(40, "float32")
    assert weight_bytes(weight) == 4 * 88
    assert in_a_bundle(weight, dtype="float32") == Constants(4 * 80, 4 * 8)


def test_a_matrix_of_one_scale_has_one_requantization():
    assert in_a_bundle(weight_of(0, axis=None)) == Constants(80, 32, 5)
    assert in_a_bundle(weight_of(0, axis=None)).n_bytes == 120  # whole words
    assert weight_bytes(weight_of(0, axis=None)) == 80 + 32 + 4


def test_a_bitmap_of_an_odd_number_of_weights_is_rounded_up():
    assert in_a_bundle(Weight("w", np.zeros((1, 9), np.float32))) == Constants(2, 4, 5)


def test_a_matrix_without_a_bias_has_one_in_a_bundle():
    weight = Weight("w", np.ones((8, 10), np.float32))  # what the input's zero point is folded into
    assert in_a_bundle(weight) == Constants(80, 32, 40)
    assert weight_bytes(weight) == 80 + 32


def test_constants_of_sums_and_products_are_dense_and_alone():
    assert in_a_bundle(weight_of(80), "mul", constant="y") == Constants(80)


def test_a_matrix_that_is_used_twice_is_stored_once():
    """Its grids differ from place to place, and with them bias and rescaling."""
    net = Lambda(lambda m, x: m.a(m.a(x).relu()), a=nn.Linear(6, 6))
    nn.init.ones_(net.a.weight)
    assert constants(lower(net, torch.zeros(1, 6))) == Constants(36, 2 * 24, 2 * 30)


def test_weights_below_half_a_step_are_zeros_after_quantization():
    values = np.array([[1.27, 0.0049, 0.0051], [127, 0.49, 0.51]], np.float32)
    assert n_nonzero_int8(Weight("w", values, axis=0)) == 4
    assert n_nonzero_int8(Weight("w", values, axis=None)) == 3  # 1.27 is 1 on the scale of 127, 0.51 is 1


@given(arrays(np.float32, (4, 9), elements=st.floats(-10, 10, width=32)), st.sampled_from([0, 1, None]))
def test_counting_non_zeros_agrees_with_quantizing(values, axis):
    others = None if axis is None else 1 - axis
    largest = np.abs(values).max(axis=others, keepdims=True).astype(np.float64)
    scale = np.where(largest == 0, 1, largest / 127)
    steps = values / scale
    quantized = np.rint(steps)
    ties = np.abs(np.abs(steps) - 0.5) < 1e-5
    weight = Weight("w", values, axis=axis)
    assert abs(n_nonzero_int8(weight) - np.count_nonzero(quantized)) <= np.count_nonzero(ties)


def test_an_lstm_is_eight_matrices_and_four_biases():
    graph = lower(Lambda(lambda m, x: m.r(x)[0], r=nn.LSTM(5, 7)), torch.zeros(6, 1, 5))
    matrices, biases = 4 * 7 * (5 + 7), 4 * 7
    assert n_parameters(graph) == matrices + biases
    assert sum(weight_bytes(w) for w in graph.weights()) == matrices + 4 * biases + 8 * 4
    # Each matrix has its own rows of biases; the rescalings are in the code; one table for all LSTMs.
    assert constants(graph) == Constants(matrices, 8 * 7 * 4, 0, 512)


def test_two_lstms_share_their_table():
    one, two = (
        lower(Lambda(lambda m, x: m.r(x)[0], r=nn.LSTM(5, 5, n)), torch.zeros(6, 1, 5)) for n in (1, 2)
    )
    a, b = constants(one), constants(two)
    assert (a.weights, a.biases, a.tables) == (200, 160, 512)
    assert (b.weights, b.biases, b.tables) == (400, 320, 512)


def test_a_gru_is_six_matrices_six_biases_and_three_tables():
    graph = lower(Lambda(lambda m, x: m.r(x)[0], r=nn.GRU(5, 7)), torch.zeros(6, 1, 5))
    matrices, biases = 3 * 7 * (5 + 7), 4 * 7
    assert sum(weight_bytes(w) for w in graph.weights()) == matrices + 4 * biases + 6 * 4
    assert constants(graph) == Constants(matrices, 6 * 7 * 4, 6 * 5, 3 * 256)


def test_a_function_of_one_value_is_a_table():
    net = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4), nn.Hardswish())
    for layer in (net[0], net[2]):
        nn.init.ones_(layer.weight)
    assert constants(lower(net, torch.zeros(1, 4))) == Constants(32, 32, 40, 512)


def test_parameters_and_non_zeros_count_biases_too():
    net = nn.Linear(4, 3)
    with torch.no_grad():
        net.weight[0] = 0
        net.bias.copy_(torch.tensor([0.0, 1.0, 2.0]))
    graph = lower(net, torch.zeros(1, 4))
    assert (n_parameters(graph), n_nonzero(graph)) == (15, 10)
