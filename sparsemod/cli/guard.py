"""Errors of the user's as one line and exit code 2."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec

import typer

from sparsemod.errors import SparsemodError

__all__ = ["one_line_errors"]

P = ParamSpec("P")


def one_line_errors(command: Callable[P, None]) -> Callable[P, None]:
    """Let a command end with one line and exit code 2 where something of the user's is wrong."""

    @functools.wraps(command)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            command(*args, **kwargs)
        except SparsemodError as error:
            typer.echo(f"error: {error}", err=True)
            raise typer.Exit(2) from None

    return guarded
