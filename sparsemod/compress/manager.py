"""The modifiers of a recipe, in order, as a whole: their epochs, their phases, their text."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cmp_to_key
from pathlib import Path
from typing import Any, Self

from sparsemod.compress.composing import composed, start_all_at_once
from sparsemod.compress.modifier import BaseModifier, BaseObject, SparsificationTypes
from sparsemod.compress.recipe_errors import RecipeError
from sparsemod.compress.recipe_metadata import metadata_lines
from sparsemod.compress.recipe_text import METADATA
from sparsemod.compress.recipe_yaml import yaml_value

__all__ = ["BaseManager", "first_epoch", "last_epoch"]

VERSION = "1.1.0"


class BaseManager(BaseObject):
    """Holds the modifiers of a recipe, sorted by end, then start.

    Args:
        modifiers: A list, or a list for each stage.
        metadata: ``{"__metadata__": value}``, or a value for each stage.

    Raises:
        RecipeError: `modifiers` is neither.
    """

    def __init__(
        self,
        modifiers: Sequence[Any] | Mapping[str, Sequence[Any]],
        metadata: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self._metadata = dict(metadata) if metadata else None
        self._modifiers = _sorted(modifiers)

    def __str__(self) -> str:
        return "\n".join(self.to_string_lines())

    def __eq__(self, other: object) -> bool:
        return str(self) == str(other)

    @property
    def modifiers(self) -> Any:
        """A list, or an ordered dict of lists by stage."""
        return self._modifiers

    @property
    def metadata(self) -> dict[str, Any] | None:
        """What the recipe says about itself."""
        return self._metadata

    @metadata.setter
    def metadata(self, value: Mapping[str, Any] | None) -> None:
        self._metadata = dict(value) if value else None

    def num_stages(self) -> int:
        """Return the number of stages; 1 for a recipe without."""
        return len(self._modifiers) if isinstance(self._modifiers, dict) else 1

    def iter_modifiers(self) -> Iterator[Any]:
        """Walk over all modifiers, stage by stage."""
        for group in self._groups():
            yield from group

    @property
    def epoch_modifiers(self) -> list[Any]:
        """The modifiers that set the range of epochs."""
        return self._of_type(SparsificationTypes.epoch)

    @property
    def learning_rate_modifiers(self) -> list[Any]:
        """The modifiers that set the learning rate."""
        return self._of_type(SparsificationTypes.learning_rate)

    @property
    def pruning_modifiers(self) -> list[Any]:
        """The modifiers that prune."""
        return self._of_type(SparsificationTypes.pruning)

    @property
    def quantization_modifiers(self) -> list[Any]:
        """The modifiers that quantize."""
        return self._of_type(SparsificationTypes.quantization)

    @property
    def distillation_modifiers(self) -> list[Any]:
        """The modifiers that add a teacher's loss."""
        return self._of_type(SparsificationTypes.distillation)

    @property
    def structured_modifiers(self) -> list[Any]:
        """The modifiers that change the structure of the network."""
        return self._of_type(SparsificationTypes.structured)

    @property
    def min_epochs(self) -> int:
        """The first epoch in which something starts; -1 when nothing says."""
        return first_epoch(self.iter_modifiers())

    @property
    def max_epochs(self) -> int:
        """The epochs to train until everything has started and ended; -1 when nothing says."""
        return last_epoch(self.iter_modifiers())

    def get_start_end_epochs(self) -> dict[str, tuple[int, int]]:
        """Return the first and last epoch of each stage, or of "all" in a recipe without stages."""
        groups = self._modifiers if isinstance(self._modifiers, dict) else {"all": self._modifiers}
        return {name: (first_epoch(group), last_epoch(group)) for name, group in groups.items()}

    def get_last_start_epoch(self) -> float:
        """Return the latest start; -1 when nothing says."""
        return max(
            (getattr(modifier, "start_epoch", -1.0) for modifier in self.iter_modifiers()), default=-1.0
        )

    def qat_active(self, epoch: float) -> bool:
        """Say whether quantization-aware training runs at the start of an epoch or begins within it."""
        starts = [modifier.start_epoch for modifier in self.quantization_modifiers]
        return bool(starts) and min(starts) < epoch + 1

    def phase(self, epoch: float) -> str | None:
        """Name the state of the network at a moment.

        Args:
            epoch: The moment. The end of pruning or quantizing still belongs to it.

        Returns:
            None while pruning or quantizing is in progress; else dense, dense_quantized, pruned,
            pruned_quantized or quantized_pruned.
        """
        pruning, quantizing = map(_span, (self.pruning_modifiers, self.quantization_modifiers))
        if any(span is not None and span[0] <= epoch <= span[1] for span in (pruning, quantizing)):
            return None
        pruned, quantized = (span is not None and span[1] < epoch for span in (pruning, quantizing))
        if pruned and quantized and pruning is not None and quantizing is not None:
            return "pruned_quantized" if pruning[1] <= quantizing[1] else "quantized_pruned"
        return "pruned" if pruned else "dense_quantized" if quantized else "dense"

    def to_string_lines(self, include_metadata: bool = True) -> list[str]:
        """Return the recipe's text in lines."""
        lines = [f"version: {VERSION}", ""]
        if isinstance(self._modifiers, dict):
            return lines + self.modifiers_to_string_lines(self._modifiers, include_metadata)
        if include_metadata:
            lines += self.metadata_to_string_lines()
        return [*lines, "modifiers:", *self.modifiers_list_to_string_lines(self._modifiers)]

    def metadata_to_string_lines(self, stage: str | None = None) -> list[str]:
        """Return the metadata of the recipe, or of one stage, in lines; none where there is none."""
        value = (self._metadata or {}).get(stage or METADATA)
        return [] if value is None else [*metadata_lines(value, "  " if stage else ""), ""]

    def modifiers_to_string_lines(
        self, modifiers: Sequence[Any] | Mapping[str, Sequence[Any]], include_metadata: bool = True
    ) -> list[str]:
        """Return modifiers, or stages of them, in lines."""
        if not isinstance(modifiers, Mapping):
            return self.modifiers_list_to_string_lines(modifiers)
        lines = []
        for stage, group in modifiers.items():
            lines.append(f"{yaml_value(stage)}:")
            if include_metadata:
                lines += self.metadata_to_string_lines(stage)
            lines.append(f"  {yaml_value(f'{stage}_modifiers')}:")
            lines += [f"  {line}" for line in self.modifiers_list_to_string_lines(group)]
            lines.append("")
        return lines

    def modifiers_list_to_string_lines(self, modifiers: Sequence[Any]) -> list[str]:
        """Return a list of modifiers in lines."""
        lines = []
        for modifier in modifiers:
            first, *others = str(modifier).splitlines()
            lines += [f"    - {first}", *(f"    {line}" for line in others), ""]
        return lines

    def save(self, file_path: str | Path, include_metadata: bool = True) -> None:
        """Write the recipe; missing folders are made."""
        path = Path(file_path)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(self.to_string_lines(include_metadata)), encoding="utf-8")

    @classmethod
    def compose_staged(
        cls,
        base_recipe: str | Path | BaseManager,
        additional_recipe: str | Path | BaseManager,
        keep_original_epochs: bool = False,
        save_path: str | Path | None = None,
    ) -> Self:
        """Put a second recipe behind a first one, as stages; neither is changed.

        Args:
            base_recipe: The first: text, path or manager.
            additional_recipe: The second.
            keep_original_epochs: Leave the epochs as they are; else the second starts where the first ends.
            save_path: Where to write the result.

        Raises:
            RecipeError: A stage is in both, or the first never ends.
        """
        managers = [
            cls.from_yaml(str(recipe) if isinstance(recipe, BaseManager) else recipe)
            for recipe in (base_recipe, additional_recipe)
        ]
        manager = cls(*composed(managers[0], managers[1], keep_original_epochs))
        if save_path is not None:
            manager.save(save_path)
        return manager

    def finalize_and_save_structured_modifiers(self, file_path: str | Path) -> None:
        """Write a recipe of the structured modifiers alone, which all act by epoch 0, in their order here."""
        texts = [self.modifiers_list_to_string_lines([modifier]) for modifier in self.structured_modifiers]
        copies = [self.from_yaml("\n".join(["modifiers:", *lines])).modifiers[0] for lines in texts]
        start_all_at_once(copies)
        type(self)(copies).save(file_path)

    @classmethod
    def from_yaml(cls, file_path: str | Path) -> Self:
        """Read a recipe; managers of a framework know how.

        Raises:
            NotImplementedError: This one belongs to no framework.
        """
        raise NotImplementedError(f"{cls.__name__} belongs to no framework")

    def _groups(self) -> list[list[Any]]:
        return list(self._modifiers.values()) if isinstance(self._modifiers, dict) else [self._modifiers]

    def _of_type(self, kind: SparsificationTypes) -> list[Any]:
        return [m for m in self.iter_modifiers() if kind in getattr(m, "sparsification_types", ())]


def first_epoch(modifiers: Iterable[Any]) -> int:
    """Return the smallest start, rounded down; -1 when nothing says."""
    starts = [getattr(modifier, "start_epoch", -1.0) for modifier in modifiers]
    return min((math.floor(start) for start in starts if start > -1), default=-1)


def last_epoch(modifiers: Iterable[Any]) -> int:
    """Return the largest start or end, rounded up; -1 when nothing says."""
    epochs = [getattr(m, name, -1.0) for m in modifiers for name in ("start_epoch", "end_epoch")]
    return max((math.ceil(epoch) for epoch in epochs if epoch > -1), default=-1)


def _sorted(modifiers: Any) -> Any:
    by_schedule = cmp_to_key(BaseModifier.comparator)
    if isinstance(modifiers, Mapping):
        stages = {stage: sorted(group, key=by_schedule) for stage, group in modifiers.items()}
        by_list = cmp_to_key(BaseModifier.comparator_lists)
        return OrderedDict(sorted(stages.items(), key=lambda item: by_list(item[1])))
    if isinstance(modifiers, list | tuple):
        return sorted(modifiers, key=by_schedule)
    raise RecipeError(f"modifiers must be a list or a dict of lists, not {type(modifiers).__name__}")


def _span(modifiers: Sequence[Any]) -> tuple[float, float] | None:
    """Return the first start and the last end; a modifier without an end has done its work when it starts."""
    if not modifiers:
        return None
    return min(m.start_epoch for m in modifiers), max(max(m.start_epoch, m.end_epoch) for m in modifiers)
