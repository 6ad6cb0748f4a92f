"""Damages `.tflite` files and has them analysed: each is either analysed or refused in one line.

    python benchmarks/fuzz_files.py [MUTATIONS] [SEED]

The reference models of MLPerf Tiny, where ../shared/data/mcu has them, and files that this project wrote: a
small CNN, an LSTM and GRUs. Prints how many damaged copies of each were analysed and how many refused, the
longest time that one took, and the memory of the process. Anything else that is raised ends it.
"""

from __future__ import annotations

import resource
import sys
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "export"))

from mutations import mutated
from small_files import small_files

from sparsemod.errors import ModelFileError
from sparsemod.export.analysis import analyze
from sparsemod.export.tflite_reader import parse_tflite
from sparsemod.measure.targets import find_target

MODELS = Path(__file__).parents[1].parent / "shared" / "data" / "mcu"


def main(n_mutations: int = 1000, seed: int = 0) -> None:
    files = {path.stem: path.read_bytes() for path in sorted(MODELS.glob("*.tflite"))}
    if not files:
        print(f"skipped: no reference models in {MODELS}")
    files |= small_files()
    target = find_target("STM32F446")
    print(f"{'file':<24} {'bytes':>7} {'analysed':>9} {'refused':>8} {'longest':>10} {'memory':>8}")
    for name, content in files.items():
        ends: Counter[str] = Counter()
        longest = 0.0
        for i in range(n_mutations):
            damaged = mutated(content, [seed, i])
            start = time.perf_counter()
            try:
                analyze(parse_tflite(damaged), target).as_dict()
                ends["analysed"] += 1
            except ModelFileError as error:
                ends["refused"] += 1
                if "\n" in str(error):
                    raise RuntimeError(f"{name}: copy {i} of seed {seed}: {error!r}") from error
            except Exception as error:
                raise RuntimeError(f"{name}: copy {i} of seed {seed}") from error
            longest = max(longest, time.perf_counter() - start)
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(
            f"{name:<24} {len(content):7d} {ends['analysed']:9d} {ends['refused']:8d} "
            f"{longest * 1e3:7.1f} ms {memory:5.0f} MB"
        )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
