"""What is known of an arm before it is trained: its resources and its seed."""

from __future__ import annotations

import hashlib
from typing import Any

from sparsemod.candidate import Parametrization, Resources
from sparsemod.errors import CandidateError
from sparsemod.evaluate.evaluation import predict
from sparsemod.sparse.setup import Setup

__all__ = ["ResourceCache", "arm_seed"]


class ResourceCache:
    """Resources before training, computed once for a configuration; a failure is remembered as well."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._known: dict[tuple[Any, ...], Resources | CandidateError] = {}

    def __call__(self, parametrization: Parametrization, epochs: int | None = None) -> Resources:
        """Return the resources, or raise the `CandidateError` that says why there are none.

        Args:
            parametrization: Of the arm.
            epochs: How long it would be trained; a recipe is checked against it and may use it.
        """
        task = self._setup.task
        key = (self._setup.space.key(parametrization), None if task.recipe is None else epochs)
        if key not in self._known:
            try:
                self._known[key] = predict(task, parametrization, epochs=epochs)
            except CandidateError as error:
                self._known[key] = error
        known = self._known[key]
        if isinstance(known, CandidateError):
            raise known
        return known


def arm_seed(seed: int, index: int) -> int:
    """Return the seed of an arm: a hash, so that runs of neighbouring seeds share nothing.

    Example:
        >>> arm_seed(0, 1) == arm_seed(0, 1), arm_seed(0, 1) == arm_seed(1, 0)
        (True, False)
    """
    digest = hashlib.blake2b(f"{seed}:{index}".encode(), digest_size=4).digest()
    return int.from_bytes(digest, "big") & 0x7FFFFFFF
