"""Comparison of a written file with the real interpreter: outputs, RAM and size.

    comparison = compare(quantized, content, inputs)
    comparison.agrees

Needs the package `tflite-micro` from PyPI (extra ``verify``), which runs the interpreter with its reference
kernels on this computer.
"""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparsemod.compress.integer import quantize, run_stored
from sparsemod.compress.quantized_graph import QuantizedGraph
from sparsemod.errors import ConfigError, UnsupportedOperatorError
from sparsemod.measure.batches import to_memory
from sparsemod.measure.resources import arena

__all__ = ["Comparison", "Run", "can_compare", "compare", "run_interpreter"]

_RUNNER = Path(__file__).with_name("runner.py")
_ALLOCATION = re.compile(r"Arena allocation (head|tail) (\d+) bytes")
_TAIL_BYTES = 2**20  # far more than the interpreter's own structures take on this computer


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """What the interpreter did with a file.

    Attributes:
        outputs: For each output (samples, *shape) stored integers.
        head_bytes: Arena of the activations.
        tail_bytes: Arena of the interpreter's structures, with this computer's pointers.
    """

    outputs: tuple[NDArray[np.int8], ...]
    head_bytes: int
    tail_bytes: int


@dataclass(frozen=True, slots=True)
class Comparison:
    """What was predicted, and what the real interpreter says.

    Attributes:
        n_samples: Samples that were run.
        n_values: Output values that were compared.
        n_equal: Those that are equal.
        largest_difference: In steps of the output's grid.
        n_same_class: Samples whose largest output is the same.
        arena_bytes: Arena of the activations in the interpreter.
        predicted_arena_bytes: The same by the planner of `sparsemod.measure`.
        tail_bytes: Arena of the interpreter's structures on this computer.
        file_bytes: Size of the file.
    """

    n_samples: int
    n_values: int
    n_equal: int
    largest_difference: int
    n_same_class: int
    arena_bytes: int
    predicted_arena_bytes: int
    tail_bytes: int
    file_bytes: int

    @property
    def equal_share(self) -> float:
        """Share of output values that are equal."""
        return self.n_equal / self.n_values

    @property
    def agrees(self) -> bool:
        """Whether every output value and the arena are as predicted."""
        return self.n_equal == self.n_values and self.arena_bytes == self.predicted_arena_bytes


def can_compare() -> bool:
    """Say whether the interpreter is installed."""
    return importlib.util.find_spec("tflite_micro") is not None


def compare(quantized: QuantizedGraph, content: bytes, inputs: Any) -> Comparison:
    """Run a file in the interpreter and compare it with the integer simulation and the planned arena.

    Args:
        quantized: What was written.
        content: The file.
        inputs: What the network takes, of any batch size.

    Raises:
        ConfigError: The interpreter is not installed.
        UnsupportedOperatorError: The interpreter refused the file.
    """
    graph = quantized.graph
    real = to_memory(graph, inputs)
    stored = [quantize(x, quantized.grid(i)) for i, x in zip(graph.inputs, real, strict=True)]
    expected = [x.numpy() for x in run_stored(quantized, stored)]
    predicted = arena(graph, "tflite-micro").n_bytes
    done = run_interpreter(quantized, content, [x.numpy() for x in stored], predicted)
    differences = [
        np.abs(a.astype(np.int32) - b.astype(np.int32)).reshape(len(a), -1)
        for a, b in zip(done.outputs, expected, strict=True)
    ]
    first = (x[0].reshape(len(x[0]), -1).argmax(1) for x in (done.outputs, expected))
    return Comparison(
        n_samples=len(stored[0]),
        n_values=sum(d.size for d in differences),
        n_equal=sum(int((d == 0).sum()) for d in differences),
        largest_difference=max(int(d.max()) for d in differences),
        n_same_class=int(np.equal(*first).sum()),
        arena_bytes=done.head_bytes,
        predicted_arena_bytes=predicted,
        tail_bytes=done.tail_bytes,
        file_bytes=len(content),
    )


def run_interpreter(
    quantized: QuantizedGraph, content: bytes, inputs: Sequence[NDArray[np.int8]], head_bytes: int
) -> Run:
    """Run a file in the interpreter, in a process of its own.

    Args:
        quantized: What was written.
        content: The file.
        inputs: (samples, *shape) stored integers of each input.
        head_bytes: What the activations are expected to need; there is room for twice as much.

    Raises:
        ConfigError: The interpreter is not installed.
        UnsupportedOperatorError: The interpreter refused the file.
    """
    if not can_compare():
        raise ConfigError(
            "comparing with the interpreter needs tflite-micro: pip install 'sparsemod[verify]'"
        )
    graph = quantized.graph
    stateful = any(op.kind == "unidirectional_sequence_lstm" for op in graph.operators)
    arena_bytes = 2 * head_bytes + _TAIL_BYTES + 16 * len(content)
    with TemporaryDirectory(prefix="sparsemod") as folder:
        model, given, made = (Path(folder, name) for name in ("model.tflite", "inputs.npz", "outputs.npz"))
        model.write_bytes(content)
        arrays: dict[str, Any] = {str(i): x for i, x in enumerate(inputs)}
        np.savez(given, **arrays)
        arguments = (model, given, made, len(graph.outputs), arena_bytes, int(stateful))
        process = subprocess.run(
            [sys.executable, str(_RUNNER), *map(str, arguments)], capture_output=True, text=True, check=False
        )
        printed = process.stdout + process.stderr
        sizes = {name: int(size) for name, size in _ALLOCATION.findall(printed)}
        if process.returncode != 0 or not made.exists() or not sizes:
            raise UnsupportedOperatorError(f"the interpreter refused the file: {_reason(printed)}")
        with np.load(made) as results:
            outputs = tuple(results[str(i)] for i in range(len(graph.outputs)))
    shaped = zip(outputs, graph.outputs, strict=True)
    return Run(tuple(x.reshape(-1, *graph.tensors[i].shape) for x, i in shaped), sizes["head"], sizes["tail"])


def _reason(printed: str) -> str:
    """Return the interpreter's first line that is not of Python's traceback."""
    lines = [line.strip() for line in printed.splitlines() if line.strip()]
    own = [line for line in lines if not line.startswith(("Traceback", "File", "[Recording"))]
    return " / ".join(own[:2]) if own else "it said nothing"
