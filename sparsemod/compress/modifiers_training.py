"""Modifiers of the training itself: its epochs, which parameters learn, and their values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module, Parameter
from torch.optim import Optimizer

from sparsemod.compress.checks import ALL, boolean, names, one_of
from sparsemod.compress.lifecycle import PyTorchModifierYAML, ScheduledModifier, ScheduledUpdateModifier
from sparsemod.compress.masks import match_names
from sparsemod.compress.modifier import SparsificationTypes
from sparsemod.compress.props import Argument
from sparsemod.compress.recipe_errors import RecipeError
from sparsemod.compress.schedules import interpolate
from sparsemod.errors import ConfigError

__all__ = [
    "EpochRangeModifier",
    "GradualParamModifier",
    "SetParamModifier",
    "TrainableParamsModifier",
]

INTERPOLATIONS = ("linear", "cubic", "inverse_cubic")


@PyTorchModifierYAML()
class EpochRangeModifier(ScheduledModifier):
    """Says how long to train.

    Args:
        start_epoch: The first epoch.
        end_epoch: Where training ends.
    """

    def __init__(self, start_epoch: float, end_epoch: float) -> None:
        super().__init__(start_epoch=start_epoch, end_epoch=end_epoch, end_comparator=-1)

    changes = (SparsificationTypes.epoch,)


class _ParamsModifier(ScheduledModifier):
    """Acts on parameters by name."""

    params = Argument(names("params"), "Names and ``re:`` patterns of parameters, or ``__ALL__``.")
    params_strict = Argument(boolean("params_strict"), "Whether each name must match something.")

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._parameters: dict[str, Parameter] = {}

    changes = (SparsificationTypes.general,)

    def initialize(self, module: Module, epoch: float = 0.0, **kwargs: Any) -> None:
        """Find the parameters.

        Raises:
            RecipeError: A name matches none, and `params_strict` holds.
        """
        super().initialize(module, epoch, **kwargs)
        found = dict(module.named_parameters())
        if self.params == ALL:
            self._parameters = found
            return
        selected: set[str] = set()
        for pattern in self.params:
            try:
                selected.update(match_names(found, [pattern]))
            except ConfigError as error:
                if self.params_strict:
                    raise RecipeError(f"params: {error}") from error
        self._parameters = {name: found[name] for name in found if name in selected}

    def finalize(self, module: Module | None = None, **kwargs: Any) -> None:
        """Let go of the parameters."""
        super().finalize(module, **kwargs)
        self._parameters = {}


@PyTorchModifierYAML()
class TrainableParamsModifier(_ParamsModifier):
    """Lets parameters learn or not; after its end they are as before.

    Args:
        params: Names and ``re:`` patterns of parameters, or ``__ALL__``.
        trainable: Whether they learn.
        params_strict: Whether each name must match something.
        start_epoch: When it starts.
        end_epoch: When it ends; -1 never.
    """

    trainable = Argument(boolean("trainable"), "Whether the parameters learn.")

    def __init__(
        self,
        params: str | Sequence[str],
        trainable: bool,
        params_strict: bool = True,
        start_epoch: float = -1.0,
        end_epoch: float = -1.0,
    ) -> None:
        super().__init__(start_epoch=start_epoch, end_epoch=end_epoch, end_comparator=-1)
        self.keep(params=params, trainable=trainable, params_strict=params_strict)
        self._original: dict[str, bool] = {}

    def update(self, module: Module, optimizer: Optimizer | None, epoch: float, steps_per_epoch: int) -> None:
        """Switch at the start, switch back at the end."""
        super().update(module, optimizer, epoch, steps_per_epoch)
        if self.start_pending(epoch):
            self._original = {name: param.requires_grad for name, param in self._parameters.items()}
            self._switch(dict.fromkeys(self._parameters, self.trainable))
        elif self.end_pending(epoch):
            self._switch(self._original)

    def _switch(self, trainable: dict[str, bool]) -> None:
        for name, parameter in self._parameters.items():
            parameter.requires_grad_(trainable[name])
            if not trainable[name]:
                # The gradient of this step would still move it.
                parameter.grad = None


@PyTorchModifierYAML()
class SetParamModifier(_ParamsModifier):
    """Sets parameters to a value at its start.

    Args:
        params: Names and ``re:`` patterns of parameters, or ``__ALL__``.
        val: A number, or nested lists of the parameters' shape.
        params_strict: Whether each name must match something.
        start_epoch: When it is set.
        end_epoch: Not used.
    """

    val = Argument(doc="A number, or nested lists of the parameters' shape.")

    def __init__(
        self,
        params: str | Sequence[str],
        val: Any,
        params_strict: bool = True,
        start_epoch: float = 0.0,
        end_epoch: float = -1.0,
    ) -> None:
        super().__init__(start_epoch=start_epoch, end_epoch=end_epoch, end_comparator=None)
        self.keep(params=params, val=val, params_strict=params_strict)

    def initialize(self, module: Module, epoch: float = 0.0, **kwargs: Any) -> None:
        """Find the parameters and check the shape of the value.

        Raises:
            RecipeError: It has another shape.
        """
        super().initialize(module, epoch, **kwargs)
        _check_shapes(self._parameters, _tensor(self.val, "val"), "val")

    def update(self, module: Module, optimizer: Optimizer | None, epoch: float, steps_per_epoch: int) -> None:
        """Set the value at the start."""
        super().update(module, optimizer, epoch, steps_per_epoch)
        if self.start_pending(epoch):
            _fill(self._parameters, _tensor(self.val, "val"))


@PyTorchModifierYAML()
class GradualParamModifier(_ParamsModifier, ScheduledUpdateModifier):
    """Moves parameters from one value to another.

    Args:
        params: Names and ``re:`` patterns of parameters, or ``__ALL__``.
        init_val: The value at the start: a number, or nested lists of the parameters' shape.
        final_val: The value at the end.
        start_epoch: When it starts.
        end_epoch: When it ends.
        update_frequency: Epochs from one change to the next.
        inter_func: linear, cubic or inverse_cubic.
        params_strict: Whether each name must match something.
    """

    init_val = Argument(doc="The value at the start.")
    final_val = Argument(doc="The value at the end.")
    inter_func = Argument(one_of("inter_func", INTERPOLATIONS), "How it moves.")

    def __init__(
        self,
        params: str | Sequence[str],
        init_val: Any,
        final_val: Any,
        start_epoch: float,
        end_epoch: float,
        update_frequency: float,
        inter_func: str = "linear",
        params_strict: bool = True,
    ) -> None:
        super().__init__(
            start_epoch=start_epoch,
            end_epoch=end_epoch,
            min_end=0.0,
            end_comparator=1,
            update_frequency=update_frequency,
        )
        self.keep(
            params=params,
            init_val=init_val,
            final_val=final_val,
            inter_func=inter_func,
            params_strict=params_strict,
        )

    def initialize(self, module: Module, epoch: float = 0.0, **kwargs: Any) -> None:
        """Find the parameters and check the shapes of the values.

        Raises:
            RecipeError: One has another shape.
        """
        super().initialize(module, epoch, **kwargs)
        for name in ("init_val", "final_val"):
            _check_shapes(self._parameters, _tensor(getattr(self, name), name), name)

    def update(self, module: Module, optimizer: Optimizer | None, epoch: float, steps_per_epoch: int) -> None:
        """Set the value of this moment."""
        super().update(module, optimizer, epoch, steps_per_epoch)
        share = interpolate(epoch, max(self.start_epoch, 0.0), self.end_epoch, 0.0, 1.0, self.inter_func)
        first, last = _tensor(self.init_val, "init_val"), _tensor(self.final_val, "final_val")
        _fill(self._parameters, first + share * (last - first))


def _tensor(value: Any, name: str) -> Tensor:
    try:
        return torch.tensor(value, dtype=torch.float32)
    except (TypeError, ValueError, RuntimeError):
        raise RecipeError(f"{name} must be a number or nested lists of numbers") from None


def _check_shapes(parameters: dict[str, Parameter], value: Tensor, name: str) -> None:
    for key, parameter in parameters.items():
        if value.dim() and value.shape != parameter.shape:
            raise RecipeError(f"{name} has shape {tuple(value.shape)}, {key} has {tuple(parameter.shape)}")


def _fill(parameters: dict[str, Parameter], value: Tensor) -> None:
    with torch.no_grad():
        for parameter in parameters.values():
            parameter.copy_(value.expand_as(parameter))
