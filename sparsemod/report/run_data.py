"""What a report is made of: all that a results folder holds, read without the user's network or data."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sparsemod.candidate import OBJECTIVES, Arm, Constraints
from sparsemod.errors import SpaceError, StoreError
from sparsemod.measure.layer_table import LayerCost, load_layers
from sparsemod.search.experiment import Experiment
from sparsemod.space.parameters import Tunable
from sparsemod.space.space import Space
from sparsemod.store import Store

__all__ = ["RunData", "read_run"]


@dataclass(frozen=True)
class RunData:
    """A run as it is in its folder.

    Attributes:
        name: Its name.
        objectives: What it minimises.
        arms: Every arm, in order.
        front: Names of the Pareto-optimal arms within the limits.
        constraints: The limits that the run was made under.
        parameters: What was searched.
        layers: The layer tables of arms on the front; runs made by earlier versions have none.
        record: The content of `run.json`; empty where there is none.
    """

    name: str
    objectives: tuple[str, ...]
    arms: tuple[Arm, ...]
    front: frozenset[str]
    constraints: Constraints
    parameters: tuple[Tunable, ...]
    layers: Mapping[str, tuple[LayerCost, ...]]
    record: Mapping[str, Any]

    @property
    def evaluated(self) -> list[Arm]:
        """The arms that have been evaluated, failed ones included, in order."""
        return [arm for arm in self.arms if arm.evaluation is not None]

    @property
    def completed(self) -> list[Arm]:
        """The arms that have a number for every objective, in order."""
        return [
            arm
            for arm in self.evaluated
            if arm.evaluation and all(math.isfinite(arm.evaluation.objective(o)) for o in OBJECTIVES)
        ]

    @property
    def configuration(self) -> Mapping[str, Any]:
        """The configuration of `run.json`; empty where there is none."""
        configuration = self.record.get("configuration")
        return configuration if isinstance(configuration, Mapping) else {}


def read_run(root: str | Path) -> RunData:
    """Read a results folder; a run may be writing to it.

    Raises:
        StoreError: There is no run, or a file of it cannot be read.
    """
    folder = Path(root)
    if not folder.is_dir():
        raise StoreError(f"{folder}: expected a results folder, there is no such folder")
    store = Store(folder, _name(folder))
    record = store.read_run() or {}
    content = store.read()
    if content is None:
        raise StoreError(f"{store.json_path}: there are no results yet")
    experiment = Experiment.from_json(content, str(store.json_path))
    try:
        space = Space.from_ax(experiment.search_space)
    except SpaceError as error:
        raise StoreError(f"{store.json_path}: its search space cannot be read: {error}") from error
    constraints = _constraints(record, store.run_path)
    front = [arm.name for arm in experiment.front(constraints)]
    return RunData(
        name=experiment.name,
        objectives=experiment.objectives,
        arms=tuple(experiment.arms),
        front=frozenset(front),
        constraints=constraints,
        parameters=tuple(space.tunable.values()),
        layers=_layers(store, front),
        record=record,
    )


def _name(folder: Path) -> str:
    """Return the name of the run in a folder: that of `run.json`, or of the only results file."""
    named = (Store(folder, "any").read_run() or {}).get("name")
    if isinstance(named, str):
        return named
    names = sorted(path.stem for path in folder.glob("*.json") if path.name != "run.json")
    if len(names) == 1:
        return names[0]
    found = f"found {', '.join(names)}" if names else "there are no results"
    raise StoreError(f"{folder}: expected one results file <name>.json, {found}")


def _layers(store: Store, front: Sequence[str]) -> dict[str, tuple[LayerCost, ...]]:
    tables = {}
    for arm in front:
        content = store.layers(arm)
        if content is not None:
            tables[arm] = load_layers(content, str(store.models_path / f"{arm}.layers.json"))
    return tables


def _constraints(record: Mapping[str, Any], path: Path) -> Constraints:
    configuration = record.get("configuration")
    limits = configuration.get("constraints") if isinstance(configuration, Mapping) else None
    if limits is None:
        return Constraints()
    size, ram, latency = (_limit(limits, name, path) for name in OBJECTIVES[1:])
    return Constraints(
        model_size=None if size is None else int(size),
        working_memory=None if ram is None else int(ram),
        latency=latency,
    )


def _limit(limits: Any, name: str, path: Path) -> float | None:
    limit = limits.get(name) if isinstance(limits, Mapping) else limits
    if limit is None:
        return None
    if isinstance(limit, bool) or not isinstance(limit, int | float) or not math.isfinite(limit):
        raise StoreError(f"{path}: configuration.constraints.{name}: expected a number, got {limit!r}")
    return limit
