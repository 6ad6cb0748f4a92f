"""Who evaluates the jobs: this process, one worker process a core, or a Ray cluster; one interface, the same
evaluations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Protocol, Self

from sparsemod.candidate import Evaluation
from sparsemod.evaluate.cluster import RayExecutor
from sparsemod.evaluate.evaluation import evaluate
from sparsemod.evaluate.processes import ProcessExecutor
from sparsemod.evaluate.task import Job, Task

__all__ = ["Executor", "InlineExecutor", "ProcessExecutor", "RayExecutor"]


class Executor(Protocol):
    """Evaluates jobs; a context manager that is closed at its end.

    Every executor gives bit for bit the same evaluations for the same task and jobs, whatever their order.
    """

    def run(self, jobs: Iterable[Job]) -> Iterator[tuple[Job, Evaluation]]:
        """Evaluate the jobs and yield each with its evaluation as it completes.

        A job is taken from the iterable only when it can be evaluated at once, so that a generator can make
        the next job of what has been yielded until then.

        Leaving the iterator early gives up the jobs that are still being evaluated.

        Raises:
            ExecutorError: Work cannot be handed to the workers.
            Exception: Whatever an evaluation raised that is not a failed arm: a bug, and it is shown.
        """
        ...

    def close(self) -> None:
        """Give up what is being evaluated and release the workers; safe to call twice."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class InlineExecutor:
    """Evaluates one job after another in this process: for debugging and for a single core.

    Args:
        task: What does not change in a run.
        function: What is done with a job; an evaluation unless said otherwise.
    """

    def __init__(self, task: Task, function: Callable[[Task, Job], Evaluation] = evaluate) -> None:
        self._task = task
        self._function = function

    def run(self, jobs: Iterable[Job]) -> Iterator[tuple[Job, Evaluation]]:
        """Evaluate the jobs in their order; see `Executor.run`."""
        for job in jobs:
            yield job, self._function(self._task, job)

    def close(self) -> None:
        """Nothing is held; the executor stays usable."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
