"""What is pruned as one: single weights, blocks, whole slices; cutting tensors into such groups and back."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

import torch
from torch import Tensor, nn

__all__ = [
    "Slices",
    "Structure",
    "block_shape",
    "cut_groups",
    "expand",
    "is_slices",
    "parse_n_of_m",
    "ungroup",
]


@dataclass(frozen=True, slots=True)
class Slices:
    """Whole slices along a dimension are kept or pruned, ranked by a norm.

    Attributes:
        dim: The dimension whose slices are ranked; 0 is a linear or convolution layer's output channels.
        norm: The order of the norm, 2 for Euclidean.
    """

    dim: int
    norm: float = 2.0


Structure = str | tuple[int, int] | Slices
"""``"unstructured"``; ``"filter"`` (= ``Slices(0)``); ``"channel"`` (= ``Slices(1)``); ``"block4"`` (= ``(1,
4)``); ``(rows, columns)`` of a block over the first two dimensions, -1 for the whole dimension; ``"N:M"``: at
most N of each M neighbours along the input dimension stay."""


def is_slices(structure: Structure) -> bool:
    """Say whether whole slices are pruned, which are compared within one tensor only."""
    return isinstance(structure, Slices) or structure in ("filter", "channel")


def parse_n_of_m(structure: Structure) -> tuple[int, int] | None:
    """Return N and M of an ``"N:M"`` structure, None for the others.

    Raises:
        ValueError: N is not below M.
    """
    match = re.fullmatch(r"(\d+):(\d+)", structure) if isinstance(structure, str) else None
    if match is None:
        return None
    n, m = int(match[1]), int(match[2])
    if not 0 < n < m:
        raise ValueError(f"structure N:M needs 0 < N < M, got {structure!r}")
    return n, m


def block_shape(structure: Structure, shape: torch.Size) -> list[int]:
    """Return the extent of one group along each dimension; all that is pruned as one is such a block.

    Raises:
        ValueError: The structure is unknown, or the tensor has no such dimension.
    """
    n_dims = len(shape)
    if structure == "unstructured":
        return [1] * n_dims
    if structure in ("filter", "channel"):
        structure = Slices(0 if structure == "filter" else 1)
    if isinstance(structure, Slices):
        if not -n_dims <= structure.dim < n_dims:
            raise ValueError(f"cannot prune slices along dimension {structure.dim} of shape {tuple(shape)}")
        block = list(shape)
        block[structure.dim] = 1
        return block
    if structure == "block4":
        structure = (1, 4)
    if not isinstance(structure, tuple) or len(structure) != 2 or any(n < 1 and n != -1 for n in structure):
        raise ValueError(
            "structure must be 'unstructured', 'filter', 'channel', 'block4', 'N:M', (rows, columns) "
            f"or Slices, got {structure!r}"
        )
    if n_dims == 1:
        structure = (structure[1], 1)
    return [extent if n == -1 else n for extent, n in zip(shape, (*structure, *[1] * n_dims), strict=False)]


def cut_groups(tensor: Tensor, block: list[int], fill: float) -> Tensor:
    """Cut a tensor into blocks: (n_groups, elements of one); what an edge block lacks is `fill`."""
    padding = [n for extent, b in zip(tensor.shape, block, strict=True) for n in (-extent % b, 0)]
    if any(padding):
        tensor = nn.functional.pad(tensor, padding[::-1], value=fill)
    cut = tensor.reshape([n for extent, b in zip(tensor.shape, block, strict=True) for n in (extent // b, b)])
    order = [*range(0, cut.dim(), 2), *range(1, cut.dim(), 2)]
    return cut.permute(order).reshape(-1, math.prod(block))


def ungroup(groups: Tensor, block: list[int], shape: torch.Size) -> Tensor:
    """Put the elements of `cut_groups` back to their places."""
    n_blocks = [-(-extent // b) for extent, b in zip(shape, block, strict=True)]
    n = len(shape)
    order = [axis for pair in zip(range(n), range(n, 2 * n), strict=True) for axis in pair]
    whole = groups.reshape(*n_blocks, *block).permute(order)
    whole = whole.reshape([count * b for count, b in zip(n_blocks, block, strict=True)])
    inside: Tensor = whole[tuple(slice(extent) for extent in shape)]
    return inside.contiguous()


def expand(keep: Tensor, shape: torch.Size, structure: Structure) -> Tensor:
    """Spread one value a group over the elements of a tensor of this shape."""
    block = block_shape(structure, shape)
    if math.prod(block) == 1:
        return keep.reshape(shape)
    return ungroup(keep.unsqueeze(1).expand(-1, math.prod(block)), block, shape)
