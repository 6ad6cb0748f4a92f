"""Sensitivity of a network to pruning and to the learning rate: measuring, results, JSON and plots.

    from sparsemod.compress.sensitivity import pruning_loss_sens_one_shot

    analysis = pruning_loss_sens_one_shot(net, loader, torch.nn.functional.cross_entropy)
    analysis.print_res()
    analysis.plot("loss.png", plot_integral=True)

The public names, all in one place.
"""

from __future__ import annotations

from sparsemod.compress.sensitivity_analysis import (
    LRLossSensitivityAnalysis,
    PruningLossSensitivityAnalysis,
    PruningPerfSensitivityAnalysis,
    default_pruning_sparsities_loss,
    default_pruning_sparsities_perf,
)
from sparsemod.compress.sensitivity_result import PruningSensitivityResult
from sparsemod.compress.sensitivity_runs import (
    default_exponential_check_lrs,
    lr_loss_sensitivity,
    model_prunability_magnitude,
    pruning_loss_sens_magnitude,
    pruning_loss_sens_one_shot,
    pruning_perf_sens_one_shot,
)

__all__ = [
    "LRLossSensitivityAnalysis",
    "PruningLossSensitivityAnalysis",
    "PruningPerfSensitivityAnalysis",
    "PruningSensitivityResult",
    "default_exponential_check_lrs",
    "default_pruning_sparsities_loss",
    "default_pruning_sparsities_perf",
    "lr_loss_sensitivity",
    "model_prunability_magnitude",
    "pruning_loss_sens_magnitude",
    "pruning_loss_sens_one_shot",
    "pruning_perf_sens_one_shot",
]
