"""Users' morphisms run on copies, are reproducible, and fail by name."""

# ruff: noqa: NPY002  (the global generators are what users draw from)

import copy
import random
from random import choice, randint

import numpy as np
import pytest
from space_examples import integer, params, space, tree

from sparsemod.errors import CandidateError, ConfigError
from sparsemod.space.morphisms import apply, check_morphisms


def kernel_size(config):
    """The documented example: changes the kernel in a randomly chosen convolution."""
    block = choice(range(1, config["num_conv_blocks"] + 1))
    config["conv_" + str(block) + "_kernel"] = randint(2, 5)
    return config


def num_conv_blocks(config):
    config["num_conv_blocks"] += choice([-1, 1])
    return config


OPERATIONS = {"kernel_size": kernel_size, "num_conv_blocks": num_conv_blocks}
PARENT = params(num_conv_blocks=2, conv_1_kernel=3, conv_2_kernel=3, conv_3_kernel=3)


def cnn():
    return space(integer("num_conv_blocks", 1, 3), *(integer(f"conv_{i}_kernel", 2, 5) for i in (1, 2, 3)))


def rng(seed=0):
    return np.random.default_rng(seed)


def test_child_is_valid_and_its_origin_names_the_morphisms():
    for seed in range(20):
        child, origin = apply(OPERATIONS, PARENT, cnn(), rng(seed), 2)
        assert cnn().check(child) is None
        prefix, _, names = origin.partition(":")
        assert prefix == "morph"
        assert len(names.split("+")) == 2
        assert set(names.split("+")) <= set(OPERATIONS)


def test_children_of_one_parent_are_objects_of_their_own_and_the_parent_stays():
    before = copy.deepcopy(PARENT)
    one = rng()
    children = [apply(OPERATIONS, PARENT, cnn(), one, 1)[0] for _ in range(30)]
    assert before == PARENT
    assert len({id(child) for child in children}) == 30
    assert len({cnn().key(child) for child in children}) > 5


def test_nested_values_of_the_parent_are_not_shared():
    kept = []

    def keep(config):
        kept.append(config)
        return config

    child, _ = apply({"keep": keep}, PARENT, cnn(), rng(), 1)
    kept[0]["num_conv_blocks"] = 99
    assert child == PARENT


def test_same_generator_same_child_whatever_the_global_state():
    random.seed(1)
    first = [apply(OPERATIONS, PARENT, cnn(), rng(seed), 3) for seed in range(10)]
    random.seed(2)
    np.random.seed(3)
    assert [apply(OPERATIONS, PARENT, cnn(), rng(seed), 3) for seed in range(10)] == first


def test_numpy_draws_are_reproducible_too():
    def by_numpy(config):
        config["conv_1_kernel"] = np.random.randint(2, 6)
        return config

    values = [apply({"f": by_numpy}, PARENT, cnn(), rng(s), 1)[0]["conv_1_kernel"] for s in range(20)]
    assert values == [apply({"f": by_numpy}, PARENT, cnn(), rng(s), 1)[0]["conv_1_kernel"] for s in range(20)]
    assert len(set(values)) > 1
    assert {type(v) for v in values} == {int}


def test_global_states_are_put_back_even_after_a_failure():
    def failing(config):
        random.random()
        np.random.random()
        raise ValueError("no")

    random.seed(5)
    np.random.seed(5)
    states = random.getstate(), np.random.get_state()[1].tolist()
    apply(OPERATIONS, PARENT, cnn(), rng(), 3)
    with pytest.raises(CandidateError):
        apply({"failing": failing}, PARENT, cnn(), rng(), 1)
    assert (random.getstate(), np.random.get_state()[1].tolist()) == states


def test_result_is_repaired_before_the_next_morphism_sees_it():
    seen = []

    def grow(config):
        seen.append(config["num_conv_blocks"])
        config["num_conv_blocks"] *= 10
        config["no_such_parameter"] = 1
        del config["conv_3_kernel"]
        return config

    child, _ = apply({"grow": grow}, PARENT, cnn(), rng(), 3)
    assert seen == [2, 3, 3]
    assert child["num_conv_blocks"] == 3
    assert "no_such_parameter" not in child
    assert 2 <= child["conv_3_kernel"] <= 5


def test_morphism_sees_only_active_parameters():
    def to_pool(config):
        assert "window" not in config
        config["block"] = "pool"
        return config

    child, _ = apply({"to_pool": to_pool}, params(block="conv", kernel=3, width=1), tree(), rng(), 1)
    assert child["block"] == "pool"
    assert "kernel" not in child
    assert "window" in child


@pytest.mark.parametrize(("returned", "kind"), [(None, "NoneType"), ([], "list"), (3, "int")])
def test_morphism_that_returns_no_dict_is_named(returned, kind):
    with pytest.raises(CandidateError) as caught:
        apply({"kernel_size": lambda config: returned}, PARENT, cnn(), rng(), 1)
    assert str(caught.value) == f"morphism kernel_size: expected the changed dict to be returned, got {kind}"


def test_morphism_that_raises_is_named_and_its_traceback_kept():
    with pytest.raises(CandidateError) as caught:
        apply({"kernel_size": lambda config: config["missing"]}, PARENT, cnn(), rng(), 1)
    assert str(caught.value) == "morphism kernel_size raised KeyError: 'missing'"
    assert "Traceback" in caught.value.details


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (None, "morpher_ops: expected a dict name -> function, got NoneType"),
        ([kernel_size], "morpher_ops: expected a dict name -> function, got list"),
        ({"kernel_size": 3}, "morpher_ops['kernel_size']: expected a function, got int"),
        ({3: kernel_size}, "morpher_ops: expected names as keys, got 3"),
        ({"": kernel_size}, "morpher_ops: expected names as keys, got ''"),
    ],
)
def test_what_is_no_mapping_of_names_to_functions(given, said):
    with pytest.raises(ConfigError) as caught:
        check_morphisms(given)
    assert str(caught.value) == said


def test_checked_morphisms_come_back():
    assert check_morphisms(OPERATIONS) == OPERATIONS
    assert check_morphisms({}) == {}
    with pytest.raises(ConfigError, match="expected at least one morphism"):
        apply({}, PARENT, cnn(), rng(), 1)
