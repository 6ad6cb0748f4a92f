"""Where proposals come from: points of the space, mutations and the user's morphisms."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from sparsemod.candidate import Arm, ParamValue
from sparsemod.errors import CandidateError, SpaceError
from sparsemod.search.feasibility import Key
from sparsemod.search.knowledge import Knowledge
from sparsemod.search.strategy import Problem
from sparsemod.space.morphisms import apply
from sparsemod.space.space import Space

__all__ = ["Proposal", "anywhere", "distinct", "morphs", "mutations", "parents_of"]

_RETRIES = 5
_CONSTRAINED = 4  # times fewer changed configurations where each may cost a linear program to make valid


@dataclass(frozen=True, slots=True)
class Proposal:
    """A configuration that may become a candidate.

    Attributes:
        params: A valid configuration.
        key: Its identity in the space.
        origin: How it was made, for people.
        parent: The arm it descends from, whose weights it would inherit, or None.
    """

    params: dict[str, ParamValue]
    key: Key
    origin: str
    parent: Arm | None = None


def parents_of(knowledge: Knowledge, problem: Problem) -> list[Proposal]:
    """Return the arms of the front, each as its own parent."""
    arms = [knowledge.trained[i] for i in knowledge.front]
    return [Proposal(dict(p := a.candidate.parametrization), problem.space.key(p), "", a) for a in arms]


def anywhere(space: Space, rng: np.random.Generator, n: int) -> list[Proposal]:
    """Return up to `n` uniform points; one that keeps breaking the space's constraints is left out."""
    found = []
    for _ in range(n):
        for _retry in range(_RETRIES if space.constraints else 1):
            params = space.from_unit(rng.random(space.n_unit))
            if not space.constraints or space.check(params) is None:
                found.append(Proposal(params, space.key(params), "anywhere"))
                break
    return found


def mutations(space: Space, rng: np.random.Generator, n: int, parents: Sequence[Proposal]) -> list[Proposal]:
    """Return up to `n` mutations of 1 to 4 parameters, few more often than many, the parents taking turns.

    In a space with linear constraints it is a quarter of `n`.
    """
    found = []
    for i in range(_affordable(n, space) if parents else 0):
        parent = parents[i % len(parents)]
        try:
            params = space.mutate(parent.params, rng, n=1 + min(int(rng.geometric(0.5)) - 1, 3))
        except SpaceError:  # the parent is the only configuration there is
            continue
        found.append(Proposal(params, space.key(params), "morph:mutate", parent.parent))
    return found


def morphs(
    problem: Problem, rng: np.random.Generator, n: int, parents: Sequence[Proposal]
) -> tuple[list[Proposal], CandidateError | None]:
    """Return up to `n` results of one to three morphisms on the parents, and the last exception if any.

    In a space with linear constraints it is a quarter of `n`.
    """
    found: list[Proposal] = []
    failure: CandidateError | None = None
    for i in range(_affordable(n, problem.space) if parents and problem.morphisms else 0):
        parent = parents[i % len(parents)]
        n_ops = 1 + int(rng.integers(3))
        try:
            params, name = apply(problem.morphisms, parent.params, problem.space, rng, n_ops)
        except CandidateError as error:
            failure = error
            continue
        found.append(Proposal(params, problem.space.key(params), name, parent.parent))
    return found, failure


def _affordable(n: int, space: Space) -> int:
    return n // _CONSTRAINED if space.constraints else n


def distinct(proposals: Iterable[Proposal], taken: set[Key] | frozenset[Key]) -> list[Proposal]:
    """Keep the first of each identity that is not taken."""
    kept: dict[Key, Proposal] = {}
    for proposal in proposals:
        if proposal.key not in taken:
            kept.setdefault(proposal.key, proposal)
    return list(kept.values())
