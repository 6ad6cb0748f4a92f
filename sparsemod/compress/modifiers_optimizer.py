"""Modifiers of the optimizer: learning rate and weight decay."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from torch.nn import Module
from torch.optim import Optimizer

from sparsemod.compress.checks import boolean, in_range, indices, mapping, one_of, optional
from sparsemod.compress.lifecycle import (
    TOLERANCE,
    PyTorchModifierYAML,
    ScheduledModifier,
    ScheduledUpdateModifier,
)
from sparsemod.compress.lr_schedules import LR_CLASSES
from sparsemod.compress.modifier import SparsificationTypes
from sparsemod.compress.props import Argument, ModifierProp
from sparsemod.compress.recipe_errors import RecipeError
from sparsemod.compress.schedules import interpolate

__all__ = [
    "LearningRateFunctionModifier",
    "LearningRateModifier",
    "SetLearningRateModifier",
    "SetWeightDecayModifier",
]

FUNCTIONS = ("linear", "cosine", "cyclic_linear")
GROUPS = "Indices of the optimizer's groups; None for all."
LOGGING = "Kept for recipes that hold it; nothing is logged."


def _set(optimizer: Optimizer, key: str, value: float, groups: Sequence[int] | None) -> None:
    n_groups = len(optimizer.param_groups)
    if groups is not None and any(index >= n_groups for index in groups):
        raise RecipeError(f"param_groups {list(groups)}: the optimizer has {n_groups} groups")
    for index, group in enumerate(optimizer.param_groups):
        if not groups or index in groups:
            group[key] = value


@PyTorchModifierYAML()
class SetLearningRateModifier(ScheduledModifier):
    """Sets the learning rate at its start.

    Args:
        learning_rate: The rate, in (0, 1].
        param_groups: Indices of the optimizer's groups; all by default.
        start_epoch: When it is set.
        end_epoch: Orders the stages of a recipe; the rate stays.
        constant_logging: Kept for recipes that hold it; nothing is logged.
    """

    changes = (SparsificationTypes.learning_rate,)
    learning_rate = Argument(optional(in_range("learning_rate", 0.0, 1.0, low_open=True)), "The rate.")
    param_groups = Argument(optional(indices("param_groups")), GROUPS)
    constant_logging = Argument(boolean("constant_logging"), LOGGING)

    def __init__(
        self,
        learning_rate: float | None,
        param_groups: Sequence[int] | None = None,
        start_epoch: float = -1.0,
        end_epoch: float = -1.0,
        constant_logging: bool = False,
    ) -> None:
        super().__init__(start_epoch=start_epoch, end_epoch=end_epoch, end_comparator=None)
        self.keep(learning_rate=learning_rate, param_groups=param_groups, constant_logging=constant_logging)
        self._applied = -1.0

    @ModifierProp(serializable=False)
    def applied_learning_rate(self) -> float:
        """The rate that was set; -1 before."""
        return self._applied

    def update(self, module: Module, optimizer: Optimizer | None, epoch: float, steps_per_epoch: int) -> None:
        """Set the rate at the start."""
        super().update(module, optimizer, epoch, steps_per_epoch)
        if optimizer is not None and self.learning_rate is not None and self.start_pending(epoch):
            _set(optimizer, "lr", self.learning_rate, self.param_groups)
            self._applied = self.learning_rate


@PyTorchModifierYAML()
class LearningRateFunctionModifier(ScheduledUpdateModifier):
    """Moves the learning rate from one value to another, at every step.

    With x the share of the time that has passed, linear is ``init + x (final - init)``, cosine
    ``final + (init - final) (1 + cos(pi x)) / 2``; cyclic_linear starts anew every `cycle_epochs` and reaches
    the final rate in each cycle's last step.

    Args:
        lr_func: linear, cosine or cyclic_linear.
        init_lr: The rate at the start, in [0, 1].
        final_lr: The rate at the end, in [0, 1].
        start_epoch: When it starts.
        end_epoch: When it ends.
        cycle_epochs: Epochs of a cycle.
        param_groups: Indices of the optimizer's groups; all by default.
        update_frequency: Not used.
        constant_logging: Kept for recipes that hold it; nothing is logged.
    """

    changes = (SparsificationTypes.learning_rate,)
    lr_func = Argument(one_of("lr_func", FUNCTIONS), "The function.")
    init_lr = Argument(in_range("init_lr", 0.0, 1.0), "The rate at the start.")
    final_lr = Argument(in_range("final_lr", 0.0, 1.0), "The rate at the end.")
    cycle_epochs = Argument(in_range("cycle_epochs", 0.0, 1e6, low_open=True), "Epochs of a cycle.")
    param_groups = Argument(optional(indices("param_groups")), GROUPS)
    constant_logging = Argument(boolean("constant_logging"), LOGGING)

    def __init__(
        self,
        lr_func: str,
        init_lr: float,
        final_lr: float,
        start_epoch: float,
        end_epoch: float,
        cycle_epochs: float = 1.0,
        param_groups: Sequence[int] | None = None,
        update_frequency: float = -1.0,
        constant_logging: bool = False,
    ) -> None:
        super().__init__(start_epoch=start_epoch, end_epoch=end_epoch, end_comparator=1)
        self.keep(
            lr_func=lr_func,
            init_lr=init_lr,
            final_lr=final_lr,
            cycle_epochs=cycle_epochs,
            param_groups=param_groups,
            constant_logging=constant_logging,
        )

    def update(self, module: Module, optimizer: Optimizer | None, epoch: float, steps_per_epoch: int) -> None:
        """Set the rate of this moment."""
        super().update(module, optimizer, epoch, steps_per_epoch)
        if optimizer is not None:
            _set(optimizer, "lr", self.rate(epoch, steps_per_epoch), self.param_groups)

    def rate(self, epoch: float, steps_per_epoch: int) -> float:
        """Return the learning rate of a moment within the schedule."""
        start, first, last = max(self.start_epoch, 0.0), self.init_lr, self.final_lr
        if self.lr_func == "cyclic_linear" and epoch < self.end_epoch - TOLERANCE:
            share = self._share_of_cycle(epoch - start, self.end_epoch - start, steps_per_epoch)
            return float(first + share * (last - first))
        share = interpolate(epoch, start, self.end_epoch, 0.0, 1.0, "linear")
        if self.lr_func == "cosine":
            share = (1.0 - math.cos(math.pi * share)) / 2.0
        return float(first + share * (last - first))

    def _share_of_cycle(self, since: float, span: float, steps_per_epoch: int) -> float:
        """Return how much of its cycle a step has done: 0 in the first, 1 in the last step of a cycle."""
        step, n_steps = round(since * steps_per_epoch), round(span * steps_per_epoch)
        length = max(1, round(self.cycle_epochs * steps_per_epoch))
        whole = n_steps // length * length
        if step >= whole:
            step, length = step - whole, n_steps - whole
        return step % length / (length - 1) if length > 1 else 0.0


@PyTorchModifierYAML()
class LearningRateModifier(ScheduledUpdateModifier):
    """Sets the learning rate by one of PyTorch's schedules, counted in epochs; see `lr_schedules`.

    The rate it ends with stays.

    Args:
        lr_class: The schedule.
        lr_kwargs: Its arguments.
        init_lr: The rate at the start, in (0, 1].
        start_epoch: When it starts.
        end_epoch: When it ends; -1 never.
        update_frequency: Not used.
        constant_logging: Kept for recipes that hold it; nothing is logged.
    """

    changes = (SparsificationTypes.learning_rate,)
    lr_class = Argument(one_of("lr_class", LR_CLASSES), "The schedule.")
    lr_kwargs = Argument(mapping("lr_kwargs"), "Its arguments.")
    init_lr = Argument(in_range("init_lr", 0.0, 1.0, low_open=True), "The rate at the start.")
    constant_logging = Argument(boolean("constant_logging"), LOGGING)

    def __init__(
        self,
        lr_class: str,
        lr_kwargs: Mapping[str, Any],
        init_lr: float,
        start_epoch: float,
        end_epoch: float = -1.0,
        update_frequency: float = -1.0,
        constant_logging: bool = False,
    ) -> None:
        super().__init__(start_epoch=start_epoch, end_epoch=end_epoch, end_comparator=-1)
        self.keep(lr_class=lr_class, lr_kwargs=lr_kwargs, init_lr=init_lr, constant_logging=constant_logging)

    def validate(self) -> None:
        """Check the arguments of the schedule.

        Raises:
            RecipeError: One is missing, unknown or out of range.
        """
        self.rate(max(self.start_epoch, 0.0))

    def update(self, module: Module, optimizer: Optimizer | None, epoch: float, steps_per_epoch: int) -> None:
        """Set the rate of this moment."""
        super().update(module, optimizer, epoch, steps_per_epoch)
        if optimizer is not None:
            _set(optimizer, "lr", self.rate(epoch), None)

    def rate(self, epoch: float) -> float:
        """Return the learning rate of a moment; at the end and behind it, the one just before the end."""
        if 0 <= self.end_epoch <= epoch:
            epoch = self.end_epoch - 2 * TOLERANCE
        return LR_CLASSES[self.lr_class](
            self.init_lr, epoch + TOLERANCE, max(self.start_epoch, 0.0), self.lr_kwargs
        )


@PyTorchModifierYAML()
class SetWeightDecayModifier(ScheduledModifier):
    """Sets the optimizer's weight decay.

    Args:
        weight_decay: The value.
        start_epoch: When it is set.
        param_groups: Indices of the optimizer's groups; all by default.
        end_epoch: Orders the stages of a recipe; the value stays.
        constant_logging: Kept for recipes that hold it; nothing is logged.
    """

    weight_decay = Argument(in_range("weight_decay", 0.0, 1.0), "The value.")
    param_groups = Argument(optional(indices("param_groups")), GROUPS)
    constant_logging = Argument(boolean("constant_logging"), LOGGING)

    def __init__(
        self,
        weight_decay: float,
        start_epoch: float = -1.0,
        param_groups: Sequence[int] | None = None,
        end_epoch: float = -1.0,
        constant_logging: bool = False,
    ) -> None:
        super().__init__(start_epoch=start_epoch, end_epoch=end_epoch, end_comparator=-1)
        self.keep(weight_decay=weight_decay, param_groups=param_groups, constant_logging=constant_logging)

    changes = (SparsificationTypes.regularization,)

    def update(self, module: Module, optimizer: Optimizer | None, epoch: float, steps_per_epoch: int) -> None:
        """Set the value at the start."""
        super().update(module, optimizer, epoch, steps_per_epoch)
        if optimizer is not None and self.start_pending(epoch):
            _set(optimizer, "weight_decay", self.weight_decay, self.param_groups)
