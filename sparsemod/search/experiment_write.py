"""Writing `<name>.json` as Ax would, arm by arm.

What never changes (space, metrics, objectives) is encoded once by Ax itself; each trial is a text of its own,
encoded when it changes. So a save encodes one arm and joins texts, however many arms there are.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from ax.core.experiment import Experiment as AxExperiment
from ax.core.metric import Metric
from ax.core.objective import Objective
from ax.core.optimization_config import MultiObjectiveOptimizationConfig, OptimizationConfig
from ax.core.search_space import SearchSpace
from ax.storage.json_store.encoder import object_to_json
from pydantic import ValidationError

from sparsemod.candidate import OBJECTIVES, Evaluation, Status, standardised
from sparsemod.errors import SpaceError, StoreError
from sparsemod.search.experiment_read import decode_space, describe
from sparsemod.search.experiment_schema import AX_STATUS, FORMAT, TIME_FORMAT, Record, SpaceModel

__all__ = ["data_text", "difference", "document", "encode_head", "now", "trial_text"]


def now() -> str:
    """Return the local time as Ax writes it."""
    return datetime.now().strftime(TIME_FORMAT)


def encode_head(
    name: str, search_space: SearchSpace, objectives: Sequence[str], created: str
) -> dict[str, Any]:
    """Encode everything but the trials and their data.

    Raises:
        SpaceError: The space holds something that could not be read back.
    """
    objective = Objective(
        expression=", ".join(f"-{o}" for o in objectives), metric_name_to_signature={o: o for o in objectives}
    )
    config = OptimizationConfig if len(objectives) == 1 else MultiObjectiveOptimizationConfig
    experiment = AxExperiment(
        name=name,
        search_space=search_space,
        optimization_config=config(objective=objective),
        metrics=[Metric(name=o, lower_is_better=True) for o in OBJECTIVES],
        properties={"immutable_search_space_and_opt_config": True, "sparsemod_format": FORMAT},
    )
    head: dict[str, Any] = json.loads(json.dumps(object_to_json(experiment)))
    del head["trials"], head["data_by_trial"]
    head["time_created"] = _moment(created)
    space = head["search_space"]
    space["__type"] = "SearchSpace"
    for parameter in space["parameters"]:
        if parameter["__type"] == "DerivedParameter":
            parameter["expression_str"] = _derived_text(search_space.parameters[parameter["name"]])
    space["parameter_constraints"] = [_constraint(c) for c in search_space.parameter_constraints]
    try:
        decode_space(SpaceModel.model_validate_json(json.dumps(space)))
    except (ValidationError, StoreError) as error:
        raise SpaceError(f"the search space cannot be stored: {describe(error)}") from error
    return head


def difference(stored: Mapping[str, Any], space: Mapping[str, Any]) -> str | None:
    """Say in one line what first differs between two encoded search spaces, or None.

    Args:
        stored: The ``search_space`` of one head, that of the results.
        space: That of another, of the search that wants to go on.
    """
    then = {p["name"]: p for p in stored["parameters"]}
    today = {p["name"]: p for p in space["parameters"]}
    for name in [*then, *today]:
        if name not in today:
            return f"the results have a parameter '{name}', this search space has none"
        if name not in then:
            return f"this search space has a parameter '{name}', the results have none"
        for key in [*then[name], *today[name]]:
            old, new = (_shown(parameters[name].get(key)) for parameters in (then, today))
            if old != new:
                what = key.strip("_")
                return f"parameter '{name}' has {what} {old} in the results and {new} in this search space"
    for old_name, new_name in zip(then, today, strict=True):
        if old_name != new_name:
            return f"parameter '{old_name}' comes where this search space has '{new_name}'"
    old_rules, new_rules = _rules(stored), _rules(space)
    if old_rules != new_rules:
        return f"the results have the constraints {old_rules}, this search space {new_rules}"
    return None


def document(head: Mapping[str, Any], trials: Iterable[str], data: Iterable[str]) -> bytes:
    """Join the texts to the whole file.

    Args:
        head: What `encode_head` returned.
        trials: What `trial_text` returned, in order.
        data: What `data_text` returned, in order; empty texts are left out.
    """
    start = json.dumps(head, separators=(",", ":"))[:-1]
    rows = ",".join(filter(None, data))
    return f'{start},"trials":{{{",".join(trials)}}},"data_by_trial":{{{rows}}}}}'.encode("ascii")


def trial_text(record: Record) -> str:
    """Encode one arm as a member of the experiment's ``trials``.

    Raises:
        ValueError: A number is infinite or NaN, which JSON has no word for.
    """
    arm = record.arm
    candidate, evaluation = arm.candidate, arm.evaluation
    parameters = candidate.parametrization
    trial = {
        "__type": "Trial",
        "index": arm.index,
        "trial_type": None,
        "ttl_seconds": None,
        "status": {"__type": "TrialStatus", "name": AX_STATUS[arm.status]},
        "time_created": _moment(record.created),
        "time_completed": _moment(record.completed),
        "time_staged": None,
        "time_run_started": _moment(record.created),
        "status_reason": (evaluation.reason or None) if evaluation else None,
        "run_metadata": {
            "round": arm.round,
            "stage": candidate.stage,
            "origin": candidate.origin,
            "draw": candidate.draw,
            "parent": candidate.parent,
            "epochs": arm.epochs,
            "seed": arm.seed,
            "evaluation": _outcome(evaluation) if evaluation else None,
        },
        "generator_run": {
            "__type": "GeneratorRun",
            "arms": [{"__type": "Arm", "parameters": dict(parameters), "name": record.ax_name}],
            "weights": [1.0],
            "time_created": _moment(record.created),
            "generator_run_type": None,
        },
        "runner": None,
        "num_arms_created": 1,
    }
    return f'"{arm.index}":{json.dumps(trial, separators=(",", ":"), allow_nan=False)}'


def data_text(record: Record) -> str:
    """Encode the rows of a completed arm as a member of ``data_by_trial``; empty for any other arm."""
    arm, evaluation = record.arm, record.arm.evaluation
    if evaluation is None or evaluation.status is not Status.COMPLETED:
        return ""
    n = len(OBJECTIVES)
    columns = {
        "trial_index": [arm.index] * n,
        "arm_name": [record.ax_name] * n,
        "metric_name": OBJECTIVES,
        "metric_signature": OBJECTIVES,
        "mean": [_or_null(standardised(o, evaluation.objective(o))) for o in OBJECTIVES],
        "sem": [0.0] * n,
    }
    table = {"__type": "DataFrame", "value": json.dumps(columns, separators=(",", ":"))}
    data = {"__type": "OrderedDict", "value": [[0, {"df": table, "__type": "Data"}]]}
    return f'"{arm.index}":{json.dumps(data, separators=(",", ":"))}'


def _outcome(evaluation: Evaluation) -> dict[str, Any]:
    return {
        "error": _or_null(evaluation.error),
        "float_error": _or_null(evaluation.float_error),
        "test_error": _or_null(evaluation.test_error),
        "integer_error": _or_null(evaluation.integer_error),
        "n_epochs": evaluation.n_epochs,
        "best_epoch": evaluation.best_epoch,
        "sparsity": evaluation.sparsity,
        "seconds": evaluation.seconds,
        "resources": evaluation.resources.as_dict() if evaluation.resources else None,
    }


def _moment(text: str | None) -> dict[str, str] | None:
    return None if text is None else {"__type": "datetime", "value": text}


def _or_null(value: float | None) -> float | None:
    """JSON has no NaN; Ax, too, writes null for it."""
    return value if value is not None and math.isfinite(value) else None


def _derived_text(parameter: Any) -> str:
    """Ax keeps a derived parameter's expression as it was typed; its terms say the same in a strict form."""
    if parameter.source_parameter_name is not None:
        return str(parameter.source_parameter_name)
    return f"{_sum(parameter.parameter_names_to_weights)} + {parameter.intercept}"


def _constraint(constraint: Any) -> dict[str, str]:
    kind, sign = ("equality", "==") if constraint.is_equality else ("inequality", "<=")
    text = f"{_sum(constraint.constraint_dict)} {sign} {constraint.bound}"
    return {"__type": "ParameterConstraint", kind: text}


def _sum(weights: Mapping[str, float]) -> str:
    """Sorted, because the order that SymPy leaves is another one in every process."""
    return " + ".join(f"{weight} * {name}" for name, weight in sorted(weights.items()))


def _shown(value: Any) -> Any:
    return value["name"] if isinstance(value, dict) and value.get("__type") == "ParameterType" else value


def _rules(space: Mapping[str, Any]) -> str:
    texts = [c.get("inequality") or c.get("equality") for c in space["parameter_constraints"]]
    return "; ".join(texts) if texts else "none"
