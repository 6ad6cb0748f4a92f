"""Recipes from recipes: one behind another, or only what changes a network's structure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sparsemod.compress.recipe_errors import RecipeError
from sparsemod.compress.recipe_text import METADATA

__all__ = ["composed", "start_all_at_once"]

Stages = dict[str, list[Any]]


def composed(base: Any, additional: Any, keep_original_epochs: bool) -> tuple[Stages, dict[str, Any] | None]:
    """Join two managers to stages and their metadata; the managers' modifiers are moved in time.

    Unless the epochs are kept, the second starts at the last epoch E of the first: ends of -1 in the first
    become E, and everything in the second moves by E.

    Args:
        base: The first.
        additional: The second.
        keep_original_epochs: Leave the epochs as they are.

    Raises:
        RecipeError: A stage is in both, or the first never ends.
    """
    first, second = _names(base.modifiers, additional.modifiers)
    shared = sorted(set(first) & set(second))
    if shared:
        raise RecipeError(f"both recipes have the stage {', '.join(shared)}")
    if not keep_original_epochs:
        _move(base, additional)
    stages = {**_stages(base.modifiers, first), **_stages(additional.modifiers, second)}
    metadata = {**_metadata(base, first), **_metadata(additional, second)}
    if all(value is None for value in metadata.values()):
        return stages, metadata
    return stages, {stage: {} if value is None else value for stage, value in metadata.items()}


def start_all_at_once(modifiers: Sequence[Any]) -> None:
    """Let modifiers all act by epoch 0, in the order given, and never end."""
    for index, modifier in enumerate(modifiers):
        modifier.start_at_once(-1.0 + index / len(modifiers))


def _names(base: Any, additional: Any) -> tuple[list[str], list[str]]:
    if isinstance(base, Mapping):
        if isinstance(additional, Mapping):
            return list(base), list(additional)
        return list(base), [f"stage_{len(base) + 1}"]
    if isinstance(additional, Mapping):
        return [f"pre_{next(iter(additional))}"], list(additional)
    return ["stage_0"], ["stage_1"]


def _stages(modifiers: Any, names: Sequence[str]) -> Stages:
    groups = modifiers.values() if isinstance(modifiers, Mapping) else [modifiers]
    return dict(zip(names, groups, strict=True))


def _metadata(manager: Any, names: Sequence[str]) -> dict[str, Any]:
    stored = manager.metadata or {}
    if isinstance(manager.modifiers, Mapping):
        return {name: stored.get(name) for name in names}
    return {names[0]: stored.get(METADATA)}


def _move(base: Any, additional: Any) -> None:
    end = base.max_epochs
    if end == -1:
        raise RecipeError(
            "the first recipe never ends: give it an EpochRangeModifier, or keep the original epochs"
        )
    for modifier in base.iter_modifiers():
        if getattr(modifier, "end_epoch", None) == -1 and not getattr(modifier, "never_ends", False):
            modifier.reschedule(modifier.start_epoch, end)
    for modifier in additional.iter_modifiers():
        if hasattr(modifier, "advance_epochs"):
            modifier.advance_epochs(end)
