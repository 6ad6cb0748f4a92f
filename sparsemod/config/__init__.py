"""The configuration of a run: config.cfg or keyword arguments in, checked frozen values out."""

from sparsemod.config.file import Section, configuration
from sparsemod.config.models import RunConfig, StageConfig, TargetConfig, TestConfig
from sparsemod.config.values import bool_converter

__all__ = [
    "RunConfig",
    "Section",
    "StageConfig",
    "TargetConfig",
    "TestConfig",
    "bool_converter",
    "configuration",
]
