"""What can be wrong with a recipe: each a `ConfigError`, and the built-in kind that recipe code catches."""

from __future__ import annotations

import yaml

from sparsemod.errors import ConfigError, SparsemodError

__all__ = [
    "FrontMatterError",
    "LifecycleError",
    "RecipeArgumentError",
    "RecipeError",
    "RecipeEvalError",
    "RecipeStateError",
    "RecipeSyntaxError",
]


class RecipeError(ConfigError):
    """A recipe or the value of a modifier is wrong."""


class RecipeSyntaxError(RecipeError, yaml.YAMLError):
    """A recipe is not the YAML that recipes are made of, names an unknown modifier or is too large."""


class FrontMatterError(RecipeSyntaxError, RuntimeError):
    """A markdown file has no recipe between ``---`` lines at its start."""


class RecipeEvalError(RecipeError, RuntimeError):
    """An ``eval(...)`` of a recipe or the variables it stands on cannot be evaluated."""


class RecipeArgumentError(RecipeError, TypeError):
    """A modifier of a recipe has an unknown argument or lacks one."""


class RecipeStateError(RecipeError, IndexError):
    """A stored state does not belong to this recipe."""


class LifecycleError(SparsemodError, RuntimeError):
    """A modifier or manager is used before it was initialized, or out of its schedule."""
