"""Time of one inference: instructions of each operator, times cycles an instruction of the core, over the clock."""

from __future__ import annotations

from sparsemod.measure.graph import Operator, OperatorGraph
from sparsemod.measure.targets import Target

__all__ = ["instructions", "latency_seconds"]


def instructions(graph: OperatorGraph, operator: Operator, core: str, library: str) -> float:
    """Return the instructions of one operator."""
    return float(operator.n_macs)


def latency_seconds(graph: OperatorGraph, target: Target, runtime: str) -> float:
    """Return the seconds of one inference."""
    library = "cmsis-nn" if runtime == "tflite-micro" else "c"
    total = sum(instructions(graph, operator, target.core, library) for operator in graph.operators)
    return total * target.cycles_per_instruction / target.clock_hz
