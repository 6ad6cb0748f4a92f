"""Masks: which weights stay. Plain immutable values; everything that prunes computes and applies them here.

A mask is a bool tensor of its weight's shape, True where the weight stays. Masks of a network are a mapping
from the parameter's qualified name (``"features.0.weight"``) to its mask. They are never changed in place:
pruning further makes new ones from the old (`base`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import Literal

import torch
from torch import Tensor, nn

from sparsemod.compress.groups import (
    Slices,
    Structure,
    block_shape,
    cut_groups,
    expand,
    is_slices,
    parse_n_of_m,
    ungroup,
)
from sparsemod.errors import ConfigError, nearest

__all__ = [
    "Masks",
    "Scope",
    "apply_masks",
    "magnitude_masks",
    "match_names",
    "prunable_parameters",
    "sparsity",
]

Masks = Mapping[str, Tensor]
Scope = Literal["global", "local"]


_NORMS = (
    nn.modules.batchnorm._NormBase,
    nn.LayerNorm,
    nn.GroupNorm,
    nn.RMSNorm,
)


def match_names(names: Iterable[str], patterns: Iterable[str]) -> list[str]:
    """Return the names that a pattern selects, in the order of `names`.

    Args:
        names: Qualified parameter names.
        patterns: Exact names, or ``re:`` and a regular expression that must match at the name's beginning.

    Raises:
        ConfigError: A pattern selects nothing.

    Example:
        >>> match_names(["a.weight", "b.weight", "c.bias"], ["re:.*weight"])
        ['a.weight', 'b.weight']
    """
    names = list(names)
    selected: set[str] = set()
    for pattern in patterns:
        if pattern.startswith("re:"):
            hits = {name for name in names if re.match(pattern[3:], name)}
        else:
            hits = {name for name in names if name == pattern}
        if not hits:
            raise ConfigError(f"no prunable parameter matches {pattern!r}{nearest(pattern, names)}")
        selected |= hits
    return [name for name in names if name in selected]


def prunable_parameters(net: nn.Module, exclude: Iterable[str] = ()) -> dict[str, nn.Parameter]:
    """Return the weights that pruning may touch, by qualified name, in the order of the network's modules.

    These are all parameters of two or more dimensions with ``weight`` in their name, outside normalisation
    layers: linear, convolution, embedding, attention and recurrent ones, the last layer included. A parameter
        shared by
    several modules appears once, under its first name.

    Args:
        net: The network; lazy layers must have seen an input.
        exclude: Names or ``re:`` patterns of parameters to leave alone.

    Raises:
        ConfigError: An entry of `exclude` matches no prunable parameter.

    Example:
        >>> list(prunable_parameters(nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Linear(3, 2))))
        ['0.weight', '2.weight']
    """
    found = {}
    for name, parameter in net.named_parameters():
        owner, _, leaf = name.rpartition(".")
        if parameter.dim() >= 2 and "weight" in leaf and not isinstance(net.get_submodule(owner), _NORMS):
            found[name] = parameter
    excluded = set(match_names(found, exclude))
    return {name: parameter for name, parameter in found.items() if name not in excluded}


def magnitude_masks(
    tensors: Mapping[str, Tensor],
    sparsity: float | None = None,
    *,
    count: int | None = None,
    of: Literal["all", "remaining"] = "all",
    scope: Scope = "global",
    structure: Structure = "unstructured",
    base: Masks | None = None,
    scores: Mapping[str, Tensor] | None = None,
) -> dict[str, Tensor]:
    """Return masks that prune the smallest weights; exactly as many as asked for, ties by the lower flat
    index.

    What is counted are the groups of the structure: single weights, blocks or slices. A fraction prunes
    ``round(n_groups * sparsity)`` of them (Python's rounding, half to even).

    Args:
        tensors: The weights by name, each of any shape.
        sparsity: The fraction to prune, in [0, 1]. For ``"N:M"`` it is implied and may be left out; 0 prunes
            nothing.
        count: The number of groups to prune, instead of `sparsity`.
        of: What the amount refers to: ``"all"`` groups (those that `base` prunes already count) or only the
            ``"remaining"`` ones (so that the amount comes on top of what `base` prunes).
        scope: ``"global"`` ranks the groups of all tensors together, ``"local"`` each tensor by itself.
        structure: What is pruned as one, see `Structure`. Slices are ranked by their norm, and only locally;
            blocks by the mean magnitude of their weights. A block or N:M group at the edge may be smaller.
        base: Earlier masks; what they prune stays pruned. Tensors without one count as unpruned.
        scores: Importance of each weight, in place of its magnitude; lower goes first.

    Returns:
        One bool mask a tensor, True where the weight stays.

    Raises:
        ValueError: The amount is missing, out of range or more than there is, or the structure is unknown or
            does not allow it.

    Example:
        >>> weights = {"w": torch.tensor([.1, .5, .2, .9, .3, .7, .4, .8])}
        >>> magnitude_masks(weights, 0.3)["w"].int().tolist()
        [0, 1, 0, 1, 1, 1, 1, 1]
    """
    if scope not in ("global", "local"):
        raise ValueError(f"scope must be 'global' or 'local', got {scope!r}")
    n_of_m = parse_n_of_m(structure)
    if n_of_m is not None:
        if count is not None:
            raise ValueError(f"structure {structure!r} takes no count, got {count}")
        return _n_of_m_masks(_importance(tensors, scores), *n_of_m, sparsity, base or {})
    _check_amount(sparsity, count)
    if scope == "global" and is_slices(structure):
        raise ValueError(f"structure {structure!r} ranks within each tensor: scope must be 'local'")
    base = base or {}
    values = _importance(tensors, scores)
    flat = {name: _group_scores(values[name], base.get(name), structure) for name in tensors}
    parts = [list(flat)] if scope == "global" else [[name] for name in flat]
    masks = {}
    for part in parts:
        if not part:
            continue
        joined = torch.cat([flat[name] for name in part])
        n_gone = int((joined == -math.inf).sum()) if base else 0
        keep = _keep_largest(joined, _n_pruned(len(joined), n_gone, sparsity, count, of))
        sizes = [len(flat[name]) for name in part]
        for name, groups in zip(part, torch.split(keep, sizes), strict=True):
            mask = expand(groups, tensors[name].shape, structure)
            masks[name] = mask & base[name] if name in base else mask
    return masks


def apply_masks(target: nn.Module | Mapping[str, Tensor], masks: Masks) -> None:
    """Set the pruned weights to zero, in place.

    Args:
        target: A network, or its parameters by name.
        masks: One a parameter to prune, True where the weight stays.

    Raises:
        ValueError: A mask names no parameter of the target.
    """
    parameters = dict(target.named_parameters()) if isinstance(target, nn.Module) else target
    with torch.no_grad():
        for name, mask in masks.items():
            if name not in parameters:
                raise ValueError(f"mask for unknown parameter {name!r}{nearest(name, parameters)}")
            parameters[name].masked_fill_(~mask, 0.0)


def sparsity(masks: Masks) -> float:
    """Return the share of weights that the masks prune, in [0, 1]; 0 for no masks."""
    n_weights = sum(mask.numel() for mask in masks.values())
    n_kept = sum(int(mask.sum()) for mask in masks.values())
    return 1.0 - n_kept / n_weights if n_weights else 0.0


def _check_amount(sparsity: float | None, count: int | None) -> None:
    if (sparsity is None) == (count is None):
        raise ValueError("either sparsity or count must be given")
    if sparsity is not None and not 0.0 <= sparsity <= 1.0:
        raise ValueError(f"sparsity must be in [0, 1], got {sparsity}")
    if count is not None and count < 0:
        raise ValueError(f"count must be 0 or more, got {count}")


def _n_pruned(n_groups: int, n_gone: int, sparsity: float | None, count: int | None, of: str) -> int:
    if of not in ("all", "remaining"):
        raise ValueError(f"of must be 'all' or 'remaining', got {of!r}")
    before = n_gone if of == "remaining" else 0
    n_available = n_groups - before
    wanted = count if count is not None else round(n_available * (sparsity or 0.0))
    if wanted > n_available:
        raise ValueError(f"cannot prune {wanted} of {n_available} weights or groups")
    return before + wanted


def _keep_largest(scores: Tensor, n_pruned: int) -> Tensor:
    """Mask out exactly the `n_pruned` smallest scores, equal ones from the front."""
    if n_pruned == 0:
        return torch.ones_like(scores, dtype=torch.bool)
    # A tenth of the time of a stable sort, which would give the same.
    limit = scores.kthvalue(n_pruned).values
    gone = scores <= limit
    n_surplus = int(gone.sum()) - n_pruned
    if n_surplus:
        ties = (scores == limit).nonzero().squeeze(1)
        gone[ties[len(ties) - n_surplus :]] = False
    return ~gone


def _importance(tensors: Mapping[str, Tensor], scores: Mapping[str, Tensor] | None) -> dict[str, Tensor]:
    if scores is None:
        return {name: tensor.detach().abs() for name, tensor in tensors.items()}
    return {name: scores[name].detach() for name in tensors}


def _group_scores(values: Tensor, kept: Tensor | None, structure: Structure) -> Tensor:
    """Score each group of a tensor, in the order of `cut_groups`; -inf where nothing is left of it."""
    block = block_shape(structure, values.shape)
    if math.prod(block) == 1:
        flat = values.reshape(-1)
        return flat if kept is None else flat.masked_fill(~kept.reshape(-1), -math.inf)
    if kept is not None:
        values = values * kept
    if is_slices(structure):
        norm = structure.norm if isinstance(structure, Slices) else 2.0
        result: Tensor = torch.linalg.vector_norm(cut_groups(values, block, 0.0), norm, dim=1)
    else:
        result = cut_groups(values, block, math.nan).nanmean(dim=1)
    if kept is not None:
        result = result.masked_fill(~cut_groups(kept.to(values.dtype), block, 0.0).any(dim=1), -math.inf)
    return result


def _n_of_m_masks(
    values: Mapping[str, Tensor], n: int, m: int, sparsity: float | None, base: Masks
) -> dict[str, Tensor]:
    if sparsity and not math.isclose(sparsity, 1.0 - n / m, abs_tol=5e-3):
        raise ValueError(f"structure {n}:{m} prunes {1.0 - n / m:g} of the weights, got sparsity {sparsity}")
    masks = {}
    for name, importance in values.items():
        mask = torch.ones_like(importance, dtype=torch.bool)
        if sparsity != 0.0:
            block = block_shape((1, m), importance.shape)
            kept = _group_scores(importance, base.get(name), "unstructured").reshape(importance.shape)
            groups = cut_groups(kept, block, -math.inf)
            lowest = groups.argsort(dim=1, stable=True)[:, : m - n]
            keep = torch.ones_like(groups, dtype=torch.bool).scatter_(1, lowest, False)
            mask = ungroup(keep, block, importance.shape)
        masks[name] = mask & base[name] if name in base else mask
    return masks
