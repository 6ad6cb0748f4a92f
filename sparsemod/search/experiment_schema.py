"""What a results file may hold: the part of Ax's JSON that sparsemod writes, and nothing else.

Every ``__type`` is a literal here, so a file cannot name any other class; unknown keys are dropped.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Literal

from ax.core.search_space import SearchSpace
from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from sparsemod.candidate import Arm, Resources, Status

__all__ = [
    "AX_STATUS",
    "FORMAT",
    "TIME_FORMAT",
    "ConstraintModel",
    "ExperimentModel",
    "MetadataModel",
    "Record",
    "SpaceModel",
    "Stored",
    "TrialModel",
]

FORMAT = 1
TIME_FORMAT = "%Y-%m-%d %H:%M:%S.%f"
AX_STATUS = {Status.PENDING: "RUNNING", Status.COMPLETED: "COMPLETED", Status.FAILED: "FAILED"}


@dataclass(frozen=True, slots=True)
class Record:
    """An arm with what only Ax asks for.

    Attributes:
        arm: The arm.
        ax_name: Its name in Ax, which knows arms of equal parameters by the name of the first of them.
        created: When it was proposed.
        completed: When its evaluation ended, or None.
    """

    arm: Arm
    ax_name: str
    created: str
    completed: str | None = None


@dataclass(frozen=True, slots=True)
class Stored:
    """What a results file says."""

    name: str
    created: str
    search_space: SearchSpace
    objectives: tuple[str, ...]
    records: tuple[Record, ...]


def _check_time(text: str) -> str:
    datetime.strptime(text, TIME_FORMAT)
    return text


def _type() -> Any:
    return Field(alias="__type")


class _Model(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True, extra="ignore", allow_inf_nan=False)


Value = bool | int | float | str
Count = Annotated[int, Field(ge=0)]
ArmName = Annotated[str, Field(pattern=r"^[0-9]{1,12}_[0-9]{1,12}$")]


class Moment(_Model):
    """A local time."""

    type: Literal["datetime"] = _type()
    value: Annotated[str, AfterValidator(_check_time)]


class ParameterTypeModel(_Model):
    """The type of a parameter's values."""

    type: Literal["ParameterType"] = _type()
    name: Literal["BOOL", "INT", "FLOAT", "STRING"]


class _ParameterModel(_Model):
    name: str
    parameter_type: ParameterTypeModel
    is_fidelity: bool
    target_value: Value | None


class RangeModel(_ParameterModel):
    """A number between two bounds."""

    type: Literal["RangeParameter"] = _type()
    lower: int | float
    upper: int | float
    log_scale: bool
    logit_scale: bool
    digits: Annotated[int, Field(ge=0, le=30)] | None


class ChoiceModel(_ParameterModel):
    """One of some values; each may switch other parameters on."""

    type: Literal["ChoiceParameter"] = _type()
    values: list[Value]
    is_ordered: bool
    is_task: bool
    log_scale: bool | None
    dependents: dict[str, list[str]] | None
    sort_values: bool


class FixedModel(_ParameterModel):
    """One value."""

    type: Literal["FixedParameter"] = _type()
    value: Value
    dependents: dict[str, list[str]] | None


class DerivedModel(_ParameterModel):
    """A linear function of other parameters."""

    type: Literal["DerivedParameter"] = _type()
    expression_str: str


ParameterModel = Annotated[RangeModel | ChoiceModel | FixedModel | DerivedModel, Field(discriminator="type")]


class ConstraintModel(_Model):
    """A linear constraint, ``2.0 * a + -1.0 * b <= 3.0`` or with ``==``."""

    type: Literal["ParameterConstraint"] = _type()
    inequality: str | None = None
    equality: str | None = None


class SpaceModel(_Model):
    """A search space."""

    type: Literal["SearchSpace"] = _type()
    parameters: list[ParameterModel]
    parameter_constraints: list[ConstraintModel]


class ObjectiveModel(_Model):
    """The objectives, ``-error, -model_size``."""

    type: Literal["Objective"] = _type()
    expression: str


class OptimizationConfigModel(_Model):
    """What is minimised."""

    type: Literal["OptimizationConfig", "MultiObjectiveOptimizationConfig"] = _type()
    objective: ObjectiveModel


class OutcomeModel(_Model):
    """What came out of evaluating an arm."""

    error: float | None
    float_error: float | None
    test_error: float | None
    integer_error: float | None = None
    n_epochs: Count
    best_epoch: Count
    sparsity: float
    seconds: float
    resources: Resources | None


class MetadataModel(_Model):
    """What sparsemod knows of an arm beyond its parameters."""

    round: Count
    stage: Count
    origin: str
    draw: Count | None
    parent: ArmName | None
    epochs: Count
    seed: int
    evaluation: OutcomeModel | None


class ArmModel(_Model):
    """The parameters of an arm."""

    type: Literal["Arm"] = _type()
    parameters: dict[str, Value | None]
    name: ArmName


class GeneratorRunModel(_Model):
    """Ax's wrapping of one arm."""

    type: Literal["GeneratorRun"] = _type()
    arms: Annotated[list[ArmModel], Field(min_length=1, max_length=1)]


class TrialStatusModel(_Model):
    """What has become of an arm."""

    type: Literal["TrialStatus"] = _type()
    name: Literal["RUNNING", "COMPLETED", "FAILED"]


class TrialModel(_Model):
    """An arm and what came out of it."""

    type: Literal["Trial"] = _type()
    index: Count
    status: TrialStatusModel
    time_created: Moment
    time_completed: Moment | None
    status_reason: str | None
    run_metadata: MetadataModel
    generator_run: GeneratorRunModel


class PropertiesModel(_Model):
    """The version of this format."""

    sparsemod_format: int


class ExperimentModel(_Model):
    """A whole results file."""

    type: Literal["Experiment"] = _type()
    name: str
    time_created: Moment
    search_space: SpaceModel
    optimization_config: OptimizationConfigModel
    trials: dict[str, TrialModel]
    properties: PropertiesModel
