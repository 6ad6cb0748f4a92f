"""The task as bytes, for processes that evaluate its jobs."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable
from dataclasses import fields
from typing import Any

from sparsemod.candidate import Evaluation
from sparsemod.errors import ExecutorError
from sparsemod.evaluate.task import Job, Task

__all__ = ["REMEDY", "Function", "pickled"]

Function = Callable[[Task, Job], Evaluation]

REMEDY = "define it at the top level of a module that can be imported, or set executor = inline"
USER_NAMES = {
    "train": "the training set (datasets[0])",
    "validation": "the validation set (datasets[1])",
    "test": "the test set (datasets[2])",
}


def pickled(task: Task, function: Function, dumps: Callable[..., bytes] = pickle.dumps) -> bytes:
    """Pickle the function and the task, or say which part cannot be sent to another process.

    Args:
        task: What does not change in a run.
        function: What is done with a job.
        dumps: Pickles; one that can pickle the code of a notebook is not ``pickle.dumps``.

    Raises:
        ExecutorError: A part of the task cannot be pickled.
    """
    for field in fields(task):
        value = getattr(task, field.name)
        if dumps is pickle.dumps and _is_typed_in(value):
            raise _unsendable(field.name, "it is defined in a notebook or an interactive session")
    try:
        return dumps((function, task), protocol=pickle.HIGHEST_PROTOCOL)
    except Exception as error:  # noqa: BLE001  (pickling runs the user's code)
        whole = error
    for field in fields(task):
        try:
            dumps(getattr(task, field.name), protocol=pickle.HIGHEST_PROTOCOL)
        except Exception as error:
            raise _unsendable(field.name, str(error)) from error
    raise _unsendable("the search", str(whole)) from whole


def _unsendable(name: str, why: str) -> ExecutorError:
    what = USER_NAMES.get(name, name)
    return ExecutorError(f"{what} cannot be sent to worker processes: {' '.join(why.split())}; {REMEDY}")


def _is_typed_in(value: Any) -> bool:
    """Say whether the value's code lives in a `__main__` without a file, which a worker cannot import."""
    main = sys.modules["__main__"]
    if hasattr(main, "__file__") or getattr(main, "__spec__", None) is not None:
        return False
    named = value if hasattr(value, "__qualname__") else type(value)
    return getattr(named, "__module__", None) == "__main__"
