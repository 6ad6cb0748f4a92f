import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from types import ModuleType

import pytest
from evaluate_functions import Deadly, Toy, Unloadable, scripted

from sparsemod.candidate import Candidate, Evaluation, Status
from sparsemod.errors import ExecutorError
from sparsemod.evaluate.executors import InlineExecutor, ProcessExecutor, RayExecutor
from sparsemod.evaluate.task import Job
from sparsemod.evaluate.worker import place

ROOT = Path(__file__).parents[2]


def job(index, action=None):
    return Job(index, Candidate({"action": action}, stage=1, origin="sobol"), epochs=1, seed=index)


def jobs(*actions):
    return [job(i, a) for i, a in enumerate(actions)]


def results(executor, work):
    return {j.index: e for j, e in executor.run(work)}


@pytest.fixture(scope="module")
def inline():
    with InlineExecutor(Toy(), scripted) as executor:
        yield executor


@pytest.fixture(scope="module")
def processes():
    with ProcessExecutor(Toy(), 2, scripted) as executor:
        yield executor


@pytest.fixture(scope="module")
def ray():
    pytest.importorskip("ray", reason="executor = ray needs the package ray")
    with RayExecutor(Toy(), 2, scripted) as executor:
        yield executor


@pytest.fixture(params=["inline", "processes", "ray"])
def executor(request):
    return request.getfixturevalue(request.param)


@pytest.fixture(params=["processes", "ray"])
def workers(request):
    return request.getfixturevalue(request.param)


def gone(pid, seconds=20.0):
    """Wait until a process is gone (or a zombie that nobody reaped, which runs no more)."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except (FileNotFoundError, ProcessLookupError):
            return True
        time.sleep(0.05)
    return False


def test_every_job_comes_back_with_its_evaluation(executor):
    assert results(executor, jobs(*[None] * 5)) == {
        i: Evaluation(Status.COMPLETED, error=2.0 * i, reason="cpu") for i in range(5)
    }


def test_no_jobs_no_results(executor):
    assert list(executor.run([])) == []


def test_jobs_may_be_any_iterable(executor):
    assert sorted(results(executor, iter(jobs(None, None)))) == [0, 1]


def test_a_bug_is_raised_not_recorded(executor):
    with pytest.raises(LookupError, match="a bug of ours"):
        list(executor.run(jobs("bug")))
    assert sorted(results(executor, jobs(None))) == [0]  # and the executor goes on


def test_leaving_the_results_early_leaves_the_executor_usable(executor):
    for _ in executor.run(jobs(None, None, None)):
        break
    assert sorted(results(executor, jobs(None, None))) == [0, 1]


def test_a_job_is_made_when_it_can_be_evaluated(executor):
    done = []

    def made():
        for index in range(6):
            seen.append(len(done))
            yield job(index)

    seen = []
    for finished, _ in executor.run(made()):
        done.append(finished.index)
    assert sorted(done) == list(range(6))
    assert seen[0] == 0
    assert all(known >= index - 1 for index, known in enumerate(seen))  # at most two are under way


def test_a_bug_in_a_worker_carries_the_workers_traceback(workers):
    with pytest.raises(LookupError) as caught:
        list(workers.run(jobs("bug")))
    assert "in scripted" in caught.value.__notes__[0]


def test_a_bug_that_cannot_be_pickled_is_named(workers):
    with pytest.raises(RuntimeError, match=r"^Odd: unpicklable\nRaised in a worker"):
        list(workers.run(jobs("odd bug")))


def test_a_killed_worker_costs_one_arm(processes):
    found = results(processes, jobs(None, "die", None, None, "exit", None))
    assert {i: e.status for i, e in found.items()} == {
        i: Status.FAILED if i in (1, 4) else Status.COMPLETED for i in range(6)
    }
    assert found[1].reason == "worker process died (signal 9: killed, perhaps out of memory)"
    assert found[4].reason == "worker process died (exit code 3)"


def test_a_worker_that_dies_between_runs_costs_nothing(processes):
    pid = results(processes, jobs("pid"))[0].n_epochs
    os.kill(pid, signal.SIGKILL)
    assert results(processes, jobs(None, None))[1].status is Status.COMPLETED


def test_results_come_as_they_complete(processes):
    order = processes.run(jobs("sleep", None, None))
    assert [next(order)[0].index, next(order)[0].index] == [1, 2]
    order.close()  # gives up the sleeper
    assert sorted(results(processes, jobs(None, None, None))) == [0, 1, 2]


def test_a_worker_has_one_thread_and_the_main_process_keeps_its_environment(processes, monkeypatch):
    before = dict(os.environ)
    assert results(processes, jobs("threads"))[0].reason == "1"
    assert dict(os.environ) == before


def test_what_a_worker_prints_is_seen(capfd):
    with ProcessExecutor(Toy(), 1, scripted) as executor:
        assert results(executor, jobs("warn"))[0].status is Status.COMPLETED
    assert "look at this" in capfd.readouterr().err


def test_workers_end_when_the_executor_closes():
    with ProcessExecutor(Toy(), 1, scripted) as executor:
        pid = results(executor, jobs("pid"))[0].n_epochs
        assert Path(f"/proc/{pid}").exists()
    assert not Path(f"/proc/{pid}").exists()  # reaped, no zombie
    executor.close()
    with pytest.raises(ExecutorError, match="closed"):
        list(executor.run(jobs(None)))


def test_closing_does_not_wait_for_a_job():
    executor = ProcessExecutor(Toy(), 2, scripted)
    order = executor.run(jobs("pid", "sleep"))
    _, evaluation = next(order)
    executor.close()
    assert not Path(f"/proc/{evaluation.n_epochs}").exists()
    with pytest.raises(ExecutorError, match="closed"):
        next(order)


def test_workers_are_not_started_before_there_are_jobs_for_them():
    with ProcessExecutor(Toy(), 64, scripted) as executor:
        found = results(executor, jobs("pid"))
        assert results(executor, jobs("pid")) == found


@pytest.mark.parametrize("workers", [0, -1])
def test_there_must_be_a_worker(workers):
    with pytest.raises(ExecutorError, match=f"expected 1 or more, got {workers}"):
        ProcessExecutor(Toy(), workers, scripted)


@pytest.mark.parametrize(
    ("field", "name"),
    [("collate_fn", "collate_fn"), ("net", "net"), ("train", r"the training set \(datasets\[0\]\)")],
)
def test_an_unpicklable_part_is_named_before_any_worker_starts(field, name):
    with pytest.raises(
        ExecutorError, match=f"^{name} cannot be sent to worker processes: .*executor = inline$"
    ):
        ProcessExecutor(Toy(**{field: lambda: None}), 1, scripted)


def test_a_task_that_cannot_be_loaded_is_said_in_one_line():
    with (
        ProcessExecutor(Toy(net=Unloadable()), 1, scripted) as executor,
        pytest.raises(
            ExecutorError, match=r"^a worker process cannot load the search: .*attribute 'Net'.*inline$"
        ),
    ):
        list(executor.run(jobs(None)))


def test_workers_that_die_at_start_are_not_replaced_for_ever():
    with (
        ProcessExecutor(Toy(net=Deadly()), 2, scripted) as executor,
        pytest.raises(
            ExecutorError, match=r"^3 worker processes in a row died before they took a job .*exit code 5"
        ),
    ):
        list(executor.run(jobs(None, None)))


HEAD = """
import sys
sys.path[:0] = [{root!r}, {tests!r}]
from evaluate_functions import Toy, scripted
from sparsemod.candidate import Candidate
from sparsemod.evaluate.task import Job
from sparsemod.evaluate.worker import place

def jobs(*actions):
    return [Job(i, Candidate({{"action": a}}, 1, "sobol"), 1, i) for i, a in enumerate(actions)]

"""
START = """from sparsemod.evaluate.executors import ProcessExecutor
executor = ProcessExecutor(Toy(), 2, scripted)
"""


def start_script(folder, body, guard='if __name__ == "__main__":\n'):
    """Start a main script in a session of its own."""
    path = folder / "main.py"
    head = HEAD.format(root=str(ROOT), tests=str(Path(__file__).parent))
    path.write_text(head + guard + textwrap.indent(START + body, "    " if guard else ""))
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(
        [sys.executable, str(path)],
        start_new_session=True,
        # Those who start the tests as a background job let them ignore Ctrl-C.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        **pipes,
    )


def test_a_script_without_a_main_guard_is_told_so_in_one_line(tmp_path):
    main = start_script(tmp_path, "list(executor.run(jobs(None)))\n", guard="")
    _, err = main.communicate(timeout=100)
    assert main.returncode == 2
    assert err.startswith('error: the script must start its search below `if __name__ == "__main__":`')
    assert len(err.strip().splitlines()) == 1


SLEEPERS = """
order = executor.run(jobs("pid", "pid", "sleep", "sleep"))
print(next(order)[1].n_epochs, next(order)[1].n_epochs, flush=True)
try:
    list(order)
except KeyboardInterrupt:
    print("stopped", flush=True)
"""


def test_a_killed_main_process_leaves_no_worker_training(tmp_path):
    main = start_script(tmp_path, SLEEPERS)
    pids = [int(word) for word in main.stdout.readline().split()]
    time.sleep(0.5)
    main.kill()
    main.communicate(timeout=60)
    assert len(pids) == 2
    assert all(gone(pid) for pid in pids)


def test_ctrl_c_is_for_the_main_process_which_ends_its_workers_even_if_it_forgets_to_close(tmp_path):
    main = start_script(tmp_path, SLEEPERS)
    pids = [int(word) for word in main.stdout.readline().split()]
    time.sleep(0.5)
    os.killpg(main.pid, signal.SIGINT)  # as a terminal does: to every process of the group
    out, err = main.communicate(timeout=60)
    assert out == "stopped\n"
    assert err == ""
    assert main.returncode == 0
    assert len(pids) == 2
    assert all(gone(pid) for pid in pids)


def test_a_class_typed_into_a_session_is_refused(monkeypatch):
    def net(parametrization, classes, input_shape): ...

    net.__module__ = "__main__"
    monkeypatch.setitem(sys.modules, "__main__", ModuleType("__main__"))
    with pytest.raises(
        ExecutorError, match=r"^net cannot be sent to worker processes: it is defined in a note"
    ):
        ProcessExecutor(Toy(net=net), 1, scripted)


@pytest.mark.parametrize(
    ("device", "slot", "placed"),
    [("cpu", 1, "cpu"), ("cuda", 0, "cuda:0"), ("cuda", 3, "cuda:1"), ("cuda:1", 0, "cuda:1")],
)
def test_workers_share_out_the_gpus(monkeypatch, device, slot, placed):
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    assert place(Toy(device=device), slot).device == placed
