"""Draws are a fixed sequence for a seed: spread evenly, valid, and independent of when they are asked for."""

# ruff: noqa: NPY002  (the global generators are what must not matter)

import random
from collections import Counter

import numpy as np
import pytest
import torch
from space_examples import choice, integer, params, real, space, tree
from torch.quasirandom import SobolEngine

from sparsemod.space.sampling import draw, draw_many


def test_draws_do_not_depend_on_what_was_drawn_before():
    one = tree()
    forwards = [draw(one, 7, i) for i in range(130)]
    backwards = [draw(one, 7, i) for i in reversed(range(130))]
    assert forwards == backwards[::-1]
    assert draw_many(one, 7, 60, 10) == forwards[60:70]
    assert draw(one, 7, 100_000) == draw(one, 7, 100_000)


def test_points_are_those_of_the_scrambled_sequence():
    one = space(real("x", 0, 1), real("y", 0, 1))
    points = SobolEngine(2, scramble=True, seed=3).draw(70, dtype=torch.float64).tolist()
    assert [[p["x"], p["y"]] for p in draw_many(one, 3, 0, 70)] == points


def test_another_seed_gives_another_sequence():
    one = space(integer("x", 0, 999))
    assert draw_many(one, 0, 0, 20) != draw_many(one, 1, 0, 20)


def test_every_value_of_each_parameter_gets_its_share():
    one = space(choice("c", ["a", "b", "c", "d"]), integer("x", 0, 7))
    drawn = draw_many(one, 5, 0, 64)
    assert set(Counter(p["c"] for p in drawn).values()) == {16}
    assert set(Counter(p["x"] for p in drawn).values()) == {8}


def test_global_generators_play_no_part_and_stay_as_they_are():
    one = tree()
    states = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()
    before = draw_many(one, 11, 0, 5)
    assert (random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()) == states
    with torch.random.fork_rng():
        torch.manual_seed(99)
        assert draw_many(one, 11, 0, 5) == before


def test_broken_constraints_are_drawn_anew_and_fill_what_is_allowed():
    one = space(integer("x", 0, 3), integer("y", 0, 3), integer("free", 0, 7), constraints=["x + y <= 3"])
    drawn = draw_many(one, 2, 0, 256)
    assert all(one.check(p) is None for p in drawn)
    counts = Counter((p["x"], p["y"]) for p in drawn)
    assert len(counts) == 10
    assert max(counts.values()) < 3 * min(counts.values())  # no heap on the edge of what is allowed
    assert set(Counter(p["free"] for p in drawn).values()) == {32}


def test_constraints_that_chance_cannot_meet_are_repaired():
    one = space(real("x", 0, 1), real("y", 0, 1), equalities=["x + y == 1"])
    assert all(one.check(p) is None for p in draw_many(one, 2, 0, 20))


def test_space_without_tunable_parameters_has_one_point():
    assert draw_many(space(), 0, 0, 2) == [params(), params()]


def test_more_parameters_than_the_sequence_has_dimensions(monkeypatch):
    monkeypatch.setattr(SobolEngine, "MAXDIM", 2)
    one = space(*(integer(f"x{i}", 0, 99) for i in range(3)))
    with pytest.warns(UserWarning, match="3 parameters exceed the 2 dimensions of a Sobol sequence"):
        drawn = draw_many(one, 0, 0, 10)
    with pytest.warns(UserWarning):
        assert draw_many(one, 0, 0, 10) == drawn
    assert len({one.key(p) for p in drawn}) == 10


def test_negative_index_is_refused():
    with pytest.raises(ValueError, match=r"^draw: expected an index of 0 or more, got -1$"):
        draw(tree(), 0, -1)
