"""The argument `groups`: which subject each sample is of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from sparsemod.errors import DataError

__all__ = ["group_names"]

PARTS = ("training", "validation", "test")


def group_names(groups: Any, sizes: tuple[int, int, int], where: str) -> tuple[str, ...] | None:
    """Return the name of every sample's group.

    Args:
        groups: Three sequences of integers or texts like the data sets, or one for all samples of the
            training, validation and test set, one behind the other; None for no groups.
        sizes: Samples of the three sets.
        where: What an error begins with.

    Raises:
        DataError: It is neither, or a value is missing.
    """
    if groups is None:
        return None
    listed = _listed(groups)
    if listed is not None and len(listed) == len(sizes) and all(_listed(part) is not None for part in listed):
        return tuple(
            name
            for part, n, what in zip(listed, sizes, PARTS, strict=True)
            for name in _names(_listed(part) or [], n, f"the {what} set", where)
        )
    if listed is None:
        raise DataError(
            f"{where} groups: expected one value a sample, as (training, validation, test) or one behind the "
            f"other, got {type(groups).__name__}"
        )
    return tuple(_names(listed, sum(sizes), "the three sets", where))


def _listed(values: Any) -> list[Any] | None:
    if isinstance(values, str | bytes | dict | set):
        return None
    plain = values.tolist() if hasattr(values, "tolist") else values
    return list(plain) if isinstance(plain, Sequence) else None


def _names(values: list[Any], n: int, what: str, where: str) -> list[str]:
    if len(values) != n:
        raise DataError(f"{where} groups: expected {n} values for {n} samples of {what}, got {len(values)}")
    for value in values:
        if isinstance(value, bool) or not isinstance(value, int | str | np.integer):
            raise DataError(f"{where} groups: expected integers or texts, got {value!r} in {what}")
    return [str(value) for value in values]
