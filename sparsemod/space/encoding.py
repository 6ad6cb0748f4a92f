"""Parametrizations as rows of numbers, for models of the search."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sparsemod.candidate import Parametrization
from sparsemod.space.parameters import Choice, Tunable

__all__ = ["INACTIVE", "activity_columns", "columns", "encode"]

INACTIVE = 0.5  # the same everywhere, so that two absences are alike and neither end of a range is favoured


def columns(tunable: Mapping[str, Tunable]) -> tuple[str, ...]:
    """Return the parameter each column belongs to: one column each, but one a value for an unordered choice.

    Example:
        >>> kind = Choice("kind", str, ("conv", "pool", "skip"), ordered=False)
        >>> columns({"kind": kind})
        ('kind', 'kind', 'kind')
    """
    return tuple(name for name, p in tunable.items() for _ in range(_width(p)))


def encode(tunable: Mapping[str, Tunable], configurations: Sequence[Parametrization]) -> np.ndarray:
    """Encode n configurations as (n, d) floats in [0, 1].

    Numbers and ordered choices take one column in their own scale (log where flagged), unordered choices one
    column a value; a parameter that a configuration lacks has `INACTIVE` in its columns.
    """
    blocks = [_block(p, [c.get(name) for c in configurations]) for name, p in tunable.items()]
    return np.concatenate(blocks, axis=1) if blocks else np.zeros((len(configurations), 0))


def activity_columns(tunable: Mapping[str, Tunable], active: Sequence[frozenset[str]]) -> np.ndarray:
    """Return (n, d) booleans, False in the columns of parameters that a row's set of active ones lacks."""
    owners = columns(tunable)
    rows = [[name in row for name in owners] for row in active]
    return np.array(rows, dtype=bool).reshape(len(active), len(owners))


def _width(parameter: Tunable) -> int:
    return parameter.n_values if isinstance(parameter, Choice) and not parameter.ordered else 1


def _block(parameter: Tunable, values: Sequence[Any]) -> np.ndarray:
    present = np.array([v is not None for v in values], dtype=bool)
    block = np.full((len(values), _width(parameter)), INACTIVE)
    if isinstance(parameter, Choice):
        table = parameter.positions()[:, None] if parameter.ordered else np.eye(parameter.n_values)
        block[present] = table[[parameter.values.index(v) for v in values if v is not None]]
    else:
        block[present, 0] = parameter.encoded(np.array([v for v in values if v is not None], dtype=float))
    return block
