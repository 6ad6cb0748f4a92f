"""Pruning in alternating phases."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from torch import Tensor
from torch.nn import Module
from torch.optim import Optimizer

from sparsemod.compress.checks import boolean, in_range, number
from sparsemod.compress.lifecycle import TOLERANCE, PyTorchModifierYAML
from sparsemod.compress.masks import Scope, magnitude_masks
from sparsemod.compress.modifiers_masks import MaskModifier, check_mask_type, mask_structure
from sparsemod.compress.props import Argument
from sparsemod.compress.recipe_errors import RecipeError

__all__ = ["ACDCPruningModifier"]

MOMENTA = ("momentum_buffer", "exp_avg")
"""Where SGD and the Adam family keep their momentum."""


@PyTorchModifierYAML()
class ACDCPruningModifier(MaskModifier):
    """Alternates between dense and pruned phases (AC/DC: Peste et al. 2021, arXiv:2106.12379).

    The first phase is dense and the last is pruned: an end in a dense phase moves to the beginning of it.

    Args:
        compression_sparsity: The sparsity of the pruned phases, in (0, 1).
        start_epoch: When the first phase starts, a whole epoch.
        end_epoch: When the last phase ends, a whole epoch.
        update_frequency: Epochs of a phase.
        params: Names and ``re:`` patterns, ``__ALL__`` or ``__ALL_PRUNABLE__``.
        global_sparsity: Rank over all parameters together.
        leave_enabled: Whether the masks stay after the end.
        momentum_buffer_reset: Set the optimizer's momentum to zero when weights come back.
        mask_type: What is pruned as one, see `GMPruningModifier`.
    """

    compression_sparsity = Argument(
        in_range("compression_sparsity", 0.0, 1.0, low_open=True, high_open=True), "Of the pruned phases."
    )
    global_sparsity = Argument(boolean("global_sparsity"), "Whether all parameters are ranked together.")
    leave_enabled = Argument(boolean("leave_enabled"), "Whether the masks stay after the end.")
    momentum_buffer_reset = Argument(boolean("momentum_buffer_reset"), "Whether momentum is reset.")
    mask_type = Argument(doc="What is pruned as one.")

    def __init__(
        self,
        compression_sparsity: float,
        start_epoch: float,
        end_epoch: float,
        update_frequency: float,
        params: str | Sequence[str],
        global_sparsity: bool = True,
        leave_enabled: bool = True,
        momentum_buffer_reset: bool = True,
        mask_type: str | Sequence[int] = "unstructured",
    ) -> None:
        start, end = _whole(start_epoch, "start_epoch"), _whole(end_epoch, "end_epoch")
        super().__init__(
            start_epoch=start,
            end_epoch=_last_pruned_end(start, end, number(update_frequency, "update_frequency")),
            end_comparator=1,
            update_frequency=update_frequency,
        )
        self.keep(
            compression_sparsity=compression_sparsity,
            params=params,
            global_sparsity=global_sparsity,
            leave_enabled=leave_enabled,
            momentum_buffer_reset=momentum_buffer_reset,
            mask_type=list(mask_type) if isinstance(mask_type, tuple) else mask_type,
        )

    def validate(self) -> None:
        """Check what the arguments mean together.

        Raises:
            RecipeError: They contradict each other.
        """
        words = ("unstructured", "block4")
        check_mask_type(self.mask_type, words, compression_sparsity=self.compression_sparsity)

    def leaves_masks(self) -> bool:
        """Say whether the masks stay after the end."""
        return bool(self.leave_enabled)

    def applied_sparsity(self, epoch: float) -> float:
        """Return the sparsity of a moment."""
        phase = math.floor((epoch - self.start_epoch + TOLERANCE) / self.update_frequency)
        pruned = epoch >= self.end_epoch - TOLERANCE or phase % 2 == 1
        return float(self.compression_sparsity) if pruned else 0.0

    def new_masks(self, epoch: float) -> dict[str, Tensor]:
        """Return the masks of the phase; none in a dense one."""
        target = self.applied_sparsity(epoch)
        if target == 0.0:
            return {}
        if self.end_pending(epoch) and self._masks:
            return self._masks
        scope: Scope = "global" if self.global_sparsity else "local"
        return magnitude_masks(
            self._parameters, target, scope=scope, structure=mask_structure(self.mask_type)
        )

    def update(self, module: Module, optimizer: Optimizer | None, epoch: float, steps_per_epoch: int) -> None:
        """Change the phase."""
        pruned = bool(self._masks)
        super().update(module, optimizer, epoch, steps_per_epoch)
        if pruned and not self._masks and self.momentum_buffer_reset and optimizer is not None:
            for parameter in self._parameters.values():
                state = optimizer.state.get(parameter, {})
                for key in MOMENTA:
                    if isinstance(state.get(key), Tensor):
                        state[key].zero_()


def _whole(value: Any, name: str) -> float:
    result = number(value, name)
    if result != math.floor(result) or result < 0:
        raise RecipeError(f"{name} must be a whole epoch, not {value!r}")
    return result


def _last_pruned_end(start: float, end: float, length: float) -> float:
    """Return the end, moved to the end of the last pruned phase where it falls into a dense one."""
    if length <= 0:
        raise RecipeError(f"update_frequency must be above 0, not {length:g}")
    n_phases = math.ceil((end - start) / length - TOLERANCE)
    if n_phases % 2 == 1:
        end = start + (n_phases - 1) * length
    if n_phases < 2:
        raise RecipeError(
            f"start_epoch and end_epoch must hold two phases of {length:g} epochs, not {n_phases}"
        )
    return end
