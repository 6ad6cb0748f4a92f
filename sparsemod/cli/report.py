"""`sparsemod report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["report"]


def report(
    root: Annotated[Path, typer.Argument(help="The results folder.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The page; report.html in the folder by default.")
    ] = None,
    png: Annotated[
        Path | None, typer.Option(help="Draw the plots into this folder, too, as PNG and SVG.")
    ] = None,
) -> None:
    """Make one HTML page of a finished or running search, which opens without a network.

    Example: sparsemod report results -o digits.html --png figures
    """
    from sparsemod.report.page import render_page
    from sparsemod.report.run_data import read_run
    from sparsemod.report.write import write_page

    run = read_run(root)
    page = write_page(root / "report.html" if output is None else output, render_page(run))
    typer.echo(f"page      {page}  ({page.stat().st_size / 1e6:.2f} MB; open it in a browser)")
    if png is not None:
        from sparsemod.report.plots import save_plots

        for path in save_plots(run, png):
            typer.echo(f"plot      {path}")
