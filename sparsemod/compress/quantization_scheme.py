"""Quantization schemes as recipes write them: there is int8, and there is float."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from sparsemod.compress.checks import mapping
from sparsemod.compress.recipe_errors import RecipeError
from sparsemod.errors import nearest

__all__ = ["INT8", "int8_scheme", "int8_schemes", "is_float", "module_names", "n_batches"]

INT8 = {
    "input_activations": {"num_bits": 8, "symmetric": False},
    "weights": {"num_bits": 8, "symmetric": True},
    "output_activations": {"num_bits": 8, "symmetric": False},
}
"""The one scheme there is, as SparseML writes it; weights have a scale for each output channel."""

ALIASES = ("default", "deepsparse")


def module_names(name: str) -> Callable[[Any], list[str]]:
    """Return a check of a list of names and types of modules."""

    def check(value: Any) -> list[str]:
        if not isinstance(value, list | tuple) or not all(isinstance(item, str) for item in value):
            raise RecipeError(f"{name} must be a list of names or types of modules, not {value!r}")
        return list(value)

    return check


def n_batches(value: Any) -> int:
    """Check a number of calibration batches."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise RecipeError(f"num_calibration_steps must be a number of batches, not {value!r}")
    return value


def int8_scheme(value: Any) -> Any:
    """Check that a scheme is int8, or float throughout.

    Raises:
        RecipeError: It asks for other arithmetic than the runtimes have.

    Example:
        >>> int8_scheme({"weights": {"num_bits": 8, "symmetric": True}})
        {'weights': {'num_bits': 8, 'symmetric': True}}
    """
    if value in ALIASES:
        return value
    parts = mapping("scheme")(value)
    for part, wanted in parts.items():
        if part not in INT8 and part != "target_hardware":
            raise RecipeError(f"scheme: unknown part '{part}'{nearest(part, INT8)}")
        if part == "target_hardware" or wanted in (None, "null"):
            continue
        for key, setting in mapping(part)(wanted).items():
            if key in INT8[part] and setting != INT8[part][key]:
                raise RecipeError(f"scheme: {part} must have {key} = {INT8[part][key]}, not {setting!r}")
    if not is_float(parts) and any(
        parts.get(p, 0) in (None, "null") for p in ("input_activations", "weights")
    ):
        raise RecipeError("scheme: input_activations and weights are quantized both or not at all")
    return parts


def is_float(scheme: Any) -> bool:
    """Say whether a scheme leaves a module in float."""
    if not isinstance(scheme, Mapping):
        return False
    return all(scheme.get(part, "int8") in (None, "null") for part in ("input_activations", "weights"))


def int8_schemes(value: Any) -> dict[str, Any]:
    """Check schemes by name or type of module."""
    return {name: int8_scheme(scheme) for name, scheme in mapping("scheme_overrides")(value).items()}
