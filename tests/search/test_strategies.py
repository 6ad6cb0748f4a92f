"""What every strategy promises, on every kind of space."""

from __future__ import annotations

import dataclasses
import pickle
import random

import numpy as np
import pytest
import torch
from search_problems import SPACES, constrained, costs, failed, flat, pending, problem, run, tiny, trained

from sparsemod.candidate import Candidate, Constraints
from sparsemod.errors import ConfigError, ExhaustedError, InfeasibleError
from sparsemod.search.bayes import BayesStrategy
from sparsemod.search.morph import MorphStrategy
from sparsemod.search.sobol import SobolStrategy

STRATEGIES = {
    "sobol": SobolStrategy(),
    "bayes": BayesStrategy(),
    "bayes-arc": BayesStrategy(kernel="arc"),
    "morph": MorphStrategy(),
}
LIMITS = Constraints(model_size=1500, working_memory=400)


@pytest.fixture(params=STRATEGIES)
def strategy(request):
    return STRATEGIES[request.param]


@pytest.fixture(scope="module")
def histories():
    """Ten trained Sobol arms a space."""
    return {name: run(SobolStrategy(), 10, problem(make())) for name, make in SPACES.items()}


@pytest.mark.parametrize("name", SPACES)
def test_candidates_are_valid_different_new_and_within_the_limits(strategy, name, histories):
    of = problem(SPACES[name](), n_objectives=3, limits=LIMITS if name != "wide" else None)
    history = histories[name]
    candidates = strategy.ask(3, history, of)
    assert len(candidates) == 3
    assert all(of.space.check(c.parametrization) is None for c in candidates)
    keys = [of.space.key(c.parametrization) for c in candidates]
    assert len({*keys, *(of.space.key(a.candidate.parametrization) for a in history)}) == 3 + len(history)
    assert all(of.constraints.violation(costs(c.parametrization)) is None for c in candidates)
    assert {c.stage for c in candidates} == {strategy.stage}
    assert all(c.origin for c in candidates)


@pytest.mark.parametrize("name", SPACES)
def test_same_arguments_give_the_same_candidates(strategy, name, histories):
    of = problem(SPACES[name](), n_objectives=4)
    first = strategy.ask(2, histories[name], of)
    random.seed(5)
    np.random.seed(5)  # noqa: NPY002
    torch.manual_seed(5)
    again = strategy.ask(2, pickle.loads(pickle.dumps(histories[name])), of)
    assert first == again


def test_global_random_state_is_left_alone(strategy, histories):
    random.seed(1)
    np.random.seed(1)  # noqa: NPY002
    torch.manual_seed(1)
    before = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()  # noqa: NPY002
    strategy.ask(1, histories["flat"], problem(flat()))
    after = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()  # noqa: NPY002
    assert before == after


def test_another_seed_gives_other_candidates(strategy, histories):
    asked = [strategy.ask(1, histories["flat"], problem(flat(), seed=seed)) for seed in range(3)]
    assert len({str(c) for c in asked}) > 1


@pytest.mark.parametrize("n_objectives", [1, 2, 3, 4])
def test_any_number_of_objectives(strategy, n_objectives, histories):
    assert len(strategy.ask(1, histories["flat"], problem(flat(), n_objectives))) == 1


def test_a_list_of_objectives_in_any_order(strategy, histories):
    of = dataclasses.replace(problem(flat()), objectives=("latency", "error"))
    assert len(strategy.ask(1, histories["flat"], of)) == 1


def test_objectives_without_the_error_or_unknown_are_refused():
    with pytest.raises(ConfigError, match="expected 'error'"):
        dataclasses.replace(problem(flat()), objectives=("model_size",))
    with pytest.raises(ConfigError, match=r"unknown objective 'eror' \(did you mean 'error'\?\)"):
        dataclasses.replace(problem(flat()), objectives=("eror",))


def test_a_run_without_earlier_stages_begins_with_different_draws(strategy):
    history = run(strategy, 4, problem(flat()))
    assert len({flat().key(a.candidate.parametrization) for a in history}) == 4
    first = history[0].candidate
    assert first.stage == strategy.stage
    assert first.draw is not None


def test_a_history_of_failures_is_no_obstacle(strategy):
    of = problem(flat())
    history = [failed(c, i) for i, c in enumerate(SobolStrategy().ask(6, [], of))]
    candidates = strategy.ask(2, history, of)
    keys = {of.space.key(c.parametrization) for c in [*candidates, *(a.candidate for a in history)]}
    assert len(keys) == 8


def test_pending_arms_are_not_proposed_again(strategy, histories):
    of = problem(flat())
    asked = strategy.ask(2, histories["flat"], of)
    history = histories["flat"] + [pending(c, 10 + i) for i, c in enumerate(asked)]
    again = strategy.ask(2, history, of)
    assert not {of.space.key(c.parametrization) for c in asked} & {of.space.key(c.parametrization) for c in again}


@pytest.mark.parametrize("batch", [1, 4])
def test_a_finite_space_is_gone_through_once_and_then_exhausted(strategy, batch):
    of = problem(tiny())
    history = run(SobolStrategy(), 3, of)
    history = run(strategy, 3, of, history, batch)
    assert len({of.space.key(a.candidate.parametrization) for a in history}) == 6
    with pytest.raises(ExhaustedError, match="every configuration of the search space has been evaluated"):
        strategy.ask(1, history, of)


def test_limits_that_exclude_everything_are_named_with_the_smallest_value(strategy):
    of = problem(tiny(), limits=Constraints(model_size=25, latency=1.0))
    with pytest.raises(InfeasibleError) as caught:
        strategy.ask(1, [], of)
    assert str(caught.value) == (
        "none of the 6 configurations that were tried is within the limits: model_size is at least 30 bytes, "
        "its limit is 25 bytes"
    )


def test_limits_that_exclude_all_that_was_trained_still_lead_to_a_candidate_within(strategy, histories):
    smallest = min(a.evaluation.resources.model_size_bytes for a in histories["flat"])
    of = problem(flat(), limits=Constraints(model_size=smallest // 2))
    candidates = strategy.ask(2, histories["flat"], of)
    assert all(costs(c.parametrization).model_size_bytes <= smallest // 2 for c in candidates)


def test_limits_that_leave_two_configurations_end_after_two(strategy):
    of = problem(tiny(), limits=Constraints(model_size=50))
    history = run(strategy, 2, of)
    with pytest.raises(ExhaustedError, match="every configuration of the search space within the limits"):
        strategy.ask(1, history, of)


def test_a_limit_on_a_cost_that_is_no_objective_holds(strategy, histories):
    of = problem(flat(), n_objectives=1, limits=Constraints(latency=2e-4))
    assert all(costs(c.parametrization).latency_seconds <= 2e-4 for c in strategy.ask(3, histories["flat"], of))


def test_arms_trained_for_different_epochs_are_no_obstacle(strategy, histories):
    history = histories["flat"] + [
        trained(c, 10 + i, epochs=20) for i, c in enumerate(strategy.ask(2, histories["flat"], problem(flat())))
    ]
    assert len(strategy.ask(1, history, problem(flat(), epochs=50))) == 1


def test_equal_errors_are_no_obstacle(strategy, histories):
    same = [
        dataclasses.replace(a, evaluation=dataclasses.replace(a.evaluation, error=0.0)) for a in histories["flat"]
    ]
    assert len(strategy.ask(1, same, problem(flat(), 3))) == 1


def test_histories_are_values_that_a_call_leaves_alone(strategy, histories):
    before = pickle.dumps(histories["constrained"])
    strategy.ask(2, histories["constrained"], problem(constrained()))
    assert pickle.dumps(histories["constrained"]) == before


def test_strategies_are_values():
    assert BayesStrategy() == BayesStrategy()
    with pytest.raises(dataclasses.FrozenInstanceError):
        SobolStrategy().stage = 2
    assert isinstance(SobolStrategy().ask(1, [], problem(flat()))[0], Candidate)
