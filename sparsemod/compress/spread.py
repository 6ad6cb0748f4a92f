"""Masks as training would leave them, for a network that has not been trained."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

__all__ = ["spread_masks"]


def spread_masks(tensors: Mapping[str, Tensor], sparsity: float) -> dict[str, Tensor]:
    """Return masks that keep a weight in every row and column, and the same share of all others.

    Magnitudes say nothing before training: first weights are smaller the more inputs a layer has, so the
    smallest ones of a network are whole layers, and what reads or feeds them would be removed as dead. Here
    every channel keeps a weight as long as there are enough. Keeping the same share of every tensor costs the
    most flash of all ways to keep so many weights, where each is stored at the smaller of dense and bitmap,
    and keeping all channels the most RAM. So what is said to fit will fit when it is trained.

    Args:
        tensors: Weights of two or more dimensions, rows first.
        sparsity: Share of all of them that is pruned, in [0, 1].

    Returns:
        A mask for each tensor; as many weights stay as global magnitude pruning leaves.

    Example:
        >>> spread_masks({"w": torch.zeros(3, 3)}, 2 / 3)["w"].int().tolist()
        [[1, 0, 0], [0, 1, 0], [0, 0, 1]]
    """
    shapes = {name: (t.shape[0], math.prod(t.shape[1:])) for name, t in tensors.items()}
    total = sum(rows * columns for rows, columns in shapes.values())
    n_kept = total - round(sparsity * total)
    first = {name: min(max(shape), math.prod(shape)) for name, shape in shapes.items()}
    needed = sum(first.values())
    if needed <= n_kept:
        rest = {name: math.prod(shape) - first[name] for name, shape in shapes.items()}
        more = _shared(rest, n_kept - needed)
        counts = {name: first[name] + more[name] for name in shapes}
    else:
        counts = _shared(first, n_kept)
    return {name: (_order(*shapes[name]) < counts[name]).view(t.shape) for name, t in tensors.items()}


def _shared(weights: Mapping[str, int], n: int) -> dict[str, int]:
    """Split `n` in proportion to the weights, which sum to at least `n`, into whole numbers."""
    total, done, given = sum(weights.values()), 0, 0
    shares = {}
    for name, weight in weights.items():
        done += weight
        until = n * done // max(total, 1)
        shares[name], given = until - given, until
    return shares


def _order(n_rows: int, n_columns: int) -> Tensor:
    """Rank the entries of a matrix so that the first of them meet every row and column as soon as can be."""
    turn = torch.arange(n_columns)
    shift = (turn * n_rows + turn * n_rows // math.lcm(n_rows, n_columns)) % n_columns
    place = torch.empty(n_columns, dtype=torch.long)
    place[shift] = turn
    rows, columns = torch.arange(n_rows)[:, None], torch.arange(n_columns)
    return place[(columns - rows) % n_columns] * n_rows + rows
