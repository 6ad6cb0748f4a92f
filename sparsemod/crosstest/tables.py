"""The CSV files of a test."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import Any

from sparsemod.crosstest.scores import MEASURES, Score, summary

__all__ = ["confusion_csv", "ranking_csv", "scores_csv"]

_COUNTS = ("n_train", "n_validation", "n_test", "n_scored", "best_epoch", "n_epochs")


def scores_csv(scores: Sequence[Score]) -> str:
    """Return a row a training, then the rows ``mean`` and ``deviation`` (the sample standard deviation).

    The column `row` is ``split``, ``mean`` or ``deviation``. Subjects of one split are parted by spaces.
    """
    found = summary(scores)
    rows: list[dict[str, Any]] = [
        {
            "row": "split",
            "arm": s.arm,
            "seed": s.seed,
            "fold": s.fold,
            "subjects": " ".join(s.subjects),
            **{name: getattr(s, name) for name in _COUNTS},
            **{name: s.measure(name) for name in MEASURES},
        }
        for s in scores
    ]
    if scores:
        rows.append({"row": "mean", "arm": scores[0].arm, **{n: v.mean for n, v in found.items()}})
        rows.append({"row": "deviation", "arm": scores[0].arm, **{n: v.deviation for n, v in found.items()}})
    return _text(["row", "arm", "seed", "fold", "subjects", *_COUNTS, *MEASURES], rows)


def confusion_csv(confusion: Sequence[Sequence[int]]) -> str:
    """Return a confusion matrix: a row a class, a column a class it is taken for."""
    classes = [str(k) for k in range(len(confusion))]
    rows = [dict(zip(classes, row, strict=True)) | {"class": k} for k, row in enumerate(confusion)]
    return _text(["class", *classes], rows)


def ranking_csv(ranked: Sequence[tuple[str, Sequence[Score]]]) -> str:
    """Return a row an arm, in the order given: the mean and the deviation of every measure over its seeds."""
    rows = []
    for arm, scores in ranked:
        found = summary(scores)
        row: dict[str, Any] = {"arm": arm, "n_seeds": len(scores)}
        for name, statistic in found.items():
            row |= {f"{name}_mean": statistic.mean, f"{name}_deviation": statistic.deviation}
        rows.append(row)
    columns = [f"{name}_{what}" for name in MEASURES for what in ("mean", "deviation")]
    return _text(["arm", "n_seeds", *columns], rows)


def _text(columns: Sequence[str], rows: Sequence[dict[str, Any]]) -> str:
    out = io.StringIO()
    writer = csv.DictWriter(out, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()
