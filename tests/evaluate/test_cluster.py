import sys
import threading
import time

import pytest
from evaluate_functions import Toy, Unloadable, scripted, until_the_node_dies

from sparsemod.candidate import Candidate, Status
from sparsemod.errors import ExecutorError
from sparsemod.evaluate.executors import RayExecutor
from sparsemod.evaluate.task import Job

pytest.importorskip("ray", reason="executor = ray needs the package ray")


def jobs(*actions):
    return [Job(i, Candidate({"action": a}, 1, "sobol"), epochs=1, seed=i) for i, a in enumerate(actions)]


def results(executor, work):
    return {j.index: e for j, e in executor.run(work)}


@pytest.fixture
def own():
    """A Ray of this test alone."""
    with RayExecutor(Toy(), 2, scripted) as executor:
        yield executor


def test_a_killed_worker_costs_one_arm(own):
    found = results(own, jobs(None, "die", None, "exit"))
    assert [found[i].status for i in range(4)] == [
        Status.COMPLETED,
        Status.FAILED,
        Status.COMPLETED,
        Status.FAILED,
    ]
    assert {found[1].reason, found[3].reason} == {"worker process died"}
    assert results(own, jobs("threads"))[0].reason == "1"
    own.close()
    own.close()
    with pytest.raises(ExecutorError, match="closed"):
        list(own.run(jobs(None)))


def test_results_come_as_they_complete_and_what_is_given_up_ends(own):
    order = own.run(jobs("sleep", None, None))
    assert [next(order)[0].index, next(order)[0].index] == [1, 2]
    order.close()  # gives up the sleeper, whose place is free again
    assert sorted(results(own, jobs(None, None, None))) == [0, 1, 2]


def test_the_code_of_a_notebook_is_sent_along():
    namespace = {"__name__": "__main__"}
    exec("def double(task, job):\n    return job.seed * 2\n", namespace)
    with RayExecutor(Toy(net=lambda: None), 1, namespace["double"]) as executor:
        assert results(executor, jobs(None, None)) == {0: 0, 1: 2}


def test_a_task_that_cannot_be_loaded_or_sent_is_said_in_one_line():
    with pytest.raises(ExecutorError, match=r"^net cannot be sent to worker processes: .*lock"):
        RayExecutor(Toy(net=threading.Lock()), 1, scripted)
    with (
        RayExecutor(Toy(net=Unloadable()), 1, scripted) as executor,
        pytest.raises(ExecutorError, match=r"^a worker process cannot load the search: .*attribute 'Net'"),
    ):
        list(executor.run(jobs(None)))


def test_wrong_arguments(monkeypatch):
    with pytest.raises(ExecutorError, match="expected 1 or more, got 0"):
        RayExecutor(Toy(), 0)
    with pytest.raises(ExecutorError, match="the task needs a GPU, and the cluster has none"):
        RayExecutor(Toy(device="cuda"), None, scripted)
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    with pytest.raises(ExecutorError, match=r"^executor = ray: RAY_ADDRESS = 127.0.0.1:1 cannot be reached"):
        RayExecutor(Toy(), 1, scripted)
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ExecutorError, match=r'pip install "sparsemod\[ray\]"'):
        RayExecutor(Toy(), 1, scripted)


def test_a_node_that_is_killed_in_the_middle_costs_nothing(tmp_path):
    import ray
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, connect=True, head_node_args={"num_cpus": 1})
    try:
        doomed = cluster.add_node(num_cpus=1)
        cluster.wait_for_nodes()
        (tmp_path / "doomed").write_text(doomed.node_id)

        def kill():
            while not list(tmp_path.glob(f"*-{doomed.node_id}")):
                time.sleep(0.05)
            cluster.remove_node(doomed, allow_graceful=False)

        killer = threading.Thread(target=kill, daemon=True)
        killer.start()
        with RayExecutor(Toy(factor=3.0, train=tmp_path), None, until_the_node_dies) as executor:
            found = results(executor, jobs(*[None] * 4))
        killer.join(60)
        assert {i: e.error for i, e in found.items()} == {i: 3.0 * i for i in range(4)}
        begun = [path.name.split("-")[0] for path in tmp_path.glob("*-*")]
        assert len(begun) == 5  # the one that died with its node was begun again
        assert ray.is_initialized()  # a cluster that was there before stays
    finally:
        ray.shutdown()
        cluster.shutdown()
