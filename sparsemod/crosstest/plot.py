"""The picture of a test: the confusion matrix, and the balanced accuracy of every split."""

from __future__ import annotations

import io
from collections.abc import Sequence

import numpy as np

from sparsemod.crosstest.scores import Score, summary, summed
from sparsemod.errors import ConfigError

__all__ = ["draw_test"]

MOST_NUMBERS = 16
"""Classes up to which the counts are written into the matrix."""


def draw_test(scores: Sequence[Score], title: str) -> bytes:
    """Return the picture as PNG.

    Args:
        scores: Of one arm, one or more.
        title: Of the picture.

    Raises:
        ConfigError: matplotlib is not installed.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ConfigError("the picture needs matplotlib: pip install 'sparsemod[report]'") from error
    figure = Figure(figsize=(11.0, 4.8), layout="constrained", dpi=150)
    FigureCanvasAgg(figure)
    matrix, bars = figure.subplots(1, 2)
    counts = np.array(summed([s.confusion for s in scores]))
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    matrix.imshow(shares, cmap="Blues", vmin=0.0, vmax=1.0)
    matrix.set(xlabel="taken for class", ylabel="class", title="all splits, samples")
    if len(counts) <= MOST_NUMBERS:
        matrix.set_xticks(range(len(counts)))
        matrix.set_yticks(range(len(counts)))
        for (row, column), n in np.ndenumerate(counts):
            colour = "white" if shares[row, column] > 0.5 else "black"
            matrix.text(column, row, str(n), ha="center", va="center", fontsize=7, color=colour)
    heights = [100 * s.balanced_accuracy for s in scores]
    bars.bar(range(len(scores)), heights, color="#0b6bcb")
    mean = 100 * summary(scores)["balanced_accuracy"].mean
    bars.axhline(mean, color="#cf5a00", linewidth=1.0, label=f"mean {mean:.1f} %")
    names = [_name(s) for s in scores]
    bars.set_xticks(range(len(scores)), names, rotation=90 if max(map(len, names)) > 3 else 0, fontsize=7)
    bars.set(ylabel="balanced accuracy (%)", ylim=(0, 105), xlabel="seed / tested subjects or fold")
    bars.legend(frameon=False, loc="lower right")
    figure.suptitle(title)
    out = io.BytesIO()
    figure.savefig(out, format="png", metadata={"Software": None})
    return out.getvalue()


def _name(score: Score) -> str:
    what = score.subjects[0] if len(score.subjects) == 1 else str(score.fold)
    return f"{score.seed} / {what}"
