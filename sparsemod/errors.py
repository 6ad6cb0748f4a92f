"""Every exception that sparsemod raises on purpose, and the guard around a user's code.

    SparsemodError
    ├── ConfigError                a value in a configuration file or an argument is wrong
    ├── SpaceError                 a search space cannot be used
    │   ├── InfeasibleError        the limits exclude every configuration that was tried
    │   └── ExhaustedError         every configuration of the space has been evaluated
    ├── DataError                  a dataset cannot be used
    ├── ModelFileError             a `.tflite` file is unreadable or not of a kind that is understood
    ├── CandidateError             one candidate cannot be built, trained or measured
    │   └── UnsupportedOperatorError
    ├── StoreError                 a results folder is unreadable or belongs to another search
    └── ExecutorError              work cannot be handed to the workers

Only `CandidateError` is confined to one arm: it is recorded with its reason and the search goes on. All
others end the run with one line. An exception that is not in this tree is a bug of sparsemod and is never
swallowed.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from types import TracebackType

__all__ = [
    "CandidateError",
    "ConfigError",
    "DataError",
    "ExecutorError",
    "ExhaustedError",
    "InfeasibleError",
    "ModelFileError",
    "SpaceError",
    "SparsemodError",
    "StoreError",
    "UnsupportedOperatorError",
    "install_excepthook",
    "nearest",
    "user_code",
]


class SparsemodError(Exception):
    """Root of all exceptions that sparsemod raises on purpose."""


class ConfigError(SparsemodError, ValueError):
    """A value in a configuration file or an argument is missing, unknown, ill-typed or contradictory."""


class SpaceError(SparsemodError, ValueError):
    """A search space cannot be used."""


class InfeasibleError(SpaceError):
    """The limits on flash, RAM or latency exclude every configuration that was tried."""


class ExhaustedError(SpaceError):
    """Every configuration of the search space has been evaluated."""


class DataError(SparsemodError, ValueError):
    """A dataset cannot be used."""


class ModelFileError(SparsemodError, ValueError):
    """A `.tflite` file is unreadable, damaged, or not of a kind that is understood."""


class CandidateError(SparsemodError):
    """One candidate cannot be built, trained or measured; the message is the reason that is recorded.

    Args:
        reason: One line, recorded with the arm.
        details: The traceback of the user's exception, shown when `debug` is on.
    """

    def __init__(self, reason: str, details: str = "") -> None:
        super().__init__(reason, details)
        self.reason = reason
        self.details = details

    def __str__(self) -> str:
        return self.reason


class UnsupportedOperatorError(CandidateError):
    """A network holds an operator that no MCU runtime here can run."""


class StoreError(SparsemodError):
    """A results folder is unreadable or belongs to another search."""


class ExecutorError(SparsemodError):
    """Work cannot be handed to the workers."""


def nearest(word: str, allowed: Iterable[str]) -> str:
    """Return `` (did you mean 'x'?)`` for the closest allowed word, or an empty string.

    Example:
        >>> nearest("epoch1", ["epochs1", "name"])
        " (did you mean 'epochs1'?)"
        >>> nearest("zebra", ["epochs1", "name"])
        ''
    """
    close = get_close_matches(word.lower(), list(allowed), n=1, cutoff=0.6)
    return f" (did you mean '{close[0]}'?)" if close else ""


@contextlib.contextmanager
def user_code(what: str) -> Iterator[None]:
    """Turn an exception of the user's code, or running out of memory in it, into a `CandidateError`.

    Args:
        what: The piece of user's code that runs inside, for example ``"Net.forward"``.

    Raises:
        CandidateError: Whatever `Exception` was raised inside, except those of sparsemod; `SystemExit`, too,
            so that a `sys.exit` costs the same in a worker process and in this one.
    """
    try:
        yield
    except SparsemodError:
        raise
    except (Exception, SystemExit) as error:
        import traceback

        raise CandidateError(describe(what, error), traceback.format_exc()) from error


def describe(what: str, error: BaseException) -> str:
    """Say in one line what was raised where; running out of memory is named as such."""
    text = " ".join(str(error).split())
    if (
        isinstance(error, MemoryError)
        or "out of memory" in text.lower()
        or "can't allocate memory" in text.lower()
    ):
        return f"{what} ran out of memory: {text or type(error).__name__}"
    return (
        f"{what} raised {type(error).__name__}: {text}" if text else f"{what} raised {type(error).__name__}"
    )


def install_excepthook() -> None:
    """Make an uncaught `SparsemodError` end a script with its one line and exit code 2, without a traceback.

    Only Python's own hook is replaced, so notebooks, test runners and debuggers keep theirs.
    """
    if sys.excepthook is sys.__excepthook__:
        sys.excepthook = _excepthook


def _excepthook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if not issubclass(kind, SparsemodError):
        sys.__excepthook__(kind, error, trace)
        return
    print(f"error: {error}", file=sys.stderr)
    sys.exit(2)
