"""Stage 3: children of the front."""

from __future__ import annotations

import copy
import dataclasses
import random

import pytest
from search_problems import MORPHISMS, constrained, costs, error, failed, flat, problem, run, tiny, wide

from sparsemod.candidate import Constraints
from sparsemod.errors import ConfigError, ExhaustedError
from sparsemod.search.knowledge import know
from sparsemod.search.morph import MorphStrategy
from sparsemod.search.sobol import SobolStrategy


@pytest.fixture(scope="module")
def history():
    return run(SobolStrategy(), 12, problem(flat()))


def test_children_descend_from_the_front_by_named_morphisms(history):
    of = problem(flat())
    front = {know(history, of).trained[i].name for i in know(history, of).front}
    children = MorphStrategy().ask(5, history, of)
    assert {c.parent for c in children} <= front
    for child in children:
        kind, _, names = child.origin.partition(":")
        assert kind == "morph"
        assert 1 <= len(names.split("+")) <= 3
        assert set(names.split("+")) <= set(MORPHISMS)
        assert child.draw is None


def test_a_child_differs_from_its_parent_only_in_what_the_morphisms_touch(history):
    def wider(config):
        config["width"] = random.randint(2, 64)
        return config

    of = problem(flat(), morphisms={"wider": wider})
    by_name = {a.name: a.candidate.parametrization for a in history}
    for child in MorphStrategy().ask(4, history, of):
        parent = by_name[child.parent]
        assert {n for n in parent if parent[n] != child.parametrization[n]} == {"width"}


def test_parents_are_never_changed_and_children_are_not_one_dict(history):
    kept = copy.deepcopy(history)
    children = MorphStrategy().ask(4, history, problem(flat()))
    assert history == kept
    children[0].parametrization["width"] = -1
    assert all(c.parametrization["width"] != -1 for c in children[1:])


def test_children_out_of_bounds_are_repaired(history):
    def enormous(config):
        config["width"] = 10**9
        config["unknown"] = "x"
        return config

    of = problem(flat(), morphisms={"enormous": enormous})
    (child,) = MorphStrategy().ask(1, history, of)
    assert child.parametrization["width"] == 64
    assert "unknown" not in child.parametrization


def test_morphisms_that_lead_nowhere_new_are_replaced_by_mutation(history):
    of = problem(flat(), morphisms={"same": lambda config: config})
    children = MorphStrategy().ask(2, history, of)
    assert {c.origin for c in children} == {"morph:mutate"}
    assert all(c.parent for c in children)


def test_without_morphisms_the_front_is_mutated(history):
    children = MorphStrategy().ask(1, history, dataclasses.replace(problem(flat()), morphisms={}))
    assert children[0].origin == "morph:mutate"


def test_a_morphism_that_raises_is_passed_over(history):
    def broken(config):
        raise KeyError("conv_9")

    of = problem(flat(), morphisms={**MORPHISMS, "broken": broken})
    children = MorphStrategy().ask(3, history, of)
    assert len(children) == 3
    assert all("broken" not in c.origin for c in children)


def test_morphisms_that_all_raise_are_told_in_one_line(history):
    def broken(config):
        raise KeyError("conv_9")

    with pytest.raises(ConfigError) as caught:
        MorphStrategy().ask(1, history, problem(flat(), morphisms={"broken": broken}))
    assert str(caught.value) == (
        "morpher_ops: every morphism failed on every arm of the front, the last with: "
        "morphism broken raised KeyError: 'conv_9'"
    )


def test_an_empty_front_is_followed_by_draws():
    of = problem(flat())
    history = [failed(c, i) for i, c in enumerate(SobolStrategy().ask(5, [], of))]
    (candidate,) = MorphStrategy().ask(1, history, of)
    assert (candidate.stage, candidate.draw, candidate.parent) == (3, 5, None)


def test_one_trained_arm_is_a_front():
    of = problem(flat())
    history = run(SobolStrategy(), 1, of)
    assert MorphStrategy().ask(1, history, of)[0].parent == "0_0"


def test_arms_above_a_limit_are_no_parents(history):
    limit = sorted(a.evaluation.resources.model_size_bytes for a in history)[4]
    of = problem(flat(), limits=Constraints(model_size=limit))
    sizes = {a.name: a.evaluation.resources.model_size_bytes for a in history}
    for child in MorphStrategy().ask(4, history, of):
        assert sizes[child.parent] <= limit
        assert costs(child.parametrization).model_size_bytes <= limit


def test_what_the_neighbours_leave_of_a_finite_space_is_drawn_then_it_is_exhausted():
    of = problem(tiny(), morphisms={"same": lambda config: config})
    history = run(MorphStrategy(), 5, of, run(SobolStrategy(), 1, of))
    with pytest.raises(ExhaustedError):
        MorphStrategy().ask(1, history, of)


@pytest.mark.parametrize("make", [flat, constrained, wide])
def test_the_best_error_falls(make):
    of = problem(make(), n_objectives=1)
    begin = run(SobolStrategy(), 8, of)
    arms = run(MorphStrategy(), 6, of, begin)
    assert min(error(a.candidate.parametrization) for a in arms) < min(
        error(a.candidate.parametrization) for a in begin
    )
