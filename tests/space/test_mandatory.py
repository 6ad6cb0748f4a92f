"""The parameters that training reads are there, numeric, always active and usable."""

import pytest
from ax.core.parameter import DerivedParameter, FixedParameter
from space_examples import FIXED, FLOAT, INT, STRING, choice, integer, real, space

from sparsemod.errors import SpaceError


def fixed(name, value, kind=FLOAT):
    return {name: FixedParameter(name, kind, value)}


def test_all_missing_ones_are_named():
    with pytest.raises(SpaceError, match=r"^search space: missing the mandatory parameter learning_step$"):
        space(learning_step=None)
    with pytest.raises(SpaceError, match=r"missing the mandatory parameters learning_rate, prune_threshold$"):
        space(learning_rate=None, prune_threshold=None)
    with pytest.raises(SpaceError, match=r"parameters " + ", ".join(FIXED)):
        space(**dict.fromkeys(FIXED))


@pytest.mark.parametrize(
    ("parameter", "said"),
    [
        ({"learning_rate": real("learning_rate", 0, 0.1)}, "'learning_rate' must be above 0, got 0"),
        (fixed("learning_gamma", -0.5), "'learning_gamma' must be above 0, got -0.5"),
        (fixed("learning_step", 0, INT), "'learning_step' must be above 0, got 0"),
        (fixed("prune_threshold", 1.5), r"'prune_threshold' must lie in \[0, 1\], got \[1.5, 1.5\]"),
        (
            {"prune_threshold": real("prune_threshold", -0.1, 0.9)},
            r"'prune_threshold' must lie in \[0, 1\], got \[-0.1, 0.9\]",
        ),
        (fixed("batch_size", 16.0), "'batch_size' must be of ParameterType.INT, got float values"),
        ({"batch_size": integer("batch_size", 0, 8)}, "'batch_size' must be 1 or more, got 0"),
        (
            {"batch_size": choice("batch_size", ["16", "32"])},
            "'batch_size' must be numeric .* got str values",
        ),
        (fixed("learning_rate", "fast", STRING), "'learning_rate' must be numeric"),
    ],
)
def test_unusable_ones_are_refused(parameter, said):
    with pytest.raises(SpaceError, match=f"^search space: parameter {said}"):
        space(**parameter)


def test_conditional_one_is_refused():
    switch = choice("mode", ["slow", "fast"], dependents={"slow": ["learning_rate"]})
    with pytest.raises(SpaceError, match="'learning_rate' must always be active"):
        space(switch, learning_rate=real("learning_rate", 1e-4, 1e-1))
    derived = DerivedParameter("learning_rate", FLOAT, "0.1*x")
    with pytest.raises(SpaceError, match="'learning_rate' must always be active"):
        space(
            choice("mode", ["slow", "fast"], dependents={"slow": ["x"]}),
            integer("x", 1, 3),
            learning_rate=derived,
        )


def test_derived_one_is_judged_by_the_values_it_can_take():
    assert space(integer("x", 1, 3), batch_size=DerivedParameter("batch_size", INT, "8*x")).names
    with pytest.raises(SpaceError, match="'batch_size' must be 1 or more, got -2"):
        space(integer("x", 1, 3), batch_size=DerivedParameter("batch_size", INT, "1 - x"))


def test_every_kind_is_taken():
    assert space(
        learning_rate=real("learning_rate", 1e-4, 1e-1, log_scale=True),
        learning_gamma=real("learning_gamma", 0.1, 1.0),
        learning_step=integer("learning_step", 1, 10),
        prune_threshold=fixed("prune_threshold", 1, INT)["prune_threshold"],
        batch_size=choice("batch_size", [16, 32, 64], INT, ordered=True),
    )
