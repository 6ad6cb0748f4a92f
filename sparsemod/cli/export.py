"""`sparsemod export`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from sparsemod.cli.problem import made_by
from sparsemod.errors import ConfigError

__all__ = ["export"]


class Format(StrEnum):
    """What can be written of a network."""

    tflite = "tflite"
    onnx = "onnx"
    onnx_qdq = "onnx-qdq"
    c = "c"


def export(
    root: Annotated[Path, typer.Argument(help="The results folder.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The folder to write into.")],
    arm: Annotated[
        list[str] | None, typer.Option(help="An arm on the front, for example 12_0; may be repeated.")
    ] = None,
    front: Annotated[bool, typer.Option("--front", help="All arms on the front.")] = False,
    format: Annotated[
        list[Format] | None,
        typer.Option(
            help="tflite (int8, the default), onnx (float), onnx-qdq (int8), c (no runtime); may be repeated."
        ),
    ] = None,
    mean: Annotated[
        list[float] | None,
        typer.Option(
            help="What the data sets subtract from each channel, for the firmware; may be repeated."
        ),
    ] = None,
    std: Annotated[
        list[float] | None, typer.Option(help="By what they divide then; may be repeated.")
    ] = None,
    problem: Annotated[Path, typer.Option(help="The script whose make_sparse() returns the search.")] = Path(
        "main.py"
    ),
) -> None:
    """Write trained networks as files for a microcontroller.

    Example: sparsemod export results --arm 12_0 --format tflite --format c -o firmware
    """
    if front == bool(arm):
        raise ConfigError("expected --arm (an arm on the front) or --front (all of them), one of the two")
    root, output = root.resolve(), output.resolve()
    formats = [kind.value for kind in format or [Format.tflite]]
    with made_by(problem) as sparse:
        chosen = "front" if front else arm or []
        written = sparse.export(chosen, output, formats, root, mean=mean or (), std=std or ())  # type: ignore[arg-type]
    for file in written:
        typer.echo(f"{file.n_bytes:>9} bytes  {file.path}")
