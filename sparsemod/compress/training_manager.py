"""The manager of a recipe for PyTorch networks: it modifies while an optimizer steps, or at once."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor
from torch.nn import Module
from torch.optim import Optimizer

from sparsemod.compress.lifecycle import PYTORCH_FRAMEWORK, Modifier
from sparsemod.compress.manager import BaseManager
from sparsemod.compress.recipe_errors import LifecycleError, RecipeError, RecipeStateError
from sparsemod.compress.recipe_metadata import add_framework_metadata, validate_metadata
from sparsemod.compress.recipe_source import load_recipe_yaml_str, parse_recipe_variables
from sparsemod.compress.recipe_text import parse_recipe
from sparsemod.compress.registry import build_modifier
from sparsemod.compress.stepping import RecipeManagerStepWrapper

__all__ = ["ScheduledModifierManager"]


class ScheduledModifierManager(BaseManager):
    """The modifiers of a recipe for a PyTorch network.

    Example:
        >>> import torch
        >>> manager = ScheduledModifierManager([])
        >>> net = torch.nn.Linear(2, 1)
        >>> optimizer = manager.modify(net, torch.optim.SGD(net.parameters(), lr=0.1), steps_per_epoch=10)
        >>> optimizer.step()  # in place of the optimizer that was given
        >>> optimizer.wrapped_epoch
        0.1
    """

    def __init__(
        self,
        modifiers: Sequence[Modifier] | Mapping[str, Sequence[Modifier]],
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(modifiers, metadata)
        self._initialized = False
        self._enabled = True
        self._initialize_epoch = 0.0

    @classmethod
    def from_yaml(
        cls,
        file_path: str | Path,
        add_modifiers: Sequence[Modifier] | None = None,
        recipe_variables: Mapping[str, Any] | str | None = None,
        metadata: Mapping[str, Any] | None = None,
        parametrization: Mapping[str, Any] | None = None,
    ) -> ScheduledModifierManager:
        """Read a recipe.

        Args:
            file_path: A ``.yaml`` or ``.md`` file, or the text itself.
            add_modifiers: Further modifiers, for a recipe without stages.
            recipe_variables: Values for variables of the recipe, see `parse_recipe_variables`.
            metadata: Replaces the metadata of the recipe.
            parametrization: More values that ``eval(...)`` may use; the recipe's own of that name give way.

        Raises:
            RecipeError: The recipe, a variable or a modifier is wrong.
        """
        text = load_recipe_yaml_str(file_path)
        recipe = parse_recipe(text, parse_recipe_variables(recipe_variables), parametrization)
        chosen = validate_metadata(metadata, recipe.metadata)
        if metadata is not None:
            chosen = add_framework_metadata(chosen)
        if not isinstance(recipe.modifiers, dict):
            built = [build_modifier(item, PYTORCH_FRAMEWORK) for item in recipe.modifiers]
            return cls([*built, *(add_modifiers or ())], chosen)
        if add_modifiers:
            raise RecipeError("add_modifiers cannot be placed in a recipe of stages")
        stages = recipe.modifiers.items()
        return cls(
            {name: [build_modifier(item, PYTORCH_FRAMEWORK) for item in items] for name, items in stages},
            chosen,
        )

    @property
    def initialized(self) -> bool:
        """Whether it is attached to a network."""
        return self._initialized

    @property
    def enabled(self) -> bool:
        """Whether it modifies; while False, an optimizer wrapped by it only counts its steps."""
        return self._enabled

    @enabled.setter
    def enabled(self, value: bool) -> None:
        self._enabled = value

    def initialize(self, module: Module, epoch: float = 0.0, **kwargs: Any) -> None:
        """Attach all modifiers to a network.

        Args:
            module: The network.
            epoch: Where training begins.
            kwargs: Given to every modifier's `initialize`.
        """
        self._initialized = True
        self._initialize_epoch = epoch
        for modifier in self.iter_modifiers():
            if not modifier.initialized:
                modifier.initialize(module, epoch, **kwargs)

    def modify(
        self,
        module: Module,
        optimizer: Optimizer,
        steps_per_epoch: int,
        wrap_optim: Any = None,
        epoch: float | None = None,
        **kwargs: Any,
    ) -> RecipeManagerStepWrapper:
        """Attach to a network and its optimizer.

        Args:
            module: The network.
            optimizer: Its optimizer.
            steps_per_epoch: Optimizer steps of an epoch.
            wrap_optim: What is stepped in place of the optimizer, such as a gradient scaler.
            epoch: Where training begins; that of `initialize` by default.
            kwargs: Given to `initialize` where it has not been called yet.

        Returns:
            What to call ``step`` on from now on, in place of the optimizer. Call `finalize` after training.

        Raises:
            RecipeError: `steps_per_epoch` is not positive.
        """
        start = self._initialize_epoch if epoch is None else epoch
        wrapper = RecipeManagerStepWrapper(
            optimizer if wrap_optim is None else wrap_optim, optimizer, module, self, start, steps_per_epoch
        )
        if not self._initialized:
            self.initialize(module, start, **kwargs)
        return wrapper

    def update(self, module: Module, optimizer: Optimizer, epoch: float, steps_per_epoch: int) -> None:
        """Make all updates that are due, in order."""
        self._check_initialized()
        for modifier in self._active():
            if modifier.update_ready(epoch, steps_per_epoch):
                modifier.scheduled_update(module, optimizer, epoch, steps_per_epoch)
                self._pass_cuts(modifier)

    def loss_update(
        self,
        loss: Tensor,
        module: Module,
        optimizer: Optimizer | None,
        epoch: float,
        steps_per_epoch: int,
        **kwargs: Any,
    ) -> Tensor:
        """Return the loss after each modifier has had its say."""
        self._check_initialized()
        for modifier in self._active():
            loss = modifier.loss_update(
                loss, module, optimizer, epoch=epoch, steps_per_epoch=steps_per_epoch, **kwargs
            )
        return loss

    def optimizer_pre_step(
        self, module: Module, optimizer: Optimizer, epoch: float, steps_per_epoch: int
    ) -> None:
        """Act between the backward pass and the optimizer's step."""
        self._check_initialized()
        for modifier in self._active():
            modifier.optimizer_pre_step(module, optimizer, epoch, steps_per_epoch)

    def optimizer_post_step(
        self, module: Module, optimizer: Optimizer, epoch: float, steps_per_epoch: int
    ) -> None:
        """Act behind the optimizer's step."""
        self._check_initialized()
        for modifier in self._active():
            modifier.optimizer_post_step(module, optimizer, epoch, steps_per_epoch)

    def finalize(self, module: Module | None = None, **kwargs: Any) -> None:
        """Finish what is left to do and detach all modifiers.

        Raises:
            LifecycleError: It was not initialized.
        """
        self._check_initialized()
        self._initialized = False
        for modifier in self.iter_modifiers():
            if modifier.initialized:
                modifier.finalize(module, **kwargs)
                self._pass_cuts(modifier)

    def apply(self, module: Module, epoch: float = math.inf, finalize: bool = True, **kwargs: Any) -> None:
        """Do at once, without training and stage by stage, what the recipe would have done by an epoch.

        Args:
            module: The network.
            epoch: The epoch; the end of time by default.
            finalize: Detach afterwards.
            kwargs: Given to every modifier's `apply`.
        """
        self._initialized = not finalize
        self._initialize_epoch = epoch
        for group in self._groups():
            for modifier in group:
                modifier.apply(module, epoch, finalize=False, **kwargs)
                self._pass_cuts(modifier)
            for modifier in group if finalize else ():
                modifier.finalize(module, **kwargs)

    def state_dict(self) -> dict[str, Any]:
        """Return the states of all modifiers by identifier, in a recipe of stages first by stage."""
        if isinstance(self._modifiers, dict):
            return {stage: _states(group) for stage, group in self._modifiers.items()}
        return _states(self._modifiers)

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True) -> None:
        """Take back what `state_dict` returned; the manager must be initialized.

        Raises:
            RecipeStateError: A stage or modifier is missing or unknown, and `strict` holds.
        """
        if not isinstance(self._modifiers, dict):
            _load_states(self._modifiers, state_dict, strict)
            return
        if strict:
            _check_keys("stages", set(self._modifiers), set(state_dict))
        for stage, group in self._modifiers.items():
            if stage in state_dict:
                _load_states(group, state_dict[stage], strict)

    def _active(self) -> Iterator[Modifier]:
        return (modifier for modifier in self.iter_modifiers() if modifier.initialized and modifier.enabled)

    def _check_initialized(self) -> None:
        if not self._initialized:
            raise LifecycleError("the manager must be initialized first")

    def _pass_cuts(self, modifier: Modifier) -> None:
        """Tell the others what a modifier has just cut off."""
        cuts = modifier.new_cuts()
        if cuts:
            for other in self.iter_modifiers():
                if other.initialized:
                    other.take_cuts(cuts)


def _states(modifiers: Sequence[Modifier]) -> dict[str, Any]:
    return {modifier.identifier(): modifier.state_dict() for modifier in modifiers}


def _load_states(modifiers: Sequence[Modifier], states: Mapping[str, Any], strict: bool) -> None:
    by_identifier = {modifier.identifier(): modifier for modifier in modifiers}
    if strict:
        _check_keys("modifiers", set(by_identifier), set(states))
    for identifier, modifier in by_identifier.items():
        if identifier in states:
            modifier.load_state_dict(states[identifier], strict)


def _check_keys(what: str, expected: set[str], found: set[str]) -> None:
    if expected != found:
        missing, unknown = ", ".join(sorted(expected - found)), ", ".join(sorted(found - expected))
        raise RecipeStateError(
            f"the stored {what} differ; missing: {missing or 'none'}; unknown: {unknown or 'none'}"
        )
