"""Time of one inference: the instructions of its operators, times cycles an instruction, over the clock.

Under ``c`` the bundle's own kernels are counted, loop by loop (`sparsemod.measure.c_work`), each part at what
it takes on the core (`sparsemod.measure.c_costs`): dense layers by their products, outputs and what is
copied, sparse ones by their non-zeros, which are known before the network is quantized. Under
``tflite-micro`` it is CMSIS-NN's kernels (`sparsemod.measure.cmsis`), without the interpreter's own work.

Sources: instructions were counted on emulated cores; cycles an instruction come from published times
(`sparsemod.measure.targets`). `benchmarks/fit_latency.py` fits, `benchmarks/latency_truth.py` compares whole
networks.
"""

from __future__ import annotations

from sparsemod.measure.c_costs import C_COSTS
from sparsemod.measure.c_work import c_work
from sparsemod.measure.cmsis import cmsis_instructions
from sparsemod.measure.graph import Operator, OperatorGraph
from sparsemod.measure.kernels import C_CORES, DSP, FLOAT_MAC
from sparsemod.measure.targets import Target

__all__ = ["LIBRARIES", "instructions", "latency_seconds"]

LIBRARIES = {"tflite-micro": "cmsis-nn", "c": "c"}
"""The kernel library under each runtime."""


def latency_seconds(graph: OperatorGraph, target: Target, runtime: str) -> float:
    """Return the seconds of one inference on a target under ``c`` or ``tflite-micro``."""
    total = sum(
        instructions(graph, operator, target.core, LIBRARIES[runtime]) for operator in graph.operators
    )
    return total * target.cycles_per_instruction / target.clock_hz


def instructions(graph: OperatorGraph, operator: Operator, core: str, library: str) -> float:
    """Return the instructions of one operator.

    Args:
        graph: The list that it stands in.
        operator: Of `sparsemod.measure.operators.lower` or `sparsemod.measure.interpreted.interpreted`.
        core: A key of `sparsemod.measure.targets.CORES`; on ``generic`` a multiply-accumulate is one
            instruction and nothing else counts.
        library: ``cmsis-nn`` or ``c``.
    """
    if core == "generic":
        return float(operator.n_macs)
    if not operator.outputs:
        return 0.0
    if graph.tensors[operator.outputs[0]].dtype == "float32":
        # No kernel here computes in float32: assumed are our loops, one product at a time.
        loops = _bundle(graph, operator, core if core == "cortex-m0+" else "cortex-m3")
        return loops + operator.n_macs * FLOAT_MAC.get(core, 0.0)
    if library == "c":
        return _bundle(graph, operator, core)
    if operator.kind == "while":
        parts = (operator.attributes["condition"], operator.attributes["body"])
        step = sum(instructions(part, inner, core, library) for part in parts for inner in part.operators)
        return step * int(operator.attributes["n_steps"])
    return cmsis_instructions(graph, operator, core)


def _bundle(graph: OperatorGraph, operator: Operator, core: str) -> float:
    costs = C_COSTS[C_CORES[core]]
    work = c_work(graph, operator, dsp=core in DSP)
    return sum(costs.get(name, 0.0) * n for name, n in work.items())
