"""The command `sparsemod`: what it prints, what it writes, and its errors of one line."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sparsemod.cli.app import app
from sparsemod.measure.targets import TARGETS

ROOT = Path(__file__).parents[1]
HERE = {**os.environ, "PYTHONPATH": str(ROOT)}

MAIN = """
import sys

from tiny_problem import arguments

from sparsemod import Sparse


def make_sparse(root="elsewhere"):
    open("data.txt").read()
    return Sparse(**arguments(root, r1=2, r2=0, r3=0, pruning=True, morphisms=False))


if __name__ == "__main__":
    make_sparse(*sys.argv[1:]).run_sparse()
"""


def call(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def search(tmp_path_factory):
    """The folder of a script, and the name of an arm on the front of its search."""
    from tiny_problem import arguments

    from sparsemod import Sparse

    folder = tmp_path_factory.mktemp("search")
    (folder / "main.py").write_text(MAIN)
    (folder / "data.txt").write_text("found where the script is")
    result = Sparse(**arguments(folder / "results", r1=2, r2=0, r3=0, morphisms=False)).run_sparse()
    return folder, result.front[0].name


def analyse(search, *arguments):
    folder, arm = search
    return call("sensitivity", folder / "results", "--arm", arm, "--problem", folder / "main.py", *arguments)


def test_targets_lists_the_catalogue():
    result = call("targets")
    assert result.exit_code == 0
    header, *lines = result.output.splitlines()
    assert header.split() == ["name", "core", "clock", "flash", "RAM"]
    assert [line.split()[0] for line in lines] == list(TARGETS)
    board = next(line for line in lines if line.startswith("STM32F446"))
    assert board.split()[1:] == ["cortex-m4", "180", "MHz", "512", "KiB", "128", "KiB"]


@pytest.mark.parametrize("kind", ["magnitude", "one-shot", "perf"])
def test_sensitivity_prints_a_line_a_layer(search, kind):
    result = analyse(search, "--kind", kind)
    assert result.exit_code == 0, result.output
    lines = [line.split(",") for line in result.output.splitlines()]
    assert lines[0] == ["index", "name", "sparse_average", "sparse_integral", "sparse_comparison"]
    names = [line[1] for line in lines[1:-1]]
    assert names == ["conv.weight", "hidden.weight", "out.weight"]


def test_sensitivity_writes_json_and_a_plot(search, tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    result = analyse(search, "--kind", "magnitude", "--json", "new/layers.json", "--plot", "layers.png")
    assert result.exit_code == 0, result.output
    stored = json.loads((tmp_path / "new" / "layers.json").read_text())
    assert [r["name"] for r in stored["results"]] == ["conv.weight", "hidden.weight", "out.weight"]
    assert (tmp_path / "layers.png").read_bytes().startswith(b"\x89PNG")


def test_perf_on_another_target_differs(search):
    slow, fast = (
        analyse(search, "--kind", "perf", "--target", name).output.splitlines()[-1].split(",")[2]
        for name in ("nRF52840", "STM32F446")
    )
    assert float(slow) > 2 * float(fast)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--arm", "99_0"], "no arm '99_0'"),
        (["--kind", "perf", "--target", "STM32F44"], "did you mean 'STM32F4"),
        (["--target", "STM32F446"], "only --kind perf"),
        (["--problem", "nowhere.py"], "nowhere.py: no such file"),
    ],
)
def test_what_is_wrong_is_one_line_and_exit_code_2(search, options, words):
    result = analyse(search, *options)
    assert result.exit_code == 2
    assert words in result.stderr
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("x = 1", "expected a function make_sparse()"),
        ("def make_sparse():\n    return 3", "got int"),
        ("def make_sparse():\n    raise KeyError('there')", "script.py raised KeyError: 'there'"),
        ("import nothing_of_that_name", "script.py raised ModuleNotFoundError"),
        ("def make_sparse(:", "script.py raised SyntaxError"),
    ],
)
def test_a_script_that_makes_no_search_is_named(search, tmp_path, code, words):
    (tmp_path / "script.py").write_text(code)
    result = analyse(search, "--problem", tmp_path / "script.py")
    assert result.exit_code == 2
    assert words in result.stderr
    assert result.stderr.count("\n") == 1


def exported(search, *arguments):
    folder, _ = search
    return call("export", folder / "results", "--problem", folder / "main.py", *arguments)


def test_export_writes_an_arm_and_says_what(search, tmp_path):
    _, arm = search
    result = exported(search, "--arm", arm, "--format", "tflite", "-o", tmp_path / "out")
    assert result.exit_code == 0, result.output
    path = tmp_path / "out" / f"{arm}.tflite"
    assert result.output.split() == [str(path.stat().st_size), "bytes", str(path)]
    assert path.read_bytes()[4:8] == b"TFL3"


def test_export_writes_the_front_in_several_formats(search, tmp_path, monkeypatch):
    pytest.importorskip("onnx")
    folder, arm = search
    monkeypatch.chdir(folder)
    options = ["--front", "--format", "tflite", "--format", "onnx", "--format", "onnx-qdq", "-o", tmp_path]
    options += ["--mean", "0.1", "--std", "0.3"]
    result = call("export", "results", *options)
    assert result.exit_code == 0, result.output
    names = {p.name for p in tmp_path.iterdir()}
    assert {f"{arm}.tflite", f"{arm}.onnx", f"{arm}.qdq.onnx"} <= names
    assert len(result.output.splitlines()) == len(names)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--arm", "99_0"], "there is no arm '99_0'"),
        (["--arm", "10_0"], "(did you mean '1_0'?)"),
        ([], "expected --arm (an arm on the front) or --front"),
        (["--arm", "0_0", "--front"], "one of the two"),
        (["--front", "--problem", "nowhere.py"], "nowhere.py: no such file"),
    ],
)
def test_what_is_wrong_with_an_export_is_one_line_and_exit_code_2(search, tmp_path, options, words):
    result = exported(search, *options, "-o", tmp_path / "out")
    assert result.exit_code == 2
    assert words in result.stderr
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_an_arm_without_weights_cannot_be_exported(search, tmp_path):
    folder, _ = search
    name = next((n for n in ("0_0", "1_0") if not list((folder / "results/models").glob(f"{n}.*"))), None)
    if name is None:
        pytest.skip("both arms are on the front")
    result = exported(search, "--arm", name, "-o", tmp_path)
    assert result.exit_code == 2
    assert f"arm '{name}' has no weights; only arms on the front keep theirs" in result.stderr


def test_report_writes_a_page_and_plots(search, tmp_path):
    pytest.importorskip("jinja2")
    pytest.importorskip("matplotlib")
    folder, arm = search
    results = folder / "results"
    page = tmp_path / "new" / "tiny.html"
    result = call("report", results, "-o", page, "--png", tmp_path / "figures")
    assert result.exit_code == 0, result.output
    assert f"page      {page}  (0." in result.output
    text = page.read_text()
    assert f'"{arm}":[{{"module":"conv","kind":"conv_2d"' in text
    names = {path.name for path in (tmp_path / "figures").iterdir()}
    assert {"front.png", "front.svg", "hypervolume.png", "parallel.svg"} <= names
    assert call("report", results).exit_code == 0
    assert (results / "report.html").read_text() == text


@pytest.mark.parametrize("options", [[], ["-o", "{root}/run.json/page.html"], ["--png", "{root}/run.json"]])
def test_a_report_that_cannot_be_made_is_one_line(search, tmp_path, options):
    results = search[0] / "results"
    root = results if options else tmp_path / "nowhere"
    result = call("report", root, *[option.format(root=results) for option in options])
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert result.stderr.startswith("error: ")


def test_results_that_are_not_there_are_one_line(search, tmp_path):
    folder, arm = search
    result = call("sensitivity", tmp_path, "--arm", arm, "--problem", folder / "main.py")
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert "there are no results yet" in result.stderr


def test_the_command_starts_without_anything_heavy():
    code = (
        "import sys\nfrom sparsemod.cli.app import app\n"
        "try:\n    app(['--help'])\nexcept SystemExit:\n    pass\n"
        "print([m for m in ('torch', 'ax', 'pandas', 'rich', 'pydantic') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.stdout.splitlines()[-1] == "[]", done.stdout + done.stderr
    assert "sensitivity" in done.stdout


def test_the_example_makes_its_search():
    folder = ROOT / "examples" / "digits"
    code = "from main import make_sparse; print(make_sparse().config.name)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=folder, env=HERE)
    assert done.stdout == "digits\n", done.stderr
    assert len((folder / "main.py").read_text().splitlines()) <= 40


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A small `.tflite` file."""
    import torch
    from torch import nn

    from sparsemod.compress.graph_quantization import quantize_graph
    from sparsemod.export.tflite import write_tflite
    from sparsemod.measure.operators import lower

    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(512, 3))
    samples = torch.randn(32, 1, 8, 8)
    path = tmp_path_factory.mktemp("model") / "model.tflite"
    path.write_bytes(write_tflite(quantize_graph(lower(net.eval(), samples[:1]), [samples])))
    return path


def test_analyze_prints_operators_and_sums(model):
    result = call("analyze", model, "--target", "STM32F446")
    assert result.exit_code == 0, result.output
    lines = [line.replace("│", " ").split() for line in result.output.splitlines()]
    n_macs = 8 * 8 * 8 * 9, 512 * 3
    # 1.56 and 3.43 a product, 51.2 an output, 4.12 an element of a window, 45 a tap of a pixel
    convolution = 512 * 8 * 1.56 + 512 * 3.43 + 512 * 51.2 + 64 * 9 * 4.12 + 64 * 9 * 45.0
    assert [*lines[4][:4], *lines[4][4:6]] == [
        "0", "conv_2d", "1x8x8x8", f"{n_macs[0]:,}", f"{8 * 9 + 8 * 4}", f"{convolution:,.0f}",
    ]  # fmt: skip
    sums = {line[0]: line[1] for line in lines if line and line[0].isalpha()}
    assert sums["file"] == f"{model.stat().st_size:,}"
    assert sums["parameters"] == f"{8 * 9 + 8 + 512 * 3 + 3:,}"
    assert sums["MACs"] == f"{sum(n_macs):,}"
    assert max(map(len, result.output.splitlines())) <= 160


def test_analyze_writes_the_same_figures_as_json(model, tmp_path):
    result = call("analyze", model, model, "--flops", "1e6", "--json", tmp_path / "new" / "figures.json")
    assert result.exit_code == 0, result.output
    first, second = json.loads((tmp_path / "new" / "figures.json").read_text())
    assert first == second
    assert first["n_macs"] == 6144
    assert first["latency_seconds"] == pytest.approx(6144e-6)
    assert first["arena_bytes"] == 64 + 512  # input and output of the convolution
    assert first["ram_bytes"] == first["target_arena_bytes"] + first["tail_bytes"]
    assert sum(op["n_macs"] for op in first["operators"]) == first["n_macs"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nowhere.tflite"], "nowhere.tflite: no such file"),
        (["."], ".: expected a file, got a folder"),
        ([__file__], "test_cli.py: expected a .tflite file"),
        (["MODEL", "--target", "STM32F44"], "did you mean 'STM32F4"),
        (["MODEL", "--flops", "0"], "--flops: expected a clock in Hz above 0, got 0"),
        (["MODEL", "--flops", "nan"], "--flops: expected a clock in Hz above 0, got nan"),
        (["MODEL", "--json", "/dev/null/figures.json"], "--json: /dev/null/figures.json: cannot be written"),
    ],
)
def test_what_is_wrong_with_a_file_is_one_line_and_exit_code_2(model, arguments, words):
    result = call("analyze", *(model if argument == "MODEL" else argument for argument in arguments))
    assert result.exit_code == 2
    assert words in result.stderr
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1


def test_analyze_needs_no_torch(model):
    code = (
        "import sys\nfrom sparsemod.cli.app import app\n"
        f"try:\n    app(['analyze', {str(model)!r}])\nexcept SystemExit:\n    pass\n"
        "print([m for m in ('torch', 'ax', 'pandas') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.stdout.splitlines()[-1] == "[]", done.stdout + done.stderr


TESTED = MAIN.replace("pruning=True, morph", "groups=[k % 3 for k in range(96)], morph")


@pytest.fixture
def tested(search):
    folder, arm = search
    (folder / "tested.py").write_text(TESTED)
    return folder / "results", arm, ("--problem", folder / "tested.py")


def test_an_arm_is_tested_over_its_subjects(tested):
    root, arm, problem = tested
    result = call("test", root, "--arm", arm, *problem)
    assert result.exit_code == 0, result.output
    assert f"Test of arm {arm}: loso" in result.output
    assert {p.name for p in (root / "tests").glob(f"{arm}-loso*")} == {
        f"{arm}-loso{end}" for end in (".csv", ".json", ".png", "-confusion.csv")
    }
    assert len((root / "tests" / f"{arm}-loso.csv").read_text().splitlines()) == 1 + 3 + 2


def test_the_front_is_ranked(tested):
    root, arm, problem = tested
    result = call("test", root, "--front", "--seeds", "2", *problem)
    assert result.exit_code == 0, result.output
    assert "Front by mean test error" in result.output
    assert arm in (root / "tests" / "front.csv").read_text()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--arm", "99_0"], "there is no arm '99_0'; the nearest names are "),
        ([], "missing argument arm"),
        (["--front", "--arm", "0_0"], "--front: trains on the search's own split"),
        (["--arm", "0_0", "--split", "kfold", "--folds", "1"], "n_splits: expected an integer of 2 or more"),
    ],
)
def test_what_is_wrong_with_a_test_is_one_line(tested, options, words):
    root, _, problem = tested
    result = call("test", root, *options, *problem)
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert words in result.stderr
