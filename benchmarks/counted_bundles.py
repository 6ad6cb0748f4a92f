"""Instructions of whole C bundles on emulated cores, and networks of single operators to count."""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "export"))

from random_nets import SPACES, random_net

from sparsemod.compress.graph_quantization import quantize_graph
from sparsemod.compress.masks import apply_masks, magnitude_masks, prunable_parameters
from sparsemod.export.c_bundle import write_c
from sparsemod.export.emulation import Machine
from sparsemod.export.toolchain import build
from sparsemod.measure.graph import OperatorGraph
from sparsemod.measure.operators import lower

__all__ = ["CORES", "KINDS", "count", "pruned", "random_network", "single"]

CORES = {"cortex-m0+": "cortex-m0plus", "cortex-m3": "cortex-m3", "cortex-m4": "cortex-m4"}
"""The compiler's names of the cores that are counted."""

Network = tuple[nn.Module, torch.Tensor]


def count(net: nn.Module, samples: torch.Tensor) -> tuple[OperatorGraph, dict[str, int]]:
    """Return the lowered graph, and the instructions of `model_run`, compiled with -O2, on each core."""
    graph = lower(net, samples[:1])
    quantized = quantize_graph(graph, [samples])
    files = {k: v for k, v in write_c(quantized).items() if k.endswith((".c", ".h")) and k != "main.c"}
    files["input.c"] = (
        '#include "model.h"\n#include <string.h>\nint8_t given[MODEL_INPUT_BYTES];\n'
        "void load(void) { memcpy(model_input(), given, MODEL_INPUT_BYTES); }\n"
    )
    (tensor,) = graph.inputs
    n_bytes = graph.tensors[tensor].n_bytes
    given = np.random.default_rng(0).integers(-128, 128, n_bytes).astype(np.int8).tobytes()
    counts = {}
    for core, name in CORES.items():
        machine = Machine(build(files, name, keep=["given", "load", "model_run"], optimize="-O2"))
        machine.call("load", writes={"given": given})
        counts[core] = machine.call("model_run").n_instructions
    return graph, counts


def pruned(net: nn.Module, sparsity: float) -> nn.Module:
    """Prune a network by magnitude, all weights together."""
    if sparsity:
        apply_masks(net, magnitude_masks(prunable_parameters(net), sparsity))
    return net


def random_network(space: int, seed: int, sparsity: float) -> Network:
    """Return a random network of one of the four kinds of `tests/export/random_nets.py`."""
    net, samples = random_net(list(SPACES)[space % len(SPACES)], seed)
    return pruned(net, sparsity), samples


class Function(nn.Module):
    """A network that is one function."""

    def __init__(self, function: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x)


class Last(nn.Module):
    """A recurrent layer, all of whose states are read, or the last one."""

    def __init__(self, layer: nn.Module, last: bool) -> None:
        super().__init__()
        self.layer, self.last = layer, last

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.layer(x)[0]
        return y[:, -1] if self.last else y


def _sizes(rng: np.random.Generator, n: int, low: int, high: int) -> list[int]:
    return [int(i) for i in rng.integers(low, high, n)]


def _convolution(rng: np.random.Generator) -> Network:
    height, width = _sizes(rng, 2, 5, 15)
    line = rng.random() < 0.3
    if line:
        height, width = 1, int(rng.integers(16, 80))
    groups = int(rng.choice([1, 1, 1, 1, 2]))
    layers, channels = [], groups * int(rng.integers(1, 13))
    shape = (channels, height, width)
    for _ in range(int(rng.integers(1, 4))):
        k, stride, dilation = (
            int(rng.choice([1, 3, 3, 5])),
            int(rng.choice([1, 1, 2])),
            int(rng.choice([1, 1, 2])),
        )
        kernel = (1, k) if line else (k, k)
        reach = [(n - 1) * dilation for n in kernel]
        padding = [n // 2 for n in reach] if rng.random() < 0.7 or min(height, width) < 8 else [0, 0]
        if any(n + 2 * p <= r + 1 for n, p, r in zip((height, width), padding, reach, strict=True)):
            padding = [n // 2 for n in reach]
        following = groups * int(rng.integers(1, 21))
        steps = (1, stride) if line else stride
        layers.append(nn.Conv2d(channels, following, kernel, steps, tuple(padding), dilation, groups))
        layers.append(nn.ReLU())
        channels = following
    return nn.Sequential(*layers), torch.randn(16, *shape)


def _depthwise(rng: np.random.Generator) -> Network:
    height, width = _sizes(rng, 2, 5, 16)
    channels = int(rng.integers(1, 25))
    layers = []
    shape = (channels, height, width)
    for _ in range(int(rng.integers(1, 3))):
        k, stride, multiple = (
            int(rng.choice([3, 3, 5])),
            int(rng.choice([1, 1, 2])),
            int(rng.choice([1, 1, 1, 2])),
        )
        layers += [nn.Conv2d(channels, channels * multiple, k, stride, k // 2, groups=channels), nn.ReLU()]
        channels *= multiple
    return nn.Sequential(*layers), torch.randn(16, *shape)


def _dense(rng: np.random.Generator) -> Network:
    sizes = _sizes(rng, int(rng.integers(2, 4)), 3, 150)
    shape = (sizes[0],) if rng.random() < 0.7 else (int(rng.integers(2, 10)), sizes[0])
    layers = [nn.Linear(a, b) for a, b in pairwise(sizes)]
    return nn.Sequential(*layers), torch.randn(16, *shape)


def _recurrent(kind: str) -> Callable[[np.random.Generator], Network]:
    def make(rng: np.random.Generator) -> Network:
        steps, features, size = _sizes(rng, 3, 3, 26)
        layer = getattr(nn, kind)(features, size, int(rng.integers(1, 3)), batch_first=True)
        return Last(layer, bool(rng.random() < 0.6)), torch.randn(16, steps, features)

    return make


def _elements(*functions: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[np.random.Generator], Network]:
    def make(rng: np.random.Generator) -> Network:
        height, width, channels = _sizes(rng, 3, 4, 17)
        function = functions[int(rng.integers(len(functions)))]
        return Function(function), torch.randn(16, channels, height, width)

    return make


def _log_softmax(rng: np.random.Generator) -> Network:
    """Return one over few classes or many, as nothing else tells what a row takes from what a class does."""
    n = int(2 * 50 ** rng.random())
    return Function(lambda x: x.log_softmax(1)), 3 * torch.randn(64, n)


def _max_pool(x: torch.Tensor) -> torch.Tensor:
    return F.max_pool2d(x, 2)


KINDS: dict[str, tuple[int, bool, Callable[[np.random.Generator], Network]]] = {
    # how many dense ones, whether as many pruned ones, and how one is made
    "conv_2d": (40, True, _convolution),
    "depthwise_conv_2d": (24, True, _depthwise),
    "fully_connected": (20, True, _dense),
    "lstm": (10, True, _recurrent("LSTM")),
    "gru": (8, True, _recurrent("GRU")),
    "rnn": (4, False, _recurrent("RNN")),
    "max_pool_2d": (8, False, _elements(_max_pool, lambda x: F.max_pool2d(x, 3, 2, 1))),
    "average_pool_2d": (
        8,
        False,
        _elements(lambda x: F.avg_pool2d(x, 2), lambda x: F.avg_pool2d(x, 3), lambda x: F.avg_pool2d(x, 4)),
    ),
    "add": (6, False, _elements(lambda x: x + x.relu(), lambda x: x - x.sigmoid())),
    "mul": (6, False, _elements(lambda x: x * x.sigmoid(), lambda x: x * x.mean((2, 3), keepdim=True))),
    "maximum": (4, False, _elements(lambda x: torch.maximum(x, x.relu()))),
    "table": (5, False, _elements(torch.sigmoid, torch.tanh, F.hardswish)),
    "mean": (8, False, _elements(lambda x: x.mean((2, 3)), lambda x: x.mean(1), lambda x: x.sum(2))),
    "reduce_max": (6, False, _elements(lambda x: x.amax((2, 3)), lambda x: x.amax(1))),
    "softmax": (6, False, _elements(lambda x: x.flatten(1)[:, :50].softmax(1), lambda x: x.softmax(3))),
    "log_softmax": (9, False, _log_softmax),
    "pad": (4, False, _elements(lambda x: F.pad(x, (1, 2, 3, 1)))),
    "concatenation": (5, False, _elements(lambda x: torch.cat([x, x.relu()], 1))),
    "transpose": (
        5,
        False,
        _elements(lambda x: x.transpose(2, 3).contiguous(), lambda x: x.flatten(2).mT.contiguous()),
    ),
    "strided_slice": (4, False, _elements(lambda x: x[:, :, 1:3], lambda x: x[:, :3])),
    "resize": (4, False, _elements(lambda x: F.interpolate(x, scale_factor=2))),
}


def single(kind: str, number: int, sparsity: float) -> Network:
    """Return a network of one kind of operator, a few of them where they can follow one another.

    Of some convolutions the window is larger than what there is: such a network cannot run.
    """
    rng = np.random.default_rng([number, list(KINDS).index(kind), int(100 * sparsity)])
    with torch.random.fork_rng():
        torch.manual_seed(number)
        net, samples = KINDS[kind][2](rng)
    return pruned(net.eval(), sparsity), samples
