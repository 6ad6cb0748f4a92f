"""Evaluates jobs on a Ray cluster, or on a Ray that is started for the run on this computer."""

from __future__ import annotations

import os
import socket
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Any, Self

from sparsemod.candidate import Evaluation, Status
from sparsemod.errors import ExecutorError
from sparsemod.evaluate.evaluation import evaluate
from sparsemod.evaluate.payload import Function, pickled
from sparsemod.evaluate.task import Job, Task
from sparsemod.evaluate.worker import ENVIRONMENT, Message, attempt

__all__ = ["RayExecutor"]

MAX_NODE_DEATHS = 3
PATIENCE_SECONDS = 10.0
REMEDY = "every node has to find the modules that define it"

_loaded: dict[str, tuple[Function, Any]] = {}  # in a worker: the task of the run, unpickled once


class RayExecutor:
    """Evaluates jobs as Ray tasks of one CPU each; see `Executor` for the interface.

    The task goes into Ray's object store once, with the data sets, and each worker process loads it once. A
    worker that dies with a job costs that one arm; a node that dies costs nothing, its jobs are evaluated
    again on another. Where the task's device is ``cuda``, each job gets one of the cluster's GPUs.

    It uses the Ray that the script has initialised, else the cluster that the environment variable
    ``RAY_ADDRESS`` names (``auto`` for the one that this computer belongs to), else it starts one on this
    computer, and stops that on `close`.

    Args:
        task: What does not change in a run.
        workers: How many jobs at most are evaluated side by side; None for as many as the cluster has CPUs,
            or GPUs.
        function: What is done with a job; an evaluation unless said otherwise.

    Raises:
        ExecutorError: Ray is not installed or cannot be reached, the cluster has no GPU for a task that
            needs one, or a part of the task cannot be sent.
    """

    def __init__(self, task: Task, workers: int | None, function: Function = evaluate) -> None:
        if workers is not None and workers < 1:
            raise ExecutorError(f"workers: expected 1 or more, got {workers}")
        self._ray = _import_ray()
        payload = pickled(task, function, self._ray.cloudpickle.dumps)
        self._owned = _connect(self._ray, workers)
        try:
            self._n_gpus = 1 if task.device.startswith("cuda") else 0
            self._size = workers or self._capacity()
            self._remote = self._ray.remote(num_cpus=1, num_gpus=self._n_gpus, max_retries=0)(run_job)
            self._payload = self._ray.put((sys.path, payload))
        except BaseException:
            self._shutdown()
            raise
        self._busy: dict[Any, tuple[Job, float]] = {}
        self._closed = False

    def run(self, jobs: Iterable[Job]) -> Iterator[tuple[Job, Evaluation]]:
        """Evaluate the jobs; the next is taken when there is room for it. See `Executor.run`."""
        self._check_open()
        waiting, deaths = iter(jobs), Counter[int]()
        try:
            while True:
                while len(self._busy) < self._size and (job := next(waiting, None)) is not None:
                    self._submit(job)
                if not self._busy:
                    return
                done, _ = self._ray.wait(list(self._busy), num_returns=1)
                job, start = self._busy.pop(done[0])
                evaluation = self._answer(done[0], job, start, deaths)
                if evaluation is not None:
                    yield job, evaluation
                    self._check_open()
        finally:
            self._give_up()

    def close(self) -> None:
        """Give up what is being evaluated; stop the Ray that was started here; safe to call twice."""
        if self._closed:
            return
        self._closed = True
        self._give_up()
        self._shutdown()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _submit(self, job: Job) -> None:
        # A reference inside a list is handed over as it is; a worker fetches what it stands for only once.
        reference = self._remote.remote([self._payload], job)
        self._busy[reference] = (job, time.monotonic())

    def _answer(self, reference: Any, job: Job, start: float, deaths: Counter[int]) -> Evaluation | None:
        """Return what came of a job, or None when it has been handed out again."""
        exceptions = self._ray.exceptions
        try:
            kind, *content = self._ray.get(reference)
        except (exceptions.NodeDiedError, exceptions.ObjectLostError):
            deaths[job.index] += 1
            if deaths[job.index] < MAX_NODE_DEATHS:
                self._submit(job)
                return None
            return _failed(f"{MAX_NODE_DEATHS} nodes died with it", start)
        except exceptions.OutOfMemoryError:
            return _failed("worker process died (out of memory)", start)
        except exceptions.WorkerCrashedError:
            return _failed("worker process died", start)
        except exceptions.RayError as error:
            raise ExecutorError(f"ray cannot evaluate a job: {_line(error)}") from error
        if kind is Message.REFUSED:
            raise ExecutorError(f"a worker process cannot load the search: {content[0]}; {REMEDY}")
        if kind is Message.BUG:
            bug, trace = content
            bug.add_note(f"Raised in a worker process:\n{trace}")
            raise bug
        evaluation: Evaluation = content[0]
        return evaluation

    def _capacity(self) -> int:
        resources = self._ray.cluster_resources()
        if self._n_gpus and not resources.get("GPU"):
            raise ExecutorError("executor = ray: the task needs a GPU, and the cluster has none")
        return max(int(resources.get("GPU" if self._n_gpus else "CPU", 1)), 1)

    def _give_up(self) -> None:
        for reference in self._busy:
            self._ray.cancel(reference, force=True)
        self._busy.clear()

    def _check_open(self) -> None:
        if self._closed:
            raise ExecutorError("the executor is closed")

    def _shutdown(self) -> None:
        if self._owned:
            self._ray.shutdown()


def run_job(payload: list[Any], job: Job) -> tuple[Any, ...]:
    """Evaluate one job in a worker process of Ray.

    Args:
        payload: The reference of where modules are found, and of the pickled function and task.
        job: The job.
    """
    key = payload[0].hex()
    if key not in _loaded:
        import ray

        os.environ.update(ENVIRONMENT)
        places, content = ray.get(payload[0])
        sys.path.extend(place for place in places if place not in sys.path)
        try:
            _loaded[key] = ray.cloudpickle.loads(content)
        except Exception as error:  # noqa: BLE001  (unpickling runs the user's code)
            return Message.REFUSED, f"{type(error).__name__}: {_line(error)}"
        one_thread()
    function, task = _loaded[key]
    return attempt(function, task, job)


def one_thread() -> None:
    """Let torch use one thread, as every worker does."""
    import torch

    torch.set_num_threads(1)


def _import_ray() -> Any:
    try:
        import ray
        import ray.exceptions
    except ImportError as error:
        raise ExecutorError(
            'executor = ray: expected the package ray, which is not installed: pip install "sparsemod[ray]"'
        ) from error
    return ray


def _connect(ray: Any, workers: int | None) -> bool:
    """Connect to a Ray; return whether it was started here."""
    if ray.is_initialized():
        return False
    address = os.environ.get("RAY_ADDRESS", "local")
    own = {"num_cpus": workers, "include_dashboard": False} if address == "local" else {}
    try:
        _knock(address)  # Ray itself would try for minutes
        ray.init(address=address, configure_logging=False, **own)
    except (OSError, RuntimeError, ValueError) as error:
        what = "Ray cannot be started" if own else f"RAY_ADDRESS = {address} cannot be reached"
        raise ExecutorError(f"executor = ray: {what}: {_line(error)}") from error
    return bool(own)


def _knock(address: str) -> None:
    """Raise an `OSError` where nobody listens at ``host:port``."""
    host, _, port = address.rpartition("://")[2].rpartition(":")
    if host and port.isdigit():
        socket.create_connection((host, int(port)), PATIENCE_SECONDS).close()


def _failed(reason: str, start: float) -> Evaluation:
    return Evaluation(Status.FAILED, reason, seconds=time.monotonic() - start)


def _line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
