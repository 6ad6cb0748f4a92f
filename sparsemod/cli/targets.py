"""`sparsemod targets`."""

from __future__ import annotations

import typer

__all__ = ["targets"]


def targets() -> None:
    """List the microcontrollers of the catalogue.

    Example: sparsemod targets
    """
    from sparsemod.measure.targets import TARGETS

    typer.echo(f"{'name':<12} {'core':<11} {'clock':>8} {'flash':>9} {'RAM':>9}")
    for target in TARGETS.values():
        flash, ram = _kib(target.flash_bytes), _kib(target.ram_bytes)
        typer.echo(
            f"{target.name:<12} {target.core:<11} {target.clock_hz / 1e6:>4.0f} MHz {flash:>9} {ram:>9}"
        )


def _kib(n_bytes: int | None) -> str:
    return "" if n_bytes is None else f"{n_bytes // 1024} KiB"
