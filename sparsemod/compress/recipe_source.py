"""Where the text of a recipe and the values that override its variables come from."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from sparsemod.compress.recipe_errors import FrontMatterError, RecipeError

__all__ = ["load_recipe_yaml_str", "parse_recipe_variables"]

MAX_BYTES = 1_000_000
EXTENSIONS = (".md", ".yaml", ".yml")
FRONT_MATTER = re.compile(r"^---[ \t]*\n(.*?)^---[ \t]*$", re.DOTALL | re.MULTILINE)


def load_recipe_yaml_str(source: str | Path) -> str:
    """Return the YAML text of a recipe.

    Args:
        source: The YAML itself (any text with a line break), or the path of a ``.yaml`` file or of a markdown
            file that holds the YAML between two ``---`` lines; nothing or a comment stands before them.

    Raises:
        FrontMatterError: The markdown file has no such part.
        RecipeError: There is no such file, its extension is another, it is no text or too large.
    """
    if isinstance(source, str) and ("\n" in source or "\r" in source):
        source = source.replace("\r\n", "\n")
        return _front_matter(source) if source.lstrip().startswith(("---", "<!--")) else source
    path, shown = Path(source), str(source)[:100]
    if shown.startswith("zoo:"):
        raise RecipeError(f"{shown}: recipes are read from files, not downloaded")
    if path.suffix.lower() not in EXTENSIONS:
        raise RecipeError(f"{shown}: expected a recipe file ending in {', '.join(EXTENSIONS)}, or YAML text")
    text = _read(path)
    if path.suffix.lower() != ".md":
        return text
    found = _front_matter(text)
    if found == text:
        raise FrontMatterError(f"{path}: expected a recipe between two '---' lines")
    return found


def parse_recipe_variables(overrides: Mapping[str, Any] | str | None) -> dict[str, Any]:
    """Read values for the variables of a recipe.

    Args:
        overrides: A dict, a JSON object, or ``name=value,other:value`` where numbers become floats.

    Raises:
        RecipeError: The text is neither.

    Example:
        >>> parse_recipe_variables("n=5, lr_func:cosine")
        {'n': 5.0, 'lr_func': 'cosine'}
        >>> parse_recipe_variables('{"n": 6}')
        {'n': 6}
    """
    if not overrides:
        return {}
    if isinstance(overrides, Mapping):
        return dict(overrides)
    if not isinstance(overrides, str):
        raise RecipeError(f"recipe variables: expected a dict or text, not {type(overrides).__name__}")
    if overrides.lstrip().startswith("{"):
        return _json_object(overrides)
    pairs = {}
    for pair in overrides.split(","):
        name, *values = (part.strip() for part in pair.replace(":", "=").split("="))
        if len(values) != 1 or not name or not values[0]:
            raise RecipeError(f"recipe variables: expected name=value, not '{pair.strip()}'")
        pairs[name] = _number(values[0])
    return pairs


def _front_matter(text: str) -> str:
    match = FRONT_MATTER.search(text)
    return match.group(1) if match else text


def _read(path: Path) -> str:
    try:
        n_bytes = path.stat().st_size
        if n_bytes > MAX_BYTES:
            raise RecipeError(f"{path}: a recipe file has at most {MAX_BYTES} bytes, not {n_bytes}")
        return path.read_text(encoding="utf-8").replace("\r\n", "\n")
    except UnicodeDecodeError:
        raise RecipeError(f"{path}: expected UTF-8 text") from None
    except OSError as error:
        raise RecipeError(f"{path}: {error.strerror or error}") from None


def _json_object(text: str) -> dict[str, Any]:
    try:
        values = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise RecipeError(f"recipe variables are no JSON: {error}") from None
    return dict(values)


def _number(text: str) -> float | str:
    with suppress(ValueError):
        return float(text)
    return text
