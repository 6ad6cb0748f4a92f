"""The layer table: what each operator of a network costs, small enough to be kept beside its weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from pydantic import Field, TypeAdapter, ValidationError

from sparsemod.errors import StoreError
from sparsemod.measure.bundle import constants, operator_constants
from sparsemod.measure.graph import Operator, OperatorGraph
from sparsemod.measure.latency import LIBRARIES, instructions
from sparsemod.measure.sizes import weight_bytes
from sparsemod.measure.targets import Target

__all__ = ["LayerCost", "dump_layers", "layer_costs", "load_layers"]

Count = Annotated[int, Field(ge=0)]
Shape = tuple[Count, ...]


@dataclass(frozen=True, slots=True)
class LayerCost:
    """What one operator costs; over a network, weights, MACs and seconds add up to its resources.

    Attributes:
        module: Qualified name of the PyTorch module that it comes from.
        kind: The operator, in TensorFlow Lite's words (`sparsemod.measure.graph` lists them).
        activation: What is fused into it, or an empty string.
        input_shapes: Of what it reads, as it lies in memory (NHWC).
        output_shapes: Of what it writes.
        weight_shapes: Of its weights; biases are left out.
        n_macs: Multiply-accumulates of one inference.
        n_parameters: Weights and biases, zeros included.
        n_nonzero: Those that are not zero.
        weight_bytes: Flash under the run's runtime; a shared weight is charged to the first that has it, and
            a last row, ``shared constants``, has what belongs to no operator alone: the table of all LSTMs,
            and what fills the last word.
        output_bytes: RAM of what it writes.
        latency_seconds: Its part of one inference.
    """

    module: str
    kind: str
    activation: str
    input_shapes: tuple[Shape, ...]
    output_shapes: tuple[Shape, ...]
    weight_shapes: tuple[Shape, ...]
    n_macs: Count
    n_parameters: Count
    n_nonzero: Count
    weight_bytes: Count
    output_bytes: Count
    latency_seconds: Annotated[float, Field(ge=0, allow_inf_nan=False)]


_LAYERS: TypeAdapter[tuple[LayerCost, ...]] = TypeAdapter(tuple[LayerCost, ...])


def layer_costs(graph: OperatorGraph, target: Target, runtime: str) -> tuple[LayerCost, ...]:
    """Return what each operator costs, in the order of execution.

    Args:
        graph: From `sparsemod.measure.operators.lower`.
        target: The microcontroller, which decides the time.
        runtime: ``c`` or ``tflite-micro``.
    """
    charged: set[str] = set()
    stored: set[tuple[str, str, bool]] = set()
    rows = [_cost(graph, operator, target, runtime, charged, stored) for operator in graph.operators]
    rest = constants(graph).n_bytes - sum(row.weight_bytes for row in rows) if runtime == "c" else 0
    if rest:
        rows.append(LayerCost("", "shared constants", "", (), (), (), 0, 0, 0, rest, 0, 0.0))
    return tuple(rows)


def dump_layers(layers: tuple[LayerCost, ...]) -> bytes:
    """Return the table as JSON, 0.3 kB an operator."""
    return _LAYERS.dump_json(layers)


def load_layers(content: bytes, where: str) -> tuple[LayerCost, ...]:
    """Read what `dump_layers` returned.

    Args:
        content: The JSON.
        where: Path of the file, for messages.

    Raises:
        StoreError: It is cut short, damaged, or something else.
    """
    try:
        return _LAYERS.validate_json(content, strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        problem = f"{place}: {first['msg']}" if place else first["msg"]
        raise StoreError(f"{where}: is damaged: not a table of layers: {problem}") from error


def _cost(
    graph: OperatorGraph,
    operator: Operator,
    target: Target,
    runtime: str,
    charged: set[str],
    stored: set[tuple[str, str, bool]],
) -> LayerCost:
    own = [w for w in operator.weights if w.name not in charged]
    charged.update(w.name for w in own)
    arrays = [a for w in own for a in (w.values, w.bias) if a is not None]
    cycles = instructions(graph, operator, target.core, LIBRARIES[runtime]) * target.cycles_per_instruction
    activation = operator.attributes.get("activation", "none")
    if runtime == "c":
        part = operator_constants(graph, operator, stored)
        n_bytes = part.weights + part.biases + part.scales + part.tables
    else:
        n_bytes = sum(weight_bytes(w) for w in own)
    return LayerCost(
        module=operator.module,
        kind=operator.kind,
        activation="" if activation == "none" else str(activation),
        input_shapes=tuple(graph.tensors[i].shape for i in operator.inputs),
        output_shapes=tuple(graph.tensors[i].shape for i in operator.outputs),
        weight_shapes=tuple(w.values.shape for w in operator.weights),
        n_macs=int(operator.n_macs),
        n_parameters=sum(int(a.size) for a in arrays),
        n_nonzero=sum(int(np.count_nonzero(a)) for a in arrays),
        weight_bytes=n_bytes,
        output_bytes=sum(graph.tensors[i].n_bytes for i in operator.outputs),
        latency_seconds=float(cycles / target.clock_hz),
    )
