"""What runs inside a worker process: it receives the task once, then one job after another.

Messages from the worker are pickled tuples whose first item is a `Message`:

    HELLO                        the interpreter is up, the task may be sent
    LOADED                       the task is unpickled, jobs may be sent
    REFUSED, text                the task cannot be unpickled here
    RESULT, evaluation           a job is done
    BUG, exception, traceback    a job raised something that is not a failed arm

This module imports nothing heavy, so that a worker says HELLO soon.
"""

from __future__ import annotations

import contextlib
import copy
import faulthandler
import multiprocessing
import os
import pickle
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from dataclasses import replace
from enum import Enum, auto
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from sparsemod.errors import ExecutorError, describe

__all__ = [
    "ENVIRONMENT",
    "EXIT_UNGUARDED",
    "UNGUARDED",
    "Message",
    "attempt",
    "place",
    "refuse_reimport",
    "work",
]

ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "CUBLAS_WORKSPACE_CONFIG": ":4096:8",  # without it cuBLAS is not reproducible
    "SPARSEMOD_WORKER": "1",
}
EXIT_UNGUARDED = 78
UNGUARDED = (
    'the script must start its search below `if __name__ == "__main__":`, because every worker process '
    "imports the script again (or set executor = inline)"
)
WATCH_SECONDS = 0.5
OOM_SCORE = Path("/proc/self/oom_score_adj")


class Message(Enum):
    """The kinds of messages a worker sends."""

    HELLO = auto()
    LOADED = auto()
    REFUSED = auto()
    RESULT = auto()
    BUG = auto()


def refuse_reimport() -> None:
    """Stop a script without a main guard that is being imported again by one of its own workers.

    Call it before a search touches its files. In a worker it ends the process quietly with `EXIT_UNGUARDED`,
    which the main process turns into one clear line.

    Raises:
        ExecutorError: The script is being imported by a process that somebody else spawned.
        SystemExit: It is being imported by a worker of ours.
    """
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        if "SPARSEMOD_WORKER" in os.environ:
            sys.exit(EXIT_UNGUARDED)
        raise ExecutorError(UNGUARDED)


def work(connection: Connection[Any, Any], slot: int) -> None:
    """Serve jobs until the main process closes the pipe.

    Args:
        connection: The worker's end of the pipe.
        slot: The worker's number, which decides its GPU where there are several.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    faulthandler.enable()
    _volunteer_for_oom_killer()
    threading.Thread(target=_exit_with_parent, args=(os.getppid(),), daemon=True).start()
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):
        _serve(connection, slot)


def _serve(connection: Connection[Any, Any], slot: int) -> None:
    _send(connection, Message.HELLO)
    try:
        function, task = connection.recv()
    except Exception as error:  # noqa: BLE001  (unpickling runs the user's code)
        _send(connection, Message.REFUSED, describe("unpickling", error))
        return
    task = place(task, slot)
    _send(connection, Message.LOADED)
    while True:
        job = connection.recv()
        _send(connection, *attempt(function, task, job))


def attempt(function: Callable[[Any, Any], Any], task: Any, job: Any) -> tuple[Any, ...]:
    """Do a job; return the message that says what came of it."""
    try:
        return Message.RESULT, function(task, job)
    except Exception as error:  # noqa: BLE001  (handed to the main process, which raises it again)
        return Message.BUG, _portable(error), traceback.format_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()


def place(task: Any, slot: int) -> Any:
    """Return the task with its device replaced by the GPU of this slot, when the device is plain ``cuda``."""
    if task.device != "cuda":
        return task
    import torch

    return replace(task, device=f"cuda:{slot % max(torch.cuda.device_count(), 1)}")


def _send(connection: Connection[Any, Any], *message: Any) -> None:
    connection.send_bytes(pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL))


def _portable(error: Exception) -> Exception:
    """Return the exception itself when it survives pickling, else a `RuntimeError` that names it."""
    try:
        pickle.dumps(error)
        copy.copy(error)
    except Exception:  # noqa: BLE001  (any class may refuse in its own way)
        return RuntimeError(f"{type(error).__qualname__}: {error}")
    return error


def _exit_with_parent(parent: int) -> None:
    """End this process when the main process is gone, even by SIGKILL and in the middle of a training."""
    ancestor = multiprocessing.parent_process()
    while ancestor is not None and ancestor.is_alive() and os.getppid() == parent:
        ancestor.join(WATCH_SECONDS)
    os._exit(1)


def _volunteer_for_oom_killer() -> None:
    """Make Linux, when memory runs out, kill this worker (one arm) and not the main process (the search)."""
    if OOM_SCORE.exists():
        with contextlib.suppress(OSError):
            OOM_SCORE.write_text("500")
