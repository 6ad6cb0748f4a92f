"""Taking channels that are wholly zero out of layers, and out of the layers that read them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import Conv1d, Conv2d, Conv3d, Linear, Module, Parameter
from torch.nn.modules.batchnorm import _NormBase
from torch.optim import Optimizer

from sparsemod.compress.layer_sizes import take_sizes
from sparsemod.compress.lifecycle import Cut
from sparsemod.compress.recipe_errors import RecipeError
from sparsemod.errors import nearest

__all__ = ["thin"]


def thin(
    net: Module,
    dependency_map: Mapping[str, Sequence[str]],
    dim: int,
    optimizer: Optimizer | None = None,
    *,
    strict: bool = True,
) -> list[Cut]:
    """Take the channels that are wholly zero out of a network, in place.

    The parameters stay the same objects, so that an optimizer keeps them; its state is cut along. A channel's
    bias goes with it. Where a group has no channel that is not zero, its first one stays.

    Args:
        net: The network.
        dependency_map: Weights that lose the same channels, their names joined by commas, to the parameters
            of the layers that read them (weights; for a batch norm any of its parameters). A linear layer
            behind a flattening may read several values of each channel.
        dim: 0 takes out output channels and the inputs of those that read them; 1 input channels and the
            outputs of those that make them.
        optimizer: Whose state is cut along.
        strict: Whether it is an error when the weights of a group are zero in different channels, or a name
            is unknown; otherwise the channels go that are zero in all of them, and the name is passed over.

    Returns:
        What was cut.

    Raises:
        RecipeError: See `strict`; or a layer does not have the channels, or is of a kind that cannot be cut.
    """
    thinner = _Thinner(net, dim, optimizer, strict)
    for group, readers in dependency_map.items():
        thinner.cut_group([name.strip() for name in group.split(",")], readers)
    return thinner.cuts


class _Thinner:
    def __init__(self, net: Module, dim: int, optimizer: Optimizer | None, strict: bool) -> None:
        self.net = net
        self.dim = dim
        self.state = optimizer.state if optimizer is not None else {}
        self.strict = strict
        self.cuts: list[Cut] = []

    def cut_group(self, group: Sequence[str], readers: Sequence[str]) -> None:
        weights = {name: weight for name in group if (weight := self.find(name)) is not None}
        for name, weight in weights.items():
            if weight.dim() < 2:
                raise RecipeError(f"{name} has no channels to take out: it is no weight of a layer")
        dead = [_dead_channels(weight, self.dim) for weight in weights.values() if weight.shape[self.dim] > 1]
        if not dead:
            return
        sizes = {len(channels) for channels in dead}
        if len(sizes) > 1:
            raise RecipeError(f"{', '.join(group)} have {sorted(sizes)} channels")
        together = torch.stack(dead)
        if self.strict and bool((together != together[0]).any()):
            raise RecipeError(f"{', '.join(group)} are zero in different channels")
        kept = (~together.all(dim=0)).nonzero().squeeze(1)
        channels = _Channels(kept if len(kept) else kept.new_zeros(1), sizes.pop())
        if len(channels.kept) == channels.n_before:
            return
        # A layer is cut once, whichever of its parameters are named.
        layers = {name.rpartition(".")[0]: self.dim for name in weights}
        for name in readers:
            if self.find(name) is not None:
                layers.setdefault(name.rpartition(".")[0], 1 - self.dim)
        for owner, dim in layers.items():
            self.cut_layer(owner, dim, channels)

    def find(self, name: str) -> Parameter | None:
        known = dict(self.net.named_parameters())
        if name not in known and self.strict:
            raise RecipeError(f"param_group_dependency_map: unknown parameter {name!r}{nearest(name, known)}")
        return known.get(name)

    def cut_layer(self, owner: str, dim: int, channels: _Channels) -> None:
        layer = self.net.get_submodule(owner)
        prefix = f"{owner}." if owner else ""
        n_groups = layer.groups if isinstance(layer, Conv1d | Conv2d | Conv3d) else 1
        is_depthwise = isinstance(layer, Conv1d | Conv2d | Conv3d) and 1 < n_groups == layer.in_channels
        # A depthwise convolution passes each channel on by itself, as a batch norm does.
        is_by_channel = is_depthwise or isinstance(layer, _NormBase)
        is_full = isinstance(layer, Linear | Conv1d | Conv2d | Conv3d) and n_groups == 1
        if not (is_by_channel or is_full):
            raise RecipeError(f"{owner}: a layer of type {type(layer).__name__} cannot be thinned")
        if is_by_channel or dim == 0:
            for leaf, parameter in layer.named_parameters(recurse=False):
                self.cut_parameter(f"{prefix}{leaf}", parameter, 0, channels)
            for leaf, buffer in layer.named_buffers(recurse=False):
                if buffer.dim():
                    setattr(layer, leaf, buffer.index_select(0, channels.entries(len(buffer), prefix + leaf)))
        else:
            self.cut_parameter(f"{prefix}weight", dict(layer.named_parameters())["weight"], 1, channels)
        take_sizes(layer)

    def cut_parameter(self, name: str, parameter: Parameter, dim: int, channels: _Channels) -> None:
        shape, gradient = parameter.shape, parameter.grad
        kept = channels.entries(shape[dim], name)
        parameter.grad = None
        parameter.data = parameter.data.index_select(dim, kept)
        if gradient is not None:
            parameter.grad = gradient.index_select(dim, kept)
        state = self.state.get(parameter, {})
        for key, value in state.items():
            if isinstance(value, Tensor) and value.shape == shape:
                state[key] = value.index_select(dim, kept)
        self.cuts.append(Cut(name, dim, kept))


@dataclass(frozen=True)
class _Channels:
    """Which of a number of channels stay."""

    kept: Tensor
    n_before: int

    def entries(self, size: int, name: str) -> Tensor:
        """Return the indices that stay where each channel has one or more entries in a row."""
        if size % self.n_before:
            raise RecipeError(f"{name} has {size} entries for {self.n_before} channels")
        times = size // self.n_before
        return (self.kept.unsqueeze(1) * times + torch.arange(times, device=self.kept.device)).flatten()


def _dead_channels(weight: Tensor, dim: int) -> Tensor:
    return (weight.detach().movedim(dim, 0).flatten(1) == 0).all(dim=1)
