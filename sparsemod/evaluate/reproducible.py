"""The surroundings of an evaluation: one thread, seeded generators, deterministic algorithms."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator

import numpy as np
import torch

from sparsemod.errors import CandidateError, describe

__all__ = ["memory_guard", "reproducible"]

OUT_OF_MEMORY = ("out of memory", "can't allocate memory", "not enough memory")


@contextlib.contextmanager
def reproducible(device: str, seed: int) -> Iterator[None]:
    """Run what is inside on one thread from seeded generators, and leave no trace of it.

    Python's, numpy's and torch's global generators are seeded, since a user's network may draw from any of
    them. Torch takes deterministic algorithms (with a warning where it has none) and fills what `torch.empty`
    returns, so that a forgotten initialisation shows as NaN and not as a result that changes by the run.

    Args:
        device: ``cpu``, ``cuda`` or ``cuda:<index>``, whose generator is seeded too.
        seed: 0 or more.
    """
    python, legacy = random.getstate(), np.random.get_state()  # noqa: NPY002
    n_threads = torch.get_num_threads()
    strict = torch.are_deterministic_algorithms_enabled()
    lenient = torch.is_deterministic_algorithms_warn_only_enabled()
    with torch.random.fork_rng([torch.device(device)] if device.startswith("cuda") else []):
        try:
            torch.set_num_threads(1)
            torch.use_deterministic_algorithms(True, warn_only=True)
            torch.manual_seed(seed)
            random.seed(seed)
            np.random.seed(seed % 2**32)  # noqa: NPY002
            yield
        finally:
            random.setstate(python)
            np.random.set_state(legacy)  # noqa: NPY002
            torch.use_deterministic_algorithms(strict, warn_only=lenient)
            torch.set_num_threads(n_threads)


@contextlib.contextmanager
def memory_guard(what: str) -> Iterator[None]:
    """Turn running out of memory inside into a `CandidateError`; any other exception passes.

    Args:
        what: What runs inside, for the reason.

    Raises:
        CandidateError: Memory ran out, on the CPU or a GPU.
    """
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        text = str(error).lower()
        if not isinstance(error, MemoryError) and not any(hint in text for hint in OUT_OF_MEMORY):
            raise
        raise CandidateError(describe(what, error)) from error
