"""Every example runs as it is: its short search, in a copy of the folder, without a failed arm."""

import configparser
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted(path.parent.name for path in (ROOT / "examples").glob("*/short.cfg"))


@pytest.fixture(scope="module")
def copies(tmp_path_factory):
    """The examples side by side, as some read data that lie beside them, without anybody's results."""
    folder = tmp_path_factory.mktemp("copy") / "examples"
    shutil.copytree(ROOT / "examples", folder, ignore=shutil.ignore_patterns("results*", "__pycache__"))
    return folder


def section(path):
    parser = configparser.ConfigParser()
    parser.read(path)
    return parser["TRAIN"]


def test_there_are_examples():
    assert {"digits", "watch_cnn", "watch_cnn_rnn", "watch_rnn"} <= set(EXAMPLES)


@pytest.mark.slow
@pytest.mark.parametrize("name", EXAMPLES)
def test_the_short_search_runs_without_a_failed_arm(name, copies):
    short = section(copies / name / "short.cfg")
    done = subprocess.run(
        [sys.executable, "main.py", "short.cfg"],
        capture_output=True,
        text=True,
        cwd=copies / name,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    arms = int(short["batch_size"]) * sum(int(short[f"r{i}"]) for i in (1, 2, 3))
    assert f"{arms} arms, 0 failed." in done.stdout
    rows = pd.read_csv(copies / name / short["root"] / f"{short['name']}.csv")
    assert set(rows["stage"]) == {1, 2, 3}
    error = rows[rows["metric_name"] == "error"]
    assert len(error) == arms
    assert error["value"].between(0, 1).all()
    assert error["pareto"].any()


@pytest.mark.parametrize("name", EXAMPLES)
def test_short_and_full_search_differ_in_length_alone(name):
    full, short = (section(ROOT / "examples" / name / file) for file in ("config.cfg", "short.cfg"))
    lengths = {"r1", "r2", "r3", "epochs1", "epochs2", "epochs3", "root", "executor"}
    assert {k: v for k, v in full.items() if k not in lengths} == {
        k: v for k, v in short.items() if k not in lengths
    }
    assert full["root"] != short["root"]


@pytest.mark.parametrize("name", [name for name in EXAMPLES if name.startswith("watch")])
def test_nobody_is_in_two_sets(name):
    code = (
        "import json\nfrom data import load_watch_sets\n"
        "datasets, classes, persons = load_watch_sets()\n"
        "labels = [[label for _, label in dataset] for dataset in datasets]\n"
        "ends = [float(abs(signal).max()) for dataset in datasets for signal, _ in dataset]\n"
        "print(json.dumps([classes, persons, labels, max(ends)]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT / "examples" / name
    )
    assert done.returncode == 0, done.stderr
    classes, persons, labels, largest = json.loads(done.stdout)
    assert classes == 7
    assert [len(set(of_set)) for of_set in persons] == [6, 2, 2]
    assert sorted(p for of_set in persons for p in set(of_set)) == list(range(1, 11))
    # Both arms of each person, each exercise once.
    for of_set, exercises in zip(persons, labels, strict=True):
        pairs = list(zip(of_set, exercises, strict=True))
        assert all(pairs.count((p, e)) == 2 for p in set(of_set) for e in range(7))
    assert largest <= 1
