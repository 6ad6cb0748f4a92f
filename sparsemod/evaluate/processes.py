"""One worker process a core: spawned, one thread each, the task sent once, a dead worker replaced."""

from __future__ import annotations

import atexit
import contextlib
import itertools
import multiprocessing
import os
import pickle
import signal
import time
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from types import TracebackType
from typing import Any, Self

from sparsemod.candidate import Evaluation, Status
from sparsemod.errors import ExecutorError
from sparsemod.evaluate.evaluation import evaluate
from sparsemod.evaluate.payload import REMEDY, Function, pickled
from sparsemod.evaluate.task import Job, Task
from sparsemod.evaluate.worker import ENVIRONMENT, EXIT_UNGUARDED, UNGUARDED, Message, refuse_reimport, work

__all__ = ["ProcessExecutor"]

MAX_FALSE_STARTS = 3
POLL_SECONDS = 1.0  # a worker's own children may hold its pipe open, so that its death has to be looked for
JOIN_SECONDS = 5.0


@dataclass
class _Worker:
    slot: int
    process: BaseProcess
    connection: Connection[Any, Any]
    greeted: bool = False
    ready: bool = False
    job: Job | None = None
    started: float = 0.0


class ProcessExecutor:
    """Evaluates jobs side by side in worker processes; see `Executor` for the interface.

    Workers start when there are jobs for them, live until `close`, ignore Ctrl-C (the main process handles
    it) and end by themselves when the main process is gone. A worker that dies with a job costs that one arm.

    Args:
        task: What does not change in a run; pickled once, sent once to each worker.
        workers: How many processes at most.
        function: What is done with a job; an evaluation unless said otherwise.

    Raises:
        ExecutorError: A part of the task cannot be sent to another process, or the script has no main guard.
    """

    def __init__(self, task: Task, workers: int, function: Function = evaluate) -> None:
        if workers < 1:
            raise ExecutorError(f"workers: expected 1 or more, got {workers}")
        refuse_reimport()
        self._payload = pickled(task, function)
        self._size = workers
        self._workers: list[_Worker] = []
        self._false_starts = 0
        self._closed = False
        atexit.register(self.close)  # runs before multiprocessing would wait for the workers

    def run(self, jobs: Iterable[Job]) -> Iterator[tuple[Job, Evaluation]]:
        """Evaluate the jobs; the next is taken when a worker is free for it. See `Executor.run`.

        Raises:
            ExecutorError: Workers die again and again before they take a job, or cannot load the task.
            Exception: Whatever an evaluation raised that is not a failed arm, with the worker's traceback as
                a note.
        """
        self._check_open()
        waiting, pending = iter(jobs), deque[Job]()
        try:
            while True:
                room = self._size - len(self._busy()) - len(pending)
                pending.extend(itertools.islice(waiting, max(room, 0)))
                if not pending and not self._busy():
                    return
                self._start_missing(len(pending) + len(self._busy()))
                self._hand_out(pending)
                for worker in self._with_news():
                    yield from self._answer(worker)
                    self._check_open()
        finally:
            for worker in self._busy():
                self._discard(worker)

    def close(self) -> None:
        """Kill the workers and wait for their end; safe to call twice."""
        self._closed = True
        for worker in self._workers:
            worker.process.kill()
        for worker in list(self._workers):
            self._discard(worker)
        atexit.unregister(self.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _check_open(self) -> None:
        if self._closed:
            raise ExecutorError("the executor is closed")

    def _busy(self) -> list[_Worker]:
        return [w for w in self._workers if w.job is not None]

    def _start_missing(self, n_jobs: int) -> None:
        taken = {w.slot for w in self._workers}
        free = [slot for slot in range(self._size) if slot not in taken]
        for slot in free[: max(min(self._size, n_jobs) - len(taken), 0)]:
            self._workers.append(_start(slot))

    def _hand_out(self, pending: deque[Job]) -> None:
        for worker in self._workers:
            if pending and worker.ready and worker.job is None and _send(worker, pickle.dumps(pending[0])):
                worker.job = pending.popleft()
                worker.started = time.monotonic()

    def _with_news(self) -> list[_Worker]:
        spoken = wait([w.connection for w in self._workers], POLL_SECONDS)
        return [w for w in self._workers if w.connection in spoken or not w.process.is_alive()]

    def _answer(self, worker: _Worker) -> Iterator[tuple[Job, Evaluation]]:
        try:
            if not worker.connection.poll():
                raise EOFError
            kind, *content = worker.connection.recv()
        except (EOFError, OSError):
            yield from self._bury(worker)
            return
        if kind is Message.HELLO:
            worker.greeted = True
            _send(worker, self._payload)
        elif kind is Message.LOADED:
            worker.ready = True
        elif kind is Message.REFUSED:
            raise ExecutorError(f"a worker process cannot load the search: {content[0]}; {REMEDY}")
        else:
            job, worker.job = worker.job, None
            self._false_starts = 0
            if kind is Message.BUG:
                error, trace = content
                error.add_note(f"Raised in a worker process:\n{trace}")
                raise error
            if job is not None:
                yield job, content[0]

    def _bury(self, worker: _Worker) -> Iterator[tuple[Job, Evaluation]]:
        job, seconds = worker.job, time.monotonic() - worker.started
        code = self._discard(worker, JOIN_SECONDS)
        if job is not None:
            self._false_starts = 0
            yield job, Evaluation(Status.FAILED, f"worker process died ({_cause(code)})", seconds=seconds)
            return
        if code == EXIT_UNGUARDED:
            raise ExecutorError(UNGUARDED)
        self._false_starts += 1
        if self._false_starts == MAX_FALSE_STARTS:
            hint = "" if worker.greeted else f"; {UNGUARDED}"
            raise ExecutorError(
                f"{MAX_FALSE_STARTS} worker processes in a row died before they took a job (the last by "
                f"{_cause(code)}); what they printed is above{hint}"
            )

    def _discard(self, worker: _Worker, patience: float = 0.0) -> int:
        """Make sure that a worker is dead and reaped; return its exit code."""
        self._workers.remove(worker)
        worker.connection.close()
        worker.process.join(patience)
        worker.process.kill()
        worker.process.join()
        code = worker.process.exitcode
        worker.process.close()
        return 0 if code is None else code


def _start(slot: int) -> _Worker:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=work, args=(theirs, slot), name=f"sparsemod-worker-{slot}")
    try:
        with _child_environment():
            process.start()
    except BaseException:  # a Ctrl-C that came meanwhile: nobody else knows of this process
        if process.pid is not None:
            process.kill()
            process.join()
        raise
    theirs.close()
    return _Worker(slot, process, ours)


@contextlib.contextmanager
def _child_environment() -> Iterator[None]:
    """Let a process that starts inside see one thread and, until it is ready to ignore it, no Ctrl-C."""
    saved = {name: os.environ.get(name) for name in ENVIRONMENT}
    resource_tracker.ensure_running()  # its own start would lift the block again
    has_mask = hasattr(signal, "pthread_sigmask")
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT}) if has_mask else set()
    os.environ.update(ENVIRONMENT)
    try:
        yield
    finally:
        for name, value in saved.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        if has_mask:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _send(worker: _Worker, message: bytes) -> bool:
    try:
        worker.connection.send_bytes(message)
    except OSError:  # it is dead: the next look at its pipe finds out
        return False
    return True


def _cause(code: int) -> str:
    """Say in words how a process ended.

    Example:
        >>> _cause(-9), _cause(-11), _cause(3)
        ('signal 9: killed, perhaps out of memory', 'signal 11: segmentation fault', 'exit code 3')
    """
    if code >= 0:
        return f"exit code {code}"
    name = (signal.strsignal(-code) or "unknown").lower()
    return f"signal {-code}: {name}{', perhaps out of memory' if -code == signal.SIGKILL else ''}"
