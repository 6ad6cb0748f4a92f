"""Stage 1: the sequence, what is skipped, and repair toward the limits."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from search_problems import costs, error, failed, flat, problem, run, tiny, trained, unbuildable, wide

from sparsemod.candidate import Constraints
from sparsemod.errors import CandidateError, InfeasibleError
from sparsemod.search.feasibility import Meter, toward_limits
from sparsemod.search.sobol import SobolStrategy
from sparsemod.space.sampling import draw


def test_candidates_are_the_draws_in_order():
    candidates = SobolStrategy().ask(4, [], problem(flat(), seed=7))
    assert [c.draw for c in candidates] == [0, 1, 2, 3]
    assert [c.parametrization for c in candidates] == [draw(flat(), 7, i) for i in range(4)]
    assert {(c.stage, c.origin, c.parent) for c in candidates} == {(1, "sobol", None)}


def test_one_at_a_time_gives_what_a_batch_gives():
    of = problem(flat(), limits=Constraints(model_size=600))
    one_by_one = run(SobolStrategy(), 6, of)
    assert [a.candidate for a in one_by_one] == SobolStrategy().ask(6, [], of)


def test_draws_above_a_limit_are_skipped_for_good():
    of = problem(flat(), limits=Constraints(model_size=600))
    drawn = [c.draw for c in SobolStrategy().ask(8, [], of)]
    above = [i for i in range(drawn[-1]) if costs(draw(flat(), 0, i)).model_size_bytes > 600]
    assert drawn == [i for i in range(drawn[-1] + 1) if i not in above]
    assert above


def test_a_call_goes_on_behind_the_largest_draw_of_the_history():
    of = problem(flat())
    history = [trained(c, i) for i, c in enumerate(SobolStrategy().ask(3, [], of))]
    shifted = [dataclasses.replace(history[0], candidate=dataclasses.replace(history[0].candidate, draw=41))]
    assert SobolStrategy().ask(1, history, of)[0].draw == 3
    assert SobolStrategy().ask(1, [*history[1:], *shifted], of)[0].draw == 42


def test_a_network_that_cannot_be_measured_is_proposed_once():
    of = problem(tiny(), resources=unbuildable)
    history = [failed(c, i) for i, c in enumerate(SobolStrategy().ask(2, [], of))]
    assert len(history) == 2
    again = SobolStrategy().ask(6, history, of)
    assert len({of.space.key(c.parametrization) for c in again}) == 4


def test_a_bug_of_the_measurement_is_not_swallowed():
    def broken(params):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        SobolStrategy().ask(1, [], problem(flat(), resources=broken))


def test_a_limit_that_no_draw_meets_is_reached_by_repair():
    of = problem(wide(), limits=Constraints(model_size=600))
    assert all(costs(draw(of.space, 0, i)).model_size_bytes > 600 for i in range(100))
    candidates = SobolStrategy().ask(2, [], of)
    assert all(costs(c.parametrization).model_size_bytes <= 600 for c in candidates)


def test_measurements_are_bounded_when_nothing_fits():
    calls = []

    def counting(params):
        calls.append(1)
        return costs(params)

    of = problem(flat(), limits=Constraints(working_memory=5), resources=counting)
    with pytest.raises(InfeasibleError, match=r"working_memory is at least \d+ bytes, its limit is 5 bytes"):
        SobolStrategy().ask(1, [], of)
    assert len(calls) <= 420


def test_limits_that_can_only_be_met_one_at_a_time_are_told():
    def opposed(params):
        depth = int(params["depth"])
        return dataclasses.replace(costs(params), model_size_bytes=depth, working_memory_bytes=4 - depth)

    of = problem(tiny(), limits=Constraints(model_size=1, working_memory=1), resources=opposed)
    with pytest.raises(InfeasibleError, match="each can be met, but not all together"):
        SobolStrategy().ask(1, [], of)


def test_nothing_that_can_be_built_within_limits_is_told():
    def mostly_unbuildable(params):
        if params["depth"] == 1:
            return costs(params)
        raise CandidateError("too deep")

    of = problem(tiny(), limits=Constraints(model_size=1), resources=mostly_unbuildable)
    asked = SobolStrategy().ask(6, [], of)
    assert {c.parametrization["depth"] for c in asked} == {2, 3}
    history = [failed(c, i) for i, c in enumerate(asked)]
    with pytest.raises(InfeasibleError, match="model_size is at least"):
        SobolStrategy().ask(1, history, of)


def test_repair_never_returns_what_is_taken():
    of = problem(tiny(), limits=Constraints(model_size=50))
    meter = Meter(of)
    everything = [meter(p) for p in of.space.configurations()]
    within = [m for m in everything if m.feasible]
    above = [m for m in everything if not m.feasible]
    taken = {m.key for m in within[1:]}
    found = toward_limits(above, meter, np.random.default_rng(0), taken)
    assert found == within[0]


def test_every_configuration_of_a_finite_space_is_listed_once():
    listed = list(tiny().configurations())
    assert sorted((p["depth"], p["kind"]) for p in listed) == [
        (d, k) for d in (1, 2, 3) for k in ("full", "plain")
    ]
    assert len(listed) == tiny().n_configurations


def test_the_toy_error_falls_with_size():
    small, large = (
        {"learning_rate": 0.01, "prune_threshold": 1.0, "batch_size": 32, "width": w} for w in (2, 64)
    )
    assert error(large) < error(small)
