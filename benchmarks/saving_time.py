"""What saving costs after an arm; ``python benchmarks/saving_time.py [folder]``.

300 arms of 40 parameters, all evaluated; then each save completes one more arm and writes results and table
with fsync, as a run does. Prints the size of the results file and the median time of each part.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from ax.core.parameter import ChoiceParameter, ParameterType, RangeParameter
from ax.core.search_space import SearchSpace

from sparsemod.candidate import OBJECTIVES, Candidate, Constraints, Evaluation, Resources, Status
from sparsemod.search.experiment import Experiment
from sparsemod.store import Store

N_ARMS = 300
N_SAVES = 100
LIMITS = Constraints(model_size=60_000)


def space() -> SearchSpace:
    """Return 40 parameters: eight blocks of five."""
    parameters = []
    for i in range(8):
        kinds = ["conv", "separable", "none"]
        parameters += [
            RangeParameter(f"block_{i}.kernel_size", ParameterType.INT, 1, 9),
            RangeParameter(f"block_{i}.num_filters", ParameterType.INT, 1, 64),
            RangeParameter(f"block_{i}.drop_rate", ParameterType.FLOAT, 0.0, 0.9),
            RangeParameter(f"block_{i}.threshold", ParameterType.FLOAT, 1e-3, 0.9, log_scale=True),
            ChoiceParameter(
                f"block_{i}.kind", ParameterType.STRING, kinds, is_ordered=False, sort_values=False
            ),
        ]
    return SearchSpace(parameters)


def candidate(rng: np.random.Generator) -> Candidate:
    """Draw a candidate of that space."""
    values = {}
    for i in range(8):
        values[f"block_{i}.kernel_size"] = int(rng.integers(1, 10))
        values[f"block_{i}.num_filters"] = int(rng.integers(1, 65))
        values[f"block_{i}.drop_rate"] = float(rng.uniform(0, 0.9))
        values[f"block_{i}.threshold"] = float(rng.uniform(1e-3, 0.9))
        values[f"block_{i}.kind"] = str(rng.choice(["conv", "separable", "none"]))
    return Candidate(values, stage=3, origin="morph:kernel_size+num_filters", parent="17_0")


def evaluation(rng: np.random.Generator) -> Evaluation:
    """Draw what could have come out of training."""
    sizes = [int(v) for v in rng.integers(1_000, 100_000, 9)]
    resources = Resources(sizes[0], sizes[1], float(rng.uniform(0, 0.1)), *sizes[2:])
    errors = [float(v) for v in rng.uniform(size=4)]
    return Evaluation(
        Status.COMPLETED,
        error=errors[0],
        float_error=errors[1],
        resources=resources,
        n_epochs=20,
        best_epoch=17,
        sparsity=errors[2],
        seconds=100 * errors[3],
    )


def timed(times: list[float], work: Callable[[], object]) -> None:
    """Run `work` and append its milliseconds."""
    start = time.perf_counter()
    work()
    times.append(1000 * (time.perf_counter() - start))


def main() -> None:
    rng = np.random.default_rng(0)
    experiment = Experiment("saving", space(), OBJECTIVES)
    for index in range(N_ARMS):
        (arm,) = experiment.add([candidate(rng)], round=index, epochs=20, seeds=[index])
        experiment.complete(arm.name, evaluation(rng))
    print(f"results file, {N_ARMS} arms of 40 parameters: {len(experiment.to_json()) / 1e3:.0f} kB")
    parts: dict[str, list[float]] = {
        "record the arm": [],
        "JSON": [],
        "CSV": [],
        "write both, fsync": [],
        "a save": [],
    }
    with tempfile.TemporaryDirectory(dir=sys.argv[1] if len(sys.argv) > 1 else None) as folder:
        with Store(Path(folder), "saving") as store:
            for index in range(N_SAVES):
                (arm,) = experiment.add([candidate(rng)], round=index, epochs=20, seeds=[index])
                outcome = evaluation(rng)
                timed(parts["record the arm"], lambda: experiment.complete(arm.name, outcome))  # noqa: B023
                timed(parts["JSON"], experiment.to_json)
                timed(parts["CSV"], lambda: experiment.to_csv(LIMITS))
                content, table = experiment.to_json(), experiment.to_csv(LIMITS)
                timed(parts["write both, fsync"], lambda: store.save(content, table))  # noqa: B023
        parts["a save"] = [sum(times) for times in zip(*list(parts.values())[:4], strict=True)]
        read: list[float] = []
        for _ in range(10):
            timed(read, lambda: Experiment.from_json(experiment.to_json()))
    for name, times in [*parts.items(), ("read it back", read)]:
        print(f"{name:>18}: median {statistics.median(times):7.2f} ms, worst {max(times):7.2f} ms")


if __name__ == "__main__":
    main()
