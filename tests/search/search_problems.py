"""Small search problems with costs and errors by formula; nothing is built or trained."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from ax.core.parameter import ChoiceParameter, FixedParameter, ParameterType, RangeParameter
from ax.core.parameter_constraint import ParameterConstraint
from ax.core.search_space import SearchSpace

from sparsemod.candidate import (
    OBJECTIVES,
    Arm,
    Candidate,
    Constraints,
    Evaluation,
    Parametrization,
    Resources,
    Status,
)
from sparsemod.errors import CandidateError
from sparsemod.search.strategy import Problem, Strategy
from sparsemod.space.space import Space

INT, FLOAT, STRING, BOOL = ParameterType.INT, ParameterType.FLOAT, ParameterType.STRING, ParameterType.BOOL


def training(fixed: bool = False) -> list:
    """The five mandatory parameters; with `fixed`, nothing of them is searched."""
    if fixed:
        names = ("learning_rate", "learning_gamma", "learning_step", "prune_threshold")
        return [FixedParameter(n, FLOAT, 1.0) for n in names] + [FixedParameter("batch_size", INT, 32)]
    return [
        RangeParameter("learning_rate", FLOAT, 1e-4, 1e-1, log_scale=True),
        RangeParameter("learning_gamma", FLOAT, 0.1, 1.0),
        FixedParameter("learning_step", FLOAT, 1.0),
        RangeParameter("prune_threshold", FLOAT, 0.1, 0.9),
        ChoiceParameter("batch_size", INT, [16, 32, 64], is_ordered=True, sort_values=True),
    ]


def flat() -> Space:
    """Eight mixed parameters."""
    own = [
        RangeParameter("depth", INT, 1, 4),
        RangeParameter("width", INT, 2, 64, log_scale=True),
        ChoiceParameter("kind", STRING, ["full", "separable", "plain"], is_ordered=False, sort_values=False),
        RangeParameter("drop", FLOAT, 0.0, 0.5),
    ]
    return Space.from_ax(SearchSpace([*training(), *own]))


def hierarchical() -> Space:
    """Parameters that are active only under one value of another."""
    kind = ChoiceParameter(
        "kind",
        STRING,
        ["conv", "dense"],
        is_ordered=False,
        sort_values=False,
        dependents={"conv": ["width", "kernel"], "dense": ["units"]},
    )
    own = [
        RangeParameter("width", INT, 2, 64, log_scale=True),
        RangeParameter("kernel", INT, 2, 5),
        RangeParameter("units", INT, 4, 128, log_scale=True),
    ]
    root = FixedParameter("net", BOOL, True, dependents={True: [p.name for p in training()] + ["kind"]})
    return Space.from_ax(SearchSpace([root, kind, *own, *training()]))


def constrained() -> Space:
    """Two widths that together must not exceed 40, and a third that must not be below the first."""
    own = [RangeParameter(name, INT, 1, 32) for name in ("a", "b", "c")]
    limits = [
        ParameterConstraint(inequality="a + b <= 40"),
        ParameterConstraint(inequality="a <= c"),
    ]
    return Space.from_ax(SearchSpace([*training(), *own], parameter_constraints=limits))


def tiny() -> Space:
    """Six configurations."""
    own = [
        RangeParameter("depth", INT, 1, 3),
        ChoiceParameter("kind", STRING, ["full", "plain"], is_ordered=False, sort_values=False),
    ]
    return Space.from_ax(SearchSpace([*training(fixed=True), *own]))


def wide() -> Space:
    """Sixty-four parameters."""
    own = [RangeParameter(f"width_{i}", INT, 2, 64, log_scale=True) for i in range(30)]
    own += [RangeParameter(f"kernel_{i}", INT, 2, 5) for i in range(30)]
    return Space.from_ax(SearchSpace([*training(), *own]))


SPACES: dict[str, Callable[[], Space]] = {
    "flat": flat,
    "hierarchical": hierarchical,
    "constrained": constrained,
    "wide": wide,
}


def costs(params: Parametrization) -> Resources:
    """Costs that grow with every number of a network."""
    numbers = [float(v) for n, v in params.items() if isinstance(v, int) and n not in ("batch_size", "net")]
    total = sum(numbers) * (3.0 if params.get("kind") == "full" else 1.0)
    size = int(20 * total * float(params["prune_threshold"])) + 10
    ram = int(8 * max(numbers)) + int(params["batch_size"])
    return Resources(size, ram, 1e-6 * total**1.5, size, size, int(total), size, size, ram, ram)


def error(params: Parametrization) -> float:
    """An error that falls with size and wants a learning rate of 1e-2."""
    size = math.log(costs(params).model_size_bytes)
    return 0.02 + 0.9 / (1.0 + math.exp(size - 5.0 - 0.3 * (math.log10(float(params["learning_rate"])) + 2) ** 2))


def unbuildable(params: Parametrization) -> Resources:
    """A network that cannot be built."""
    raise CandidateError("Net raised ValueError: kernel larger than its input")


def grow(config: dict) -> dict:
    """Double the first number that is a width."""
    name = next(n for n in ("width", "units", "a", "width_0", "depth") if n in config)
    config[name] *= 2
    return config


def shrink(config: dict) -> dict:
    """Halve it."""
    name = next(n for n in ("width", "units", "a", "width_0", "depth") if n in config)
    config[name] //= 2
    return config


def learn_slower(config: dict) -> dict:
    """Halve the learning rate."""
    config["learning_rate"] /= 2
    return config


MORPHISMS = {"grow": grow, "shrink": shrink, "learn_slower": learn_slower}


def problem(
    space: Space,
    n_objectives: int = 2,
    limits: Constraints | None = None,
    seed: int = 0,
    epochs: int = 3,
    resources: Callable[[Parametrization], Resources] = costs,
    morphisms: dict | None = None,
) -> Problem:
    """Make a problem of the first objectives."""
    morphisms = MORPHISMS if morphisms is None else morphisms
    objectives = OBJECTIVES[:n_objectives]
    return Problem(space, objectives, resources, limits or Constraints(), seed, epochs, morphisms)


def trained(candidate: Candidate, index: int, epochs: int = 3) -> Arm:
    """Evaluate a candidate."""
    p = candidate.parametrization
    done = Evaluation(Status.COMPLETED, error=error(p), resources=costs(p), n_epochs=epochs, best_epoch=1)
    return Arm(f"{index}_0", candidate, index, epochs, index, done)


def failed(candidate: Candidate, index: int) -> Arm:
    """A candidate whose training failed."""
    return Arm(f"{index}_0", candidate, index, 3, index, Evaluation(Status.FAILED, reason="the loss is NaN"))


def pending(candidate: Candidate, index: int) -> Arm:
    """A candidate that is being trained."""
    return Arm(f"{index}_0", candidate, index, 3, index)


def run(strategy: Strategy, n: int, of: Problem, arms: Sequence[Arm] = (), batch: int = 1) -> list[Arm]:
    """Ask and train until `n` arms were added."""
    history = list(arms)
    while len(history) < len(arms) + n:
        for candidate in strategy.ask(batch, history, of):
            history.append(trained(candidate, len(history), of.epochs))
    return history
