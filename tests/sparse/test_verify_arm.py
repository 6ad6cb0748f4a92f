"""Verification of an arm on the front, in Python and from the command line."""

import json

import pytest
from tiny_problem import arguments
from typer.testing import CliRunner

from sparsemod import Sparse
from sparsemod.cli.app import app
from sparsemod.errors import ConfigError, StoreError
from sparsemod.export import emulation, host
from sparsemod.export.verify import can_compare

MAIN = """
from tiny_problem import arguments

from sparsemod import Sparse


def make_sparse():
    return Sparse(**arguments("results", r1=4, r2=0, r3=0, morphisms=False, target="STM32L4R5"))
"""

everything = pytest.mark.skipif(
    not can_compare() or bool(host.missing()) or bool(emulation.missing()),
    reason=f"needs tflite-micro, {'; '.join((*host.missing(), *emulation.missing()))}",
)


@pytest.fixture(scope="module")
def searched(tmp_path_factory):
    folder = tmp_path_factory.mktemp("verified")
    (folder / "main.py").write_text(MAIN)
    changes = {"r1": 4, "r2": 0, "r3": 0, "morphisms": False, "target": "STM32L4R5"}
    sparse = Sparse(**arguments(folder / "results", **changes))
    return folder, sparse, [arm.name for arm in sparse.run_sparse().front]


def call(folder, *options):
    words = ["verify", folder / "results", "--problem", folder / "main.py", *options]
    return CliRunner().invoke(app, [str(word) for word in words])


@everything
def test_every_arm_on_the_front_keeps_its_promises(searched):
    _, sparse, names = searched
    verified = sparse.verify("front")
    assert sorted(verified) == sorted(names)
    for found in verified.values():
        assert found.agrees, [f for f in found.findings if not f.agrees]
        assert found.skipped == ()
        assert {f.figure for f in found.findings} == {
            "equal outputs", "accuracy", "arena", "file", "constants", "code", "stack", "instructions",
            "latency",
        }  # fmt: skip


@everything
def test_the_command_prints_one_table_and_writes_the_figures(searched):
    folder, _, names = searched
    result = call(
        folder, "--arm", names[0], "--samples", "5", "--core", "cortex-m3", "--json", folder / "f.json"
    )
    assert result.exit_code == 0, result.output
    assert f"arm {names[0]}: promised and real" in result.output
    figures = json.loads((folder / "f.json").read_text())[names[0]]
    assert figures["agrees"]
    assert any(f["runtime"] == "C on cortex-m3" for f in figures["findings"])


@pytest.mark.skipif(bool(host.missing()), reason="; ".join(host.missing()))
def test_a_figure_that_differs_is_exit_code_1(searched, monkeypatch):
    folder, _, names = searched
    monkeypatch.setattr("sparsemod.sparse.verifying.tflite_file", lambda task, quantized: b"")
    monkeypatch.setattr("sparsemod.export.verification.can_compare", lambda: False)
    monkeypatch.setattr("sparsemod.export.verification.ACCURACY", -1.0)
    result = call(folder, "--arm", names[0])
    assert result.exit_code == 1, result.output
    assert "DIFFERS" in result.output
    assert "skipped: tflite-micro: tflite-micro is not installed" in result.stderr


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ((), "expected --arm (an arm on the front) or --front"),
        (("--arm", "99_0"), "there is no arm '99_0'"),
        (("--front", "--core", "cortex-m44"), "did you mean 'cortex-m4'?"),
    ],
)
def test_what_is_wrong_is_one_line_and_exit_code_2(searched, options, words):
    result = call(searched[0], *options)
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert words in result.stderr


def test_wrong_arguments(searched):
    _, sparse, names = searched
    with pytest.raises(ConfigError, match="n_samples: expected 1 or more, got 0"):
        sparse.verify(names[0], n_samples=0)
    with pytest.raises(StoreError, match="there is no arm '7_7'"):
        sparse.verify("7_7")
