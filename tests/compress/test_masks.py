"""Masks prune exactly what and how much they are asked for."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from sparsemod.compress.groups import Slices
from sparsemod.compress.masks import (
    apply_masks,
    magnitude_masks,
    match_names,
    prunable_parameters,
    sparsity,
)
from sparsemod.errors import ConfigError

EIGHT = [0.1, 0.5, 0.2, 0.9, 0.3, 0.7, 0.4, 0.8]


def tensors(**values):
    return {name: torch.tensor(value, dtype=torch.float32) for name, value in values.items()}


def kept(masks, name="w"):
    return masks[name].int().tolist()


def zeros(masks):
    return {name: (~mask).flatten().nonzero().flatten().tolist() for name, mask in masks.items()}


# What is prunable


class Mixed(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(5, 4)
        self.conv = nn.Conv1d(4, 6, 3)
        self.up = nn.ConvTranspose1d(6, 6, 2)
        self.norm = nn.BatchNorm1d(6)
        self.layer_norm = nn.LayerNorm((6, 2))
        self.rnn = nn.LSTM(6, 3, num_layers=1, bidirectional=True)
        self.head = nn.Linear(6, 2)
        self.prelu = nn.PReLU()
        self.scale = nn.Parameter(torch.ones(3, 3))


def test_every_weight_of_two_dimensions_is_prunable_recurrent_and_last_ones_included():
    assert list(prunable_parameters(Mixed())) == [
        "embedding.weight",
        "conv.weight",
        "up.weight",
        "rnn.weight_ih_l0",
        "rnn.weight_hh_l0",
        "rnn.weight_ih_l0_reverse",
        "rnn.weight_hh_l0_reverse",
        "head.weight",
    ]


def test_a_single_layer_network_is_prunable():
    assert list(prunable_parameters(nn.Linear(3, 2))) == ["weight"]


def test_a_shared_weight_counts_once():
    net = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    net[1].weight = net[0].weight
    assert list(prunable_parameters(net)) == ["0.weight"]


def test_exclude_takes_names_and_patterns():
    names = list(prunable_parameters(Mixed(), exclude=["head.weight", "re:rnn.*_hh_"]))
    assert "head.weight" not in names
    assert [name for name in names if name.startswith("rnn")] == [
        "rnn.weight_ih_l0",
        "rnn.weight_ih_l0_reverse",
    ]


def test_an_exclude_that_matches_nothing_is_an_error_with_the_nearest_name():
    message = r"no prunable parameter matches 'hed.weight' \(did you mean 'head.weight'\?\)"
    with pytest.raises(ConfigError, match=message):
        prunable_parameters(Mixed(), exclude=["hed.weight"])


def test_a_name_is_matched_whole_and_a_pattern_from_its_beginning():
    assert match_names(["a.weight", "aa.weight", "b.a.weight"], ["a.weight"]) == ["a.weight"]
    assert match_names(["a.weight", "aa.weight", "b.a.weight"], ["re:a+.weight"]) == ["a.weight", "aa.weight"]


# Magnitude masks, single weights


@pytest.mark.parametrize(
    ("fraction", "pruned"),
    [(0.0, []), (0.25, [0, 2]), (0.3, [0, 2]), (0.5, [0, 2, 4, 6]), (1.0, [*range(8)])],
)
def test_the_smallest_weights_go(fraction, pruned):
    assert zeros(magnitude_masks(tensors(w=EIGHT), fraction)) == {"w": pruned}


def test_the_sign_does_not_matter():
    assert kept(magnitude_masks(tensors(w=[-3, 1, -2, 4]), 0.5)) == [1, 0, 0, 1]


def test_of_equal_weights_the_first_ones_go():
    assert kept(magnitude_masks(tensors(w=[[1, 1], [1, 1]]), 0.5)) == [[0, 0], [1, 1]]
    assert zeros(magnitude_masks(tensors(a=[2, 1], b=[1, 1]), count=2)) == {"a": [1], "b": [0]}


def test_global_ranks_all_tensors_together_and_local_each_one():
    weights = tensors(a=[0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8], b=[1, 2, 3, 4])
    assert zeros(magnitude_masks(weights, 0.5)) == {"a": [0, 1, 2, 3, 4, 5], "b": []}
    assert zeros(magnitude_masks(weights, 0.5, scope="local")) == {"a": [0, 1, 2, 3], "b": [0, 1]}


@pytest.mark.parametrize(("count", "expected"), [(0, 0), (3, 3), (12, 12)])
def test_a_count_prunes_so_many(count, expected):
    masks = magnitude_masks(tensors(a=[0.1] * 8, b=[1.0] * 4), count=count)
    assert sum(map(len, zeros(masks).values())) == expected


@given(
    sizes=st.lists(st.integers(1, 40), min_size=1, max_size=4),
    fraction=st.floats(0, 1),
    seed=st.integers(0, 5),
    n_values=st.integers(1, 5),
)
def test_the_count_is_exact_even_with_ties(sizes, fraction, seed, n_values):
    generator = torch.Generator().manual_seed(seed)
    weights = {
        str(i): torch.randint(-n_values, n_values, (size,), generator=generator).float()
        for i, size in enumerate(sizes)
    }
    masks = magnitude_masks(weights, fraction)
    assert sum(int((~mask).sum()) for mask in masks.values()) == round(sum(sizes) * fraction)
    lowest_kept = min(
        (float(weights[n][m].abs().min()) for n, m in masks.items() if m.any()), default=math.inf
    )
    assert all(float(weights[n][~m].abs().max()) <= lowest_kept for n, m in masks.items() if not m.all())


def test_the_weights_themselves_are_untouched():
    weights = tensors(w=EIGHT)
    magnitude_masks(weights, 0.5)
    assert weights["w"].tolist() == pytest.approx(EIGHT)


def test_scores_take_the_place_of_the_magnitude():
    scores = tensors(w=[4, 3, 2, 1])
    assert kept(magnitude_masks(tensors(w=[1, 2, 3, 4]), 0.5, scores=scores)) == [1, 1, 0, 0]


# Pruning on top of earlier masks


def test_what_is_pruned_stays_pruned_even_if_the_weight_has_grown():
    base = magnitude_masks(tensors(w=EIGHT), 0.25)
    grown = tensors(w=[9, 0.5, 9, 0.9, 0.3, 0.7, 0.4, 0.8])
    assert zeros(magnitude_masks(grown, 0.5, base=base)) == {"w": [0, 2, 4, 6]}


def test_an_amount_of_all_that_is_already_reached_changes_nothing():
    base = magnitude_masks(tensors(w=EIGHT), 0.5)
    assert zeros(magnitude_masks(tensors(w=EIGHT), 0.25, base=base)) == zeros(base)


def test_an_amount_of_the_remaining_comes_on_top():
    weights, masks = tensors(a=[0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8], b=[1, 2, 3, 4]), None
    counts = []
    for _ in range(3):
        masks = magnitude_masks(weights, 0.5, of="remaining", base=masks)
        counts.append(sum(map(len, zeros(masks).values())))
    assert counts == [6, 9, 11]  # of 12: half of 12, of 6, of 3 (1.5 rounds to the even 2)


def test_a_count_of_the_remaining_comes_on_top():
    base = magnitude_masks(tensors(w=EIGHT), count=3)
    more = magnitude_masks(tensors(w=EIGHT), count=3, of="remaining", base=base)
    assert zeros(more) == {"w": [0, 1, 2, 4, 5, 6]}
    with pytest.raises(ValueError, match="cannot prune 6 of 5"):
        magnitude_masks(tensors(w=EIGHT), count=6, of="remaining", base=base)


def test_earlier_masks_are_not_changed():
    base = magnitude_masks(tensors(w=EIGHT), 0.25)
    before = base["w"].clone()
    magnitude_masks(tensors(w=EIGHT), 0.75, base=base)
    assert torch.equal(base["w"], before)


# Structures


def test_block4_prunes_four_inputs_at_once():
    weights = tensors(w=[[1] * 4 + [5] * 4, [2] * 4 + [3] * 4])
    assert kept(magnitude_masks(weights, 0.5, structure="block4")) == [[0] * 4 + [1] * 4] * 2


def test_a_block_spans_outputs_and_inputs():
    weights = tensors(w=[[9, 9, 1, 1], [9, 9, 1, 1], [2, 2, 8, 8], [2, 2, 8, 8]])
    assert kept(magnitude_masks(weights, 0.5, structure=(2, 2))) == [[1, 1, 0, 0]] * 2 + [[0, 0, 1, 1]] * 2


def test_a_block_at_the_edge_is_smaller_and_ranked_by_its_mean():
    weights = tensors(w=[[2, 2, 2, 2, 1], [4, 4, 4, 4, 3]])
    assert kept(magnitude_masks(weights, 0.5, structure="block4")) == [[0] * 5, [1] * 5]


def test_a_block_of_a_convolution_holds_one_place_of_the_kernel():
    weight = torch.ones(2, 4, 1, 2)
    weight[0, :, 0, 1] = 0.1
    weight[1, :, 0, 0] = 0.2
    mask = magnitude_masks({"w": weight}, 0.5, structure="block4")["w"]
    assert mask[:, 0, 0].tolist() == [[True, False], [False, True]]
    assert torch.equal(mask, mask[:, :1].expand(-1, 4, -1, -1))


def test_of_four_neighbours_the_two_largest_stay():
    weights = tensors(w=[[1, -4, 2, 3], [8, 7, -6, 5]])
    assert kept(magnitude_masks(weights, structure="2:4")) == [[0, 1, 0, 1], [1, 1, 0, 0]]
    assert kept(magnitude_masks(weights, 0.5, structure="2:4")) == [[0, 1, 0, 1], [1, 1, 0, 0]]
    assert kept(magnitude_masks(weights, 0.0, structure="2:4")) == [[1] * 4] * 2


def test_neighbours_are_inputs_and_a_short_rest_keeps_its_share():
    mask = magnitude_masks({"w": torch.rand(3, 6, 2, 2)}, structure="2:4")["w"]
    assert mask[:, :4].sum(dim=1).eq(2).all()
    assert mask[:, 4:].all()


def test_n_of_m_keeps_what_is_pruned_pruned():
    base = {"w": torch.tensor([[True, False, True, True]])}
    assert kept(magnitude_masks(tensors(w=[[1, 4, 2, 3]]), structure="2:4", base=base)) == [[0, 0, 1, 1]]


def test_filters_and_channels_go_by_their_norm():
    weights = tensors(w=[[1, 0], [3, 4], [0, 2], [5, 12]])
    assert kept(magnitude_masks(weights, 0.5, structure="filter", scope="local")) == [[0, 0], [1, 1]] * 2
    assert kept(magnitude_masks(weights, 0.5, structure="channel", scope="local")) == [[0, 1]] * 4


def test_slices_along_any_dimension_with_any_norm():
    weights = tensors(w=[[3, 2], [0, 2]])  # columns: 3 and 4 by L1, 3 and 2.83 by L2
    by_l1 = magnitude_masks(weights, 0.5, structure=Slices(-1, norm=1), scope="local")
    by_l2 = magnitude_masks(weights, 0.5, structure=Slices(-1, norm=2), scope="local")
    assert (kept(by_l1), kept(by_l2)) == ([[0, 1], [0, 1]], [[1, 0], [1, 0]])


def test_filters_count_what_earlier_masks_pruned_whole():
    weights = {"w": torch.arange(8.0).reshape(4, 2)}
    base = magnitude_masks(weights, 0.25, structure="filter", scope="local")
    more = magnitude_masks(weights, count=1, of="remaining", structure="filter", scope="local", base=base)
    assert kept(more) == [[0, 0], [0, 0], [1, 1], [1, 1]]


@given(
    shape=st.tuples(st.integers(1, 9), st.integers(1, 9), st.integers(1, 3)),
    structure=st.sampled_from(["filter", "channel", "block4", (2, 3), (-1, 2)]),
    fraction=st.floats(0, 1),
)
def test_a_structure_is_kept_or_pruned_as_a_whole(shape, structure, fraction):
    weight = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    mask = magnitude_masks({"w": weight}, fraction, structure=structure, scope="local")["w"]
    assert mask.shape == weight.shape
    extents = {"filter": (1, -1, -1), "channel": (-1, 1, -1), "block4": (1, 4, 1)} | {
        (2, 3): (2, 3, 1),
        (-1, 2): (-1, 2, 1),
    }
    sizes = [n if e == -1 else e for n, e in zip(shape, extents[structure], strict=True)]
    parts = [mask]
    for dim, size in enumerate(sizes):
        parts = [piece for part in parts for piece in part.split(size, dim=dim)]
    assert all(bool(part.all()) or not bool(part.any()) for part in parts)
    assert sum(not bool(part.any()) for part in parts) == round(len(parts) * fraction)


# Applying and counting


def test_applying_masks_zeroes_the_weights_and_nothing_else():
    net = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2))
    bias = net[0].bias.detach().clone()
    masks = magnitude_masks(prunable_parameters(net), 0.5)
    apply_masks(net, masks)
    for i, layer in enumerate(net):
        assert int((layer.weight == 0).sum()) == len(zeros(masks)[f"{i}.weight"])
    assert torch.equal(net[0].bias, bias)
    assert sparsity(masks) == 0.5


def test_a_mask_for_an_unknown_parameter_is_an_error():
    with pytest.raises(ValueError, match=r"mask for unknown parameter 'wieght'.*'weight'"):
        apply_masks(nn.Linear(2, 2), {"wieght": torch.ones(2, 2, dtype=torch.bool)})


def test_no_masks_have_sparsity_zero():
    assert sparsity({}) == 0.0
    assert magnitude_masks({}, 0.5) == {}


# Errors


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "either sparsity or count"),
        ({"sparsity": 0.5, "count": 3}, "either sparsity or count"),
        ({"sparsity": 1.5}, r"sparsity must be in \[0, 1\], got 1.5"),
        ({"sparsity": -0.1}, r"sparsity must be in \[0, 1\], got -0.1"),
        ({"sparsity": math.nan}, r"sparsity must be in \[0, 1\], got nan"),
        ({"count": -1}, "count must be 0 or more"),
        ({"count": 9}, "cannot prune 9 of 8"),
        ({"sparsity": 0.5, "scope": "all"}, "scope must be 'global' or 'local', got 'all'"),
        ({"sparsity": 0.5, "of": "some"}, "of must be 'all' or 'remaining', got 'some'"),
        ({"sparsity": 0.5, "structure": "row"}, "structure must be .* got 'row'"),
        ({"sparsity": 0.5, "structure": (0, 2)}, r"structure must be .* got \(0, 2\)"),
        ({"sparsity": 0.5, "structure": "filter"}, "scope must be 'local'"),
        ({"sparsity": 0.5, "structure": Slices(2), "scope": "local"}, "along dimension 2"),
        ({"sparsity": 0.75, "structure": "2:4"}, "2:4 prunes 0.5 of the weights, got sparsity 0.75"),
        ({"count": 2, "structure": "2:4"}, "takes no count"),
        ({"structure": "4:4"}, "needs 0 < N < M"),
    ],
)
def test_a_wrong_amount_or_structure_is_a_value_error(arguments, message):
    with pytest.raises(ValueError, match=message):
        magnitude_masks(tensors(w=[EIGHT[:4], EIGHT[4:]]), **arguments)
