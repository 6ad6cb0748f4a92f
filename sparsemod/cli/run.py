"""`sparsemod run`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sparsemod.cli.problem import made_by
from sparsemod.errors import ConfigError

__all__ = ["run"]


def run(
    folder: Annotated[Path, typer.Argument(help="The folder with main.py, whose make_sparse() is run.")],
    config: Annotated[
        Path | None,
        typer.Option(
            help="Another configuration than that of main.py: a file in FOLDER, or a path from here."
        ),
    ] = None,
) -> None:
    """Run the search of a folder, or go on with it, as python main.py does there.

    Example: sparsemod run examples/digits --config short.cfg
    """
    if not folder.is_dir():
        raise ConfigError(f"FOLDER: {folder}: no such folder")
    with made_by(folder / "main.py", "FOLDER", None if config is None else _found(folder, config)) as sparse:
        sparse.run_sparse()


def _found(folder: Path, config: Path) -> Path:
    """Return the absolute path of a configuration that lies in the folder or is a path from here."""
    for path in (folder / config, config):
        if path.is_file():
            return path.resolve()
    raise ConfigError(f"--config: no such file, neither {folder / config} nor {config}")
