"""What a test leaves behind, and the tables that show it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.table import Table

from sparsemod.crosstest.scores import Confusion, Score, Statistic, summary, summed
from sparsemod.crosstest.study import Failure
from sparsemod.sparse.progress import format_bytes, format_seconds

__all__ = ["CrossTestResult", "FrontRanking", "RankedArm"]

COSTS = {
    "model_size": ("flash", "model_size_bytes"),
    "working_memory": ("RAM", "working_memory_bytes"),
    "latency": ("latency", "latency_seconds"),
}


@dataclass(frozen=True)
class CrossTestResult:
    """The test of an arm over cross splits.

    Attributes:
        arm: Its name.
        split: ``loso``, ``kfold``, ``stratified`` or ``groups``.
        scores: One for each split, the folds of the first seed first; failed ones are left out.
        failures: The trainings that failed.
        objectives: Whose costs `table` shows.
        csv, json, confusion_csv: Where the results are.
        plot: The picture; None where matplotlib is not installed.
    """

    arm: str
    split: str
    scores: tuple[Score, ...]
    failures: tuple[Failure, ...]
    objectives: tuple[str, ...]
    csv: Path
    json: Path
    confusion_csv: Path
    plot: Path | None

    @property
    def summary(self) -> Mapping[str, Statistic]:
        """Mean, deviation, lowest and highest of each measure over the splits."""
        return summary(self.scores)

    @property
    def confusion(self) -> Confusion:
        """The confusion matrices of all splits added up: classes by the class taken for."""
        return summed([s.confusion for s in self.scores])

    def table(self) -> Table:
        """Return a `rich` table: a row a split, then mean and deviation."""
        table = Table(title=f"Test of arm {self.arm}: {self.split}", title_justify="left")
        costs = [COSTS[o] for o in self.objectives if o in COSTS]
        for column in ("seed", "fold", "tested", "samples", "error", "accuracy", "balanced"):
            table.add_column(column, justify="left" if column == "tested" else "right")
        for heading, _ in costs:
            table.add_column(heading, justify="right", no_wrap=True)
        for s in self.scores:
            table.add_row(
                str(s.seed),
                str(s.fold),
                _few(s.subjects),
                str(s.n_scored),
                *(f"{v:.4f}" for v in (s.error, s.accuracy, s.balanced_accuracy)),
                *(_cost(name, s.measure(name)) for _, name in costs),
            )
        table.add_section()
        found = self.summary
        measures = ("error", "accuracy", "balanced_accuracy")
        table.add_row(
            "mean",
            "",
            "",
            str(sum(s.n_scored for s in self.scores)),
            *(f"{found[name].mean:.4f}" for name in measures),
            *(_cost(name, found[name].mean) for _, name in costs),
        )
        table.add_row(
            "dev.", "", "", "", *(_deviation(found[name]) for name in measures), *("" for _ in costs)
        )
        return table


@dataclass(frozen=True)
class RankedArm:
    """An arm of the front, trained anew with several seeds.

    Attributes:
        arm: Its name.
        search_error: The validation error that the search saw.
        scores: One for each seed.
    """

    arm: str
    search_error: float | None
    scores: tuple[Score, ...]

    @property
    def summary(self) -> Mapping[str, Statistic]:
        """Mean, deviation, lowest and highest of each measure over the seeds."""
        return summary(self.scores)


@dataclass(frozen=True)
class FrontRanking:
    """The arms of the front by their mean test error over several trainings.

    Attributes:
        arms: Lowest mean first; arms whose every training failed are left out.
        failures: The trainings that failed.
        objectives: Whose costs `table` shows.
        csv, json: Where the results are.
    """

    arms: tuple[RankedArm, ...]
    failures: tuple[Failure, ...]
    objectives: tuple[str, ...]
    csv: Path
    json: Path

    def table(self) -> Table:
        """Return a `rich` table, the best arm first."""
        table = Table(title="Front by mean test error", title_justify="left")
        costs = [COSTS[o] for o in self.objectives if o in COSTS]
        for column in (
            "arm",
            "seeds",
            "test error",
            "dev.",
            "lowest",
            "highest",
            "balanced",
            "in the search",
        ):
            table.add_column(column, justify="left" if column == "arm" else "right")
        for heading, _ in costs:
            table.add_column(heading, justify="right", no_wrap=True)
        for ranked in self.arms:
            found = ranked.summary
            error = found["error"]
            table.add_row(
                ranked.arm,
                str(error.n),
                f"{error.mean:.4f}",
                _deviation(error),
                f"{error.lowest:.4f}",
                f"{error.highest:.4f}",
                f"{found['balanced_accuracy'].mean:.4f}",
                "-" if ranked.search_error is None else f"{ranked.search_error:.4f}",
                *(_cost(name, found[name].mean) for _, name in costs),
            )
        return table


def _deviation(found: Statistic) -> str:
    return "-" if found.deviation is None else f"{found.deviation:.4f}"


def _cost(name: str, value: float | None) -> str:
    if value is None:
        return "-"
    return format_seconds(value) if name == "latency_seconds" else format_bytes(value)


def _few(subjects: Sequence[str]) -> str:
    shown = " ".join(subjects[:4])
    return f"{shown} and {len(subjects) - 4} more" if len(subjects) > 4 else shown
