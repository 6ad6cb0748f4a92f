"""`sparsemod verify`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sparsemod.cli.figures import write_figures
from sparsemod.cli.problem import made_by
from sparsemod.errors import ConfigError

__all__ = ["verify"]


def verify(
    root: Annotated[Path, typer.Argument(help="The results folder.")],
    arm: Annotated[
        list[str] | None, typer.Option(help="An arm on the front, for example 12_0; may be repeated.")
    ] = None,
    front: Annotated[bool, typer.Option("--front", help="All arms on the front.")] = False,
    problem: Annotated[Path, typer.Option(help="The script whose make_sparse() returns the search.")] = Path(
        "main.py"
    ),
    samples: Annotated[
        int | None, typer.Option(min=1, help="How many validation samples to run; all of them by default.")
    ] = None,
    core: Annotated[
        str | None, typer.Option(help="The core to emulate; that of the search's target by default.")
    ] = None,
    json: Annotated[Path | None, typer.Option(help="Write the figures to this file.")] = None,
) -> None:
    """Compare what was promised of a network with what its files show on the real runtimes.

    The .tflite file runs in TensorFlow Lite Micro, the C bundle on this computer and on an emulated Cortex-M.
    The exit code is 1 where a figure differs by more than it may.

    Example: sparsemod verify results --arm 12_0
    """
    from rich.console import Console

    from sparsemod.sparse.verifying import findings_table

    if front == bool(arm):
        raise ConfigError("expected --arm (an arm on the front) or --front (all of them), one of the two")
    root, json = root.resolve(), json and json.resolve()
    with made_by(problem) as sparse:
        verified = sparse.verify("front" if front else arm or [], samples, core, root)
    console = Console(highlight=False, markup=False)
    for name, found in verified.items():
        console.print(findings_table(name, found))
    for line in dict.fromkeys(line for found in verified.values() for line in found.skipped):
        typer.echo(f"skipped: {line}", err=True)
    if json is not None:
        write_figures(json, {name: found.as_dict() for name, found in verified.items()})
    if not all(found.agrees for found in verified.values()):
        raise typer.Exit(1)
