"""What a configuration accepts, what it makes of it, and the one line it says otherwise."""

import pickle
import re
from pathlib import Path

import numpy as np
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparsemod import config
from sparsemod.candidate import OBJECTIVES, Constraints
from sparsemod.config import RunConfig, StageConfig, TargetConfig, bool_converter
from sparsemod.errors import ConfigError

DOCUMENTED = {
    "r1": 3,
    "r2": 4,
    "r3": 5,
    "epochs1": 6,
    "epochs2": 7,
    "epochs3": 8,
    "name": "search",
    "root": "results",
    "objectives": 4,
    "batch_size": 2,
    "morphisms": True,
    "pruning": True,
    "debug": False,
    "flops": 80_000_000,
    "quant_scheme": "post",
    "splitter": False,
}
BOARD = {"name": "b", "core": "cortex-m4", "clock_hz": 64e6, "flash_bytes": 1 << 20, "ram_bytes": 1 << 16}


def make(**changes):
    return RunConfig.from_mapping({**DOCUMENTED, **changes}, where="Sparse(...)")


def line(**changes):
    with pytest.raises(ConfigError) as caught:
        make(**changes)
    assert len(str(caught.value).splitlines()) == 1
    return str(caught.value)


def test_documented_keys_give_typed_values():
    run = make()
    assert (run.r1, run.epochs3, run.batch_size, run.flops) == (3, 8, 2, 80_000_000)
    assert run.root == Path("results")
    assert run.objectives == OBJECTIVES
    assert run.pruning == "unstructured"
    assert run.constraints == Constraints()


def test_text_gives_the_same_as_values():
    assert RunConfig.from_mapping({key: str(value) for key, value in DOCUMENTED.items()}) == make()


def test_defaults():
    required = {
        k: v for k, v in DOCUMENTED.items() if k not in ("batch_size", "morphisms", "debug", "splitter")
    }
    run = RunConfig.from_mapping(required)
    assert (run.batch_size, run.morphisms, run.debug, run.splitter) == (1, True, False, False)
    assert (run.runtime, run.seed, run.arc, run.resume) == ("c", 0, False, True)
    assert (run.target, run.target_spec, run.workers, run.executor) == (None, None, None, None)


def test_all_missing_keys_are_named_at_once():
    with pytest.raises(ConfigError, match=r"^Sparse\(\.\.\.\): missing keys epochs2, name, quant_scheme$"):
        RunConfig.from_mapping(
            {k: v for k, v in DOCUMENTED.items() if k not in ("epochs2", "name", "quant_scheme")},
            where="Sparse(...)",
        )


def test_unknown_key_comes_with_the_nearest_one():
    assert line(epoch1=3) == "Sparse(...): unknown key 'epoch1' (did you mean 'epochs1'?)"
    assert line(zebra=3) == "Sparse(...): unknown key 'zebra'"


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("r1", "ten", "r1: expected an integer of 0 or more, got 'ten'"),
        ("r1", -1, "r1: expected an integer of 0 or more, got -1"),
        ("r1", True, "r1: expected an integer of 0 or more, got True"),
        ("r1", 1.5, "r1: expected an integer of 0 or more, got 1.5"),
        ("r1", None, "r1: expected an integer of 0 or more, got None"),
        ("r2", float("nan"), "r2: expected an integer of 0 or more, got nan"),
        ("r2", "inf", "r2: expected an integer of 0 or more, got 'inf'"),
        ("r3", [1], "r3: expected an integer of 0 or more, got [1]"),
        ("batch_size", 0, "batch_size: expected an integer of 1 or more, got 0"),
        ("flops", "80 MHz", "flops: expected an integer of 1 or more, got '80 MHz'"),
        ("seed", 2**63, "seed: expected an integer from 0 to 9223372036854775807, got 9223372036854775808"),
        ("debug", "maybe", "debug: expected true or false, got 'maybe'"),
        ("debug", 1, "debug: expected true or false, got 1"),
        (
            "quant_scheme",
            "pots",
            "expected post, dynamic, both, qat or none, got 'pots' (did you mean 'post'?)",
        ),
        ("quant_scheme", None, "quant_scheme: expected post, dynamic, both, qat or none, got None"),
        ("pruning", "strucured", "unstructured or structured, got 'strucured' (did you mean 'structured'?)"),
        (
            "runtime",
            "tflite",
            "runtime: expected c or tflite-micro, got 'tflite' (did you mean 'tflite-micro'?)",
        ),
        ("executor", "cluster", "executor: expected inline, processes or ray, got 'cluster'"),
        ("objectives", 5, "objectives: expected 1, 2, 3 or 4, or a list of error, model_size"),
        ("objectives", ["model_size"], "that includes error, got ['model_size']"),
        ("objectives", ["error", "model_sise"], "got 'model_sise' (did you mean 'model_size'?)"),
        ("objectives", "error, error", "an objective is named twice in 'error, error'"),
        ("objectives", {"error": 1}, "got {'error': 1}"),
        ("constraints", {"model_sise": 3}, "got 'model_sise' (did you mean 'model_size'?)"),
        (
            "constraints",
            {"error": 0.1},
            "expected limits on model_size, working_memory, latency, got 'error'",
        ),
        (
            "constraints",
            "model_size=32kB",
            "constraints: model_size: expected an integer of 1 or more, got '32kB'",
        ),
        ("constraints", "latency=0", "constraints: latency: expected a number above 0, got '0'"),
        (
            "constraints",
            "32768",
            "expected limits such as model_size=32768, working_memory=16384, latency=0.05",
        ),
        ("constraints", "latency=1, latency=2", "latency is limited twice"),
        ("constraints", Constraints(model_size=-1), "model_size: expected an integer of 1 or more, got -1"),
        ("root", "", "root: expected the path of a folder, got ''"),
        ("root", 3, "root: expected the path of a folder, got 3"),
        ("root", "~no-such-user-here/x", "no such home folder"),
        ("target", "", "target: expected a line of text, got ''"),
        ("target_spec", "board", "target_spec: expected a mapping with the keys of [TARGET], got 'board'"),
        ("target_spec", {**BOARD, "clok_hz": 1}, "unknown key 'clok_hz' (did you mean 'clock_hz'?)"),
        ("target_spec", {**BOARD, "clock_hz": 0}, "clock_hz: expected an integer of 1 or more, got 0"),
    ],
)
def test_wrong_value_is_one_line_with_key_expectation_and_value(key, value, said):
    text = line(**{"flops": None if key == "target_spec" else 1, key: value})
    assert text.startswith("Sparse(...) ")
    assert key in text
    assert said in text


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "..",
        "a/b",
        "a\\b",
        "../up",
        "a:b",
        " a",
        "a ",
        "a.",
        ".a",
        "-a",
        "a (2)",
        "a=b",
        "run",
        "Run",
        "a\nb",
        "x" * 101,
        "a\0",
    ],
)
def test_name_must_be_a_plain_file_stem(name):
    assert "name: expected a plain file name without folders" in line(name=name)


def test_several_wrong_values_are_told_together():
    assert line(r1="ten", name="a/b") == (
        "Sparse(...) r1: expected an integer of 0 or more, got 'ten'; "
        "name: expected a plain file name without folders, of letters, digits, spaces and _ . + -, "
        "other than run, got 'a/b'"
    )


def test_long_values_are_cut():
    assert len(line(r1="9" * 10_000)) < 200


def test_keys_that_are_no_text_are_refused():
    with pytest.raises(ConfigError, match="expected names as keys, got 3"):
        RunConfig.from_mapping({**DOCUMENTED, 3: 4})


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"r1": 0, "r2": 0, "r3": 0}, "r1, r2, r3: expected at least one round, got none"),
        ({"r1": 0, "r2": 0, "morphisms": False}, "as morphisms = false leaves out the 5 of r3"),
        ({"epochs2": 0}, "epochs2: expected an integer of 1 or more for the r2 = 4 rounds, got 0"),
        (
            {"executor": "inline", "workers": 4},
            "workers: executor = inline runs in this process, so expected 1, got 4",
        ),
        ({"target": "x", "target_spec": BOARD}, "target: 'x' is named, but [TARGET] describes another one"),
        ({"flops": None}, "objectives: latency needs a clock; set target, or flops in Hz"),
        (
            {"flops": None, "objectives": 3, "constraints": "latency=1"},
            "constraints: a limit on latency needs a clock; set target, or flops in Hz",
        ),
    ],
)
def test_contradictions(changes, said):
    assert said in line(**changes)


@pytest.mark.parametrize("clock", [{"flops": 1}, {"target": "x"}, {"target_spec": BOARD}])
def test_latency_needs_one_source_of_a_clock(clock):
    assert "latency" in make(**{"flops": None, **clock}).objectives


def test_what_does_not_contradict():
    assert make(epochs3=0, r3=0).r3 == 0
    assert make(epochs3=0, morphisms=False).morphisms is False
    assert make(executor="inline", workers=1).workers == 1
    assert make(flops=None, objectives=3).flops is None


def test_stages_are_those_with_rounds():
    sobol, bayes, morph = (
        StageConfig(1, "sobol", 3, 6),
        StageConfig(2, "bayes", 4, 7),
        StageConfig(3, "morph", 5, 8),
    )
    assert make().stages == (sobol, bayes, morph)
    assert make(morphisms=False).stages == (sobol, bayes)
    assert make(r1=0, r3=0).stages == (bayes,)


@pytest.mark.parametrize(
    ("given_", "names"),
    [
        (1, ("error",)),
        ("3", ("error", "model_size", "working_memory")),
        (np.int64(2), ("error", "model_size")),
        (["latency", "error"], ("error", "latency")),
        ("latency, error", ("error", "latency")),
        ("error", ("error",)),
        (("error", "working_memory"), ("error", "working_memory")),
    ],
)
def test_objectives_by_number_or_name_in_the_usual_order(given_, names):
    assert make(objectives=given_).objectives == names


@pytest.mark.parametrize(
    ("given_", "limits"),
    [
        ("model_size=32768, working_memory=16384, latency=0.05", Constraints(32768, 16384, 0.05)),
        ("latency: 1e-2", Constraints(latency=0.01)),
        ("", Constraints()),
        (None, Constraints()),
        ({"model_size": 1024, "latency": None}, Constraints(model_size=1024)),
        (Constraints(working_memory=7), Constraints(working_memory=7)),
    ],
)
def test_constraints_by_text_dict_or_object(given_, limits):
    assert make(constraints=given_).constraints == limits


@pytest.mark.parametrize(
    ("given_", "kind"),
    [
        (True, "unstructured"),
        ("yes", "unstructured"),
        ("Structured", "structured"),
        (False, "none"),
        ("0", "none"),
        ("none", "none"),
    ],
)
def test_pruning_takes_truth_values_and_kinds(given_, kind):
    assert make(pruning=given_).pruning == kind


@pytest.mark.parametrize(
    "number", [80e6, "80000000", "80_000_000", "80e6", np.int32(80_000_000), np.float64(80e6)]
)
def test_integers_in_every_form_that_loses_nothing(number):
    assert make(flops=number).flops == 80_000_000
    assert type(make(flops=number).flops) is int


def test_home_folder_is_expanded(monkeypatch):
    monkeypatch.setenv("HOME", "/home/someone")
    assert make(root="~/runs").root == Path("/home/someone/runs")


def test_own_target():
    board = make(flops=None, target_spec={**BOARD, "cycles_per_instruction": "1.5"}).target_spec
    assert board == TargetConfig.from_mapping({**BOARD, "cycles_per_instruction": 1.5})
    assert board.clock_hz == 64_000_000
    assert TargetConfig.from_mapping(BOARD).cycles_per_instruction is None


def test_configuration_is_a_frozen_value():
    run = make(target_spec=BOARD, flops=None, constraints={"latency": 0.5})
    with pytest.raises(pydantic.ValidationError):
        run.r1 = 9
    assert pickle.loads(pickle.dumps(run)) == run
    assert RunConfig.from_mapping(run.model_dump(mode="json")) == run
    assert RunConfig.from_mapping(run.model_dump()) == run
    assert run.model_copy(update={"seed": 7}).seed == 7


def test_constructor_speaks_the_same_way():
    with pytest.raises(ConfigError, match=r"^RunConfig r1: expected an integer of 0 or more, got 'ten'$"):
        RunConfig(**{**DOCUMENTED, "r1": "ten"})


TEST_SECTION = {
    "pruning": "true",
    "splitter": "false",
    "quant_scheme": "post",
    "objectives": "2",
    "name": "search",
    "root": "results",
    "epochs": "50",
    "arm": "779_0",
}


def test_test_section():
    test = config.TestConfig.from_mapping(TEST_SECTION)
    assert (test.epochs, test.arm, test.objectives) == (50, "779_0", ("error", "model_size"))
    assert config.TestConfig.from_mapping({**TEST_SECTION, "arm": 779}).arm == "779_0"


@pytest.mark.parametrize("arm", ["best", "779_", "_0", "1_2_3", -1, "", None, "1.5", True])
def test_arm_must_be_a_name_of_an_arm(arm):
    with pytest.raises(ConfigError, match=re.escape("arm: expected the name of an arm, such as 779_0, got ")):
        config.TestConfig.from_mapping({**TEST_SECTION, "arm": arm})


@pytest.mark.parametrize(
    ("value", "truth"),
    [(True, True), (False, False)]
    + [(word, True) for word in ("True", "true", "YES", " on ", "1")]
    + [(word, False) for word in ("False", "false", "No", "off", "0")],
)
def test_bool_converter(value, truth):
    assert bool_converter(value) is truth


@pytest.mark.parametrize("value", ["", "maybe", "2", None, 1, 0.0, [], "tru"])
def test_bool_converter_refuses_everything_else(value):
    with pytest.raises(ConfigError, match=r"^expected true or false, got "):
        bool_converter(value)


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | st.binary(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@given(st.sampled_from(sorted(RunConfig.keys())), anything)
def test_any_value_of_any_key_gives_a_configuration_or_one_line(key, value):
    try:
        make(**{key: value})
    except ConfigError as error:
        assert len(str(error).splitlines()) == 1


@given(
    st.dictionaries(
        st.sampled_from(sorted(config.TestConfig.keys())) | st.text(max_size=8), anything, max_size=9
    )
)
def test_any_test_section_gives_a_configuration_or_one_line(mapping):
    try:
        config.TestConfig.from_mapping({**TEST_SECTION, **mapping})
    except ConfigError as error:
        assert len(str(error).splitlines()) == 1
