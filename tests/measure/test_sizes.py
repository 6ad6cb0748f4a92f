import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from net_zoo import Lambda
from torch import nn

from sparsemod.measure.graph import Weight
from sparsemod.measure.operators import lower
from sparsemod.measure.sizes import n_nonzero, n_nonzero_int8, n_parameters, weight_bytes


def weight_of(n_zeros, dtype="int8", axis=0):
    values = np.ones((8, 10), np.float32)
    values.ravel()[:n_zeros] = 0
    return Weight("w", values, np.zeros(8, np.float32), dtype, axis)


@pytest.mark.parametrize(
    ("n_zeros", "stored"),
    [(0, 80), (10, 80), (11, 79), (40, 50), (80, 10)],  # bitmap: 80 / 8 + non-zeros, from 12.5 % zeros on
)
def test_the_c_runtime_stores_dense_or_bitmap_whichever_is_smaller(n_zeros, stored):
    assert weight_bytes(weight_of(n_zeros), "c") == stored + 8 * 4 + 8 * 5


@pytest.mark.parametrize("n_zeros", [0, 40, 80])
def test_the_interpreter_stores_dense(n_zeros):
    assert weight_bytes(weight_of(n_zeros), "tflite-micro") == 80 + 8 * 4 + 8 * 4


@pytest.mark.parametrize("runtime", ["c", "tflite-micro"])
def test_float_weights_are_four_bytes_whatever_they_are(runtime):
    assert weight_bytes(weight_of(40, "float32"), runtime) == 4 * 88


def test_a_matrix_of_one_scale_has_one_requantization():
    assert weight_bytes(weight_of(0, axis=None), "c") == 80 + 32 + 5
    assert weight_bytes(weight_of(0, axis=None), "tflite-micro") == 80 + 32 + 4


def test_a_bitmap_of_an_odd_number_of_weights_is_rounded_up():
    assert weight_bytes(Weight("w", np.zeros((1, 9), np.float32)), "c") == 2 + 5


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
    total = {
        runtime: sum(weight_bytes(w, runtime) for w in graph.weights()) for runtime in ("c", "tflite-micro")
    }
    assert total == {"c": matrices + 4 * biases + 8 * 5, "tflite-micro": matrices + 4 * biases + 8 * 4}


def test_a_gru_is_six_matrices_and_four_biases():
    graph = lower(Lambda(lambda m, x: m.r(x)[0], r=nn.GRU(5, 7)), torch.zeros(6, 1, 5))
    matrices, biases = 3 * 7 * (5 + 7), 4 * 7
    assert sum(weight_bytes(w, "c") for w in graph.weights()) == matrices + 4 * biases + 6 * 5


def test_parameters_and_non_zeros_count_biases_too():
    net = nn.Linear(4, 3)
    with torch.no_grad():
        net.weight[0] = 0
        net.bias.copy_(torch.tensor([0.0, 1.0, 2.0]))
    graph = lower(net, torch.zeros(1, 4))
    assert (n_parameters(graph), n_nonzero(graph)) == (15, 10)
