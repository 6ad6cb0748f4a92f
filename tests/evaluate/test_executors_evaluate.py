"""Real evaluations, by every executor."""

import evaluate_problem as problem
import pytest
from evaluate_problem import PARAMETERS, make_task

from sparsemod.candidate import Candidate, Status
from sparsemod.evaluate.executors import InlineExecutor, ProcessExecutor
from sparsemod.evaluate.task import Job

TASK = make_task(net=problem.Fate, pruning="unstructured")


@pytest.fixture(scope="module")
def inline():
    with InlineExecutor(TASK) as executor:
        yield executor


@pytest.fixture(scope="module")
def processes():
    with ProcessExecutor(TASK, 2) as executor:
        yield executor


@pytest.fixture(params=["inline", "processes"])
def executor(request):
    return request.getfixturevalue(request.param)


def jobs(*changes, parent_weights=None):
    return [
        Job(
            i,
            Candidate({**PARAMETERS, **change}, 1, "sobol"),
            epochs=2,
            seed=i,
            parent_weights=parent_weights,
        )
        for i, change in enumerate(changes)
    ]


def results(executor, work):
    return {job.index: evaluation for job, evaluation in executor.run(work)}


def test_same_evaluations_inline_and_in_processes(inline, processes):
    work = jobs(
        {"width": 4}, {"width": 6}, {"width": 8, "prune_threshold": 0.9}, {"fate": "forward"}, {"width": 5}
    )
    first, second = results(inline, work), results(processes, work)
    assert first == second
    assert [first[i].weights for i in range(5)] == [second[i].weights for i in range(5)]
    children = jobs({"width": 6}, {"width": 9}, parent_weights=first[0].weights)
    first, second = results(inline, children), results(processes, children)
    assert [first[i].weights for i in range(2)] == [second[i].weights for i in range(2)]


def test_a_failing_network_and_one_without_memory_cost_their_arms_only(executor):
    found = results(executor, jobs({"fate": "forward"}, {"fate": "memory"}, {"fate": "memory_python"}, {}))
    assert [found[i].status for i in range(4)] == [Status.FAILED] * 3 + [Status.COMPLETED]
    assert found[0].reason == "Net.forward raised RuntimeError: mat1 and mat2 shapes cannot be multiplied"
    assert "in forward" in found[0].details
    assert found[1].reason.startswith("Net.forward ran out of memory")
    assert found[2].reason.startswith("Net.forward ran out of memory")


def test_a_network_that_kills_its_process_costs_its_arm_only(processes):
    found = results(processes, jobs({}, {"fate": "kill"}, {}))
    assert [found[i].status for i in range(3)] == [Status.COMPLETED, Status.FAILED, Status.COMPLETED]
    assert found[1].reason == "worker process died (signal 9: killed, perhaps out of memory)"
    assert found[1].seconds > 0.0
