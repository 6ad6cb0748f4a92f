"""Problem B of `search_quality.py`: 40 conditional parameters, the digits of scikit-learn, four objectives.

`real` trains every network for five epochs, about half a second. `truth` replaces training by what a forest
of trees learned from all arms that `real` has trained (error by parameters, costs, depth and epochs behind
the arm), and noise of the size that training has; its costs are counted from the layers. It is for
comparisons of many seeds, which would be dear with training.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from ax.core.parameter import ChoiceParameter, FixedParameter, ParameterType, RangeParameter
from ax.core.search_space import SearchSpace
from search_peers import Evaluate
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import TensorDataset

from sparsemod.candidate import (
    OBJECTIVES,
    Candidate,
    Constraints,
    Evaluation,
    Parametrization,
    Resources,
    Status,
)
from sparsemod.errors import CandidateError
from sparsemod.evaluate.evaluation import Job, Task, evaluate, predict
from sparsemod.measure.targets import resolve_target
from sparsemod.pareto import hypervolume
from sparsemod.search.strategy import Problem
from sparsemod.space.space import Space

BLOCKS, LAYERS, EPOCHS, CLASSES, SIDE = 3, 3, 5, 10, 8
NOISE = 0.12  # deviation of the logarithm of the error between two trainings, as measured by --noise
_BEST = (0.01, 60.0, 80.0, 2e-5)  # where the hypervolume ends: better than anything found
_WORST = (0.9, 60_000.0, 16_000.0, 0.06)
_USEFUL = (0.2, 60_000.0, 16_000.0, 0.06)


@dataclass(frozen=True)
class Parts:
    """What `search_quality.Bench` is made of."""

    problem: Callable[[int], Problem]
    evaluate: Callable[[int], Evaluate]
    scores: dict[str, Callable[[np.ndarray], float]]


def search_space() -> SearchSpace:
    """Blocks of layers behind one another, each behind a switch; what is not built has no parameters."""
    whole, real = ParameterType.INT, ParameterType.FLOAT
    training = [
        RangeParameter("learning_rate", real, 1e-3, 1e-1, log_scale=True),
        RangeParameter("learning_gamma", real, 0.2, 1.0),
        RangeParameter("learning_step", real, 0.03, 0.3),
        RangeParameter("prune_threshold", real, 0.1, 0.9),
        ChoiceParameter("batch_size", whole, [32, 64, 128], is_ordered=True, sort_values=True),
        RangeParameter("dropout", real, 0.0, 0.4),
    ]
    parameters: list[Any] = [
        _choice("head", ["pool", "dense"], dependents={"dense": ["units"]}),
        RangeParameter("units", whole, 8, 64, log_scale=True),
    ]
    for b in range(1, BLOCKS + 1):
        block = f"block_{b}"
        first = [f"{block}_kernel", f"{block}_pool"]
        first += [f"{block}_layer_1_type", f"{block}_layer_1_filters", f"{block}_layer_2"]
        if b < BLOCKS:
            first.append(f"block_{b + 1}")
        if b > 1:
            parameters.append(_choice(block, ["none", "build"], dependents={"build": first}))
        kernels = ChoiceParameter(f"{block}_kernel", whole, [1, 2, 3, 5], is_ordered=True, sort_values=True)
        parameters += [kernels, _choice(f"{block}_pool", ["none", "max"])]
        for i in range(1, LAYERS + 1):
            layer = f"{block}_layer_{i}"
            inner = [f"{layer}_type", f"{layer}_filters"]
            if i < LAYERS:
                inner.append(f"{block}_layer_{i + 1}")
            if i > 1:
                parameters.append(_choice(layer, ["none", "build"], dependents={"build": inner}))
            parameters.append(_choice(f"{layer}_type", ["full", "separable"]))
            parameters.append(RangeParameter(f"{layer}_filters", whole, 3, 24, log_scale=True))
        if b == 1:
            roots = [p.name for p in training] + ["head", *first]
    root = FixedParameter("net", ParameterType.BOOL, True, dependents={True: roots})
    return SearchSpace([root, *training, *parameters])


def _choice(name: str, values: list[str], dependents: dict[Any, list[str]] | None = None) -> ChoiceParameter:
    return ChoiceParameter(
        name, ParameterType.STRING, values, is_ordered=True, sort_values=False, dependents=dependents
    )


def plan(p: Parametrization) -> list[tuple[Any, ...]]:
    """Return the layers: ("conv", in, out, kernel, groups, side), ("pool", side) and ("dense", in, out)."""
    made: list[tuple[Any, ...]] = []
    channels, side = 1, SIDE
    for b in range(1, BLOCKS + 1):
        if b > 1 and p.get(f"block_{b}") != "build":
            break
        kernel = _int(p, f"block_{b}_kernel")
        for i in range(1, LAYERS + 1):
            name = f"block_{b}_layer_{i}"
            if i > 1 and p.get(name) != "build":
                break
            filters = _int(p, f"{name}_filters")
            if p[f"{name}_type"] == "separable":
                made.append(("conv", channels, channels, kernel, channels, side))
                made.append(("conv", channels, filters, 1, 1, side))
            else:
                made.append(("conv", channels, filters, kernel, 1, side))
            channels = filters
        if p[f"block_{b}_pool"] == "max" and side > 2:
            side //= 2
            made.append(("pool", side))
    if p["head"] == "pool":
        made.append(("mean", side))
        made.append(("dense", channels, CLASSES))
    else:
        made += [("dense", channels * side**2, _int(p, "units")), ("dense", _int(p, "units"), CLASSES)]
    return made


class Net(nn.Module):
    """The network of a plan."""

    def __init__(self, parametrization: Parametrization, classes: int, input_shape: tuple[int, ...]) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        steps = plan(parametrization)
        for step in steps:
            if step[0] == "conv":
                _, inputs, outputs, kernel, groups, _side = step
                if kernel % 2 == 0:
                    layers.append(nn.ZeroPad2d((0, 1, 0, 1)))
                padding = kernel // 2 if kernel % 2 else 0
                layers.append(nn.Conv2d(inputs, outputs, kernel, padding=padding, groups=groups, bias=False))
                layers += [nn.BatchNorm2d(outputs), nn.ReLU()]
            elif step[0] == "pool":
                layers.append(nn.MaxPool2d(2))
            elif step[0] == "mean":
                layers.append(nn.AvgPool2d(step[1]))
            else:
                if not any(isinstance(layer, nn.Flatten) for layer in layers):
                    layers.append(nn.Flatten())
                layers += [nn.Linear(step[1], step[2]), nn.ReLU()]
        dropout = nn.Dropout(float(parametrization["dropout"] or 0.0))
        self.layers = nn.Sequential(*layers[:-2], dropout, layers[-2])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the logits."""
        return self.layers(x)  # type: ignore[no-any-return]


def counted(p: Parametrization) -> Resources:
    """Count flash, RAM and time from the plan: roughly what measuring says, in microseconds."""
    weights, n_macs, ram, n_biases = 0, 0, SIDE**2, 0
    latency = 0.0
    for step in plan(p):
        if step[0] == "conv":
            _, inputs, outputs, kernel, groups, side = step
            size = kernel**2 * inputs * outputs // groups
            macs, held, biases = size * side**2, side**2 * (inputs + outputs), outputs
        elif step[0] == "dense":
            size = macs = step[1] * step[2]
            held, biases = step[1] + step[2], step[2]
        else:
            continue
        weights, n_macs, n_biases, ram = weights + size, n_macs + macs, n_biases + biases, max(ram, held)
        latency += 2e-5 + macs * (6e-8 if step[0] == "conv" and step[4] > 1 else 3e-8)
    kept = round(weights * (1 - float(p["prune_threshold"] or 0.0)))
    n_bytes = min(weights, weights // 8 + kept) + 12 * n_biases
    return Resources(n_bytes, ram, latency, weights, kept, n_macs, n_bytes, weights, ram, ram)


def filters(config: dict[str, Any]) -> dict[str, Any]:
    """A morphism: more or fewer filters in a layer."""
    name = random.choice([n for n in config if n.endswith("_filters")])
    config[name] = round(config[name] * random.choice([0.5, 0.75, 1.33, 2]))
    return config


def kernel(config: dict[str, Any]) -> dict[str, Any]:
    """A morphism: another kernel of a block, or another kind of a layer."""
    name = random.choice([n for n in config if n.endswith(("_kernel", "_type"))])
    config[name] = random.choice([1, 2, 3, 5] if name.endswith("kernel") else ["full", "separable"])
    return config


def depth(config: dict[str, Any]) -> dict[str, Any]:
    """A morphism: a block or a layer more or less."""
    name = random.choice([n for n, value in config.items() if value in ("none", "build") and "pool" not in n])
    config[name] = "none" if config[name] == "build" else "build"
    return config


def pooling(config: dict[str, Any]) -> dict[str, Any]:
    """A morphism: pooling behind a block, or none."""
    name = random.choice([n for n in config if n.endswith("_pool")])
    config[name] = "none" if config[name] == "max" else "max"
    return config


def sparsity(config: dict[str, Any]) -> dict[str, Any]:
    """A morphism: prune harder or softer."""
    config["prune_threshold"] += random.choice([-0.1, 0.05, 0.1])
    return config


MORPHISMS = {f.__name__: f for f in (filters, kernel, depth, pooling, sparsity)}


def volume(worst: Sequence[float]) -> Callable[[np.ndarray], float]:
    """Return the hypervolume of logarithms, in units of the box between `_BEST` and `worst`."""
    low, high = np.log(_BEST), np.log(worst)

    def score(values: np.ndarray) -> float:
        inside = np.maximum((np.log(np.maximum(values, 1e-9)) - low) / (high - low), 0.0)
        return hypervolume(inside, np.ones(len(low)))

    return score


def pair(cost: int) -> Callable[[np.ndarray], float]:
    """Return the hypervolume of useful errors and one cost alone."""
    low, high = np.log([_BEST[0], _BEST[cost]]), np.log([_USEFUL[0], _USEFUL[cost]])
    return lambda v: hypervolume(
        np.maximum((np.log(np.maximum(v[:, [0, cost]], 1e-9)) - low) / (high - low), 0.0), np.ones(2)
    )


SCORES = {
    "hypervolume of useful networks (error below 20 %)": volume(_USEFUL),
    "hypervolume of all networks (error below 90 %)": volume(_WORST),
    "hypervolume of error below 20 % and flash": pair(1),
    "hypervolume of error below 20 % and latency": pair(3),
}


def task() -> Task:
    """The digits, pruned and quantized, on a Cortex-M4."""
    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(labels))
    x = torch.tensor(images[order], dtype=torch.float32).view(-1, 1, SIDE, SIDE) / 16
    y = torch.tensor(labels[order], dtype=torch.long)
    parts = [TensorDataset(x[i:j], y[i:j]) for i, j in ((0, 700), (700, 1500), (1500, len(y)))]
    return Task(Net, CLASSES, *parts, target=resolve_target("STM32L4R5"), pruning="unstructured")


def _problem(space: Space, resources: Callable[[Parametrization], Resources]) -> Callable[[int], Problem]:
    return lambda seed: Problem(
        space, OBJECTIVES, resources, Constraints(), seed, EPOCHS, MORPHISMS, 1 - 1 / CLASSES
    )


def real() -> Parts:
    """Networks are trained and measured."""
    torch.set_num_threads(1)
    of, space = task(), Space.from_ax(search_space())
    known: dict[tuple[Any, ...], Resources | CandidateError] = {}

    def resources(p: Parametrization) -> Resources:
        key = space.key(p)
        if key not in known:
            try:
                known[key] = predict(of, p)
            except CandidateError as error:
                known[key] = error
        found = known[key]
        if isinstance(found, CandidateError):
            raise found
        return found

    def run_of(seed: int) -> Evaluate:
        weights: dict[str, bytes | None] = {}

        def train(candidate: Candidate, index: int) -> Evaluation:
            inherited = weights.get(candidate.parent or "")
            done = evaluate(of, Job(index, candidate, EPOCHS, 1000 * seed + index, inherited))
            weights[f"{index}_0"] = done.weights
            return done

        return train

    return Parts(_problem(space, resources), run_of, SCORES)


def features(space: Space, arms: Sequence[Parametrization], epochs: Sequence[float]) -> np.ndarray:
    """Return what the forest sees: parameters, log costs, log MACs, depth and log epochs."""
    costs = [counted(p) for p in arms]
    more = [
        [math.log(r.n_nonzero + 1), math.log(r.n_macs), math.log(r.n_parameters), len(plan(p)), math.log(e)]
        for r, p, e in zip(costs, arms, epochs, strict=True)
    ]
    return np.hstack([space.encode(arms), np.array(more)])


def truth(folder: Path) -> Parts:
    """Errors of a forest that was fitted to all trained arms in `folder`, with noise."""
    from sklearn.ensemble import ExtraTreesRegressor

    space = Space.from_ax(search_space())
    arms, errors, epochs = [], [], []
    for path in sorted(folder.glob("*.json")):
        record = json.loads(path.read_text())
        rows = zip(record["arms"], record["values"], record["stages"], strict=True)
        for p, values, stage in rows:
            if math.isfinite(values[0]) and stage != 3:  # what a child inherited is not in its parameters
                arms.append(p)
                errors.append(math.log(max(values[0], 1e-3)))
                epochs.append(record.get("epochs", EPOCHS))
    forest = ExtraTreesRegressor(300, min_samples_leaf=2, max_features=0.5, random_state=0)
    forest.fit(features(space, arms, epochs), np.array(errors))
    known: dict[tuple[Any, ...], Resources] = {}

    def resources(p: Parametrization) -> Resources:
        return known.setdefault(space.key(p), counted(p))

    def run_of(seed: int) -> Evaluate:
        behind: dict[str, int] = {}

        def imagine(candidate: Candidate, index: int) -> Evaluation:
            n_epochs = EPOCHS + behind.get(candidate.parent or "", 0)
            behind[f"{index}_0"] = n_epochs
            p = candidate.parametrization
            log_error = float(forest.predict(features(space, [p], [n_epochs]))[0])
            log_error += NOISE * float(np.random.default_rng([seed, index]).standard_normal())
            error = min(max(math.exp(log_error), 1 / 800), 0.95)
            return Evaluation(Status.COMPLETED, error=error, resources=counted(p), n_epochs=EPOCHS)

        return imagine

    return Parts(_problem(space, resources), run_of, SCORES)


def _int(p: Parametrization, name: str) -> int:
    value = p[name]
    if not isinstance(value, int):
        raise CandidateError(f"{name}: expected an integer, got {value!r}")
    return value
