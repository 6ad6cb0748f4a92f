"""What all modifiers share, whatever they modify: properties, text, identity, order, schedule."""

from __future__ import annotations

import hashlib
from enum import StrEnum
from typing import Any

from sparsemod.compress.checks import boolean
from sparsemod.compress.ordering import (
    compare,
    compare_ends,
    compare_identifiers,
    compare_lists,
    compare_starts,
)
from sparsemod.compress.props import Argument, ModifierProp
from sparsemod.compress.recipe_errors import RecipeError
from sparsemod.compress.recipe_source import load_recipe_yaml_str
from sparsemod.compress.recipe_text import parse_recipe
from sparsemod.compress.recipe_yaml import yaml_value
from sparsemod.compress.registry import build_modifier

__all__ = ["BaseModifier", "BaseObject", "SparsificationTypes"]


class SparsificationTypes(StrEnum):
    """What a modifier changes."""

    general = "general"
    epoch = "epoch"
    learning_rate = "learning_rate"
    activation_sparsity = "activation_sparsity"
    pruning = "pruning"
    quantization = "quantization"
    distillation = "distillation"
    regularization = "regularization"
    structured = "structured"


class BaseObject:
    """The end of a chain of constructors: takes no argument that none of them wanted.

    Raises:
        RecipeError: There is one left.
    """

    def __init__(self, **kwargs: Any) -> None:
        if kwargs:
            raise RecipeError(f"{type(self).__name__} has no argument {', '.join(kwargs)}")


class BaseModifier(BaseObject):
    """The parent of all modifiers."""

    changes: tuple[SparsificationTypes, ...] = ()
    """What it changes, by class."""

    enabled = Argument(
        boolean("enabled"), "Whether it makes its updates.", serializable=False, restrict_initialized=False
    )

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._initialized = False
        self._enabled = True

    def __str__(self) -> str:
        lines = [f"    {name}: {value}" for name, value in self.props(True, format_str=True).items()]
        return "\n".join([self.yaml_key(type(self)), *lines])

    def __repr__(self) -> str:
        values = self.props(only_serializable=False, format_repr=True)
        return f"{type(self).__name__}({', '.join(f'{name}={value}' for name, value in values.items())})"

    def keep(self, **arguments: Any) -> None:
        """Check and store arguments that are declared as `Argument`, then what they mean together.

        Raises:
            RecipeError: One of them is wrong.
        """
        for name, value in arguments.items():
            setattr(self, f"_{name}", getattr(type(self), name).converted(value))
        self.validate()

    def validate(self) -> None:
        """Check what the arguments mean together; called whenever one of them is set."""

    @ModifierProp(serializable=False)
    def sparsification_types(self) -> list[SparsificationTypes]:
        """What it changes."""
        return list(self.changes)

    @ModifierProp(serializable=False)
    def initialized(self) -> bool:
        """Whether it is attached to a network."""
        return self._initialized

    def props(
        self, only_serializable: bool, format_str: bool = False, format_repr: bool = False
    ) -> dict[str, Any]:
        """Collect the properties by name, in alphabetical order.

        Args:
            only_serializable: Leave out those that a recipe does not hold.
            format_str: The values as a recipe writes them.
            format_repr: The values as Python writes them.

        Raises:
            RecipeError: Both formats are asked for.
        """
        if format_str and format_repr:
            raise RecipeError("props: expected format_str or format_repr, not both")
        collected = {}
        for name in sorted(dir(type(self))):
            prop = getattr(type(self), name, None)
            if not isinstance(prop, ModifierProp) or (only_serializable and not prop.serializable):
                continue
            value = getattr(self, name)
            if only_serializable and value == prop.no_serialize_val:
                continue
            collected[name] = yaml_value(value) if format_str else repr(value) if format_repr else value
        return collected

    def identifier(self, extra: Any = "") -> str:
        """Return a name that is equal for modifiers of one class with equal arguments.

        Args:
            extra: Appended after a dash.
        """
        pairs = sorted(f"{name}:{value}" for name, value in self.props(True, format_str=True).items())
        digest = hashlib.md5(str(pairs).encode(), usedforsecurity=False).hexdigest()
        return f"{type(self).__name__}-{digest}{f'-{extra}' if extra != '' else ''}"

    @staticmethod
    def yaml_key(clazz: type, framework: str | None = None) -> str:
        """Return the tag of a class in a recipe.

        Example:
            >>> BaseModifier.yaml_key(BaseModifier, "pytorch")
            '!pytorch.BaseModifier'
        """
        return f"!{framework}.{clazz.__name__}" if framework else f"!{clazz.__name__}"

    comparator = staticmethod(compare)
    comparator_ends = staticmethod(compare_ends)
    comparator_identifiers = staticmethod(compare_identifiers)
    comparator_lists = staticmethod(compare_lists)
    comparator_starts = staticmethod(compare_starts)

    @staticmethod
    def load_framework_list(yaml_str: str, framework: str) -> Any:
        """Make the modifiers of a recipe.

        Args:
            yaml_str: The recipe's YAML.
            framework: The one that the modifiers were registered for.

        Returns:
            A list, or a dict of lists by stage.

        Raises:
            RecipeError: It is no recipe, or a modifier is unknown or has wrong arguments.
        """
        items = parse_recipe(load_recipe_yaml_str(yaml_str + "\n")).modifiers
        if isinstance(items, list):
            return [build_modifier(item, framework) for item in items]
        return {stage: [build_modifier(item, framework) for item in group] for stage, group in items.items()}

    @staticmethod
    def load_framework_obj(yaml_str: str, framework: str) -> Any:
        """Make the one modifier that a text holds.

        Raises:
            RecipeError: It holds none or several, or it is unknown or has wrong arguments.
        """
        loaded = BaseModifier.load_framework_list(yaml_str, framework)
        if not isinstance(loaded, list) or len(loaded) != 1:
            raise RecipeError("expected the text of one modifier: '!Name' and its arguments")
        return loaded[0]
