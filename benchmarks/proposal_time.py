"""CPU seconds a proposal costs: 40 tunable parameters, 300 stored arms, four objectives, one thread.

    OMP_NUM_THREADS=1 python benchmarks/proposal_time.py [--arms 300] [--proposals 10] [--burn-ms 8]
    OMP_NUM_THREADS=1 python benchmarks/proposal_time.py --growth [--ax-arms 25]

`--growth` measures stage 2 from 100 to 1,000 arms, and one proposal of Ax's default generator in the same
run at a few arms, where it is cheapest; table and plot go to ``benchmarks/results/proposal_time.*``.

The networks are imagined: a convolutional space as in the documentation, costs counted by formula from the
layers that are built, and an error that falls with capacity, depth and a fitting learning rate. Measuring
one burns as much CPU time as tracing a small network takes, and is cached as in a run, so the search pays
for what it measures.
"""

from __future__ import annotations

import argparse
import logging
import math
import statistics
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path

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


def growth(problem: Problem, proposals: int, ax_arms: int) -> str:
    """Time stage 2 at 100 to 1,000 arms and Ax's default at a few; return the Markdown table."""
    sizes = (100, 200, 400, 700, 1000)
    history = stored(max(sizes), problem)
    medians = []
    for n in sizes:
        rng, arms, seconds = np.random.default_rng(1), list(history[:n]), []
        for _round in range(proposals):
            candidates, spent = timed(BayesStrategy(), 1, arms, problem)
            seconds.append(spent)
            arms.append(evaluated(candidates[0], len(arms), rng))
        medians.append(statistics.median(seconds))
    lines = ["| generator | arms | CPU s a proposal |", "| --- | --- | --- |"]
    lines += [f"| ours, stage 2 | {n} | {s:.2f} |" for n, s in zip(sizes, medians, strict=True)]
    if ax_arms:
        lines.append(f"| Ax's default | {ax_arms} | {ax_seconds(history[:ax_arms], problem):.1f} |")
    results = Path(__file__).parent / "results"
    results.mkdir(exist_ok=True)
    plot(sizes, medians, results / "proposal_time.png")
    text = "\n".join(lines) + "\n"
    (results / "proposal_time.md").write_text(text)
    return text


def ax_seconds(history: Sequence[Arm], problem: Problem) -> float:
    """Return the CPU seconds of one proposal of Ax's `Client`, by its default model of the arms."""
    import torch
    from ax.api.client import Client
    from search_peers import ax_parameters

    logging.getLogger("ax").setLevel(logging.ERROR)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    client = Client(random_seed=0)
    client.configure_experiment(parameters=ax_parameters(problem.space))
    client.configure_optimization(objective=", ".join(f"-{name}" for name in problem.objectives))
    # the arms take the place of the centre and the Sobol points that it would begin with
    client.configure_generation_strategy(initialization_budget=1, initialize_with_center=False)
    for arm in history:
        done = arm.evaluation
        if done is not None:
            index = client.attach_trial(dict(arm.candidate.parametrization))
            client.complete_trial(index, {n: math.log(done.objective(n)) for n in problem.objectives})
    start = time.process_time()
    client.get_next_trials(max_trials=1)
    return time.process_time() - start


def plot(sizes: Sequence[int], medians: Sequence[float], path: Path) -> None:
    """Draw the growth."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(5.0, 3.2))
    axes.plot(sizes, medians, marker="o")
    axes.set(xlabel="arms", ylabel="CPU seconds a proposal", ylim=(0, None))
    axes.grid(alpha=0.3)
    figure.tight_layout()
    figure.savefig(path, dpi=100)
    plt.close(figure)


def main() -> None:
    """Print the CPU seconds of each strategy."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--arms", type=int, default=300)
    parser.add_argument("--proposals", type=int, default=10)
    parser.add_argument("--burn-ms", type=float, default=8.0)
    parser.add_argument("--growth", action="store_true", help="from 100 to 1,000 arms, against Ax")
    parser.add_argument("--ax-arms", type=int, default=25, help="0 leaves Ax out")
    options = parser.parse_args()
    space = Space.from_ax(search_space())
    objectives = ("error", "model_size", "working_memory", "latency")
    operations = {"wider": wider, "deeper": deeper, "smaller_kernel": smaller_kernel}
    problem = Problem(space, objectives, measuring(options.burn_ms / 1000), Constraints(), 0, 10, operations)
    if options.growth:
        print(growth(problem, min(options.proposals, 3), options.ax_arms))
        return
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
