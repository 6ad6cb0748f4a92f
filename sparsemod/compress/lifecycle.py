"""The life of a modifier on a PyTorch network: initialize, update and re-apply at each step, finalize."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor
from torch.nn import Module
from torch.optim import Optimizer

from sparsemod.compress.modifier import BaseModifier
from sparsemod.compress.recipe_errors import LifecycleError, RecipeStateError
from sparsemod.compress.registry import ModifierYAML
from sparsemod.compress.scheduled import BaseScheduled, BaseUpdate

__all__ = [
    "PYTORCH_FRAMEWORK",
    "Cut",
    "Modifier",
    "PyTorchModifierYAML",
    "ScheduledModifier",
    "ScheduledUpdateModifier",
]

PYTORCH_FRAMEWORK = "pytorch"
TOLERANCE = 1e-9
"""Epochs are sums of 1 / steps_per_epoch, so that a date is met to within rounding."""


class PyTorchModifierYAML(ModifierYAML):
    """The class decorator for modifiers of PyTorch networks."""

    def __init__(self) -> None:
        super().__init__(PYTORCH_FRAMEWORK)


@dataclass(frozen=True)
class Cut:
    """A parameter or buffer that was made smaller.

    Attributes:
        name: Its qualified name.
        dim: The dimension that was shortened.
        kept: The indices that stayed, in their order.
    """

    name: str
    dim: int
    kept: Tensor


class Modifier(BaseModifier):
    """The parent of all modifiers of PyTorch networks."""

    @staticmethod
    def load_list(yaml_str: str) -> Any:
        """Make the modifiers of a recipe: a list, or a dict of lists by stage."""
        return BaseModifier.load_framework_list(yaml_str, PYTORCH_FRAMEWORK)

    @staticmethod
    def load_obj(yaml_str: str) -> Any:
        """Make the one modifier that a text holds."""
        return BaseModifier.load_framework_obj(yaml_str, PYTORCH_FRAMEWORK)

    def state_dict(self) -> dict[str, Any]:
        """Return what must be stored to go on from here; empty for most."""
        return {}

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True) -> None:
        """Take back what `state_dict` returned.

        Raises:
            RecipeStateError: The state has entries this modifier does not know, and `strict` holds.
        """
        if strict and state_dict:
            raise RecipeStateError(f"{type(self).__name__} keeps no state, found {', '.join(state_dict)}")

    def initialize(self, module: Module, epoch: float = 0.0, **kwargs: Any) -> None:
        """Attach to a network; nothing of it changes before the first update.

        Args:
            module: The network.
            epoch: Where training begins.
            kwargs: What single modifiers need, such as `distillation_teacher`; others ignore it.
        """
        self._initialized = True

    def finalize(self, module: Module | None = None, **kwargs: Any) -> None:
        """Finish what is left to do and detach from the network.

        Raises:
            LifecycleError: It was not initialized.
        """
        self.check_ready(enabled=False)
        self._initialized = False

    def update(self, module: Module, optimizer: Optimizer | None, epoch: float, steps_per_epoch: int) -> None:
        """Change the network or the optimizer; called when an update is due.

        Args:
            module: The network.
            optimizer: Its optimizer; None where a recipe is applied without training.
            epoch: The time, in epochs and fractions.
            steps_per_epoch: Optimizer steps of an epoch.

        Raises:
            LifecycleError: It was not initialized, or is not enabled.
        """
        self.check_ready()

    def update_ready(self, epoch: float, steps_per_epoch: int) -> bool:
        """Say whether an update is due."""
        return False

    def scheduled_update(
        self, module: Module, optimizer: Optimizer | None, epoch: float, steps_per_epoch: int
    ) -> None:
        """Make the update that is due."""
        self.update(module, optimizer, epoch, steps_per_epoch)

    def loss_update(
        self,
        loss: Tensor,
        module: Module,
        optimizer: Optimizer | None,
        epoch: float,
        steps_per_epoch: int,
        **kwargs: Any,
    ) -> Tensor:
        """Return the loss to train with."""
        self.check_ready()
        return loss

    def optimizer_pre_step(
        self, module: Module, optimizer: Optimizer, epoch: float, steps_per_epoch: int
    ) -> None:
        """Act between the backward pass and the optimizer's step."""
        self.check_ready()

    def optimizer_post_step(
        self, module: Module, optimizer: Optimizer, epoch: float, steps_per_epoch: int
    ) -> None:
        """Act behind the optimizer's step."""
        self.check_ready()

    def apply(self, module: Module, epoch: float = math.inf, finalize: bool = True, **kwargs: Any) -> None:
        """Do at once, without training, what it would have done by an epoch.

        Args:
            module: The network.
            epoch: The epoch; the end of time by default.
            finalize: Detach afterwards.
            kwargs: Given to `initialize` and `finalize`.
        """
        self.initialize(module, epoch, **kwargs)
        if finalize:
            self.finalize(module, **kwargs)

    def settled(self) -> bool:
        """Say whether it has done to the network what it will do."""
        return True

    def new_cuts(self) -> Sequence[Cut]:
        """Return what it has cut off since it was last asked."""
        return ()

    def take_cuts(self, cuts: Sequence[Cut]) -> None:
        """Adapt to parameters that another modifier made smaller."""

    def check_ready(self, *, enabled: bool = True) -> None:
        """Check that it is initialized and, by default, enabled.

        Raises:
            LifecycleError: It is not.
        """
        if not self._initialized:
            raise LifecycleError(f"{type(self).__name__} must be initialized first")
        if enabled and not self._enabled:
            raise LifecycleError(f"{type(self).__name__} is not enabled")


class ScheduledModifier(Modifier, BaseScheduled):
    """A modifier that acts when it starts and when it ends."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._started = False
        self._ended = False
        self._in_schedule = False

    @property
    def started(self) -> bool:
        """Whether it has made its first update."""
        return self._started

    @property
    def ended(self) -> bool:
        """Whether it has made its last update."""
        return self._ended

    def settled(self) -> bool:
        """Say whether its end has come, or its start where it never ends."""
        return self._ended if self.end_epoch >= 0 else self._started

    def initialize(self, module: Module, epoch: float = 0.0, **kwargs: Any) -> None:
        """Attach to a network, before the first update."""
        super().initialize(module, epoch, **kwargs)
        self._started = False
        self._ended = False

    def start_pending(self, epoch: float, steps_per_epoch: int = 1) -> bool:
        """Say whether it has not started yet but should have; a negative start is at once."""
        self.check_ready(enabled=False)
        due = self.start_epoch < 0 or epoch >= self.start_epoch - TOLERANCE
        return due and not (self._started or self._ended)

    def end_pending(self, epoch: float, steps_per_epoch: int = 1) -> bool:
        """Say whether it runs and should have ended."""
        self.check_ready(enabled=False)
        return self._started and not self._ended and 0 <= self.end_epoch <= epoch + TOLERANCE

    def update_ready(self, epoch: float, steps_per_epoch: int) -> bool:
        """Say whether its start or its end is due.

        Raises:
            LifecycleError: It was not initialized.
        """
        self.check_ready(enabled=False)
        return self._enabled and (
            self.start_pending(epoch, steps_per_epoch) or self.end_pending(epoch, steps_per_epoch)
        )

    def scheduled_update(
        self, module: Module, optimizer: Optimizer | None, epoch: float, steps_per_epoch: int
    ) -> None:
        """Make the update that is due.

        Raises:
            LifecycleError: None is due.
        """
        if not self.update_ready(epoch, steps_per_epoch):
            raise LifecycleError(f"{type(self).__name__} has no update due at epoch {epoch:g}")
        starts, ends = self.start_pending(epoch), self.end_pending(epoch)
        self._in_schedule = True
        try:
            self.update(module, optimizer, epoch, steps_per_epoch)
        finally:
            self._in_schedule = False
        self._started = self._started or starts
        self._ended = self._ended or ends

    def update(self, module: Module, optimizer: Optimizer | None, epoch: float, steps_per_epoch: int) -> None:
        """Change the network or the optimizer; only `scheduled_update` may call it.

        Raises:
            LifecycleError: It was called directly, or is not initialized or enabled.
        """
        super().update(module, optimizer, epoch, steps_per_epoch)
        if not self._in_schedule:
            raise LifecycleError(f"{type(self).__name__}.update is called by scheduled_update only")

    def apply(self, module: Module, epoch: float = math.inf, finalize: bool = True, **kwargs: Any) -> None:
        """Do at once, without training, what it would have done by an epoch."""
        self.initialize(module, epoch, **kwargs)
        if self.start_pending(epoch):
            self.scheduled_update(module, None, epoch, 1)
        if self.end_pending(epoch):
            self.scheduled_update(module, None, epoch, 1)
        if finalize:
            self.finalize(module, **kwargs)


class ScheduledUpdateModifier(ScheduledModifier, BaseUpdate):
    """A modifier that also acts between its start and its end.

    Args:
        update_frequency: Epochs from one update to the next; -1 updates at every step.
        min_frequency: The smallest one allowed.
        kwargs: The schedule, see `BaseScheduled`.
    """

    def __init__(self, update_frequency: float = -1.0, min_frequency: float = -1.0, **kwargs: Any) -> None:
        super().__init__(update_frequency=update_frequency, min_frequency=min_frequency, **kwargs)
        self._last_update_epoch = -1.0

    def update_ready(self, epoch: float, steps_per_epoch: int) -> bool:
        """Say whether its start, its end or an update in between is due."""
        if super().update_ready(epoch, steps_per_epoch):
            return True
        if not self._enabled or not self._started or self._ended or epoch <= self.start_epoch:
            return False
        due = self._last_update_epoch + self.update_frequency
        return bool(self.update_frequency == -1 or epoch >= due - TOLERANCE)

    def scheduled_update(
        self, module: Module, optimizer: Optimizer | None, epoch: float, steps_per_epoch: int
    ) -> None:
        """Make the update that is due."""
        super().scheduled_update(module, optimizer, epoch, steps_per_epoch)
        self._last_update_epoch = epoch
