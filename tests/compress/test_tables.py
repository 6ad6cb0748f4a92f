import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sparsemod.compress.fakequant import QParams, activation_qparams
from sparsemod.compress.tables import TABLED, logistic_16, quantize_value, table, tanh_16

FUNCTIONS = {
    "logistic": torch.sigmoid,
    "tanh": torch.tanh,
    "relu": torch.relu,
    "quantize": lambda x: x,
    "leaky_relu": lambda x: torch.nn.functional.leaky_relu(x, 0.1),
    "hard_swish": torch.nn.functional.hardswish,
    "elu": torch.nn.functional.elu,
}
FIXED = {"logistic": QParams(1 / 256, -128), "tanh": QParams(1 / 128, 0)}


def test_every_table_is_tested():
    assert set(FUNCTIONS) == set(TABLED)


@pytest.mark.parametrize("kind", FUNCTIONS)
@given(st.floats(0.05, 60.0), st.floats(-50.0, -0.05))
def test_a_table_is_within_a_step_of_the_function(kind, high, low):
    source = activation_qparams(low, high)
    x = (torch.arange(-128, 128, dtype=torch.float64) - source.zero_point) * source.scale
    y = FUNCTIONS[kind](x)
    out = FIXED.get(kind) or activation_qparams(float(y.min()), float(y.max()))
    if kind == "hard_swish":  # the kernel cannot have an output that is finer than 7 bits below the input
        out = out if 128 * out.scale > source.scale else QParams(source.scale / 100, out.zero_point)
    got = table(kind, {"alpha": 0.1}, source, out).astype(np.int64)
    exact = (y / out.scale + out.zero_point).clamp(-128, 127).numpy()
    assert np.abs(got - exact).max() <= (1.6 if kind == "hard_swish" else 1.01)


def test_a_table_by_hand():
    # steps of 0.5 to steps of 1: a factor of a half needs no shift, so that halves are rounded up
    values = table("quantize", {}, QParams(0.5, 0), QParams(1.0, 0))
    assert values[128 - 3 : 128 + 4].tolist() == [-1, -1, 0, 0, 1, 1, 2]
    values = table("relu", {}, QParams(0.5, 0), QParams(0.25, -128))
    assert values[126:130].tolist() == [-128, -128, -128, -126]
    assert values[-1] == 126


def test_stored_integers_of_real_values():
    grid = QParams(0.1, -5)
    assert [quantize_value(v, grid) for v in (0.0, 0.25, -0.25, 6.0)] == [-5, -2, -8, 55]


def test_the_16_bit_functions_are_within_two_steps_of_32768():
    x = torch.arange(-(2**15), 2**15)
    real = x.double() / 2**12
    assert float((logistic_16(x) - torch.sigmoid(real) * 2**15).abs().max()) < 10
    assert float((tanh_16(x) - torch.tanh(real) * 2**15).abs().max()) < 20
    assert logistic_16(torch.tensor([0])).tolist() == [2**14]
    for shift in (-3, 0, 1):
        small = torch.arange(-2000, 2000)
        want = torch.tanh(small.double() * 2.0 ** (shift - 12)) * 2**15
        assert float((tanh_16(small, shift) - want).abs().max()) < 20
