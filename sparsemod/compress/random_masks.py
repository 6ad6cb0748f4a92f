"""Random pruning over the mask engine: the same counts and scopes, ranked by random numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor

from sparsemod.compress.groups import Slices
from sparsemod.compress.masks import Masks, Scope, magnitude_masks

__all__ = ["random_masks"]


def random_masks(
    tensors: Mapping[str, Tensor],
    sparsity: float | None = None,
    *,
    generator: torch.Generator,
    count: int | None = None,
    of: Literal["all", "remaining"] = "all",
    scope: Scope = "global",
    structure: Literal["unstructured"] | Slices = "unstructured",
    base: Masks | None = None,
) -> dict[str, Tensor]:
    """Return masks that prune weights, or whole slices, at random; exactly as many as asked for.

    Args:
        tensors: The weights by name; only their shapes matter.
        generator: A CPU generator, so that the masks are the same on every device.
        sparsity: See `magnitude_masks`, as for the other arguments.
        count: See `magnitude_masks`.
        of: See `magnitude_masks`.
        scope: ``"global"`` or ``"local"``; slices only locally.
        structure: Single weights, or slices along a dimension (their norm does not matter).
        base: See `magnitude_masks`.

    Raises:
        ValueError: As `magnitude_masks`.

    Example:
        >>> masks = random_masks({"w": torch.ones(3, 4)}, 0.5, generator=torch.Generator().manual_seed(0))
        >>> int(masks["w"].sum())
        6
    """
    base = base or {}
    if not isinstance(structure, Slices):
        scores = {name: _draw(tensor, tensor.shape, generator) for name, tensor in tensors.items()}
        return magnitude_masks(
            tensors, sparsity, count=count, of=of, scope=scope, structure=structure, base=base, scores=scores
        )
    if scope == "global":
        raise ValueError(f"structure {structure!r} ranks within each tensor: scope must be 'local'")
    # One weight stands for each slice: slices that other pruning left incomplete are as likely as whole ones.
    numbers = {
        name: _draw(tensor, tensor.shape[structure.dim], generator) for name, tensor in tensors.items()
    }
    left = {name: _left(mask, structure.dim) for name, mask in base.items() if name in tensors}
    kept = magnitude_masks(numbers, sparsity, count=count, of=of, scope="local", base=left)
    masks = {}
    for name, tensor in tensors.items():
        shape = [1] * tensor.dim()
        shape[structure.dim] = -1
        mask = kept[name].reshape(shape).expand_as(tensor)
        masks[name] = mask & base[name] if name in base else mask.clone()
    return masks


def _draw(tensor: Tensor, shape: torch.Size | int, generator: torch.Generator) -> Tensor:
    return torch.rand(shape, generator=generator).to(tensor.device)


def _left(mask: Tensor, dim: int) -> Tensor:
    return mask.movedim(dim, 0).reshape(mask.shape[dim], -1).any(dim=1)
