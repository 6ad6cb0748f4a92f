"""Limits come first: whatever is proposed is within them, also where next to nothing is."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from ax.core.parameter import RangeParameter
from ax.core.search_space import SearchSpace
from hypothesis import given, settings
from hypothesis import strategies as st
from search_problems import INT, SPACES, costs, flat, problem, run, trained, training

from sparsemod.candidate import Arm, Constraints, Evaluation, Status
from sparsemod.errors import CandidateError, InfeasibleError
from sparsemod.search.bayes import BayesStrategy
from sparsemod.search.feasibility import Meter
from sparsemod.search.morph import MorphStrategy
from sparsemod.search.sobol import SobolStrategy
from sparsemod.space.space import Space

STAGES = (SobolStrategy(), BayesStrategy(), MorphStrategy())


def three_stages(of, batch=2):
    """Four arms each of the three stages."""
    arms = []
    for strategy in STAGES:
        arms = run(strategy, 4, of, arms, batch)
    return arms


@pytest.mark.parametrize(
    "limits",
    [
        Constraints(model_size=700),
        Constraints(working_memory=150),
        Constraints(latency=5e-4),
        Constraints(model_size=600, working_memory=250, latency=2e-3),
    ],
    ids=str,
)
@pytest.mark.parametrize("name", ["flat", "hierarchical", "constrained"])
def test_every_trained_arm_of_the_three_stages_is_within_the_limits(name, limits):
    arms = three_stages(problem(SPACES[name](), n_objectives=4, limits=limits))
    assert len(arms) >= 12
    assert [limits.violation(a.evaluation.resources) for a in arms] == [None] * len(arms)


SPACE = {name: SPACES[name]() for name in ("flat", "hierarchical", "constrained")}


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(sorted(SPACE)), st.integers(0, 10**6), st.integers(0, 10**6))
def test_limits_that_a_configuration_meets_are_met(name, place, seed):
    space = SPACE[name]
    params = space.repair(
        space.from_unit(np.random.default_rng(place).random(space.n_unit)), np.random.default_rng(0)
    )
    met = costs(params)
    limits = Constraints(met.model_size_bytes, met.working_memory_bytes, met.latency_seconds)
    (candidate,) = SobolStrategy().ask(1, [], problem(space, limits=limits, seed=seed))
    assert limits.violation(costs(candidate.parametrization)) is None


def million() -> Space:
    """Six parameters of ten values: 10^6 configurations."""
    own = [RangeParameter(f"x{i}", INT, 1, 10) for i in range(6)]
    return Space.from_ax(SearchSpace([*training(fixed=True), *own]))


def distance_to(corner):
    """Costs by which only what is near a hidden corner fits: 10 bytes there, more with the distance."""

    def resources(params):
        away = sum(abs(int(params[f"x{i}"]) - corner[i]) for i in range(6))
        return dataclasses.replace(costs(params), model_size_bytes=10 + away)

    return resources


@pytest.mark.parametrize("strategy", STAGES, ids=lambda s: s.name)
@pytest.mark.parametrize(
    ("limit", "n_within"),
    [(10, 1), (11, 13), (12, 85)],  # in 10^6, for a corner inside: 1, 1 + 12, 1 + 12 + 72
)
@pytest.mark.parametrize("seed", range(3))
def test_one_in_a_million_is_found(strategy, limit, n_within, seed):
    corner = [4, 8, 3, 6, 5, 7]
    of = problem(million(), limits=Constraints(model_size=limit), seed=seed, resources=distance_to(corner))
    axes = np.abs(np.indices((10,) * 6).reshape(6, -1) + 1 - np.array(corner)[:, None]).sum(axis=0)
    assert (axes <= limit - 10).sum() == n_within
    (candidate,) = strategy.ask(1, [], of)
    assert distance_to(corner)(candidate.parametrization).model_size_bytes <= limit


def test_what_is_found_in_a_million_leads_to_the_rest():
    corner = [4, 8, 3, 6, 5, 7]
    resources = distance_to(corner)
    of = problem(million(), n_objectives=2, limits=Constraints(model_size=11), resources=resources)
    arms: list[Arm] = []
    for i in range(13):
        (candidate,) = STAGES[i % 3].ask(1, arms, of)
        done = trained(candidate, len(arms))
        measured = dataclasses.replace(done.evaluation, resources=resources(candidate.parametrization))
        arms.append(dataclasses.replace(done, evaluation=measured))
    assert len({of.space.key(a.candidate.parametrization) for a in arms}) == 13
    assert all(a.evaluation.resources.model_size_bytes <= 11 for a in arms)


def test_two_limits_that_pull_apart_are_met_together():
    def opposed(params):
        up, down = (sum(int(params[f"x{i}"]) for i in part) for part in ((0, 1, 2), (3, 4, 5)))
        return dataclasses.replace(
            costs(params), model_size_bytes=up + 30 - down, working_memory_bytes=up + down
        )

    # down is 30 at most, so the first limit asks for up = 3 and down = 30, which the second just allows
    of = problem(million(), limits=Constraints(model_size=3, working_memory=33), resources=opposed)
    (candidate,) = SobolStrategy().ask(1, [], of)
    assert [candidate.parametrization[f"x{i}"] for i in range(6)] == [1, 1, 1, 10, 10, 10]


@pytest.mark.parametrize("strategy", STAGES, ids=lambda s: s.name)
def test_a_limit_that_nothing_meets_is_named_with_the_smallest_value_there_is(strategy):
    of = problem(
        million(),
        limits=Constraints(model_size=9, latency=100.0),
        resources=distance_to([4, 8, 3, 6, 5, 7]),
    )
    with pytest.raises(InfeasibleError) as caught:
        strategy.ask(1, [], of)
    assert "model_size is at least 10 bytes, its limit is 9 bytes" in str(caught.value)


def test_no_arm_comes_twice_through_all_stages():
    of = problem(flat(), n_objectives=3, limits=Constraints(model_size=300))
    arms = three_stages(of, batch=3)
    assert len({of.space.key(a.candidate.parametrization) for a in arms}) == len(arms)


def test_what_failed_or_runs_is_not_proposed_again():
    of = problem(flat(), n_objectives=2)
    arms = run(SobolStrategy(), 6, of)
    lost = dataclasses.replace(arms[1], evaluation=Evaluation(Status.FAILED, reason="out of memory"))
    arms = [arms[0], lost, dataclasses.replace(arms[2], evaluation=None), *arms[3:]]
    taken = {of.space.key(a.candidate.parametrization) for a in arms}
    for strategy in STAGES:
        asked = {of.space.key(c.parametrization) for c in strategy.ask(4, arms, of)}
        assert len(asked) == 4
        assert not asked & taken


def test_a_value_of_an_inactive_parameter_makes_no_other_configuration():
    space = SPACE["hierarchical"]
    params = space.repair({"kind": "dense", "units": 8}, np.random.default_rng(0))
    assert space.key(params) == space.key({**params, "width": 5, "kernel": 3})
    meter = Meter(problem(space))
    assert meter(params) is meter({**params, "width": 60})


def test_neighbours_that_cannot_be_built_do_not_end_the_repair():
    def picky(params):
        if int(params["x0"]) % 2:
            raise CandidateError("odd")
        return distance_to([4, 8, 3, 6, 5, 7])(params)

    of = problem(million(), limits=Constraints(model_size=10), resources=picky)
    asked = [c.parametrization for c in SobolStrategy().ask(1, [], of)]
    assert asked[0]["x0"] in (1, 3, 5, 7, 9)  # fails when it is trained, which tells the reason
