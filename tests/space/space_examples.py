"""Search spaces that the tests of the space share."""

import warnings

from ax.core.parameter import ChoiceParameter, FixedParameter, ParameterType, RangeParameter
from ax.core.parameter_constraint import ParameterConstraint
from ax.core.search_space import SearchSpace
from hypothesis import strategies as st

from sparsemod.space.space import Space

BOOL, INT, FLOAT, STRING = ParameterType.BOOL, ParameterType.INT, ParameterType.FLOAT, ParameterType.STRING
FIXED = {
    "learning_rate": 0.01,
    "learning_gamma": 0.9,
    "learning_step": 1.0,
    "prune_threshold": 0.5,
    "batch_size": 16,
}


def integer(name, lower, upper, **more):
    return RangeParameter(name, INT, lower, upper, **more)


def real(name, lower, upper, **more):
    return RangeParameter(name, FLOAT, lower, upper, **more)


def choice(name, values, kind=STRING, *, ordered=False, **more):
    sort = kind in (INT, FLOAT)
    return ChoiceParameter(name, kind, values, is_ordered=ordered, sort_values=sort, **more)


def mandatory(**changes):
    """The mandatory parameters, fixed; `changes` replace or (with None) leave out some."""
    fixed = {
        name: FixedParameter(name, INT if isinstance(value, int) else FLOAT, value)
        for name, value in FIXED.items()
    }
    return [p for p in {**fixed, **changes}.values() if p is not None]


def ax_space(*parameters, constraints=(), equalities=(), **changes):
    return SearchSpace(
        [*mandatory(**changes), *parameters],
        [*map(ParameterConstraint, constraints), *(ParameterConstraint(equality=e) for e in equalities)],
    )


def space(*parameters, **more):
    """A `Space` of the mandatory parameters, fixed, and these."""
    return Space.from_ax(ax_space(*parameters, **more))


def params(**values):
    """The fixed mandatory parameters and these."""
    return {**FIXED, **values}


def tree():
    """A block that is a convolution with a kernel, a pool with a window and perhaps a stride, or nothing."""
    return space(
        choice(
            "block", ["conv", "pool", "none"], dependents={"conv": ["kernel"], "pool": ["window", "strided"]}
        ),
        integer("kernel", 1, 5),
        integer("window", 2, 3),
        choice("strided", [False, True], BOOL, ordered=True, dependents={True: ["stride"]}),
        integer("stride", 2, 4),
        integer("width", 1, 4),
    )


@st.composite
def any_parameter(draw, name):
    kind = draw(
        st.sampled_from(
            ["int", "log int", "float", "log float", "digits", "logit", "values", "words", "bool"]
        )
    )
    low = draw(st.integers(-5, 5))
    wide = low + draw(st.integers(1, 30))
    match kind:
        case "int":
            return integer(name, low, wide)
        case "log int":
            return integer(name, 1 + low % 3, 40 + wide, log_scale=True)
        case "float":
            return real(name, low / 3, wide / 3)
        case "log float":
            return real(name, 10.0 ** (low - 6), 10.0 ** max(low, -3), log_scale=True)
        case "digits":
            return real(name, low, wide, digits=draw(st.integers(0, 3)))
        case "logit":
            return real(name, 0.01, 0.5 + draw(st.integers(1, 49)) / 100, logit_scale=True)
        case "values":
            values = draw(st.lists(st.integers(-9, 99), min_size=2, max_size=5, unique=True))
            return choice(name, values, draw(st.sampled_from([INT, FLOAT])), ordered=draw(st.booleans()))
        case "words":
            return choice(name, list("abcde")[: draw(st.integers(2, 5))], ordered=draw(st.booleans()))
    return choice(name, [False, True], BOOL, ordered=True)


@st.composite
def any_space(draw):
    """Flat and hierarchical spaces of every kind of parameter, with linear constraints that can be met."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        parameters = [draw(any_parameter(f"p{i}")) for i in range(draw(st.integers(1, 6)))]
        if draw(st.booleans()):
            half = [f"p{i}" for i in range(len(parameters)) if i % 2]
            dependents = {"on": half} if half else None
            parameters.append(choice("switch", ["on", "off", "idle"], dependents=dependents))
        linear = [
            p
            for p in parameters
            if p.is_numeric and not p.log_scale and (isinstance(p, RangeParameter) or p.is_ordered)
        ]
        constraints, equalities = [], []
        for _ in range(draw(st.integers(0, 3)) if len(linear) > 1 else 0):
            chosen = draw(
                st.lists(st.sampled_from(linear), min_size=2, max_size=3, unique_by=lambda p: p.name)
            )
            weights = [draw(st.sampled_from([-2, -1, 1, 2, 0.5])) for _ in chosen]
            # a bound that the middle of all values meets, or nearly
            inside = sum(w * _some_value(draw, p) for w, p in zip(weights, chosen, strict=True))
            left = " + ".join(f"{w}*{p.name}" for w, p in zip(weights, chosen, strict=True))
            if draw(st.integers(0, 5)):
                constraints.append(f"{left} <= {inside}")
            elif not equalities:
                equalities.append(f"{left} == {inside}")
        return ax_space(*parameters, constraints=constraints, equalities=equalities)


def _some_value(draw, parameter):
    if isinstance(parameter, ChoiceParameter):
        return draw(st.sampled_from(parameter.values))
    step = 10.0 ** -(parameter.digits or 0)
    steps = draw(st.integers(0, int((parameter.upper - parameter.lower) / step)))
    return round(parameter.lower + steps * step, 6)


junk = (
    st.none()
    | st.booleans()
    | st.integers(-(10**400), 10**400)
    | st.integers(-50, 150)
    | st.floats()
    | st.text(max_size=3)
    | st.sampled_from(["3", "on", "off", "a", [], [1], {}, object(), b"1", 1j])
)
junk_params = st.dictionaries(
    st.sampled_from([f"p{i}" for i in range(7)] + ["switch", "batch_size", "x"]), junk, max_size=9
)
