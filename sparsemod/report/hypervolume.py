"""How the front grew: the hypervolume after each evaluation, and by stage.

It is taken over the standardised objectives (`sparsemod.candidate.standardised`), whose values lie in about
[0, 1], up to the reference point (1, ..., 1). In real units that is an error of 1, 100 MB of flash, 100 MB of
RAM and 9.999 s. So it is the share of the unit box that the front dominates, and runs with the same
objectives can be compared.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sparsemod.candidate import OBJECTIVES, UNITS, Status, standardised
from sparsemod.pareto import hypervolume
from sparsemod.report.run_data import RunData

__all__ = ["REFERENCE", "STAGES", "StageSummary", "progress", "reference_text", "stage_summaries"]

REFERENCE = {"error": 1.0, "model_size": 1e8, "working_memory": 1e8, "latency": 9.999}
"""The reference point in real units; standardised, each of them is 1."""

STAGES = {1: "sobol", 2: "bayes", 3: "morph"}


@dataclass(frozen=True)
class StageSummary:
    """What a stage has done.

    Attributes:
        stage: 1, 2 or 3.
        name: Of its strategy.
        n_arms: Arms that it proposed and that have been evaluated.
        n_failed: How many of them failed.
        n_front: How many of them are on the front of the whole run.
        hypervolume: After its last evaluation.
        gain: What it added.
        seconds: Wall time, None where it is not known.
    """

    stage: int
    name: str
    n_arms: int
    n_failed: int
    n_front: int
    hypervolume: float
    gain: float
    seconds: float | None


def progress(run: RunData) -> list[float]:
    """Return the hypervolume after each evaluated arm; failed ones and such beyond a limit add nothing.

    Returns:
        As many numbers in [0, 1] as `run.evaluated` has arms.
    """
    points: list[list[float]] = []
    values: list[float] = []
    reference = np.ones(len(run.objectives))
    for arm in run.evaluated:
        evaluation = arm.evaluation
        fits = (
            evaluation is not None
            and evaluation.resources is not None
            and run.constraints.violation(evaluation.resources) is None
        )
        point = [standardised(o, evaluation.objective(o)) for o in run.objectives] if evaluation else []
        if fits and all(map(math.isfinite, point)):
            points.append(point)
            values.append(hypervolume(points, reference))
        else:
            values.append(values[-1] if values else 0.0)
    return values


def stage_summaries(run: RunData, values: Sequence[float]) -> list[StageSummary]:
    """Sum up each stage that has evaluated an arm.

    Args:
        run: The run.
        values: From `progress`.
    """
    summaries: list[StageSummary] = []
    before = 0.0
    timing = run.record.get("seconds")
    for stage in sorted({arm.candidate.stage for arm in run.evaluated}):
        places = [i for i, arm in enumerate(run.evaluated) if arm.candidate.stage == stage]
        arms = [run.evaluated[i] for i in places]
        name = STAGES.get(stage, f"stage {stage}")
        seconds = timing.get(name) if isinstance(timing, dict) else None
        summaries.append(
            StageSummary(
                stage=stage,
                name=name,
                n_arms=len(arms),
                n_failed=sum(arm.status is Status.FAILED for arm in arms),
                n_front=sum(arm.name in run.front for arm in arms),
                hypervolume=values[places[-1]],
                gain=values[places[-1]] - before,
                seconds=float(seconds) if isinstance(seconds, int | float) else None,
            )
        )
        before = values[places[-1]]
    return summaries


def reference_text(objectives: Sequence[str]) -> str:
    """Say the reference point in real units.

    Example:
        >>> reference_text(["error", "model_size", "latency"])
        'error 1, model size 100 MB, latency 9.999 s'
    """
    shown = []
    for name in (o for o in OBJECTIVES if o in objectives):
        value = REFERENCE[name]
        unit = {"fraction": "", "bytes": " MB", "seconds": " s"}[UNITS[name]]
        number = value / 1e6 if unit == " MB" else value
        shown.append(f"{name.replace('_', ' ')} {number:g}{unit}")
    return ", ".join(shown)
