"""Interpolations reach the values worked out by hand, and stay there."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparsemod.compress.schedules import interpolate

KINDS = ["linear", "cubic", "inverse_cubic"]


@pytest.mark.parametrize(
    ("how", "at", "value"),
    [
        ("cubic", 0, 0.05),
        ("cubic", 1, 0.25325),
        ("cubic", 2, 0.416),
        ("cubic", 5, 0.70625),
        ("cubic", 9, 0.79925),
        ("cubic", 10, 0.8),
        ("linear", 2, 0.2),
        ("linear", 5, 0.425),
        ("inverse_cubic", 5, 0.204725),
    ],
)
def test_from_five_to_eighty_percent_in_ten_epochs(how, at, value):
    assert interpolate(at, 0, 10, 0.05, 0.8, how) == pytest.approx(value, abs=1e-6)


@pytest.mark.parametrize("how", KINDS)
def test_outside_of_the_way_the_ends_hold(how):
    assert interpolate(-3, 0, 10, 0.05, 0.8, how) == 0.05
    assert interpolate(12, 0, 10, 0.05, 0.8, how) == 0.8


@pytest.mark.parametrize("how", KINDS)
def test_a_way_of_no_length_is_a_jump(how):
    assert [interpolate(at, 4, 4, 0.1, 0.9, how) for at in (3.9, 4, 4.1)] == [0.1, 0.9, 0.9]


@pytest.mark.parametrize("how", KINDS)
@given(times=st.tuples(st.floats(-5, 25), st.floats(-5, 25)))
def test_it_never_goes_back(how, times):
    early, late = sorted(times)
    assert interpolate(early, 3, 17, 0.0, 0.9, how) <= interpolate(late, 3, 17, 0.0, 0.9, how) + 1e-12


def test_the_curve_must_be_known():
    with pytest.raises(ValueError, match="got 'square'"):
        interpolate(1, 0, 2, 0, 1, "square")
