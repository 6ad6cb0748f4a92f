"""CPU seconds a proposal costs: 40 tunable parameters, 300 stored arms, four objectives, one thread.

    OMP_NUM_THREADS=1 python benchmarks/proposal_time.py [--arms 300] [--proposals 10] [--burn-ms 8]

The networks are imagined: a convolutional space as in the documentation, costs counted by formula from the
layers that are built, and an error that falls with capacity, depth and a fitting learning rate. Measuring
one burns as much CPU time as tracing a small network takes, and is cached as in a run, so the search pays
for what it measures.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from collections.abc import Callable, Sequence

import numpy as np
from ax.core.parameter import ChoiceParameter, ParameterType, RangeParameter
from ax.core.search_space import SearchSpace

from sparsemod.candidate import Arm, Candidate, Constraints, Evaluation, Parametrization, Resources, Status
from sparsemod.search.bayes import BayesStrategy
from sparsemod.search.morph import MorphStrategy
from sparsemod.search.sobol import SobolStrategy
from sparsemod.search.strategy import Problem, Strategy
from sparsemod.space.space import Space

BLOCKS, LAYERS = 3, 3
SIDE, CHANNELS, CLASSES = 32, 3, 10


def search_space() -> SearchSpace:
    """A flat space of 40 tunable parameters: integers, floats, log scales, ordered and unordered choices."""
    whole, real, text = ParameterType.INT, ParameterType.FLOAT, ParameterType.STRING
    parameters = [
        RangeParameter("learning_rate", real, 1e-4, 1e-1, log_scale=True),
        RangeParameter("learning_gamma", real, 0.1, 1.0),
        RangeParameter("learning_step", real, 0.1, 5.0, log_scale=True),
        RangeParameter("prune_threshold", real, 0.1, 0.9),
        ChoiceParameter("batch_size", whole, [16, 32, 64, 128], is_ordered=True),
        RangeParameter("num_conv_blocks", whole, 1, BLOCKS),
        RangeParameter("fc_units", whole, 8, 256, log_scale=True),
    ]
    for b in range(1, BLOCKS + 1):
        parameters.append(RangeParameter(f"conv_{b}_num_layers", whole, 1, LAYERS))
        parameters.append(ChoiceParameter(f"downsampling_rate_{b}", whole, [1, 2, 4], is_ordered=True))
        for i in range(1, LAYERS + 1):
            layer = f"conv_{b}_layer_{i}"
            parameters.append(RangeParameter(f"{layer}_filters", whole, 2, 64, log_scale=True))
            parameters.append(RangeParameter(f"{layer}_kernel", whole, 2, 5))
            parameters.append(
                ChoiceParameter(
                    f"{layer}_type", text, ["full", "separable", "plain"], is_ordered=False, sort_values=False
                )
            )
    return SearchSpace(parameters)


def costs(p: Parametrization) -> tuple[Resources, float, int]:
    """Count flash, RAM and multiply-accumulates of the layers that are built; also capacity and depth."""
    weights, n_macs, ram, depth = 0, 0, 0, 0
    side, channels = SIDE, CHANNELS
    for b in range(1, int(_(p, "num_conv_blocks")) + 1):
        for i in range(1, int(_(p, f"conv_{b}_num_layers")) + 1):
            layer = f"conv_{b}_layer_{i}"
            filters, kernel = int(_(p, f"{layer}_filters")), int(_(p, f"{layer}_kernel"))
            size = kernel**2 * channels
            size = size + channels * filters if p[f"{layer}_type"] == "separable" else size * filters
            weights, n_macs, depth = weights + size + filters, n_macs + size * side**2, depth + 1
            ram = max(ram, side**2 * (channels + filters))
            channels = filters
        side = max(side // int(_(p, f"downsampling_rate_{b}")), 1)
    units = int(_(p, "fc_units"))
    dense = side**2 * channels * units + units * CLASSES
    weights, n_macs, ram = weights + dense, n_macs + dense, max(ram, side**2 * channels + units)
    kept = weights * (1 - float(_(p, "prune_threshold")))
    n_bytes = int(min(weights, weights / 8 + kept)) + 8 * depth
    latency = 1.4e-8 * n_macs + 2e-4 * depth
    resources = Resources(n_bytes, ram, latency, weights, int(kept), n_macs, n_bytes, weights, ram, ram)
    return resources, math.log(kept + n_macs / 100.0), depth


def error(p: Parametrization, rng: np.random.Generator) -> float:
    """An error that falls with capacity and depth, wants a learning rate of 3e-3, and is noisy."""
    _resources, capacity, depth = costs(p)
    misfit = (math.log10(float(_(p, "learning_rate"))) + 2.5) ** 2 + 0.3 * (
        float(_(p, "learning_gamma")) - 0.6
    ) ** 2
    easy = 0.02 + 0.9 / (1 + math.exp(0.55 * (capacity - 8.0) + 0.12 * depth - 0.5 * misfit))
    return float(np.clip(easy * math.exp(0.03 * rng.standard_normal()), 0.0, 0.9))


def _(p: Parametrization, name: str) -> float:
    value = p[name]
    return float(value) if isinstance(value, (int, float)) else math.nan


def measuring(burn_seconds: float) -> Callable[[Parametrization], Resources]:
    """Return a cached measurement that costs as much CPU time as a real one."""
    known: dict[tuple[object, ...], Resources] = {}

    def resources(p: Parametrization) -> Resources:
        key = tuple(p.items())
        if key not in known:
            end = time.process_time() + burn_seconds
            known[key] = costs(p)[0]
            while time.process_time() < end:
                pass
        return known[key]

    return resources


def stored(n: int, problem: Problem) -> list[Arm]:
    """A history of `n` evaluated arms from the Sobol sequence and from mutations of the better ones."""
    rng = np.random.default_rng(problem.seed)
    free = Problem(
        problem.space, problem.objectives, lambda p: costs(p)[0], Constraints(), problem.seed, problem.epochs
    )
    candidates = SobolStrategy().ask(max(n // 3, 1), [], free)
    arms = [evaluated(c, i, rng) for i, c in enumerate(candidates)]
    while len(arms) < n:
        better = sorted(
            arms, key=lambda a: a.evaluation.error if a.evaluation and a.evaluation.error else 1.0
        )[:30]
        parent = better[int(rng.integers(len(better)))]
        params = problem.space.mutate(parent.candidate.parametrization, rng, n=3)
        arms.append(evaluated(Candidate(params, 2, "bayes"), len(arms), rng))
    return arms


def evaluated(candidate: Candidate, index: int, rng: np.random.Generator) -> Arm:
    """Make an arm of a candidate."""
    p = candidate.parametrization
    done = Evaluation(
        Status.COMPLETED, error=error(p, rng), resources=costs(p)[0], n_epochs=10, best_epoch=10
    )
    return Arm(f"{index}_0", candidate, index, 10, index, done)


def wider(config: dict[str, int]) -> dict[str, int]:
    """A morphism: doubles the filters of the first layer."""
    config["conv_1_layer_1_filters"] *= 2
    return config


def deeper(config: dict[str, int]) -> dict[str, int]:
    """A morphism: one more layer in the last block."""
    config[f"conv_{config['num_conv_blocks']}_num_layers"] += 1
    return config


def smaller_kernel(config: dict[str, int]) -> dict[str, int]:
    """A morphism: a smaller kernel in the first layer."""
    config["conv_1_layer_1_kernel"] -= 1
    return config


def timed(
    strategy: Strategy, n: int, history: Sequence[Arm], problem: Problem
) -> tuple[list[Candidate], float]:
    """Ask once; return the candidates and the CPU seconds."""
    start = time.process_time()
    candidates = strategy.ask(n, history, problem)
    return candidates, time.process_time() - start


def main() -> None:
    """Print the CPU seconds of each strategy."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--arms", type=int, default=300)
    parser.add_argument("--proposals", type=int, default=10)
    parser.add_argument("--burn-ms", type=float, default=8.0)
    options = parser.parse_args()
    space = Space.from_ax(search_space())
    objectives = ("error", "model_size", "working_memory", "latency")
    operations = {"wider": wider, "deeper": deeper, "smaller_kernel": smaller_kernel}
    problem = Problem(space, objectives, measuring(options.burn_ms / 1000), Constraints(), 0, 10, operations)
    history = stored(options.arms, problem)
    print(
        f"{space.n_unit} parameters, {len(history)} arms, {len(objectives)} objectives, "
        f"{options.burn_ms:g} ms a measurement"
    )
    for strategy in (SobolStrategy(), BayesStrategy(), BayesStrategy(kernel="arc"), MorphStrategy()):
        label = f"{strategy.name}{'' if getattr(strategy, 'kernel', 'matern') == 'matern' else ' (arc)'}"
        rng, arms, seconds = np.random.default_rng(1), list(history), []
        for _round in range(options.proposals):
            candidates, spent = timed(strategy, 1, arms, problem)
            seconds.append(spent)
            arms.append(evaluated(candidates[0], len(arms), rng))
        print(f"{label:12s} CPU seconds: median {statistics.median(seconds):.2f}, max {max(seconds):.2f}")


if __name__ == "__main__":
    main()
