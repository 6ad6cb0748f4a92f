"""The documented place of the configuration helpers."""

from sparsemod.config import bool_converter, configuration

__all__ = ["bool_converter", "configuration"]
