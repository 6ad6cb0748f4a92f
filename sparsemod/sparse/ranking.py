"""The front, ranked by several trainings of each arm on the search's own split."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from sparsemod.candidate import Arm
from sparsemod.config import TestConfig
from sparsemod.crosstest.splits import NumberedSplit
from sparsemod.crosstest.study import Study, Training
from sparsemod.crosstest.tables import ranking_csv
from sparsemod.errors import StoreError
from sparsemod.evaluate.splits import joined
from sparsemod.evaluate.task import Split
from sparsemod.evaluate.worker import refuse_reimport
from sparsemod.sparse.before import arm_seed
from sparsemod.sparse.progress import Reporter, by_error
from sparsemod.sparse.setup import Setup
from sparsemod.sparse.tested import FrontRanking, RankedArm
from sparsemod.sparse.testing import (
    How,
    carry_out,
    failures_text,
    searched,
    setting_of,
    spread_text,
    training_of,
    whole_task,
)
from sparsemod.store import Store

__all__ = ["ranking_arguments", "run_ranking"]

_FRONT = 1 << 40
"""Seeds of a ranking are numbered from here on, far from the arms of a search and from cross splits."""


def ranking_arguments(
    seeds: Any, epochs: Any, workers: Any, executor: Any
) -> tuple[int, int | None, int | None, str | None]:
    """Check the arguments of a ranking as the keys of [TEST] are.

    Raises:
        ConfigError: One is wrong.
    """
    others = {"pruning": False, "quant_scheme": "none", "objectives": 1, "name": "x", "root": ".", "arm": 0}
    values = {
        **others,
        "epochs": 1 if epochs is None else epochs,
        "seeds": seeds,
        "workers": workers,
        "executor": executor,
    }
    checked = TestConfig.from_mapping(values, where="rank_front(...)")
    return checked.seeds, None if epochs is None else checked.epochs, checked.workers, checked.executor


def run_ranking(
    setup: Setup, seeds: int, epochs: int | None, workers: int | None, executor: str | None
) -> FrontRanking:
    """Train every arm of the front anew with several seeds on the search's own split, and rank them.

    Args:
        setup: Of the search.
        seeds: How often each arm is trained.
        epochs: Of each training; None takes the most of the search's stages.
        workers: As in `RunConfig`; without them everything happens in this process.
        executor: As in `RunConfig`.

    Raises:
        StoreError, CandidateError, ExecutorError, SystemExit: As `CrossTest.run`.
    """
    refuse_reimport()
    experiment = searched(setup)
    front = sorted(experiment.front(setup.config.constraints), key=by_error)
    if not front:
        raise StoreError(f"{setup.config.root / setup.config.name}.json: there is no arm on the front")
    n_epochs = epochs or max(stage.epochs for stage in setup.config.stages)
    task = setup.task
    whole = joined((task.train, task.validation, task.test))
    ends = np.cumsum([0, len(task.train), len(task.validation), len(task.test)])
    parts = [np.arange(a, b, dtype=np.int64) for a, b in pairwise(ends)]
    original = Split(*parts)
    tests = () if setup.groups is None else tuple(dict.fromkeys(setup.groups[ends[2] :]))
    trainings: list[Training] = []
    for arm in front:
        for k in range(seeds):
            seed = arm_seed(setup.config.seed, _FRONT + k)
            found = NumberedSplit(k, 0, original, tests)
            trainings.append(training_of(len(trainings), arm, found, n_epochs, seed))
    setting = {**setting_of(setup, n_epochs, len(whole)), "split": "original", "seed": setup.config.seed}
    reporter = Reporter()
    with Store(setup.config.root, setup.config.name) as store, reporter:
        study = Study(store, "front", setting, trainings)
        how = How(workers, executor)
        failures = carry_out(study, whole_task(task, whole), how, reporter, "front")
        ranked = _ranked(front, study)
        csv = store.put_test("front.csv", ranking_csv([(a.arm, a.scores) for a in ranked]).encode())
    result = FrontRanking(
        tuple(ranked), tuple(failures), setup.config.objectives, csv, csv.with_suffix(".json")
    )
    best = ranked[0]
    error = best.summary["error"]
    lines = [
        f"best arm {best.arm}: test error {error.mean:.4f}{spread_text(error.deviation)} over "
        f"{error.n} trainings{failures_text(failures)}.",
        f"results   {result.csv}",
        f"all       {result.json}  (every training, and settings)",
    ]
    reporter.result(result.table(), lines)
    return result


def _ranked(front: Sequence[Arm], study: Study) -> list[RankedArm]:
    scores = study.scores
    found = [
        RankedArm(
            arm.name,
            arm.evaluation.error if arm.evaluation else None,
            tuple(s for s in scores if s.arm == arm.name),
        )
        for arm in front
    ]
    return sorted((a for a in found if a.scores), key=lambda a: a.summary["error"].mean)
