"""The table `<name>.csv`: one line an arm and metric, the documented columns first."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

import pandas as pd

from sparsemod.candidate import OBJECTIVES, UNITS, Arm, Status, standardised

__all__ = ["COLUMNS", "Row", "csv_text", "frame", "table_rows"]


class Row(NamedTuple):
    """One line of `<name>.csv`: one metric of one completed arm.

    Attributes:
        arm_name: The arm, ``12_0``.
        metric_name: One of `error`, `model_size`, `working_memory`, `latency`, or `integer_error` or
            `test_error`, which arms on the front have when the search is over.
        mean: The standardised value of about [0, 1].
        sem: 0: a training with the same seed gives the same value.
        trial_index: The number of the arm.
        value: The real quantity.
        unit: The unit of `value`.
        stage: The stage that proposed the arm.
        pareto: Whether the arm is on the front.
    """

    arm_name: str
    metric_name: str
    mean: float
    sem: float
    trial_index: int
    value: float | int
    unit: str
    stage: int
    pareto: bool


COLUMNS = Row._fields


def table_rows(arms: Iterable[Arm], front: Collection[str]) -> list[Row]:
    """Return the lines of each completed arm, in the order of the arms; other arms have none.

    Each has the four objectives; those on the front also the errors that are measured at the end.

    Args:
        arms: The arms.
        front: Names of those on the front.
    """
    rows = []
    for arm in arms:
        evaluation = arm.evaluation
        if evaluation is None or evaluation.status is not Status.COMPLETED:
            continue
        name, index, stage, pareto = arm.name, arm.index, arm.candidate.stage, arm.name in front
        for metric in OBJECTIVES:
            value, unit = evaluation.objective(metric), UNITS[metric]
            mean = float(standardised(metric, value))
            shown = int(value) if unit == "bytes" else float(value)
            rows.append(Row(name, metric, mean, 0.0, index, shown, unit, stage, pareto))
        for metric in ("integer_error", "test_error") if pareto else ():
            error = getattr(evaluation, metric)
            if error is not None:
                rows.append(Row(name, metric, error, 0.0, index, error, UNITS["error"], stage, pareto))
    return rows


def csv_text(rows: Sequence[Row]) -> str:
    """Return the text of the file; `repr` writes each float with the digits that bring it back."""
    return "\n".join([",".join(COLUMNS), *(",".join(map(str, row)) for row in rows), ""])


def frame(rows: Sequence[Row]) -> pd.DataFrame:
    """Return the same table as a data frame."""
    return pd.DataFrame(rows, columns=list(COLUMNS))
