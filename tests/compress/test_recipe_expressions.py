"""eval(...) in recipes: arithmetic and nothing else."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparsemod.compress.expressions import evaluate, names
from sparsemod.compress.recipe_errors import RecipeEvalError


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("7//2", 3),
        ("10/4", 2.5),
        ("round(2.567,2)", 2.57),
        ("-n + 20", 10),
        ("2*-n", -20),
        ("--n", 10),
        ("n**2", 100),
        ("-2**2", -4),
        ("2**-1", 0.5),
        ("2**3**2", 512),
        ("7 % 4", 3),
        ("(1 + 2) * 3", 9),
        ("10 - 2 - 3", 5),
        ("100 / 10 / 5", 2.0),
        ("max(n, 3)//7", 1),
        ("min(4, n, 3.5)", 3.5),
        ("abs(-3)", 3),
        ("int(2.7)", 2),
        ("float(2)", 2.0),
        ("1e-3 * 2", 0.002),
        (".5 + 1.", 1.5),
    ],
)
def test_expression_has_the_value_that_python_gives(expression, value):
    result = evaluate(expression, {"n": 10})
    assert result == value
    assert type(result) is type(value)


@pytest.mark.parametrize(
    "expression",
    [
        "2^3", "[1,2]", "a.b", "n.real", "'text'", "n if n else 1", "n > 3", "n == 3", "lambda: 1", "n;n",
        "__import__('os').system('true')", "open(n)", "n n", "1 2", "", "()", "max()", "max(1,2,)", "(1",
        "1)",
        "+", "unknown + 1", "True + 1", "1_000", "2 ** ", "round(1, 2, 3)", "n = 3", "1.5.2", "words + 1",
        "flag + 1",
    ],
)  # fmt: skip
def test_anything_but_arithmetic_is_refused(expression):
    with pytest.raises(RuntimeError, match=r"eval\("):
        evaluate(expression, {"n": 10, "words": ["a"], "flag": True})


@pytest.mark.parametrize(
    "expression",
    [
        "9**9**9**9", "n**n**n", "round(5, -1000000000)", "1e400", "int(1e300)*int(1e300)", "2.0**5000",
        "9" * 900,
        "(" * 200 + "1" + ")" * 200, "-" * 200 + "1", "1+" * 5000 + "1", "max(" * 100 + "1" + ")" * 100,
    ],
)  # fmt: skip
def test_what_would_take_for_ever_is_refused(expression):
    with pytest.raises(RecipeEvalError):
        evaluate(expression, {"n": 10**9})


@pytest.mark.parametrize("expression", ["1/0", "1//0", "1%0", "0**-1", "(-1)**0.5", "int(1e400)"])
def test_value_that_is_no_finite_real_number_is_refused(expression):
    with pytest.raises(RuntimeError):
        evaluate(expression, {})


@pytest.mark.parametrize("value", [["re:.*weight"], "cosine", True, None, {"gamma": 0.1}])
def test_a_lone_name_may_stand_for_anything(value):
    assert evaluate(" it ", {"it": value}) == value


def test_unknown_variable_names_the_nearest_one():
    with pytest.raises(RuntimeError, match="did you mean 'num_epochs'"):
        evaluate("num_epoch * 2", {"num_epochs": 3})


def test_errors_are_one_short_line():
    with pytest.raises(RuntimeError) as caught:
        evaluate("1 + " * 200 + "\n x ! y", {"x": 1})
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 200


def test_names_are_the_variables_without_the_functions():
    assert names("max(a, b2) * round(c_d) + 1e3") == {"a", "b2", "c_d"}


@given(st.recursive(
    st.one_of(st.integers(0, 50).map(str), st.sampled_from(["n", "x"])),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["+", "-", "*", "/", "//", "%"]), inner).map(" ".join),
        inner.map("({})".format),
        inner.map("-{}".format),
        st.tuples(inner, inner).map(lambda two: f"max({two[0]}, {two[1]})"),
    ),
    max_leaves=8,
))  # fmt: skip
def test_agrees_with_python_on_generated_arithmetic(expression):
    variables = {"n": 7, "x": 2.5}
    try:
        expected = eval(expression, {"__builtins__": {}, "max": max}, variables)
    except ZeroDivisionError:
        with pytest.raises(RecipeEvalError):
            evaluate(expression, variables)
        return
    assert math.isclose(evaluate(expression, variables), expected)
