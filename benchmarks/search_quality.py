"""How good the search is: hypervolume over evaluations, ours against Optuna, pymoo, Ax and random draws.

    OMP_NUM_THREADS=1 python benchmarks/search_quality.py [--problem macro] [--methods ours ...] [--seeds 10]

Each run is kept as ``benchmarks/results/<problem>/<method>-<seed>.json`` and not repeated, so the benchmark
can be stopped and continued; tables and plots are made of all that is there. Problems:

- ``macro``: NAS-Bench-Macro (https://github.com/xiusu/NAS-Bench-Macro, arXiv 2103.11922, Apache-2.0), error,
  parameters and FLOPs of 6561 trained networks, read from ``../shared/data`` beside the repository or from
  ``--table``. The hypervolume is relative to the true front's, each objective scaled linearly to [0, 1].
- ``digits``: networks that are really trained (`digits40.py`), four objectives, 40 conditional parameters.
- ``truth``: the same space, with errors predicted from all arms of ``digits``, and noise.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from search_peers import METHODS, Evaluate, FinishedError, Recorder, ours

from sparsemod.candidate import Candidate, Constraints, Evaluation, Status
from sparsemod.pareto import hypervolume
from sparsemod.search.strategy import Problem

RESULTS = Path(__file__).parent / "results"
TABLE = Path(__file__).parents[1].parent / "shared" / "data" / "nas-bench-macro_cifar10.json"


@dataclass(frozen=True)
class Bench:
    """A problem to compare methods on.

    Attributes:
        problem: Makes it, for a seed.
        evaluate: Makes the evaluation of a candidate at its place in the run, for a seed.
        scores: Hypervolumes of (n, m) objectives in real units, by name; the first is the one that counts.
        stages: Arms of our three stages.
        budgets: Evaluations after which the hypervolume is taken.
    """

    problem: Callable[[int], Problem]
    evaluate: Callable[[int], Evaluate]
    scores: dict[str, Callable[[np.ndarray], float]]
    stages: tuple[int, int, int]
    budgets: tuple[int, ...]


def macro(path: Path) -> Bench:
    """NAS-Bench-Macro."""
    from nas_bench_macro import resources, row, search_space

    from sparsemod.space.space import Space

    table: dict[str, Any] = json.loads(path.read_text())
    everything = np.array([[1 - e["mean_acc"] / 100, e["params"], e["flops"] / 1e9] for e in table.values()])
    low, high = everything.min(axis=0), everything.max(axis=0)
    space = Space.from_ax(search_space(ordered=False))

    def volume(values: np.ndarray) -> float:
        return hypervolume((values - low) / (high - low), np.ones(3))

    whole = volume(everything)

    def problem(seed: int) -> Problem:
        objectives = ("error", "model_size", "latency")
        return Problem(
            space,
            objectives,
            lambda p: resources(row(table, p)),
            Constraints(),
            seed,
            1,
            {"layer": another_layer},
            0.9,
        )

    def evaluate(candidate: Candidate, _index: int) -> Evaluation:
        entry = row(table, candidate.parametrization)
        error = 1.0 - entry["mean_acc"] / 100.0
        return Evaluation(Status.COMPLETED, error=error, resources=resources(entry))

    return Bench(
        problem,
        lambda _seed: evaluate,
        {"share of the true hypervolume": lambda values: volume(values) / whole},
        (12, 108, 30),
        (25, 50, 100, 150),
    )


def another_layer(config: dict[str, Any]) -> dict[str, Any]:
    """A morphism: another choice in one layer."""
    import random

    config[f"layer_{random.randrange(8)}"] = random.randrange(3)
    return config


def bench(name: str, table: Path) -> Bench:
    """Make a problem by name."""
    if name == "macro":
        return macro(table)
    import digits40

    parts = digits40.real() if name == "digits" else digits40.truth(RESULTS / "digits")
    return Bench(parts.problem, parts.evaluate, parts.scores, (20, 30, 10), (20, 30, 40, 60))


def run(of: Bench, method: str, seed: int, n: int) -> dict[str, Any]:
    """Run a method once."""
    recorder = Recorder(of.problem(seed), of.evaluate(seed), n)
    start = time.perf_counter()
    try:
        if method.startswith("ours"):
            ours(recorder, stages_of(method, of.stages, n), "arc" if "arc" in method else "matern")
        else:
            METHODS[method](recorder)
    except FinishedError:
        pass
    objectives = recorder.problem.objectives
    return {
        "method": method,
        "seed": seed,
        "calls": max(recorder.calls, len(recorder.arms)),
        "wall_seconds": round(time.perf_counter() - start, 1),
        "seconds": [round(s, 4) for s in recorder.seconds],
        "objectives": list(objectives),
        "values": [
            [float(f"{a.evaluation.objective(o):.6g}") for o in objectives]
            for a in recorder.arms
            if a.evaluation
        ],
        "arms": [dict(a.candidate.parametrization) for a in recorder.arms],
        "stages": [a.candidate.stage for a in recorder.arms],
    }


def stages_of(method: str, stages: tuple[int, int, int], n: int) -> tuple[int, int, int]:
    """Return the arms of each stage: all three, or without one of them its arms go to the others."""
    first, second, third = stages
    if method == "ours-no-sobol":
        return 0, n - third, third
    if method == "ours-no-bayes":
        return first, 0, n - first
    if method == "ours-no-morph":
        return first, n - first, 0
    return first, second, max(third, n - first - second)


def stored(name: str, methods: Sequence[str] | None = None) -> dict[str, dict[int, dict[str, Any]]]:
    """Read all runs of a problem, by method and seed."""
    found: dict[str, dict[int, dict[str, Any]]] = {}
    for path in sorted((RESULTS / name).glob("*.json")):
        record = json.loads(path.read_text())
        if methods is None or record["method"] in methods:
            found.setdefault(record["method"], {})[record["seed"]] = record
    return found


def curve(
    record: dict[str, Any], score: Callable[[np.ndarray], float], budgets: Sequence[int]
) -> list[float]:
    """Return the score after each budget; failed arms count as evaluations and add nothing."""
    values = np.array(record["values"], dtype=float)
    return [score(values[:b][np.isfinite(values[:b]).all(axis=1)]) for b in budgets]


def table(of: Bench, runs: dict[str, dict[int, dict[str, Any]]]) -> str:
    """Return the Markdown table of the medians and the worst runs."""
    lines = []
    for title, score in of.scores.items():
        head = " | ".join(f"{b} evaluations" for b in of.budgets)
        lines += [
            f"{title}: median (worst) of the seeds",
            "",
            f"| method | seeds | {head} | CPU s a proposal |",
        ]
        lines += ["|" + " --- |" * (len(of.budgets) + 3)]
        rows = []
        for method, seeds in runs.items():
            cells, last = [], 0.0
            for k, budget in enumerate(of.budgets):
                long = [r for r in seeds.values() if len(r["values"]) >= budget]
                values = [curve(r, score, of.budgets)[k] for r in long]
                if not values:
                    cells.append("–")
                    continue
                last = statistics.median(values)
                few = "" if len(values) == len(seeds) else f" [{len(values)} seeds]"
                cells.append(f"{last:.4f} ({min(values):.4f}){few}")
            seconds = statistics.median(s for r in seeds.values() for s in r["seconds"][20:])
            rows.append(
                (
                    method != "ours",
                    -last,
                    f"| {method} | {len(seeds)} | {' | '.join(cells)} | {seconds:.3f} |",
                )
            )
        lines += [text for _, _, text in sorted(rows)] + [""]
    return "\n".join(lines)


def plot(of: Bench, runs: dict[str, dict[int, dict[str, Any]]], path: Path) -> None:
    """Draw the median and the range of each method over the evaluations."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    title, score = next(iter(of.scores.items()))
    steps = np.unique(np.linspace(5, of.budgets[-1], 40).astype(int))
    figure, axes = plt.subplots(figsize=(6.4, 4.0))
    for method, seeds in runs.items():
        shortest = min(len(r["values"]) for r in seeds.values())
        ticks = steps[steps <= shortest]
        curves = np.array([curve(r, score, ticks) for r in seeds.values()])
        (line,) = axes.plot(
            ticks,
            np.median(curves, axis=0),
            label=f"{method} ({len(seeds)})",
            lw=2.2 if method == "ours" else 1.2,
        )
        axes.fill_between(
            ticks, curves.min(axis=0), curves.max(axis=0), color=line.get_color(), alpha=0.1, lw=0
        )
    axes.set(xlabel="evaluations", ylabel=title)
    axes.set_ylim(bottom=max(axes.get_ylim()[0], 0.5) if "share" in title else None)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8, loc="lower right")
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main() -> None:
    """Run what is missing, then write tables and plots."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--problem", default="macro", choices=["macro", "digits", "truth"])
    parser.add_argument("--methods", nargs="*", default=[])
    parser.add_argument("--seeds", type=int, nargs="+", default=list(range(10)))
    parser.add_argument("--evaluations", type=int, help="fewer than the largest budget, for slow methods")
    parser.add_argument("--table", type=Path, default=TABLE)
    options = parser.parse_args()
    if options.problem == "macro" and not options.table.exists():
        print(f"skipped: there is no {options.table.name} in ../shared/data beside the repository")
        return
    of = bench(options.problem, options.table)
    folder = RESULTS / options.problem
    folder.mkdir(parents=True, exist_ok=True)
    for method in options.methods:
        for seed in options.seeds:
            path = folder / f"{method}-{seed}.json"
            n = options.evaluations or of.budgets[-1]
            if path.exists() and len(json.loads(path.read_text())["values"]) >= n:
                continue
            record = run(of, method, seed, n)
            path.write_text(json.dumps(record))
            score = next(iter(of.scores.values()))
            print(
                method,
                seed,
                [f"{v:.4f}" for v in curve(record, score, of.budgets)],
                f"{record['wall_seconds']} s, {sum(record['seconds']):.1f} CPU s",
                flush=True,
            )
    runs = stored(options.problem)
    if runs:
        text = table(of, runs)
        (RESULTS / f"{options.problem}.md").write_text(text)
        plot(of, runs, RESULTS / f"{options.problem}.png")
        print(text)


if __name__ == "__main__":
    main()
