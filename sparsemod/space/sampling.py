"""Scrambled Sobol points of a search space: the same seed and index always give the same configuration."""

from __future__ import annotations

import warnings
from functools import lru_cache

import numpy as np
import torch
from torch.quasirandom import SobolEngine

from sparsemod.candidate import ParamValue
from sparsemod.space.space import Space

__all__ = ["draw", "draw_many"]

_BLOCK = 64
_REJECTION_TRIES = 100


def draw(space: Space, seed: int, index: int) -> dict[str, ParamValue]:
    """Return point number `index` (from 0) of the scrambled Sobol sequence as a valid configuration.

    Where a point breaks the space's constraints, its constrained coordinates are drawn anew, from a generator
    of this seed and index alone, until they hold; after 100 attempts the nearest valid one is taken. Beyond
    21 201 parameters, the most that the sequence is defined for, points are drawn uniformly, with a warning.

    Raises:
        ValueError: If `index` is negative.
    """
    if index < 0:
        raise ValueError(f"draw: expected an index of 0 or more, got {index}")
    if space.n_unit > SobolEngine.MAXDIM:
        warnings.warn(
            f"search space: {space.n_unit} parameters exceed the {SobolEngine.MAXDIM} dimensions of a Sobol "
            "sequence, drawing uniformly",
            stacklevel=2,
        )
        u = np.random.default_rng((seed, index, 1)).random(space.n_unit)
    else:
        u = _block(space.n_unit, seed, index // _BLOCK)[index % _BLOCK].copy()
    rng = np.random.default_rng((seed, index, 2))
    constrained = [i for i, name in enumerate(space.tunable) if name in space.constrained]
    params = space.from_unit(u)
    for _ in range(_REJECTION_TRIES if constrained else 0):
        if space.check(params) is None:
            return params
        u[constrained] = rng.random(len(constrained))
        params = space.from_unit(u)
    return space.repair(params, rng)


def draw_many(space: Space, seed: int, start: int, n: int) -> list[dict[str, ParamValue]]:
    """Return the `n` points from number `start` on."""
    return [draw(space, seed, index) for index in range(start, start + n)]


@lru_cache(maxsize=16)
def _block(n_dimensions: int, seed: int, block: int) -> np.ndarray:
    """Points from 64 * block on, (64, n_dimensions); setting up the engine costs more than all of them."""
    if n_dimensions == 0:
        return np.zeros((_BLOCK, 0))
    engine = SobolEngine(n_dimensions, scramble=True, seed=seed)  # type: ignore[no-untyped-call]
    engine.fast_forward(block * _BLOCK)  # type: ignore[no-untyped-call]
    return np.asarray(engine.draw(_BLOCK, dtype=torch.float64).numpy())
