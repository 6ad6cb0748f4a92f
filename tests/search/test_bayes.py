"""Stage 2: what it finds, and what each kind of arm teaches it."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from search_problems import constrained, costs, error, failed, flat, hierarchical, problem, run, trained

from sparsemod.candidate import OBJECTIVES, Candidate, Constraints
from sparsemod.errors import CandidateError
from sparsemod.pareto import hypervolume
from sparsemod.search.bayes import BayesStrategy
from sparsemod.search.feasibility import Meter
from sparsemod.search.knowledge import effective_epochs, know
from sparsemod.search.pool import Proposal
from sparsemod.search.ranking import Ranking
from sparsemod.search.sobol import SobolStrategy


def volume(arms, n_objectives=2):
    values = [[a.evaluation.objective(o) for o in OBJECTIVES[:n_objectives]] for a in arms]
    return hypervolume(np.log(values), np.log([1.0, 2e4, 1e3, 1.0][:n_objectives]))


@pytest.mark.parametrize("kernel", ["matern", "arc"])
@pytest.mark.parametrize("make", [flat, hierarchical])
def test_it_finds_a_larger_hypervolume_than_more_draws(kernel, make):
    of = problem(make())
    begin = run(SobolStrategy(), 10, of)
    searched = run(BayesStrategy(kernel=kernel), 12, of, begin)
    drawn = run(SobolStrategy(), 36, of, begin)
    assert volume(searched) > volume(drawn)


def test_one_objective_finds_a_smaller_error_than_more_draws():
    of = problem(flat(), n_objectives=1)
    begin = run(SobolStrategy(), 8, of)
    searched = run(BayesStrategy(), 10, of, begin)
    drawn = run(SobolStrategy(), 40, of, begin)
    assert min(a.evaluation.error for a in searched) < min(a.evaluation.error for a in drawn)


def test_within_limits_it_goes_to_their_edge():
    of = problem(flat(), n_objectives=1, limits=Constraints(model_size=400))
    arms = run(BayesStrategy(), 10, of, run(SobolStrategy(), 8, of))
    assert all(a.evaluation.resources.model_size_bytes <= 400 for a in arms)
    best = min(arms, key=lambda a: a.evaluation.error)
    assert best.evaluation.resources.model_size_bytes > 320


def test_a_batch_is_spread_out():
    of = problem(flat(), n_objectives=1)
    history = run(SobolStrategy(), 12, of)
    batch = BayesStrategy().ask(4, history, of)
    inputs = of.space.encode([c.parametrization for c in batch])
    distances = [np.linalg.norm(a - b) for i, a in enumerate(inputs) for b in inputs[:i]]
    assert min(distances) > 0.05


def test_a_batch_begins_with_the_candidate_asked_for_alone():
    of = problem(flat(), n_objectives=3)
    history = run(SobolStrategy(), 12, of)
    assert BayesStrategy().ask(3, history, of)[0] == BayesStrategy().ask(1, history, of)[0]


def test_measurements_are_bounded():
    calls = []

    def counting(params):
        calls.append(1)
        return costs(params)

    of = problem(flat(), n_objectives=4, resources=counting)
    history = run(SobolStrategy(), 12, of)
    calls.clear()
    BayesStrategy().ask(1, history, of)
    assert len(calls) <= 64


def test_failed_arms_lower_the_rank_of_their_like():
    of = problem(flat())
    arms = run(SobolStrategy(), 24, of)
    bad = [a for a in arms if a.candidate.parametrization["learning_rate"] > 0.01]
    history = [failed(a.candidate, a.index) if a in bad else a for a in arms]
    ranking = Ranking(know(history, of), of, Meter(of), "matern")
    params = dict(SobolStrategy().ask(1, history, of)[0].parametrization)
    similar = [params | {"learning_rate": rate} for rate in (2e-4, 9e-2)]
    low, high = ranking.measure([Proposal(p, of.space.key(p), "") for p in similar])
    relative = Ranking(know(arms, of), of, Meter(of), "matern")
    low_before, high_before = relative.measure([Proposal(p, of.space.key(p), "") for p in similar])
    assert high / low < 0.7 * high_before / low_before


def test_networks_that_cannot_be_built_are_not_proposed():
    def picky(params):
        if params["width"] > 16:
            raise CandidateError("too wide")
        return costs(params)

    of = problem(flat(), resources=picky)
    begin = [
        trained(c, i) if c.parametrization["width"] <= 16 else failed(c, i)
        for i, c in enumerate(SobolStrategy().ask(16, [], of))
    ]
    assert any(c.parametrization["width"] > 16 for c in (a.candidate for a in begin))
    asked = BayesStrategy().ask(6, begin, of)
    assert len(asked) == 6
    assert all(c.parametrization["width"] <= 16 for c in asked)


def test_fewer_than_three_trained_arms_are_followed_by_draws():
    of = problem(flat())
    history = [trained(c, i) for i, c in enumerate(SobolStrategy().ask(2, [], of))]
    (candidate,) = BayesStrategy().ask(1, history, of)
    assert (candidate.stage, candidate.draw, candidate.origin) == (2, 2, "sobol")
    (candidate,) = BayesStrategy().ask(1, run(SobolStrategy(), 3, of), of)
    assert (candidate.stage, candidate.draw, candidate.origin) == (2, None, "bayes")


def test_constraints_of_the_space_hold_through_the_whole_search():
    of = problem(constrained())
    arms = run(BayesStrategy(), 4, of, run(SobolStrategy(), 6, of), batch=2)
    for p in (a.candidate.parametrization for a in arms):
        assert p["a"] + p["b"] <= 40
        assert p["a"] <= p["c"]


def test_knowledge_of_a_history_by_hand():
    of = problem(flat(), limits=Constraints(model_size=700))
    base = dict(SobolStrategy().ask(1, [], problem(flat()))[0].parametrization)
    base |= {"depth": 1, "kind": "plain", "prune_threshold": 0.5, "learning_rate": 0.01}
    widths = {"0_0": 10, "1_0": 20, "2_0": 64, "3_0": 30}
    arms = [trained(Candidate(base | {"width": w}, 1, ""), i) for i, w in enumerate(widths.values())]
    worse = dataclasses.replace(arms[3].evaluation, error=0.99)
    arms[3] = dataclasses.replace(arms[3], evaluation=worse)
    perfect = dataclasses.replace(arms[2].evaluation, error=0.0)
    arms[2] = dataclasses.replace(arms[2], evaluation=perfect)
    arms.append(failed(Candidate(base | {"width": 5}, 1, ""), 4))
    knowledge = know(arms, of)
    # sizes 20 (1 + width) 0.5 + 10: 120, 220, 660, 320; all within 700
    assert knowledge.costs[:, 0].tolist() == [120, 220, 660, 320]
    assert [knowledge.trained[i].name for i in knowledge.front] == ["0_0", "1_0", "2_0"]
    smallest = min(error(a.candidate.parametrization) for a in arms[:2])
    assert knowledge.errors[2] == pytest.approx(np.log(smallest / 2))
    assert [a.name for a in knowledge.failed] == ["4_0"]
    assert len(knowledge.taken) == 5
    tighter = know(arms, dataclasses.replace(of, constraints=Constraints(model_size=500)))
    assert [tighter.trained[i].name for i in tighter.front] == ["0_0", "1_0"]


def test_inherited_epochs_count():
    base = SobolStrategy().ask(3, [], problem(flat()))
    first = trained(base[0], 0, epochs=5)
    second = trained(dataclasses.replace(base[1], parent="0_0"), 1, epochs=2)
    third = trained(dataclasses.replace(base[2], parent="1_0"), 2, epochs=2)
    by_name = {a.name: a for a in (first, second, third)}
    assert [effective_epochs(a, by_name) for a in by_name.values()] == [5, 7, 9]


def test_more_epochs_that_helped_so_far_are_expected_to_help():
    of = problem(flat(), n_objectives=1)
    candidates = SobolStrategy().ask(24, [], of)
    history = []
    for i, c in enumerate(candidates):
        arm = trained(c, i, epochs=1 if i % 2 else 30)
        better = dataclasses.replace(arm.evaluation, error=arm.evaluation.error * (1.0 if i % 2 else 0.3))
        history.append(dataclasses.replace(arm, evaluation=better))
    p = dict(candidates[0].parametrization) | {"width": 33}
    proposal = Proposal(p, of.space.key(p), "")
    short, long = (
        float(Ranking(know(history, x), x, Meter(x), "matern").screen([proposal])[0])
        for x in (dataclasses.replace(of, epochs=1), dataclasses.replace(of, epochs=30))
    )
    assert long > short
