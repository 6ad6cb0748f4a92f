"""Stage 2: Bayesian optimisation of the error against the exact costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from sparsemod.candidate import Arm, Candidate
from sparsemod.search.feasibility import Key, Meter
from sparsemod.search.knowledge import know
from sparsemod.search.pool import Proposal, anywhere, distinct, morphs, mutations, parents_of
from sparsemod.search.ranking import Ranking
from sparsemod.search.sobol import draw_candidates
from sparsemod.search.strategy import Problem, generator
from sparsemod.search.surrogate import Kernel

__all__ = ["FEWEST_ARMS", "BayesStrategy"]

FEWEST_ARMS = 3  # trained ones, below which there is nothing to fit

_ANYWHERE, _MUTATIONS, _MORPHS = 600, 400, 60  # sizes of the pool's parts
_FIRST = (16, 8)  # measured of the pool, in turns, so that the second profits from what the first taught
_ROUNDS, _BEST, _CHILDREN, _MEASURED = 4, 12, 240, 8  # of the local search


@dataclass(frozen=True, slots=True)
class BayesStrategy:
    """Proposes the configuration with the largest expected hypervolume improvement it finds.

    The acquisition is optimised over a pool (points anywhere, mutations of the front, the user's morphisms
    on it), then by rounds of mutation from the best dozen. Proposals are screened by predicted costs; only
    the best are measured, and only measured ones within the limits become candidates. Below three trained
    arms it draws from the Sobol sequence.

    Attributes:
        kernel: ``matern``, or ``arc`` to let inactive parameters count as such.
    """

    kernel: Kernel = "matern"
    name: str = "bayes"
    stage: int = 2

    def ask(self, n: int, history: Sequence[Arm], problem: Problem) -> list[Candidate]:
        """Return the `n` most promising candidates; see `Strategy.ask`."""
        knowledge = know(history, problem)
        if len(knowledge.trained) < FEWEST_ARMS or not problem.space.n_unit:
            return draw_candidates(n, history, problem, self.stage)
        rng, meter = generator(problem, self.stage, history), Meter(problem)
        ranking = Ranking(knowledge, problem, meter, self.kernel)
        # A parent is a place to look around; what is found there is trained from scratch in this stage.
        parents = [replace(p, parent=None) for p in parents_of(knowledge, problem)]
        taken = set(knowledge.taken)
        candidates: list[Candidate] = []
        while len(candidates) < n:
            best = _best(ranking, problem, rng, taken, parents)
            if best is None:
                break
            candidates.append(Candidate(best.params, self.stage, "bayes"))
            taken.add(best.key)
            ranking.believe(best)
        return candidates or draw_candidates(n, history, problem, self.stage)


def _best(
    ranking: Ranking, problem: Problem, rng: np.random.Generator, taken: set[Key], parents: list[Proposal]
) -> Proposal | None:
    space = problem.space
    parents = [parents[i] for i in rng.permutation(len(parents))]
    pool = anywhere(space, rng, _ANYWHERE) + mutations(space, rng, _MUTATIONS, parents)
    pool += morphs(problem, rng, _MORPHS, parents)[0]
    pool += [Proposal(m.params, m.key, "") for m in ranking.meter.measured.values() if m.feasible]
    values: dict[Key, float] = {}
    found: dict[Key, Proposal] = {}

    def measure(proposals: list[Proposal], n: int) -> None:
        fresh = [p for p in distinct(proposals, taken) if p.key not in found]
        some = [fresh[i] for i in np.argsort(-ranking.screen(fresh), kind="stable")[:n]]
        found.update((p.key, p) for p in some)
        values.update(zip((p.key for p in some), ranking.measure(some).tolist(), strict=True))

    for n in _FIRST:
        measure(pool, n)
    for _ in range(_ROUNDS):
        best = sorted(found.values(), key=lambda p: -values[p.key])[:_BEST]
        measure(mutations(space, rng, _CHILDREN, best), _MEASURED)
    first = max(found.values(), key=lambda p: values[p.key], default=None)
    return None if first is None or values[first.key] == -np.inf else first
