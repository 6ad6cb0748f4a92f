"""What may hook into a training."""

from __future__ import annotations

from typing import Protocol

from torch import nn

__all__ = ["Hook"]


class Hook(Protocol):
    """Something that works on the network while it trains: pruning, fake quantization, a recipe.

    Steps are optimizer steps, counted from 0 over the whole training. More methods are called where a hook
    has them:

    - ``forward(net, x) -> logits`` stands in for ``net(x)``, in training and in validation, so that the best
      epoch is judged by the network that will ship. At most one hook of a training may have it.
    - ``new_optimizer(optimizer, steps_per_epoch) -> optimizer`` is called whenever an optimizer has been
      made, behind ``start``; what it returns is stepped in its place. The hook may change the options of the
      optimizer's groups; the trainer sets the learning rate only where its own schedule changes it.
    - ``loss(loss, x, logits) -> loss`` returns the loss to train with.
    - ``end_epoch(epoch)`` comes behind the last step of an epoch, counted from 0, before it is validated.
    - ``finish()`` comes when the network holds the weights to hand over.
    """

    def start(self, net: nn.Module, n_steps: int) -> None:
        """Begin a training of `n_steps` steps; the network is on its device."""

    def before_step(self, step: int) -> None:
        """Run before the forward pass of a step."""

    def after_step(self, step: int) -> bool | None:
        """Run when the optimizer has made its step.

        Returns:
            True when parameters of the network were replaced by others, so that a new optimizer is needed.
        """

    def ready(self, step: int) -> bool:
        """Say, after a step, whether the network has its final form, so that its weights may be kept."""
