"""`sparsemod new`."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path
from typing import Annotated

import typer

from sparsemod.errors import ConfigError

__all__ = ["new"]

_FILES = ("main.py", "config.cfg", "net.py", "data.py", "README.md")
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
_PLACE = "@NAME@"  # where the templates want the name


def new(
    name: Annotated[str, typer.Argument(help="The folder to make, also the name of the results.")],
) -> None:
    """Make a folder with a search that runs at once, to change into one of your own.

    Example: sparsemod new gestures
    """
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"NAME: expected a letter, then letters, digits, '-' or '_' (64 at most), got {name[:80]!r}"
        )
    folder = Path(name)
    try:
        folder.mkdir()
    except FileExistsError:
        raise ConfigError(f"NAME: {folder} is there already; choose another name") from None
    except OSError as error:
        raise ConfigError(f"NAME: {folder} cannot be made: {error.strerror}") from None
    templates = files("sparsemod.cli") / "new_problem"
    for file in _FILES:
        text = (templates / f"{file}.template").read_text(encoding="utf-8")
        (folder / file).write_text(text.replace(_PLACE, name), encoding="utf-8")
    typer.echo(f"made {name}: {', '.join(_FILES)}\n")
    typer.echo(f"  cd {name}")
    typer.echo("  python main.py            searches, for one or two minutes; Ctrl-C and it goes on later")
    typer.echo("  sparsemod report results  makes a page of it (pip install 'sparsemod[report]')\n")
    typer.echo(f"{name}/README.md says what to change for a problem of your own.")
