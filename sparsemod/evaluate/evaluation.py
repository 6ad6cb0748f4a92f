"""The evaluation: train, compress and measure one candidate. One pure function of its two arguments.

    build ─► inherit ─► train, pruned and fake-quantized as it goes ─► quantize ─► validation error ─► measure

The same task and job give the same `Evaluation`, bit for bit, in any process on the same kind of machine.
What goes wrong in the user's code, or for want of memory, becomes a failed evaluation; everything else is a
bug and is raised.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Sequence
from dataclasses import replace

from torch import Tensor, nn

from sparsemod.candidate import Candidate, Evaluation, Parametrization, Resources, Status
from sparsemod.compress.masks import apply_masks, prunable_parameters
from sparsemod.compress.pruning import PruningHook
from sparsemod.compress.qat import QATHook
from sparsemod.compress.quantization import QuantizedNet, quantize
from sparsemod.compress.recipe_hook import RecipeHook
from sparsemod.compress.spread import spread_masks
from sparsemod.compress.structured import StructuredPruningHook, prune_channels
from sparsemod.compress.training_manager import ScheduledModifierManager
from sparsemod.errors import CandidateError, user_code
from sparsemod.evaluate.build import build, dump_weights, load_weights, moved, opened, rebuild
from sparsemod.evaluate.recipes import arm_recipe, recipe_of_arm
from sparsemod.evaluate.reproducible import memory_guard, reproducible
from sparsemod.evaluate.shipping import N_CALIBRATION, integers, lowered, tflite_file
from sparsemod.evaluate.task import Job, Task
from sparsemod.measure.graph import OperatorGraph
from sparsemod.measure.layer_table import dump_layers, layer_costs
from sparsemod.measure.resources import measure
from sparsemod.train.data import Data, Inputs
from sparsemod.train.inherit import inherit
from sparsemod.train.trainer import FitResult, Hook, TorchTrainer, accuracy, confusion, settings

__all__ = ["Job", "Task", "evaluate", "predict", "quantized", "test_confusion", "test_error"]


def evaluate(task: Task, job: Job) -> Evaluation:
    """Train, compress and measure the job's candidate.

    Limits on resources are not looked at: whether an arm is feasible is decided from what is returned.

    Returns:
        A completed evaluation with its weights, or a failed one with its reason.

    Raises:
        Exception: Anything but a `CandidateError`: a data set that no candidate can use, or a bug.
    """
    start = time.perf_counter()
    try:
        with memory_guard("training"):
            return _evaluate(task, job, start)
    except CandidateError as error:
        details = error.details or traceback.format_exc()
        return Evaluation(Status.FAILED, error.reason, details=details, seconds=time.perf_counter() - start)


def predict(
    task: Task, parametrization: Parametrization, seed: int = 0, epochs: int | None = None
) -> Resources:
    """Return what the network of a parametrization will cost, before it is trained.

    Unpruned networks and ones with structured pruning cost exactly this. Otherwise the number of weights
    that stay is exact, but training decides in which tensors they stay, and whether a channel comes out
    wholly zero and is removed. The prediction keeps the same share of every tensor and all channels, as
    `spread_masks` explains: no network needs more flash or RAM than that; small, much pruned ones need less.
    A recipe that prunes does it by its own rule.

    Args:
        task: The task.
        parametrization: What is built.
        seed: Of its first weights.
        epochs: How long it will be trained; a recipe is checked against it and may use it.

    Raises:
        CandidateError: The user's code raised or ran out of memory.
        UnsupportedOperatorError: The network holds an operator that cannot be measured.
    """
    with memory_guard("building the network"), reproducible("cpu", seed):
        train = opened(task, "train", parametrization)
        with reproducible("cpu", seed):
            net = build(task, parametrization, train, "cpu")
        recipe = _recipe(task, parametrization, epochs, train)
        fraction = _fraction(task, parametrization, recipe)
        if recipe is not None:
            with recipe_of_arm(), user_code("the recipe"):
                recipe.apply(net)
        if fraction and task.pruning == "structured":
            prune_channels(net, _tensor(moved(train.example(), "cpu")), fraction)
        elif fraction:
            apply_masks(net, spread_masks(prunable_parameters(net), fraction))
        return measure(lowered(task, net, train), task.target, task.runtime)


def test_error(task: Task, candidate: Candidate, weights: bytes, seed: int) -> float:
    """Return 1 - test accuracy of the network that would ship, from its stored weights.

    It is rebuilt and quantized exactly as in the evaluation: on the validation set it has the evaluation's
    error.

    Args:
        task: The task it was evaluated under.
        candidate: What was evaluated.
        weights: The `Evaluation`'s weights.
        seed: The job's.

    Raises:
        CandidateError: The user's code raised.
        StoreError: The weights are unreadable or belong to another network.
    """
    data = opened(task, "test", candidate.parametrization)
    shipped = _shipped(task, candidate, weights, seed)
    with memory_guard("the network"), reproducible(task.device, seed):
        return 1.0 - accuracy(shipped, data)


test_error.__test__ = False  # type: ignore[attr-defined]  # test runners collect functions by this prefix


def test_confusion(
    task: Task, candidate: Candidate, weights: bytes, seed: int
) -> tuple[tuple[int, ...], ...]:
    """Return how many test samples of each class (rows) the net that would ship takes for which.

    The share off the diagonal is `test_error`; arguments and errors are the same.
    """
    data = opened(task, "test", candidate.parametrization)
    shipped = _shipped(task, candidate, weights, seed)
    with memory_guard("the network"), reproducible(task.device, seed):
        return confusion(shipped, data, task.classes)


test_confusion.__test__ = False  # type: ignore[attr-defined]


def quantized(task: Task, net: nn.Module, train: Data, seed: int) -> QuantizedNet:
    """Quantize a trained network by the task's scheme, calibrated on training samples that the seed draws.

    Raises:
        CandidateError: The network cannot be quantized.
    """
    with reproducible(task.device, seed):
        return quantize(net, task.quant_scheme, [train.sample(N_CALIBRATION, seed)], task.quant_params)


def _evaluate(task: Task, job: Job, start: float) -> Evaluation:
    parametrization = job.candidate.parametrization
    train, validation = opened(task, "train", parametrization), opened(task, "validation", parametrization)
    with reproducible(task.device, job.seed):
        net = build(task, parametrization, train, task.device)
        if job.parent_weights is not None:
            inherit(net, load_weights(job.parent_weights))
        n_prunable = _n_nonzero(net, zeros=True)
        fit = _fit(task, job, net, train, validation)
    net.eval()
    error = _shipped_error(task, net, train, validation, job.seed)
    with reproducible(task.device, job.seed), user_code("Net.forward"):
        float_error = 1.0 - accuracy(net, validation)
    net.cpu()
    graph = lowered(task, net, train)
    resources = measure(graph, task.target, task.runtime)
    tflite, unexported = _exported(task, graph, train, job.seed)
    return Evaluation(
        status=Status.COMPLETED,
        error=error,
        float_error=float_error,
        resources=resources if tflite is None else replace(resources, file_bytes=len(tflite)),
        n_epochs=fit.n_epochs,
        best_epoch=fit.best_epoch,
        sparsity=1.0 - _n_nonzero(net) / n_prunable if n_prunable else 0.0,
        weights=dump_weights(net),
        layers=dump_layers(layer_costs(graph, task.target, task.runtime)),
        tflite=tflite,
        unexported=unexported,
        seconds=time.perf_counter() - start,
    )


def _fit(task: Task, job: Job, net: nn.Module, train: Data, validation: Data) -> FitResult:
    parametrization = job.candidate.parametrization
    how = settings(parametrization, job.epochs, job.seed)
    recipe = _recipe(task, parametrization, job.epochs, train)
    if recipe is not None and recipe.learning_rate_modifiers:
        how = replace(how, learning_gamma=1.0)
    hooks = _hooks(task, _fraction(task, parametrization, recipe), recipe, train.example())
    with recipe_of_arm():
        if task.trainer is None:
            return TorchTrainer(task.device).fit(net, train, validation, how, hooks)
        with user_code("trainer"):
            result: FitResult = task.trainer(device=task.device).fit(net, train, validation, how, hooks)
        return result


def _recipe(
    task: Task, parametrization: Parametrization, epochs: int | None, train: Data
) -> ScheduledModifierManager | None:
    if task.recipe is None:
        return None
    n_batches = train.n_batches(settings(parametrization, epochs or 1).batch_size)
    with recipe_of_arm():
        return arm_recipe(task.recipe, parametrization, epochs, n_batches)


def _hooks(
    task: Task, fraction: float, recipe: ScheduledModifierManager | None, example: Inputs
) -> Sequence[Hook]:
    hooks: list[Hook] = [] if recipe is None else [RecipeHook(recipe)]
    if fraction and task.pruning == "structured":
        hooks.append(StructuredPruningHook(fraction, _tensor(example)))
    elif fraction:
        hooks.append(PruningHook(fraction))
    if task.quant_scheme == "qat" and not (recipe and recipe.quantization_modifiers):
        hooks.append(QATHook())
    return hooks


def _fraction(task: Task, parametrization: Parametrization, recipe: ScheduledModifierManager | None) -> float:
    """Return the share of weights to prune; 0 for none, which a threshold of 0 or 1 and above says too."""
    if task.pruning == "none" or (recipe is not None and recipe.pruning_modifiers):
        return 0.0
    threshold = parametrization.get("prune_threshold")
    if isinstance(threshold, bool) or not isinstance(threshold, int | float):
        raise CandidateError(f"prune_threshold must be a number, got {threshold!r}")
    return float(threshold) if 0.0 < threshold < 1.0 else 0.0


def _tensor(example: Inputs) -> Tensor:
    if not isinstance(example, Tensor):
        raise CandidateError(
            f"structured pruning needs inputs that are tensors, got {type(example).__name__}"
        )
    return example


def _shipped(task: Task, candidate: Candidate, weights: bytes, seed: int) -> QuantizedNet:
    parametrization = candidate.parametrization
    with memory_guard("the network"):
        net = rebuild(task, parametrization, weights, seed)
        return quantized(task, net, opened(task, "train", parametrization), seed)


def _shipped_error(task: Task, net: nn.Module, train: Data, data: Data, seed: int) -> float:
    """Quantize and score; the one way to an error, so that stored weights give what the evaluation gave."""
    shipped = quantized(task, net, train, seed)
    with reproducible(task.device, seed):
        return 1.0 - accuracy(shipped, data)


def _exported(task: Task, graph: OperatorGraph, train: Data, seed: int) -> tuple[bytes | None, str]:
    """Return the `.tflite` file if the task wants one, or why there is none; that does not fail the arm."""
    if not task.export:
        return None, ""
    try:
        return tflite_file(task, integers(task, graph, train, seed)), ""
    except CandidateError as error:
        return None, error.reason


def _n_nonzero(net: nn.Module, *, zeros: bool = False) -> int:
    """Count the non-zero prunable weights, or all of them."""
    weights = prunable_parameters(net).values()
    return sum(w.numel() if zeros else int(w.count_nonzero()) for w in weights)
