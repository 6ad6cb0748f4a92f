"""A search on other executors, and with arms proposed whenever a worker is free."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tiny_problem import arguments

from sparsemod import Sparse
from sparsemod.candidate import Status
from sparsemod.errors import ConfigError
from sparsemod.search.experiment import Experiment

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


def run(root, **changes):
    return Sparse(**arguments(root, **changes)).run_sparse()


def test_a_search_on_ray_gives_the_table_that_it_gives_inline(tmp_path):
    pytest.importorskip("ray", reason="executor = ray needs the package ray")
    changes = {"batch_size": 2, "r1": 2, "r2": 1, "r3": 1}
    run(tmp_path / "inline", executor="inline", **changes)
    run(tmp_path / "ray", executor="ray", workers=2, **changes)
    assert (tmp_path / "inline" / "tiny.csv").read_bytes() == (tmp_path / "ray" / "tiny.csv").read_bytes()


def test_one_worker_gets_the_same_arms_with_and_without_rounds(tmp_path):
    run(tmp_path / "rounds", executor="inline")
    run(tmp_path / "free", executor="inline", asynchronous=True)
    assert (tmp_path / "rounds" / "tiny.csv").read_bytes() == (tmp_path / "free" / "tiny.csv").read_bytes()


def test_free_workers_train_every_arm_of_every_stage_once(tmp_path):
    result = run(tmp_path, asynchronous=True, workers=2, batch_size=2, r1=3, r2=2, r3=1)
    assert [a.candidate.stage for a in result.arms] == [1] * 6 + [2] * 4 + [3] * 2
    assert [a.round for a in result.arms] == [0, 0, 1, 1, 2, 2, 0, 0, 1, 1, 0, 0]
    assert all(a.status is Status.COMPLETED for a in result.arms)
    assert len({json.dumps(dict(a.candidate.parametrization), sort_keys=True) for a in result.arms}) == 12


def test_free_workers_killed_at_any_moment_go_on(tmp_path):
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{HERE}", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, HERE / "tiny_main.py", str(tmp_path), "asynchronous=True", "workers=2"]
    stored = tmp_path / "tiny.json"
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
    for _ in range(2400):
        if stored.exists() and len(json.loads(stored.read_text())["trials"]) > 2:
            break
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    kept = Experiment.from_json(stored.read_bytes()).history
    subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=True, timeout=300)
    arms = Experiment.from_json(stored.read_bytes()).arms
    assert len(arms) == 7
    assert all(arm.status is Status.COMPLETED for arm in arms)
    assert all(arms[arm.index] == arm for arm in kept)


def test_executors_are_named():
    with pytest.raises(ConfigError, match=r"executor: expected inline, processes or ray, got 'rays'"):
        Sparse(**arguments("results", executor="rays"))
