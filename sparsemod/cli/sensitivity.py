"""`sparsemod sensitivity`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from sparsemod.cli.problem import made_by
from sparsemod.errors import ConfigError

__all__ = ["sensitivity"]


class Kind(StrEnum):
    """What a sensitivity analysis measures."""

    magnitude = "magnitude"
    one_shot = "one-shot"
    perf = "perf"


def sensitivity(
    root: Annotated[Path, typer.Argument(help="The results folder.")],
    arm: Annotated[str, typer.Option(help="An arm on the front, for example 12_0.")],
    problem: Annotated[Path, typer.Option(help="The script whose make_sparse() returns the search.")] = Path(
        "main.py"
    ),
    kind: Annotated[
        Kind,
        typer.Option(
            help="magnitude: of the weights that would go; one-shot: the loss on the validation set; "
            "perf: seconds of an inference."
        ),
    ] = Kind.one_shot,
    target: Annotated[
        str | None, typer.Option(help="For perf: another microcontroller than the search's.")
    ] = None,
    json: Annotated[Path | None, typer.Option(help="Write the analysis to this file.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw it into this file.")] = None,
) -> None:
    """Analyse how sensitive the layers of a trained arm are to pruning.

    Example: sparsemod sensitivity results --arm 12_0 --problem main.py --plot layers.png
    """
    root, json, plot = root.resolve(), json and json.resolve(), plot and plot.resolve()
    if target is not None and kind is not Kind.perf:
        raise ConfigError(f"--target: only --kind perf depends on the microcontroller, not {kind}")
    with made_by(problem) as sparse:
        analysis = sparse.sensitivity(arm, kind.value, target, root)
    analysis.print_res()
    if json is not None:
        analysis.save_json(json)
    if plot is not None:
        integral: dict[str, Any] = {} if kind is Kind.perf else {"plot_integral": True}
        analysis.plot(plot, **integral)
