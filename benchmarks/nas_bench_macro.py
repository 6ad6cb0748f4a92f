"""Share of the true hypervolume found on NAS-Bench-Macro: error, parameters and FLOPs of 6561 trained
networks.

    OMP_NUM_THREADS=1 python benchmarks/nas_bench_macro.py [--seeds 5] [--strategies bayes random]

The table (https://github.com/xiusu/NAS-Bench-Macro, arXiv 2103.11922, Apache-2.0) is read from
``../shared/data/nas-bench-macro_cifar10.json``, beside the repository; without it the benchmark says so and
ends. Eight layers have three choices each. All three objectives are minimised, each scaled linearly to [0,
1] over the table, and the hypervolume is taken up to (1, 1, 1). The first 15 evaluations are Sobol points.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np
from ax.core.parameter import ChoiceParameter, FixedParameter, ParameterType
from ax.core.search_space import SearchSpace

from sparsemod.candidate import Arm, Candidate, Constraints, Evaluation, Parametrization, Resources, Status
from sparsemod.pareto import hypervolume
from sparsemod.search.bayes import BayesStrategy
from sparsemod.search.sobol import SobolStrategy
from sparsemod.search.strategy import Problem, Strategy
from sparsemod.space.space import Space

TABLE = Path(__file__).parents[1].parent / "shared" / "data" / "nas-bench-macro_cifar10.json"
N_LAYERS = 8
N_SOBOL = 15
BUDGETS = (50, 100)


def search_space(ordered: bool) -> SearchSpace:
    """Eight layers: identity, 3x3 block with expansion 3, 5x5 block with expansion 6; training is fixed."""
    layers = [
        ChoiceParameter(f"layer_{i}", ParameterType.INT, [0, 1, 2], is_ordered=ordered, sort_values=True)
        for i in range(N_LAYERS)
    ]
    names = ("learning_rate", "learning_gamma", "learning_step", "prune_threshold")
    fixed = [FixedParameter(name, ParameterType.FLOAT, 1.0) for name in names]
    return SearchSpace([*layers, *fixed, FixedParameter("batch_size", ParameterType.INT, 64)])


def row(table: dict[str, Any], p: Parametrization) -> dict[str, Any]:
    """Look up a network."""
    found: dict[str, Any] = table["".join(str(p[f"layer_{i}"]) for i in range(N_LAYERS))]
    return found


def resources(entry: dict[str, Any]) -> Resources:
    """Parameters stand for the model size, FLOPs for the latency."""
    size, flops = entry["params"], entry["flops"]
    return Resources(size, 1, flops / 1e9, size, size, flops, size, size, 1, 1)


def evaluated(candidate: Candidate, index: int, entry: dict[str, Any]) -> Arm:
    """Make an arm of a candidate."""
    error = 1.0 - entry["mean_acc"] / 100.0
    done = Evaluation(Status.COMPLETED, error=error, resources=resources(entry))
    return Arm(f"{index}_0", candidate, index, 1, index, done)


def random_arms(n: int, problem: Problem, table: dict[str, Any]) -> list[Arm]:
    """Evaluate different networks at random."""
    rng = np.random.default_rng(problem.seed)
    seen: dict[tuple[object, ...], dict[str, Any]] = {}
    while len(seen) < n:
        params = problem.space.from_unit(rng.random(problem.space.n_unit))
        seen.setdefault(problem.space.key(params), params)
    return [evaluated(Candidate(p, 1, "random"), i, row(table, p)) for i, p in enumerate(seen.values())]


def searched_arms(n: int, strategy: Strategy, problem: Problem, table: dict[str, Any]) -> list[Arm]:
    """Evaluate Sobol points and then what a strategy asks for, one at a time."""
    arms: list[Arm] = []
    while len(arms) < n:
        asked = (SobolStrategy() if len(arms) < N_SOBOL else strategy).ask(1, arms, problem)
        arms += [evaluated(c, len(arms), row(table, c.parametrization)) for c in asked]
    return arms


def main() -> None:
    """Print the relative hypervolume at each budget."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seeds", type=int, default=5)
    known = ["bayes", "arc", "random", "sobol"]
    parser.add_argument("--strategies", nargs="+", default=["bayes", "random"], choices=known)
    parser.add_argument("--ordered", action="store_true", help="treat the choices as a scale, not as labels")
    options = parser.parse_args()
    if not TABLE.exists():
        print(f"skipped: there is no {TABLE.name} in ../shared/data beside the repository")
        return
    table = json.loads(TABLE.read_text())
    everything = np.array([[100.0 - e["mean_acc"], e["params"], e["flops"]] for e in table.values()])
    low, high = everything.min(axis=0), everything.max(axis=0)
    reference = np.ones(3)
    whole = hypervolume((everything - low) / (high - low), reference)

    def share(arms: list[Arm]) -> float:
        entries = [row(table, arm.candidate.parametrization) for arm in arms]
        values = np.array([[100.0 - e["mean_acc"], e["params"], e["flops"]] for e in entries])
        return hypervolume((values - low) / (high - low), reference) / whole

    space = Space.from_ax(search_space(options.ordered))
    strategies = {"bayes": BayesStrategy(), "arc": BayesStrategy(kernel="arc"), "sobol": SobolStrategy()}
    for name in options.strategies:
        shares: dict[int, list[float]] = {budget: [] for budget in BUDGETS}
        start = time.process_time()
        for seed in range(options.seeds):
            problem = Problem(
                space,
                ("error", "model_size", "latency"),
                lambda p: resources(row(table, p)),
                Constraints(),
                seed,
                1,
            )
            if name == "random":
                arms = random_arms(max(BUDGETS), problem, table)
            else:
                arms = searched_arms(max(BUDGETS), strategies[name], problem, table)
            for budget in BUDGETS:
                shares[budget].append(share(arms[:budget]))
        seconds = (time.process_time() - start) / (options.seeds * max(BUDGETS))
        text = "; ".join(
            f"{budget} evaluations: median {statistics.median(v):.4f} (worst {min(v):.4f}, best {max(v):.4f})"
            for budget, v in shares.items()
        )
        print(f"{name:7s} {options.seeds} seeds; {text}; {seconds:.2f} CPU s an evaluation", flush=True)


if __name__ == "__main__":
    main()
