"""What a network costs on a target under a runtime."""

from __future__ import annotations

from sparsemod.candidate import Resources
from sparsemod.measure import sizes
from sparsemod.measure.bundle import all_operators, constants
from sparsemod.measure.bundle_memory import layout, scratch_bytes
from sparsemod.measure.graph import OperatorGraph
from sparsemod.measure.interpreted import interpreted
from sparsemod.measure.latency import latency_seconds
from sparsemod.measure.memory import Arena, buffers, inputs_outputs_bytes, inputs_weights_bytes, plan_arena
from sparsemod.measure.scratch import scratch_buffers
from sparsemod.measure.tail import tail_bytes
from sparsemod.measure.targets import Target

__all__ = ["arena", "measure", "planned"]


def arena(graph: OperatorGraph, runtime: str, core: str = "generic") -> Arena:
    """Plan the RAM of the activations and of the scratch memory of a core's kernels under a runtime."""
    return layout(graph).arena if runtime == "c" else planned(interpreted(graph), core)


def planned(graph: OperatorGraph, core: str = "generic") -> Arena:
    """Plan the interpreter's arena for an operator list that it executes as it is, which a file's is."""
    scratch = [scratch_buffers(part, operator, core) for part in graph.lists() for operator in part.operators]
    pieces = buffers(graph, scratch=scratch)
    return plan_arena([b.n_bytes for b in pieces], [b.first for b in pieces], [b.last for b in pieces])


def measure(graph: OperatorGraph, target: Target, runtime: str) -> Resources:
    """Return flash, RAM, time and the counts of a lowered network.

    Args:
        graph: From `sparsemod.measure.operators.lower`.
        target: The microcontroller, which decides the time.
        runtime: ``c`` or ``tflite-micro``.
    """
    size_c = constants(graph).n_bytes
    size_tflite = sum(sizes.weight_bytes(weight) for weight in graph.weights())
    values, biases, scales = sizes.tflite_parts(graph)
    scratch, tail = _beside(graph, target.core, runtime)
    return Resources(
        model_size_bytes=size_c if runtime == "c" else size_tflite,
        working_memory_bytes=arena(graph, runtime, target.core).n_bytes,
        latency_seconds=latency_seconds(graph, target, runtime),
        n_parameters=sizes.n_parameters(graph),
        n_nonzero=sizes.n_nonzero(graph),
        n_macs=sum(operator.n_macs for operator in graph.operators),
        model_size_c_bytes=size_c,
        model_size_tflite_bytes=size_tflite,
        working_memory_inputs_weights_bytes=inputs_weights_bytes(graph),
        working_memory_inputs_outputs_bytes=inputs_outputs_bytes(graph),
        tflite_weight_bytes=values,
        tflite_bias_bytes=biases,
        tflite_scale_bytes=scales,
        scratch_bytes=scratch,
        tail_bytes=tail,
    )


def _beside(graph: OperatorGraph, core: str, runtime: str) -> tuple[int, int | None]:
    """Return the scratch memory of the operator with the most, and that of the interpreter's structures."""
    executed = interpreted(graph)
    if runtime == "c":
        return max((scratch_bytes(*part) for part in all_operators(executed)), default=0), None
    scratch = (
        sum(scratch_buffers(part, operator, core)) for part in executed.lists() for operator in part.operators
    )
    return max(scratch, default=0), tail_bytes(executed)
