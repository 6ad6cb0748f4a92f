"""Stage 3: morphs the networks of the front; children inherit their parent's weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sparsemod.candidate import Arm, Candidate
from sparsemod.errors import ConfigError
from sparsemod.search.feasibility import Key, Meter
from sparsemod.search.knowledge import know
from sparsemod.search.pool import Proposal, distinct, morphs, mutations, parents_of
from sparsemod.search.ranking import Ranking
from sparsemod.search.sobol import draw_candidates
from sparsemod.search.strategy import Problem, generator
from sparsemod.search.surrogate import Kernel

__all__ = ["MorphStrategy"]

_CHILDREN = 200
_MEASURED = (24, 12, 12)  # of the children, in turns, so that the next profits from what one taught


@dataclass(frozen=True, slots=True)
class MorphStrategy:
    """Proposes the child of the front with the largest expected hypervolume improvement.

    Children come from one to three of the user's morphisms on a copy of a front arm, repaired to the space;
    `parent` names the arm whose weights the child inherits. Where the morphisms lead to nothing new within
    the limits, or there are none, children are mutations of the front, with the origin ``morph:mutate``.
    While no arm within the limits has been trained it draws from the Sobol sequence.

    Attributes:
        kernel: ``matern``, or ``arc`` to let inactive parameters count as such.
    """

    kernel: Kernel = "matern"
    name: str = "morph"
    stage: int = 3

    def ask(self, n: int, history: Sequence[Arm], problem: Problem) -> list[Candidate]:
        """Return the `n` most promising children; see `Strategy.ask`.

        Raises:
            InfeasibleError: If nothing within the limits was found and the history holds no such arm either.
            ExhaustedError: If there is no other configuration left.
            ConfigError: If every morphism raises on every arm of the front.
        """
        knowledge = know(history, problem)
        if not len(knowledge.front) or not problem.space.n_unit:
            return draw_candidates(n, history, problem, self.stage)
        rng, meter = generator(problem, self.stage, history), Meter(problem)
        ranking = Ranking(knowledge, problem, meter, self.kernel)
        parents = parents_of(knowledge, problem)
        taken = set(knowledge.taken)
        candidates: list[Candidate] = []
        while len(candidates) < n:
            best = _best(ranking, problem, rng, taken, parents)
            if best is None:
                break
            parent = None if best.parent is None else best.parent.name
            candidates.append(Candidate(best.params, self.stage, best.origin, parent=parent))
            taken.add(best.key)
            ranking.believe(best)
        return candidates or draw_candidates(n, history, problem, self.stage)


def _best(
    ranking: Ranking, problem: Problem, rng: np.random.Generator, taken: set[Key], parents: list[Proposal]
) -> Proposal | None:
    parents = [parents[i] for i in rng.permutation(len(parents))]
    children, failure = morphs(problem, rng, _CHILDREN, parents)
    if failure is not None and not children:
        raise ConfigError(
            f"morpher_ops: every morphism failed on every arm of the front, the last with: {failure}"
        )
    best = ranking.best(distinct(children, taken), _MEASURED)
    if best is None:
        children = mutations(problem.space, rng, _CHILDREN, parents)
        best = ranking.best(distinct(children, taken), _MEASURED)
    return best
