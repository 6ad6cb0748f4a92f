"""The loop over the stages: ask, evaluate, record, until every round of every stage is done.

Nothing here is remembered between rounds but the experiment: a round's arms are written down before the
first of them is trained, so a run that is killed at any moment goes on with exactly the arms it would have
had.
"""

from __future__ import annotations

import os
import shlex
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from rich.table import Table

from sparsemod.candidate import Arm, Evaluation, Status
from sparsemod.config import StageConfig
from sparsemod.errors import CandidateError, ExhaustedError, StoreError
from sparsemod.evaluate.evaluation import Job
from sparsemod.evaluate.executors import Executor, InlineExecutor, ProcessExecutor, RayExecutor
from sparsemod.evaluate.scoring import score
from sparsemod.search.bayes import BayesStrategy
from sparsemod.search.experiment import Experiment
from sparsemod.search.morph import MorphStrategy
from sparsemod.search.sobol import SobolStrategy
from sparsemod.search.strategy import Problem, Strategy
from sparsemod.search.surrogate import Kernel
from sparsemod.sparse.before import ResourceCache, arm_seed, check_data, stored_weights
from sparsemod.sparse.exporting import check_space_exportable, export_missing
from sparsemod.sparse.progress import Reporter, by_error, front_table
from sparsemod.sparse.record import check_same_run, run_record
from sparsemod.sparse.setup import Setup
from sparsemod.store import Store

__all__ = ["RunResult", "run"]


@dataclass(frozen=True)
class RunResult:
    """What a run leaves behind.

    Attributes:
        arms: Every arm in order, failed ones included.
        front: The Pareto-optimal arms within the limits, lowest error first.
        csv, json, models: Where the results are.
    """

    arms: tuple[Arm, ...]
    front: tuple[Arm, ...]
    csv: Path
    json: Path
    models: Path

    def table(self) -> Table:
        """Return the front as a `rich` table."""
        return front_table(self.front)


@dataclass
class _Session:
    setup: Setup
    store: Store
    experiment: Experiment
    executor: Executor
    reporter: Reporter
    resources: ResourceCache

    def front(self) -> list[Arm]:
        return self.experiment.front(self.setup.config.constraints)

    def save(self, front: Sequence[Arm]) -> None:
        """Write the state, then drop weights that neither the front nor a pending child needs."""
        self.store.save(self.experiment.to_json(), self.experiment.to_csv(self.setup.config.constraints))
        parents = {a.candidate.parent for a in self.experiment.pending if a.candidate.parent}
        self.store.retain({a.name for a in front}, parents)


def run(setup: Setup, reporter: Reporter) -> RunResult:
    """Run what is left of a search and return its result.

    Raises:
        DataError: A data set cannot be used.
        StoreError: The results folder cannot be used, or holds another search.
        InfeasibleError: The limits exclude every configuration that was tried.
        ExecutorError: Work cannot be handed to the workers.
        SystemExit: Ctrl-C was pressed; the state is saved and the exit code is 130.
    """
    config = setup.config
    try:
        check_data(setup)
        if config.export:
            check_space_exportable(setup)
    except KeyboardInterrupt:
        reporter.note("stopped while the data were read; nothing has been changed")
        raise SystemExit(130) from None
    with Store(config.root, config.name) as store, reporter:
        if not config.resume:
            store.archive()
        experiment = _open(setup, store)
        _note_generic_latency(setup, reporter)
        try:
            with _executor(setup) as executor:
                session = _Session(setup, store, experiment, executor, reporter, ResourceCache(setup))
                if config.export:
                    export_missing(setup.task, store, session.front(), reporter.note)
                session.save(session.front())  # the table may be behind the experiment after a kill
                for stage in config.stages:
                    with _recorded(session, stage.strategy):
                        _run_stage(session, stage)
                _score_front(session)
                front = session.front()
                session.save(front)
        except KeyboardInterrupt:
            reporter.note(f"stopped; {_progress(experiment)}. Go on with the same command: {_command()}")
            raise SystemExit(130) from None
        ranked = tuple(sorted(front, key=by_error))
        return RunResult(tuple(experiment.arms), ranked, store.csv_path, store.json_path, store.models_path)


def _open(setup: Setup, store: Store) -> Experiment:
    config = setup.config
    stored = store.read()
    record = run_record(config, setup.task)
    earlier = store.read_run()
    if stored is None:
        experiment = Experiment(config.name, setup.space.ax, config.objectives)
    else:
        experiment = Experiment.from_json(stored, str(store.json_path))
        mismatch = experiment.matches(setup.space.ax, config.objectives) or check_same_run(earlier, record)
        if mismatch:
            raise StoreError(
                f"{store.json_path}: {mismatch}; choose another root, or set resume = false to start over"
            )
    store.write_run({**record, "seconds": (earlier or {}).get("seconds", {})})
    return experiment


def _executor(setup: Setup) -> Executor:
    config = setup.config
    if config.executor == "ray":
        return RayExecutor(setup.task, config.workers)
    cores = os.cpu_count() or 1
    workers = config.workers or (cores if config.asynchronous else min(config.batch_size, cores))
    if config.executor == "inline" or (config.executor is None and workers == 1):
        return InlineExecutor(setup.task)
    return ProcessExecutor(setup.task, workers)


def _strategy(stage: StageConfig, arc: bool) -> Strategy:
    if stage.strategy == "sobol":
        return SobolStrategy()
    kernel: Kernel = "arc" if arc else "matern"
    return BayesStrategy(kernel=kernel) if stage.strategy == "bayes" else MorphStrategy(kernel=kernel)


def _run_stage(session: _Session, stage: StageConfig) -> None:
    setup, config = session.setup, session.setup.config
    problem = Problem(
        space=setup.space,
        objectives=config.objectives,
        resources=partial(session.resources, epochs=stage.epochs),
        constraints=config.constraints,
        seed=config.seed,
        epochs=stage.epochs,
        morphisms=setup.morphisms,
        chance_error=1.0 - 1.0 / setup.task.classes,
    )
    strategy = _strategy(stage, config.arc)
    known = [
        a for a in session.experiment.arms if a.candidate.stage == stage.stage and a.round < stage.rounds
    ]
    session.reporter.stage(
        stage.strategy, stage.rounds * config.batch_size, sum(a.status is not Status.PENDING for a in known)
    )
    if config.asynchronous:
        _evaluate(session, _one_by_one(session, strategy, problem, stage, known))
    else:
        _run_rounds(session, strategy, problem, stage, known)
    session.reporter.end_stage()


def _run_rounds(
    session: _Session, strategy: Strategy, problem: Problem, stage: StageConfig, known: Sequence[Arm]
) -> None:
    for index in range(stage.rounds):
        arms = [a for a in known if a.round == index]
        if not arms:
            arms = _propose(session, strategy, problem, stage, index, session.setup.config.batch_size)
        if not arms:
            break
        _evaluate(session, (a for a in arms if a.status is Status.PENDING))


def _one_by_one(
    session: _Session, strategy: Strategy, problem: Problem, stage: StageConfig, known: Sequence[Arm]
) -> Iterator[Arm]:
    """Yield the arms of a stage, each proposed when a worker is free for it, from what is known then."""
    yield from (a for a in known if a.status is Status.PENDING)
    batch_size = session.setup.config.batch_size
    for place in range(len(known), stage.rounds * batch_size):
        arms = _propose(session, strategy, problem, stage, place // batch_size, 1)
        if not arms:
            return
        yield from arms


def _propose(
    session: _Session, strategy: Strategy, problem: Problem, stage: StageConfig, index: int, n: int
) -> list[Arm]:
    config, experiment = session.setup.config, session.experiment
    try:
        candidates = strategy.ask(n, experiment.arms, problem)
    except ExhaustedError:
        session.reporter.note(f"{stage.strategy}: every configuration of the space has been evaluated")
        return []
    first = len(experiment.arms)
    seeds = [arm_seed(config.seed, first + k) for k in range(len(candidates))]
    arms = experiment.add(candidates, round=index, epochs=stage.epochs, seeds=seeds)
    session.save(session.front())
    return arms


def _evaluate(session: _Session, arms: Iterable[Arm]) -> None:
    for job, evaluation in session.executor.run(_job(session, arm) for arm in arms):
        _record(session, session.experiment.arms[job.index].name, evaluation)


def _job(session: _Session, arm: Arm) -> Job:
    return Job(
        index=arm.index,
        candidate=arm.candidate,
        epochs=arm.epochs,
        seed=arm.seed,
        parent_weights=_parent_weights(session, arm),
    )


def _parent_weights(session: _Session, arm: Arm) -> bytes | None:
    parent = arm.candidate.parent
    if parent is None:
        return None
    weights, wrong = stored_weights(session.store, parent)
    if wrong:
        session.reporter.note(
            f"arm {arm.name}: the weights of its parent {parent} are {wrong}, it is trained from scratch"
        )
    return weights


def _record(session: _Session, name: str, evaluation: Evaluation) -> None:
    experiment = session.experiment
    arm = experiment.complete(name, evaluation)
    front = session.front()
    if evaluation.weights is not None and any(a.name == name for a in front):
        session.store.put_weights(name, evaluation.weights)
        if evaluation.layers is not None:
            session.store.put_layers(name, evaluation.layers)
        if evaluation.tflite is not None:
            session.store.put_tflite(name, evaluation.tflite)
        elif evaluation.unexported:
            session.reporter.note(f"arm {name}: there is no .tflite of it: {evaluation.unexported}")
    session.save(front)
    done = experiment.history
    limits = session.setup.config.constraints
    fit = [
        a
        for a in done
        if a.evaluation and a.evaluation.resources and not limits.violation(a.evaluation.resources)
    ]
    session.reporter.arm(arm, front, len(fit) / len(done))


def _score_front(session: _Session) -> None:
    """Measure the arms on the front as they ship, and on the test set; the search never sees the figures."""
    reasons: dict[str, list[str]] = {}
    for arm in session.front():
        if arm.evaluation is None or arm.evaluation.test_error is not None:
            continue
        weights, wrong = stored_weights(session.store, arm.name)
        if weights is None:
            session.reporter.note(f"arm {arm.name}: its weights are {wrong}, so its test error is unknown")
            continue
        try:
            found = score(session.setup.task, arm.candidate, weights, arm.seed)
        except (CandidateError, StoreError) as failure:
            session.reporter.note(f"arm {arm.name}: its test error is unknown: {failure}")
            continue
        session.experiment.set_test_error(arm.name, found.test_error, found.integer_error, found.file_bytes)
        if found.reason:
            reasons.setdefault(found.reason, []).append(arm.name)
    for reason, names in reasons.items():
        session.reporter.note(
            f"test error of {', '.join(names)} by fake quantization, not by integer simulation: {reason}"
        )


@contextmanager
def _recorded(session: _Session, stage: str) -> Iterator[None]:
    """Add the wall seconds of a stage to `run.json`, also when the stage is left by an exception."""
    start = time.perf_counter()
    try:
        yield
    finally:
        stored: Mapping[str, Any] = session.store.read_run() or {}
        before = stored.get("seconds")
        seconds = dict(before) if isinstance(before, Mapping) else {}
        earlier = seconds.get(stage)
        so_far = float(earlier) if isinstance(earlier, int | float) else 0.0
        seconds[stage] = round(so_far + time.perf_counter() - start, 3)
        session.store.write_run({**stored, "seconds": seconds})


def _note_generic_latency(setup: Setup, reporter: Reporter) -> None:
    config = setup.config
    if "latency" in config.objectives and setup.task.target.name == "generic":
        reporter.note(
            "latency: the generic target counts one multiply-accumulate a cycle; "
            "name a target for the figures of a real core"
        )


def _progress(experiment: Experiment) -> str:
    done = len(experiment.history)
    return f"{done} arm{'s are' if done != 1 else ' is'} saved"


def _command() -> str:
    return shlex.join([Path(sys.executable).name, *sys.argv])
