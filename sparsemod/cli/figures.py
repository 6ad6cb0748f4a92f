"""The option `--json` of commands that print figures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from sparsemod.errors import ConfigError

__all__ = ["write_figures"]


def write_figures(path: Path, figures: Any) -> None:
    """Write figures as JSON, into a folder that is made if need be.

    Raises:
        ConfigError: They cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(figures, indent=1) + "\n")
    except OSError as error:
        raise ConfigError(f"--json: {path}: cannot be written: {error.strerror}") from None
