"""What stands in for an optimizer while a recipe is at work."""

from __future__ import annotations

from typing import Any, Protocol

from torch import Tensor
from torch.nn import Module
from torch.optim import Optimizer

from sparsemod.compress.recipe_errors import RecipeError

__all__ = ["RecipeManagerStepWrapper"]


class _Manager(Protocol):
    """What the wrapper asks of a manager."""

    @property
    def enabled(self) -> bool: ...

    def update(self, module: Module, optimizer: Optimizer, epoch: float, steps_per_epoch: int) -> None: ...

    def optimizer_pre_step(
        self, module: Module, optimizer: Optimizer, epoch: float, steps_per_epoch: int
    ) -> None: ...

    def optimizer_post_step(
        self, module: Module, optimizer: Optimizer, epoch: float, steps_per_epoch: int
    ) -> None: ...

    def loss_update(
        self,
        loss: Tensor,
        module: Module,
        optimizer: Optimizer | None,
        epoch: float,
        steps_per_epoch: int,
        **kwargs: Any,
    ) -> Tensor: ...


class RecipeManagerStepWrapper:
    """Passes everything on to what it wraps, and modifies around each ``step``.

    At step s the time is epoch s / steps_per_epoch. A step makes the updates that are due, lets the modifiers
    act before the optimizer, steps, and lets them act behind it (masks are applied again).

    Args:
        wrap: What is stepped: the optimizer, or a scaler around it.
        optimizer: The optimizer.
        module: The network.
        manager: The recipe.
        epoch: Where training begins.
        steps_per_epoch: Optimizer steps of an epoch.

    Raises:
        RecipeError: `steps_per_epoch` is not positive, or `wrap` has no ``step``.
    """

    def __init__(
        self,
        wrap: Any,
        optimizer: Optimizer,
        module: Module,
        manager: _Manager,
        epoch: float,
        steps_per_epoch: int,
    ) -> None:
        if steps_per_epoch <= 0:
            raise RecipeError(f"steps_per_epoch must be positive, not {steps_per_epoch}")
        if not hasattr(wrap, "step"):
            raise RecipeError(f"expected an optimizer with step(), not {type(wrap).__name__}")
        self._wrapped = wrap
        self._wrapped_optimizer = optimizer
        self._wrapped_module = module
        self._wrapped_manager = manager
        self._wrapped_steps_per_epoch = steps_per_epoch
        self._wrapped_steps = round(epoch * steps_per_epoch)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_wrapped"):
            raise AttributeError(name)
        return getattr(self._wrapped, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("_wrapped"):
            super().__setattr__(name, value)
        else:
            setattr(self._wrapped, name, value)

    @property
    def wrapped(self) -> Any:
        """What is stepped."""
        return self._wrapped

    @property
    def wrapped_optimizer(self) -> Optimizer:
        """The optimizer."""
        return self._wrapped_optimizer

    @property
    def wrapped_module(self) -> Module:
        """The network."""
        return self._wrapped_module

    @property
    def wrapped_manager(self) -> Any:
        """The recipe."""
        return self._wrapped_manager

    @property
    def wrapped_steps_per_epoch(self) -> int:
        """Optimizer steps of an epoch."""
        return self._wrapped_steps_per_epoch

    @property
    def wrapped_steps(self) -> int:
        """The steps made so far, those before the start included."""
        return self._wrapped_steps

    @property
    def wrapped_epoch(self) -> float:
        """The time, in epochs."""
        return self._wrapped_steps / self._wrapped_steps_per_epoch

    def step(self, *args: Any, **kwargs: Any) -> Any:
        """Modify and step; arguments and result are those of the wrapped ``step``."""
        return self._perform(lambda: self._wrapped.step(*args, **kwargs))

    def emulated_step(self) -> None:
        """Let the time of one step pass without stepping, where an epoch has fewer batches than others."""
        self._perform(lambda: None)

    def loss_update(self, loss: Tensor, **kwargs: Any) -> Tensor:
        """Return the loss to train with; call it before the backward pass.

        Args:
            loss: The loss of the task.
            kwargs: What modifiers need, such as `student_inputs` and `student_outputs` for distillation.
        """
        if not self._wrapped_manager.enabled:
            return loss
        return self._wrapped_manager.loss_update(
            loss,
            self._wrapped_module,
            self._wrapped_optimizer,
            self.wrapped_epoch,
            self._wrapped_steps_per_epoch,
            **kwargs,
        )

    def _perform(self, step: Any) -> Any:
        manager = self._wrapped_manager
        now = (
            self._wrapped_module,
            self._wrapped_optimizer,
            self.wrapped_epoch,
            self._wrapped_steps_per_epoch,
        )
        if manager.enabled:
            manager.update(*now)
            manager.optimizer_pre_step(*now)
        result = step()
        if manager.enabled:
            manager.optimizer_post_step(*now)
        self._wrapped_steps += 1
        return result
