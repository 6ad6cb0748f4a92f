"""What is known before anything is trained: whether the data can be used, an arm's resources and its seed."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from torch import Tensor

from sparsemod.candidate import Parametrization, Resources
from sparsemod.errors import CandidateError, DataError, StoreError
from sparsemod.evaluate.build import NAMES, load_weights, opened
from sparsemod.evaluate.evaluation import predict
from sparsemod.sparse.setup import Setup
from sparsemod.store import Store
from sparsemod.train.data import TensorData

__all__ = ["ResourceCache", "arm_seed", "check_data", "stored_weights"]


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


def check_data(setup: Setup) -> None:
    """Open all three data sets, so that what is wrong with one is said now and not after the search.

    Raises:
        DataError: One cannot be used, holds inputs that are not finite, or their inputs differ in shape.
    """
    task = setup.task
    parametrization = setup.space.repair({}, np.random.default_rng(0)) if task.splitter else {}
    shapes = {}
    for part, name in NAMES.items():
        try:
            data = opened(task, part, parametrization)
            shapes[name] = data.input_shape
        except CandidateError as error:
            if not task.splitter:  # with it, another max_len may do better
                raise DataError(f"the {name} set: {error}") from error
        else:
            if isinstance(data, TensorData):
                _check_finite(data.x, name)
    if task.collate_fn is None:
        for name, shape in shapes.items():
            if shape != shapes["training"]:
                raise DataError(
                    f"the {name} set: expected inputs of shape {shapes['training']} like the training set's, "
                    f"got {shape}"
                )


def _check_finite(x: Tensor, name: str) -> None:
    bad = ~x.flatten(1).isfinite().all(1)
    if bool(bad.any()):
        first = int(bad.nonzero()[0])
        raise DataError(
            f"the {name} set: expected finite inputs, got NaN or infinity in {int(bad.sum())} of {len(x)} "
            f"samples, the first is number {first}"
        )


def stored_weights(store: Store, name: str) -> tuple[bytes | None, str]:
    """Return the stored weights of an arm, or None and what is wrong with them."""
    weights = store.weights(name)
    if weights is None:
        return None, "gone"
    try:
        load_weights(weights)
    except StoreError:
        return None, "damaged"
    return weights, ""
