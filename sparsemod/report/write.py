"""Writing what a report consists of."""

from __future__ import annotations

from pathlib import Path

from sparsemod.errors import ConfigError

__all__ = ["make_folder", "write_page"]


def write_page(path: Path, page: str) -> Path:
    """Write the page; whoever has the old one open finds it whole until the new one takes its place.

    Raises:
        ConfigError: It cannot be written.
    """
    make_folder(path.parent)
    partial = path.with_name(f".{path.name}.partial")
    try:
        partial.write_text(page, encoding="utf-8", newline="\n")
        partial.replace(path)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {error.strerror or error}") from error
    finally:
        partial.unlink(missing_ok=True)
    return path


def make_folder(path: Path) -> Path:
    """Make a folder and those that it lies in.

    Raises:
        ConfigError: It cannot be made.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be made: {error.strerror or error}") from error
    return path
