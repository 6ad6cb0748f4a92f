"""The methods that `search_quality.py` compares: ours, and what else is used for such searches.

Every method gets the same space and the same function to call: a configuration goes in, the logarithms of
its objectives come out (our own search works on logarithms too). A configuration that a method asks for
again is answered from memory and not counted, so the evaluations of every method are different networks.
Population sizes are 20: of the defaults (50 and 100) less than three generations would fit.
"""

from __future__ import annotations

import logging
import math
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sparsemod.candidate import Arm, Candidate, Evaluation, Parametrization, Status
from sparsemod.search.bayes import BayesStrategy
from sparsemod.search.morph import MorphStrategy
from sparsemod.search.sobol import SobolStrategy
from sparsemod.search.strategy import Problem, Strategy
from sparsemod.space.parameters import Choice, Fixed, Range
from sparsemod.space.space import Space

POPULATION = 20
_REPEATS = 40  # calls a counted evaluation, after which a method that only repeats itself is stopped

Evaluate = Callable[[Candidate, int], Evaluation]


class FinishedError(Exception):
    """The evaluations are used up."""


@dataclass
class Recorder:
    """Counts, times and remembers the evaluations of one run."""

    problem: Problem
    evaluate: Evaluate
    n: int
    arms: list[Arm] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    calls: int = 0

    def __post_init__(self) -> None:
        self.known: dict[tuple[object, ...], list[float]] = {}
        self._start = time.process_time()

    def add(self, candidate: Candidate, epochs: int = 1) -> None:
        """Evaluate a candidate that is known to be new."""
        now = time.process_time()
        evaluation = self.evaluate(candidate, len(self.arms))
        self.arms.append(
            Arm(f"{len(self.arms)}_0", candidate, len(self.arms), epochs, len(self.arms), evaluation)
        )
        self.seconds.append(now - self._start)
        logs = [math.log(max(evaluation.objective(name), 1e-4)) for name in self.problem.objectives]
        failed = evaluation.status is not Status.COMPLETED
        worst = [0.0, *(math.log(1e7) for _ in logs[1:])]
        self.known[self.problem.space.key(candidate.parametrization)] = worst if failed else logs
        self._start = time.process_time()

    def __call__(self, params: Parametrization, stage: int = 1) -> list[float]:
        """Return the logarithms of the objectives of a configuration, new or not."""
        key = self.problem.space.key(params)
        self.calls += 1
        if key not in self.known:
            if len(self.arms) >= self.n:
                raise FinishedError
            self.add(Candidate(dict(params), stage, "peer"))
        elif self.calls > _REPEATS * self.n:
            raise FinishedError
        return self.known[key]


def ours(recorder: Recorder, stages: tuple[int, int, int], kernel: Any = "matern", batch: int = 1) -> None:
    """Run the three strategies for so many arms each."""
    strategies: tuple[Strategy, ...] = (SobolStrategy(), BayesStrategy(kernel), MorphStrategy(kernel))
    for strategy, n in zip(strategies, stages, strict=True):
        until = min(len(recorder.arms) + n, recorder.n)
        while len(recorder.arms) < until:
            for candidate in strategy.ask(
                min(batch, until - len(recorder.arms)), recorder.arms, recorder.problem
            ):
                recorder.add(candidate, recorder.problem.epochs)


def random(recorder: Recorder) -> None:
    """Draw uniformly."""
    space, rng = recorder.problem.space, np.random.default_rng(recorder.problem.seed)
    while True:
        recorder(space.from_unit(rng.random(space.n_unit)))


def optuna(recorder: Recorder, sampler: str) -> None:
    """Run an Optuna sampler: ``nsga2``, ``tpe`` (multivariate, with groups) or ``gp``."""
    import optuna as library

    library.logging.set_verbosity(library.logging.ERROR)
    warnings.simplefilter("ignore")
    seed = recorder.problem.seed
    make: Mapping[str, Callable[[], Any]] = {
        "nsga2": lambda: library.samplers.NSGAIISampler(population_size=POPULATION, seed=seed),
        "tpe": lambda: library.samplers.TPESampler(multivariate=True, group=True, seed=seed),
        "gp": lambda: library.samplers.GPSampler(seed=seed, deterministic_objective=False),
    }
    n = len(recorder.problem.objectives)
    study = library.create_study(directions=["minimize"] * n, sampler=make[sampler]())
    while True:
        trial = study.ask()
        study.tell(trial, recorder(_suggest(recorder.problem.space, trial)))


def pymoo(recorder: Recorder) -> None:
    """Run pymoo's NSGA-II for mixed variables on a space without conditions."""
    from pymoo.algorithms.moo.nsga2 import RankAndCrowdingSurvival
    from pymoo.core.mixed import MixedVariableGA
    from pymoo.core.problem import ElementwiseProblem
    from pymoo.core.variable import Choice as Label
    from pymoo.core.variable import Integer, Real
    from pymoo.optimize import minimize

    space = recorder.problem.space
    variables: dict[str, Any] = {}
    for name, p in space.tunable.items():
        if isinstance(p, Choice):
            variables[name] = Label(options=list(p.values))
        else:
            kind = Integer if p.type is int else Real
            variables[name] = kind(bounds=(p.lower, p.upper))

    class Networks(ElementwiseProblem):  # type: ignore[misc]
        def _evaluate(self, x: dict[str, Any], out: dict[str, Any], *_: Any, **__: Any) -> None:
            out["F"] = recorder(space.repair(x, np.random.default_rng(0)))

    networks = Networks(vars=variables, n_obj=len(recorder.problem.objectives))
    algorithm = MixedVariableGA(pop_size=POPULATION, survival=RankAndCrowdingSurvival())
    minimize(networks, algorithm, ("n_gen", _REPEATS * recorder.n), seed=recorder.problem.seed)


def ax(recorder: Recorder) -> None:
    """Run Ax's `Client` as it comes: Sobol, then its default generator of several objectives."""
    import torch
    from ax.api.client import Client

    logging.getLogger("ax").setLevel(logging.ERROR)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    space = recorder.problem.space
    client = Client(random_seed=recorder.problem.seed)
    client.configure_experiment(parameters=ax_parameters(space))
    client.configure_optimization(objective=", ".join(f"-{name}" for name in recorder.problem.objectives))
    while True:
        for index, params in client.get_next_trials(max_trials=1).items():
            values = recorder(space.repair(params, np.random.default_rng(0)))
            client.complete_trial(index, dict(zip(recorder.problem.objectives, values, strict=True)))


def ax_parameters(space: Space) -> list[Any]:
    """Describe the tunable parameters of a space without conditions to Ax's `Client`."""
    from ax.api.configs import ChoiceParameterConfig, RangeParameterConfig

    parameters: list[Any] = []
    for name, p in space.tunable.items():
        kind = {int: "int", float: "float", str: "str", bool: "bool"}[p.type]
        if isinstance(p, Choice):
            parameters.append(
                ChoiceParameterConfig(
                    name=name, parameter_type=kind, values=list(p.values), is_ordered=p.ordered
                )
            )
        else:
            parameters.append(
                RangeParameterConfig(
                    name=name,
                    parameter_type=kind,
                    bounds=(p.lower, p.upper),
                    scaling="log" if p.scale == "log" else "linear",
                )
            )
    return parameters


def _suggest(space: Space, trial: Any) -> dict[str, Any]:
    """Ask an Optuna trial for the active parameters, those that switch others on first."""
    params: dict[str, Any] = {name: p.value for name, p in space.parameters.items() if isinstance(p, Fixed)}
    while True:
        active = [name for name in space.tunable if name in space.active(params)]
        missing = [name for name in active if name not in params]
        if not missing:
            return space.repair(params, np.random.default_rng(0))
        for name in missing:
            p = space.tunable[name]
            if isinstance(p, Range):
                log = p.scale == "log"
                suggest = trial.suggest_int if p.type is int else trial.suggest_float
                params[name] = suggest(name, p.lower, p.upper, log=log)
            else:
                params[name] = trial.suggest_categorical(name, list(p.values))


METHODS: Mapping[str, Callable[[Recorder], None]] = {
    "random": random,
    "optuna-nsga2": lambda r: optuna(r, "nsga2"),
    "optuna-tpe": lambda r: optuna(r, "tpe"),
    "optuna-gp": lambda r: optuna(r, "gp"),
    "pymoo-nsga2": pymoo,
    "ax": ax,
}
