"""Compares what is promised of exported networks with the real TensorFlow Lite Micro interpreter.

    python benchmarks/export_truth.py [NETS] [SAMPLES]

For random networks of four spaces: whether the planned arena is the interpreter's to the byte, how many
output values of the integer simulation are the interpreter's, and the size of the files. Then the files of a
small CNN, a Conv1d network and recurrent ones, and of the architectures of MLPerf Tiny beside the reference
models of that suite (github.com/mlcommons/tiny, trained_models), which TensorFlow's converter wrote.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "measure"))
sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "export"))

from mlperf_nets import INPUTS
from random_nets import SPACES, SmallCNN, random_net

from sparsemod.compress.graph_quantization import quantize_graph
from sparsemod.export.tflite import write_tflite
from sparsemod.export.verify import Comparison, compare
from sparsemod.measure.operators import lower
from sparsemod.measure.sizes import weight_bytes

REFERENCE = {  # file bytes and arena bytes of the reference models
    "kws": (53936, 16000),
    "ic": (98496, 49152),
    "vww": (333288, 73728),
    "ad": (276976, 768),
    "sww": (74520, 6656),
}


def export(net: nn.Module, samples: torch.Tensor, n_run: int) -> tuple[Comparison, int]:
    graph = lower(net, samples[:1])
    quantized = quantize_graph(graph, [samples])
    content = write_tflite(quantized)
    stored = sum(weight_bytes(weight) for weight in graph.weights())
    return compare(quantized, content, samples[:n_run]), stored


class Recurrent(nn.Module):
    """A recurrent layer and a dense one."""

    def __init__(self, kind: type[nn.LSTM | nn.GRU]) -> None:
        super().__init__()
        self.a, self.b = kind(6, 24, batch_first=True), nn.Linear(24, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the scores of the last state."""
        return self.b(self.a(x)[0][:, -1])


def main(n_nets: int = 30, n_samples: int = 24) -> None:
    print(f"{'space':<10} nets  arena equal  values equal  most steps  arena bytes   file bytes   seconds")
    for space in SPACES:
        start = time.perf_counter()
        done = [export(*random_net(space, seed, 256), n_samples)[0] for seed in range(n_nets)]
        arenas, files = ([getattr(c, name) for c in done] for name in ("arena_bytes", "file_bytes"))
        print(
            f"{space:<10} {n_nets:4d}  {sum(c.arena_bytes == c.predicted_arena_bytes for c in done):11d}  "
            f"{sum(c.n_equal for c in done):5d}/{sum(c.n_values for c in done):<6d}  "
            f"{max(c.largest_difference for c in done):10d}  {min(arenas):5d}-{max(arenas):<6d} "
            f"{min(files):5d}-{max(files):<6d} {time.perf_counter() - start:7.1f}"
        )
    signals = nn.Sequential(
        nn.Conv1d(6, 16, 5, padding=2), nn.BatchNorm1d(16), nn.ReLU(), nn.MaxPool1d(2),
        nn.Conv1d(16, 24, 3, padding=1), nn.BatchNorm1d(24), nn.ReLU(), nn.AdaptiveAvgPool1d(1),
        nn.Flatten(), nn.Linear(24, 5),
    )  # fmt: skip
    nets = {
        "small CNN": (SmallCNN(), (1, 28, 28)),
        "Conv1d": (signals, (6, 128)),
        "LSTM": (Recurrent(nn.LSTM), (50, 6)),
        "GRU": (Recurrent(nn.GRU), (50, 6)),
    }
    print(f"\n{'network':<10} parameters  weights  file bytes  arena bytes  agrees")
    for name, (net, shape) in nets.items():
        comparison, stored = export(net.eval(), torch.randn(256, *shape), n_samples)
        n = sum(p.numel() for p in net.parameters())
        print(
            f"{name:<10} {n:10d}  {stored:7d}  {comparison.file_bytes:10d}  {comparison.arena_bytes:11d}"
            f"  {comparison.agrees}"
        )

    print(f"\n{'MLPerf':<10} file bytes  reference's  arena bytes  reference's  agrees")
    for name, (build, shape) in INPUTS.items():
        comparison, _ = export(build().eval(), torch.randn(64, *shape[1:]), 4)
        file_bytes, arena_bytes = REFERENCE[name]
        print(
            f"{name:<10} {comparison.file_bytes:10d}  {file_bytes:11d}  {comparison.arena_bytes:11d}  "
            f"{arena_bytes:11d}  {comparison.agrees}"
        )


if __name__ == "__main__":
    torch.manual_seed(0)
    main(*map(int, sys.argv[1:]))
