"""The record of a run: its arms in order, with the Ax experiment and the table they make."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from ax.core.data import Data, DataRow
from ax.core.experiment import Experiment as AxExperiment
from ax.core.search_space import SearchSpace
from ax.storage.json_store.decoder import object_from_json

from sparsemod.candidate import OBJECTIVES, Arm, Candidate, Constraints, Evaluation, Parametrization, Status
from sparsemod.errors import ConfigError, nearest
from sparsemod.pareto import pareto_mask
from sparsemod.search.experiment_read import read
from sparsemod.search.experiment_schema import Record
from sparsemod.search.experiment_table import Row, csv_text, frame, table_rows
from sparsemod.search.experiment_write import data_text, difference, document, encode_head, now, trial_text

__all__ = ["Experiment"]


class Experiment:
    """All arms of a run, in the order in which they were proposed.

    An arm is pending from `add` until `complete`. Weights, datasets and classes are never part of it.

    Args:
        name: Name of the run.
        search_space: The Ax search space.
        objectives: What the run minimises, names of `OBJECTIVES`.

    Raises:
        ConfigError: An objective is unknown or named twice.
        SpaceError: The space holds something that could not be read back from the results file.
    """

    def __init__(self, name: str, search_space: SearchSpace, objectives: Sequence[str]) -> None:
        for objective in objectives:
            if objective not in OBJECTIVES:
                known = ", ".join(OBJECTIVES)
                raise ConfigError(
                    f"objectives: expected some of {known}, got '{objective}'{nearest(objective, OBJECTIVES)}"
                )
        if not objectives or len({*objectives}) != len(objectives):
            raise ConfigError(f"objectives: expected at least one and none twice, got {tuple(objectives)}")
        self.name = name
        self.search_space = search_space
        self.objectives = tuple(objectives)
        self._head = encode_head(name, search_space, self.objectives, created=now())
        self._records: list[Record] = []
        self._texts: list[tuple[str, str]] = []
        self._ax_names: dict[str, str] = {}

    @classmethod
    def from_json(cls, content: bytes, where: str = "results") -> Experiment:
        """Read a results file; nothing in it is executed.

        Args:
            content: What `to_json` returned.
            where: Path of the file, for messages.

        Raises:
            StoreError: The content is cut short, damaged, or was not written by sparsemod.
        """
        stored = read(content, where)
        experiment = cls(stored.name, stored.search_space, stored.objectives)
        experiment._head["time_created"]["value"] = stored.created
        for record in stored.records:
            signature = _signature(record.arm.candidate.parametrization)
            ax_name = experiment._ax_names.setdefault(signature, record.arm.name)
            experiment._append(replace(record, ax_name=ax_name))
        return experiment

    # ------------------------------------------------------------------------------------------------- arms

    @property
    def arms(self) -> list[Arm]:
        """Every arm, in order."""
        return [r.arm for r in self._records]

    @property
    def history(self) -> list[Arm]:
        """The arms that have been evaluated, failed ones included, in order."""
        return [r.arm for r in self._records if r.arm.evaluation is not None]

    @property
    def pending(self) -> list[Arm]:
        """The arms that were proposed and have not been evaluated, in order."""
        return [r.arm for r in self._records if r.arm.evaluation is None]

    def add(
        self, candidates: Sequence[Candidate], round: int, epochs: int, seeds: Sequence[int]
    ) -> list[Arm]:
        """Give candidates their name and place; they are pending.

        Args:
            candidates: What a strategy proposed.
            round: The round of their stage, from 0.
            epochs: Epochs to train each.
            seeds: One seed for each.

        Returns:
            The new arms, ``<index>_0`` each.

        Raises:
            ValueError: A parametrization has a parameter or a type that the space has not.
        """
        arms = []
        for candidate, seed in zip(candidates, seeds, strict=True):
            parameters = {name: _plain(value) for name, value in candidate.parametrization.items()}
            self.search_space.check_types(parameters, allow_extra_params=False, raise_error=True)
            name = f"{len(self._records)}_0"
            kept = replace(candidate, parametrization=parameters, origin=_clean(candidate.origin))
            arm = Arm(name=name, candidate=kept, round=round, epochs=epochs, seed=int(seed))
            ax_name = self._ax_names.setdefault(_signature(parameters), name)
            self._append(Record(arm, ax_name, created=now()))
            arms.append(arm)
        return arms

    def complete(self, name: str, evaluation: Evaluation) -> Arm:
        """Record what came out of a pending arm; its weights and traceback are not kept.

        Raises:
            KeyError: There is no such arm.
            ValueError: It has been evaluated already, or it is completed without error or resources.
        """
        index = self._position(name)
        record = self._records[index]
        if record.arm.evaluation is not None:
            raise ValueError(f"arm {name} has been evaluated already")
        if evaluation.status is Status.PENDING:
            raise ValueError(f"arm {name}: an evaluation is completed or failed, not pending")
        completed = evaluation.status is Status.COMPLETED
        if completed and (evaluation.error is None or evaluation.resources is None):
            raise ValueError(f"arm {name} is completed without error or resources")
        kept = replace(
            evaluation,
            reason=_clean(evaluation.reason),
            float_error=_none_if_nan(evaluation.float_error),
            test_error=_none_if_nan(evaluation.test_error),
            integer_error=_none_if_nan(evaluation.integer_error),
            details="",
            weights=None,
            layers=None,
            tflite=None,
            unexported="",
        )
        arm = replace(record.arm, evaluation=kept)
        return self._replace(index, replace(record, arm=arm, completed=now()))

    def set_test_error(
        self, name: str, test_error: float, integer_error: float | None = None, file_bytes: int | None = None
    ) -> Arm:
        """Record what is measured of an arm on the front after it has been evaluated.

        Args:
            name: The arm.
            test_error: 1 - test accuracy; by the integer simulation if `integer_error` is given.
            integer_error: 1 - validation accuracy by the integer simulation.
            file_bytes: Size of its `.tflite` file.

        Raises:
            KeyError: There is no such arm.
            ValueError: It has not been evaluated.
        """
        index = self._position(name)
        record = self._records[index]
        if record.arm.evaluation is None:
            raise ValueError(f"arm {name} has not been evaluated")
        resources = record.arm.evaluation.resources
        if resources is not None and file_bytes is not None:
            resources = replace(resources, file_bytes=file_bytes)
        kept = replace(
            record.arm.evaluation,
            test_error=_none_if_nan(test_error),
            integer_error=_none_if_nan(integer_error),
            resources=resources,
        )
        return self._replace(index, replace(record, arm=replace(record.arm, evaluation=kept)))

    def front(self, constraints: Constraints | None = None) -> list[Arm]:
        """Return the completed arms that no other one dominates, of those that keep the limits, in order.

        Args:
            constraints: Limits on the resources of the trained network; None for no limits.
        """
        limits = constraints or Constraints()
        arms, values = [], []
        for arm in self.history:
            evaluation = arm.evaluation
            if evaluation is None or evaluation.resources is None or arm.status is not Status.COMPLETED:
                continue
            if limits.violation(evaluation.resources) is None:
                arms.append(arm)
                values.append([evaluation.objective(o) for o in self.objectives])
        if not arms:
            return []
        return [arm for arm, kept in zip(arms, pareto_mask(np.array(values)), strict=True) if kept]

    def matches(self, search_space: SearchSpace, objectives: Sequence[str]) -> str | None:
        """Say in one line why these results belong to another search, or None when they are of this one.

        Args:
            search_space: The Ax search space of the search that wants to go on.
            objectives: Its objectives.
        """
        if tuple(objectives) != self.objectives:
            return f"the results minimise {', '.join(self.objectives)}, this search {', '.join(objectives)}"
        other = encode_head(self.name, search_space, objectives, created=now())
        return difference(self._head["search_space"], other["search_space"])

    # ------------------------------------------------------------------------------------------------ files

    def to_json(self) -> bytes:
        """Return the Ax experiment as JSON, readable by `from_json` and by Ax's `load_experiment`."""
        return document(self._head, (t for t, _ in self._texts), (d for _, d in self._texts))

    def rows(self, constraints: Constraints | None = None) -> list[Row]:
        """Return the lines of the table: the metrics of each completed arm; failed arms have none.

        Args:
            constraints: Limits that an arm must keep to be on the front.
        """
        return table_rows(self.history, {arm.name for arm in self.front(constraints)})

    def to_csv(self, constraints: Constraints | None = None) -> str:
        """Return `rows` as the text of `<name>.csv`; every float reads back as the same number."""
        return csv_text(self.rows(constraints))

    def to_frame(self, constraints: Constraints | None = None) -> pd.DataFrame:
        """Return `rows` as a data frame with the columns of `<name>.csv`."""
        return frame(self.rows(constraints))

    # --------------------------------------------------------------------------------------------------- Ax

    def ax_experiment(self) -> AxExperiment:
        """Return the run as an Ax experiment; ``arms_by_name["12_0"].parameters`` are an arm's parameters."""
        content = document(self._head, (trial for trial, _ in self._texts), data=())
        experiment = object_from_json(json.loads(content))
        experiment.data = self.ax_data()  # read from the file, the numbers would lose their last digits
        for record in self._records:
            experiment.arms_by_name.setdefault(record.arm.name, experiment.arms_by_name[record.ax_name])
        return experiment

    def ax_data(self) -> Data:
        """Return the standardised values of the completed arms as Ax data."""
        ax_names = {r.arm.name: r.ax_name for r in self._records}
        return Data(
            data_rows=[
                DataRow(
                    trial_index=row.trial_index,
                    arm_name=ax_names[row.arm_name],
                    metric_name=row.metric_name,
                    metric_signature=row.metric_name,
                    mean=row.mean,
                    se=row.sem,
                )
                for row in self.rows()
                if row.metric_name in OBJECTIVES
            ]
        )

    # ---------------------------------------------------------------------------------------------- private

    def _append(self, record: Record) -> None:
        self._texts.append((trial_text(record), data_text(record)))
        self._records.append(record)

    def _replace(self, index: int, record: Record) -> Arm:
        self._texts[index] = (trial_text(record), data_text(record))
        self._records[index] = record
        return record.arm

    def _position(self, name: str) -> int:
        index = next((i for i, r in enumerate(self._records) if r.arm.name == name), None)
        if index is None:
            raise KeyError(f"there is no arm {name}")
        return index


def _plain(value: Any) -> Any:
    """Turn a NumPy scalar, which JSON does not know, into Python's own."""
    return value.item() if isinstance(value, np.generic) else value


def _clean(text: str) -> str:
    """Replace lone surrogates, which a file name in a user's exception may hold and no file can."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _none_if_nan(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else float(value)


def _signature(parameters: Parametrization) -> str:
    """What Ax tells arms apart by."""
    return json.dumps(dict(parameters), sort_keys=True)
