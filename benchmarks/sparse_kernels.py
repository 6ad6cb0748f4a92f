"""Flash and instructions of the sparse int8 kernels beside dense ones, on emulated Cortex-M cores.

    python benchmarks/sparse_kernels.py [CORE ...]

For each layer and share of zeros: the weights' flash over that of dense int8 weights, the instructions of the
sparse kernel, and those over what our dense kernel and that of CMSIS-NN take for the layer, counted in
emulation, too (the latter in ../shared/reference/cortex-m-instructions.json; a dash where there is no count).
All outputs are compared to the integer simulation.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "export"))

from sparse_cases import HEADERS, PREFIX, Case, conv, dense, gate

from sparsemod.export.emulation import Machine
from sparsemod.export.toolchain import Image, build
from sparsemod.measure.sparse import sparse_bytes

CORES = {"cortex-m0": "m0", "cortex-m3": "m3", "cortex-m4": "m4"}
SPARSITIES = (0.5, 0.8, 0.9)
COUNTS = Path(__file__).parents[1] / ".." / "shared" / "reference" / "cortex-m-instructions.json"
SAME = {"kernel": (3, 3), "pads": (1, 1, 1, 1)}


def layers(sparsity: float, full: bool = False) -> dict[str, tuple[Case, int]]:
    """Return cases and the number of their weights by the name under which CMSIS-NN was counted.

    Args:
        sparsity: Share of zeros.
        full: By the dense kernels.
    """
    rng = np.random.default_rng(0)

    def convolution(name: str, **kinds: Any) -> tuple[Case, int]:
        group = kinds["channels"] // kinds.get("groups", 1)
        n = kinds["out_channels"] * int(np.prod(kinds["kernel"])) * group
        return conv(name, rng, sparsity=sparsity, full=full, **kinds), n

    return {
        "conv3x3_28x28x1_8": convolution("stem", size=(28, 28), channels=1, out_channels=8, **SAME),
        "conv3x3_14x14x8_16": convolution("conv8", size=(14, 14), channels=8, out_channels=16, **SAME),
        "conv3x3_16x16x32_32": convolution("conv32", size=(16, 16), channels=32, out_channels=32, **SAME),
        "conv3x3_8x8x64_64": convolution("conv64", size=(8, 8), channels=64, out_channels=64, **SAME),
        "conv1x1_14x14x16_32": convolution(
            "point16", size=(1, 196), channels=16, out_channels=32, kernel=(1, 1)
        ),
        "conv1x1_25x5x64_64": convolution(
            "point64", size=(1, 125), channels=64, out_channels=64, kernel=(1, 1)
        ),
        "conv1d_k5_1x128x3_16": convolution(
            "line", size=(1, 128), channels=3, out_channels=16, kernel=(1, 5), pads=(0, 0, 2, 2)
        ),
        "dw3x3_14x14x16": convolution(
            "depth16", size=(14, 14), channels=16, out_channels=16, groups=16, depthwise=True, **SAME
        ),
        "dw3x3_25x5x64": convolution(
            "depth64", size=(25, 5), channels=64, out_channels=64, groups=64, depthwise=True, **SAME
        ),
        "fc_640_128": (
            dense("dense640", rng, rows=128, columns=640, sparsity=sparsity, full=full),
            640 * 128,
        ),
        "fc_128_128": (
            dense("dense128", rng, rows=128, columns=128, sparsity=sparsity, full=full),
            128 * 128,
        ),
        "fc_64_10": (dense("dense64", rng, rows=10, columns=64, sparsity=sparsity, full=full), 640),
        "lstm_gate_32_32": (gate("gate", rng, inputs=32, size=32, sparsity=sparsity, full=full), 2 * 32 * 32),
    }


def run(cases: dict[str, tuple[Case, int]], core: str) -> tuple[dict[str, int], Image]:
    """Return the instructions of each layer, all of whose outputs are compared, and the image."""
    keep = [f"{kind}_{case.name}" for case, _ in cases.values() for kind in ("run", "output")]
    sources = {**HEADERS, "cases.c": PREFIX + "".join(case.text for case, _ in cases.values())}
    image = build(sources, core, keep=keep)
    machine, taken = Machine(image), {}
    for layer, (case, _) in cases.items():
        output = f"output_{case.name}"
        done = machine.call(f"run_{case.name}", reads={output: case.expected.nbytes})
        if done.outputs[output] != case.expected.tobytes():
            raise RuntimeError(f"{layer} on {core}: outputs differ from the integer simulation")
        taken[layer] = done.n_instructions
    return taken, image


def main(cores: list[str]) -> None:
    """Print a table for each core."""
    counts = json.loads(COUNTS.read_text()) if COUNTS.exists() else {}
    if not counts:
        print(f"no counts of CMSIS-NN: {COUNTS.name} is absent")
    for core in cores:
        known = counts.get(CORES.get(core, ""), {})
        dense, image = run(layers(0.0, full=True), core)
        print(f"\n{core}: instructions; over our dense kernels', over CMSIS-NN's")
        head = "".join(f"{f'{s:.0%} zeros: flash':>20s} instructions  /ours /cmsis" for s in SPARSITIES)
        print(f"{'layer':22s} {'dense':>10s} /cmsis{head}")
        rows = {}
        for layer, n in dense.items():
            rows[layer] = f"{layer:22s} {n:10d} {_ratio(n, known.get(layer, {}).get('cmsis'))}"
        for sparsity in SPARSITIES:
            cases = layers(sparsity)
            taken, image = run(cases, core)
            for layer, (_, n) in cases.items():
                flash = sparse_bytes(n, n - round(sparsity * n)) / n
                ours, cmsis = _ratio(taken[layer], dense[layer]), known.get(layer, {}).get("cmsis")
                rows[layer] += f"{flash:20.3f}{taken[layer]:13d} {ours} {_ratio(taken[layer], cmsis)}"
        print("\n".join(rows.values()))
        shared = {
            k: s.n_bytes for k, s in image.symbols.items() if k.startswith("sm_") and s.section == ".text"
        }
        print(f"code that all layers share: {sum(shared.values())} bytes")


def _ratio(n: int, of: int | None) -> str:
    return f"{n / of:6.2f}" if of else "     -"


if __name__ == "__main__":
    main(sys.argv[1:] or list(CORES))
