"""From the text of a recipe to its stages, with every variable and ``eval(...)`` resolved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sparsemod.compress.expressions import evaluate, names
from sparsemod.compress.recipe_errors import RecipeError, RecipeEvalError
from sparsemod.compress.recipe_yaml import Tagged, load_yaml
from sparsemod.errors import nearest

__all__ = ["METADATA", "Recipe", "parse_recipe"]

METADATA = "__metadata__"
MODIFIERS = "modifiers"
NOT_VARIABLES = (METADATA, "version")
MAX_CHAIN = 100
MAX_MODIFIERS = 1000


@dataclass(frozen=True)
class Recipe:
    """What a recipe says, before its modifiers are made.

    Attributes:
        modifiers: The tagged items in order: a list, or a list for each stage.
        metadata: ``{"__metadata__": value or None}``, or the value or None for each stage.
    """

    modifiers: list[Tagged] | dict[str, list[Tagged]]
    metadata: dict[str, Any]


@dataclass(frozen=True)
class _Scope:
    """Variables as written, inside their surroundings, and the ones that are already evaluated."""

    written: Mapping[str, Any]
    outer: _Scope | None = None
    done: dict[str, Any] = field(default_factory=dict)
    pending: list[str] = field(default_factory=list)

    def known(self) -> set[str]:
        return {*self.written, *(self.outer.known() if self.outer else ())}

    def value(self, name: str) -> Any:
        """Evaluate a variable on first use, so that the order in the file does not matter."""
        if name not in self.written:
            if self.outer is None:
                raise RecipeEvalError(f"unknown variable '{name}'{nearest(name, self.known())}")
            return self.outer.value(name)
        if name not in self.done:
            if name in self.pending[-1:] and self.outer is not None and name in self.outer.known():
                return self.outer.value(name)
            if name in self.pending:
                raise RecipeEvalError(f"variables in a circle: {' -> '.join([*self.pending, name][-9:])}")
            if len(self.pending) == MAX_CHAIN:
                raise RecipeEvalError(f"'{name}' ends a chain of more than {MAX_CHAIN} variables")
            self.pending.append(name)
            self.done[name] = self.definition(self.written[name])
            self.pending.pop()
        return self.done[name]

    def definition(self, written: Any) -> Any:
        """Evaluate what a variable is defined as.

        A stage's ``x: eval(y)`` takes the global y even where the stage has its own: that is how a stage
        keeps hold of a global it shadows.
        """
        inside = _inside_eval(written)
        if inside is not None and self.outer is not None and inside in self.outer.known():
            return self.outer.value(inside)
        return self.resolve(written)

    def resolve(self, value: Any, *, nested: bool = False) -> Any:
        """Replace every ``eval(...)`` in a value."""
        if isinstance(value, Tagged):
            return replace(
                value, arguments={key: self.resolve(item) for key, item in value.arguments.items()}
            )
        if isinstance(value, list):
            return [self.resolve(item, nested=True) for item in value]
        if isinstance(value, dict):
            pairs = value.items()
            return {self.resolve(key, nested=True): self.resolve(item, nested=True) for key, item in pairs}
        inside = _inside_eval(value)
        if inside is None:
            return value
        used = {inside} if inside in self.known() else names(inside)
        result = evaluate(inside, {name: self.value(name) for name in sorted(used)})
        if nested and isinstance(result, list | dict):
            raise RecipeEvalError(f"{value}: a list or mapping cannot go inside another one")
        return result


def parse_recipe(
    text: str, overrides: Mapping[str, Any] | None = None, names_from: Mapping[str, Any] | None = None
) -> Recipe:
    """Read a recipe.

    Args:
        text: Its YAML. The root is a single ``!Modifier``, a list of them, groups of them under keys that
            contain "modifiers", or stages that hold such groups. All other keys are variables.
        overrides: Values that replace variables; in a recipe of stages every one of that name.
        names_from: More values that expressions may use, such as a parametrization. They replace variables of
            the same name.

    Raises:
        RecipeError: The text is no recipe, or an override names no variable of it.
        RecipeEvalError: A variable is unknown or stands on itself, or an ``eval(...)`` has no value.
    """
    root = load_yaml(text)
    if isinstance(root, Tagged):
        root = {MODIFIERS: [root]}
    elif isinstance(root, list):
        root = {MODIFIERS: root}
    if not isinstance(root, dict):
        raise RecipeError("a recipe is a YAML mapping that holds a list of modifiers under 'modifiers'")
    root = {str(key): value for key, value in root.items()}
    stages = {key: value for key, value in root.items() if _is_stage(value)}
    if stages and _groups(root):
        raise RecipeError(
            f"a recipe has either stages ({', '.join(stages)}) or modifiers at its root, not both"
        )
    parts = [root, *stages.values()]
    _check_lists(parts)
    written = [_variables(part) for part in parts]
    _override(written, overrides or {})
    given = dict(names_from or {})
    written = [{**part, **{key: given[key] for key in part if key in given}} for part in written]
    scope = _Scope(written[0], _Scope(given))
    if not stages:
        return Recipe(_resolved(root, scope), {METADATA: root.get(METADATA)})
    scopes = [_Scope(variables, scope) for variables in written[1:]]
    return Recipe(
        {name: _resolved(stages[name], inner) for name, inner in zip(stages, scopes, strict=True)},
        {name: stages[name].get(METADATA, root.get(METADATA)) for name in stages},
    )


def _inside_eval(value: Any) -> str | None:
    if not isinstance(value, str):
        return None
    text = value.strip()
    return text[5:-1].strip() if text.startswith("eval(") and text.endswith(")") else None


def _is_stage(value: Any) -> bool:
    return isinstance(value, dict) and any(MODIFIERS in str(key) for key in value)


def _groups(part: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in part.items() if MODIFIERS in str(key)}


def _variables(part: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: value
        for key, value in part.items()
        if MODIFIERS not in str(key) and key not in NOT_VARIABLES and not _is_stage(value)
    }


def _check_lists(parts: Sequence[Mapping[str, Any]]) -> None:
    groups = [group for part in parts for group in _groups(part).items() if group[1] is not None]
    if not any(_groups(part) for part in parts):
        raise RecipeError("a recipe needs a list of modifiers under a key that contains 'modifiers'")
    for key, value in groups:
        if not isinstance(value, list) or not all(isinstance(item, Tagged) for item in value):
            raise RecipeError(f"'{key}' must hold a list of '- !Modifier' items")
    if sum(len(value) for _, value in groups) > MAX_MODIFIERS:
        raise RecipeError(f"a recipe has at most {MAX_MODIFIERS} modifiers")
    for part in parts:
        for key, value in _variables(part).items():
            if isinstance(value, Tagged) or (
                isinstance(value, list) and any(isinstance(v, Tagged) for v in value)
            ):
                raise RecipeError(f"'{key}' holds modifiers: the name of their list must contain 'modifiers'")


def _override(written: Sequence[dict[str, Any]], overrides: Mapping[str, Any]) -> None:
    known = {name for part in written for name in part}
    for name, value in overrides.items():
        if name not in known:
            raise RecipeError(f"'{name}' is no variable of the recipe{nearest(name, known)}")
        for part in written:
            if name in part:
                part[name] = value


def _resolved(part: Mapping[str, Any], scope: _Scope) -> list[Tagged]:
    for name in scope.written:
        scope.value(name)
    return [scope.resolve(item) for group in _groups(part).values() for item in group or ()]
