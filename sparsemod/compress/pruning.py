"""Pruning while a network trains, as a hook of the training loop.

Gradual magnitude pruning (Zhu & Gupta 2017, arXiv:1710.01878): the sparsity climbs along a cubic ramp, the
masks are renewed now and then, applied after every optimizer step, and frozen at the end of the ramp so that
the rest of the training repairs what was lost.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from types import MappingProxyType

import torch
from torch import Tensor, nn

from sparsemod.compress.groups import Structure
from sparsemod.compress.masks import Masks, Scope, magnitude_masks, prunable_parameters
from sparsemod.compress.schedules import interpolate
from sparsemod.compress.wiring import Wiring

__all__ = ["PruningHook"]


class PruningHook:
    """Prunes a network during its training to a final sparsity that is met exactly.

    When the masks are frozen, the output channels whose weights are all pruned become exactly zero: the bias
    of such a channel, and scale and shift of the batch norm that reads it, are set to zero and stay there.
    Which batch norm reads which layer is observed in the first training step, by the identity of the tensors;
    a functional batch norm is not seen. The layer that runs last makes the logits and keeps its bias. Weights
    that are pruned stay pruned.

    Args:
        final_sparsity: The share of the prunable weights that is zero in the end; 0 or less and 1 or more
            prune nothing (the documented way to switch it off).
        start: When the ramp begins, as a share of all optimizer steps.
        end: When the final sparsity is reached, as a share of all optimizer steps.
        scope: ``"global"`` ranks all weights together, ``"local"`` each layer's by themselves.
        structure: What is pruned as one (see `sparsemod.compress.groups.Structure`; not ``"N:M"``, which has
            no ramp).
        exclude: Names or ``re:`` patterns of weights to leave alone.

    Raises:
        ValueError: The ramp does not lie within the training, or scope and structure do not go together.
    """

    def __init__(
        self,
        final_sparsity: float,
        *,
        start: float = 0.1,
        end: float = 0.7,
        scope: Scope = "global",
        structure: Structure = "unstructured",
        exclude: Iterable[str] = (),
    ) -> None:
        if not 0.0 <= start <= end <= 1.0:
            raise ValueError(f"the ramp needs 0 <= start <= end <= 1, got start={start}, end={end}")
        if isinstance(structure, str) and ":" in structure:
            raise ValueError(f"structure {structure!r} has one sparsity and so no ramp")
        # Refuses what does not go together.
        magnitude_masks({"": torch.zeros(1, 1)}, 0.0, scope=scope, structure=structure)
        self.final_sparsity = final_sparsity if 0.0 < final_sparsity < 1.0 else 0.0
        self._ramp = (start, end)
        self._scope: Scope = scope
        self._structure = structure
        self._exclude = tuple(exclude)
        self._parameters: dict[str, nn.Parameter] = {}
        self._masks: dict[str, Tensor] = {}
        self._frozen = self.final_sparsity == 0.0
        self._applied: tuple[list[Tensor], list[Tensor]] = ([], [])

    @property
    def masks(self) -> Masks:
        """The masks of the prunable weights as they are now; empty before the ramp."""
        return MappingProxyType(self._masks)

    def start(self, net: nn.Module, n_steps: int) -> None:
        """Take the network's prunable weights and lay out the ramp over `n_steps` optimizer steps."""
        if self.final_sparsity == 0.0:
            return
        first, last = (math.floor(share * n_steps) for share in self._ramp)
        self._first, self._last = first, max(1, last)
        self._every = self._interval(self._last - first)
        self._frozen = False
        self._masks = {}
        self._applied = ([], [])
        self._parameters = prunable_parameters(net, self._exclude)
        self._wiring = Wiring(net)

    def before_step(self, step: int) -> None:
        """Do nothing; the work is done behind the optimizer."""

    def after_step(self, step: int) -> None:
        """Renew the masks when it is time, and apply them.

        Args:
            step: Index of the optimizer step that has just been made, from 0.
        """
        if self.final_sparsity == 0.0:
            return
        if step == 0:
            self._wiring.close()
        n_done = step + 1
        if not self._frozen and n_done >= self._last:
            self._refresh(self.final_sparsity)
            self._frozen = True
            for parameter, mask in self._wiring.dead_channels(self._masks, self._parameters):
                self._applied[0].append(parameter)
                self._applied[1].append(mask.to(parameter.dtype))
        elif not self._frozen and n_done > self._first and (n_done - self._first) % self._every == 0:
            self._refresh(interpolate(n_done, self._first, self._last, 0.0, self.final_sparsity))
        if self._applied[0]:
            with torch.no_grad():
                torch._foreach_mul_(*self._applied)

    def ready(self, step: int) -> bool:
        """Say whether the final sparsity is reached, so that the best epoch may be chosen."""
        return self._frozen

    @staticmethod
    def _interval(n_steps: int) -> int:
        """Return every how many steps of the ramp to renew the masks.

        A ranking costs about a tenth of a training step of a small network. Fifty make the ramp smooth; short
        ramps get one every fifth step, down to ten in all.
        """
        return max(1, n_steps // 50, min(5, n_steps // 10))

    def _refresh(self, sparsity: float) -> None:
        self._masks = magnitude_masks(
            self._parameters, sparsity, scope=self._scope, structure=self._structure, base=self._masks
        )
        self._applied = (
            list(self._parameters.values()),
            [mask.to(self._parameters[name].dtype) for name, mask in self._masks.items()],
        )
