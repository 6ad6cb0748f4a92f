"""Flash and instructions of the sparse int8 kernels beside dense ones, on emulated Cortex-M cores.

    python benchmarks/sparse_kernels.py [CORE ...]

For each layer and share of zeros: the weights' flash over that of dense int8 weights, the instructions of the
sparse kernel, and those over what the dense kernel of CMSIS-NN takes for the layer, counted in emulation, too
(../shared/reference/cortex-m-instructions.json; a dash where there is no count). All outputs are compared to
the integer simulation.
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
from sparsemod.export.toolchain import build
from sparsemod.measure.sparse import sparse_bytes

CORES = {"cortex-m0": "m0", "cortex-m3": "m3", "cortex-m4": "m4"}
SPARSITIES = (0.5, 0.8, 0.9)
COUNTS = Path(__file__).parents[1] / ".." / "shared" / "reference" / "cortex-m-instructions.json"
SAME = {"kernel": (3, 3), "pads": (1, 1, 1, 1)}


def layers(sparsity: float) -> dict[str, tuple[Case, int]]:
    """Return cases and the number of their weights by the name under which CMSIS-NN was counted."""
    rng = np.random.default_rng(0)

    def convolution(name: str, **kinds: Any) -> tuple[Case, int]:
        group = kinds["channels"] // kinds.get("groups", 1)
        n = kinds["out_channels"] * int(np.prod(kinds["kernel"])) * group
        return conv(name, rng, sparsity=sparsity, **kinds), n

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
        "fc_640_128": (dense("dense640", rng, rows=128, columns=640, sparsity=sparsity), 640 * 128),
        "fc_128_128": (dense("dense128", rng, rows=128, columns=128, sparsity=sparsity), 128 * 128),
        "fc_64_10": (dense("dense64", rng, rows=10, columns=64, sparsity=sparsity), 640),
        "lstm_gate_32_32": (gate("gate", rng, inputs=32, size=32, sparsity=sparsity), 2 * 32 * 32),
    }


def main(cores: list[str]) -> None:
    """Print a table for each core."""
    counts = json.loads(COUNTS.read_text()) if COUNTS.exists() else {}
    if not counts:
        print(f"no counts of dense kernels: {COUNTS.name} is absent")
    for core in cores:
        print(
            f"\n{core}\n{'layer':22s}"
            + "".join(f"{f'{s:.0%} zeros: flash':>20s} instructions  ratio" for s in SPARSITIES)
        )
        rows: dict[str, str] = {}
        for sparsity in SPARSITIES:
            cases = layers(sparsity)
            keep = [f"{kind}_{case.name}" for case, _ in cases.values() for kind in ("run", "output")]
            sources = {**HEADERS, "cases.c": PREFIX + "".join(case.text for case, _ in cases.values())}
            image = build(sources, core, keep=keep)
            machine = Machine(image)
            for layer, (case, n) in cases.items():
                output = f"output_{case.name}"
                done = machine.call(f"run_{case.name}", reads={output: case.expected.nbytes})
                if done.outputs[output] != case.expected.tobytes():
                    raise RuntimeError(f"{layer} on {core}: outputs differ from the integer simulation")
                known = counts.get(CORES.get(core, ""), {}).get(layer, {}).get("cmsis")
                ratio = f"{done.n_instructions / known:.2f}" if known else "-"
                flash = sparse_bytes(n, n - round(sparsity * n)) / n
                rows[layer] = rows.get(layer, "") + f"{flash:20.3f}{done.n_instructions:13d} {ratio:>6s}"
        for layer, row in rows.items():
            print(f"{layer:22s}{row}")
        shared = {
            k: s.n_bytes for k, s in image.symbols.items() if k.startswith("sm_") and s.section == ".text"
        }
        print(f"code that all layers share: {sum(shared.values())} bytes")


if __name__ == "__main__":
    main(sys.argv[1:] or list(CORES))
