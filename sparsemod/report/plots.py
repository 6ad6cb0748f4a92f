"""Pictures for papers: the front, how it grew, and parallel coordinates, each as PNG and as SVG."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sparsemod.candidate import OBJECTIVES, Arm, standardised
from sparsemod.errors import ConfigError
from sparsemod.pareto import pareto_mask
from sparsemod.report.hypervolume import STAGES, progress, reference_text
from sparsemod.report.run_data import RunData
from sparsemod.report.write import make_folder

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["save_plots"]

COLOURS = {1: "#66748a", 2: "#0b6bcb", 3: "#cf5a00"}
MARKERS = {1: "o", 2: "s", 3: "^"}
UNITS = {
    "error": ("error (%)", 100.0),
    "model_size": ("flash (kB)", 1e-3),
    "working_memory": ("RAM (kB)", 1e-3),
    "latency": ("latency (ms)", 1e3),
}
STYLE: dict[Any, Any] = {
    "font.size": 8.0,
    "axes.grid": True,
    "grid.color": "#e3e7ec",
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "svg.hashsalt": "sparsemod",
    "svg.fonttype": "none",
}


def save_plots(run: RunData, folder: Path) -> list[Path]:
    """Draw all plots that the run has something for.

    The same run gives the same files, byte for byte.

    Args:
        run: The run.
        folder: Where to; it is made if need be.

    Returns:
        The files: front, stages, hypervolume and parallel, as far as there is something to show.

    Raises:
        ConfigError: matplotlib is not installed, or a file cannot be written.
    """
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure as OwnFigure
    except ImportError:
        raise ConfigError("plots need matplotlib: pip install 'sparsemod[report]'") from None
    drawings: list[tuple[str, tuple[float, float], Callable[[RunData, Figure], None]]] = []
    if run.completed:
        drawings.append(("front", (7.2, 2.7), _draw_front))
        drawings.append(("stages", (4.2, 3.2), _draw_stages))
    if run.evaluated:
        drawings.append(("hypervolume", (4.2, 2.7), _draw_hypervolume))
    if run.completed:
        drawings.append(("parallel", (7.2, 2.9), _draw_parallel))
    make_folder(folder)
    paths = []
    with mpl.rc_context(STYLE):
        for name, size, draw in drawings:
            figure = OwnFigure(figsize=size, layout="constrained")
            draw(run, figure)
            paths += [_saved(figure, folder / f"{name}.{kind}") for kind in ("png", "svg")]
    return paths


def _saved(figure: Figure, path: Path) -> Path:
    stamp = {"Date": None} if path.suffix == ".svg" else {"Software": None}
    try:
        figure.savefig(path, dpi=300, metadata=stamp)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {error.strerror or error}") from error
    return path


def _values(arms: Sequence[Arm], objective: str) -> np.ndarray:
    scale = UNITS[objective][1]
    return np.array([scale * arm.evaluation.objective(objective) for arm in arms if arm.evaluation])


def _log(axis: str, axes: Axes, values: np.ndarray) -> None:
    """Take a logarithmic scale where all values allow it."""
    from matplotlib.ticker import LogLocator, NullFormatter

    if values.size and (values > 0).all():
        getattr(axes, f"set_{axis}scale")("log")
        ticks = getattr(axes, f"{axis}axis")
        narrow = values.max() / values.min() < 100.0
        ticks.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if narrow else (1.0,), numticks=12))
        ticks.set_major_formatter("{x:g}")
        ticks.set_minor_formatter(NullFormatter())


def _draw_front(run: RunData, figure: Figure) -> None:
    error = _values(run.completed, "error")
    panels: Any = figure.subplots(1, 3, sharey=True)
    for axes, cost in zip(panels, OBJECTIVES[1:], strict=True):
        for stage in sorted({arm.candidate.stage for arm in run.completed}):
            for on_front in (False, True):
                arms = [
                    a
                    for a in run.completed
                    if a.candidate.stage == stage and (a.name in run.front) == on_front
                ]
                axes.scatter(
                    _values(arms, cost),
                    _values(arms, "error"),
                    s=18 if on_front else 8,
                    marker=MARKERS.get(stage, "o"),
                    color=COLOURS.get(stage, "#333333"),
                    alpha=1.0 if on_front else 0.3,
                    linewidths=0,
                    label=STAGES.get(stage, f"stage {stage}") if on_front else None,
                    zorder=3 if on_front else 2,
                )
        _stairs(axes, [a for a in run.completed if a.name in run.front], cost)
        axes.set_xlabel(UNITS[cost][0])
        _log("x", axes, _values(run.completed, cost))
    _log("y", panels[0], error)
    panels[0].set_ylabel(UNITS["error"][0])
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=3)


def _stairs(axes: Axes, arms: Sequence[Arm], cost: str, **look: Any) -> None:
    """Join the arms that nothing dominates in error and one cost."""
    if not arms:
        return
    points = np.column_stack([_values(arms, cost), _values(arms, "error")])
    best = points[pareto_mask(points)]
    best = best[np.lexsort((best[:, 1], best[:, 0]))]
    axes.step(
        best[:, 0], best[:, 1], where="post", **{"color": "#0b6bcb", "linewidth": 1.0, "zorder": 1, **look}
    )


def _draw_stages(run: RunData, figure: Figure) -> None:
    """Draw the front in error and flash as it was after each stage."""
    axes: Any = figure.subplots()
    fitting = [
        a
        for a in run.completed
        if a.evaluation
        and a.evaluation.resources
        and run.constraints.violation(a.evaluation.resources) is None
    ]
    for stage in sorted({arm.candidate.stage for arm in run.completed}):
        arms = [a for a in fitting if a.candidate.stage <= stage]
        label = f"after {STAGES.get(stage, f'stage {stage}')}"
        _stairs(axes, arms, "model_size", color=COLOURS.get(stage, "#333333"), linewidth=1.4, label=label)
        own = [a for a in fitting if a.candidate.stage == stage]
        axes.scatter(
            _values(own, "model_size"),
            _values(own, "error"),
            s=10,
            marker=MARKERS.get(stage, "o"),
            color=COLOURS.get(stage, "#333333"),
            alpha=0.6,
            linewidths=0,
        )
    axes.set_xlabel(UNITS["model_size"][0])
    axes.set_ylabel(UNITS["error"][0])
    _log("x", axes, _values(fitting, "model_size"))
    _log("y", axes, _values(fitting, "error"))
    if fitting:
        axes.legend()


def _draw_hypervolume(run: RunData, figure: Figure) -> None:
    axes: Any = figure.subplots()
    values = progress(run)
    count = np.arange(1, len(values) + 1)
    axes.step(count, values, where="post", color="#333333", linewidth=1.0)
    stages = np.array([arm.candidate.stage for arm in run.evaluated])
    for stage in sorted({*stages.tolist()}):
        part = stages == stage
        label = STAGES.get(stage, f"stage {stage}")
        colour, marker = COLOURS.get(stage, "#333333"), MARKERS.get(stage, "o")
        axes.plot(count[part], np.array(values)[part], marker, markersize=2.5, color=colour, label=label)
    axes.set_xlabel("evaluations")
    axes.set_ylabel("hypervolume")
    words = textwrap.fill(f"reference: {reference_text(run.objectives)}", 62)
    axes.set_title(words, fontsize=6.5, color="#555555", loc="left")
    axes.legend(loc="lower right")


def _draw_parallel(run: RunData, figure: Figure) -> None:
    axes: Any = figure.subplots()
    arms = sorted(run.completed, key=lambda arm: arm.name in run.front)
    table = np.array(
        [[standardised(o, a.evaluation.objective(o)) for o in OBJECTIVES] for a in arms if a.evaluation]
    )
    error = table[:, 0]
    if (error > 0).all():
        table[:, 0] = np.log(error)
    low, high = table.min(axis=0), table.max(axis=0)
    scaled = np.where(high > low, (table - low) / np.where(high > low, high - low, 1.0), 0.5)
    places = np.arange(len(OBJECTIVES))
    for arm, line in zip(arms, scaled, strict=True):
        on_front, stage = arm.name in run.front, arm.candidate.stage
        colour = COLOURS.get(stage, "#333333") if on_front else "#9aa7b8"
        width, alpha = (1.0, 0.9) if on_front else (0.5, 0.35)
        axes.plot(places, line, color=colour, linewidth=width, alpha=alpha)
    for place, objective in zip(places, OBJECTIVES, strict=True):
        axes.axvline(place, color="#333333", linewidth=0.8)
        real = _values(arms, objective)
        axes.text(place, -0.04, f"{real.min():.3g}", ha="center", va="top", fontsize=7)
        axes.text(place, 1.04, f"{real.max():.3g}", ha="center", va="bottom", fontsize=7)
    axes.set_xticks(places, [UNITS[o][0] for o in OBJECTIVES])
    axes.tick_params(axis="x", length=0, pad=14)
    axes.set_yticks([])
    axes.set_ylim(-0.02, 1.02)
    axes.grid(visible=False)
    for side in ("left", "bottom"):
        axes.spines[side].set_visible(False)
