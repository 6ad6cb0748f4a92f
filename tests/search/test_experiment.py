"""The record of a run: arms, front, files, and what Ax makes of them."""

import csv
import io
import json
import logging
import math
import warnings

import numpy as np
import pandas as pd
import pytest
from ax.core.parameter import (
    ChoiceParameter,
    DerivedParameter,
    FixedParameter,
    ParameterType,
    RangeParameter,
)
from ax.core.parameter_constraint import ParameterConstraint
from ax.core.search_space import SearchSpace
from ax.core.trial_status import TrialStatus
from ax.storage.json_store.load import load_experiment
from ax.storage.json_store.save import save_experiment

from sparsemod.candidate import (
    OBJECTIVES,
    Candidate,
    Constraints,
    Evaluation,
    Resources,
    Status,
    standardised,
)
from sparsemod.errors import ConfigError, SpaceError
from sparsemod.search.experiment import Experiment


def space(**changes):
    """A space with every kind of parameter; `changes` replace or (None) drop some by name."""
    parameters = {
        "learning_rate": RangeParameter("learning_rate", ParameterType.FLOAT, 1e-5, 1e-1, log_scale=True),
        "batch_size": RangeParameter("batch_size", ParameterType.INT, 8, 128),
        "kernel": ChoiceParameter(
            "kernel",
            ParameterType.INT,
            [1, 3, 5],
            is_ordered=True,
            sort_values=True,
            dependents={3: ["depth"]},
        ),
        "depth": RangeParameter("depth", ParameterType.INT, 1, 200),
        "kind": ChoiceParameter(
            "kind", ParameterType.STRING, ["conv", "sep", "none"], is_ordered=False, sort_values=False
        ),
        "residual": ChoiceParameter(
            "residual", ParameterType.BOOL, [False, True], is_ordered=True, sort_values=True
        ),
        "gamma": FixedParameter("gamma", ParameterType.FLOAT, 0.1),
        "width": DerivedParameter("width", ParameterType.FLOAT, "0.5 * batch_size - learning_rate + 1"),
        **changes,
    }
    rules = [ParameterConstraint(inequality="batch_size >= 2 * depth")]
    return SearchSpace([p for p in parameters.values() if p is not None], rules)


def params(index=0, **changes):
    return {
        "learning_rate": 0.001 * (index + 1),
        "batch_size": 16,
        "kernel": 3,
        "depth": 2 + index,
        "kind": "sep",
        "residual": True,
        "gamma": 0.1,
        "width": 8.999,
        **changes,
    }


def candidate(index=0, **fields):
    return Candidate(
        **{"parametrization": params(index), "stage": 1, "origin": "sobol", "draw": index, **fields}
    )


def resources(model_size=1000, working_memory=2000, latency=0.01):
    return Resources(model_size, working_memory, latency, 10, 9, 8, 7, 6, 5, 4)


def completed(error=0.25, **fields):
    costs = {k: fields.pop(k) for k in ("model_size", "working_memory", "latency") if k in fields}
    return Evaluation(Status.COMPLETED, error=error, resources=resources(**costs), **fields)


def run(*evaluations, objectives=OBJECTIVES, **kwargs):
    """An experiment with one arm for each evaluation; None leaves it pending."""
    experiment = Experiment("mnist", space(), objectives)
    for index, evaluation in enumerate(evaluations):
        (arm,) = experiment.add([candidate(index)], round=index, epochs=5, seeds=[100 + index])
        if evaluation is not None:
            experiment.complete(arm.name, evaluation)
    return experiment


def through_ax(experiment, tmp_path):
    path = tmp_path / "through_ax.json"
    path.write_bytes(experiment.to_json())
    return load_experiment(str(path))


FULL = completed(
    0.125,
    float_error=0.1,
    test_error=0.15,
    n_epochs=5,
    best_epoch=3,
    sparsity=0.5,
    seconds=1.25,
    details="Traceback",
    weights=b"weights",
)
FAILED = Evaluation(Status.FAILED, reason="Net raised ValueError: no pixels left", n_epochs=1, seconds=0.5)


# Arms


def test_arms_are_named_and_ordered_as_they_are_added():
    experiment = Experiment("mnist", space(), ["error"])
    first = experiment.add([candidate(0), candidate(1)], round=0, epochs=5, seeds=[7, 8])
    (second,) = experiment.add([candidate(2, stage=2, origin="bayes")], round=4, epochs=9, seeds=[9])
    assert [a.name for a in first] == ["0_0", "1_0"]
    assert (second.name, second.index, second.round, second.epochs, second.seed) == ("2_0", 2, 4, 9, 9)
    assert experiment.arms == [*first, second] == experiment.pending
    assert experiment.history == []


def test_an_arm_is_pending_until_it_is_completed():
    experiment = run(None, None, None)
    done = experiment.complete("1_0", FULL)
    assert done.status is Status.COMPLETED
    assert [a.name for a in experiment.pending] == ["0_0", "2_0"]
    assert experiment.history == [done] == [experiment.arms[1]]
    experiment.complete("0_0", FAILED)
    assert [a.name for a in experiment.history] == ["0_0", "1_0"]


def test_weights_and_tracebacks_are_not_kept():
    evaluation = run(FULL).arms[0].evaluation
    assert (evaluation.weights, evaluation.details) == (None, "")
    assert evaluation == FULL


def test_numpy_values_become_plain_ones():
    experiment = Experiment("mnist", space(), ["error"])
    values = params(batch_size=np.int64(16), learning_rate=np.float64(0.5e-3), residual=np.bool_(True))
    (arm,) = experiment.add([candidate(parametrization=values)], round=0, epochs=1, seeds=[np.int64(3)])
    kinds = {k: type(v) for k, v in arm.candidate.parametrization.items()}
    assert (kinds["batch_size"], kinds["learning_rate"], kinds["residual"]) == (int, float, bool)
    assert Experiment.from_json(experiment.to_json()).arms == [arm]


def test_changing_the_proposed_dict_later_does_not_change_the_arm():
    values = params()
    experiment = Experiment("mnist", space(), ["error"])
    experiment.add([candidate(parametrization=values)], round=0, epochs=1, seeds=[0])
    values["kernel"] = 5
    assert experiment.arms[0].candidate.parametrization["kernel"] == 3


def test_misuse_is_an_error():
    experiment = run(FULL, None)
    with pytest.raises(ValueError, match="arm 0_0 has been evaluated already"):
        experiment.complete("0_0", FULL)
    with pytest.raises(KeyError, match="there is no arm 9_0"):
        experiment.complete("9_0", FULL)
    with pytest.raises(ValueError, match="without error or resources"):
        experiment.complete("1_0", Evaluation(Status.COMPLETED, error=0.5))
    with pytest.raises(ValueError, match="not pending"):
        experiment.complete("1_0", Evaluation(Status.PENDING))
    with pytest.raises(ValueError, match="has not been evaluated"):
        experiment.set_test_error("1_0", 0.5)
    with pytest.raises(ValueError, match="zip"):
        experiment.add([candidate(5)], round=0, epochs=1, seeds=[])
    with pytest.raises(ValueError, match="stride"):
        experiment.add([candidate(parametrization=params(stride=2))], round=0, epochs=1, seeds=[0])
    with pytest.raises(ValueError, match="kernel"):
        experiment.add([candidate(parametrization=params(kernel="3"))], round=0, epochs=1, seeds=[0])
    assert len(experiment.arms) == 2


def test_objectives_are_checked():
    with pytest.raises(ConfigError, match=r"got 'eror' \(did you mean 'error'\?\)"):
        Experiment("mnist", space(), ["eror"])
    with pytest.raises(ConfigError, match="none twice"):
        Experiment("mnist", space(), ["error", "error"])
    with pytest.raises(ConfigError, match="at least one"):
        Experiment("mnist", space(), [])


def test_a_space_that_could_not_be_read_back_is_refused_at_the_start():
    odd = SearchSpace(
        [RangeParameter("a(b)", ParameterType.INT, 1, 5), RangeParameter("c", ParameterType.INT, 1, 5)],
        [ParameterConstraint(inequality="a(b) + c <= 5")],
    )
    with pytest.raises(SpaceError, match=r"cannot be stored: search_space: 'a\(b\)'"):
        Experiment("mnist", odd, ["error"])


# The front


def front(experiment, constraints=None):
    return [a.name for a in experiment.front(constraints)]


def test_the_front_is_of_the_objectives_of_the_run():
    evaluations = [
        completed(0.3, model_size=100, working_memory=9),
        completed(0.2, model_size=200, working_memory=9),
        completed(0.2, model_size=300, working_memory=5),
        completed(0.4, model_size=400, working_memory=9),
    ]
    assert front(run(*evaluations, objectives=["error"])) == ["1_0", "2_0"]
    assert front(run(*evaluations, objectives=["error", "model_size"])) == ["0_0", "1_0"]
    assert front(run(*evaluations, objectives=OBJECTIVES[:3])) == ["0_0", "1_0", "2_0"]
    assert front(run(*evaluations, objectives=["working_memory"])) == ["2_0"]


def test_failed_pending_and_nan_arms_are_never_on_the_front():
    assert front(run()) == []
    assert front(run(None, FAILED)) == []
    assert front(run(None, FAILED, completed(math.nan), completed(0.9))) == ["3_0"]
    failed = Evaluation(Status.FAILED, reason="too large", error=0.0, resources=resources(1, 1, 0.0))
    assert front(run(failed, completed(0.9))) == ["1_0"]


def test_arms_beyond_the_limits_after_training_are_not_on_the_front():
    experiment = run(completed(0.1, model_size=2000), completed(0.5, model_size=1000))
    assert front(experiment) == ["0_0", "1_0"]
    assert front(experiment, Constraints(model_size=1500)) == ["1_0"]
    assert front(experiment, Constraints(model_size=2000)) == ["0_0", "1_0"]
    assert front(experiment, Constraints(latency=0.001)) == []


def test_equal_arms_are_all_on_the_front():
    assert front(run(completed(0.1), completed(0.1))) == ["0_0", "1_0"]


# The results file


def assert_same(restored, experiment):
    assert restored.arms == experiment.arms
    assert [a.evaluation and a.evaluation.seconds for a in restored.arms] == [
        a.evaluation and a.evaluation.seconds for a in experiment.arms
    ]
    assert (restored.name, restored.objectives) == (experiment.name, experiment.objectives)
    assert restored.matches(experiment.search_space, experiment.objectives) is None
    assert restored.to_json() == experiment.to_json()
    assert restored.to_csv() == experiment.to_csv()


@pytest.mark.parametrize("objectives", [OBJECTIVES[:n] for n in (1, 2, 3, 4)] + [("latency", "error")])
def test_a_run_is_wholly_restored_from_its_results_file(objectives):
    experiment = run(FULL, FAILED, None, completed(1 / 3, latency=1e-9), objectives=objectives)
    experiment.add(
        [candidate(4, stage=3, origin="morph:kernel+depth", draw=None, parent="0_0")],
        round=2,
        epochs=7,
        seeds=[2**63],
    )
    experiment.set_test_error("3_0", 0.34)
    restored = Experiment.from_json(experiment.to_json())
    assert_same(restored, experiment)
    assert restored.arms[4].candidate == Candidate(params(4), 3, "morph:kernel+depth", None, "0_0")
    assert restored.arms[3].evaluation.test_error == 0.34
    assert [type(v) for v in restored.arms[0].candidate.parametrization.values()] == [
        type(v) for v in params().values()
    ]


def test_an_empty_run_is_restored_too():
    experiment = run()
    assert_same(Experiment.from_json(experiment.to_json()), experiment)


def test_a_restored_run_goes_on_like_the_one_that_was_not_stopped():
    experiment = run(FULL, None)
    restored = Experiment.from_json(experiment.to_json())
    for each in (experiment, restored):
        each.complete("1_0", FAILED)
        each.add([candidate(2)], round=2, epochs=5, seeds=[1])
        each.complete("2_0", completed(0.0625))
    assert restored.arms == experiment.arms
    assert restored.to_csv() == experiment.to_csv()


def test_a_nan_error_stays_nan_and_an_unknown_one_unknown():
    experiment = run(completed(math.nan, float_error=math.nan))
    evaluation = Experiment.from_json(experiment.to_json()).arms[0].evaluation
    assert math.isnan(evaluation.error)
    assert (evaluation.float_error, evaluation.test_error) == (None, None)
    assert b"NaN" not in experiment.to_json()


@pytest.mark.parametrize(
    "text", ["quotes \" ' \\ and , ; \n line", "größer als µC 😀", "lone \ud800 surrogate", "\x00"]
)
def test_any_reason_survives(text):
    experiment = run(Evaluation(Status.FAILED, reason=text))
    kept = experiment.arms[0].evaluation.reason
    assert kept == text.replace("\ud800", "?")
    assert Experiment.from_json(experiment.to_json()).arms[0].evaluation.reason == kept


def test_every_float_is_restored_to_the_last_digit():
    rng = np.random.default_rng(0)
    floats = [float(v) for v in rng.uniform(1e-5, 0.1, 300) * 10.0 ** -rng.integers(0, 4, 300)]
    experiment = Experiment("mnist", space(), ["error"])
    experiment.add(
        [candidate(parametrization=params(learning_rate=v)) for v in floats],
        round=0,
        epochs=1,
        seeds=range(300),
    )
    for arm, value in zip(experiment.arms, floats, strict=True):
        experiment.complete(arm.name, completed(value, latency=value**3))
    assert Experiment.from_json(experiment.to_json()).arms == experiment.arms


def test_no_trace_of_weights_data_or_classes_is_in_the_file():
    content = run(FULL).to_json()
    assert b"Traceback" not in content
    assert b"weights of" not in content and b'"weights":[1.0]' in content  # Ax's word for an arm's share


def test_saving_after_one_arm_encodes_only_that_arm(monkeypatch):
    experiment = run(FULL, FULL, None)
    before = experiment.to_json()
    calls = []
    monkeypatch.setattr(
        "sparsemod.search.experiment.trial_text", lambda record: (calls.append(record.arm.name), '"2":{}')[1]
    )
    experiment.complete("2_0", FULL)
    assert experiment.to_json() != before
    assert calls == ["2_0"]


def test_three_hundred_arms_of_forty_parameters_stay_below_a_megabyte():
    names = [f"block_{i}.kernel_size" for i in range(20)] + [f"block_{i}.drop_rate" for i in range(20)]
    kinds = [ParameterType.INT] * 20 + [ParameterType.FLOAT] * 20
    wide = SearchSpace([RangeParameter(n, k, 1, 9) for n, k in zip(names, kinds, strict=True)])
    experiment = Experiment("mnist", wide, OBJECTIVES)
    rng = np.random.default_rng(0)
    for index in range(300):
        values = {
            n: int(rng.integers(1, 10)) if i < 20 else float(rng.uniform(1, 9)) for i, n in enumerate(names)
        }
        experiment.add(
            [Candidate(values, 3, "morph:kernel_size", None, "17_0")], round=index, epochs=20, seeds=[2**31]
        )
        errors = [float(v) for v in rng.uniform(size=5)]
        evaluation = completed(
            errors[0], float_error=errors[1], latency=errors[2], sparsity=errors[3], seconds=errors[4]
        )
        experiment.complete(f"{index}_0", evaluation)
    assert len(experiment.to_json()) < 1_000_000


# What Ax reads


def test_ax_reads_the_file_with_its_own_loader(tmp_path):
    experiment = run(FULL, FAILED, None, completed(1 / 3))
    loaded = through_ax(experiment, tmp_path)
    assert loaded.name == "mnist"
    assert loaded.immutable_search_space_and_opt_config
    assert {n: a.parameters for n, a in loaded.arms_by_name.items()} == {
        a.name: a.candidate.parametrization for a in experiment.arms
    }
    statuses = [loaded.trials[i].status for i in range(4)]
    assert statuses == [TrialStatus.COMPLETED, TrialStatus.FAILED, TrialStatus.RUNNING, TrialStatus.COMPLETED]
    assert loaded.trials[1].status_reason == "Net raised ValueError: no pixels left"
    assert loaded.trials[0].run_metadata["evaluation"]["resources"] == resources().as_dict()
    assert loaded.trials[0].run_metadata["stage"] == 1
    data = loaded.data.df
    assert list(data.trial_index) == [0] * 4 + [3] * 4
    for row in data.itertuples():
        value = experiment.arms[row.trial_index].evaluation.objective(row.metric_name)
        assert row.mean == pytest.approx(standardised(row.metric_name, value), rel=1e-14)
        assert row.sem == 0.0


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_ax_minimises_the_objectives_of_the_run_and_tracks_the_rest(tmp_path, n):
    loaded = through_ax(run(FULL, objectives=OBJECTIVES[:n]), tmp_path)
    objective = loaded.optimization_config.objective
    assert objective.metric_names == list(OBJECTIVES[:n])
    assert dict(objective.metric_weights) == dict.fromkeys(OBJECTIVES[:n], -1.0)
    assert loaded.optimization_config.is_moo_problem == (n > 1)
    assert {m: loaded.metrics[m].lower_is_better for m in loaded.metrics} == dict.fromkeys(OBJECTIVES, True)


def test_ax_reads_the_same_search_space(tmp_path):
    loaded = through_ax(run(), tmp_path).search_space
    original = space()
    for name, parameter in original.parameters.items():
        if name != "width":
            assert loaded.parameters[name] == parameter
    assert loaded.parameters["kernel"].dependents == {3: ["depth"]}
    assert loaded.parameter_constraints == original.parameter_constraints
    width = loaded.parameters["width"]
    assert width.parameter_names_to_weights == {"batch_size": 0.5, "learning_rate": -1.0}
    assert width.intercept == 1.0


def test_what_ax_saves_again_is_read(tmp_path):
    experiment = run(FULL, FAILED, None)
    path = tmp_path / "again.json"
    save_experiment(through_ax(experiment, tmp_path), str(path))
    assert Experiment.from_json(path.read_bytes()).arms == experiment.arms


def test_the_ax_experiment_and_data_hold_the_exact_values(tmp_path):
    experiment = run(FULL, FAILED, None, completed(1 / 3, latency=0.1 + 0.2))
    ax, data = experiment.ax_experiment(), experiment.ax_data()
    assert ax.arms_by_name["3_0"].parameters == params(3)
    assert data.df.equals(ax.data.df)
    rows = [r for r in experiment.rows() if r.metric_name in OBJECTIVES]
    assert len(rows) == 8
    exact = {(r.arm_name, r.metric_name): r.mean for r in rows}
    assert {(r.arm_name, r.metric_name): r.mean for r in data.df.itertuples()} == exact
    assert list(data.df.columns) == [
        "trial_index",
        "arm_name",
        "metric_name",
        "metric_signature",
        "mean",
        "sem",
    ]


def test_an_empty_run_is_an_empty_ax_experiment(tmp_path):
    ax = run().ax_experiment()
    assert (ax.arms_by_name, ax.trials, ax.data.empty) == ({}, {}, True)
    assert through_ax(run(), tmp_path).trials == {}


def test_a_repeated_configuration_is_an_arm_of_its_own(tmp_path):
    experiment = Experiment("mnist", space(), ["error"])
    twins = [candidate(0), candidate(1), candidate(0, stage=3, origin="morph:none", parent="0_0")]
    experiment.add(twins, round=0, epochs=1, seeds=[1, 2, 3])
    experiment.complete("0_0", completed(0.5))
    experiment.complete("2_0", completed(0.25))
    restored = Experiment.from_json(experiment.to_json())
    assert_same(restored, experiment)
    assert [a.name for a in restored.arms] == ["0_0", "1_0", "2_0"]
    assert front(restored) == ["2_0"]
    loaded = through_ax(experiment, tmp_path)  # Ax knows both by the first one's name
    assert loaded.trials[2].arm.name == "0_0"
    assert list(loaded.data.df.query("metric_name == 'error'")["mean"]) == [0.5, 0.25]
    assert experiment.ax_experiment().arms_by_name["2_0"].parameters == params(0)


def test_writing_and_reading_are_silent(tmp_path, caplog, capfd):
    with warnings.catch_warnings(), caplog.at_level(logging.WARNING):
        warnings.simplefilter("error")
        experiment = run(FULL, FAILED, None)
        Experiment.from_json(experiment.to_json()).to_csv()
        warnings.simplefilter("ignore", DeprecationWarning)  # Ax's use of pandas
        experiment.ax_experiment()
    assert (caplog.records, *capfd.readouterr()) == ([], "", "")


# The table


def test_the_table_by_hand():
    experiment = run(
        completed(0.25, model_size=10_000, working_memory=100, latency=0.009),
        FAILED,
        None,
        completed(0.5, model_size=1, working_memory=100, latency=0.0),
        completed(0.75, model_size=10_000, working_memory=10_000, latency=0.099),
    )
    assert experiment.to_csv() == "\n".join(
        [
            "arm_name,metric_name,mean,sem,trial_index,value,unit,stage,pareto",
            "0_0,error,0.25,0.0,0,0.25,fraction,1,True",
            "0_0,model_size,0.5,0.0,0,10000,bytes,1,True",
            "0_0,working_memory,0.25,0.0,0,100,bytes,1,True",
            "0_0,latency,0.25,0.0,0,0.009,seconds,1,True",
            "3_0,error,0.5,0.0,3,0.5,fraction,1,True",
            "3_0,model_size,0.0,0.0,3,1,bytes,1,True",
            "3_0,working_memory,0.25,0.0,3,100,bytes,1,True",
            "3_0,latency,0.0,0.0,3,0.0,seconds,1,True",
            "4_0,error,0.75,0.0,4,0.75,fraction,1,False",
            "4_0,model_size,0.5,0.0,4,10000,bytes,1,False",
            "4_0,working_memory,0.5,0.0,4,10000,bytes,1,False",
            "4_0,latency,0.5,0.0,4,0.099,seconds,1,False",
            "",
        ]
    )


def test_the_table_marks_the_front_within_the_limits():
    experiment = run(completed(0.1, model_size=2000), completed(0.5, model_size=1000))
    marked = {r.arm_name for r in experiment.rows(Constraints(model_size=1500)) if r.pareto}
    assert marked == {"1_0"}


def test_the_table_reads_back_the_same():
    experiment = run(completed(1 / 3, latency=0.1 + 0.2), FULL, FAILED)
    text = experiment.to_csv()
    rows = list(csv.reader(io.StringIO(text)))[1:]
    assert [float(r[2]) for r in rows] == [r.mean for r in experiment.rows()]
    frame = pd.read_csv(io.StringIO(text))
    pd.testing.assert_frame_equal(frame, experiment.to_frame(), check_exact=True)


def test_the_order_of_completion_does_not_show_in_the_table():
    one, other = run(None, None), run(None, None)
    for experiment, order in ((one, ["0_0", "1_0"]), (other, ["1_0", "0_0"])):
        for name in order:
            experiment.complete(name, completed(0.1 if name == "0_0" else 0.2))
    assert one.to_csv() == other.to_csv()


# Whether a run may go on


KINDS = ChoiceParameter("kind", ParameterType.STRING, ["conv", "sep"], is_ordered=True, sort_values=False)
CHANGES = {
    "nothing": ({}, None),
    "bound": (
        {"batch_size": RangeParameter("batch_size", ParameterType.INT, 8, 64)},
        "parameter 'batch_size' has upper 128 in the results and 64 in this search space",
    ),
    "number type": (
        {"depth": RangeParameter("depth", ParameterType.FLOAT, 1, 200)},
        "parameter 'depth' has parameter_type INT in the results and FLOAT in this search space",
    ),
    "gone": ({"gamma": None}, "the results have a parameter 'gamma', this search space has none"),
    "new": (
        {"zoom": FixedParameter("zoom", ParameterType.INT, 1)},
        "this search space has a parameter 'zoom', the results have none",
    ),
    "kind": (
        {"gamma": RangeParameter("gamma", ParameterType.FLOAT, 0, 1)},
        "parameter 'gamma' has type FixedParameter in the results and RangeParameter in this search space",
    ),
    "values": (
        {"kind": KINDS},
        "parameter 'kind' has is_ordered False in the results and True in this search space",
    ),
    "expression": (
        {"width": DerivedParameter("width", ParameterType.FLOAT, "0.5 * batch_size")},
        "parameter 'width' has expression_str 0.5 * batch_size + -1.0 * learning_rate + 1.0 in the results "
        "and 0.5 * batch_size + 0.0 in this search space",
    ),
}


@pytest.mark.parametrize(("changed", "reason"), CHANGES.values(), ids=CHANGES)
def test_results_of_another_space_are_told_by_the_first_difference(changed, reason):
    experiment = Experiment.from_json(run(FULL).to_json())
    assert experiment.matches(space(**changed), OBJECTIVES) == reason


def test_results_of_other_objectives_constraints_or_order_are_told():
    experiment = run(FULL)
    said = experiment.matches(space(), OBJECTIVES[:2])
    assert (
        said
        == "the results minimise error, model_size, working_memory, latency, this search error, model_size"
    )
    parameters = list(space().parameters.values())
    rules = space().parameter_constraints
    assert experiment.matches(SearchSpace(parameters, rules), OBJECTIVES) is None
    said = experiment.matches(SearchSpace(parameters), OBJECTIVES)
    assert (
        said
        == "the results have the constraints -1.0 * batch_size + 2.0 * depth <= 0.0, this search space none"
    )
    said = experiment.matches(SearchSpace([parameters[1], parameters[0], *parameters[2:]], rules), OBJECTIVES)
    assert said == "parameter 'learning_rate' comes where this search space has 'batch_size'"


def test_the_file_is_plain_json_that_any_reader_takes():
    def refuse(constant):
        raise AssertionError(constant)

    content = json.loads(run(FULL, FAILED, None, completed(math.nan)).to_json(), parse_constant=refuse)
    assert content["trials"]["0"]["run_metadata"]["seed"] == 100
    assert list(content["data_by_trial"]) == ["0", "3"]
