"""What a `.tflite` file costs on a microcontroller that runs it in TensorFlow Lite Micro."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sparsemod.export.tflite_reader import FileSizes, ReadModel, read_tflite
from sparsemod.measure.graph import ITEM_BYTES, Operator, OperatorGraph
from sparsemod.measure.latency import instructions
from sparsemod.measure.resources import planned
from sparsemod.measure.scratch import scratch_buffers
from sparsemod.measure.sizes import n_nonzero, n_parameters
from sparsemod.measure.tail import tail_bytes
from sparsemod.measure.targets import Target

__all__ = ["Analysis", "OperatorCost", "analyze", "analyze_file"]

_RUNTIME = "tflite-micro"
_LIBRARY = "cmsis-nn"


@dataclass(frozen=True, slots=True)
class OperatorCost:
    """One operator of the network; a loop with all that it does.

    Attributes:
        kind: As in `sparsemod.measure.graph`.
        name: What its output is called in the file.
        output_shape: Of the first output.
        n_macs: Multiply-accumulates.
        weight_bytes: Values and biases that it reads, those that others read, too, included.
        instructions: On the target's core; multiply-accumulates on the generic one.
        n_steps: How often a loop runs, else None.
    """

    kind: str
    name: str
    output_shape: tuple[int, ...]
    n_macs: int
    weight_bytes: int
    instructions: float
    n_steps: int | None = None


@dataclass(frozen=True, slots=True)
class Analysis:
    """The figures of a file.

    Attributes:
        file: Where it is.
        target: The microcontroller.
        sizes: What the bytes of the file are spent on.
        inputs: Shape and dtype of each input.
        outputs: The same of each output.
        n_parameters: Weights and biases.
        n_nonzero: Those that are not zero.
        n_macs: Multiply-accumulates of one inference.
        n_tensors: Tensors of the file, constants included.
        arena_bytes: RAM of the activations with kernels that ask for no memory, as on a computer.
        target_arena_bytes: The same with CMSIS-NN's kernels on the target's core.
        scratch_bytes: The most that one operator's kernel asks for there.
        tail_bytes: RAM of the interpreter's own structures on 32 bits, an estimate.
        instructions: Of one inference on the target's core.
        latency_seconds: Of one inference.
        operators: In the order of execution.
    """

    file: str
    target: Target
    sizes: FileSizes
    inputs: tuple[tuple[tuple[int, ...], str], ...]
    outputs: tuple[tuple[tuple[int, ...], str], ...]
    n_parameters: int
    n_nonzero: int
    n_macs: int
    n_tensors: int
    arena_bytes: int
    target_arena_bytes: int
    scratch_bytes: int
    tail_bytes: int
    instructions: float
    latency_seconds: float
    operators: tuple[OperatorCost, ...]

    @property
    def ram_bytes(self) -> int:
        """The arena that firmware has to set aside."""
        return self.target_arena_bytes + self.tail_bytes

    def kinds(self) -> dict[str, int]:
        """Count the operators of each kind."""
        return dict(Counter(operator.kind for operator in self.operators).most_common())

    def as_dict(self) -> dict[str, Any]:
        """Return the figures as plain JSON values."""
        ends = {
            side: [{"shape": list(shape), "dtype": dtype} for shape, dtype in getattr(self, side)]
            for side in ("inputs", "outputs")
        }
        sizes = {"file_bytes": self.sizes.file_bytes, "tensors_bytes": self.sizes.tensors_bytes}
        return {
            **asdict(self),
            **ends,
            "sizes": sizes | asdict(self.sizes),
            "ram_bytes": self.ram_bytes,
            "kinds": self.kinds(),
            "operators": [{**asdict(op), "output_shape": list(op.output_shape)} for op in self.operators],
        }


def analyze_file(path: Path, target: Target) -> Analysis:
    """Return the figures of a file on a target.

    Raises:
        ModelFileError: There is no such file, it is not a `.tflite` file, damaged, or not int8.
    """
    return analyze(read_tflite(path), target, str(path))


def analyze(read: ReadModel, target: Target, file: str = "") -> Analysis:
    """Return the figures of a network that was read."""
    graph, core = read.graph, target.core
    operators = tuple(_cost(graph, operator, core) for operator in graph.operators)
    total = sum(operator.instructions for operator in operators)
    scratch = [
        sum(scratch_buffers(part, op, core, _LIBRARY)) for part in graph.lists() for op in part.operators
    ]
    return Analysis(
        file=file,
        target=target,
        sizes=read.sizes,
        inputs=_ends(graph, graph.inputs),
        outputs=_ends(graph, graph.outputs),
        n_parameters=n_parameters(graph),
        n_nonzero=n_nonzero(graph),
        n_macs=sum(operator.n_macs for operator in operators),
        n_tensors=read.n_tensors,
        arena_bytes=planned(graph, _RUNTIME).n_bytes,
        target_arena_bytes=planned(graph, _RUNTIME, core).n_bytes,
        scratch_bytes=max(scratch, default=0),
        tail_bytes=tail_bytes(graph, read.n_tensors),
        instructions=total,
        latency_seconds=total * target.cycles_per_instruction / target.clock_hz,
        operators=operators,
    )


def _ends(graph: OperatorGraph, tensors: tuple[int, ...]) -> tuple[tuple[tuple[int, ...], str], ...]:
    return tuple((graph.tensors[i].shape, graph.tensors[i].dtype) for i in tensors)


def _cost(graph: OperatorGraph, operator: Operator, core: str) -> OperatorCost:
    parts = [operator]
    if operator.kind == "while":
        lists = [operator.attributes[part] for part in ("condition", "body")]
        parts = [inner for top in lists for part in top.lists() for inner in part.operators]
    held = {weight.name: weight for part in parts for weight in part.weights}
    stored = sum(
        ITEM_BYTES[weight.dtype] * weight.values.size + 4 * (0 if weight.bias is None else weight.bias.size)
        for weight in held.values()
    )
    shape = (
        graph.tensors[operator.outputs[-1 if operator.kind == "while" else 0]].shape
        if operator.outputs
        else ()
    )
    return OperatorCost(
        operator.kind,
        operator.module,
        shape,
        operator.n_macs,
        stored,
        instructions(graph, operator, core, _LIBRARY),
        operator.attributes.get("n_steps"),
    )
