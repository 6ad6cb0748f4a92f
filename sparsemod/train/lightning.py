"""`ModelPruning` as a callback of Lightning's `Trainer`; needs the extra ``lightning``."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Iterator, MutableMapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from sparsemod.compress.epoch_pruning import EpochPruning
from sparsemod.compress.masked import follow_state, live_masks, permanent_state, refresh, set_masks
from sparsemod.compress.parameter_lists import CONTAINERS, PARAMETER_NAMES, ParameterList, sanitized
from sparsemod.errors import ConfigError

try:
    from lightning.pytorch import Callback, LightningModule
    from lightning.pytorch.utilities.exceptions import MisconfigurationException
    from lightning.pytorch.utilities.rank_zero import rank_zero_only
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"sparsemod.train.lightning needs Lightning: pip install 'sparsemod[lightning]' ({error})",
        name=error.name,
    ) from error

__all__ = ["ModelPruning", "PruningMisconfigurationError"]

KEY = "sparsemod.ModelPruning"
"""Where a checkpoint has the masks and the values to go back to."""


class PruningMisconfigurationError(MisconfigurationException, ConfigError, TypeError):  # type: ignore[misc]
    """An argument of `ModelPruning` has no meaning, alone or for the model."""


@contextmanager
def _misconfiguration() -> Iterator[None]:
    try:
        yield
    except ConfigError as error:
        raise PruningMisconfigurationError(str(error)) from error


class ModelPruning(EpochPruning, Callback):  # type: ignore[misc]
    """Prunes a LightningModule at the end of epochs; takes the place of Lightning's own ``ModelPruning``.

    The arguments are described at `EpochPruning`; what they mean is what Lightning documents. Beyond that a
    training can be resumed from any checkpoint with its masks, permanent or not, and with the values that the
    lottery ticket hypothesis goes back to.

    Raises:
        MisconfigurationException: An argument has no meaning.
    """

    @functools.wraps(EpochPruning.__init__)  # type: ignore[misc]
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        with _misconfiguration():
            super().__init__(*args, **kwargs)
        self._handles: list[torch.utils.hooks.RemovableHandle] = []
        self._removed: dict[str, torch.Tensor] = {}
        self._n_validations = 0

    @staticmethod
    def sanitize_parameters_to_prune(
        pl_module: nn.Module,
        parameters_to_prune: ParameterList | None = (),
        parameter_names: Sequence[str] = (),
    ) -> ParameterList:
        """Return the parameters to prune, checked; where none is given all of the layers' with those names.

        Raises:
            MisconfigurationException: The list is malformed, or a module or parameter is not in the model.
        """
        with _misconfiguration():
            names = parameter_names or PARAMETER_NAMES
            return sanitized(pl_module, parameters_to_prune, names, (LightningModule, *CONTAINERS))

    def prepare(self, net: nn.Module) -> None:
        """Begin a training; see `EpochPruning.prepare`.

        Raises:
            MisconfigurationException: A parameter to prune is not in the model, or cannot be pruned so.
        """
        with _misconfiguration():
            super().prepare(net)

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Let the model load what was saved with masks; where a fit begins, find the parameters to prune."""
        self._unfollow()
        self._handles = follow_state(pl_module)
        if stage == "fit":
            self._removed = {}
            self._n_validations = 0
            self.prepare(pl_module)

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Leave the model as Lightning ends with it."""
        self._unfollow()

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Warn of what will not do what one may expect."""
        if not self._on_train_end and not trainer.enable_validation:
            self._warn_unvalidated()
        for callback in trainer.checkpoint_callbacks:
            if self._permanent and getattr(callback, "save_weights_only", False):
                self._warn(
                    f"ModelPruning: {type(callback).__name__} saves weights only, when Lightning asks no "
                    "callback, so that masks stay in its files: load them through permanent_state of "
                    "sparsemod.compress.masked"
                )
            if monitor := getattr(callback, "monitor", None):
                self._warn(
                    f"ModelPruning: {type(callback).__name__} compares networks by {monitor!r}, which is "
                    "measured before an epoch's pruning, not on the weights that come out of its file: "
                    "compare the files by trainer.validate(model, ckpt_path=...)"
                )

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """Prune, unless that is to come behind the validation."""
        if self._on_train_end:
            self.prune_epoch(pl_module.current_epoch)
        refresh(pl_module)

    def on_validation_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """Prune where that is to come behind the validation, but not behind the sanity check."""
        if not trainer.sanity_checking and not self._on_train_end and trainer.state.fn == "fit":
            self._n_validations += 1
            self.prune_epoch(pl_module.current_epoch)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Make the masks permanent, unless they are to stay."""
        refresh(pl_module)
        if not self._on_train_end and trainer.enable_validation and not self._n_validations:
            self._warn_unvalidated()
        if self._permanent:
            self._removed = live_masks(pl_module)
            self.make_pruning_permanent(pl_module)

    def on_save_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: MutableMapping[str, Any]) -> None:
        """Make masks permanent in the checkpoint, not in the model, and add what resuming needs."""
        state = checkpoint.get("state_dict") or pl_module.state_dict()
        if self._permanent:
            plain = permanent_state(state)
            checkpoint["state_dict"] = {
                name: value.cpu() if isinstance(value, torch.Tensor) else value
                for name, value in plain.items()
            }
        saved = checkpoint.get(KEY, {"masks": {}, "originals": {}})
        saved["masks"] |= {
            name: mask.cpu() for name, mask in {**self._removed, **live_masks(pl_module)}.items()
        }
        saved["originals"] |= {name: value.cpu() for name, value in self._originals.items()}
        if saved["masks"] or saved["originals"]:
            checkpoint[KEY] = saved

    def on_load_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: MutableMapping[str, Any]) -> None:
        """Where a fit is resumed, restore the masks and the values to go back to."""
        if trainer.state.fn != "fit" or KEY not in checkpoint:
            return
        saved = checkpoint[KEY]
        found = [(*_owner(pl_module, key), mask) for key, mask in saved["masks"].items()]
        set_masks(pl_module, found)
        originals = saved["originals"]
        self._originals = {key: originals.get(key, value) for key, value in self._originals.items()}

    def _unfollow(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def _warn_unvalidated(self) -> None:
        self._warn(
            "ModelPruning: prune_on_train_epoch_end=False prunes behind the validation, but there is none in "
            "this training: nothing is pruned"
        )

    @rank_zero_only  # type: ignore[untyped-decorator]
    def _warn(self, message: str) -> None:
        warnings.warn(message, stacklevel=2)

    @rank_zero_only  # type: ignore[untyped-decorator]
    def _log(self, message: str) -> None:
        super()._log(message)


def _owner(net: nn.Module, key: str) -> tuple[nn.Module, str]:
    path, _, name = key.rpartition(".")
    return net.get_submodule(path), name
