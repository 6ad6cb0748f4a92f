"""A recipe as a hook of the training loop."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer

from sparsemod.compress.modifier import SparsificationTypes
from sparsemod.compress.stepping import RecipeManagerStepWrapper
from sparsemod.compress.training_manager import ScheduledModifierManager
from sparsemod.errors import ConfigError, user_code

__all__ = ["RecipeHook"]

FORM = {SparsificationTypes.pruning, SparsificationTypes.quantization, SparsificationTypes.structured}


class RecipeHook:
    """Trains a network by a recipe; a hook of a `Trainer`.

        result = TorchTrainer().fit(net, train, validation, settings, [RecipeHook(manager)])

    The best epoch is chosen among those in which all modifiers that change the form of the network (pruning,
    quantization, structure) have come to their end, or begun where they never end. What is due at the very
    end of training is done before the last epoch is validated. The teacher of a `DistillationModifier` is the
    network itself, as it is when that modifier starts.

    Args:
        manager: The recipe. Give the settings a `learning_gamma` of 1 where it sets the learning rate, so
            that it is the only one to do so.
    """

    def __init__(self, manager: ScheduledModifierManager) -> None:
        self._manager = manager
        self._net: nn.Module = nn.Identity()
        self._n_steps = 0
        self._optimizer: RecipeManagerStepWrapper | None = None

    def start(self, net: nn.Module, n_steps: int) -> None:
        """Begin a training of `n_steps` optimizer steps."""
        self._net, self._n_steps, self._optimizer = net, n_steps, None

    def new_optimizer(self, optimizer: Optimizer, steps_per_epoch: int) -> Any:
        """Attach the recipe to an optimizer, and to the network where that has not been done.

        Returns:
            What is stepped in place of the optimizer.

        Raises:
            RecipeError: The recipe does not fit the network.
            CandidateError: A modifier raised.
        """
        epoch = 0.0 if self._optimizer is None else self._optimizer.wrapped_epoch
        with user_code("the recipe"):
            self._optimizer = self._manager.modify(
                self._net, optimizer, steps_per_epoch, epoch=epoch, distillation_teacher="self"
            )
        return self._optimizer

    def before_step(self, step: int) -> None:
        """Do nothing; the work is done around the optimizer's step."""

    def after_step(self, step: int) -> None:
        """Do nothing; the work is done around the optimizer's step."""

    def loss(self, loss: Tensor, x: Any, logits: Tensor) -> Tensor:
        """Return the loss after each modifier has had its say."""
        with user_code("the recipe"):
            return self._attached().loss_update(loss, student_inputs=x, student_outputs=logits)

    def end_epoch(self, epoch: int) -> None:
        """Do what is due at the end of the last epoch."""
        optimizer = self._attached()
        if optimizer.wrapped_steps >= self._n_steps:
            now, n_batches = optimizer.wrapped_epoch, optimizer.wrapped_steps_per_epoch
            with user_code("the recipe"):
                self._manager.update(self._net, optimizer.wrapped_optimizer, now, n_batches)

    def ready(self, step: int) -> bool:
        """Say whether the network has the form that the recipe gives it.

        Raises:
            ConfigError: The trainer has not handed over its optimizer.
        """
        self._attached()
        return all(
            modifier.settled()
            for modifier in self._manager.iter_modifiers()
            if FORM & set(modifier.sparsification_types)
        )

    def finish(self) -> None:
        """Detach the recipe; the network is a float network again, zeros stay."""
        with user_code("the recipe"):
            self._manager.finalize(self._net)

    def _attached(self) -> RecipeManagerStepWrapper:
        if self._optimizer is None:
            raise ConfigError(
                "a recipe needs a trainer that calls new_optimizer(optimizer, steps_per_epoch) of its hooks "
                "and steps what that returns"
            )
        return self._optimizer
