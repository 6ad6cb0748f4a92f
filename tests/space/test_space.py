"""Decoding, checks, repairs, activity, encodings and keys on spaces worked by hand."""

from collections import Counter

import numpy as np
import pytest
from ax.core.parameter import ChoiceParameter, DerivedParameter, FixedParameter, RangeParameter
from ax.core.search_space import HierarchicalSearchSpace, SearchSpace
from space_examples import (
    BOOL,
    FIXED,
    FLOAT,
    INT,
    STRING,
    ax_space,
    choice,
    integer,
    params,
    real,
    space,
    tree,
)

from sparsemod.errors import SpaceError
from sparsemod.space.space import Space


def rng(seed=0):
    return np.random.default_rng(seed)


def decoded(parameter, n):
    """The values of `n` points that are spread evenly over the unit interval."""
    one = space(parameter)
    return [one.from_unit([(i + 0.5) / n])[parameter.name] for i in range(n)]


# reading


@pytest.mark.parametrize("given", [None, [1, 2], {"lr": (0, 1)}, "space"])
def test_only_an_ax_search_space_is_read(given):
    with pytest.raises(
        SpaceError, match=f"^search space: expected an Ax SearchSpace, got {type(given).__name__}$"
    ):
        Space.from_ax(given)


def test_documented_space():
    one = space(integer("num_conv_blocks", 1, 2), real("drop_1", 0.1, 0.9))
    assert one.names == (*FIXED, "num_conv_blocks", "drop_1")
    assert one.n_unit == 2
    assert one.from_unit([0.5, 0.5]) == params(num_conv_blocks=2, drop_1=0.5)
    assert isinstance(one.ax, SearchSpace)
    assert one.mandatory == (
        "learning_rate",
        "learning_gamma",
        "learning_step",
        "prune_threshold",
        "batch_size",
    )


@pytest.mark.parametrize(
    ("parameter", "said"),
    [
        (real("x", 0, 1, is_fidelity=True, target_value=1.0), "'x' is a fidelity or task parameter"),
        (choice("x", ["a", "b"], is_task=True, target_value="a"), "'x' is a fidelity or task parameter"),
        (real("x", 0, float("inf")), r"'x': expected finite bounds with lower < upper, got \[0.0, inf\]"),
        (
            real("x", 0.04, 0.4, digits=1, log_scale=True),
            r"'x': a log scale cannot hold the bounds \[0.0, 0.4\]",
        ),
    ],
)
def test_parameters_that_cannot_be_searched(parameter, said):
    with pytest.raises(SpaceError, match=f"^search space: parameter {said}"):
        space(parameter)


def test_constraints_that_nothing_satisfies_are_refused_when_the_space_is_read():
    with pytest.raises(SpaceError, match=r"^search space: nothing satisfies - x - y <= -21$"):
        space(integer("x", 0, 10), integer("y", 0, 10), constraints=["x + y >= 21"])


def test_disabled_parameter_keeps_its_default():
    one = integer("x", 1, 5)
    one.disable(3)
    assert space(one).from_unit([])["x"] == 3


# decoding


def test_integers_share_the_unit_interval_evenly():
    assert Counter(decoded(integer("x", -2, 7), 1000)) == dict.fromkeys(range(-2, 8), 100)
    assert decoded(integer("x", 0, 1), 4) == [0, 0, 1, 1]


def test_ends_of_the_unit_interval_are_the_bounds():
    one = space(
        integer("i", 3, 9),
        real("f", -1, 2),
        real("log", 1e-4, 1e-1, log_scale=True),
        integer("l", 1, 100, log_scale=True),
    )
    low, high = one.from_unit([0.0] * 4), one.from_unit([np.nextafter(1.0, 0.0)] * 4)
    assert (low["i"], low["f"], low["log"], low["l"]) == (3, -1.0, pytest.approx(1e-4), 1)
    assert (high["i"], high["f"], high["log"], high["l"]) == (9, pytest.approx(2.0), pytest.approx(1e-1), 100)
    assert one.check(low) is None
    assert one.check(high) is None


def test_log_scales_are_even_in_the_logarithm():
    assert space(real("x", 1e-4, 1, log_scale=True)).from_unit([0.5])["x"] == pytest.approx(1e-2)
    counts = Counter(decoded(integer("x", 1, 100, log_scale=True), 10_000))
    share_of_one = np.log(1.5 / 0.5) / np.log(100.5 / 0.5)
    assert counts[1] == pytest.approx(10_000 * share_of_one, abs=2)
    assert set(counts) == set(range(1, 101))


def test_floats_with_digits_take_every_rounded_value_evenly():
    counts = Counter(decoded(real("x", 0.1, 0.5, digits=1), 500))
    assert counts == dict.fromkeys([0.1, 0.2, 0.3, 0.4, 0.5], 100)


def test_logit_scale():
    assert space(real("x", 0.01, 0.99, logit_scale=True)).from_unit([0.5])["x"] == pytest.approx(0.5)


def test_choices_share_the_unit_interval_evenly_and_keep_their_types():
    assert decoded(choice("x", ["a", "b", "c"]), 3) == ["a", "b", "c"]
    assert decoded(choice("x", [False, True], BOOL, ordered=True), 2) == [False, True]
    assert [type(v) for v in decoded(choice("x", [1, 2], FLOAT, ordered=True), 2)] == [float, float]


def test_number_of_coordinates_is_checked():
    with pytest.raises(ValueError, match=r"^from_unit: expected 1 coordinates, got 2$"):
        space(integer("x", 0, 1)).from_unit([0.1, 0.2])


# conditional parameters


def test_only_active_parameters_are_decoded():
    u = [0.0, 0.5, 0.9, 0.9, 0.9, 0.0]
    assert tree().from_unit(u) == params(block="conv", kernel=3, width=1)
    assert tree().from_unit([0.5, *u[1:]]) == params(block="pool", window=3, strided=True, stride=4, width=1)
    assert tree().from_unit([0.5, 0.5, 0.9, 0.0, *u[4:]]) == params(
        block="pool", window=3, strided=False, width=1
    )
    assert tree().from_unit([0.9, *u[1:]]) == params(block="none", width=1)


def test_deprecated_hierarchical_class_is_read_alike():
    plain = tree().ax
    old = HierarchicalSearchSpace(list(plain.parameters.values()))
    assert Space.from_ax(old).from_unit([0.0] * 6) == tree().from_unit([0.0] * 6)


def test_activity_and_encoding_of_inactive_parameters():
    one = tree()
    assert one.columns == ("block",) * 3 + ("kernel", "window", "strided", "stride", "width")
    rows = [params(block="conv", kernel=5, width=1), params(block="none", width=4)]
    assert one.activity(rows).tolist() == [
        [True, True, True, True, False, False, False, True],
        [True, True, True, False, False, False, False, True],
    ]
    assert one.encode(rows).tolist() == [
        [1.0, 0.0, 0.0, 1.0, 0.5, 0.5, 0.5, 0.0],
        [0.0, 0.0, 1.0, 0.5, 0.5, 0.5, 0.5, 1.0],
    ]


def test_check_says_what_is_missing_or_inactive():
    one = tree()
    assert one.check(params(block="conv", kernel=5, width=1)) is None
    assert one.check(params(block="conv", width=1)) == "kernel: missing"
    assert (
        one.check(params(block="none", kernel=5, width=1))
        == "kernel: inactive under these values, but present"
    )


def test_repair_drops_what_is_inactive_and_draws_what_became_active():
    repaired = tree().repair(params(block="pool", kernel=3, width=2), rng())
    assert "kernel" not in repaired
    assert {"window", "strided"} <= set(repaired)
    assert tree().check(repaired) is None


def test_inactive_values_do_not_tell_configurations_apart():
    one = tree()
    base = params(block="conv", kernel=5, width=1)
    assert one.key(base) == one.key({**base, "window": 2})
    assert one.key(base) != one.key({**base, "kernel": 4})


def test_fixed_parameter_with_dependents_keeps_them_active():
    switch = FixedParameter("mode", STRING, "full", dependents={"full": ["batch_size", "x"]})
    one = space(switch, integer("x", 1, 3))
    assert one.from_unit([0.0]) == params(mode="full", x=1)
    assert one.n_configurations == 3


# derived parameters


def test_derived_parameters_are_computed():
    one = space(
        integer("x", 1, 5), DerivedParameter("twice", INT, "2*x + 1"), DerivedParameter("copy", INT, "x")
    )
    assert one.n_unit == 1
    assert one.from_unit([0.0]) == params(x=1, twice=3, copy=1)
    assert one.check(params(x=2, twice=4, copy=2)) == "twice: 4 is not the derived value 5"
    assert one.repair(params(x=2, twice=4), rng()) == params(x=2, twice=5, copy=2)


def test_derived_parameter_of_an_inactive_one_is_inactive():
    one = space(
        choice("block", ["conv", "none"], dependents={"conv": ["x"]}),
        integer("x", 1, 5),
        DerivedParameter("twice", INT, "2*x"),
    )
    assert one.from_unit([0.9, 0.0]) == params(block="none")
    assert one.from_unit([0.0, 0.9]) == params(block="conv", x=5, twice=10)


# checks


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"n": 6}, "n: 6 is outside [1, 5]"),
        ({"n": 2.0}, "n: expected an integer, got 2.0"),
        ({"n": True}, "n: expected an integer, got True"),
        ({"n": np.int64(2)}, "n: expected an integer, got np.int64(2)"),
        ({"n": None}, "n: expected an integer, got None"),
        ({"f": -0.5}, "f: -0.5 is outside [0.0, 1.0]"),
        ({"f": float("nan")}, "f: nan is outside [0.0, 1.0]"),
        ({"f": "0.5"}, "f: expected a number, got '0.5'"),
        ({"f": 0.123}, "f: 0.123 has more than 2 digits"),
        ({"c": "d"}, "c: 'd' is none of 'a', 'b', 'c'"),
        ({"c": []}, "c: [] is none of 'a', 'b', 'c'"),
        ({"b": 1}, "b: 1 is none of False, True"),
        ({"batch_size": 32}, "batch_size: 32 is not the fixed value 16"),
        ({"m": 3}, "m: no parameter of the space"),
        ({"batchsize": 3}, "batchsize: no parameter of the space (did you mean 'batch_size'?)"),
    ],
)
def test_check_gives_the_reason(change, said):
    one = space(
        integer("n", 1, 5),
        real("f", 0, 1, digits=2),
        choice("c", ["a", "b", "c"]),
        choice("b", [False, True], BOOL, ordered=True),
    )
    valid = params(n=1, f=0.5, c="a", b=True)
    assert one.check(valid) is None
    assert one.check({**valid, "f": 1}) is None
    assert one.check({**valid, **change}) == said


@pytest.mark.parametrize(
    ("given", "becomes"),
    [
        ({"n": 9}, {"n": 5}),
        ({"n": -(10**400)}, {"n": 1}),
        ({"n": 2.5}, {"n": 3}),
        ({"n": 2.4}, {"n": 2}),
        ({"n": "3"}, {"n": 3}),
        ({"n": np.float32(3.2)}, {"n": 3}),
        ({"n": float("inf")}, {"n": 5}),
        ({"f": 2}, {"f": 1.0}),
        ({"f": 0.128}, {"f": 0.13}),
        ({"v": 5}, {"v": 4}),
        ({"v": 60}, {"v": 64}),
        ({"c": "a"}, {"c": "a"}),
        ({"b": 1}, {"b": True}),
        ({"batch_size": 999}, {"batch_size": 16}),
        ({"unknown": 1}, {}),
    ],
)
def test_repair_takes_the_nearest_value(given, becomes):
    one = space(
        integer("n", 1, 5),
        real("f", 0, 1, digits=2),
        choice("v", [1, 4, 16, 64], INT, ordered=True),
        choice("c", ["a", "b", "c"]),
        choice("b", [False, True], BOOL, ordered=True),
    )
    valid = params(n=2, f=0.5, v=4, c="b", b=False)
    repaired = one.repair({**valid, **given}, rng())
    assert repaired == {**valid, **becomes}
    assert all(type(repaired[name]) is type(valid[name]) for name in valid)


@pytest.mark.parametrize("unusable", [None, float("nan"), "word", [], object()])
def test_unusable_values_are_drawn(unusable):
    one = space(integer("n", 1, 100))
    drawn = {one.repair(params(n=unusable), rng(seed))["n"] for seed in range(20)}
    assert len(drawn) > 5


# constraints


def test_broken_constraint_is_told_and_repaired_by_the_least_change():
    one = space(integer("x", 0, 10), integer("y", 0, 10), constraints=["x <= y"])
    assert one.check(params(x=3, y=2)) == "constraint x - y <= 0 is broken: the left side is 1"
    repaired = one.repair(params(x=7, y=2), rng())
    assert one.check(repaired) is None
    assert abs(repaired["x"] - 7) + abs(repaired["y"] - 2) == 5


def test_sum_constraint_over_choices_and_floats_holds_exactly():
    one = space(
        integer("x", 0, 10),
        choice("v", [1, 2, 4, 8], INT, ordered=True, log_scale=False),
        real("f", 0, 1, digits=2),
        constraints=["x + v <= 6.5", "x + v + 10*f >= 14"],
    )
    for seed in range(20):
        repaired = one.repair(one.from_unit(rng(seed).random(3)), rng())
        assert repaired["x"] + repaired["v"] <= 6
        assert repaired["x"] + repaired["v"] + 10 * repaired["f"] >= 14 - 1e-8


def test_equality_over_floats_holds():
    one = space(real("a", 0, 1), real("b", 0, 1), real("c", 0, 1), equalities=["a + b + c == 1"])
    for seed in range(20):
        repaired = one.repair(one.from_unit(rng(seed).random(3)), rng())
        assert repaired["a"] + repaired["b"] + repaired["c"] == pytest.approx(1, abs=1e-8)
        child = one.mutate(repaired, rng(seed))
        assert child["a"] + child["b"] + child["c"] == pytest.approx(1, abs=1e-8)


def test_constraint_on_an_inactive_parameter_holds_nothing_back():
    one = space(
        choice("block", ["conv", "none"], dependents={"conv": ["x"]}),
        integer("x", 1, 9),
        integer("y", 1, 9),
        constraints=["x + y <= 5"],
    )
    assert one.check(params(block="none", y=9)) is None
    assert "constraint" in one.check(params(block="conv", x=1, y=9))


def test_switch_is_turned_when_nothing_below_it_fits():
    one = space(
        choice("depth", [1, 2, 3], INT, ordered=True, log_scale=False, dependents={3: ["x"]}),
        integer("x", 1, 9),
        integer("y", 1, 9),
        constraints=["x + y >= 19", "depth + y <= 12"],
    )
    assert one.repair(params(depth=3, x=9, y=9), rng())["depth"] < 3


# mutations


def test_mutation_changes_as_many_as_asked():
    one = space(*(integer(f"x{i}", 0, 9) for i in range(6)))
    parent = one.from_unit([0.5] * 6)
    for n in (1, 3, 6, 9):
        child = one.mutate(parent, rng(n), n)
        assert sum(child[name] != parent[name] for name in parent) == min(n, 6)


def test_mutations_reach_every_value_and_prefer_near_ones():
    one = space(integer("x", 0, 99))
    steps = [abs(one.mutate(params(x=50), rng(seed))["x"] - 50) for seed in range(600)]
    assert min(steps) >= 1
    assert max(steps) > 40
    assert np.mean(np.array(steps) <= 20) > 0.5  # 0.41 if every value were as likely


def test_mutation_of_a_switch_draws_what_it_activates():
    one = tree()
    seen = {one.mutate(params(block="none", width=2), rng(seed))["block"] for seed in range(60)}
    assert seen == {"conv", "pool", "none"}


def test_there_may_be_no_other_configuration():
    with pytest.raises(SpaceError, match="found no other configuration"):
        space().mutate(params(), rng())
    one = space(integer("x", 0, 5), integer("y", 0, 5), constraints=["x + y >= 10"])
    with pytest.raises(SpaceError, match="found no other configuration"):
        one.mutate(params(x=5, y=5), rng())


def test_mutating_nothing_is_refused():
    with pytest.raises(ValueError, match=r"^mutate: expected n of 1 or more, got 0$"):
        tree().mutate(params(block="none", width=2), rng(), 0)


# encodings and keys


def test_encoding_by_hand():
    one = space(
        integer("i", 0, 4),
        real("log", 1e-4, 1, log_scale=True),
        choice("sizes", [1, 10, 100], INT, ordered=True, log_scale=True),
        choice("plain", [0, 1, 4], INT, ordered=True),
        choice("grade", ["low", "mid", "high"], ordered=True),
        choice("kind", ["a", "b", "c"]),
    )
    row = params(i=1, log=1e-1, sizes=10, plain=1, grade="mid", kind="c")
    np.testing.assert_allclose(one.encode([row]), [[0.25, 0.75, 0.5, 0.25, 0.5, 0.0, 0.0, 1.0]])
    assert one.columns == ("i", "log", "sizes", "plain", "grade", "kind", "kind", "kind")


def test_no_configurations_and_no_parameters():
    one = tree()
    assert one.encode([]).shape == one.activity([]).shape == (0, 8)
    assert space().encode([params()]).shape == (1, 0)
    assert space().activity([params()]).shape == (1, 0)


def test_key_ignores_the_order_and_the_last_digits():
    one = space(real("a", 0, 1), real("b", 0, 1))
    assert one.key(params(a=0.1 + 0.2, b=1)) == one.key({"b": 1.0, "a": 0.3})
    assert one.key(params(a=0.3, b=0.5)) != one.key(params(a=0.3000001, b=0.5))
    assert hash(one.key(params(a=0.3, b=0.5))) == hash(one.key(params(a=0.3, b=0.5)))


# counting


def test_counts():
    assert space().n_configurations == 1
    assert space(integer("x", 1, 5), choice("c", ["a", "b", "c"])).n_configurations == 15
    assert space(real("x", 0, 1, digits=1)).n_configurations == 11
    assert space(real("x", 0, 1), integer("y", 0, 1)).n_configurations is None
    assert tree().n_configurations == (5 + 2 * (1 + 3) + 1) * 4
    assert space(integer("x", 1, 3), integer("y", 1, 3), constraints=["x <= y"]).n_configurations == 6
    large = space(*(integer(f"x{i}", 0, 9) for i in range(6)), constraints=["x0 <= x1"])
    assert large.n_configurations == 10**6


def test_listing():
    listed = list(space(integer("x", 1, 2), choice("c", ["a", "b"], ordered=True)).configurations())
    assert [(p["x"], p["c"]) for p in listed] == [(1, "a"), (1, "b"), (2, "a"), (2, "b")]
    with pytest.raises(ValueError, match="x: a continuous parameter has no list of values"):
        list(space(real("x", 0, 1)).configurations())


def test_ax_objects_do_not_leave_and_are_not_changed():
    ax = ax_space(integer("x", 1, 5), choice("c", ["a", "b", "c"]))
    before = repr(ax)
    one = Space.from_ax(ax)
    one.mutate(one.repair({}, rng()), rng())
    assert repr(ax) == before
    assert not any(isinstance(p, (RangeParameter, ChoiceParameter)) for p in one.parameters.values())
