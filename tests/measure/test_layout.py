import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparsemod.measure.layout import Axis, Layout, align, position, sizes


def test_a_dimension_of_size_one_has_no_axis():
    layout = Layout.of((1, 3, 1, 5))
    assert [sizes(axes) for axes in layout.dims] == [(), (3,), (), (5,)]
    assert layout.shape == (1, 3, 1, 5)


def test_permuting_moves_nothing():
    layout = Layout.of((1, 3, 4, 5), order=(0, 2, 3, 1))
    moved = layout.permuted((0, 3, 1, 2))
    assert moved.order == layout.order
    assert moved.shape == (1, 5, 3, 4)


def test_a_contiguous_tensor_takes_any_shape():
    assert Layout.of((6, 4)).reshaped((4, 6)).shape == (4, 6)


def test_a_channels_last_image_cannot_split_its_channels_with_its_pixels():
    assert Layout.of((1, 6, 4, 4), order=(0, 2, 3, 1)).reshaped((1, 9, 32, 1)) is None


def test_axes_that_are_not_neighbours_are_not_merged():
    flat = Layout.of((1, 3, 4, 5), order=(0, 2, 3, 1)).reshaped((1, 60))
    assert flat.merged(1) is None
    assert flat.permuted((1, 0)).merged(1).dims[1] == ()


def test_aligned_layouts_share_axes_where_both_have_them():
    a, b = align(Layout.of((2, 12, 5)), Layout.of((3, 4, 5)).reshaped((12, 5)))
    assert [sizes(axes) for axes in a.dims] == [(2,), (3, 4), (5,)]
    assert b.dims[1:] == a.dims[1:]
    assert b.dims[0] == ()


def test_shapes_that_cannot_be_aligned():
    a = Layout.of((2, 3)).reshaped((6,))
    b = Layout.of((3, 2)).reshaped((6,))
    assert align(a, b) is None


@given(st.permutations(range(4)), st.permutations(range(4)))
def test_position_rearranges_columns_as_numpy_does(wanted, present):
    axes = [Axis(n) for n in (2, 3, 4, 5)]
    values = np.random.default_rng(0).random((2, 3, 4, 5))
    columns = position(tuple(axes[i] for i in wanted), tuple(axes[i] for i in present))
    np.testing.assert_array_equal(
        values.transpose(wanted).ravel()[columns], values.transpose(present).ravel()
    )


@pytest.mark.parametrize("shape", [(1, 280), (1, 8, 35), (8, 5, 7), (1, 2, 4, 5, 7), (1, 8, 5, 7, 1)])
def test_reshaping_an_image_keeps_its_memory(shape):
    image = Layout.of((1, 8, 5, 7), order=(0, 2, 3, 1))
    layout = image.reshaped(shape)
    assert layout.shape == shape
    x = np.arange(280).reshape(8, 5, 7)
    memory = x.transpose(1, 2, 0).ravel()
    logical = memory.reshape(sizes(layout.order)).transpose([layout.order.index(a) for a in layout.logical])
    np.testing.assert_array_equal(logical.ravel(), x.ravel())
