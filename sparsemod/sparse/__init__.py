"""The documented entry points: `Sparse`, `SparseExperiment`; `utils_data` has the configuration helpers."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sparsemod.sparse.experiment import SparseExperiment
    from sparsemod.sparse.sparse import Sparse

__all__ = ["Sparse", "SparseExperiment"]

_HOMES = {"Sparse": "sparsemod.sparse.sparse", "SparseExperiment": "sparsemod.sparse.experiment"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'sparsemod.sparse' has no attribute '{name}'")
    return getattr(import_module(_HOMES[name]), name)
