"""`run.json`: what is needed to repeat a run, and what must not change when one goes on."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from sparsemod.config import RunConfig
from sparsemod.evaluate.task import Task

__all__ = ["check_same_run", "run_record"]

# Arms trained or measured under other values of these could not be compared with each other.
_FIXED = (
    "name",
    "seed",
    "pruning",
    "quant_scheme",
    "splitter",
    "runtime",
    "target",
    "clock_hz",
    "recipe",
    "classes",
    "samples",
    "net",
)
_ADDED = ("classes", "samples", "net")  # not in the records of earlier versions
_PACKAGES = ("sparsemod", "torch", "ax-platform", "botorch", "numpy", "scikit-learn")


def run_record(config: RunConfig, task: Task) -> dict[str, Any]:
    """Return the content of `run.json` for a run that begins or goes on now."""
    return {
        "name": config.name,
        "versions": {"python": platform.python_version(), **{p: _version(p) for p in _PACKAGES}},
        "machine": platform.machine(),
        "cpus": os.cpu_count(),
        "threads_per_worker": 1,
        "target": task.target.name,
        "clock_hz": task.target.clock_hz,
        "seed": config.seed,
        "recipe": task.recipe,
        "classes": task.classes,
        "samples": [len(task.train), len(task.validation), len(task.test)],
        "net": getattr(task.net, "__qualname__", type(task.net).__name__),
        "configuration": config.model_dump(mode="json"),
    }


def check_same_run(stored: Mapping[str, Any] | None, now: Mapping[str, Any]) -> str | None:
    """Say in one line which setting differs from the stored run's so that going on would mix two searches."""
    if stored is None:
        return None
    for key in _FIXED:
        if key in _ADDED and key not in stored:
            continue
        was, is_now = _setting(stored, key), _setting(now, key)
        if was != is_now:
            if key == "recipe":
                return f"these results were made with{' another' if was else 'out a'} recipe"
            return f"these results were made with {key} = {was}, now it is {is_now}"
    return None


def _setting(record: Mapping[str, Any], key: str) -> Any:
    configuration = record.get("configuration")
    if key in record:
        return record[key]
    return configuration.get(key) if isinstance(configuration, Mapping) else None


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:  # run from a source tree that is not installed
        return "not installed"
