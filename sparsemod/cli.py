"""The command `sparsemod`. Nothing heavy is imported before a command needs it."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import sys
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ParamSpec

import typer

from sparsemod.errors import ConfigError, SparsemodError, user_code

if TYPE_CHECKING:
    from sparsemod.sparse.sparse import Sparse

__all__ = ["app"]

app = typer.Typer(
    name="sparsemod",
    help="Finds neural networks that fit a microcontroller.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)

P = ParamSpec("P")


class Kind(StrEnum):
    """What a sensitivity analysis measures."""

    magnitude = "magnitude"
    one_shot = "one-shot"
    perf = "perf"


def _one_line_errors(command: Callable[P, None]) -> Callable[P, None]:
    """Let a command end with one line and exit code 2 where something of the user's is wrong."""

    @functools.wraps(command)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            command(*args, **kwargs)
        except SparsemodError as error:
            typer.echo(f"error: {error}", err=True)
            raise typer.Exit(2) from None

    return guarded


@app.callback()
def _root() -> None:
    """Finds neural networks that fit a microcontroller."""


@app.command()
@_one_line_errors
def targets() -> None:
    """List the microcontrollers of the catalogue."""
    from sparsemod.measure.targets import TARGETS

    typer.echo(f"{'name':<12} {'core':<11} {'clock':>8} {'flash':>9} {'RAM':>9}")
    for target in TARGETS.values():
        flash, ram = _kib(target.flash_bytes), _kib(target.ram_bytes)
        typer.echo(
            f"{target.name:<12} {target.core:<11} {target.clock_hz / 1e6:>4.0f} MHz {flash:>9} {ram:>9}"
        )


@app.command()
@_one_line_errors
def sensitivity(
    root: Annotated[Path, typer.Argument(help="The results folder.")],
    arm: Annotated[str, typer.Option(help="An arm on the front, for example 12_0.")],
    problem: Annotated[Path, typer.Option(help="The script whose make_sparse() returns the search.")],
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
    """Analyse how sensitive the layers of a trained arm are to pruning."""
    root, json, plot = root.resolve(), json and json.resolve(), plot and plot.resolve()
    if target is not None and kind is not Kind.perf:
        raise ConfigError(f"--target: only --kind perf depends on the microcontroller, not {kind}")
    if not problem.is_file():
        raise ConfigError(f"--problem: {problem}: no such file")
    with contextlib.chdir(problem.parent):  # where the script finds its files, as when it is started there
        analysis = _sparse(problem.name).sensitivity(arm, kind.value, target, root)
    analysis.print_res()
    if json is not None:
        analysis.save_json(json)
    if plot is not None:
        integral: dict[str, Any] = {} if kind is Kind.perf else {"plot_integral": True}
        analysis.plot(plot, **integral)


def _sparse(script: str) -> Sparse:
    """Import a script of the current folder, and let it make its search.

    Raises:
        ConfigError: It has no function `make_sparse`, or that returns something else.
        CandidateError: It raised.
    """
    from sparsemod.sparse.sparse import Sparse

    path = Path(script)
    spec = importlib.util.spec_from_file_location(path.stem, path.resolve())
    if spec is None or spec.loader is None:
        raise ConfigError(f"--problem: expected a Python script, got {script}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    sys.path.insert(0, str(path.resolve().parent))
    with user_code(script):
        spec.loader.exec_module(module)
        make = getattr(module, "make_sparse", None)
        sparse = make() if callable(make) else None
    if not isinstance(sparse, Sparse):
        got = "there is none" if make is None else f"got {type(sparse).__name__}"
        raise ConfigError(
            f"{script}: expected a function make_sparse() that returns the Sparse object, {got}"
        )
    return sparse


def _kib(n_bytes: int | None) -> str:
    return "" if n_bytes is None else f"{n_bytes // 1024} KiB"
