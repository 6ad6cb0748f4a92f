"""Predicted beside counted instructions of whole networks in C, on an emulated Cortex-M0+, M3 and M4.

    python benchmarks/latency_truth.py [N]

N random networks (20) of the four kinds of `tests/export/random_nets.py`, dense and pruned to 0.5, 0.8 and
0.9, none of which `benchmarks/fit_latency.py` has seen, and what `model_run` of their bundles executes. Fails
where the median error is above 10 per cent or the largest above 30.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parent))

from counted_bundles import CORES, SPACES, count, random_network

from sparsemod.errors import UnsupportedOperatorError
from sparsemod.export.emulation import missing
from sparsemod.measure.latency import instructions

FIRST_SEED = 7000
SPARSITIES = (0.0, 0.5, 0.8, 0.9)


def main(n: int) -> None:
    """Print the table and what it comes to."""
    if missing():
        raise SystemExit(missing()[0])
    torch.set_num_threads(1)
    errors: dict[str, list[float]] = {core: [] for core in CORES}
    slowest, done, seed = 0.0, 0, FIRST_SEED
    print(f"{'network':24}" + "".join(f"{core:>34}" for core in CORES))
    print(" " * 24 + f"{'predicted':>13}{'counted':>13}{'ratio':>8}" * len(CORES))
    while done < n:
        space, sparsity = list(SPACES)[seed % 4], SPARSITIES[seed // 4 % 4]
        net, samples = random_network(seed, seed, sparsity)
        try:
            graph, counts = count(net, samples)
        except UnsupportedOperatorError as error:
            print(f"{space} {seed}: left out: {error}")
            seed += 1
            continue
        line = f"{space} {seed} {sparsity:.1f}".ljust(24)
        for core in CORES:
            start = time.perf_counter()
            predicted = sum(instructions(graph, operator, core, "c") for operator in graph.operators)
            slowest = max(slowest, time.perf_counter() - start)
            ratio = predicted / counts[core]
            errors[core].append(abs(ratio - 1))
            line += f"{predicted:13.0f}{counts[core]:13d}{ratio:8.3f}"
        print(line, flush=True)
        done, seed = done + 1, seed + 1
    for core, own in errors.items():
        print(f"{core}: median error {100 * np.median(own):.1f} %, largest {100 * max(own):.1f} %")
    print(f"slowest prediction {1000 * slowest:.2f} ms")
    if any(np.median(own) > 0.10 or max(own) > 0.30 for own in errors.values()):
        raise SystemExit("an error is above the limit")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 20)
