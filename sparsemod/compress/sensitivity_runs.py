"""Measuring how sensitive a network is: to pruning, by magnitudes, by its loss, by its cost; to the rate."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from copy import deepcopy
from itertools import islice
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import Module
from torch.optim import Optimizer

from sparsemod.compress.masks import apply_masks, magnitude_masks, prunable_parameters
from sparsemod.compress.sensitivity_analysis import (
    LRLossSensitivityAnalysis,
    PruningLossSensitivityAnalysis,
    PruningPerfSensitivityAnalysis,
    default_pruning_sparsities_loss,
    default_pruning_sparsities_perf,
)
from sparsemod.errors import DataError
from sparsemod.measure.bundle import operator_constants
from sparsemod.measure.graph import Operator, OperatorGraph
from sparsemod.measure.latency import LIBRARIES, instructions
from sparsemod.measure.operators import lower
from sparsemod.measure.sizes import weight_bytes
from sparsemod.measure.targets import Target, find_target

__all__ = [
    "default_exponential_check_lrs",
    "lr_loss_sensitivity",
    "model_prunability_magnitude",
    "pruning_loss_sens_magnitude",
    "pruning_loss_sens_one_shot",
    "pruning_perf_sens_one_shot",
]

Loss = Callable[[Any, Any], Tensor]
Batches = Iterable[tuple[Any, Any]]


def default_exponential_check_lrs(
    init_lr: float = 1e-6, final_lr: float = 0.5, lr_mult: float = 1.1
) -> tuple[float, ...]:
    """Return learning rates that grow by a factor from the first past the last, and the last.

    Example:
        >>> default_exponential_check_lrs(0.1, 0.5, 2.0)
        (0.1, 0.2, 0.4, 0.8, 0.5)
    """
    rates = [init_lr]
    while rates[-1] < final_lr:
        rates.append(rates[-1] * lr_mult)
    return (*rates, final_lr)


def model_prunability_magnitude(module: Module) -> float:
    """Return the mean magnitude of all prunable weights."""
    weights = [parameter.detach().abs().flatten() for parameter in prunable_parameters(module).values()]
    return float(torch.cat(weights).mean()) if weights else 0.0


def pruning_loss_sens_magnitude(
    module: Module, sparsity_levels: Sequence[float] | None = None
) -> PruningLossSensitivityAnalysis:
    """Approximate the sensitivity to pruning without data: the mean magnitude of what would be pruned.

    Args:
        module: The network; it stays as it is.
        sparsity_levels: Where to look; 0 to 0.99 in steps of 0.01 by default.
    """
    levels = default_pruning_sparsities_loss(extended=True) if sparsity_levels is None else sparsity_levels
    analysis = PruningLossSensitivityAnalysis()
    for index, (name, parameter) in enumerate(prunable_parameters(module).items()):
        magnitudes = parameter.detach().abs().flatten().sort().values.double()
        sums = torch.cat([magnitudes.new_zeros(1), magnitudes.cumsum(0)])
        for sparsity in levels:
            n_pruned = round(len(magnitudes) * sparsity)
            measured = float(sums[n_pruned]) / max(1, n_pruned)
            analysis.add_result(name, name, index, sparsity, measured, baseline=sparsity == 0.0)
    return analysis


def pruning_loss_sens_one_shot(
    module: Module,
    data: Batches,
    loss_fn: Loss,
    device: str = "cpu",
    steps_per_measurement: int = 1,
    sparsity_levels: Sequence[float] | None = None,
) -> PruningLossSensitivityAnalysis:
    """Measure the loss with one parameter at a time pruned by magnitude, without training.

    Args:
        module: The network; its weights and mode are given back as they were.
        data: Batches of inputs and targets; every measurement sees the same ones.
        loss_fn: ``loss_fn(module(inputs), targets)``.
        device: Where to run.
        steps_per_measurement: Batches for each sparsity, one measurement each.
        sparsity_levels: Where to look; ten from 0 to 0.99 by default.

    Raises:
        DataError: There is no batch.
    """
    levels = default_pruning_sparsities_loss(extended=False) if sparsity_levels is None else sparsity_levels
    batches = list(islice(data, steps_per_measurement))
    if not batches:
        raise DataError("sensitivity: expected at least one batch, found none")
    analysis = PruningLossSensitivityAnalysis()
    training = module.training
    module.to(device).eval()
    try:
        for index, (name, parameter) in enumerate(prunable_parameters(module).items()):
            dense = parameter.detach().clone()
            try:
                for sparsity in levels:
                    with torch.no_grad():
                        parameter.copy_(dense)
                    apply_masks({name: parameter}, magnitude_masks({name: dense}, sparsity))
                    for loss in _losses(module, batches, loss_fn, device):
                        analysis.add_result(name, name, index, sparsity, loss, baseline=sparsity == 0.0)
            finally:
                with torch.no_grad():
                    parameter.copy_(dense)
    finally:
        module.train(training)
    return analysis


def pruning_perf_sens_one_shot(
    module: Module,
    example: Any,
    target: str | Target,
    runtime: Literal["c", "tflite-micro"] = "c",
    sparsity_levels: Sequence[float] | None = None,
    cost: Literal["latency", "model_size"] = "latency",
    scheme: str = "post",
    quant_params: Collection[Any] = (),
) -> PruningPerfSensitivityAnalysis:
    """Predict what pruning gains on a microcontroller, for each layer and for the network.

    Every prunable parameter is pruned to the same sparsity by its own magnitudes. Under ``tflite-micro``,
    which treats zeros like other weights, only whole channels that become zero gain anything.

    Args:
        module: The network; it stays as it is.
        example: One input of batch size 1.
        target: The microcontroller, or its name in the catalogue.
        runtime: What runs on it.
        sparsity_levels: Where to look; ten from 0 to 0.99 by default.
        cost: Seconds of an inference, or flash bytes of weights.
        scheme: How it is quantized, see `lower`.
        quant_params: What is quantized dynamically, see `lower`.

    Raises:
        ConfigError: There is no target of that name.
        CandidateError: The network cannot be run.
    """
    levels = default_pruning_sparsities_perf() if sparsity_levels is None else sparsity_levels
    chip = find_target(target) if isinstance(target, str) else target
    analysis = PruningPerfSensitivityAnalysis(num_cores=1, batch_size=1)
    net = deepcopy(module)
    parameters = prunable_parameters(net)
    dense = {name: parameter.detach().clone() for name, parameter in parameters.items()}
    for sparsity in levels:
        with torch.no_grad():
            for name, parameter in parameters.items():
                parameter.copy_(dense[name])
        apply_masks(parameters, magnitude_masks(dense, sparsity, scope="local"))
        graph = lower(net, example, scheme=scheme, quant_params=quant_params)
        costs = [_cost(graph, operator, chip, runtime, cost) for operator in graph.operators]
        analysis.add_model_result(sparsity, sum(costs), baseline=sparsity == 0.0)
        layers = [(o, c) for o, c in zip(graph.operators, costs, strict=True) if o.weights]
        for index, (operator, measured) in enumerate(layers):
            name = _parameter_name(operator, parameters)
            analysis.add_result(name, name, index, sparsity, measured, baseline=sparsity == 0.0)
    return analysis


def lr_loss_sensitivity(
    module: Module,
    data: Batches,
    loss_fn: Loss,
    optim: Optimizer,
    device: str = "cpu",
    steps_per_measurement: int = 1,
    check_lrs: Sequence[float] | None = None,
) -> LRLossSensitivityAnalysis:
    """Train on through rising learning rates and note the losses (Smith 2017, arXiv:1506.01186).

    Args:
        module: The network; it is given back as it was, as is the optimizer.
        data: Batches of inputs and targets, from the beginning again when they run out.
        loss_fn: ``loss_fn(module(inputs), targets)``.
        optim: The network's optimizer.
        device: Where to run.
        steps_per_measurement: Steps at each rate, one measurement each.
        check_lrs: The rates; 140 from 1e-6 to 0.5 by default.

    Raises:
        DataError: There is no batch.
    """
    rates = default_exponential_check_lrs() if check_lrs is None else check_lrs
    analysis = LRLossSensitivityAnalysis()
    module.to(device)
    training, network, optimizer = (
        module.training,
        deepcopy(module.state_dict()),
        deepcopy(optim.state_dict()),
    )
    batches = _endless(data)
    module.train()
    try:
        for rate in rates:
            for group in optim.param_groups:
                group["lr"] = rate
            losses = []
            for inputs, targets in islice(batches, steps_per_measurement):
                optim.zero_grad()
                loss = loss_fn(module(_moved(inputs, device)), _moved(targets, device))
                loss.backward()  # type: ignore[no-untyped-call]
                optim.step()
                losses.append(float(loss.detach()))
            analysis.add_result(rate, losses)
    finally:
        module.load_state_dict(network)
        optim.load_state_dict(optimizer)
        optim.zero_grad()
        module.train(training)
    return analysis


def _losses(module: Module, batches: Sequence[tuple[Any, Any]], loss_fn: Loss, device: str) -> list[float]:
    with torch.no_grad():
        return [float(loss_fn(module(_moved(x, device)), _moved(y, device))) for x, y in batches]


def _moved(value: Any, device: str) -> Any:
    return value.to(device) if hasattr(value, "to") else value


def _endless(data: Batches) -> Iterator[tuple[Any, Any]]:
    while True:
        n_batches = 0
        for batch in data:
            n_batches += 1
            yield batch
        if not n_batches:
            raise DataError("sensitivity: expected at least one batch, found none")


def _cost(graph: OperatorGraph, operator: Operator, target: Target, runtime: str, cost: str) -> float:
    if cost == "model_size":
        if runtime == "tflite-micro":
            return float(sum(weight_bytes(weight) for weight in operator.weights))
        part = operator_constants(graph, operator, set())
        return float(part.weights + part.biases + part.scales)
    n = instructions(graph, operator, target.core, LIBRARIES[runtime])
    return n * target.cycles_per_instruction / target.clock_hz


def _parameter_name(operator: Operator, parameters: Iterable[str]) -> str:
    """Return the parameter that an operator's first weight comes from; a recurrent gate is a part of one."""
    name = operator.weights[0].name
    return name if name in parameters else name.rpartition(".")[0] or name
