"""The YAML of recipes: a loader of plain values, within limits, and the writer of single values."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import yaml

from sparsemod.compress.recipe_errors import RecipeError, RecipeSyntaxError

__all__ = ["Tagged", "load_yaml", "yaml_value"]

MAX_CHARACTERS = 100_000
MAX_DEPTH = 20
MAX_NODES = 10_000

FLOAT = re.compile(r"[-+]?(?:[0-9][0-9_]*\.[0-9_]*|\.[0-9][0-9_]*|[0-9][0-9_]*(?=[eE]))(?:[eE][-+]?[0-9]+)?$")
PLAIN = re.compile(r"[A-Za-z0-9_./][\w./+ -]*", re.ASCII)


@dataclass(frozen=True)
class Tagged:
    """A ``!Name`` of a recipe with its arguments, before it becomes a modifier.

    Attributes:
        name: The word behind the exclamation mark, with the framework's prefix if there was one.
        arguments: The keyword arguments, with ``eval(...)`` not yet evaluated.
        line: Where it stands, counted from 1.
    """

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    line: int = 0


class _Loader(yaml.SafeLoader):
    """Builds str, int, float, bool, None, list, dict and `Tagged`; counts depth and nodes."""

    yaml_constructors: ClassVar[dict[Any, Any]] = {}
    yaml_multi_constructors: ClassVar[dict[Any, Any]] = {}

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.depth = 0
        self.n_nodes = 0
        self.sizes: dict[int, int] = {}

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        is_alias = self.check_event(yaml.AliasEvent)
        self.depth += 1
        self.n_nodes += 1
        if self.depth > MAX_DEPTH:
            raise RecipeSyntaxError(f"a recipe nests at most {MAX_DEPTH} levels")
        node = super().compose_node(parent, index)
        self.depth -= 1
        if node is None:
            return None
        if is_alias and id(node) not in self.sizes:
            raise RecipeSyntaxError(f"line {node.start_mark.line + 1}: a value contains itself")
        if not is_alias:
            self.sizes[id(node)] = 1 + sum(self.sizes[id(child)] for child in _children(node))
        if max(self.n_nodes, self.sizes[id(node)]) > MAX_NODES:
            raise RecipeSyntaxError(f"a recipe has at most {MAX_NODES} values, aliases expanded")
        return node

    def tagged(self, suffix: str, node: yaml.Node) -> Tagged:
        line = node.start_mark.line + 1
        if isinstance(node, yaml.MappingNode):
            arguments = self.construct_mapping(node, deep=True)
            if not all(isinstance(key, str) for key in arguments):
                raise RecipeSyntaxError(f"line {line}: the arguments of !{suffix} need names")
            return Tagged(suffix, {str(key): value for key, value in arguments.items()}, line)
        if isinstance(node, yaml.ScalarNode) and not node.value:
            return Tagged(suffix, {}, line)
        raise RecipeSyntaxError(f"line {line}: !{suffix} takes arguments as 'name: value' lines")

    def refuse(self, node: yaml.Node) -> None:
        raise RecipeSyntaxError(f"line {node.start_mark.line + 1}: a recipe holds no {node.tag}")


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
for _kind in ("null", "bool", "int", "float", "str", "seq", "map"):
    _tag = f"tag:yaml.org,2002:{_kind}"
    _Loader.add_constructor(_tag, yaml.SafeLoader.yaml_constructors[_tag])
_Loader.add_constructor(None, _Loader.refuse)
_Loader.add_multi_constructor("!", _Loader.tagged)
_Loader.add_implicit_resolver("tag:yaml.org,2002:float", FLOAT, list("-+0123456789."))


def load_yaml(text: str) -> Any:
    """Read the YAML of a recipe.

    ``1e-5`` is a number here, as people write it, although YAML 1.1 asks for a point.

    Raises:
        RecipeSyntaxError: It is no YAML, asks for an object, is too long, too deep, or too large.
    """
    if len(text) > MAX_CHARACTERS:
        raise RecipeSyntaxError(f"a recipe has at most {MAX_CHARACTERS} characters, this one has {len(text)}")
    try:
        loader = _Loader(text)
        return loader.get_single_data()
    except RecipeSyntaxError:
        raise
    except (yaml.YAMLError, ValueError, TypeError, OverflowError, RecursionError) as error:
        raise RecipeSyntaxError(f"the recipe is no YAML: {' '.join(str(error).split())[:300]}") from None


def yaml_value(value: Any, *, nested: bool = False) -> str:
    """Write one value in one line so that `load_yaml` reads the same value back.

    Raises:
        RecipeError: The value is not made of str, int, float, bool, None, list, tuple and dict.

    Example:
        >>> yaml_value(["re:.*weight"])
        "['re:.*weight']"
        >>> yaml_value({0.8: ["a"], "b": None})
        "{0.8: ['a'], 'b': null}"
        >>> yaml_value("a: b")
        "'a: b'"
        >>> yaml_value(1e-05)
        '1.0e-05'
    """
    if value is None:
        return "null"
    if isinstance(value, bool | int):
        return str(value)
    if isinstance(value, float):
        return _float(value)
    if isinstance(value, str):
        return _string(value, plain=not nested)
    if isinstance(value, list | tuple):
        return f"[{', '.join(yaml_value(item, nested=True) for item in value)}]"
    if isinstance(value, Mapping):
        pairs = (
            f"{yaml_value(key, nested=True)}: {yaml_value(item, nested=True)}" for key, item in value.items()
        )
        return f"{{{', '.join(pairs)}}}"
    raise RecipeError(f"a recipe cannot hold {value!r} of type {type(value).__name__}")


def _children(node: yaml.Node) -> list[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        return [child for pair in node.value for child in pair]
    return list(node.value) if isinstance(node, yaml.SequenceNode) else []


def _float(value: float) -> str:
    if math.isnan(value):
        return ".nan"
    if math.isinf(value):
        return ".inf" if value > 0 else "-.inf"
    text = repr(value)
    mantissa, e, exponent = text.partition("e")
    return text if not e or "." in mantissa else f"{mantissa}.0e{exponent}"


def _string(value: str, *, plain: bool) -> str:
    if plain and PLAIN.fullmatch(value) and value == value.strip() and _resolves_to_string(value):
        return value
    if value.isprintable():
        return "'" + value.replace("'", "''") + "'"
    dumped: str = yaml.dump(value, default_style='"', width=math.inf, allow_unicode=True)
    return dumped.rstrip("\n")


def _resolves_to_string(value: str) -> bool:
    resolvers = _Loader.yaml_implicit_resolvers
    candidates = [*resolvers.get(value[0], []), *resolvers.get(None, [])]
    return not any(pattern.match(value) for _, pattern in candidates)
