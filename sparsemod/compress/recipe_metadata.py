"""The ``__metadata__`` of recipes: which value holds, what is added, and how it is written."""

from __future__ import annotations

import platform
import warnings
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch

from sparsemod.compress.recipe_errors import RecipeError
from sparsemod.compress.recipe_text import METADATA
from sparsemod.compress.recipe_yaml import yaml_value

__all__ = ["FRAMEWORK_METADATA", "add_framework_metadata", "metadata_lines", "validate_metadata"]

FRAMEWORK_METADATA = "framework_metadata"


def validate_metadata(new: Mapping[str, Any] | None, stored: Mapping[str, Any]) -> dict[str, Any]:
    """Choose between the metadata given now and what the recipe holds.

    Args:
        new: Replaces what is stored. For a recipe of stages either one value for all of them or one for each.
        stored: ``{"__metadata__": value or None}``, or the value or None of each stage.

    Raises:
        RecipeError: Some stages have metadata and some have none.
    """
    with_metadata = [stage for stage, value in stored.items() if value is not None]
    if with_metadata and len(with_metadata) < len(stored):
        without = ", ".join(stage for stage in stored if stage not in with_metadata)
        raise RecipeError(f"every stage needs metadata or none; there is none in {without}")
    if new is None:
        return dict(stored)
    by_key = set(new) == set(stored)
    merged = {key: new[key] if by_key else dict(new) for key in stored}
    if with_metadata and _without_framework(merged) != _without_framework(stored):
        warnings.warn("the metadata of the recipe is replaced by the metadata given", stacklevel=3)
    return merged


def add_framework_metadata(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Add the versions of Python, sparsemod and torch to every value that is a mapping.

    Warns where other versions are stored, since the recipe may then not repeat exactly.
    """
    versions = {
        "python_version": platform.python_version(),
        "sparsemod_version": _package_version(),
        "torch_version": torch.__version__,
    }
    for value in metadata.values():
        stored = value.get(FRAMEWORK_METADATA) if isinstance(value, Mapping) else None
        if stored is not None and stored != versions:
            warnings.warn(f"the recipe was made with {stored}, this is {versions}", stacklevel=3)
    return {
        key: {**value, FRAMEWORK_METADATA: versions} if isinstance(value, Mapping) else value
        for key, value in metadata.items()
    }


def metadata_lines(value: Any, indentation: str = "") -> list[str]:
    """Write the metadata of a recipe or of one stage, nested by two spaces.

    Example:
        >>> metadata_lines({"cmd": "a: b", "run": {"seed": 1}})
        ['__metadata__:', "  cmd: 'a: b'", '  run:', '    seed: 1']
    """
    return _lines(METADATA, value, indentation)


def _lines(key: Any, value: Any, indentation: str) -> list[str]:
    name = f"{indentation}{yaml_value(key)}:"
    if not isinstance(value, Mapping) or not value:
        return [f"{name} {yaml_value(value)}"]
    return [name, *(line for pair in value.items() for line in _lines(*pair, indentation + "  "))]


def _without_framework(metadata: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: {k: v for k, v in value.items() if k != FRAMEWORK_METADATA}
        if isinstance(value, Mapping)
        else value
        for key, value in metadata.items()
    }


def _package_version() -> str:
    try:
        return version("sparsemod")
    except PackageNotFoundError:
        return "unknown"
