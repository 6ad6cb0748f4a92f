"""sparsemod finds neural networks that fit a microcontroller.

The heavy public names load on first use, so that ``import sparsemod`` takes milliseconds.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from sparsemod.errors import (
    CandidateError,
    ConfigError,
    DataError,
    ExecutorError,
    ExhaustedError,
    InfeasibleError,
    ModelFileError,
    SpaceError,
    SparsemodError,
    StoreError,
    UnsupportedOperatorError,
    install_excepthook,
)

if TYPE_CHECKING:
    from sparsemod.sparse.experiment import SparseExperiment
    from sparsemod.sparse.run import RunResult
    from sparsemod.sparse.sparse import Sparse

__version__ = "0.1.0"

_HOMES = {
    "RunResult": "sparsemod.sparse.run",
    "Sparse": "sparsemod.sparse.sparse",
    "SparseExperiment": "sparsemod.sparse.experiment",
}

__all__ = [
    "CandidateError",
    "ConfigError",
    "DataError",
    "ExecutorError",
    "ExhaustedError",
    "InfeasibleError",
    "ModelFileError",
    "RunResult",
    "SpaceError",
    "Sparse",
    "SparseExperiment",
    "SparsemodError",
    "StoreError",
    "UnsupportedOperatorError",
]

install_excepthook()


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'sparsemod' has no attribute '{name}'")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
