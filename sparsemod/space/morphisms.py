"""Running the user's morphisms: functions dict -> dict that change a configuration."""

from __future__ import annotations

import contextlib
import copy
import random
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from sparsemod.candidate import Parametrization, ParamValue
from sparsemod.errors import CandidateError, ConfigError, user_code
from sparsemod.space.space import Space

__all__ = ["Morphism", "apply", "check_morphisms"]

Morphism = Callable[[dict[str, Any]], Any]


def check_morphisms(morpher_ops: object) -> dict[str, Morphism]:
    """Return the morphisms if they map names to functions.

    Raises:
        ConfigError: If they do not.
    """
    if not isinstance(morpher_ops, Mapping):
        raise ConfigError(f"morpher_ops: expected a dict name -> function, got {type(morpher_ops).__name__}")
    for name, function in morpher_ops.items():
        if not isinstance(name, str) or not name:
            raise ConfigError(f"morpher_ops: expected names as keys, got {name!r}")
        if not callable(function):
            raise ConfigError(f"morpher_ops['{name}']: expected a function, got {type(function).__name__}")
    return dict(morpher_ops)


def apply(
    morpher_ops: Mapping[str, Morphism],
    params: Parametrization,
    space: Space,
    rng: np.random.Generator,
    n_ops: int,
) -> tuple[dict[str, ParamValue], str]:
    """Apply `n_ops` morphisms, picked at random, to a copy of a configuration.

    Each morphism gets a copy of its own and its result is repaired to the space before the next one sees it.
    The global generators of `random` and `numpy.random` are seeded from `rng` inside and restored after.

    Args:
        morpher_ops: The user's morphisms by name.
        params: A valid configuration; it is not changed.
        space: The space that the result belongs to.
        rng: Decides on the morphisms and on what they draw.
        n_ops: How many to apply, one after the other; the same one may come twice.

    Returns:
        The new configuration, which may equal the old one, and its origin, for example
        ``morph:kernel_size+num_filters``.

    Raises:
        CandidateError: If a morphism raises, or returns anything but a dict; the message names it.
        ConfigError: If there are no morphisms.
    """
    if not morpher_ops:
        raise ConfigError("morpher_ops: expected at least one morphism, got none")
    names = list(morpher_ops)
    picked = [names[int(rng.integers(len(names)))] for _ in range(n_ops)]
    child = dict(params)
    with _seeded(rng):
        for name in picked:
            with user_code(f"morphism {name}"):
                result = morpher_ops[name](copy.deepcopy(child))
            if not isinstance(result, dict):
                kind = type(result).__name__
                raise CandidateError(f"morphism {name}: expected the changed dict to be returned, got {kind}")
            child = space.repair(result, rng)
    return child, f"morph:{'+'.join(picked)}"


@contextlib.contextmanager
def _seeded(rng: np.random.Generator) -> Iterator[None]:
    """Seed the global generators that users' code draws from, and put their states back at the end."""
    python_state, numpy_state = random.getstate(), np.random.get_state()  # noqa: NPY002
    random.seed(int(rng.integers(2**63)))
    np.random.seed(int(rng.integers(2**32)))  # noqa: NPY002
    try:
        yield
    finally:
        random.setstate(python_state)
        np.random.set_state(numpy_state)  # noqa: NPY002
