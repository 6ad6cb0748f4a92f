import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparsemod.measure.memory import live_bytes, plan_arena


def test_two_tensors_that_live_together_are_rounded_up_and_stacked():
    arena = plan_arena([100, 60], [0, 0], [1, 1])
    assert arena.offsets == (0, 112)
    assert arena.n_bytes == 176


def test_a_chain_uses_the_ends_of_the_arena_in_turn():
    # sizes 32, 64, 16, 48; each tensor lives from its writer to its reader
    arena = plan_arena([32, 64, 16, 48], [0, 0, 1, 2], [0, 1, 2, 3])
    # 64 first at 0; 48 never meets it: 0; 32 meets 64: 64; 16 meets 64 and 48: 64
    assert arena.offsets == (64, 0, 64, 0)
    assert arena.n_bytes == 96


def test_of_equal_tensors_the_later_is_placed_first():
    assert plan_arena([16, 16, 16], [0, 0, 0], [1, 1, 1]).offsets == (32, 16, 0)


def test_the_first_gap_that_is_large_enough_is_taken():
    # 0 and 1 lie at 0 and 64, 2 on top of 1 at 112; 0 is gone when 3 comes, which fits below 1
    arena = plan_arena([64, 48, 32, 16], [0, 0, 0, 2], [1, 3, 3, 3])
    assert arena.offsets == (0, 64, 112, 0)
    assert arena.n_bytes == 144


def test_the_greedy_plan_may_need_more_than_what_lives_at_one_time():
    sizes, first, last = [48, 32, 48, 64], [0, 1, 2, 3], [1, 2, 3, 3]
    assert live_bytes(sizes, first, last) == 112
    # 64 at 0, the later 48 on it at 64, the earlier 48 at 0; between them are 16 bytes, too few for the 32
    arena = plan_arena(sizes, first, last)
    assert arena.offsets == (0, 112, 64, 0)
    assert arena.n_bytes == 144


def test_nothing_needs_nothing():
    assert plan_arena([], [], []).n_bytes == 0


def test_lifetimes_for_every_size_are_required():
    with pytest.raises(ValueError, match="expected as many sizes as lifetimes, got 2, 1 and 2"):
        plan_arena([1, 2], [0], [0, 1])


BUFFERS = st.lists(
    st.tuples(st.integers(1, 500), st.integers(0, 8), st.integers(0, 4)), min_size=1, max_size=25
)


@given(BUFFERS, st.sampled_from([1, 4, 16]))
def test_a_plan_never_overlaps_and_never_beats_liveness(buffers, alignment):
    sizes = [size for size, _, _ in buffers]
    first = [start for _, start, _ in buffers]
    last = [start + length for _, start, length in buffers]
    arena = plan_arena(sizes, first, last, alignment)
    aligned = [-(-size // alignment) * alignment for size in sizes]
    for i in range(len(sizes)):
        assert arena.offsets[i] % alignment == 0
        assert arena.offsets[i] + aligned[i] <= arena.n_bytes
        for j in range(i):
            if first[i] <= last[j] and first[j] <= last[i]:
                below = arena.offsets[i] + aligned[i] <= arena.offsets[j]
                above = arena.offsets[j] + aligned[j] <= arena.offsets[i]
                assert below or above
    assert live_bytes(aligned, first, last) <= arena.n_bytes <= sum(aligned)


@given(BUFFERS)
def test_a_plan_is_a_function_of_its_arguments(buffers):
    arguments = [b[0] for b in buffers], [b[1] for b in buffers], [b[1] + b[2] for b in buffers]
    assert plan_arena(*arguments) == plan_arena(*arguments)
