"""Structured pruning: whole channels are taken out of a network, so that it is smaller and quicker on any
runtime.

Which layers are tied to each other by additions, depthwise convolutions and flattening is worked out by the
package torch-pruning (DepGraph: Fang et al. 2023, arXiv:2301.12900) from one traced forward pass.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from typing import Any

import torch
import torch_pruning
from torch import Tensor, nn

from sparsemod.compress.layer_sizes import take_sizes
from sparsemod.compress.masks import magnitude_masks
from sparsemod.compress.schedules import interpolate
from sparsemod.compress.wiring import Wiring
from sparsemod.errors import CandidateError, user_code

__all__ = ["StructuredPruningHook", "load_resized", "prune_channels"]

N_CUTS = 5
"""In how many goes the hook takes its channels out; each costs the optimizer its momentum."""


def prune_channels(net: nn.Module, example: Tensor, fraction: float) -> None:
    """Take a fraction of every layer's output channels out, the weakest by their weights' norm, in place.

    Layers tied by an addition or a depthwise convolution lose the same channels. At least one channel stays
    in every layer, and the output layer keeps all. Of `n` channels ``int(n * (1 - fraction))`` stay.

    Args:
        net: A convolutional or fully connected network.
        example: One input as a batch of one.
        fraction: Of the channels, in (0, 1); otherwise nothing is pruned.

    Raises:
        CandidateError: The network cannot be pruned by channels, for instance because it is recurrent or
            because its forward holds numbers of channels.
    """
    if 0.0 < fraction < 1.0:
        _Cutter(net, example).cut(fraction)


class StructuredPruningHook:
    """Takes channels out of a network while it trains, in a few goes along a cubic ramp.

    After the last one the rest of the training repairs what was lost. The network's parameters are replaced
    by smaller ones, so the optimizer is made anew at each go.

    Args:
        final_fraction: The share of every layer's output channels that is gone in the end; 0 or less and 1 or
            more prune nothing. The number of weights falls about as ``(1 - final_fraction)**2``.
        example: One input as a batch of one.
        start: When the ramp begins, as a share of all optimizer steps.
        end: When the last channels are taken out, as a share of all optimizer steps.

    Raises:
        ValueError: The ramp does not lie within the training.
    """

    def __init__(
        self, final_fraction: float, example: Tensor, *, start: float = 0.1, end: float = 0.7
    ) -> None:
        if not 0.0 <= start <= end <= 1.0:
            raise ValueError(f"the ramp needs 0 <= start <= end <= 1, got start={start}, end={end}")
        self.final_fraction = final_fraction if 0.0 < final_fraction < 1.0 else 0.0
        self._example = example
        self._ramp = (start, end)
        self._cuts: list[tuple[int, float]] = []

    def start(self, net: nn.Module, n_steps: int) -> None:
        """Work out what is tied in the network, and lay the cuts over `n_steps` optimizer steps.

        Raises:
            CandidateError: The network cannot be pruned by channels.
        """
        if self.final_fraction == 0.0:
            return
        first, last = (math.floor(share * n_steps) for share in self._ramp)
        marks = {max(1, first + math.ceil((last - first) * (i + 1) / N_CUTS)) for i in range(N_CUTS)}
        self._cuts = [
            (at, interpolate(at, first, max(marks), 0.0, self.final_fraction)) for at in sorted(marks)
        ]
        self._cutter = _Cutter(net, self._example)

    def before_step(self, step: int) -> None:
        """Do nothing; the work is done behind the optimizer."""

    def after_step(self, step: int) -> bool:
        """Take channels out when it is time.

        Args:
            step: Index of the optimizer step that has just been made, from 0.

        Returns:
            True when it did so, and the parameters are others than before.
        """
        if not self._cuts or step + 1 < self._cuts[0][0]:
            return False
        _, fraction = self._cuts.pop(0)
        self._cutter.cut(fraction)
        return True

    def ready(self, step: int) -> bool:
        """Say whether the last channels are gone, so that the best epoch may be chosen."""
        return not self._cuts


def load_resized(net: nn.Module, state: Mapping[str, Tensor]) -> None:
    """Load weights into a network that was built before channels were taken out; its layers take their sizes.

    Args:
        net: A network as its builder makes it.
        state: The state of the same network, perhaps with fewer channels.

    Raises:
        ValueError: The names differ.

    Example:
        >>> net = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 2))
        >>> small = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2))
        >>> load_resized(net, small.state_dict())
        >>> net[0].out_features, net[1].in_features
        (3, 3)
    """
    own = net.state_dict()
    if own.keys() != state.keys():
        odd = sorted(own.keys() ^ state.keys())[0]
        raise ValueError(f"the weights are of another network: {odd!r} is in one of them only")
    resized: dict[nn.Parameter, nn.Parameter] = {}  # what modules share stays shared
    for name, module in net.named_modules():
        prefix = f"{name}." if name else ""
        for leaf, parameter in list(module.named_parameters(recurse=False)):
            shape = state[prefix + leaf].shape
            if parameter.shape != shape:
                made = nn.Parameter(parameter.new_empty(shape), parameter.requires_grad)
                setattr(module, leaf, resized.setdefault(parameter, made))
        for leaf, buffer in list(module.named_buffers(recurse=False)):
            if prefix + leaf in state and buffer.shape != state[prefix + leaf].shape:
                setattr(module, leaf, buffer.new_empty(state[prefix + leaf].shape))
        take_sizes(module)
    net.load_state_dict(dict(state))


class _Cutter:
    """Knows what is tied in a network, and cuts its channels down to a fraction, as often as wanted."""

    def __init__(self, net: nn.Module, example: Tensor) -> None:
        for name, module in net.named_modules():
            if isinstance(module, nn.RNNBase | nn.RNNCellBase):
                kind = type(module).__name__
                raise CandidateError(
                    f"structured pruning needs a network without recurrent layers, {name} is {kind}"
                )
        self._net = net
        self._example = example
        training = net.training
        net.eval()
        wiring = Wiring(net)
        with user_code("Net.forward"), torch.no_grad():
            self._shape = net(example).shape
        wiring.close()
        # Output channels of a layer that runs last are the classes.
        self._fixed = wiring.layers[-1:]
        with user_code("structured pruning"), warnings.catch_warnings(), torch.enable_grad():
            warnings.simplefilter("ignore")
            self._graph = torch_pruning.DependencyGraph().build_dependency(net, example)
            self._widths = {group[0].dep.target.module: len(group[0].idxs) for group in self._groups()}
        net.train(training)

    def cut(self, fraction: float) -> None:
        """Take channels out until this fraction of the original ones is gone.

        Raises:
            CandidateError: The network does not run any more, or its output has another shape.
        """
        training = self._net.training
        self._net.eval()
        with user_code("structured pruning"), torch.no_grad():
            rank = torch_pruning.importance.MagnitudeImportance(p=2)
            for group, scores in [(group, rank(group)) for group in self._groups()]:
                layer, handler = group[0].dep.target.module, group[0].dep.handler
                gone = _weakest(scores, self._widths[layer], fraction, _n_blocks(group))
                smaller = self._graph.get_pruning_group(layer, handler, gone)
                if gone and self._graph.check_pruning_group(smaller):
                    smaller.prune()
            shape = self._net(self._example).shape
        if shape != self._shape:
            change = f"{tuple(self._shape)} to {tuple(shape)}"
            raise CandidateError(f"structured pruning changed the shape of the output from {change}")
        self._net.train(training)

    def _groups(self) -> list[Any]:
        """Return what has to be pruned together, one group a layer or a set of tied layers."""
        kinds = [nn.modules.conv._ConvNd, nn.Linear]
        return list(self._graph.get_all_groups(ignored_layers=self._fixed, root_module_types=kinds))


def _n_blocks(group: Any) -> int:
    """Return into how many blocks a group's channels are divided by grouped (not depthwise) convolutions."""
    modules = [dep.target.module for dep, _ in group]
    counts = [getattr(module, "groups", 1) for module in modules]
    return max(
        (n for n, module in zip(counts, modules, strict=True) if 1 < n < module.out_channels), default=1
    )


def _weakest(scores: Tensor, width: int, fraction: float, n_blocks: int) -> list[int]:
    """Choose the channels to take out, the same ones in each block, so that a fraction of `width` is gone."""
    means = scores.reshape(n_blocks, -1).mean(dim=0)
    n_kept = max(1, width // n_blocks - round(width // n_blocks * fraction))
    keep = magnitude_masks({"": means}, count=max(0, len(means) - n_kept), scores={"": means})[""]
    return (~keep.repeat(n_blocks)).nonzero().flatten().tolist()
