"""A search from end to end on a tiny problem: stages, objectives, failures, resuming."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest
from ax.core.parameter import FixedParameter, ParameterType
from ax.core.search_space import SearchSpace
from tiny_problem import FailingNet, FateNet, arguments, datasets, search_space

from sparsemod import Sparse, SparseExperiment
from sparsemod.candidate import OBJECTIVES, Status
from sparsemod.errors import InfeasibleError, StoreError

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


def run(root, **changes):
    return Sparse(**arguments(root, **changes)).run_sparse()


def script(root, *pairs, **kwargs):
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{HERE}", "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, HERE / "tiny_main.py", str(root), *pairs],
        env={**environment, **kwargs},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=as_from_a_terminal,
    )


def as_from_a_terminal():
    """Let Ctrl-C reach a process whoever started the tests: those of a background job ignore it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def own_lines(err):
    """Leave out what Ax logs when it is imported beside SQLAlchemy."""
    return [line for line in err.splitlines() if "] ax.storage." not in line]


def parameters(result):
    return [(a.name, dict(a.candidate.parametrization), a.candidate.origin) for a in result.arms]


def test_three_stages_leave_the_documented_files(tmp_path):
    result = run(tmp_path)
    assert [a.candidate.stage for a in result.arms] == [1, 1, 1, 2, 2, 3, 3]
    assert [a.name for a in result.arms] == [f"{i}_0" for i in range(7)]
    assert all(a.status is Status.COMPLETED for a in result.arms)
    assert result.front
    table = pd.read_csv(tmp_path / "tiny.csv")
    assert list(table)[:5] == ["arm_name", "metric_name", "mean", "sem", "trial_index"]
    assert list(table)[5:] == ["value", "unit", "stage", "pareto"]
    assert set(OBJECTIVES) <= set(table["metric_name"])
    names = {a.name for a in result.front}
    kinds = ("safetensors", "layers.json")
    assert {p.name for p in (tmp_path / "models").iterdir()} == {f"{n}.{k}" for n in names for k in kinds}
    assert set(table[table["pareto"]]["arm_name"]) == names
    record = json.loads((tmp_path / "run.json").read_text())
    assert {"versions", "seed", "threads_per_worker", "configuration", "seconds"} <= set(record)
    assert all(a.evaluation.test_error is not None for a in result.front)


def test_the_stored_experiment_is_read_without_net_and_data(tmp_path):
    result = run(tmp_path)
    experiment, data = SparseExperiment(name="tiny", root=tmp_path).create_load_experiment()
    assert (
        experiment.arms_by_name["3_0"].parameters["filters"]
        == result.arms[3].candidate.parametrization["filters"]
    )
    assert set(data.df["arm_name"]) == {a.name for a in result.arms}


@pytest.mark.parametrize("objectives", [1, 2, 3, 4, ["error", "latency"]])
def test_any_number_of_objectives(tmp_path, objectives):
    result = run(tmp_path, objectives=objectives, r1=2, r2=1, r3=1)
    assert len(result.arms) == 4
    assert result.front


@pytest.mark.parametrize("rounds", [(0, 2, 1), (2, 0, 1), (2, 1, 0), (0, 0, 2), (0, 2, 0), (2, 0, 0)])
@pytest.mark.parametrize("batch_size", [1, 3])
def test_stages_may_be_left_out(tmp_path, rounds, batch_size):
    r1, r2, r3 = rounds
    result = run(tmp_path, r1=r1, r2=r2, r3=r3, batch_size=batch_size, executor="inline")
    assert [a.candidate.stage for a in result.arms] == [
        s for s, r in enumerate(rounds, start=1) for _ in range(r * batch_size)
    ]
    keys = [tuple(sorted(a.candidate.parametrization.items())) for a in result.arms]
    assert len(set(keys)) == len(keys)


def test_morphisms_false_is_r3_zero(tmp_path):
    assert {a.candidate.stage for a in run(tmp_path, morphisms=False).arms} == {1, 2}


@pytest.mark.parametrize("scheme", ["post", "qat", "none", "dynamic", "both"])
def test_every_quantization_scheme(tmp_path, scheme):
    from torch import nn

    quant_params = [nn.Linear] if scheme in ("dynamic", "both") else None
    result = run(tmp_path, quant_scheme=scheme, quant_params=quant_params, r1=1, r2=1, r3=1)
    assert all(a.status is Status.COMPLETED for a in result.arms)


def test_sixty_parameters(tmp_path):
    result = run(tmp_path, search_space=search_space(extra=53), r1=3, r2=2, r3=1)
    assert len(result.arms) == 6


def test_the_same_seed_gives_the_same_csv_inline_and_with_two_workers(tmp_path):
    changes = {"batch_size": 2, "r1": 2, "r2": 2, "r3": 1}
    run(tmp_path / "a", executor="inline", **changes)
    run(tmp_path / "b", executor="inline", **changes)
    run(tmp_path / "c", executor="processes", workers=2, **changes)
    first = (tmp_path / "a" / "tiny.csv").read_bytes()
    assert first == (tmp_path / "b" / "tiny.csv").read_bytes()
    assert first == (tmp_path / "c" / "tiny.csv").read_bytes()
    run(tmp_path / "d", executor="inline", seed=1, **changes)
    assert first != (tmp_path / "d" / "tiny.csv").read_bytes()


def test_failing_arms_are_recorded_and_never_on_the_front(tmp_path):
    result = run(tmp_path, net=FailingNet, r1=8, r2=3, r3=2)
    failed = [a for a in result.arms if a.status is Status.FAILED]
    assert failed
    assert len(result.arms) == 13
    stored = (tmp_path / "tiny.json").read_text()
    for arm in failed:
        assert arm.evaluation.reason.startswith("Net.forward raised RuntimeError")
        assert "\n" not in arm.evaluation.reason
        assert arm.evaluation.error is None
        assert arm.name not in {a.name for a in result.front}
        assert arm.evaluation.reason in stored
    table = pd.read_csv(tmp_path / "tiny.csv")
    assert not set(table["arm_name"]) & {a.name for a in failed}


def test_memory_and_killed_workers_cost_one_arm_each(tmp_path, monkeypatch):
    monkeypatch.setenv("KILL_WORKERS", "1")
    result = run(tmp_path, net=FateNet, r1=4, r2=1, r3=1, batch_size=2, executor="processes", workers=2)
    assert len(result.arms) == 12
    for arm in result.arms:
        fate = arm.candidate.parametrization["filters"] % 4
        if fate == 0:
            assert "out of memory" in arm.evaluation.reason
        elif fate == 1:
            assert "worker" in arm.evaluation.reason and "signal 9" in arm.evaluation.reason
        else:
            assert arm.status is Status.COMPLETED


def test_a_finished_run_goes_on_when_rounds_are_raised(tmp_path):
    short = run(tmp_path / "a", r1=2, r2=1, r3=0)
    long = run(tmp_path / "a", r1=2, r2=3, r3=0)
    whole = run(tmp_path / "b", r1=2, r2=3, r3=0)
    assert parameters(long)[: len(short.arms)] == parameters(short)
    assert parameters(long) == parameters(whole)
    assert (tmp_path / "a" / "tiny.csv").read_bytes() == (tmp_path / "b" / "tiny.csv").read_bytes()


def test_going_on_with_another_search_is_refused(tmp_path):
    run(tmp_path, r1=1, r2=0, r3=0)
    with pytest.raises(StoreError, match=r"filters.*resume = false"):
        run(tmp_path, r1=1, r2=0, r3=0, search_space=search_space(filters=30))
    with pytest.raises(StoreError, match="seed = 0, now it is 1"):
        run(tmp_path, r1=1, r2=0, r3=0, seed=1)
    with pytest.raises(StoreError, match=r"samples = \[32, 32, 32\], now it is \[40, 40, 40\]"):
        run(tmp_path, r1=1, r2=0, r3=0, datasets=datasets(120))
    with pytest.raises(StoreError, match="net = Net, now it is FailingNet"):
        run(tmp_path, r1=1, r2=0, r3=0, net=FailingNet)
    run(tmp_path, r1=1, r2=0, r3=0, seed=1, resume=False)
    assert list((tmp_path / "previous-1").glob("tiny.json"))


def test_a_space_with_nothing_to_search_ends_after_its_one_network(tmp_path):
    values = {"learning_rate": 0.01, "learning_gamma": 0.5, "learning_step": 1.0, "prune_threshold": 0.5}
    fixed = [FixedParameter(n, ParameterType.FLOAT, v) for n, v in values.items()]
    sizes = {"batch_size": 8, "filters": 4, "hidden": 6, "kernel": 3}
    fixed += [FixedParameter(n, ParameterType.INT, v) for n, v in sizes.items()]
    result = run(tmp_path, search_space=SearchSpace(parameters=fixed))
    assert len(result.arms) == len(result.front) == 1


def test_limits_keep_arms_from_being_trained(tmp_path):
    result = run(tmp_path, constraints={"model_size": 700}, r1=4, r2=2, r3=2)
    assert all(a.evaluation.resources.model_size_bytes <= 700 for a in result.arms)


def test_limits_that_exclude_everything_name_themselves(tmp_path):
    with pytest.raises(InfeasibleError, match=r"model_size is at least \d+ bytes, its limit is 5 bytes"):
        run(tmp_path, constraints={"model_size": 5})


def test_load_net_gives_the_trained_pruned_network(tmp_path):
    sparse = Sparse(**arguments(tmp_path, r1=2, r2=0, r3=0))
    result = sparse.run_sparse()
    arm = result.front[0]
    net = sparse.load_net(arm.name)
    weights = [p for p in net.parameters() if p.dim() > 1]
    share = 1 - sum(int(p.count_nonzero()) for p in weights) / sum(p.numel() for p in weights)
    assert share == pytest.approx(arm.candidate.parametrization["prune_threshold"], abs=0.02)
    with pytest.raises(StoreError, match="there is no arm"):
        sparse.load_net("99_0")


def test_killed_at_random_moments_nothing_is_lost_and_nothing_trained_twice(tmp_path):
    pairs = ("r1=4", "r2=3", "r3=2")
    whole = script(tmp_path / "whole", *pairs)
    _, err = whole.communicate(timeout=300)
    assert whole.returncode == 0, err
    finished_before = 0
    for delay in (0.3, 0.8, 1.5):
        process = script(tmp_path / "killed", *pairs)
        stored = tmp_path / "killed" / "tiny.json"
        for _ in range(600):  # wait until it has written something new, then a little longer
            if process.poll() is not None or stored.exists():
                break
            time.sleep(0.05)
        time.sleep(delay)
        process.send_signal(signal.SIGKILL)
        process.wait()
        if stored.exists():
            trials = json.loads(stored.read_text())["trials"]
            assert len(trials) >= finished_before
            finished_before = len(trials)
    last = script(tmp_path / "killed", *pairs)
    _, err = last.communicate(timeout=300)
    assert last.returncode == 0, err
    assert (tmp_path / "killed" / "tiny.csv").read_bytes() == (tmp_path / "whole" / "tiny.csv").read_bytes()


def test_ctrl_c_saves_and_says_how_to_go_on(tmp_path):
    process = script(tmp_path, "r1=500")
    table = tmp_path / "tiny.csv"
    for _ in range(2400):
        if process.poll() is not None or (table.exists() and len(table.read_text().splitlines()) > 1):
            break
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in err
    assert "tiny_main.py" in out and "saved" in out
    assert json.loads((tmp_path / "tiny.json").read_text())["trials"]


@pytest.mark.parametrize("output", ["closed pipe", "full disk"])
def test_a_search_goes_on_when_nobody_reads_its_output(tmp_path, output):
    if output == "closed pipe":
        read, write = os.pipe()
        os.close(read)
    else:
        write = os.open("/dev/full", os.O_WRONLY)
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{HERE}", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, HERE / "tiny_main.py", str(tmp_path), "r1=2", "r2=0", "r3=0"]
    process = subprocess.run(command, env=environment, stdout=write, stderr=subprocess.PIPE, text=True)
    os.close(write)
    assert process.returncode == 0
    (line,) = own_lines(process.stderr)
    assert line.startswith("standard output: ")
    assert len(json.loads((tmp_path / "tiny.json").read_text())["trials"]) == 2


def test_bad_input_is_one_line_and_exit_code_2(tmp_path):
    process = script(tmp_path, "epoch1=3")
    _, err = process.communicate(timeout=60)
    assert process.returncode == 2
    assert own_lines(err) == ["error: Sparse(...): unknown argument 'epoch1' (did you mean 'epochs1'?)"]
    assert not list(tmp_path.iterdir())
