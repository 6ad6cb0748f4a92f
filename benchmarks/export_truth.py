"""Compares what is promised of exported networks with the real TensorFlow Lite Micro interpreter.

    python benchmarks/export_truth.py [NETS] [SAMPLES]

For random networks of four spaces: whether the planned arena is the interpreter's to the byte, how many
output values of the integer simulation are the interpreter's, in how many samples the class is (so how far a
reported accuracy is off), the size of the files, and the longest time from a trained network to its file.
Then the files of a small CNN, a Conv1d network and recurrent ones beside what converters from PyTorch made of
them, and of the architectures of MLPerf Tiny beside the reference models of that suite
(github.com/mlcommons/tiny, trained_models), which TensorFlow's converter wrote. Last, where onnx and
onnxruntime are installed, how many output values of the ONNX files are PyTorch's and the simulation's.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "measure"))
sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "export"))

from mlperf_nets import INPUTS
from random_nets import SPACES, SmallCNN, random_net

from sparsemod.compress.graph_quantization import quantize_graph
from sparsemod.compress.integer import run_integer
from sparsemod.export.onnx_file import write_onnx, write_onnx_qdq
from sparsemod.export.tflite import write_tflite
from sparsemod.export.verify import Comparison, compare
from sparsemod.measure.operators import lower
from sparsemod.measure.sizes import weight_bytes

CONVERTED = {"small CNN": (13.9, 0.85), "Conv1d": (8.6, 0.85), "LSTM": (99.0, 0.15)}
"""kB by the route through litert-torch, and the share of it that is wanted at most."""

REFERENCE = {  # file bytes and arena bytes of the reference models
    "kws": (53936, 16000),
    "ic": (98496, 49152),
    "vww": (333288, 73728),
    "ad": (276976, 768),
    "sww": (74520, 6656),
}


@dataclass(frozen=True)
class Exported:
    """A file, compared; bytes of its weights; seconds from the trained network to it."""

    comparison: Comparison
    stored: int
    seconds: float


def export(net: nn.Module, samples: torch.Tensor, n_run: int) -> Exported:
    start = time.perf_counter()
    graph = lower(net, samples[:1])
    quantized = quantize_graph(graph, [samples])
    content = write_tflite(quantized)
    seconds = time.perf_counter() - start
    stored = sum(weight_bytes(weight) for weight in graph.weights())
    return Exported(compare(quantized, content, samples[:n_run]), stored, seconds)


def onnx_truth(space: str, n_nets: int, n_samples: int) -> str:
    """Return a line: largest error of the float files, share and steps of the int8 ones."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 3, 1

    def run(content: bytes, samples: torch.Tensor) -> torch.Tensor:
        session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        rows = (session.run(None, {"input_0": x[None].numpy()})[0] for x in samples)
        return torch.cat([torch.from_numpy(row) for row in rows])

    worst, steps = 0.0, []
    for seed in range(n_nets):
        net, samples = random_net(space, seed, 256)
        few = samples[:n_samples]
        with torch.no_grad():
            off = run(write_onnx(lower(net, samples[:1], scheme="none")), few) - net(few)
        worst = max(worst, float(off.abs().max()))
        quantized = quantize_graph(lower(net, samples[:1]), [samples])
        scale = quantized.grid(quantized.graph.outputs[0]).scale
        off = run(write_onnx_qdq(quantized), few) - run_integer(quantized, few)[0]
        steps.append((off / scale).round().abs().flatten())
    counted = torch.cat(steps)
    equal, n = int((counted == 0).sum()), len(counted)
    return f"{space:<10} {worst:11.1e}  {equal:5d}/{n:<6d} {equal / n:6.4f}  {int(counted.max()):10d}"


def against(name: str, n_bytes: int) -> str:
    if name not in CONVERTED:
        return ""
    kilobytes, wanted = CONVERTED[name]
    return f"  {kilobytes:8.1f} kB  {n_bytes / kilobytes / 1000:5.2f}  <= {wanted}"


class Recurrent(nn.Module):
    """A recurrent layer and a dense one."""

    def __init__(self, kind: type[nn.LSTM | nn.GRU]) -> None:
        super().__init__()
        self.a, self.b = kind(6, 24, batch_first=True), nn.Linear(24, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the scores of the last state."""
        return self.b(self.a(x)[0][:, -1])


def main(n_nets: int = 30, n_samples: int = 24) -> None:
    print(
        f"{'space':<10} nets  arena equal  values equal  most steps  classes equal  accuracy off  "
        f"arena bytes   file bytes   most ms to a file"
    )
    export(*random_net("images", 0, 256), 1)  # what PyTorch does once
    for space in SPACES:
        exported = [export(*random_net(space, seed, 256), n_samples) for seed in range(n_nets)]
        done = [e.comparison for e in exported]
        arenas, files = ([getattr(c, name) for c in done] for name in ("arena_bytes", "file_bytes"))
        same, n = sum(c.n_same_class for c in done), sum(c.n_samples for c in done)
        print(
            f"{space:<10} {n_nets:4d}  {sum(c.arena_bytes == c.predicted_arena_bytes for c in done):11d}  "
            f"{sum(c.n_equal for c in done):5d}/{sum(c.n_values for c in done):<6d}  "
            f"{max(c.largest_difference for c in done):10d}  {same:6d}/{n:<6d}  "
            f"{100 * (1 - same / n):8.3f} pts  "
            f"{min(arenas):5d}-{max(arenas):<6d} {min(files):5d}-{max(files):<6d} "
            f"{1000 * max(e.seconds for e in exported):10.0f}"
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
    print(f"\n{'network':<10} parameters  weights  file bytes  arena bytes  agrees  converter  ratio  wanted")
    for name, (net, shape) in nets.items():
        done_net = export(net.eval(), torch.randn(256, *shape), n_samples)
        comparison, stored = done_net.comparison, done_net.stored
        n = sum(p.numel() for p in net.parameters())
        print(
            f"{name:<10} {n:10d}  {stored:7d}  {comparison.file_bytes:10d}  {comparison.arena_bytes:11d}"
            f"  {comparison.agrees!s:<6}{against(name, comparison.file_bytes)}"
        )

    print(f"\n{'MLPerf':<10} file bytes  reference's  arena bytes  reference's  agrees")
    for name, (build, shape) in INPUTS.items():
        comparison = export(build().eval(), torch.randn(64, *shape[1:]), 4).comparison
        file_bytes, arena_bytes = REFERENCE[name]
        print(
            f"{name:<10} {comparison.file_bytes:10d}  {file_bytes:11d}  {comparison.arena_bytes:11d}  "
            f"{arena_bytes:11d}  {comparison.agrees}"
        )

    if find_spec("onnx") and find_spec("onnxruntime"):
        print(f"\n{'ONNX':<10} float error  equal int8 values   most steps")
        for space in SPACES:
            print(onnx_truth(space, n_nets, n_samples))


if __name__ == "__main__":
    torch.manual_seed(0)
    main(*map(int, sys.argv[1:]))
