"""Weights from a parent for a child of another shape, so that a changed network need not start from scratch.

What the two have in common is copied by name and position. Old rows get zeros where they have new inputs, and
new rows keep the child's initialisation: the new units compute something, nothing listens to them yet, and a
widened network computes what its parent did (Net2Net: Chen et al. 2016, arXiv:1511.05641, reaches the same by
copies and noise).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

__all__ = ["InheritReport", "inherit"]

_GATES = {
    nn.LSTM: 4,
    nn.LSTMCell: 4,
    nn.GRU: 3,
    nn.GRUCell: 3,
    nn.RNN: 1,
    nn.RNNCell: 1,
    nn.MultiheadAttention: 3,
}
_CONVS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
_TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)


@dataclass(frozen=True, slots=True)
class InheritReport:
    """What became of the child's tensors, by their names.

    Attributes:
        copied: Taken over whole.
        partly: Taken over where the two overlap.
        skipped: Left as they were, since the parent has none of that name, or one that does not correspond.
    """

    copied: tuple[str, ...]
    partly: tuple[str, ...]
    skipped: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Dim:
    """How a dimension of the parent's tensor lies in the child's: its element i is there i + shift."""

    new: int
    old: int
    shift: int = 0
    is_input: bool = False

    def new_slice(self) -> slice:
        return slice(max(0, self.shift), max(0, min(self.new, self.old + self.shift)))

    def old_slice(self) -> slice:
        return slice(max(0, -self.shift), max(0, min(self.old, self.new - self.shift)))


@dataclass(frozen=True, slots=True)
class _Source:
    """What the last layer hands on: channels, or directions of a recurrent layer, over so many dimensions."""

    new: int
    old: int
    n_spatial: int


def inherit(child: nn.Module, parent_state: Mapping[str, Tensor]) -> InheritReport:
    """Give the child the parent's weights, in place.

    Rows (outputs) and columns (inputs) are matched from the first on. Kernels are aligned at their centres,
    as the child's padding has it. Recurrent tensors are matched gate by gate. A linear layer behind a
    flattened feature map is matched channel by channel, and within a channel at the centre where the map is
    one-dimensional or square; the map is that of the last convolution before it in the order of the modules,
    when its channels divide the inputs. Where the layers' order or meaning differs (a branch widened in front
    of a concatenation, say) the match is a guess, and training has to repair it.

    Args:
        child: The network to fill, freshly initialised.
        parent_state: The parent's state dict.

    Returns:
        Which tensors were taken over. Nothing that does not fit is an error.

    Example:
        >>> parent, child = nn.Linear(2, 2), nn.Linear(3, 2)
        >>> inherit(child, parent.state_dict())
        InheritReport(copied=('bias',), partly=('weight',), skipped=())
        >>> child.weight[:, 2].tolist()
        [0.0, 0.0]
    """
    report: dict[str, list[str]] = {"copied": [], "partly": [], "skipped": []}
    source: _Source | None = None
    names = child.state_dict().keys()
    for path, module in child.named_modules():
        prefix = f"{path}." if path else ""
        for leaf, tensor in [*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)]:
            name = prefix + leaf
            if name not in names:
                continue
            old = parent_state.get(name)
            dims = None if old is None else _layout(module, leaf, tensor.shape, old.shape, source)
            if old is None or dims is None:
                report["skipped"].append(name)
                continue
            _merge(tensor, old, dims)
            whole = all(dim.new == dim.old and dim.shift == 0 for dim in dims)
            report["copied" if whole else "partly"].append(name)
        source = _next_source(module, parent_state.get(prefix + "weight"), source)
    return InheritReport(*(tuple(found) for found in report.values()))


def _merge(new: Tensor, old: Tensor, dims: list[_Dim]) -> None:
    result = new.detach().reshape([dim.new for dim in dims]).clone()
    result[tuple(slice(None) if dim.is_input else dim.new_slice() for dim in dims)] = 0
    kept = old.to(new).reshape([dim.old for dim in dims])[tuple(dim.old_slice() for dim in dims)]
    result[tuple(dim.new_slice() for dim in dims)] = kept
    with torch.no_grad():
        new.copy_(result.reshape(new.shape))


def _layout(
    module: nn.Module, leaf: str, new: torch.Size, old: torch.Size, source: _Source | None
) -> list[_Dim] | None:
    """Say how the parent's tensor lies in the child's, or None when they do not correspond."""
    if len(new) != len(old):
        return None
    if isinstance(module, _CONVS) and len(new) > 1:
        return [_Dim(new[0], old[0]), _Dim(new[1], old[1], is_input=True), *_kernel(module, new[2:], old[2:])]
    if isinstance(module, _TRANSPOSED) and len(new) > 1:
        return [_Dim(new[0], old[0], is_input=True), _Dim(new[1], old[1]), *_kernel(module, new[2:], old[2:])]
    if isinstance(module, nn.Linear) and len(new) == 2:
        return [_Dim(new[0], old[0]), *_columns(new[1], old[1], source)]
    gates = next((n for kind, n in _GATES.items() if isinstance(module, kind)), None)
    if gates is not None and (leaf.startswith(("weight_ih", "weight_hh", "bias_ih", "bias_hh", "in_proj"))):
        if new[0] % gates or old[0] % gates:
            return None
        rows = [_Dim(gates, gates), _Dim(new[0] // gates, old[0] // gates)]
        if len(new) == 1:
            return rows
        if leaf.startswith("weight_ih_l") and not leaf.startswith("weight_ih_l0"):
            n_directions = 2 if isinstance(module, nn.RNNBase) and module.bidirectional else 1
            source = _Source(n_directions, n_directions, 0)
        return [*rows, *_columns(new[1], old[1], source if leaf.startswith("weight_ih") else None)]
    if isinstance(module, nn.Embedding | nn.EmbeddingBag) or len(new) == 1:
        return [_Dim(n, m) for n, m in zip(new, old, strict=True)]
    if new == old:
        return [_Dim(n, n) for n in new]
    return None


def _kernel(module: nn.modules.conv._ConvNd, new: torch.Size, old: torch.Size) -> list[_Dim]:
    """Align kernels where they are anchored; an even one leans to the side that its padding does."""
    dims = []
    for axis, (n, m) in enumerate(zip(new, old, strict=True)):
        padding = None if isinstance(module.padding, str) else module.padding[axis]
        leans_left = padding == module.dilation[axis] * (n // 2)
        shift = n // 2 - m // 2 if leans_left else (n - 1) // 2 - (m - 1) // 2
        dims.append(_Dim(n, m, shift, is_input=True))
    return dims


def _columns(new: int, old: int, source: _Source | None) -> list[_Dim]:
    """Lay out the inputs of a linear or recurrent layer, which may be a flattened feature map."""
    if source is None or new % source.new or old % source.old:
        return [_Dim(new, old, is_input=True)]
    blocks = _Dim(source.new, source.old, is_input=True)
    n, m = new // source.new, old // source.old
    if source.n_spatial == 1:
        return [blocks, _Dim(n, m, (n - m) // 2, is_input=True)]
    side, old_side = math.isqrt(n), math.isqrt(m)
    if source.n_spatial == 2 and side**2 == n and old_side**2 == m:
        return [blocks, *[_Dim(side, old_side, (side - old_side) // 2, is_input=True)] * 2]
    return [blocks, _Dim(n, m, is_input=True)]


def _next_source(module: nn.Module, old_weight: Tensor | None, source: _Source | None) -> _Source | None:
    """Return what the layers so far hand on to a flattening, behind this module."""
    if isinstance(module, _CONVS):
        if old_weight is None or old_weight.dim() != module.weight.dim():
            return None
        return _Source(module.out_channels, len(old_weight), module.weight.dim() - 2)
    if isinstance(module, nn.RNNBase):
        return _Source(2, 2, 0) if module.bidirectional else None
    return None if isinstance(module, nn.Linear | nn.RNNCellBase | nn.Embedding) else source
