"""Distances of an array's neighbours, and which dimensions a loop can walk through as one."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

__all__ = ["broadcast", "contiguous", "merged"]

Strides = Sequence[int]


def contiguous(shape: Sequence[int]) -> list[int]:
    """Return the distance of neighbours along each dimension, in elements.

    Example:
        >>> contiguous((2, 3, 4))
        [12, 4, 1]
    """
    return [prod(shape[i + 1 :]) for i in range(len(shape))]


def broadcast(shape: Sequence[int], out: Sequence[int]) -> list[int]:
    """Return the distances by which an operand is walked through that fills an output's shape.

    Example:
        >>> broadcast((3, 1), (2, 3, 4))
        [0, 1, 0]
    """
    padded = (1,) * (len(out) - len(shape)) + tuple(shape)
    return [0 if own == 1 else step for own, step in zip(padded, contiguous(padded), strict=True)]


def merged(shape: Sequence[int], operands: Sequence[Strides]) -> tuple[list[int], list[list[int]]]:
    """Join dimensions that all operands walk through as if they were one, and drop those of size 1.

    Example:
        >>> merged((2, 3, 4), [(12, 4, 1), (12, 4, 1)])
        ([24], [[1], [1]])
    """
    sizes: list[int] = []
    strides: list[list[int]] = [[] for _ in operands]
    for i, size in enumerate(shape):
        if size == 1:
            continue
        own = [operand[i] for operand in operands]
        if sizes and all(s[-1] == step * size for s, step in zip(strides, own, strict=True)):
            sizes[-1] *= size
            for s, step in zip(strides, own, strict=True):
                s[-1] = step
        else:
            sizes.append(size)
            for s, step in zip(strides, own, strict=True):
                s.append(step)
    return sizes, strides
