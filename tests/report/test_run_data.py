"""Reading a results folder for a report, and the hypervolume of what is in it."""

import json

import pytest
from report_runs import completed, failed, random_evaluations, write_run

from sparsemod.candidate import Constraints, standardised
from sparsemod.errors import StoreError
from sparsemod.report.hypervolume import REFERENCE, progress, stage_summaries
from sparsemod.report.run_data import read_run


def test_everything_of_a_run_is_read(tmp_path):
    experiment = write_run(tmp_path, random_evaluations(24), limits={"working_memory": 3000})
    run = read_run(tmp_path)
    assert (run.name, run.objectives) == ("made", experiment.objectives)
    assert [a.name for a in run.arms] == [f"{i}_0" for i in range(24)]
    assert run.constraints == Constraints(working_memory=3000)
    assert run.front == {a.name for a in experiment.front(run.constraints)}
    assert set(run.layers) == run.front
    assert [p.name for p in run.parameters][:2] == ["learning_rate", "prune_threshold"]
    assert run.record["target"] == "STM32F446"


def test_a_run_of_an_earlier_version_has_no_layers(tmp_path):
    write_run(tmp_path, [completed()])
    (tmp_path / "models" / "0_0.layers.json").unlink()
    assert read_run(tmp_path).layers == {}


def test_without_run_json_the_only_results_file_is_read(tmp_path):
    write_run(tmp_path, [completed()], record=False)
    run = read_run(tmp_path)
    assert (run.name, run.record, run.constraints) == ("made", {}, Constraints())
    (tmp_path / "other.json").write_text("{}")
    with pytest.raises(StoreError, match=r"expected one results file <name>\.json, found made, other"):
        read_run(tmp_path)


def test_what_cannot_be_read_is_one_line(tmp_path):
    with pytest.raises(StoreError, match="there is no such folder"):
        read_run(tmp_path / "nowhere")
    with pytest.raises(StoreError, match="there are no results"):
        read_run(tmp_path)
    write_run(tmp_path, [completed()])
    (tmp_path / "models" / "0_0.layers.json").write_bytes(b"[{]")
    with pytest.raises(StoreError, match=r"0_0\.layers\.json: is damaged"):
        read_run(tmp_path)
    record = json.loads((tmp_path / "run.json").read_text())
    for limit in ("64 kB", True, [1]):
        record["configuration"]["constraints"]["model_size"] = limit
        (tmp_path / "run.json").write_text(json.dumps(record))
        with pytest.raises(StoreError, match=r"constraints\.model_size: expected a number, got"):
            read_run(tmp_path)
    (tmp_path / "made.json").write_text("{}")
    with pytest.raises(StoreError, match="not a readable results file"):
        read_run(tmp_path)


def test_the_hypervolume_worked_by_hand(tmp_path):
    # 10 kB is 0.5 on the standardised scale, 100 bytes 0.25
    evaluations = [
        completed(0.5, 10_000),
        failed(),
        completed(0.6, 100),
        completed(0.1, 100, ram=9000),  # beyond the limit
        completed(0.5, 10_000),
        completed(0.25, 10_000),
    ]
    write_run(tmp_path, evaluations, objectives=("error", "model_size"), limits={"working_memory": 8000})
    run = read_run(tmp_path)
    first = 0.5 * 0.5
    second = first + 0.4 * 0.25
    expected = [first, first, second, second, second, second + 0.25 * 0.5]
    values = progress(run)
    assert values == pytest.approx(expected)
    one, two, three = stage_summaries(run, values)
    assert (one.name, one.n_arms, one.n_failed, one.n_front, one.seconds) == ("sobol", 2, 1, 0, 12.5)
    assert (one.gain, two.gain, three.gain) == pytest.approx((0.25, 0.1, 0.125))
    assert three.hypervolume == values[-1]
    assert three.seconds is None


def test_the_reference_point_is_1_on_every_standardised_scale():
    assert [standardised(name, value) for name, value in REFERENCE.items()] == pytest.approx([1.0] * 4)


def test_what_is_beyond_the_reference_point_adds_nothing(tmp_path):
    write_run(tmp_path, [completed(1.0), completed(0.1, seconds=11.0), completed(0.1, size=2 * 10**8)])
    assert progress(read_run(tmp_path)) == [0.0, 0.0, 0.0]


def test_nothing_evaluated_is_no_hypervolume(tmp_path):
    write_run(tmp_path, [None])
    run = read_run(tmp_path)
    assert (progress(run), stage_summaries(run, []), run.completed) == ([], [], [])
