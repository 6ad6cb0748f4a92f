"""Scales, rounding and the fixed-point rescale."""

import integer_reference as reference
import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from sparsemod.compress.fakequant import (
    QParams,
    activation_qparams,
    centred,
    fake_quantize,
    power_of_two_qparams,
    quantize_rows,
    quantize_weight,
    requantize,
    rescale_factors,
    round_away,
    to_grid,
)

finite = st.floats(-1e6, 1e6, allow_nan=False, width=32)


def rows(weight):
    return torch.arange(len(weight)).reshape(-1, 1)


@given(st.lists(st.integers(-(2**24), 2**24), min_size=1, max_size=30), st.floats(1e-6, 4.0))
def test_rescale_equals_gemmlowp_bit_for_bit(accumulators, multiplier):
    x, bounds = torch.tensor(accumulators, dtype=torch.float32), (-32768, 32767)
    result = requantize(x, rescale_factors(multiplier), bounds, 1.0)
    assert (
        result.tolist() == np.clip(reference.multiply(np.array(accumulators), multiplier), *bounds).tolist()
    )


def test_rescale_rounds_twice():
    """1533 * 0.25 = 383.25, but 1533 * 0.5 = 766.5 becomes 767, and half of that 384."""
    accumulator = torch.tensor([1533.0])
    factors = rescale_factors(0.25)
    assert (float(factors.first), float(factors.second)) == (0.5, 0.5)
    assert float(requantize(accumulator, factors, (-1000, 1000), 1.0)) == 384.0


@given(finite, finite)
def test_an_activation_grid_holds_zero_and_covers_its_range(a, b):
    low, high = min(a, b), max(a, b)
    grid = activation_qparams(low, high)
    assert -128 <= grid.zero_point <= 127
    assert float(to_grid(torch.tensor([0.0]), grid)) == 0.0
    bottom, top = grid.real_range
    slack = 0.51 * grid.scale + 1e-6
    assert bottom <= min(low, 0.0) + slack
    assert top >= max(high, 0.0) - slack


@given(st.lists(finite, min_size=1, max_size=20))
def test_values_inside_the_range_move_by_half_a_step_at_most(values):
    x = torch.tensor(values)
    grid = activation_qparams(float(x.min()), float(x.max()))
    snapped = to_grid(x, grid)
    assert (
        snapped - x
    ).abs().max() <= 1.01 * grid.scale  # half a step, and half of the zero point's rounding
    assert torch.equal(to_grid(snapped, grid), snapped)
    assert torch.equal(centred(snapped, grid) * grid.scale, snapped)


def test_halves_round_away_from_zero():
    assert round_away(torch.tensor([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5])).tolist() == [-3, -2, -1, 1, 2, 3]


def test_a_range_of_zero_and_a_relu_range():
    assert activation_qparams(0.0, 0.0) == QParams(1.0, 0)
    assert activation_qparams(0.0, 6.0).zero_point == -128
    assert activation_qparams(-6.0, 0.0).zero_point == 127


def test_bounds_of_a_fused_activation():
    grid = QParams(0.1, -28)
    assert grid.bounds() == (-100, 155)
    assert grid.bounds(0.0, 6.0) == (0, 60)


def test_cell_states_have_powers_of_two():
    assert power_of_two_qparams(1.0) == QParams(2.0**-15, 0, 16)
    assert power_of_two_qparams(1.1) == QParams(2.0**-14, 0, 16)
    assert power_of_two_qparams(0.0) == QParams(2.0**-15, 0, 16)


def test_weights_by_hand():
    """Row 0 has steps of 1.27 / 127 = 0.01, row 1 of 0.254 / 127 = 0.002; the bias counts 0.5 * 0.01."""
    weight = torch.tensor([[1.27, -0.014], [-0.254, 0.1]])
    held = quantize_weight(weight, torch.tensor([0.5, -0.0011]), 0.5, rows(weight), 2)
    assert held.values.tolist() == [[127, -1], [-127, 50]]
    assert torch.allclose(held.scales, torch.tensor([0.01, 0.002]))
    assert held.bias.tolist() == [100, -1]


def test_a_channel_of_zeros_keeps_its_bias():
    weight = torch.tensor([[1.27, 0.0], [0.0, 0.0]])
    held = quantize_weight(weight, torch.tensor([0.0, 0.5]), 0.5, rows(weight), 2)
    assert held.scales[1] == held.scales[0]
    assert held.values[1].tolist() == [0, 0]
    assert held.bias[1] == 100
    empty = quantize_weight(torch.zeros(2, 2), None, 1.0, rows(weight), 2)
    assert torch.equal(empty.values, torch.zeros(2, 2, dtype=torch.int8))


def test_a_bias_beyond_int32_makes_its_channel_coarser():
    weight = torch.tensor([[1e-9], [1.0]])
    held = quantize_weight(weight, torch.tensor([100.0, 100.0]), 1e-3, rows(weight), 2)
    real = held.bias.double() * held.scales.double() * 1e-3
    assert torch.allclose(real, torch.tensor([100.0, 100.0], dtype=torch.float64), rtol=1e-4)


def test_channels_can_share_a_scale():
    weight = torch.tensor([[1.27], [0.1], [2.54], [0.2]])
    held = quantize_weight(weight, None, 1.0, rows(weight), 4, shared=2)
    assert torch.allclose(held.scales, torch.tensor([0.01, 0.01, 0.02, 0.02]))


def test_rows_have_their_own_grids():
    x = torch.tensor([[0.0, 2.55], [0.0, 255.0], [0.0, 0.0]])
    together = quantize_rows(x + 0.004, (-1,))
    alone = torch.cat([quantize_rows(row[None] + 0.004, (-1,)) for row in x])
    assert torch.equal(together, alone)
    assert float((together[0] - x[0]).abs().max()) < 0.011


def test_gradient_passes_where_nothing_saturates():
    grid = activation_qparams(-1.0, 1.0)
    x = torch.tensor([-3.0, -0.5, 0.3, 3.0], requires_grad=True)
    y = fake_quantize(x, grid)
    y.sum().backward()
    assert x.grad.tolist() == [0.0, 1.0, 1.0, 0.0]
    assert torch.allclose(y.detach(), fake_quantize(x.detach(), grid))
