"""Pruning by magnitude along a ramp, and keeping the zeros that are there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor
from torch.nn import Module, Parameter

from sparsemod.compress.checks import ALL_PRUNABLE, boolean, in_range, names, one_of
from sparsemod.compress.lifecycle import PyTorchModifierYAML
from sparsemod.compress.masks import magnitude_masks
from sparsemod.compress.modifiers_masks import (
    MaskModifier,
    check_mask_type,
    find_parameters,
    mask_structure,
)
from sparsemod.compress.props import Argument
from sparsemod.compress.recipe_errors import RecipeError
from sparsemod.compress.schedules import interpolate

__all__ = [
    "ConstantPruningModifier",
    "GMPruningModifier",
    "GlobalMagnitudePruningModifier",
    "MagnitudePruningModifier",
]

FROM_PARAM = "__FROM_PARAM__"
INTERPOLATIONS = ("linear", "cubic", "inverse_cubic")

_fraction = in_range("final_sparsity", 0.0, 1.0, low_open=True, high_open=True)


def _initial(value: Any) -> float | str:
    return FROM_PARAM if value == FROM_PARAM else in_range("init_sparsity", 0.0, 1.0)(value)


def _final(value: Any) -> float | dict[float, list[str]]:
    if not isinstance(value, Mapping):
        return _fraction(value)
    if not value:
        raise RecipeError(
            "final_sparsity: expected a fraction or fractions with the names of their parameters"
        )
    lists = {_fraction(key): names("final_sparsity")(params) for key, params in value.items()}
    return {key: [params] if isinstance(params, str) else params for key, params in lists.items()}


@PyTorchModifierYAML()
class GMPruningModifier(MaskModifier):
    """Gradual magnitude pruning: from one sparsity to another, the smallest weights first.

    Each update prunes exactly ``round(n * sparsity)`` weights (blocks, channels); pruned ones stay pruned.

    Args:
        init_sparsity: The fraction at the start, or ``__FROM_PARAM__`` for the zeros that are there.
        final_sparsity: The fraction at the end, or {fraction: names of parameters} with `params` empty.
        start_epoch: When it starts.
        end_epoch: When the final sparsity is reached.
        update_frequency: Epochs from one update of the masks to the next.
        params: Names and ``re:`` patterns, ``__ALL__`` or ``__ALL_PRUNABLE__``.
        leave_enabled: Whether the masks stay after the end.
        inter_func: linear, cubic or inverse_cubic.
        mask_type: unstructured, block4, [rows, columns], or N:M (then both sparsities must be 1 - N/M).
        global_sparsity: Rank over all parameters together.
    """

    init_sparsity = Argument(_initial, "The fraction at the start.")
    final_sparsity = Argument(_final, "The fraction at the end.")
    leave_enabled = Argument(boolean("leave_enabled"), "Whether the masks stay after the end.")
    inter_func = Argument(one_of("inter_func", INTERPOLATIONS), "How the sparsity moves.")
    mask_type = Argument(doc="What is pruned as one.")
    global_sparsity = Argument(boolean("global_sparsity"), "Whether all parameters are ranked together.")

    def __init__(
        self,
        init_sparsity: float | str,
        final_sparsity: float | Mapping[float, Sequence[str]],
        start_epoch: float,
        end_epoch: float,
        update_frequency: float,
        params: str | Sequence[str],
        leave_enabled: bool = True,
        inter_func: str = "cubic",
        mask_type: str | Sequence[int] = "unstructured",
        global_sparsity: bool = False,
    ) -> None:
        super().__init__(
            start_epoch=start_epoch, end_epoch=end_epoch, end_comparator=-1, update_frequency=update_frequency
        )
        self._first: dict[str, float] = {}
        self._last: dict[str, float] = {}
        self.keep(
            init_sparsity=init_sparsity,
            final_sparsity=final_sparsity,
            params=params,
            leave_enabled=leave_enabled,
            inter_func=inter_func,
            mask_type=list(mask_type) if isinstance(mask_type, tuple) else mask_type,
            global_sparsity=global_sparsity,
        )

    @property
    def applied_sparsity(self) -> float:
        """The share of weights that its masks prune now."""
        n_weights = sum(mask.numel() for mask in self._masks.values())
        return 1.0 - sum(int(mask.sum()) for mask in self._masks.values()) / n_weights if n_weights else 0.0

    def validate(self) -> None:
        """Check what the arguments mean together.

        Raises:
            RecipeError: They contradict each other.
        """
        if isinstance(self.final_sparsity, dict):
            if self.params:
                raise RecipeError("params must be [] where final_sparsity names the parameters")
            if self.global_sparsity:
                raise RecipeError(
                    "final_sparsity must be one fraction where all parameters are ranked together"
                )
        check_mask_type(
            self.mask_type,
            self.structures(),
            init_sparsity=self.init_sparsity,
            final_sparsity=self.final_sparsity,
        )

    def structures(self) -> tuple[str, ...]:
        """Return the words that `mask_type` may be."""
        return ("unstructured", "block4")

    def leaves_masks(self) -> bool:
        """Say whether the masks stay after the end."""
        return bool(self.leave_enabled)

    def selected(self, module: Module) -> dict[str, Parameter]:
        """Return the parameters to prune; the first fraction that names one holds."""
        if not isinstance(self.final_sparsity, dict):
            return super().selected(module)
        found: dict[str, Parameter] = {}
        for params in self.final_sparsity.values():
            found |= find_parameters(module, params)
        return found

    def initialize(self, module: Module, epoch: float = 0.0, **kwargs: Any) -> None:
        """Find the parameters and the sparsity that each begins and ends with."""
        super().initialize(module, epoch, **kwargs)
        finals = self.final_sparsity if isinstance(self.final_sparsity, dict) else {self.final_sparsity: None}
        self._last = {}
        for fraction, params in finals.items():
            for name in self._parameters if params is None else find_parameters(module, params):
                self._last.setdefault(name, fraction)
        self._first = self._initial_sparsities()

    def new_masks(self, epoch: float) -> dict[str, Tensor]:
        """Return the masks for the sparsity of this moment, on top of the ones so far."""
        structure = mask_structure(self.mask_type)
        if self.global_sparsity:
            name = next(iter(self._parameters), None)
            if name is None:
                return {}
            return magnitude_masks(
                self._parameters, self.sparsity(name, epoch), structure=structure, base=self._masks
            )
        masks: dict[str, Tensor] = {}
        for name, parameter in self._parameters.items():
            target = self.sparsity(name, epoch)
            masks |= magnitude_masks(
                {name: parameter}, target, scope="local", structure=structure, base=self._masks
            )
        return masks

    def sparsity(self, name: str, epoch: float) -> float:
        """Return the sparsity of a parameter at a moment."""
        start = max(self.start_epoch, 0.0)
        return interpolate(epoch, start, self.end_epoch, self._first[name], self._last[name], self.inter_func)

    def _initial_sparsities(self) -> dict[str, float]:
        if self.init_sparsity != FROM_PARAM:
            return dict.fromkeys(self._parameters, self.init_sparsity)
        zeros = {name: int((parameter == 0).sum()) for name, parameter in self._parameters.items()}
        if self.global_sparsity:
            total = sum(parameter.numel() for parameter in self._parameters.values())
            return dict.fromkeys(zeros, sum(zeros.values()) / max(1, total))
        return {name: n / max(1, self._parameters[name].numel()) for name, n in zeros.items()}


@PyTorchModifierYAML()
class MagnitudePruningModifier(GMPruningModifier):
    """Another name of `GMPruningModifier`."""


@PyTorchModifierYAML()
class GlobalMagnitudePruningModifier(GMPruningModifier):
    """Gradual magnitude pruning that ranks all parameters together; see `GMPruningModifier`."""

    def __init__(
        self,
        init_sparsity: float | str,
        final_sparsity: float,
        start_epoch: float,
        end_epoch: float,
        update_frequency: float,
        params: str | Sequence[str] = ALL_PRUNABLE,
        leave_enabled: bool = True,
        inter_func: str = "cubic",
        mask_type: str | Sequence[int] = "unstructured",
        global_sparsity: bool = True,
    ) -> None:
        if not global_sparsity:
            raise RecipeError("GlobalMagnitudePruningModifier: global_sparsity must be true")
        super().__init__(
            init_sparsity=init_sparsity,
            final_sparsity=final_sparsity,
            start_epoch=start_epoch,
            end_epoch=end_epoch,
            update_frequency=update_frequency,
            params=params,
            leave_enabled=leave_enabled,
            inter_func=inter_func,
            mask_type=mask_type,
            global_sparsity=True,
        )


@PyTorchModifierYAML()
class ConstantPruningModifier(MaskModifier):
    """Keeps the weights that are zero at its start at zero; no other weight is ever frozen.

    Args:
        params: Names and ``re:`` patterns, ``__ALL__`` or ``__ALL_PRUNABLE__``.
        start_epoch: When it starts.
        end_epoch: When it lets go; -1 never.
        update_frequency: Not used.
    """

    def __init__(
        self,
        params: str | Sequence[str],
        start_epoch: float = -1.0,
        end_epoch: float = -1.0,
        update_frequency: float = -1.0,
    ) -> None:
        super().__init__(start_epoch=start_epoch, end_epoch=end_epoch, end_comparator=-1)
        self.keep(params=params)

    @staticmethod
    def from_sparse_model(model: Module, threshold: float = 0.1) -> list[ConstantPruningModifier]:
        """Make one modifier for each prunable weight with more than a share of zeros."""
        sparse = [
            name
            for name, parameter in find_parameters(model, ALL_PRUNABLE).items()
            if float((parameter == 0).float().mean()) > threshold
        ]
        return [ConstantPruningModifier(params=[name]) for name in sparse]

    def update_ready(self, epoch: float, steps_per_epoch: int) -> bool:
        """Say whether its start or its end is due; there is nothing to do in between."""
        return self._enabled and (self.start_pending(epoch) or self.end_pending(epoch))

    def leaves_masks(self) -> bool:
        """The masks go at the end."""
        return False

    def new_masks(self, epoch: float) -> dict[str, Tensor]:
        """Return where the weights are not zero now, or the masks that were taken before."""
        return self._masks or {name: parameter.detach() != 0 for name, parameter in self._parameters.items()}
