"""The vocabulary of a search: what is proposed, what it costs and what came out. Plain values, no torch."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields
from enum import StrEnum
from typing import Any

__all__ = [
    "OBJECTIVES",
    "UNITS",
    "Arm",
    "Candidate",
    "Constraints",
    "Evaluation",
    "ParamValue",
    "Parametrization",
    "Resources",
    "Status",
    "standardised",
]

ParamValue = bool | int | float | str | None
Parametrization = Mapping[str, ParamValue]

OBJECTIVES = ("error", "model_size", "working_memory", "latency")
UNITS = {"error": "fraction", "model_size": "bytes", "working_memory": "bytes", "latency": "seconds"}


class Status(StrEnum):
    """What has become of an arm."""

    PENDING = "pending"
    COMPLETED = "completed"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Resources:
    """What a network costs on the chip; known before it is trained, exact for the network that ships.

    Attributes:
        model_size_bytes: Flash of weights, biases and requantization constants under the run's runtime.
        working_memory_bytes: Peak RAM of activations (the arena the planner needs).
        latency_seconds: One inference at the target's clock.
        n_parameters: Weights and biases, zeros included.
        n_nonzero: The SpArSe paper's model size: non-zero weights and biases, indices not charged.
        n_macs: Multiply-accumulates of one inference.
        model_size_c_bytes: Flash under the `c` runtime (each tensor dense or bitmap, whichever is smaller).
        model_size_tflite_bytes: Flash of the weights under `tflite-micro` (dense).
        working_memory_inputs_weights_bytes: The SpArSe paper's first model, max of inputs + weights.
        working_memory_inputs_outputs_bytes: Its second model, max of inputs + outputs.
        tflite_weight_bytes, tflite_bias_bytes, tflite_scale_bytes: What `model_size_tflite_bytes` is made of.
        scratch_bytes: Largest scratch memory of an operator's kernel, which lies in the working memory.
        tail_bytes: Estimate of the RAM that the interpreter's own structures take beside the working memory;
            None under runtime `c`, which has no interpreter.
        file_bytes: Size of the `.tflite` file; None until one has been written.

    Results of earlier versions lack the fields that may be None.
    """

    model_size_bytes: int
    working_memory_bytes: int
    latency_seconds: float
    n_parameters: int
    n_nonzero: int
    n_macs: int
    model_size_c_bytes: int
    model_size_tflite_bytes: int
    working_memory_inputs_weights_bytes: int
    working_memory_inputs_outputs_bytes: int
    tflite_weight_bytes: int | None = None
    tflite_bias_bytes: int | None = None
    tflite_scale_bytes: int | None = None
    scratch_bytes: int | None = None
    tail_bytes: int | None = None
    file_bytes: int | None = None

    def objective(self, name: str) -> float:
        """Return `model_size` or `working_memory` in bytes, or `latency` in seconds."""
        if name == "latency":
            return self.latency_seconds
        return float(getattr(self, f"{name}_bytes"))

    def as_dict(self) -> dict[str, int | float | None]:
        """Return the fields as plain JSON values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Resources:
        """Rebuild from `as_dict`; unknown keys are ignored, a missing one without a default a `KeyError`."""
        known = (f.name for f in fields(cls) if f.name in values or f.default is MISSING)
        return cls(**{name: values[name] for name in known})


@dataclass(frozen=True, slots=True)
class Constraints:
    """Upper limits, in bytes and seconds; None means no limit."""

    model_size: int | None = None
    working_memory: int | None = None
    latency: float | None = None

    def violation(self, resources: Resources) -> str | None:
        """Say in one line which limit the resources break, or None when they fit all."""
        for name, limit in self.limits().items():
            value = resources.objective(name)
            if value > limit:
                return f"{name} {value:g} {UNITS[name]} is above the limit of {limit:g} {UNITS[name]}"
        return None

    def limits(self) -> dict[str, float]:
        """Return the limits that are set, by objective."""
        return {n: v for n in OBJECTIVES[1:] if (v := getattr(self, n)) is not None}


@dataclass(frozen=True, slots=True)
class Candidate:
    """An arm before it is evaluated.

    Attributes:
        parametrization: What `Net` receives: the active and the fixed parameters.
        stage: 1 sobol, 2 bayes, 3 morph.
        origin: How it was made, for people: ``sobol``, ``bayes``, ``morph:kernel_size+num_filters``.
        draw: Position in the stage's Sobol sequence, so that a resumed run goes on behind it; None elsewhere.
        parent: Name of the arm whose weights it inherits, or None.
    """

    parametrization: Parametrization
    stage: int
    origin: str
    draw: int | None = None
    parent: str | None = None


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What came out of training one candidate.

    Attributes:
        status: `COMPLETED` or `FAILED`.
        reason: Why it failed, in one line; empty otherwise.
        error: 1 - validation accuracy of the network that would ship (pruned, quantized).
        float_error: The same before quantization.
        test_error: 1 - test accuracy of that network; only for arms on the front, never searched on. It comes
            from the integer simulation where `integer_error` is given, from fake quantization elsewhere.
        integer_error: 1 - validation accuracy by exact integer simulation of the chip; only for arms on the
            front that can be exported. `error`, within a step of it, is what the search goes by.
        resources: Measured on the network that would ship.
        n_epochs: Epochs that were trained.
        best_epoch: The epoch whose weights were kept (counted from 1).
        sparsity: Share of prunable weights that are zero.
        seconds: Wall time.
        details: Traceback of a failed arm, never stored.
        weights: The trained float network as safetensors bytes, never stored in the experiment.
        layers: Its layer table as JSON bytes (`sparsemod.measure.layer_table`), kept beside the weights.
        confusion: Test samples of each class (rows) by the class they are taken for; only of a cross test,
            never stored in the experiment.
        tflite: Its `.tflite` file, if the task exports; kept beside the weights.
        unexported: Why there is none although the task exports, in one line; never stored.
    """

    status: Status
    reason: str = ""
    error: float | None = None
    float_error: float | None = None
    test_error: float | None = None
    integer_error: float | None = None
    resources: Resources | None = None
    n_epochs: int = 0
    best_epoch: int = 0
    sparsity: float = 0.0
    seconds: float = field(default=0.0, compare=False)
    details: str = field(default="", compare=False, repr=False)
    weights: bytes | None = field(default=None, compare=False, repr=False)
    layers: bytes | None = field(default=None, compare=False, repr=False)
    confusion: tuple[tuple[int, ...], ...] | None = None
    tflite: bytes | None = field(default=None, compare=False, repr=False)
    unexported: str = field(default="", compare=False, repr=False)

    def objective(self, name: str) -> float:
        """Return one objective in its real unit; NaN when the arm failed."""
        if name == "error":
            return math.nan if self.error is None else self.error
        return math.nan if self.resources is None else self.resources.objective(name)


@dataclass(frozen=True, slots=True)
class Arm:
    """A candidate that has its name and place in the run, and its evaluation once there is one."""

    name: str
    candidate: Candidate
    round: int
    epochs: int
    seed: int
    evaluation: Evaluation | None = None

    @property
    def index(self) -> int:
        """The trial's number, counted from 0 over the whole run."""
        return int(self.name.partition("_")[0])

    @property
    def status(self) -> Status:
        """`PENDING` until it has been evaluated."""
        return Status.PENDING if self.evaluation is None else self.evaluation.status


def standardised(objective: str, value: float) -> float:
    """Return the documented value of about [0, 1] that the CSV's `mean` holds.

    Sizes are ``log(bytes) / log(1e8)``, latency ``log(ms + 1) / log(1e4)``, error as it is.

    Example:
        >>> standardised("model_size", 10_000)
        0.5
        >>> round(standardised("latency", 0.010), 6)
        0.260348
    """
    if objective == "error":
        return value
    if objective == "latency":
        return math.log(value * 1000 + 1) / math.log(1e4)
    return math.log(max(value, 1.0)) / math.log(1e8)
