"""The command `sparsemod`. Nothing heavy is imported before a command needs it."""

from __future__ import annotations

import typer

from sparsemod.cli.analyze import analyze
from sparsemod.cli.export import export
from sparsemod.cli.guard import one_line_errors
from sparsemod.cli.new import new
from sparsemod.cli.report import report
from sparsemod.cli.run import run
from sparsemod.cli.sensitivity import sensitivity
from sparsemod.cli.targets import targets
from sparsemod.cli.test import test
from sparsemod.cli.verify import verify

__all__ = ["app"]

COMMANDS = (
    new,
    run,
    report,
    targets,
    analyze,
    sensitivity,
    test,
    export,
    verify,
)
"""In the order in which `--help` lists them; a function's name is its command's."""

app = typer.Typer(
    name="sparsemod",
    help="Finds neural networks that fit a microcontroller.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)


@app.callback()
def _root() -> None:
    """Finds neural networks that fit a microcontroller."""


for _command in COMMANDS:
    app.command()(one_line_errors(_command))
