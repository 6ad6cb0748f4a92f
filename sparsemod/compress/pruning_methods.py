"""The methods a pruning callback knows by name, as ways to ask the mask engine for masks."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils import prune

from sparsemod.compress.groups import Slices
from sparsemod.compress.masks import Masks, magnitude_masks
from sparsemod.compress.random_masks import random_masks
from sparsemod.errors import ConfigError, nearest

__all__ = ["Amount", "Method", "checked_amount", "generator", "pruning_method"]

Amount = int | float

NAMES = {
    "ln_structured": prune.LnStructured,
    "l1_unstructured": prune.L1Unstructured,
    "random_structured": prune.RandomStructured,
    "random_unstructured": prune.RandomUnstructured,
}


@dataclass(frozen=True, slots=True)
class Method:
    """How weights are chosen.

    Attributes:
        label: Its name in logs.
        kind: One of `NAMES`; None for a class of the user's.
        slices: What is pruned as one in structured pruning; None where single weights are.
        custom: The class of the user's, which says what stays among the weights that are left.
    """

    label: str
    kind: str | None
    slices: Slices | None = None
    custom: type[prune.BasePruningMethod] | None = None

    def masks(
        self,
        tensors: Mapping[str, Tensor],
        amount: Amount,
        base: Masks,
        *,
        together: bool,
        generator: torch.Generator,
    ) -> dict[str, Tensor]:
        """Return masks that prune `amount` more of what `base` leaves.

        Args:
            tensors: The weights by name.
            amount: A fraction of what is left, as a float, or a count.
            base: The masks so far.
            together: Whether all tensors are ranked together, or each by itself.
            generator: Where random numbers come from.

        Raises:
            ValueError: There is less left than the count, or a class of the user's returned no mask of the
                right shape.
        """
        if self.custom is not None:
            return _custom_masks(self.custom, tensors, amount, base)
        count = amount if isinstance(amount, int) else None
        rank = random_masks if self.kind and self.kind.startswith("random") else magnitude_masks
        options: dict[str, Any] = {"generator": generator} if rank is random_masks else {}
        return rank(
            tensors,
            amount if count is None else None,
            count=count,
            of="remaining",
            scope="global" if together else "local",
            structure=self.slices or "unstructured",
            base=base,
            **options,
        )


def pruning_method(pruning_fn: Any, *, together: bool, dim: Any = None, norm: Any = None) -> Method:
    """Return the method that a callback's arguments ask for.

    Args:
        pruning_fn: One of the four names, in any case, or a subclass of
            `torch.nn.utils.prune.BasePruningMethod` that prunes single weights.
        together: Whether all parameters are ranked together.
        dim: The dimension whose slices structured pruning ranks.
        norm: The order of the norm by which ``ln_structured`` ranks them.

    Raises:
        ConfigError: The method is unknown, or what it needs is missing or does not go with it.
    """
    if isinstance(pruning_fn, type) and issubclass(pruning_fn, prune.BasePruningMethod):
        if not together:
            raise ConfigError(
                f"pruning_fn: the class {pruning_fn.__name__} is currently only supported with "
                "use_global_unstructured=True"
            )
        kind = next((name for name, known in NAMES.items() if known is pruning_fn), None)
    elif isinstance(pruning_fn, str):
        kind = pruning_fn.lower()
        if kind not in NAMES:
            raise ConfigError(
                f"pruning_fn must be one of {list(NAMES)}, got {pruning_fn!r}{nearest(kind, NAMES)}"
            )
    else:
        hint = (
            ", pass the class and not an instance" if isinstance(pruning_fn, prune.BasePruningMethod) else ""
        )
        raise ConfigError(
            f"pruning_fn is expected to be a str in {list(NAMES)} or a subclass of BasePruningMethod, got "
            f"{pruning_fn!r}{hint}"
        )
    if kind is None:
        pruning_type = getattr(pruning_fn, "PRUNING_TYPE", None)
        if pruning_type != "unstructured":
            raise ConfigError(
                "pruning_fn: only the PRUNING_TYPE 'unstructured' is supported with "
                f"`use_global_unstructured=True`, {pruning_fn.__name__} has {pruning_type!r}"
            )
        return Method(pruning_fn.__name__, None, custom=pruning_fn)
    return Method(NAMES[kind].__name__ if together else kind, kind, _slices(kind, together, dim, norm))


def _slices(kind: str, together: bool, dim: Any, norm: Any) -> Slices | None:
    if not kind.endswith("_structured"):
        return None
    if dim is None:
        raise ConfigError(f"pruning_dim should be provided for {kind}")
    if isinstance(dim, bool) or not isinstance(dim, Integral):
        raise ConfigError(f"pruning_dim must be an int, got {dim!r}")
    if kind == "ln_structured":
        if norm is None:
            raise ConfigError("pruning_norm should be provided for ln_structured")
        if isinstance(norm, bool) or not isinstance(norm, Real) or math.isnan(norm):
            raise ConfigError(f"pruning_norm must be a number, got {norm!r}")
    if together:
        raise ConfigError(
            "pruning_fn: only unstructured pruning is supported with `use_global_unstructured=True`, got "
            f"{kind!r}"
        )
    return Slices(int(dim), float(norm) if kind == "ln_structured" else 2.0)


def checked_amount(amount: Any, where: str = "amount") -> Amount:
    """Return an amount to prune: a fraction in [0, 1] or a count of 0 or more.

    Raises:
        ConfigError: It is neither.
    """
    if isinstance(amount, bool) or not isinstance(amount, Real):
        raise ConfigError(f"{where} must be an int, a float or a function of the epoch, got {amount!r}")
    if isinstance(amount, Integral):
        if amount < 0:
            raise ConfigError(f"{where} must be a count of 0 or more, got {amount}")
        return int(amount)
    fraction = float(amount)
    if not 0.0 <= fraction <= 1.0:
        raise ConfigError(f"{where} must be a fraction in [0, 1] where it is a float, got {amount}")
    return fraction


def generator(*key: int) -> torch.Generator:
    """Return a generator for a key; different keys are independent, of each other and of plain seeds."""
    words = np.random.SeedSequence([part % 2**64 for part in key]).generate_state(1, np.uint64)
    return torch.Generator().manual_seed(int(words[0]) >> 1)


def _custom_masks(
    method: Callable[..., Any], tensors: Mapping[str, Tensor], amount: Amount, base: Masks
) -> dict[str, Tensor]:
    """Ask a class of the user's which of the weights that are left stay; all tensors as one vector."""
    kept = {
        name: base[name] if name in base else torch.ones_like(tensors[name], dtype=torch.bool)
        for name in tensors
    }
    remaining = torch.cat([tensor.detach()[kept[name]] for name, tensor in tensors.items()])
    takes_amount = "amount" in inspect.signature(method).parameters
    chosen = (method(amount=amount) if takes_amount else method()).compute_mask(
        remaining, default_mask=torch.ones_like(remaining)
    )
    if not isinstance(chosen, Tensor) or chosen.shape != remaining.shape:
        got = tuple(chosen.shape) if isinstance(chosen, Tensor) else type(chosen).__name__
        raise ValueError(
            f"{method.__name__}.compute_mask must return a mask of shape {tuple(remaining.shape)}, got {got}"
        )
    parts = torch.split(chosen != 0, [int(mask.sum()) for mask in kept.values()])
    return {
        name: mask.masked_scatter(mask, part) for (name, mask), part in zip(kept.items(), parts, strict=True)
    }
