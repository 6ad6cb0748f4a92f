"""Reading `<name>.json` without running anything that it says.

Ax's own decoder builds any class of its registry and hands expressions to SymPy, which evaluates them as
Python. So the file is first checked against `experiment_schema`, expressions are parsed here and written anew
from their numbers and names, and Ax decodes the search space from nothing but that.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection
from typing import Any

from ax.core.search_space import SearchSpace
from ax.exceptions.core import AxError
from ax.storage.json_store.decoder import search_space_from_json
from pydantic import ValidationError

from sparsemod.candidate import OBJECTIVES, Arm, Candidate, Evaluation, Status
from sparsemod.errors import StoreError
from sparsemod.search.experiment_schema import (
    AX_STATUS,
    FORMAT,
    ConstraintModel,
    ExperimentModel,
    MetadataModel,
    Record,
    SpaceModel,
    Stored,
    TrialModel,
)

__all__ = ["decode_space", "describe", "read"]

_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_./:|~@-]*")  # nothing in it that Python or SymPy could call
_NUMBER = re.compile(r"-?[0-9]{1,400}(\.[0-9]{1,400})?(e[+-]?[0-9]{1,4})?")
_STATUS = {theirs: ours for ours, theirs in AX_STATUS.items()}


def read(content: bytes, where: str) -> Stored:
    """Read a results file.

    Args:
        content: The bytes of the file.
        where: Its path, for messages.

    Raises:
        StoreError: It is cut short, damaged, or was not written by sparsemod.
    """
    try:
        file = ExperimentModel.model_validate_json(content)
        version = file.properties.sparsemod_format
        if version != FORMAT:
            raise StoreError(f"its format is {version}, this sparsemod reads {FORMAT}")
        space = decode_space(file.search_space)
        objectives = _objectives(file.optimization_config.objective.expression)
        records = tuple(_record(i, file.trials, space) for i in range(len(file.trials)))
    except (ValidationError, StoreError) as error:
        raise StoreError(f"{where}: not a readable results file of sparsemod: {describe(error)}") from error
    return Stored(file.name, file.time_created.value, space, objectives, records)


def decode_space(space: SpaceModel) -> SearchSpace:
    """Build the Ax search space.

    Raises:
        StoreError: The space cannot be built, or an expression is not plainly linear.
    """
    names = {p.name for p in space.parameters}
    decoded = space.model_dump(by_alias=True)
    for parameter in decoded["parameters"]:
        if "expression_str" in parameter:
            parameter["expression_str"] = _derived(parameter["expression_str"], names)
    decoded["parameter_constraints"] = [_constraint(c, names) for c in space.parameter_constraints]
    try:
        return search_space_from_json(decoded)
    except (AxError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise StoreError(f"search_space: {_short(error)}") from error


def describe(error: ValidationError | StoreError) -> str:
    """Say in one line what is wrong, with its place in the file."""
    if isinstance(error, StoreError):
        return _short(error)
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    place = ".".join(str(p) for p in first["loc"])
    return f"{place}: {_short(first['msg'])}" if place else _short(first["msg"])


def _short(error: object) -> str:
    text = " ".join(str(error).split())
    return text if len(text) <= 200 else f"{text[:197]}..."


def _objectives(expression: str) -> tuple[str, ...]:
    known = {f"-{objective}": objective for objective in OBJECTIVES}
    terms = expression.split(", ")
    if not known.keys() >= {*terms} or len({*terms}) != len(terms):
        raise StoreError(f"the objectives '{_short(expression)}' are unknown")
    return tuple(known[term] for term in terms)


def _constraint(constraint: ConstraintModel, names: Collection[str]) -> dict[str, Any]:
    if (constraint.inequality is None) == (constraint.equality is None):
        raise StoreError("search_space: a constraint is neither an inequality nor an equality")
    kind, sign = ("inequality", " <= ") if constraint.equality is None else ("equality", " == ")
    left, _, bound = (constraint.inequality or constraint.equality or "").rpartition(sign)
    return {"__type": "ParameterConstraint", kind: f"{_linear(left, names)}{sign}{_number(bound)!r}"}


def _derived(expression: str, names: Collection[str]) -> str:
    if expression in names:
        return _name(expression, names)
    left, _, intercept = expression.rpartition(" + ")
    return f"{_linear(left, names)} + {_number(intercept)!r}"


def _linear(text: str, names: Collection[str]) -> str:
    """Write ``a * x + b * y`` anew from its numbers and names."""
    terms = [term.split(" * ", 1) for term in text.split(" + ")]
    if any(len(term) != 2 for term in terms):
        raise StoreError(f"search_space: '{_short(text)}' is not a sum of 'number * name'")
    if len({name for _, name in terms}) != len(terms):
        raise StoreError(f"search_space: '{_short(text)}' names a parameter twice")
    return " + ".join(f"{_number(number)!r} * {_name(name, names)}" for number, name in terms)


def _number(text: str) -> float:
    number = float(text) if _NUMBER.fullmatch(text) else math.nan
    if not math.isfinite(number):
        raise StoreError(f"search_space: '{_short(text)}' in an expression is not a number")
    return number


def _name(text: str, names: Collection[str]) -> str:
    if text not in names or not _PLAIN_NAME.fullmatch(text):
        raise StoreError(f"search_space: '{_short(text)}' in an expression is no plain name of a parameter")
    return text


def _record(index: int, trials: dict[str, TrialModel], space: SearchSpace) -> Record:
    where = f"trials.{index}"
    trial = trials.get(str(index))
    if trial is None or trial.index != index:
        raise StoreError(f"{where} is missing")
    metadata = trial.run_metadata
    status = _STATUS[trial.status.name]
    if (metadata.evaluation is None) != (status is Status.PENDING):
        raise StoreError(f"{where}: its status {status} and its evaluation do not go together")
    stored = trial.generator_run.arms[0]
    try:
        space.check_types(stored.parameters, allow_extra_params=False, raise_error=True)
    except ValueError as error:
        raise StoreError(f"{where}: {_short(error)}") from error
    arm = Arm(
        name=f"{index}_0",
        candidate=_candidate(metadata, stored.parameters),
        round=metadata.round,
        epochs=metadata.epochs,
        seed=metadata.seed,
        evaluation=_evaluation(trial, status, where),
    )
    completed = trial.time_completed.value if trial.time_completed else None
    return Record(arm, stored.name, trial.time_created.value, completed)


def _candidate(metadata: MetadataModel, parameters: dict[str, Any]) -> Candidate:
    return Candidate(
        parametrization=parameters,
        stage=metadata.stage,
        origin=metadata.origin,
        draw=metadata.draw,
        parent=metadata.parent,
    )


def _evaluation(trial: TrialModel, status: Status, where: str) -> Evaluation | None:
    outcome = trial.run_metadata.evaluation
    if outcome is None:
        return None
    error = outcome.error
    if status is Status.COMPLETED:
        if outcome.resources is None:
            raise StoreError(f"{where}: it is completed without resources")
        error = math.nan if error is None else error
    return Evaluation(
        status=status,
        reason=trial.status_reason or "",
        error=error,
        float_error=outcome.float_error,
        test_error=outcome.test_error,
        integer_error=outcome.integer_error,
        resources=outcome.resources,
        n_epochs=outcome.n_epochs,
        best_epoch=outcome.best_epoch,
        sparsity=outcome.sparsity,
        seconds=outcome.seconds,
    )
