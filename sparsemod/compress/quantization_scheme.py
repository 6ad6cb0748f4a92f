"""Quantization schemes as recipes write them: there is int8, and there is float."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from sparsemod.compress.checks import mapping
from sparsemod.compress.props import Argument
from sparsemod.compress.recipe_errors import RecipeError
from sparsemod.errors import nearest

__all__ = [
    "INT8",
    "OLDER",
    "OlderArguments",
    "int8_scheme",
    "int8_schemes",
    "is_float",
    "module_names",
    "n_batches",
]

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
        if part == "target_hardware" or _is_null(wanted):
            continue
        for key, setting in mapping(part)(wanted).items():
            if key in INT8[part] and setting != INT8[part][key]:
                raise RecipeError(f"scheme: {part} must have {key} = {INT8[part][key]}, not {setting!r}")
    if not is_float(parts) and _is_null(parts.get("input_activations", "int8")):
        raise RecipeError("scheme: weights are quantized together with input_activations only")
    return parts


def is_float(scheme: Any) -> bool:
    """Say whether a scheme leaves a module in float.

    That is so where its weights are not quantized, or, with nothing said of weights, its inputs are not.
    """
    if not isinstance(scheme, Mapping):
        return False
    return _is_null(scheme["weights"] if "weights" in scheme else scheme.get("input_activations", "int8"))


def _is_null(value: Any) -> bool:
    return value is None or value == "null"


def int8_schemes(value: Any) -> dict[str, Any]:
    """Check schemes by name or type of module."""
    return {name: int8_scheme(scheme) for name, scheme in mapping("scheme_overrides")(value).items()}


def only(name: str, allowed: Any) -> Callable[[Any], Any]:
    """Return a check that a setting of an older recipe asks for nothing else than what there is."""

    def check(value: Any) -> Any:
        if value is not None and value != allowed:
            raise RecipeError(f"{name} must be {allowed}, not {value!r}")
        return value

    return check


class OlderArguments:
    """What older recipes say in place of schemes; it is kept, and refused where it is not int8."""

    activation_bits = Argument(only("activation_bits", 8), "Bits of activations.")
    activation_qconfig_kwargs = Argument(doc="No effect.")
    custom_quantizable_module_types = Argument(doc="No effect: all modules are quantized.")
    exclude_batchnorm = Argument(doc="No effect: batch norms are folded.")
    quantize_conv_activations = Argument(doc="No effect: the outputs of convolutions are int8.")
    quantize_embedding_activations = Argument(doc="No effect.")
    quantize_embeddings = Argument(doc="No effect: embeddings are int8.")
    quantize_linear_activations = Argument(doc="No effect: the outputs of linear layers are int8.")
    reduce_range = Argument(only("reduce_range", False), "Whether a bit is left out.")
    tensorrt = Argument(only("tensorrt", False), "Whether activations are symmetric.")
    weight_bits = Argument(only("weight_bits", 8), "Bits of weights.")
    weight_qconfig_kwargs = Argument(doc="No effect.")


OLDER = tuple(name for name, value in vars(OlderArguments).items() if isinstance(value, Argument))
