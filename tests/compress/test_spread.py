"""Masks for networks that have not been trained: exact counts, no dead channels, never cheaper than real."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sparsemod.compress.masks import magnitude_masks
from sparsemod.compress.spread import spread_masks

shapes = st.lists(st.lists(st.integers(1, 9), min_size=2, max_size=4).map(tuple), min_size=1, max_size=4)


@given(shapes, st.floats(0, 1))
def test_as_many_weights_stay_as_magnitude_pruning_leaves(shapes, sparsity):
    tensors = {str(i): torch.rand(shape) for i, shape in enumerate(shapes)}
    kept = sum(int(m.sum()) for m in spread_masks(tensors, sparsity).values())
    assert kept == sum(int(m.sum()) for m in magnitude_masks(tensors, sparsity).values())


@given(shapes, st.floats(0, 1))
def test_no_row_or_column_is_empty_as_long_as_there_are_enough(shapes, sparsity):
    tensors = {str(i): torch.zeros(shape) for i, shape in enumerate(shapes)}
    masks = spread_masks(tensors, sparsity)
    flat = [m.flatten(1) for m in masks.values()]
    if sum(int(m.sum()) for m in flat) >= sum(max(m.shape) for m in flat):
        assert all(m.any(dim=0).all() and m.any(dim=1).all() for m in flat)


def test_a_single_weight_beside_a_large_layer_stays():
    # 2 + 100 weights, half of them stay: one for each row and column first (2, 10), the rest by size
    masks = spread_masks({"small": torch.zeros(2, 1), "large": torch.zeros(10, 10)}, 0.5)
    assert (int(masks["small"].sum()), int(masks["large"].sum())) == (2, 49)


@pytest.mark.parametrize(("sparsity", "kept"), [(0.0, 12), (1.0, 0)])
def test_the_ends(sparsity, kept):
    assert int(spread_masks({"w": torch.zeros(3, 4)}, sparsity)["w"].sum()) == kept


def test_rows_and_columns_share_evenly():
    mask = spread_masks({"w": torch.zeros(4, 6)}, 0.5)["w"]
    assert mask.sum(dim=1).tolist() == [3, 3, 3, 3]
    assert mask.sum(dim=0).tolist() == [2, 2, 2, 2, 2, 2]
