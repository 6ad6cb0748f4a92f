"""Results files that are damaged, foreign or hostile: one line of `StoreError`, and nothing in them runs."""

import json
import random
import time
from pathlib import Path

import pytest
from ax.core.parameter import ChoiceParameter, DerivedParameter, FixedParameter, ParameterType, RangeParameter
from ax.core.parameter_constraint import ParameterConstraint
from ax.core.search_space import SearchSpace

from sparsemod.candidate import OBJECTIVES, Candidate, Evaluation, Resources, Status
from sparsemod.errors import StoreError
from sparsemod.search.experiment import Experiment


def stored():
    """A results file with every kind of parameter, trial and value."""
    space = SearchSpace(
        [
            RangeParameter("rate", ParameterType.FLOAT, 1e-5, 1e-1, log_scale=True),
            RangeParameter("n", ParameterType.INT, 1, 9),
            ChoiceParameter(
                "kind",
                ParameterType.STRING,
                ["a", "b"],
                is_ordered=True,
                sort_values=False,
                dependents={"b": ["n"]},
            ),
            ChoiceParameter("wide", ParameterType.BOOL, [False, True], is_ordered=True, sort_values=True),
            FixedParameter("fixed", ParameterType.INT, 3),
            DerivedParameter("twice", ParameterType.FLOAT, "2 * rate + 1"),
        ],
        [ParameterConstraint(inequality="n <= 8")],
    )
    experiment = Experiment("mnist", space, OBJECTIVES[:2])
    values = {"rate": 0.01, "n": 3, "kind": "b", "wide": True, "fixed": 3, "twice": 1.02}
    twins = [Candidate({**values, "n": n}, 1, "sobol", draw=n) for n in (1, 2, 3)]
    experiment.add([*twins, Candidate(values, 3, "morph:n", parent="0_0")], round=0, epochs=2, seeds=range(4))
    resources = Resources(1000, 2000, 0.01, 10, 9, 8, 7, 6, 5, 4)
    experiment.complete("0_0", Evaluation(Status.COMPLETED, error=0.25, float_error=0.2, resources=resources))
    experiment.complete("1_0", Evaluation(Status.FAILED, reason="Net raised ValueError: no"))
    return experiment.to_json()


CONTENT = stored()


def refused(content):
    """Read a file that must be refused, and return the line that says why."""
    with pytest.raises(StoreError) as caught:
        Experiment.from_json(content, "results/mnist.json")
    line = str(caught.value)
    assert line.startswith("results/mnist.json: not a readable results file of sparsemod: ")
    assert "\n" not in line and len(line) < 400
    return line.split("sparsemod: ", 1)[1]


def changed(*path, to):
    """The stored file with one place changed."""
    document = json.loads(CONTENT)
    place = document
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = to
    return json.dumps(document).encode()


def without(*path):
    document = json.loads(CONTENT)
    place = document
    for key in path[:-1]:
        place = place[key]
    del place[path[-1]]
    return json.dumps(document).encode()


FOREIGN = {
    "empty": b"",
    "no JSON": b"arm_name,metric_name\n",
    "binary": bytes(range(256)),
    "UTF-16": CONTENT.decode().encode("utf-16"),
    "null": b"null",
    "list": b"[]",
    "object": b"{}",
    "an arm": b'{"__type": "Arm", "parameters": {}}',
    "deep lists": b"[" * 200_000,
    "deep objects": b'{"a":' * 200_000,
    "deep value": CONTENT[:-1] + b',"more":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "two documents": CONTENT + CONTENT,
}


@pytest.mark.parametrize("content", FOREIGN.values(), ids=FOREIGN)
def test_foreign_files_are_one_line(content):
    refused(content)


def test_a_file_that_is_cut_short_anywhere_is_one_line():
    assert "EOF while parsing" in refused(CONTENT[: len(CONTENT) // 2])
    for end in range(0, len(CONTENT), 97):
        refused(CONTENT[:end])


def test_the_line_names_the_place():
    trial = ("trials", "2")
    assert refused(changed(*trial, "run_metadata", "round", to="x")).startswith(
        "trials.2.run_metadata.round: "
    )
    assert refused(without("trials", "1")) == "trials.1 is missing"
    assert refused(changed(*trial, "index", to=7)) == "trials.2 is missing"
    line = refused(changed(*trial, "status", "name", to="COMPLETED"))
    assert line == "trials.2: its status completed and its evaluation do not go together"
    line = refused(changed("properties", "sparsemod_format", to=2))
    assert line == "its format is 2, this sparsemod reads 1"
    line = refused(changed("optimization_config", "objective", "expression", to="-error, -size"))
    assert line == "the objectives '-error, -size' are unknown"
    assert "'fix'" not in refused(changed("trials", "0", "generator_run", "arms", to=[]))
    line = refused(changed("trials", "0", "generator_run", "arms", 0, "parameters", "n", to="three"))
    assert line.startswith("trials.0: three is not a valid value for parameter")
    line = refused(changed("trials", "0", "generator_run", "arms", 0, "parameters", "more", to=1))
    assert line == "trials.0: Parameter more not defined in search space"
    line = refused(changed("search_space", "parameters", 0, "lower", to=5.0))
    assert line.startswith("search_space: Upper bound of rate must be strictly larger")


def test_an_experiment_of_ax_that_sparsemod_did_not_write_is_refused():
    assert refused(without("trials", "0", "run_metadata", "round")).startswith("trials.0.run_metadata.round")
    assert refused(without("properties", "sparsemod_format")).startswith("properties.sparsemod_format")


def test_keys_that_are_not_known_are_ignored_and_not_kept():
    content = changed("trials", "0", "note", to={"__type": "Surrogate", "kwargs": {}})
    assert Experiment.from_json(content).to_json() == CONTENT


SPACE = ("search_space", "parameter_constraints", 0)
EXPRESSIONS = [
    "__import__('pathlib').Path({target!r}).touch() <= 3",
    "1.0 * __import__('pathlib').Path({target!r}).touch() <= 3.0",
    "1.0 * n + open({target!r}, 'w') * 1 <= 3.0",
    "(lambda: open({target!r}, 'w'))() <= 3",
    "exec(\"open({target!r}, 'w')\") <= 3",
    "1.0 * n <= open({target!r}, 'w')",
    "9**9**9**9 * n <= 3",
    "1.0 * n**n**n <= 3.0",
    "1.0 * n <= 9**9**9",
    "1.0 * n <= 1e99999",
    "1.0 * n <= nan",
    "1.0 * n + 1.0 * n <= 3.0",
    "1.0 * missing <= 3.0",
    "n <= 8",
    " <= 8.0",
    "",
]


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_an_expression_in_the_file_is_never_evaluated(tmp_path, expression):
    target = tmp_path / "ran"
    text = expression.format(target=str(target))
    start = time.monotonic()
    refused(changed(*SPACE, "inequality", to=text))
    refused(changed(*SPACE, to={"__type": "ParameterConstraint", "equality": text.replace("<=", "==")}))
    refused(changed("search_space", "parameters", 5, "expression_str", to=text.replace(" <= ", " + ")))
    refused(changed("optimization_config", "objective", "expression", to=text))
    assert not target.exists()
    assert time.monotonic() - start < 30  # one of them would count for ever


def test_a_parameter_whose_name_is_code_cannot_be_in_an_expression(tmp_path):
    name = f"open({str(tmp_path / 'ran')!r},'w')"
    document = json.loads(CONTENT)
    document["search_space"]["parameters"][1]["name"] = name
    document["search_space"]["parameters"][2]["dependents"] = None
    document["search_space"]["parameter_constraints"][0]["inequality"] = f"1.0 * {name} <= 8.0"
    assert "is no plain name of a parameter" in refused(json.dumps(document).encode())
    assert not (tmp_path / "ran").exists()


TYPES = [
    "Surrogate",
    "Experiment",
    "Tensor",
    "torch_dtype",
    "set",
    "GeneratorSpec",
    "SearchSpace",
    "os.system",
    "",
    None,
    3,
]


@pytest.mark.parametrize("kind", TYPES)
def test_no_class_outside_the_list_is_made(kind):
    evil = {"__type": kind, "value": "x", "df": "x", "index": 0, "name": "x"}
    for path in [
        ("search_space",),
        ("search_space", "parameters", 1),
        ("search_space", "parameters", 1, "parameter_type"),
        ("search_space", "parameter_constraints", 0),
        ("optimization_config",),
        ("trials", "0"),
        ("trials", "0", "generator_run"),
        ("trials", "0", "generator_run", "arms", 0),
        ("trials", "0", "run_metadata", "evaluation", "resources"),
        ("trials", "0", "run_metadata"),
        ("time_created",),
    ]:
        refused(changed(*path, to=evil))


def mutations(seed, n):
    """Files with a few bytes or values changed, some of them still good."""
    rng = random.Random(seed)
    words = [
        b'"',
        b"{",
        b"}",
        b"[",
        b"]",
        b"-",
        b"1e999",
        b"NaN",
        b"null",
        b"true",
        b"\\ud800",
        b"\x00",
        b"\xff",
        b"0" * 5000,
        b",",
        b":",
    ]
    odd = [
        None,
        True,
        -1,
        0,
        1e308,
        -1e-308,
        10**400,
        "",
        "x",
        "\ud800",
        "9" * 5000,
        [],
        {},
        [[]],
        {"__type": "Arm"},
        {"": 0},
    ]
    for _ in range(n):
        if rng.random() < 0.5:
            content = bytearray(CONTENT)
            for _ in range(rng.choice([1, 1, 2, 5])):
                start = rng.randrange(len(content))
                length = rng.choice([0, 0, 1, 3, 50])
                content[start : start + length] = rng.choice(words)
            yield bytes(content)
        else:
            document = json.loads(CONTENT)
            for _ in range(rng.choice([1, 1, 2])):
                place = document
                while True:
                    key = rng.choice(list(place) if isinstance(place, dict) else range(len(place)))
                    if isinstance(place[key], (dict, list)) and place[key] and rng.random() < 0.9:
                        place = place[key]
                        continue
                    if rng.random() < 0.3:
                        del place[key]
                    else:
                        place[key] = rng.choice(odd)
                    break
                if not document:
                    break
            yield json.dumps(document).encode()


def test_whatever_is_changed_in_a_file_it_is_read_or_refused_in_one_line():
    outcomes = {True: 0, False: 0}
    for content in mutations(seed=1, n=800):
        try:
            experiment = Experiment.from_json(content, "mnist.json")
        except StoreError as error:
            assert "\n" not in str(error) and len(str(error)) < 400, str(error)
            outcomes[False] += 1
            continue
        outcomes[True] += 1
        assert Experiment.from_json(experiment.to_json()).to_json() == experiment.to_json()
        experiment.to_csv()
        experiment.front()
    assert min(outcomes.values()) > 20


def test_what_is_read_from_a_changed_file_is_also_read_by_ax():
    for content in mutations(seed=2, n=60):
        try:
            experiment = Experiment.from_json(content)
        except StoreError:
            continue
        assert len(experiment.ax_experiment().trials) == len(experiment.arms)


def test_a_damaged_file_on_disk_names_itself(tmp_path):
    path = Path(tmp_path / "mnist.json")
    path.write_bytes(CONTENT[:100])
    with pytest.raises(StoreError, match=r"mnist\.json: not a readable results file"):
        Experiment.from_json(path.read_bytes(), str(path))
