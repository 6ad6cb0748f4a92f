"""Random pruning over the mask engine."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sparsemod.compress.groups import Slices
from sparsemod.compress.random_masks import random_masks


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


@given(
    shapes=st.lists(st.tuples(st.integers(1, 5), st.integers(1, 5)), min_size=1, max_size=3),
    first=st.floats(0, 1),
    second=st.floats(0, 1),
    seed=st.integers(0, 100),
)
def test_the_counts_are_exact_and_what_was_pruned_stays_so(shapes, first, second, seed):
    tensors = {str(i): torch.ones(shape) for i, shape in enumerate(shapes)}
    n = sum(t.numel() for t in tensors.values())
    base = random_masks(tensors, first, generator=generator(seed))
    assert sum(int((~m).sum()) for m in base.values()) == round(n * first)
    masks = random_masks(tensors, second, of="remaining", base=base, generator=generator(seed + 1))
    left = n - round(n * first)
    assert sum(int(m.sum()) for m in masks.values()) == left - round(left * second)
    assert all(not bool((masks[name] & ~base[name]).any()) for name in tensors)


def test_slices_are_pruned_whole_however_incomplete_they_are():
    tensors = {"w": torch.ones(4, 3)}
    base = {"w": torch.ones(4, 3, dtype=torch.bool)}
    base["w"][0, :2] = False
    base["w"][1] = False
    chosen = []
    for seed in range(300):
        masks = random_masks(
            tensors,
            count=1,
            of="remaining",
            scope="local",
            structure=Slices(0),
            base=base,
            generator=generator(seed),
        )
        gone = (base["w"].any(dim=1) & ~masks["w"].any(dim=1)).nonzero().flatten().tolist()
        assert len(gone) == 1
        chosen += gone
    assert all(70 < chosen.count(row) < 130 for row in (0, 2, 3))


def test_slices_are_not_ranked_across_tensors():
    with pytest.raises(ValueError, match="scope must be 'local'"):
        random_masks({"w": torch.ones(2, 2)}, 0.5, structure=Slices(0), generator=generator())
