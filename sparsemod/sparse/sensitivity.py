"""How sensitive the trained network of an arm is to further pruning, layer by layer."""

from __future__ import annotations

from typing import Any, Literal

from torch import nn

from sparsemod.compress.sensitivity import (
    PruningLossSensitivityAnalysis,
    PruningPerfSensitivityAnalysis,
    pruning_loss_sens_magnitude,
    pruning_loss_sens_one_shot,
    pruning_perf_sens_one_shot,
)
from sparsemod.errors import ConfigError, nearest
from sparsemod.evaluate.build import moved, opened, rebuild
from sparsemod.measure.targets import find_target
from sparsemod.sparse.experiment import stored_arm
from sparsemod.sparse.setup import Setup

__all__ = ["Analysis", "Kind", "sensitivity_of"]

Kind = Literal["magnitude", "one-shot", "perf"]
KINDS = ("magnitude", "one-shot", "perf")
Analysis = PruningLossSensitivityAnalysis | PruningPerfSensitivityAnalysis

BATCH_SIZE = 256
N_BATCHES = 8


def sensitivity_of(setup: Setup, arm: str, kind: Kind, target: str | None) -> Analysis:
    """Analyse an arm on the front; see `Sparse.sensitivity`.

    Raises:
        StoreError: There is no such arm, or it has no stored weights.
        ConfigError: There is no such kind or target.
    """
    if kind not in KINDS:
        raise ConfigError(f"kind: expected {', '.join(KINDS)}, got {kind!r}{nearest(str(kind), KINDS)}")
    chip = setup.task.target if target is None else find_target(target)
    stored, weights = stored_arm(setup, arm)
    task, parametrization = setup.task, stored.candidate.parametrization
    net = rebuild(task, parametrization, weights, stored.seed)
    if kind == "magnitude":
        return pruning_loss_sens_magnitude(net)
    if kind == "one-shot":
        batches: Any = opened(task, "validation", parametrization).batches(BATCH_SIZE)
        loss = nn.functional.cross_entropy
        return pruning_loss_sens_one_shot(net, batches, loss, task.device, N_BATCHES)
    return pruning_perf_sens_one_shot(
        net.cpu(),
        moved(opened(task, "train", parametrization).example(), "cpu"),
        chip,
        "tflite-micro" if task.runtime == "tflite-micro" else "c",
        scheme=task.quant_scheme,
        quant_params=task.quant_params,
    )
