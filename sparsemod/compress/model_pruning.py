"""`ModelPruning` as a hook of the training loop; that for Lightning is in `sparsemod.train.lightning`."""

from __future__ import annotations

from torch import nn

from sparsemod.compress.epoch_pruning import EpochPruning
from sparsemod.compress.masked import refresh
from sparsemod.errors import ConfigError

__all__ = ["ModelPruning"]


class ModelPruning(EpochPruning):
    """Prunes at the end of epochs, with the arguments of Lightning's callback; a hook of a `Trainer`.

        result = TorchTrainer().fit(net, train, validation, settings, [ModelPruning("l1_unstructured")])

    Pruning comes before the epoch's validation, so that accuracies are those of the pruned network, and the
    best epoch is chosen among those after the last pruning (it is the last epoch, if that one prunes). With
    ``prune_on_train_epoch_end=False`` pruning comes behind the validation.

    All arguments are described at `EpochPruning`.
    """

    _due: int | None = None
    _changed: int | None = None
    _n_epochs = 0

    def start(self, net: nn.Module, n_steps: int) -> None:
        """Begin a training.

        Raises:
            ConfigError: A parameter to prune is not in the network, or cannot be pruned in this way.
        """
        self.prepare(net)
        self._due = None
        self._changed = None
        self._n_epochs = 0

    def before_step(self, step: int) -> None:
        """Prune when it is due from the epoch before."""
        self._prune_due()

    def after_step(self, step: int) -> None:
        """Do nothing; masks apply by themselves."""

    def end_epoch(self, epoch: int) -> None:
        """Prune at the end of an epoch, counted from 0, or make a note of it for when it is validated."""
        if not self._on_train_end:
            self._due = epoch
        elif self.prune_epoch(epoch):
            self._changed = epoch
        self._n_epochs = epoch + 1

    def ready(self, step: int) -> bool:
        """Say whether the network has been pruned, and was not in this epoch.

        Raises:
            ConfigError: The trainer does not say where epochs end.
        """
        if not self._n_epochs:
            raise ConfigError("ModelPruning needs a trainer that calls its end_epoch(epoch)")
        never = self._apply_pruning is False or self.amount == 0 or not self._groups
        return never or (self._changed is not None and self._changed < self._n_epochs - 1)

    def finish(self) -> None:
        """End the training: prune if it is due, and make the masks permanent unless they are to stay."""
        self._prune_due()
        net = self._prepared()
        refresh(net)
        if self._permanent:
            self.make_pruning_permanent(net)

    def _prune_due(self) -> None:
        epoch, self._due = self._due, None
        if epoch is not None and self.prune_epoch(epoch):
            self._changed = epoch + 1
