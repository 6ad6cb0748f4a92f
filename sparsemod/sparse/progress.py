"""What a person sees while a search runs: bars on a terminal, plain lines elsewhere."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence
from types import TracebackType
from typing import Any, TextIO, cast

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Table

from sparsemod.candidate import Arm, Resources, Status
from sparsemod.crosstest.scores import Score
from sparsemod.crosstest.study import Failure

__all__ = ["Reporter", "by_error", "format_bytes", "format_seconds", "front_table"]


def format_bytes(n_bytes: float) -> str:
    """Write a number of bytes for people, with 1 kB = 1000 bytes.

    Example:
        >>> format_bytes(812), format_bytes(3481), format_bytes(1_250_000)
        ('812 B', '3.48 kB', '1.25 MB')
    """
    if n_bytes < 1000:
        return f"{n_bytes:.0f} B"
    if n_bytes < 1_000_000:
        return f"{n_bytes / 1000:.3g} kB"
    return f"{n_bytes / 1_000_000:.3g} MB"


def format_seconds(seconds: float) -> str:
    """Write a latency in milliseconds.

    Example:
        >>> format_seconds(0.00123456)
        '1.23 ms'
    """
    milliseconds = seconds * 1000
    return f"{milliseconds:.0f} ms" if milliseconds >= 1000 else f"{milliseconds:.3g} ms"


def front_table(front: Sequence[Arm]) -> Table:
    """Make the table of the Pareto front, in the order given."""
    table = Table(title=f"Pareto front: {len(front)} arm{'s' * (len(front) != 1)}", title_justify="left")
    columns = (
        "arm",
        "error",
        "on chip",
        "test error",
        "flash",
        "RAM",
        "latency",
        "non-zeros",
        "MACs",
        "stage",
        "origin",
    )
    for column in columns:
        table.add_column(
            column, justify="left" if column in {"arm", "origin"} else "right", no_wrap=column != "origin"
        )
    for arm in front:
        evaluation = arm.evaluation
        if evaluation is None or evaluation.error is None or evaluation.resources is None:
            continue
        resources = evaluation.resources
        table.add_row(
            arm.name,
            f"{evaluation.error:.4f}",
            "-" if evaluation.integer_error is None else f"{evaluation.integer_error:.4f}",
            "-" if evaluation.test_error is None else f"{evaluation.test_error:.4f}",
            format_bytes(resources.model_size_bytes),
            format_bytes(resources.working_memory_bytes),
            format_seconds(resources.latency_seconds),
            str(resources.n_nonzero),
            str(resources.n_macs),
            str(arm.candidate.stage),
            arm.candidate.origin,
        )
    return table


def by_error(arm: Arm) -> tuple[float, int]:
    """Order arms by error, equal ones by their number."""
    error = arm.evaluation.error if arm.evaluation else None
    return (1.0 if error is None else error, arm.index)


def _cost(resources: Resources) -> str:
    flash, ram = format_bytes(resources.model_size_bytes), format_bytes(resources.working_memory_bytes)
    return f"flash {flash}, RAM {ram}, latency {format_seconds(resources.latency_seconds)}"


class Reporter:
    """Shows a run as it goes: one bar a stage on a terminal, one plain line an arm elsewhere.

    Use it as a context manager, so that the terminal is given back whatever happens.

    Args:
        console: Where to write; standard output by default.
        debug: Print the traceback of a failed arm, not just its reason.
    """

    def __init__(self, console: Console | None = None, *, debug: bool = False) -> None:
        self.console = console or _console()
        self.debug = debug
        self._bars = Progress(
            TextColumn("{task.description:<6}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[state]}"),
            TimeRemainingColumn(),
            console=self.console,
            disable=not self.console.is_terminal,
        )
        self._task: TaskID | None = None
        self._stage = ""
        self._total = 0
        self._done = 0

    def __enter__(self) -> Reporter:
        self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bars.stop()

    def note(self, text: str) -> None:
        """Say something to the person, in one line."""
        self.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def stage(self, name: str, total: int, done: int, what: str = "arms") -> None:
        """A stage begins (or goes on behind `done` of an earlier start)."""
        self._stage, self._total, self._done = name, total, done
        self._task = self._bars.add_task(name, total=total, completed=done, state="")
        if done:
            self.note(f"{name}: {done} of {total} {what} are there already")

    def arm(self, arm: Arm, front: Sequence[Arm], feasible_share: float) -> None:
        """One arm has been evaluated."""
        self._done += 1
        errors = [a.evaluation.error for a in front if a.evaluation and a.evaluation.error is not None]
        best = f"{min(errors):.4f}" if errors else "-"
        state = f"best error {best}, fits {feasible_share:.0%}, front {len(front)}"
        if self._task is not None:
            self._bars.update(self._task, completed=self._done, state=state)
        evaluation = arm.evaluation
        if evaluation is None:
            return
        place = f"{self._stage} {self._done}/{self._total}  arm {arm.name}"
        if evaluation.status is Status.FAILED:
            self.note(f"{place} failed: {evaluation.reason}")
            if self.debug and evaluation.details:
                self.note(evaluation.details.rstrip())
        elif not self.console.is_terminal and evaluation.resources is not None:
            self.note(f"{place}: error {evaluation.error:.4f}, {_cost(evaluation.resources)}  [{state}]")

    def training(self, result: Score | Failure) -> None:
        """One training of a test is done."""
        self._done += 1
        if self._task is not None:
            self._bars.update(self._task, completed=self._done)
        place = f"{self._stage} {self._done}/{self._total}  arm {result.arm}, seed {result.seed}"
        place += f", fold {result.fold}"
        if isinstance(result, Failure):
            self.note(f"{place} failed: {result.reason}")
            return
        if not self.console.is_terminal:
            subjects = f", tested {' '.join(result.subjects[:4])}" if result.subjects else ""
            shares = f"test error {result.error:.4f}, balanced accuracy {result.balanced_accuracy:.4f}"
            self.note(f"{place}{subjects}: {shares}")

    def end_stage(self) -> None:
        """A stage is over, perhaps before its last round."""
        if self._task is not None:
            self._bars.update(self._task, completed=self._done, total=self._done)
            self._task = None

    def result(self, table: Table, lines: Sequence[str]) -> None:
        """Show the front and what to do next."""
        self.console.print()
        self.console.print(table)
        for line in lines:
            self.note(line)


class _Stdout:
    """Standard output of the moment; when it cannot be written any more, the search goes on without a word.

    A closed pipe (``| head``) or a full disk behind a log must not end a search of a night.
    """

    def write(self, text: str) -> int:
        self._attempt("write", text)
        return len(text)

    def flush(self) -> None:
        self._attempt("flush")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream(), name)

    def _stream(self) -> TextIO:
        stream: TextIO = getattr(sys.stdout, "rich_proxied_file", sys.stdout)  # behind the bars' own
        return stream

    def _attempt(self, method: str, *arguments: str) -> None:
        stream = self._stream()
        try:
            getattr(stream, method)(*arguments)
        except OSError as error:
            with contextlib.suppress(OSError):
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, stream.fileno())  # for what else is written, up to the flush at exit
                os.close(nowhere)
            print(f"standard output: {error.strerror}; the search goes on without it", file=sys.stderr)


def _console() -> Console:
    out = cast("TextIO", _Stdout()) if sys.stdout is not None else None
    console = Console(file=out)
    # Without a terminal there is no width to respect, and a squeezed table is hard to read in a log.
    return console if console.is_terminal else Console(file=out, width=140)
