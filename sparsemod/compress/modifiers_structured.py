"""Pruning whole channels, the weakest first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module

from sparsemod.compress.checks import ALL_PRUNABLE
from sparsemod.compress.lifecycle import (
    PyTorchModifierYAML,
)
from sparsemod.compress.masks import magnitude_masks
from sparsemod.compress.modifier import SparsificationTypes
from sparsemod.compress.modifiers_pruning import GMPruningModifier
from sparsemod.compress.props import Argument
from sparsemod.compress.recipe_errors import RecipeError
from sparsemod.errors import nearest

__all__ = ["StructuredPruningModifier"]


def _groups(value: Any) -> list[list[str]]:
    groups = [] if value is None else value
    if not isinstance(groups, list | tuple) or not all(isinstance(group, list | tuple) for group in groups):
        raise RecipeError(f"param_groups must be a list of lists of parameters, not {value!r}")
    return [[str(name) for name in group] for group in groups]


@PyTorchModifierYAML()
class StructuredPruningModifier(GMPruningModifier):
    """Prunes whole output channels (filter) or input channels (channel), the smallest by their L2 norm first.

    The channels become zero; `LayerThinningModifier` takes them out.

    Args:
        init_sparsity: The fraction of channels at the start, or ``__FROM_PARAM__``.
        final_sparsity: The fraction at the end.
        start_epoch: When it starts.
        end_epoch: When the final sparsity is reached.
        update_frequency: Epochs from one update to the next.
        param_groups: Lists of parameters that lose the same channels, ranked by the sum of their norms.
        params: Names and ``re:`` patterns, ``__ALL__`` or ``__ALL_PRUNABLE__``.
        leave_enabled: Whether the masks stay after the end.
        inter_func: linear, cubic or inverse_cubic.
        mask_type: filter or channel.
        global_sparsity: Must be False: the norms of different layers do not compare.
    """

    changes = (SparsificationTypes.pruning, SparsificationTypes.structured)
    param_groups = Argument(_groups, "Lists of parameters that lose the same channels.", no_serialize_val=[])

    def __init__(
        self,
        init_sparsity: float | str,
        final_sparsity: float | Mapping[float, Sequence[str]],
        start_epoch: float,
        end_epoch: float,
        update_frequency: float,
        param_groups: Sequence[Sequence[str]] | None = None,
        params: str | Sequence[str] = ALL_PRUNABLE,
        leave_enabled: bool = True,
        inter_func: str = "cubic",
        mask_type: str = "filter",
        global_sparsity: bool = False,
    ) -> None:
        self._param_groups = _groups(param_groups)
        super().__init__(
            init_sparsity=init_sparsity,
            final_sparsity=final_sparsity,
            start_epoch=start_epoch,
            end_epoch=end_epoch,
            update_frequency=update_frequency,
            params=params,
            leave_enabled=leave_enabled,
            inter_func=inter_func,
            mask_type=mask_type,
            global_sparsity=global_sparsity,
        )

    def structures(self) -> tuple[str, ...]:
        """Return the words that `mask_type` may be."""
        return ("filter", "channel")

    def validate(self) -> None:
        """Check what the arguments mean together.

        Raises:
            RecipeError: They contradict each other.
        """
        super().validate()
        if self.global_sparsity:
            raise RecipeError("global_sparsity must be false: norms of channels do not compare across layers")
        if self.mask_type not in self.structures():
            raise RecipeError(f"mask_type must be filter or channel, not {self.mask_type!r}")
        names = [name for group in self.param_groups for name in group]
        if len(set(names)) < len(names):
            raise RecipeError("param_groups: a parameter may stand in one group only")

    def initialize(self, module: Module, epoch: float = 0.0, **kwargs: Any) -> None:
        """Find the parameters, and check that those of a group have the same channels.

        Raises:
            RecipeError: They have not, or a group names a parameter that is not pruned here.
        """
        super().initialize(module, epoch, **kwargs)
        for group in self.param_groups:
            for name in group:
                if name not in self._parameters:
                    raise RecipeError(f"param_groups: {name} is not pruned{nearest(name, self._parameters)}")
            sizes = {self._n_channels(name) for name in group} - {1}
            if len(sizes) > 1:
                raise RecipeError(f"param_groups: {', '.join(group)} have {sorted(sizes)} channels")

    def new_masks(self, epoch: float) -> dict[str, Tensor]:
        """Return the masks for the sparsity of this moment; one choice of channels for each group."""
        grouped = {name for group in self.param_groups for name in group}
        groups = [*self.param_groups, *([name] for name in self._parameters if name not in grouped)]
        masks: dict[str, Tensor] = {}
        for group in groups:
            # A dimension of one, as in a depthwise convolution, has no channel to spare.
            members = [name for name in group if self._n_channels(name) > 1]
            if members:
                kept = self._kept_channels(members, self.sparsity(members[0], epoch))
                masks |= {name: self._expanded(kept, self._parameters[name]) for name in members}
        return {name: masks[name] for name in self._parameters if name in masks}

    def _kept_channels(self, names: Sequence[str], sparsity: float) -> Tensor:
        """Rank the channels of a group by the sum of their norms; pruned ones stay pruned."""
        norms = torch.stack(
            [_by_channel(self._parameters[name].detach(), self._dim).norm(dim=1) for name in names]
        )
        mask = self._masks.get(names[0])
        before = {} if mask is None else {"channels": _by_channel(mask, self._dim).any(dim=1)}
        return magnitude_masks({"channels": norms.sum(dim=0)}, sparsity, base=before)["channels"]

    def _expanded(self, kept: Tensor, parameter: Tensor) -> Tensor:
        shape = [1] * parameter.dim()
        shape[self._dim] = -1
        return kept.reshape(shape).expand_as(parameter).contiguous()

    def _n_channels(self, name: str) -> int:
        parameter = self._parameters[name]
        return parameter.shape[self._dim] if parameter.dim() > self._dim else 1

    @property
    def _dim(self) -> int:
        return 0 if self.mask_type == "filter" else 1


def _by_channel(tensor: Tensor, dim: int) -> Tensor:
    """Return one row for each channel."""
    return tensor.movedim(dim, 0).flatten(1) if tensor.dim() > 1 else tensor.unsqueeze(1)
