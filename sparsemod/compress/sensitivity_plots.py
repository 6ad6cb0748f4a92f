"""The pictures of sensitivity results; matplotlib is loaded when the first one is drawn."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sparsemod.errors import ConfigError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["draw_bars", "draw_rates", "normalized"]

Drawn = tuple["Figure", "Axes"] | tuple[None, None]


def normalized(values: Sequence[float]) -> list[float]:
    """Move values to mean 0 and (population) standard deviation 1; equal ones all to 0.

    Example:
        >>> [round(value, 4) for value in normalized([1.0, 2.0, 3.0])]
        [-1.2247, 0.0, 1.2247]
    """
    array = np.asarray(values, dtype=np.float64)
    if not array.size:
        return []
    spread = float(array.std())
    centred = array - array.mean()
    # Equal values may differ from their mean by rounding.
    if spread <= 1e-12 * float(np.abs(array).max()):
        return [0.0] * len(array)
    return [float(value) for value in centred / spread]


def draw_bars(
    names: Sequence[str],
    values: Sequence[float],
    path: str | Path | None,
    label: str,
    title: str | None,
    *,
    normalize: bool,
) -> Drawn:
    """Draw one horizontal bar for each name, the first one on top.

    Args:
        names: Of the bars.
        values: Their lengths.
        path: Where to write the picture; None returns it.
        label: What the bars show.
        title: Of the picture.
        normalize: Whether to show the values at mean 0 and standard deviation 1.

    Raises:
        ConfigError: matplotlib is not installed.
    """
    figure, axes = _figure(path, height=max(3.0, 0.3 * len(names) + 1.0))
    places = list(range(len(names)))
    axes.barh(places, normalized(values) if normalize else list(values))
    axes.set_yticks(places, list(names))
    axes.invert_yaxis()
    axes.set_xlabel(f"{label}, normalized" if normalize else label)
    return _finished(figure, axes, path, title)


def draw_rates(
    rates: Sequence[float], losses: Sequence[float], path: str | Path | None, title: str | None
) -> Drawn:
    """Draw losses over learning rates.

    Args:
        rates: The learning rates, on a logarithmic axis.
        losses: The losses.
        path: Where to write the picture; None returns it.
        title: Of the picture.

    Raises:
        ConfigError: matplotlib is not installed.
    """
    figure, axes = _figure(path, height=4.0)
    axes.plot(list(rates), list(losses), marker="o", markersize=3)
    axes.set_xscale("log")
    axes.set_xlabel("learning rate")
    axes.set_ylabel("loss")
    return _finished(figure, axes, path, title)


def _figure(path: str | Path | None, height: float) -> tuple[Any, Any]:
    """Make a figure: for a file one of its own, for the screen one that pyplot shows."""
    try:
        if path is None:
            from matplotlib import pyplot

            return pyplot.subplots(figsize=(7.0, height))
        from matplotlib.figure import Figure as OwnFigure
    except ImportError:
        raise ConfigError("plots need matplotlib: pip install 'sparsemod[report]'") from None
    figure = OwnFigure(figsize=(7.0, height))
    return figure, figure.subplots()


def _finished(figure: Any, axes: Any, path: str | Path | None, title: str | None) -> Drawn:
    axes.set_title(title or "")
    figure.tight_layout()
    if path is None:
        return figure, axes
    file = Path(path)
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file)
    return None, None
