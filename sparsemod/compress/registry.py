"""Which modifiers recipes may name, and how an item of a recipe becomes one."""

from __future__ import annotations

from typing import Any, TypeVar

from sparsemod.compress.recipe_errors import RecipeArgumentError, RecipeError, RecipeSyntaxError
from sparsemod.compress.recipe_yaml import Tagged
from sparsemod.errors import nearest

__all__ = ["ModifierYAML", "build_modifier"]

IGNORED = ("log_types",)
"""Arguments of old recipes that no longer mean anything."""

_REGISTRY: dict[str, dict[str, type[Any]]] = {}
_Class = TypeVar("_Class", bound=type[Any])


class ModifierYAML:
    """A class decorator that makes a modifier known to recipes by its name.

    Args:
        framework: Where it belongs; recipes may write ``!Name`` or ``!framework.Name``.

    Raises:
        RecipeError: The framework has no name.
    """

    def __init__(self, framework: str) -> None:
        if not framework:
            raise RecipeError("ModifierYAML needs the name of a framework")
        self._framework = framework

    def __call__(self, clazz: _Class) -> _Class:
        """Register the class."""
        _REGISTRY.setdefault(self._framework, {})[clazz.__name__] = clazz
        return clazz


def build_modifier(item: Tagged, framework: str) -> Any:
    """Make the modifier of a recipe's item.

    Raises:
        RecipeSyntaxError: There is no modifier of that name.
        RecipeArgumentError: An argument is unknown or missing.
        RecipeError: An argument has a wrong value.
    """
    known = _REGISTRY.get(framework, {})
    name = item.name.removeprefix(f"{framework}.")
    if name not in known:
        raise RecipeSyntaxError(f"line {item.line}: unknown modifier !{item.name}{nearest(name, known)}")
    arguments = {key: value for key, value in item.arguments.items() if key not in IGNORED}
    try:
        return known[name](**arguments)
    except RecipeArgumentError:
        raise
    except RecipeError as error:
        raise RecipeError(f"line {item.line}: {error}") from None
    except TypeError as error:
        raise RecipeArgumentError(f"line {item.line}: {error}") from None
    except ValueError as error:
        raise RecipeError(f"line {item.line}: !{item.name}: {error}") from None
