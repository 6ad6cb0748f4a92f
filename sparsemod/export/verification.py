"""What was promised of a network beside what its exported files show on the real runtimes.

    found = verify(promise, samples, core="cortex-m4")
    found.agrees, found.findings, found.skipped

The `.tflite` file runs in TensorFlow Lite Micro, the C bundle on this computer and on an emulated Cortex-M.
What cannot run here, for want of a tool, is skipped and said.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparsemod.compress.quantized_graph import QuantizedGraph
from sparsemod.errors import CandidateError
from sparsemod.export import emulation, host
from sparsemod.export.c_bundle import write_c
from sparsemod.export.toolchain import build
from sparsemod.export.verify import can_compare, run_interpreter

__all__ = ["Finding", "Promise", "Samples", "Verification", "verify"]

ACCURACY = 0.001
INSTRUCTIONS = 0.3
N_EMULATED = 3
_NAME = "model"
_CORES = {"cortex-m0+": "cortex-m0plus"}


@dataclass(frozen=True, slots=True)
class Finding:
    """A figure, as it was promised and as it is.

    Attributes:
        runtime: Where it was found.
        figure: What it is.
        unit: Of both values.
        predicted: What was promised; None where nothing was.
        real: What the runtime shows.
        tolerance: Largest difference that agrees; 0 for what has to be equal.
        relative: Whether the tolerance is a share of the real value.
    """

    runtime: str
    figure: str
    unit: str
    predicted: float | None
    real: float
    tolerance: float = 0.0
    relative: bool = False

    @property
    def difference(self) -> float | None:
        """What was promised less what is real."""
        return None if self.predicted is None else self.predicted - self.real

    @property
    def agrees(self) -> bool:
        """Whether the difference is within the tolerance; what nothing was promised of agrees."""
        if self.predicted is None:
            return True
        allowed = self.tolerance * abs(self.real) if self.relative else self.tolerance
        return abs(self.predicted - self.real) <= allowed + 1e-12


@dataclass(frozen=True, slots=True)
class Verification:
    """All findings, and what could not be looked at."""

    findings: tuple[Finding, ...]
    skipped: tuple[str, ...] = ()

    @property
    def agrees(self) -> bool:
        """Whether every finding does."""
        return all(finding.agrees for finding in self.findings)

    def as_dict(self) -> dict[str, Any]:
        """Return everything as plain JSON values."""
        findings = [{**asdict(f), "difference": f.difference, "agrees": f.agrees} for f in self.findings]
        return {"agrees": self.agrees, "findings": findings, "skipped": list(self.skipped)}


@dataclass(frozen=True, slots=True, eq=False)
class Promise:
    """What is promised of a network.

    Attributes:
        quantized: The network.
        content: Its `.tflite` file.
        error: 1 - accuracy on the samples.
        file_bytes: Size of the file.
        tflite_arena_bytes: Working memory under the interpreter on this computer.
        constant_bytes: Flash of the constants of the bundle.
        arena_bytes: Working memory of the bundle.
        instructions: Of one inference of the bundle on the core that is emulated.
        cycles_per_instruction: Of that core.
        clock_hz: Of that core.
    """

    quantized: QuantizedGraph
    content: bytes
    error: float
    file_bytes: int | None
    tflite_arena_bytes: int
    constant_bytes: int
    arena_bytes: int
    instructions: float
    cycles_per_instruction: float
    clock_hz: float


@dataclass(frozen=True, slots=True, eq=False)
class Samples:
    """What is run.

    Attributes:
        inputs: (samples, *shape) stored integers of each input.
        expected: (samples, *shape) stored integers of each output, by the integer simulation.
        labels: (samples,) class indices.
    """

    inputs: tuple[NDArray[np.int8], ...]
    expected: tuple[NDArray[np.int8], ...]
    labels: NDArray[np.int64]

    @property
    def rows(self) -> NDArray[np.int8]:
        """(samples, bytes): all inputs in a row."""
        return _rows(self.inputs)

    @property
    def expected_rows(self) -> NDArray[np.int8]:
        """(samples, bytes): all outputs in a row."""
        return _rows(self.expected)


def verify(promise: Promise, samples: Samples, core: str) -> Verification:
    """Run a network on every runtime that is here.

    Args:
        promise: What is expected.
        samples: What is run; the emulated core runs the first three.
        core: Of the catalogue of targets: ``cortex-m0+``, ``cortex-m3``, ``cortex-m4``, ``cortex-m7`` or
            ``cortex-m33``.

    Raises:
        UnsupportedOperatorError: The interpreter refused the file, or the bundle has no kernel for it.
        CandidateError: A compiler refused the bundle, or its program failed.
    """
    files = write_c(promise.quantized, _NAME)
    lacking = () if can_compare() else ("tflite-micro is not installed: pip install 'sparsemod[verify]'",)
    parts: tuple[tuple[str, tuple[str, ...], Callable[[], list[Finding]]], ...] = (
        ("tflite-micro", lacking, lambda: _interpreted(promise, samples)),
        ("C on this computer", host.missing(), lambda: _on_host(promise, samples, files)),
        (f"C on {core}", emulation.missing(), lambda: _emulated(promise, samples, files, core)),
    )
    findings: list[Finding] = []
    skipped: list[str] = []
    for name, missing, look in parts:
        if missing:
            skipped.append(f"{name}: {'; '.join(missing)}")
        else:
            findings += look()
    return Verification(tuple(findings), tuple(skipped))


def _interpreted(promise: Promise, samples: Samples) -> list[Finding]:
    name = "tflite-micro"
    ran = run_interpreter(promise.quantized, promise.content, samples.inputs, promise.tflite_arena_bytes)
    findings = _compared(name, promise, samples, _rows(ran.outputs), ran.outputs[0])
    findings.append(Finding(name, "arena", "bytes", promise.tflite_arena_bytes, ran.head_bytes))
    findings.append(Finding(name, "file", "bytes", promise.file_bytes, len(promise.content)))
    return findings


def _on_host(promise: Promise, samples: Samples, files: Mapping[str, str]) -> list[Finding]:
    name, n_bytes = "C on this computer", samples.expected_rows.shape[1]
    ran = host.run_on_host(files, _NAME, samples.rows, n_bytes)
    findings = _compared(name, promise, samples, ran.outputs, ran.outputs[:, : samples.expected[0][0].size])
    if ran.arena_bytes:
        findings.append(Finding(name, "constants", "bytes", promise.constant_bytes, ran.constant_bytes))
        findings.append(Finding(name, "arena", "bytes", promise.arena_bytes, ran.arena_bytes))
    return findings


def _emulated(promise: Promise, samples: Samples, files: Mapping[str, str], core: str) -> list[Finding]:
    name, rows, expected = f"C on {core}", samples.rows, samples.expected_rows
    sources = {file: text for file, text in files.items() if file.endswith((".c", ".h")) and file != "main.c"}
    sources["ends.c"] = _ends(promise.quantized, rows.shape[1], expected.shape[1])
    keep = ["fed", "made", "feed", "take", f"{_NAME}_run"]
    image = build(sources, _CORES.get(core, core), keep=keep)
    machine = emulation.Machine(image)
    counts, stacks, made = [], [], []
    for row in rows[:N_EMULATED]:
        machine.call("feed", writes={"fed": row.tobytes()})
        done = machine.call(f"{_NAME}_run")
        counts.append(done.n_instructions)
        stacks.append(done.stack_bytes)
        taken = machine.call("take", reads={"made": expected.shape[1]})
        made.append(np.frombuffer(taken.outputs["made"], np.int8))
    instructions = float(np.mean(counts))
    seconds = promise.cycles_per_instruction / promise.clock_hz * 1000
    constants, arena = (image.symbols.get(f"{_NAME}_{what}") for what in ("constants", "arena"))
    rest = image.sizes.rodata_bytes - (constants.n_bytes if constants else 0)
    return [
        _equal(name, np.stack(made), expected[:N_EMULATED]),
        Finding(name, "constants", "bytes", promise.constant_bytes, constants.n_bytes if constants else 0),
        Finding(name, "arena", "bytes", promise.arena_bytes, arena.n_bytes if arena else 0),
        Finding(name, "code", "bytes", None, image.sizes.text_bytes + rest),
        Finding(name, "stack", "bytes", None, max(stacks)),
        Finding(name, "instructions", "", promise.instructions, instructions, INSTRUCTIONS, relative=True),
        Finding(
            name, "latency", "ms", promise.instructions * seconds, instructions * seconds, INSTRUCTIONS, True
        ),
    ]


def _compared(
    name: str, promise: Promise, samples: Samples, rows: NDArray[np.int8], scores: NDArray[np.int8]
) -> list[Finding]:
    classes = scores.reshape(len(scores), -1).argmax(1)
    accuracy = float((classes == samples.labels).mean())
    return [
        _equal(name, rows, samples.expected_rows),
        Finding(name, "accuracy", "", 1.0 - promise.error, accuracy, ACCURACY),
    ]


def _equal(name: str, rows: NDArray[np.int8], expected: NDArray[np.int8]) -> Finding:
    """Return how many output values are as they were computed in advance."""
    if rows.shape != expected.shape:
        raise CandidateError(f"{name}: expected outputs of shape {expected.shape}, got {rows.shape}")
    return Finding(name, "equal outputs", "values", expected.size, int((rows == expected).sum()))


def _rows(values: tuple[NDArray[np.int8], ...]) -> NDArray[np.int8]:
    return np.concatenate([x.reshape(len(x), -1) for x in values], 1)


def _ends(quantized: QuantizedGraph, n_in: int, n_out: int) -> str:
    """Return C functions that copy the inputs into the arena and the outputs out of it."""
    graph = quantized.graph
    text = f'#include <string.h>\n#include "{_NAME}.h"\nint8_t fed[{n_in}], made[{n_out}];\n'
    for function, what, ids in (("feed", "input", graph.inputs), ("take", "output", graph.outputs)):
        text += f"void {function}(void);\nvoid {function}(void) {{\n    int8_t *p = "
        text += "fed;\n" if what == "input" else "made;\n"
        for k, i in enumerate(ids):
            port = f"{_NAME}_{what}{'' if len(ids) == 1 else f'_{k}'}()"
            n = graph.tensors[i].n_bytes
            text += f"    memcpy({f'{port}, p' if what == 'input' else f'p, {port}'}, {n});\n    p += {n};\n"
        text += "}\n"
    return text
