"""`sparsemod new` and `sparsemod run`: from nothing to a front, and errors of one line."""

import configparser
import os
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from typer.testing import CliRunner

from sparsemod.candidate import OBJECTIVES
from sparsemod.cli.app import COMMANDS, app

ROOT = Path(__file__).parents[1]
HERE = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
FILES = {"main.py", "config.cfg", "net.py", "data.py", "README.md"}
SHORT = {"r1": "2", "r2": "1", "r3": "1", "epochs1": "2", "epochs2": "2", "epochs3": "1", "batch_size": "1"}

SCRIPT = """
from tiny_problem import arguments

from sparsemod import Sparse


def make_sparse(config="r1=1"):
    return Sparse(**arguments("results", r1=int(open(config).read()), r2=0, r3=0, morphisms=False))
"""


def call(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def command(folder, *arguments):
    code = "import sys; from sparsemod.cli.app import app; app(sys.argv[1:])"
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], cwd=folder, env=HERE, capture_output=True, text=True
    )


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.slow
def test_what_new_makes_runs_and_ends_with_a_front(here):
    made = call("new", "demo")
    assert made.exit_code == 0, made.output
    assert {path.name for path in (here / "demo").iterdir()} == FILES
    full = (here / "demo" / "config.cfg").read_text()
    parser = configparser.ConfigParser()
    parser.read_string(full)
    parser["TRAIN"].update(SHORT)
    with (here / "demo" / "config.cfg").open("w") as file:
        parser.write(file)
    done = subprocess.run(
        [sys.executable, "main.py"], cwd=here / "demo", env=HERE, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 arms, 0 failed." in done.stdout
    rows = pd.read_csv(here / "demo" / "results" / "demo.csv")
    assert set(rows["stage"]) == {1, 2, 3}
    assert rows["pareto"].any()

    # The same search by the command, from elsewhere: it goes on with what is there, one round more.
    parser["TRAIN"]["r3"] = "2"
    with (here / "demo" / "longer.cfg").open("w") as file:
        parser.write(file)
    again = command(here, "run", "demo", "--config", "longer.cfg")
    assert again.returncode == 0, again.stdout + again.stderr
    assert "5 arms, 0 failed." in again.stdout
    longer = pd.read_csv(here / "demo" / "results" / "demo.csv")
    before, after = (table[table["metric_name"].isin(OBJECTIVES)] for table in (rows, longer))
    before, after = (t.drop(columns="pareto").reset_index(drop=True) for t in (before, after))
    pd.testing.assert_frame_equal(after[: len(before)], before)


def test_what_new_makes_has_the_style_of_the_examples(here):
    assert call("new", "demo").exit_code == 0
    for arguments in (["check", "--ignore", "D102,D103,I001"], ["format", "--check"]):
        done = subprocess.run(
            [sys.executable, "-m", "ruff", *arguments, "--config", ROOT / "pyproject.toml", "demo"],
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_new_says_what_comes_next_and_writes_the_name_into_the_files(here):
    result = call("new", "Night-shift_2")
    assert result.exit_code == 0
    assert [line.strip().split("  ")[0] for line in result.output.splitlines()[2:4]] == [
        "cd Night-shift_2",
        "python main.py",
    ]
    for file in FILES:
        assert "@NAME@" not in (here / "Night-shift_2" / file).read_text()
    assert "name = Night-shift_2" in (here / "Night-shift_2" / "config.cfg").read_text().splitlines()


@pytest.mark.parametrize("name", ["", "a b", "../up", "a/b", "1st", "-x", "ü", "a" * 65, "con\n"])
def test_an_ill_name_is_one_line_and_makes_nothing(here, name):
    result = call("new", "--", name)
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert result.stderr.startswith("error: NAME: expected a letter, then")
    assert list(here.iterdir()) == []


def test_a_folder_that_is_there_is_left_alone(here):
    (here / "demo").mkdir()
    result = call("new", "demo")
    assert (result.exit_code, result.stderr) == (
        2,
        "error: NAME: demo is there already; choose another name\n",
    )
    assert list((here / "demo").iterdir()) == []


@pytest.fixture
def problem(here):
    folder = here / "problem"
    folder.mkdir()
    (folder / "main.py").write_text(SCRIPT)
    (folder / "two.txt").write_text("2")
    (here / "three.txt").write_text("3")
    return folder


@pytest.mark.parametrize(("config", "n_arms"), [("two.txt", 2), ("three.txt", 3)])
def test_run_takes_a_configuration_of_the_folder_or_a_path_from_here(problem, config, n_arms):
    result = call("run", problem.name, "--config", config)
    assert result.exit_code == 0, result.output + result.stderr
    rows = pd.read_csv(next((problem / "results").glob("*.csv")))
    assert rows["arm_name"].nunique() == n_arms


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nowhere"], "FOLDER: nowhere: no such folder"),
        (["."], "FOLDER: main.py: no such file"),
        (
            ["problem", "--config", "four.txt"],
            "--config: no such file, neither problem/four.txt nor four.txt",
        ),
        (["problem"], "main.py raised FileNotFoundError"),
    ],
)
def test_what_cannot_be_run_is_one_line(problem, arguments, words):
    result = call("run", *arguments)
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert words in result.stderr


@pytest.mark.parametrize("name", [function.__name__ for function in COMMANDS])
def test_the_help_of_each_command_shows_an_example(name):
    result = call(name, "--help")
    assert result.exit_code == 0
    assert f"xample: sparsemod {name}" in " ".join(result.output.split())
