"""What holds for every search space: repairs are valid, mutations differ, encodings fit, and Ax agrees."""

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from space_examples import any_space, junk_params

from sparsemod.errors import SpaceError
from sparsemod.space.sampling import draw
from sparsemod.space.space import Space

NATIVE = (bool, int, float, str)
seeds = st.integers(0, 2**32)


def usable(ax_space):
    try:
        return Space.from_ax(ax_space)
    except SpaceError:
        assume(False)


def assert_valid(space, params):
    assert space.check(params) is None
    assert all(type(value) in NATIVE for value in params.values())
    assert list(params) == [name for name in space.names if name in params]
    if not (space.constraints and space.children):  # Ax cannot check a constraint on what is inactive
        assert space.ax.check_membership(params)


@given(any_space(), junk_params, seeds)
def test_repair_of_anything_is_valid_and_stable(ax_space, junk, seed):
    space = usable(ax_space)
    repaired = space.repair(junk, np.random.default_rng(seed))
    assert_valid(space, repaired)
    assert space.repair(repaired, np.random.default_rng(seed + 1)) == repaired
    assert space.repair(junk, np.random.default_rng(seed)) == repaired


@given(any_space(), st.lists(st.floats(0, 1, exclude_max=True), min_size=7, max_size=7), seeds)
def test_repair_keeps_whatever_the_constraints_allow(ax_space, u, seed):
    space = usable(ax_space)
    params = space.from_unit(u[: space.n_unit])
    repaired = space.repair(params, np.random.default_rng(seed))
    if space.check(params) is None:
        assert_valid(space, params)
        assert repaired == params
    elif not space.children:
        assert {n: v for n, v in repaired.items() if n not in space.constrained} == {
            n: v for n, v in params.items() if n not in space.constrained
        }


@given(any_space(), st.integers(1, 4), seeds)
def test_mutations_are_valid_and_differ(ax_space, n, seed):
    space = usable(ax_space)
    parent = space.repair({}, np.random.default_rng(seed))
    before = dict(parent)
    try:
        child = space.mutate(parent, np.random.default_rng(seed), n)
    except SpaceError:
        assert space.constraints  # they may leave one configuration
        return
    assert parent == before
    assert_valid(space, child)
    assert space.key(child) != space.key(parent)
    assert space.mutate(parent, np.random.default_rng(seed), n) == child
    if not space.constraints and not space.children:
        assert sum(child[name] != parent[name] for name in child) == min(n, space.n_unit)


@given(any_space(), seeds)
def test_encodings_lie_in_the_unit_cube_and_tell_configurations_apart(ax_space, seed):
    space = usable(ax_space)
    rng = np.random.default_rng(seed)
    configurations = [space.repair({}, rng) for _ in range(4)]
    rows, active = space.encode(configurations), space.activity(configurations)
    assert rows.shape == active.shape == (4, len(space.columns))
    assert rows.dtype == np.float64
    assert active.dtype == bool
    assert ((rows >= 0) & (rows <= 1)).all()
    for i, one in enumerate(configurations):
        for j, other in enumerate(configurations):
            same = bool((rows[i] == rows[j]).all() and (active[i] == active[j]).all())
            if space.key(one) == space.key(other):
                np.testing.assert_allclose(rows[i], rows[j], atol=1e-9)
            elif all(p.type is not float for p in space.tunable.values()):
                assert not same
        assert {name for name, on in zip(space.columns, active[i], strict=True) if on} == set(one) & set(
            space.tunable
        )


@given(any_space(), seeds)
def test_unit_values_go_back_to_where_they_came_from(ax_space, seed):
    space = usable(ax_space)
    rng = np.random.default_rng(seed)
    for parameter in space.tunable.values():
        for u in (0.0, rng.random(), np.nextafter(1.0, 0.0)):
            value = parameter.from_unit(u)
            assert parameter.problem(value) is None
            again = parameter.from_unit(min(parameter.to_unit(value), np.nextafter(1.0, 0.0)))
            if parameter.type is float:
                np.testing.assert_allclose(again, value, rtol=1e-9, atol=1e-9)
            else:
                assert again == value


@settings(max_examples=30)
@given(any_space(), st.integers(0, 1000), seeds)
def test_draws_are_valid(ax_space, index, seed):
    space = usable(ax_space)
    params = draw(space, seed, index)
    assert_valid(space, params)
    assert draw(space, seed, index) == params


@settings(max_examples=60)
@given(any_space())
def test_listed_configurations_are_as_many_as_counted(ax_space):
    space = usable(ax_space)
    n = space.n_configurations
    assert (n is None) == any(p.n_values is None for p in space.tunable.values())
    if n is not None and n <= 300:
        listed = list(space.configurations())
        assert all(space.check(params) is None for params in listed)
        assert len({space.key(params) for params in listed}) == len(listed) == n
