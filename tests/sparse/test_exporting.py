"""Files for the chip, while a search runs and on demand."""

import json
import signal
import sys
import time

import pandas as pd
import pytest
from test_run import run, script
from tiny_problem import DividingNet, SometimesDividingNet, arguments
from torch import nn

from sparsemod import Sparse
from sparsemod.errors import ConfigError, StoreError
from sparsemod.sparse import exporting

SHORT = {"r1": 3, "r2": 1, "r3": 1}


def tflite_names(root):
    return {p.name for p in (root / "models").glob("*.tflite")}


def test_the_front_has_its_files_and_nothing_else_has(tmp_path):
    seen = []
    retain = exporting.Store.retain

    def watched(store, names, parents=()):
        retain(store, names, parents)
        seen.append((tflite_names(tmp_path), {f"{name}.tflite" for name in names}))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exporting.Store, "retain", watched)
        result = run(tmp_path, export=True, r1=5, r2=2, r3=2)
    assert all(there == wanted for there, wanted in seen)
    assert tflite_names(tmp_path) == {f"{arm.name}.tflite" for arm in result.front}
    for arm in result.front:
        size = (tmp_path / "models" / f"{arm.name}.tflite").stat().st_size
        assert arm.evaluation.resources.file_bytes == size


def test_exporting_changes_nothing_of_the_search(tmp_path):
    run(tmp_path / "a", **SHORT)
    run(tmp_path / "b", export=True, **SHORT)
    assert (tmp_path / "a" / "tiny.csv").read_bytes() == (tmp_path / "b" / "tiny.csv").read_bytes()
    assert not tflite_names(tmp_path / "a")


def test_files_are_the_same_from_workers_and_on_demand(tmp_path):
    changes = {"batch_size": 2, "r1": 2, "r2": 0, "r3": 0, "export": True}
    run(tmp_path / "a", executor="inline", **changes)
    sparse = Sparse(**arguments(tmp_path / "b", executor="processes", workers=2, **changes))
    front = [arm.name for arm in sparse.run_sparse().front]
    written = sparse.export("front", tmp_path / "out")
    assert sorted(file.arm for file in written) == sorted(front)
    for file in written:
        content = file.path.read_bytes()
        assert file.n_bytes == len(content)
        assert content == (tmp_path / "a" / "models" / file.path.name).read_bytes()
        assert content == (tmp_path / "b" / "models" / file.path.name).read_bytes()


def test_turning_it_on_later_writes_the_files_of_the_front(tmp_path, capsys):
    result = run(tmp_path, **SHORT)
    assert not tflite_names(tmp_path)
    again = run(tmp_path, export=True, **SHORT)
    assert tflite_names(tmp_path) == {f"{arm.name}.tflite" for arm in result.front}
    assert [a.evaluation for a in again.arms] == [a.evaluation for a in result.arms]
    (tmp_path / "models" / f"{result.front[0].name}.safetensors").write_bytes(b"damaged")
    (tmp_path / "models" / f"{result.front[0].name}.tflite").unlink()
    run(tmp_path, export=True, **SHORT)
    assert f"arm {result.front[0].name}: its weights are damaged, so there is no .tflite" in (
        capsys.readouterr().out
    )


def test_errors_on_the_chip_are_in_table_results_and_file(tmp_path):
    result = run(tmp_path, **SHORT)
    table = pd.read_csv(tmp_path / "tiny.csv")
    for arm in result.front:
        evaluation = arm.evaluation
        assert evaluation.integer_error == pytest.approx(evaluation.error, abs=0.07)
        rows = table[table["arm_name"] == arm.name].set_index("metric_name")["value"]
        assert rows["integer_error"] == evaluation.integer_error
        assert rows["test_error"] == evaluation.test_error
        assert evaluation.resources.file_bytes > evaluation.resources.model_size_tflite_bytes
    others = table[~table["pareto"]]
    assert set(others["metric_name"]) <= {"error", "model_size", "working_memory", "latency"}
    stored = json.loads((tmp_path / "tiny.json").read_text())["trials"]
    numbers = {str(arm.index) for arm in result.front}
    for index, trial in stored.items():
        known = trial["run_metadata"]["evaluation"]["integer_error"] is not None
        assert known == (index in numbers)


def test_results_without_the_new_fields_are_read(tmp_path):
    result = run(tmp_path, r1=2, r2=0, r3=0)
    path = tmp_path / "tiny.json"
    stored = json.loads(path.read_text())
    new = ("tflite_weight_bytes", "tflite_bias_bytes", "tflite_scale_bytes", "scratch_bytes", "tail_bytes")
    for trial in stored["trials"].values():
        evaluation = trial["run_metadata"]["evaluation"]
        del evaluation["integer_error"]
        for key in (*new, "file_bytes"):
            del evaluation["resources"][key]
    path.write_text(json.dumps(stored))
    longer = run(tmp_path, r1=3, r2=0, r3=0)
    assert [a.evaluation.error for a in longer.arms[:2]] == [a.evaluation.error for a in result.arms]
    assert longer.arms[0].evaluation.resources.tail_bytes is None


def test_a_space_that_cannot_be_exported_is_refused_before_anything_is_trained(tmp_path):
    with pytest.raises(ConfigError, match="operator div of module scaled cannot be exported") as caught:
        run(tmp_path, net=DividingNet, export=True, **SHORT)
    assert str(caught.value).startswith("export = true: ")
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("scheme", ["none", "dynamic", "both"])
def test_a_scheme_that_cannot_be_exported_is_refused(tmp_path, scheme):
    with pytest.raises(ConfigError, match=f"export = true needs .*quant_scheme = post or qat, got {scheme}$"):
        Sparse(**arguments(tmp_path, export=True, quant_scheme=scheme, quant_params=[nn.Linear]))


def test_an_arm_that_cannot_be_exported_is_noted_and_the_run_goes_on(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(exporting, "check_exportable", lambda graph: None)
    result = run(tmp_path, net=SometimesDividingNet, export=True, r1=6, r2=1, r3=0)
    out = capsys.readouterr().out
    odd = {a.name for a in result.front if a.candidate.parametrization["filters"] % 2}
    even = {a.name for a in result.front} - odd
    assert len(result.arms) == 7
    assert tflite_names(tmp_path) == {f"{name}.tflite" for name in odd}
    for name in even:
        assert f"arm {name}: there is no .tflite of it: export: operator div of module scaled" in out
    if even:
        assert out.count("by fake quantization, not by integer simulation") == 1
    for arm in result.front:
        assert (arm.evaluation.integer_error is None) == (arm.name in even)
        assert arm.evaluation.test_error is not None


def test_killed_while_exporting_the_run_goes_on_exactly(tmp_path):
    pairs = ("r1=4", "r2=2", "r3=1", "export=True")
    whole = script(tmp_path / "whole", *pairs)
    assert whole.wait(timeout=300) == 0
    stored = tmp_path / "killed" / "tiny.json"
    process = script(tmp_path / "killed", *pairs)
    while process.poll() is None and not stored.exists():
        time.sleep(0.05)
    time.sleep(0.4)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert script(tmp_path / "killed", *pairs).wait(timeout=300) == 0
    for name in ("tiny.csv", *(f"models/{name}" for name in tflite_names(tmp_path / "whole"))):
        assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    assert tflite_names(tmp_path / "killed") == tflite_names(tmp_path / "whole")


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    sparse = Sparse(**arguments(tmp_path_factory.mktemp("finished"), **SHORT))
    return sparse, sparse.run_sparse()


def test_several_formats_are_written_in_a_folder_that_is_made(finished, tmp_path):
    pytest.importorskip("onnx")
    sparse, result = finished
    name = result.front[0].name
    written = sparse.export(name, tmp_path / "new" / "folder", ["onnx-qdq", "tflite", "onnx"])
    assert [file.path.name for file in written] == [f"{name}.tflite", f"{name}.onnx", f"{name}.qdq.onnx"]
    assert sorted(p.name for p in (tmp_path / "new" / "folder").iterdir()) == sorted(
        file.path.name for file in written
    )


def test_without_onnx_nothing_is_written(finished, tmp_path, monkeypatch):
    sparse, result = finished
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(ConfigError, match=r"pip install 'sparsemod\[onnx\]'"):
        sparse.export(result.front[0].name, tmp_path, ["tflite", "onnx"])
    assert not list(tmp_path.iterdir())


def test_the_c_bundle_lies_in_a_folder_of_its_own(finished, tmp_path):
    sparse, result = finished
    name = result.front[0].name
    written = sparse.export(name, tmp_path, "c")
    assert {"model.c", "model.h"} <= {file.path.name for file in written}
    assert all(file.path.relative_to(tmp_path).parts[0] == name for file in written)


def test_the_normalisation_is_in_the_metadata_and_in_the_header(finished, tmp_path):
    sparse, result = finished
    name = result.front[0].name
    sparse.export(name, tmp_path, ["tflite", "c"], mean=[0.5], std=[0.25])
    assert b'{"classes":3,"mean":[0.5],"std":[0.25]}' in (tmp_path / f"{name}.tflite").read_bytes()
    header = (tmp_path / name / "model.h").read_text()
    assert "#define MODEL_CLASSES 3\n#define MODEL_MEAN {0.5f}\n#define MODEL_STD {0.25f}\n" in header
    with pytest.raises(ConfigError, match="std: expected as many numbers as mean has, 1, got 2"):
        sparse.export(name, tmp_path, mean=[0.5], std=[1, 2])
    with pytest.raises(ConfigError, match="std: expected finite numbers other than 0, got"):
        sparse.export(name, tmp_path, mean=[0.5], std=[0.0])


def test_what_is_wrong_with_an_export_is_said(finished, tmp_path):
    sparse, result = finished
    front = {arm.name for arm in result.front}
    off = next((arm.name for arm in result.arms if arm.name not in front), None)
    with pytest.raises(StoreError, match=r"there is no arm '30_0' \(did you mean '3_0'\?\)"):
        sparse.export("30_0", tmp_path)
    if off is not None:
        with pytest.raises(StoreError, match=f"arm '{off}' has no weights; only arms on the front keep"):
            sparse.export([result.front[0].name, off], tmp_path)
    with pytest.raises(ConfigError, match=r"format: expected tflite, .*got 'tflit' \(did you mean 'tflite'"):
        sparse.export(result.front[0].name, tmp_path, "tflit")
    with pytest.raises(ConfigError, match="got none"):
        sparse.export(result.front[0].name, tmp_path, [])
    with pytest.raises(StoreError, match="no results yet"):
        sparse.export("front", tmp_path, root=tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot be written"):
        sparse.export(result.front[0].name, tmp_path / "file")
    assert [p.name for p in tmp_path.iterdir()] == ["file"]
