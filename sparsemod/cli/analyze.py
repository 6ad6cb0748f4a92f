"""`sparsemod analyze`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sparsemod.cli.figures import write_figures
from sparsemod.errors import ConfigError

if TYPE_CHECKING:
    from rich.table import Table

    from sparsemod.export.analysis import Analysis

__all__ = ["analyze"]

_PLAIN_WIDTH = 160  # where there is no terminal, so that no line is broken


def analyze(
    files: Annotated[list[Path], typer.Argument(help="int8 .tflite files, whoever wrote them.")],
    target: Annotated[
        str | None,
        typer.Option(help="A microcontroller of `sparsemod targets`; without one a MAC is one cycle."),
    ] = None,
    flops: Annotated[float | None, typer.Option(help="The clock in Hz, instead of the target's.")] = None,
    json: Annotated[Path | None, typer.Option(help="Write the figures to this file, a list.")] = None,
) -> None:
    """Say what .tflite files cost on a microcontroller: flash, RAM, instructions and time.

    Example: sparsemod analyze model.tflite --target STM32F446
    """
    from rich.console import Console

    from sparsemod.export.analysis import analyze_file
    from sparsemod.measure.targets import resolve_target

    if flops is not None and not 0 < flops < float("inf"):
        raise ConfigError(f"--flops: expected a clock in Hz above 0, got {flops:g}")
    board = resolve_target(target, flops)
    found = [analyze_file(path, board) for path in files]
    console = Console(highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console = Console(highlight=False, markup=False, emoji=False, width=_PLAIN_WIDTH)
    for i, analysis in enumerate(found):
        if i:
            console.print()
        console.print(_operators(analysis))
        console.print(_summary(analysis))
    if json is not None:
        write_figures(json, [analysis.as_dict() for analysis in found])


def _operators(analysis: Analysis) -> Table:
    from rich.table import Table

    table = Table(title=analysis.file, title_justify="left", caption_justify="left")
    counted = "instructions" if analysis.target.core != "generic" else "cycles"
    for name in ("", "operator", "output", "MACs", "weights", counted, "share"):
        table.add_column(name, justify="left" if name in {"operator", "output"} else "right", no_wrap=True)
    total = analysis.instructions or 1.0
    for i, operator in enumerate(analysis.operators):
        steps = "" if operator.n_steps is None else f" x{operator.n_steps}"
        table.add_row(
            str(i),
            operator.kind + steps,
            "x".join(map(str, operator.output_shape)),
            f"{operator.n_macs:,}",
            f"{operator.weight_bytes:,}" if operator.weight_bytes else "",
            f"{operator.instructions:,.0f}",
            f"{operator.instructions / total:.1%}",
        )
    return table


def _summary(analysis: Analysis) -> Table:
    from rich.table import Table

    board, sizes = analysis.target, analysis.sizes
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column()

    def line(name: str, value: str, note: str = "") -> None:
        table.add_row(name, value, note)

    def parts(*named: tuple[str, int]) -> str:
        return ", ".join(f"{name} {n:,}" for name, n in named if n)

    line(
        "file",
        f"{sizes.file_bytes:,} B",
        parts(
            ("weights", sizes.weights_bytes),
            ("biases", sizes.biases_bytes),
            ("other constants", sizes.constants_bytes),
            ("scales", sizes.scales_bytes),
            ("overhead", sizes.overhead_bytes),
        ),
    )
    zeros = analysis.n_parameters - analysis.n_nonzero
    line("parameters", f"{analysis.n_parameters:,}", f"{zeros:,} of them zero")
    line("MACs", f"{analysis.n_macs:,}", parts(*analysis.kinds().items()))
    kernels = analysis.target_arena_bytes - analysis.arena_bytes
    line(
        "RAM",
        f"{analysis.ram_bytes:,} B",
        parts(
            ("activations", analysis.arena_bytes),
            ("kernels' scratch", kernels),
            ("interpreter, about", analysis.tail_bytes),
        ),
    )
    if board.core != "generic":
        line("instructions", f"{analysis.instructions:,.0f}", f"{board.core} with CMSIS-NN")
        line("latency", _milliseconds(analysis), f"{board.name} at {board.clock_hz / 1e6:g} MHz")
    else:
        line("latency", _milliseconds(analysis), f"one MAC a cycle at {board.clock_hz / 1e6:g} MHz")
    unknown = sorted(
        {op.kind.removeprefix("other:") for op in analysis.operators if op.kind.startswith("other:")}
    )
    if unknown:
        line("unknown", str(len(unknown)), f"{', '.join(unknown)}: time by their elements only")
    return table


def _milliseconds(analysis: Analysis) -> str:
    return f"{analysis.latency_seconds * 1e3:,.3g} ms"
