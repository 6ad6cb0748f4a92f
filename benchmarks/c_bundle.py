"""Compares the C bundle with the integer simulation, with what is promised of it, and with CMSIS-NN.

    python benchmarks/c_bundle.py [NETS]

For random networks of four spaces, half of them pruned: how many output values of the compiled bundle are
those of the simulation on this computer and (five networks of each space) on an emulated Cortex-M4; whether
constants and arena have the predicted size in the linked file. Then instructions, code and stack of a small
CNN and of the architectures of MLPerf Tiny, dense and with 80 % zeros, beside the instructions of the
TensorFlow Lite Micro interpreter with CMSIS-NN; and what zeros save in a convolution, a depthwise one, a
matrix and an LSTM.
"""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "measure"))
sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "export"))

from c_programs import Bundle, bundle, compiled, image_of, on_machine, run
from mlperf_nets import INPUTS
from random_nets import SPACES, SmallCNN, random_net

from sparsemod.export.emulation import Machine
from sparsemod.measure.bundle import constants
from sparsemod.measure.bundle_memory import layout

SPARSITIES = (0.0, 0.3, 0.0, 0.6, 0.0, 0.8, 0.0, 0.9)
# Instructions of an inference in the interpreter with CMSIS-NN on an emulated Cortex-M4, the same networks.
CMSIS_NN = {"small": 2.54e6, "kws": 7.84e6, "ic": 29.87e6, "vww": 24.71e6}


def equal_values(space: str, n_nets: int) -> tuple[int, int, int, int]:
    """Return how many values are equal, of how many, and the same for predicted sizes."""
    counts = np.zeros(4, int)
    for seed in range(n_nets):
        one = bundle(*random_net(space, 1000 + seed), "net", 32, SPARSITIES[seed % len(SPARSITIES)])
        with TemporaryDirectory() as folder:
            made = run(compiled(Path(folder), [one], "-O2"), one)
        image, graph = image_of(one), one.quantized.graph
        sizes = image.symbol("net_constants").n_bytes, image.symbol("net_arena").n_bytes
        known = constants(graph).n_bytes, layout(graph).arena.n_bytes
        counts += ((made == one.expected).sum(), made.size, sum(np.equal(sizes, known)), 2)
        if seed < 5:
            _, outputs = on_machine(Machine(image), one)
            counts[:2] += (outputs == one.expected[0]).sum(), outputs.size
    equal, n, exact, of = map(int, counts)
    return equal, n, exact, of


def measured(name: str, one: Bundle, reference: float | None = None) -> tuple[int, int, int]:
    """Print what a bundle takes on a Cortex-M4; return instructions, bytes of constants and of weights."""
    image = image_of(one)
    done, outputs = on_machine(Machine(image), one)
    if not np.array_equal(outputs, one.expected[0]):
        raise RuntimeError(f"{name}: outputs differ from the integer simulation")
    n_constants, arena = (image.symbol(f"{one.name}_{what}").n_bytes for what in ("constants", "arena"))
    ratio = f"{done.n_instructions / reference:5.2f}" if reference else "    -"
    print(
        f"{name:<20} {done.n_instructions:12,d}  {ratio}  {image.sizes.text_bytes:6d}  {n_constants:9d}  "
        f"{arena:6d}  {done.stack_bytes:5d}"
    )
    return done.n_instructions, n_constants, constants(one.quantized.graph).weights


class Last(nn.Module):
    """A recurrent layer alone."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.LSTM(32, 32, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return all states."""
        return self.a(x)[0]


LAYERS = {
    "convolution": (lambda: nn.Conv2d(16, 16, 3, padding=1), (16, 16, 16)),
    "wide convolution": (lambda: nn.Conv2d(32, 32, 3, padding=1), (32, 16, 16)),
    "point convolution": (lambda: nn.Conv2d(64, 64, 1), (64, 25, 5)),
    "depthwise": (lambda: nn.Conv2d(16, 16, 3, padding=1, groups=16), (16, 14, 14)),
    "narrow depthwise": (lambda: nn.Conv2d(64, 64, 3, padding=1, groups=64), (64, 25, 5)),
    "matrix": (lambda: nn.Linear(640, 128), (640,)),
    "small matrix": (lambda: nn.Linear(64, 10), (64,)),
    "LSTM": (Last, (16, 32)),
}


def main(n_nets: int = 30) -> None:
    """Print all tables."""
    print("space      nets  values equal   sizes as predicted")
    for space in SPACES:
        equal, n, exact, of = equal_values(space, n_nets)
        print(f"{space:<10} {n_nets:4d}  {equal:6d}/{n:<6d}  {exact}/{of}", flush=True)
    head = "instructions  ratio    code  constants     RAM  stack"
    print(f"\n{'network, Cortex-M4':<20} {head}")
    nets = {"small": (SmallCNN, (1, 1, 28, 28))} | {name: INPUTS[name] for name in ("kws", "ic", "vww")}
    for name, (build, shape) in nets.items():
        for sparsity in (0.0, 0.8):
            torch.manual_seed(0)
            one = bundle(build(), torch.randn(64, *shape[1:]), name, 1, sparsity)
            measured(name + (f" {sparsity:.0%} zeros" if sparsity else ""), one, CMSIS_NN[name])
    print(f"\n{'layer, Cortex-M4':<20} {head}")
    for name, (make, size) in LAYERS.items():
        torch.manual_seed(0)
        taken = []
        for sparsity in (0.0, 0.8):
            torch.manual_seed(0)
            one = bundle(make(), torch.randn(64, *size), "layer", 1, sparsity)
            taken.append(measured(name + (" 80%" if sparsity else ""), one))
        (dense, all_, values), (sparse, less, bits) = taken
        print(
            f"{'':<20} sparse / dense: instructions {sparse / dense:.2f}, weights {bits / values:.3f}, "
            f"constants {less / all_:.2f}"
        )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
