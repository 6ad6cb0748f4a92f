"""Taking out channels that are zero, and whole layers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from torch.nn import Identity, Module
from torch.optim import Optimizer

from sparsemod.compress.checks import ALL, ALL_PRUNABLE, boolean, names, number, one_of
from sparsemod.compress.lifecycle import (
    TOLERANCE,
    Cut,
    PyTorchModifierYAML,
    ScheduledModifier,
    ScheduledUpdateModifier,
)
from sparsemod.compress.masks import prunable_parameters
from sparsemod.compress.modifier import SparsificationTypes
from sparsemod.compress.props import Argument
from sparsemod.compress.recipe_errors import RecipeError
from sparsemod.compress.thinning import thin
from sparsemod.errors import nearest

__all__ = ["LayerPruningModifier", "LayerThinningModifier"]

STRUCTURES = ("filter", "channel")


def _dependencies(value: Any) -> dict[str, list[str]]:
    is_map = isinstance(value, Mapping) and all(isinstance(deps, list | tuple) for deps in value.values())
    if not is_map or not all(isinstance(key, str) for key in value):
        raise RecipeError("param_group_dependency_map must map names, joined by commas, to lists of names")
    return {key: [str(name) for name in deps] for key, deps in value.items()}


def _sorted_epochs(value: Any) -> list[float]:
    if not isinstance(value, list | tuple):
        raise RecipeError(f"update_epochs must be a list of epochs, not {value!r}")
    epochs = [number(epoch, "update_epochs") for epoch in value]
    if sorted(set(epochs)) != epochs:
        raise RecipeError(f"update_epochs must rise, not {epochs}")
    return epochs


@PyTorchModifierYAML()
class LayerThinningModifier(ScheduledModifier):
    """Takes channels that are wholly zero out of the network, so that it becomes smaller.

    Acts at its start, at each of the update epochs, and at the latest when training is over.

    Args:
        param_group_dependency_map: Parameters that lose the same channels, joined by commas, to the
            parameters that read them.
        structure_type: filter takes out output channels, channel input channels.
        start_epoch: When it acts first.
        update_epochs: When it acts again, in rising order.
        strict: Whether it is an error when the parameters of a group are zero in different channels;
            otherwise the channels are taken out that are zero in all of them.
        end_epoch: Not used.
    """

    changes = (SparsificationTypes.pruning, SparsificationTypes.structured)
    never_ends = True
    param_group_dependency_map = Argument(_dependencies, "Parameters to the parameters that read them.")
    structure_type = Argument(one_of("structure_type", STRUCTURES), "filter or channel.")
    update_epochs = Argument(_sorted_epochs, "When it acts again.", no_serialize_val=[])
    strict = Argument(boolean("strict"), "Whether the channels of a group must agree.")

    def __init__(
        self,
        param_group_dependency_map: Mapping[str, Sequence[str]],
        structure_type: str = "filter",
        start_epoch: float = -1.0,
        update_epochs: Sequence[float] | None = None,
        strict: bool = True,
        end_epoch: float = -1.0,
    ) -> None:
        super().__init__(start_epoch=start_epoch, end_epoch=-1.0, end_comparator=-1)
        self.keep(
            param_group_dependency_map=param_group_dependency_map,
            structure_type=structure_type,
            update_epochs=[] if update_epochs is None else update_epochs,
            strict=strict,
        )
        self._last_epoch = -1.0
        self._cuts: list[Cut] = []

    def advance_epochs(self, ref_start_epoch: float | None = None) -> None:
        """Move the schedule behind an epoch, the update epochs included."""
        super().advance_epochs(ref_start_epoch)
        if ref_start_epoch is not None:
            self._update_epochs = [epoch + ref_start_epoch for epoch in self.update_epochs]

    def start_at_once(self, start_epoch: float) -> None:
        """Let it act by epoch 0 only."""
        super().start_at_once(start_epoch)
        self._update_epochs = []

    def update_ready(self, epoch: float, steps_per_epoch: int) -> bool:
        """Say whether its start or an update epoch is due."""
        if super().update_ready(epoch, steps_per_epoch):
            return True
        return self._enabled and self.started and self._last_epoch < self._due(epoch)

    def settled(self) -> bool:
        """Say whether it has acted at its start and at all update epochs."""
        return self.started and self._last_epoch >= self._due(math.inf)

    def update(self, module: Module, optimizer: Optimizer | None, epoch: float, steps_per_epoch: int) -> None:
        """Take the channels out."""
        super().update(module, optimizer, epoch, steps_per_epoch)
        self._thin(module, optimizer)
        self._last_epoch = max(epoch, self._due(epoch))

    def finalize(self, module: Module | None = None, **kwargs: Any) -> None:
        """Take the channels out if that has not been done."""
        super().finalize(module, **kwargs)
        if module is not None and not self.started:
            self._thin(module, None)

    def new_cuts(self) -> list[Cut]:
        """Return what was taken out since it was last asked."""
        cuts, self._cuts = self._cuts, []
        return cuts

    def _thin(self, module: Module, optimizer: Optimizer | None) -> None:
        dim = STRUCTURES.index(self.structure_type)
        self._cuts += thin(module, self.param_group_dependency_map, dim, optimizer, strict=self.strict)

    def _due(self, epoch: float) -> float:
        return max((update for update in self.update_epochs if update <= epoch + TOLERANCE), default=-1.0)


@PyTorchModifierYAML()
class LayerPruningModifier(ScheduledUpdateModifier):
    """Replaces layers by the identity; they come back at its end.

    Args:
        layers: Names of layers, ``__ALL__``, or ``__ALL_PRUNABLE__`` for those with weights.
        start_epoch: When they go.
        end_epoch: When they come back, above 0; -1 never.
        update_frequency: Not used.
    """

    changes = (SparsificationTypes.pruning, SparsificationTypes.structured)
    layers = Argument(names("layers"), "Names of layers, ``__ALL__`` or ``__ALL_PRUNABLE__``.")

    def __init__(
        self,
        layers: str | Sequence[str],
        start_epoch: float = -1.0,
        end_epoch: float = -1.0,
        update_frequency: float = -1.0,
    ) -> None:
        super().__init__(start_epoch=start_epoch, end_epoch=end_epoch, end_comparator=-1)
        self.keep(layers=layers)
        self._names: list[str] = []
        self._removed: dict[str, Module] = {}

    def initialize(self, module: Module, epoch: float = 0.0, **kwargs: Any) -> None:
        """Find the layers.

        Raises:
            RecipeError: There is no layer of that name.
        """
        super().initialize(module, epoch, **kwargs)
        known = [name for name, _ in module.named_modules() if name]
        if self.layers == ALL:
            self._names = [name for name, _ in module.named_children()]
        elif self.layers == ALL_PRUNABLE:
            self._names = list(dict.fromkeys(name.rpartition(".")[0] for name in prunable_parameters(module)))
        else:
            self._names = list(self.layers)
        for name in self._names:
            if name not in known:
                raise RecipeError(f"layers: the network has no layer {name!r}{nearest(name, known)}")

    def update_ready(self, epoch: float, steps_per_epoch: int) -> bool:
        """Say whether its start or its end is due; there is nothing to do in between."""
        return self._enabled and (self.start_pending(epoch) or self.end_pending(epoch))

    def update(self, module: Module, optimizer: Optimizer | None, epoch: float, steps_per_epoch: int) -> None:
        """Take the layers out at the start, put them back at the end."""
        super().update(module, optimizer, epoch, steps_per_epoch)
        if self.start_pending(epoch):
            for name in self._names:
                self._removed[name] = module.get_submodule(name)
                module.set_submodule(name, Identity())
        elif self.end_pending(epoch):
            for name, layer in self._removed.items():
                module.set_submodule(name, layer)
            self._removed = {}

    def finalize(self, module: Module | None = None, **kwargs: Any) -> None:
        """Let go of the layers; the network stays as it is."""
        super().finalize(module, **kwargs)
        self._removed = {}
