"""What all pruning modifiers share: finding parameters, holding masks, applying them behind every step."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor
from torch.nn import Module, Parameter
from torch.optim import Optimizer

from sparsemod.compress.checks import ALL, ALL_PRUNABLE, names
from sparsemod.compress.groups import Structure, parse_n_of_m
from sparsemod.compress.lifecycle import Cut, ScheduledUpdateModifier
from sparsemod.compress.masks import apply_masks, match_names, prunable_parameters
from sparsemod.compress.modifier import SparsificationTypes
from sparsemod.compress.props import Argument
from sparsemod.compress.recipe_errors import LifecycleError, RecipeError, RecipeStateError
from sparsemod.errors import ConfigError

__all__ = ["MaskModifier", "check_mask_type", "find_parameters", "mask_structure"]


class MaskModifier(ScheduledUpdateModifier):
    """Keeps masks on parameters. A subclass says at each update which.

    The masks are applied when they change and behind every optimizer step, so that momentum revives nothing.
    """

    changes: tuple[SparsificationTypes, ...] = (SparsificationTypes.pruning,)
    params = Argument(names("params"), "Names and ``re:`` patterns, ``__ALL__`` or ``__ALL_PRUNABLE__``.")

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._parameters: dict[str, Parameter] = {}
        self._masks: dict[str, Tensor] = {}

    @property
    def masks(self) -> Mapping[str, Tensor]:
        """The masks by parameter, True where the weight stays; empty before the start."""
        return dict(self._masks)

    def new_masks(self, epoch: float) -> dict[str, Tensor]:
        """Return the masks of this moment; called at the start, at each update and at the end."""
        raise NotImplementedError

    def leaves_masks(self) -> bool:
        """Say whether the masks stay after the end."""
        return True

    def selected(self, module: Module) -> dict[str, Parameter]:
        """Return the parameters to prune."""
        return find_parameters(module, self.params)

    def initialize(self, module: Module, epoch: float = 0.0, **kwargs: Any) -> None:
        """Find the parameters.

        Raises:
            RecipeError: A name matches none.
        """
        super().initialize(module, epoch, **kwargs)
        self._parameters = self.selected(module)
        self._masks = {}

    def update(self, module: Module, optimizer: Optimizer | None, epoch: float, steps_per_epoch: int) -> None:
        """Renew and apply the masks."""
        super().update(module, optimizer, epoch, steps_per_epoch)
        self._masks = self.new_masks(epoch)
        apply_masks(self._parameters, self._masks)
        if self.end_pending(epoch) and not self.leaves_masks():
            self._masks = {}

    def optimizer_post_step(
        self, module: Module, optimizer: Optimizer, epoch: float, steps_per_epoch: int
    ) -> None:
        """Apply the masks again."""
        super().optimizer_post_step(module, optimizer, epoch, steps_per_epoch)
        apply_masks(self._parameters, self._masks)

    def finalize(self, module: Module | None = None, **kwargs: Any) -> None:
        """Apply the masks a last time and let go of them; the zeros stay."""
        super().finalize(module, **kwargs)
        apply_masks(self._parameters, self._masks)
        self._parameters, self._masks = {}, {}

    def take_cuts(self, cuts: Sequence[Cut]) -> None:
        """Cut the masks as the parameters were cut."""
        for cut in cuts:
            if cut.name in self._masks:
                self._masks[cut.name] = self._masks[cut.name].index_select(cut.dim, cut.kept)

    def state_dict(self) -> dict[str, Any]:
        """Return the masks by parameter."""
        return dict(self._masks)

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True) -> None:
        """Take the masks back and apply them.

        Raises:
            LifecycleError: The modifier is not initialized.
            RecipeStateError: A mask has another shape or, if `strict`, is missing or unknown.
        """
        if not self._initialized:
            raise LifecycleError(f"{type(self).__name__} must be initialized before its state is loaded")
        unknown = sorted(set(state_dict) - set(self._parameters))
        missing = sorted(set(self._parameters) - set(state_dict))
        if strict and state_dict and (unknown or missing):
            raise RecipeStateError(
                f"masks missing: {missing or 'none'}; of unknown parameters: {unknown or 'none'}"
            )
        known = {name: mask.bool() for name, mask in state_dict.items() if name in self._parameters}
        for name, mask in known.items():
            if mask.shape != self._parameters[name].shape:
                raise RecipeStateError(f"the mask of {name} has another shape: {tuple(mask.shape)}")
        self._masks = known
        apply_masks(self._parameters, self._masks)


def find_parameters(module: Module, params: str | Sequence[str]) -> dict[str, Parameter]:
    """Return parameters by qualified name.

    Args:
        module: The network.
        params: ``__ALL__`` for all, ``__ALL_PRUNABLE__`` for the weights that `prunable_parameters` names
            (recurrent ones included), or names and ``re:`` patterns.

    Raises:
        RecipeError: A name matches none.
    """
    if params == ALL_PRUNABLE:
        return prunable_parameters(module)
    found = dict(module.named_parameters())
    if params == ALL:
        return found
    try:
        return {name: found[name] for name in match_names(found, params)}
    except ConfigError as error:
        raise RecipeError(f"params: {error}") from error


def mask_structure(mask_type: Any) -> Structure:
    """Return what the mask engine calls a recipe's ``mask_type``.

    Raises:
        RecipeError: It is neither a word nor a pair of block sides.

    Example:
        >>> mask_structure([1, 4])
        (1, 4)
    """
    if mask_type == "block":
        return "block4"
    if isinstance(mask_type, str):
        return mask_type
    if (
        isinstance(mask_type, list | tuple)
        and len(mask_type) == 2
        and all(isinstance(n, int) for n in mask_type)
    ):
        return (mask_type[0], mask_type[1])
    raise RecipeError(f"mask_type must be a word or [rows, columns], not {mask_type!r}")


def check_mask_type(mask_type: Any, words: Sequence[str], **sparsities: Any) -> None:
    """Check that a ``mask_type`` is known, and one of N:M goes with the sparsities, of which it has only one.

    Args:
        mask_type: As the recipe says it.
        words: The words that are allowed, beside N:M and blocks.
        sparsities: The sparsities of the modifier, by argument.

    Raises:
        RecipeError: It is not, or does not.
    """
    structure = mask_structure(mask_type)
    if isinstance(structure, str) and (n_of_m := parse_n_of_m(structure)) is not None:
        implied = 1.0 - n_of_m[0] / n_of_m[1]
        for name, value in sparsities.items():
            if not isinstance(value, float) or not math.isclose(value, implied, abs_tol=5e-3):
                raise RecipeError(
                    f"mask_type {structure} has no ramp: {name} must be {implied:g}, not {value}"
                )
    elif structure not in words and not isinstance(structure, tuple):
        allowed = ", ".join([*words, "N:M", "[rows, columns]"])
        raise RecipeError(f"mask_type must be one of {allowed}, not {structure!r}")
