"""Verification of an arm on the front: its promises against the real runtimes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from rich.table import Table
from torch import Tensor

from sparsemod.candidate import Arm
from sparsemod.compress.integer import quantize, run_stored
from sparsemod.compress.quantized_graph import QuantizedGraph
from sparsemod.errors import ConfigError, nearest
from sparsemod.evaluate.build import moved, opened
from sparsemod.evaluate.scoring import stored_integers
from sparsemod.evaluate.shipping import integer_error, tflite_file
from sparsemod.evaluate.task import Task
from sparsemod.export.verification import Finding, Promise, Samples, Verification, verify
from sparsemod.measure.batches import to_memory
from sparsemod.measure.bundle import constants
from sparsemod.measure.latency import latency_seconds
from sparsemod.measure.resources import arena
from sparsemod.measure.targets import CORES, Target
from sparsemod.sparse.experiment import stored_arms
from sparsemod.sparse.setup import Setup
from sparsemod.train.data import Data

__all__ = ["EMULATED", "findings_table", "verify_arms"]

EMULATED = ("cortex-m0+", "cortex-m3", "cortex-m4", "cortex-m7", "cortex-m33")
_BATCH = 256


def verify_arms(
    setup: Setup, arms: str | Sequence[str], n_samples: int | None, core: str | None
) -> dict[str, Verification]:
    """Compare what is promised of arms with the real runtimes; see `Sparse.verify`."""
    if n_samples is not None and n_samples < 1:
        raise ConfigError(f"n_samples: expected 1 or more, got {n_samples}")
    emulated = _core(setup.task.target, core)
    return {
        arm.name: _verified(setup.task, arm, weights, n_samples, emulated)
        for arm, weights in stored_arms(setup, arms)
    }


def _verified(task: Task, arm: Arm, weights: bytes, n_samples: int | None, core: str) -> Verification:
    quantized = stored_integers(task, arm.candidate, weights, arm.seed)
    data = opened(task, "validation", arm.candidate.parametrization)
    samples = _samples(quantized, data, n_samples)
    evaluation = arm.evaluation
    reported = None if evaluation is None else evaluation.integer_error
    if reported is None and n_samples is None:
        reported = integer_error(task, quantized, data, arm.seed)
    known = None if evaluation is None or evaluation.resources is None else evaluation.resources
    if reported is None or len(samples.labels) < data.n_samples:  # only a part of the set is run
        scores = samples.expected[0].reshape(len(samples.labels), -1)
        reported = 1.0 - float((scores.argmax(1) == samples.labels).mean())
    target = _target(task, core)
    graph = quantized.graph
    seconds = latency_seconds(graph, target, "c")
    promise = Promise(
        quantized=quantized,
        content=tflite_file(task, quantized),
        error=reported,
        file_bytes=None if known is None else known.file_bytes,
        tflite_arena_bytes=arena(graph, "tflite-micro").n_bytes,
        constant_bytes=constants(graph).n_bytes if known is None else known.model_size_c_bytes,
        arena_bytes=arena(graph, "c").n_bytes
        if known is None or task.runtime != "c"
        else known.working_memory_bytes,
        instructions=seconds * target.clock_hz / target.cycles_per_instruction,
        cycles_per_instruction=target.cycles_per_instruction,
        clock_hz=target.clock_hz,
    )
    return verify(promise, samples, core)


def findings_table(arm: str, found: Verification) -> Table:
    """Return one table: predicted, real, difference, and whether they agree."""
    table = Table(title=f"arm {arm}: promised and real")
    for column, justify in (
        ("runtime", "left"),
        ("figure", "left"),
        ("predicted", "right"),
        ("real", "right"),
        ("difference", "right"),
        ("", "left"),
    ):
        table.add_column(column, justify=justify)  # type: ignore[arg-type]
    runtime = ""
    for finding in found.findings:
        verdict = "" if finding.predicted is None else "ok" if finding.agrees else "DIFFERS"
        shown = "" if finding.runtime == runtime else finding.runtime
        runtime = finding.runtime
        values = (finding.predicted, finding.real, finding.difference)
        table.add_row(shown, finding.figure, *(_text(finding, v) for v in values), verdict)
    return table


def _text(finding: Finding, value: float | None) -> str:
    if value is None:
        return ""
    if finding.figure == "accuracy":
        return f"{value if abs(value) >= 5e-5 else 0.0:.4f}"
    if finding.unit == "ms":
        return f"{value:,.3f} ms"
    unit = " B" if finding.unit == "bytes" else ""
    return f"{value:,.0f}{unit}"


def _core(target: Target, core: str | None) -> str:
    if core is None:
        return target.core if target.core in EMULATED else "cortex-m4"
    if core not in EMULATED:
        raise ConfigError(f"core: expected {', '.join(EMULATED)}, got '{core}'{nearest(core, EMULATED)}")
    return core


def _target(task: Task, core: str) -> Target:
    """Return the task's target, with another core in its place where that one is not emulated."""
    if task.target.core == core:
        return task.target
    return replace(task.target, core=core, cycles_per_instruction=CORES[core])


def _samples(quantized: QuantizedGraph, data: Data, n_samples: int | None) -> Samples:
    graph = quantized.graph
    stored: list[list[Tensor]] = [[] for _ in graph.inputs]
    labels: list[Tensor] = []
    n = 0
    for x, y in data.batches(_BATCH):
        real = to_memory(graph, moved(x, "cpu"))
        for parts, values, i in zip(stored, real, graph.inputs, strict=True):
            parts.append(quantize(values, quantized.grid(i)))
        labels.append(y.cpu())
        n += len(y)
        if n_samples is not None and n >= n_samples:
            break
    inputs = [torch.cat(parts)[:n_samples] for parts in stored]
    expected = run_stored(quantized, inputs)
    return Samples(
        tuple(x.numpy() for x in inputs),
        tuple(x.numpy() for x in expected),
        torch.cat(labels)[:n_samples].numpy().astype(np.int64),
    )
