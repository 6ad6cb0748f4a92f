"""Pruning at the end of epochs, whatever runs the training: the core of both `ModelPruning` classes."""

from __future__ import annotations

import copy
import logging
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import prune

from sparsemod.compress.masked import mask_of, parameter_of, refresh, remove_masks, set_masks
from sparsemod.compress.parameter_lists import (
    PARAMETER_NAMES,
    ParameterList,
    check_form,
    check_members,
    checked_names,
    grouped,
    sanitized,
)
from sparsemod.compress.pruning_methods import Amount, checked_amount, generator, pruning_method
from sparsemod.errors import ConfigError

__all__ = ["EpochPruning"]

log = logging.getLogger(__name__)
log.setLevel(logging.INFO)  # `verbose` is the switch

Switch = bool | Callable[[int], Any]
"""On, off, or a function of the epoch that says so."""


class EpochPruning:
    """Prunes a share of the weights that are left at the end of an epoch.

    The arguments, their defaults and what they do are those of Lightning's ``ModelPruning``; all are checked
    when the object is made. Something that trains calls `prepare` when a training begins and `prune_epoch`
    at the end of each epoch, and in the end `make_pruning_permanent`.

    Args:
        pruning_fn: ``"l1_unstructured"``, ``"random_unstructured"``, ``"ln_structured"`` or
            ``"random_structured"``, in any case, or a subclass of `torch.nn.utils.prune.BasePruningMethod`
            (the class, of PRUNING_TYPE ``"unstructured"``).
        parameters_to_prune: A list of (module, parameter name). Empty or None: of every layer the weight,
            then of every layer the bias; structured pruning leaves out those of one dimension then.
        parameter_names: Which of ``"weight"`` and ``"bias"`` to look for; empty or None for both.
        use_global_unstructured: Rank the weights of all parameters together, otherwise each parameter by
            itself. Structured pruning needs False.
        amount: How much of what is not pruned yet: a fraction (float), a count (int; of each parameter where
            they are ranked by themselves, slices in structured pruning), or a function of the epoch. 1 is one
            weight, 1.0 is all of them; nothing is done in an epoch where it is 0 or None.
        apply_pruning: Whether to prune at all, or a function of the epoch that says so.
        make_pruning_permanent: Whether masks are made permanent when training ends and in what is saved.
        use_lottery_ticket_hypothesis: Whether the parameters go back to their values at the start of the
            training whenever something was pruned, or a function of the epoch that says so.
        resample_parameters: Draw new values by the layers' ``reset_parameters`` instead of going back.
        pruning_dim: The dimension whose slices structured pruning ranks.
        pruning_norm: The order of the norm by which ``ln_structured`` ranks them.
        verbose: 1 logs the sparsity at each pruning, 2 also that of each parameter (level INFO; to standard
            error where logging is not set up).
        prune_on_train_epoch_end: Prune at the end of the training epoch, otherwise at the end of the
            validation.
        seed: Of random pruning and resampling; None for the one the training was seeded with.

    Raises:
        ConfigError: An argument has no meaning.
    """

    PARAMETER_NAMES = PARAMETER_NAMES

    def __init__(
        self,
        pruning_fn: str | type[prune.BasePruningMethod],
        parameters_to_prune: ParameterList | None = (),
        parameter_names: Sequence[str] | None = None,
        use_global_unstructured: bool = True,
        amount: Amount | Callable[[int], Amount | None] = 0.5,
        apply_pruning: Switch = True,
        make_pruning_permanent: bool = True,
        use_lottery_ticket_hypothesis: Switch = True,
        resample_parameters: bool = False,
        pruning_dim: int | None = None,
        pruning_norm: float | None = None,
        verbose: int = 0,
        prune_on_train_epoch_end: bool = True,
        *,
        seed: int | None = None,
    ) -> None:
        check_form(parameters_to_prune)
        self._given = parameters_to_prune
        self._names = checked_names(parameter_names)
        self._together = _flag("use_global_unstructured", use_global_unstructured)
        self._method = pruning_method(pruning_fn, together=self._together, dim=pruning_dim, norm=pruning_norm)
        self.amount = amount if callable(amount) else checked_amount(amount)
        self._apply_pruning = _switch("apply_pruning", apply_pruning)
        self._permanent = _flag("make_pruning_permanent", make_pruning_permanent)
        self._lottery = _switch("use_lottery_ticket_hypothesis", use_lottery_ticket_hypothesis)
        self._resample = _flag("resample_parameters", resample_parameters)
        if verbose not in (0, 1, 2):
            raise ConfigError(f"verbose must be any of (0, 1, 2), got {verbose!r}")
        self._verbose = verbose
        self._on_train_end = _flag("prune_on_train_epoch_end", prune_on_train_epoch_end)
        if seed is not None and (isinstance(seed, bool) or not isinstance(seed, int)):
            raise ConfigError(f"seed must be an int or None, got {seed!r}")
        self._seed = seed
        self._epoch = 0
        self._net: nn.Module | None = None
        self._groups: dict[str, list[tuple[nn.Module, str]]] = {}
        self._originals: dict[str, Tensor] = {}

    def filter_parameters_to_prune(self, parameters_to_prune: ParameterList = ()) -> ParameterList:
        """Return what to prune of the parameters that were found; override it to choose."""
        return parameters_to_prune

    @staticmethod
    def sanitize_parameters_to_prune(
        pl_module: nn.Module,
        parameters_to_prune: ParameterList | None = (),
        parameter_names: Sequence[str] = (),
    ) -> ParameterList:
        """Return the parameters to prune, checked; where none is given all of the network with those names.

        Raises:
            ConfigError: The list is malformed, or a module or parameter is not in the network.
        """
        return sanitized(pl_module, parameters_to_prune, parameter_names or PARAMETER_NAMES)

    def prepare(self, net: nn.Module) -> None:
        """Begin a training: find the parameters, and keep their values to go back to.

        Raises:
            ConfigError: A parameter to prune is not in the network, or cannot be pruned in this way.
        """
        found = self.sanitize_parameters_to_prune(net, self._given, self._names)
        chosen = list(self.filter_parameters_to_prune(found))
        check_form(chosen)
        check_members(net.modules(), chosen)
        slices = self._method.slices
        self._groups = grouped(net, chosen, slices.dim if slices else None, skip_flat=not self._given)
        self._net = net
        self._epoch = 0
        self._run_seed = torch.initial_seed() if self._seed is None else self._seed
        self._originals = {}
        if not self._groups:
            warnings.warn(
                "ModelPruning: there are no parameters to prune, nothing will be pruned", stacklevel=2
            )
        if self._lottery is not False:
            self._originals = {key: value.detach().clone() for key, value in self._parameters().items()}

    def prune_epoch(self, epoch: int) -> bool:
        """Do what the arguments say for an epoch, counted from 0.

        Returns:
            Whether something was pruned.

        Raises:
            ConfigError: A function of the epoch returned an amount that is none.
            ValueError: There are fewer weights left than the amount.
        """
        self._epoch = epoch
        apply = self._apply_pruning(epoch) if callable(self._apply_pruning) else self._apply_pruning
        amount = self.amount(epoch) if callable(self.amount) else self.amount
        if not apply or not amount:
            return False
        self.apply_pruning(checked_amount(amount, f"amount in epoch {epoch}"))
        if self._lottery(epoch) if callable(self._lottery) else self._lottery:
            self.apply_lottery_ticket_hypothesis()
        return True

    def apply_pruning(self, amount: Amount) -> None:
        """Prune a fraction or a count of the weights that are left.

        Raises:
            ConfigError: The amount is none.
            ValueError: There are fewer weights left than the amount.
        """
        amount = checked_amount(amount)
        net = self._prepared()
        if not self._groups:
            return
        before = self._masks()
        after = self._method.masks(
            self._parameters(),
            amount,
            before,
            together=self._together,
            generator=generator(self._run_seed, self._epoch, 0),
        )
        set_masks(net, [(m, name, after[key]) for key, group in self._groups.items() for m, name in group])
        if self._verbose:
            self._log_sparsity(before, after, amount)

    def apply_lottery_ticket_hypothesis(self) -> None:
        """Set the parameters to their values at the start of the training, or to new ones; masks stay.

        Step 4 of the algorithm in Frankle & Carbin 2018, arXiv:1803.03635.
        """
        net = self._prepared()
        if self._groups and not self._originals:
            raise ConfigError("use_lottery_ticket_hypothesis is False, so no values were kept to go back to")
        values = {**self._originals, **(self._resampled() if self._resample else {})}
        with torch.no_grad():
            for key, parameter in self._parameters().items():
                parameter.copy_(values[key])
        refresh(net)

    def make_pruning_permanent(self, module: nn.Module) -> None:
        """Remove the masks of a network or layer for good: what they prune becomes zero."""
        remove_masks(module)

    def _prepared(self) -> nn.Module:
        if self._net is None:
            raise ConfigError("ModelPruning has no network yet: it gets one when a training begins")
        return self._net

    def _parameters(self) -> dict[str, nn.Parameter]:
        found = {key: parameter_of(*group[0]) for key, group in self._groups.items()}
        return {key: parameter for key, parameter in found.items() if parameter is not None}

    def _masks(self) -> dict[str, Tensor]:
        masks: dict[str, Tensor] = {}
        for key, group in self._groups.items():
            for mask in (mask_of(module, name) for module, name in group):
                if mask is not None:
                    masks[key] = masks[key] & mask if key in masks else mask
        return masks

    def _resampled(self) -> dict[str, Tensor]:
        values: dict[str, Tensor] = {}
        fresh: dict[int, Any] = {}
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(generator(self._run_seed, self._epoch, 1).initial_seed())
            for key, group in self._groups.items():
                module, name = group[0]
                if not callable(getattr(module, "reset_parameters", None)):
                    continue
                if id(module) not in fresh:
                    fresh[id(module)] = copy.deepcopy(module).cpu()
                    remove_masks(fresh[id(module)])
                    fresh[id(module)].reset_parameters()
                values[key] = fresh[id(module)]._parameters[name]
        return values

    def _log_sparsity(self, before: dict[str, Tensor], after: dict[str, Tensor], amount: Amount) -> None:
        n_before = {key: int((~before[key]).sum()) if key in before else 0 for key in after}
        n_after = {key: int((~mask).sum()) for key, mask in after.items()}
        total, a, b = (sum(counts) for counts in (_sizes(after), n_before.values(), n_after.values()))
        label = self._method.label
        self._log(
            f"Applied `{label}`. Pruned: {a}/{total} ({a / total:.2%}) -> {b}/{total} ({b / total:.2%})"
        )
        if self._verbose < 2:
            return
        for (key, group), size in zip(self._groups.items(), _sizes(after), strict=True):
            module, name = group[0]
            a, b = n_before[key], n_after[key]
            self._log(
                f"Applied `{label}` to `{module!r}.{name}` with amount={amount}. "
                f"Pruned: {a} ({a / size:.2%}) -> {b} ({b / size:.2%})"
            )

    def _log(self, message: str) -> None:
        if log.hasHandlers():
            log.info(message)
        else:
            print(message, file=sys.stderr)


def _sizes(masks: dict[str, Tensor]) -> list[int]:
    return [mask.numel() for mask in masks.values()]


def _flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise ConfigError(f"{name} must be True or False, got {value!r}")
    return value


def _switch(name: str, value: Switch) -> Switch:
    if not isinstance(value, bool) and not callable(value):
        raise ConfigError(f"{name} must be True, False or a function of the epoch, got {value!r}")
    return value
