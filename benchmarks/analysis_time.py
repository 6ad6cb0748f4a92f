"""How long it takes to analyse a `.tflite` file, and how near the figures are to counted ones.

    python benchmarks/analysis_time.py [REPEATS]

Files that this project wrote, and the reference models of MLPerf Tiny where ../shared/data/mcu has them; for
those also the arena and the instructions of the interpreter on an emulated Cortex-M4.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "export"))

from small_files import small_files

from sparsemod.export.analysis import analyze_file
from sparsemod.measure.targets import find_target

MODELS = Path(__file__).parents[1].parent / "shared" / "data" / "mcu"
COUNTED = {  # arena, interpreter's structures, instructions on a Cortex-M4
    "kws_ref_model": (16000, 6916, 7.847e6),
    "pretrainedResnet_quant": (49728, 5364, 29.875e6),
    "vww_96_int8": (73728, 27076, 24.722e6),
    "ad01_int8": (768, 1908, 0.583e6),
    "str_ww_ref_model": (7936, 8756, 2.227e6),
}


def main(n_repeats: int = 20) -> None:
    board = find_target("STM32L4R5")
    print(f"{'file':<24} {'bytes':>7} {'operators':>9} {'first':>8} {'median':>8} ", end="")
    print("  arena   (real)    tail   (real)  instructions  of the counted")
    with tempfile.TemporaryDirectory() as folder:
        for name, content in small_files().items():
            Path(folder, f"{name}.tflite").write_bytes(content)
        paths = [*sorted(MODELS.glob("*.tflite")), *sorted(Path(folder).glob("*.tflite"))]
        if not MODELS.is_dir():
            print(f"skipped: no reference models in {MODELS}")
        for path in paths:
            seconds = []
            for _ in range(n_repeats):
                start = time.perf_counter()
                analysis = analyze_file(path, board)
                seconds.append(time.perf_counter() - start)
            line = (
                f"{path.stem:<24} {analysis.sizes.file_bytes:7d} {len(analysis.operators):9d} "
                f"{seconds[0] * 1e3:5.1f} ms {sorted(seconds)[n_repeats // 2] * 1e3:5.1f} ms "
            )
            arena, tail, instructions = COUNTED.get(path.stem, (None, None, None))
            line += (
                f"{analysis.target_arena_bytes:7d} {arena or '':>8} {analysis.tail_bytes:7d} {tail or '':>8}"
            )
            line += f" {analysis.instructions:13,.0f}"
            print(line + (f" {analysis.instructions / instructions:15.3f}" if instructions else ""))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
