"""Test mode: `CrossTest` for [TEST], and the same for the arms of a search that is at hand."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sparsemod.candidate import Arm
from sparsemod.config import RunConfig, TestConfig
from sparsemod.config.models import board
from sparsemod.crosstest.labels import read_labels
from sparsemod.crosstest.plot import draw_test
from sparsemod.crosstest.splits import NumberedSplit, Plan, make_splits
from sparsemod.crosstest.study import Failure, Study, Training
from sparsemod.crosstest.tables import confusion_csv, scores_csv
from sparsemod.errors import CandidateError, ConfigError, StoreError
from sparsemod.evaluate.executors import Executor, InlineExecutor, ProcessExecutor
from sparsemod.evaluate.splits import evaluate_split, joined
from sparsemod.evaluate.task import Job, Task
from sparsemod.evaluate.worker import refuse_reimport
from sparsemod.search.experiment import Experiment
from sparsemod.sparse.before import arm_seed
from sparsemod.sparse.experiment import stored_experiment
from sparsemod.sparse.progress import Reporter
from sparsemod.sparse.setup import Setup, prepare, split_arguments
from sparsemod.sparse.tested import CrossTestResult
from sparsemod.store import Store

__all__ = [
    "CrossTest",
    "How",
    "carry_out",
    "failures_text",
    "run_cross_test",
    "searched",
    "setting_of",
    "spread_text",
    "training_of",
    "whole_task",
]

_BOARD = ("flops", "target", "target_spec", "runtime")


class CrossTest:
    """The test of one arm of a search: it is trained anew over cross splits of all the data, and scored.

    Args:
        **arguments: All by keyword: the keys of [TEST], the Python objects of `Sparse`, and what says which
            board the search was for: ``flops``, ``target``, ``runtime``.

    Raises:
        ConfigError: An argument is unknown, missing, ill-typed or contradictory.
        SpaceError: The search space cannot be used.
        DataError: The datasets are not three, or one is empty, or the groups do not fit them.

    Example:
        >>> from sparsemod import CrossTest
        >>> try:
        ...     CrossTest(arms="3_0")
        ... except ValueError as error:
        ...     print(error)
        CrossTest(...): unknown argument 'arms' (did you mean 'arm'?)
    """

    def __init__(self, **arguments: Any) -> None:
        where = "CrossTest(...)"
        settings, objects = split_arguments(arguments, where, (*TestConfig.keys(), *_BOARD))
        around = {key: settings.pop(key) for key in _BOARD if key in settings}
        self.config = TestConfig.from_mapping(settings, where=where)
        self.setup = _setup(self.config, around, objects, where)

    @classmethod
    def from_config(cls, path: str | Path = "config.cfg", **objects: Any) -> CrossTest:
        """Make a test from the [TEST] section of a configuration file and the Python objects.

        Raises:
            ConfigError: As above, or the file cannot be read.
        """
        settings, checked = split_arguments(objects, "CrossTest.from_config(...)", TestConfig.keys())
        test = cls.__new__(cls)
        test.config = TestConfig.from_file(path, **settings)
        test.setup = _setup(test.config, board(path), checked, f"{path} [TEST]")
        return test

    def run(self) -> CrossTestResult:
        """Train and score what is left of the splits, and show the result.

        Raises:
            StoreError: There are no results, they are of another search space, have no such arm, or the
                folder holds a test of other settings.
            DataError: The data cannot be split so.
            CandidateError: Every training failed.
            ExecutorError: Work cannot be handed to the workers.
            SystemExit: Ctrl-C was pressed; what is finished is kept.
        """
        return run_cross_test(self.setup, self.config)


@dataclass(frozen=True)
class How:
    """Who trains; see `RunConfig`."""

    workers: int | None
    executor: str | None


def _setup(config: TestConfig, around: Mapping[str, Any], objects: Mapping[str, Any], where: str) -> Setup:
    """Make the search's setup that trains the arm as the test asks."""
    keys = ("pruning", "splitter", "quant_scheme", "objectives", "name", "root", "recipe", "seed")
    stages = {"r1": 1, "r2": 0, "r3": 0, "epochs1": config.epochs, "epochs2": 0, "epochs3": 0}
    values = {**{key: getattr(config, key) for key in keys}, **stages, **around, "morphisms": False}
    run = RunConfig.from_mapping(values, where=where)
    return prepare(run, objects, where)


def run_cross_test(setup: Setup, config: TestConfig) -> CrossTestResult:
    """Run what is left of a test; see `CrossTest.run`."""
    refuse_reimport()
    arm = _arm(setup, config)
    split = config.split or ("stratified" if setup.groups is None else "loso")
    plan = Plan(split, config.n_splits, config.seeds, config.validation, config.seed)
    whole = joined((setup.task.train, setup.task.validation, setup.task.test))
    labels = None
    if split == "stratified":
        collate = _collate(setup.task, arm)
        labels = read_labels(whole, collate).tolist()
    splits = make_splits(plan, len(whole), setup.groups, labels)
    trainings = [
        training_of(k, arm, found, config.epochs, _job_seed(config.seed, found))
        for k, found in enumerate(splits)
    ]
    setting = {
        **setting_of(setup, config.epochs, len(whole)),
        "arm": dict(sorted(arm.candidate.parametrization.items())),
        "split": split,
        "n_splits": None if split == "loso" else config.n_splits,
        "validation": config.validation,
        "seed": config.seed,
    }
    name = f"{arm.name}-{split}"
    reporter = Reporter()
    with Store(setup.config.root, setup.config.name) as store, reporter:
        study = Study(store, name, setting, trainings)
        failures = carry_out(study, whole_task(setup.task, whole), config, reporter, name)
        scores = study.scores
        csv = store.put_test(f"{name}.csv", scores_csv(scores).encode())
        result = CrossTestResult(
            arm=arm.name,
            split=split,
            scores=tuple(scores),
            failures=tuple(failures),
            objectives=setup.config.objectives,
            csv=csv,
            json=csv.with_suffix(".json"),
            confusion_csv=csv.with_name(f"{name}-confusion.csv"),
            plot=None,
        )
        store.put_test(result.confusion_csv.name, confusion_csv(result.confusion).encode())
        try:
            picture = draw_test(scores, f"arm {arm.name}, {split}")
            result = replace(result, plot=store.put_test(f"{name}.png", picture))
        except ConfigError as missing:
            reporter.note(str(missing))
    error, balanced = result.summary["error"], result.summary["balanced_accuracy"]
    lines = [
        f"arm {arm.name}: test error {error.mean:.4f}{spread_text(error.deviation)}, balanced accuracy "
        f"{balanced.mean:.4f}{spread_text(balanced.deviation)} over "
        f"{error.n} trainings{failures_text(failures)}.",
        f"results   {result.csv}",
        f"all       {result.json}  (confusion matrices and settings, too)",
        *([f"picture   {result.plot}"] if result.plot else []),
    ]
    reporter.result(result.table(), lines)
    return result


_CROSS = 1 << 41
"""Seeds of cross splits are numbered from here on, far from the arms of a search."""


def _job_seed(seed: int, found: NumberedSplit) -> int:
    return arm_seed(seed, _CROSS + (found.seed << 20) + found.fold)


def training_of(index: int, arm: Arm, found: NumberedSplit, epochs: int, seed: int) -> Training:
    """Return a training of an arm, from scratch."""
    # Trained from scratch: whatever the arm inherited in the search has seen the samples that are tested.
    candidate = replace(arm.candidate, parent=None)
    job = Job(index=index, candidate=candidate, epochs=epochs, seed=seed, split=found.split)
    return Training(arm.name, found.seed, found.fold, found.subjects, job)


def carry_out(
    study: Study, task: Task, how: TestConfig | How, reporter: Reporter, name: str
) -> list[Failure]:
    """Do what is missing of a test, and return what failed.

    Raises:
        CandidateError: Every training failed.
        SystemExit: Ctrl-C was pressed.
    """
    total, n_missing = len(study.scores) + len(study.missing), len(study.missing)
    reporter.stage(name, total, total - n_missing, "trainings")
    try:
        with _executor(task, how, n_missing) as executor:
            failures = study.run(executor, reporter.training)
    except KeyboardInterrupt:
        done = len(study.scores)
        reporter.note(f"stopped; {done} of {total} trainings are kept. Go on with the same command")
        raise SystemExit(130) from None
    reporter.end_stage()
    if not study.scores:
        raise CandidateError(f"every training of the test failed: {failures[0].reason}")
    study.finish()
    return failures


def _executor(task: Task, how: TestConfig | How, n_jobs: int) -> Executor:
    workers = min(how.workers or 1, max(n_jobs, 1))
    if how.executor == "inline" or n_jobs == 0 or (how.executor is None and (how.workers or 1) == 1):
        return InlineExecutor(task, evaluate_split)
    return ProcessExecutor(task, workers, evaluate_split)


def whole_task(task: Task, whole: Any) -> Task:
    """Return the task with all samples in its training set, so that workers are sent them once."""
    return replace(task, train=whole, validation=(), test=())


def _collate(task: Task, arm: Arm) -> Callable[..., Any] | None:
    if not task.splitter or task.collate_fn is None:
        return task.collate_fn
    max_len, collate_fn = arm.candidate.parametrization.get("max_len"), task.collate_fn
    return lambda items: collate_fn(items, max_len=max_len)


def searched(setup: Setup) -> Experiment:
    """Return the results of the search.

    Raises:
        StoreError: There are none, they are damaged, or of another search space.
    """
    experiment = stored_experiment(setup)
    mismatch = experiment.matches(setup.space.ax, experiment.objectives)
    if mismatch:
        path = Store(setup.config.root, setup.config.name).json_path
        raise StoreError(f"{path}: these results are of another search space: {mismatch}")
    return experiment


def _arm(setup: Setup, config: TestConfig) -> Arm:
    arms = {a.name: a for a in searched(setup).arms}
    if config.arm not in arms:
        near = ", ".join(difflib.get_close_matches(config.arm, arms, n=3, cutoff=0.0)) or "none"
        path = setup.config.root / f"{setup.config.name}.json"
        raise StoreError(f"{path}: there is no arm '{config.arm}'; the nearest names are {near}")
    return arms[config.arm]


def setting_of(setup: Setup, epochs: int, n_samples: int) -> dict[str, Any]:
    """Return what trainings must have in common to be compared."""
    task = setup.task
    return {
        "epochs": epochs,
        "pruning": task.pruning,
        "quant_scheme": task.quant_scheme,
        "quant_params": [kind.__name__ for kind in task.quant_params],
        "splitter": task.splitter,
        "runtime": task.runtime,
        "target": task.target.name,
        "clock_hz": task.target.clock_hz,
        "recipe": task.recipe,
        "classes": task.classes,
        "n_samples": n_samples,
    }


def spread_text(deviation: float | None) -> str:
    """Say a deviation behind its mean."""
    return "" if deviation is None else f" ± {deviation:.4f}"


def failures_text(failures: Sequence[Failure]) -> str:
    """Say how many trainings failed, and why the first did."""
    return f", {len(failures)} failed ({failures[0].reason})" if failures else ""
