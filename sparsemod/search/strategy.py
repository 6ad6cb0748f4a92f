"""What a search strategy is: a pure function from the history of a run to the candidates to try next.

A strategy proposes and never trains. It keeps nothing between two calls, so a resumed run is one more call
with the stored history, and a fourth strategy is a new module with a class of two attributes and one
method:

    @dataclass(frozen=True)
    class Mine:
        name: str = "mine"
        stage: int = 4

        def ask(self, n, history, problem):
            rng = generator(problem, self.stage, history)
            ...
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from sparsemod.candidate import OBJECTIVES, Arm, Candidate, Constraints, Parametrization, Resources
from sparsemod.errors import ConfigError, nearest
from sparsemod.space.space import Space

__all__ = ["Problem", "Strategy", "generator"]


@dataclass(frozen=True, slots=True)
class Problem:
    """What is searched, and what is known before anything is trained.

    Attributes:
        space: The configurations that are allowed.
        objectives: What is minimised: ``error`` and up to three of the costs, in the order of the run.
        resources: What a network costs, exactly, without training it (about 10 ms; whoever makes the problem
            caches it). Raises `CandidateError` for a network that cannot be built or measured.
        constraints: Limits on the costs, also on those that are no objective.
        seed: Seed of the run.
        epochs: Epochs that the candidates of this stage will be trained.
        morphisms: The user's operations, dict to dict, by name.
        chance_error: Error of guessing; a network that does no better is worth nothing.
    """

    space: Space
    objectives: tuple[str, ...]
    resources: Callable[[Parametrization], Resources]
    constraints: Constraints
    seed: int
    epochs: int
    morphisms: Mapping[str, Callable[[dict[str, Any]], dict[str, Any]]] = field(default_factory=dict)
    chance_error: float = 1.0

    def __post_init__(self) -> None:
        for name in self.objectives:
            if name not in OBJECTIVES:
                raise ConfigError(f"objectives: unknown objective '{name}'{nearest(name, OBJECTIVES)}")
        if "error" not in self.objectives or len(set(self.objectives)) != len(self.objectives):
            raise ConfigError(
                f"objectives: expected 'error' and different costs, got {', '.join(self.objectives)}"
            )

    @property
    def costs(self) -> tuple[str, ...]:
        """The objectives besides the error."""
        return tuple(name for name in self.objectives if name != "error")


class Strategy(Protocol):
    """Proposes candidates."""

    @property
    def name(self) -> str:
        """The name of the stage."""

    @property
    def stage(self) -> int:
        """The number of the stage, recorded with its candidates."""

    def ask(self, n: int, history: Sequence[Arm], problem: Problem) -> list[Candidate]:
        """Return up to `n` candidates: in the space, all different, none in the history, none above a limit.

        The same arguments give the same candidates. Fewer than `n` come back when there are no more.

        Args:
            n: How many are wanted, at least 1.
            history: All arms of the run so far, in order; pending and failed ones are part of it.
            problem: What is searched.

        Raises:
            InfeasibleError: If nothing within the limits was found and the history holds no such arm either.
            ExhaustedError: If there is no other configuration left.
        """


def generator(problem: Problem, stage: int, history: Sequence[Arm]) -> np.random.Generator:
    """Return the random generator of one call: a function of the seed, the stage and the place in the run."""
    return np.random.default_rng([problem.seed % 2**63, stage, len(history)])
