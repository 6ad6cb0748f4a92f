"""Reads any int8 `.tflite` file, ours or a converter's, as the operator list that it makes a runtime execute.

    read = read_tflite(Path("model.tflite"))
    read.graph.operators

A file is not trusted: what is damaged, or of a kind that is not understood, is one `ModelFileError`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from sparsemod.errors import ModelFileError
from sparsemod.export.tflite_file import FileGraph, FileOperator, FileTensor, ModelFile, parse, read_bytes
from sparsemod.export.tflite_given import Meaning
from sparsemod.export.tflite_loops import n_steps, start
from sparsemod.export.tflite_operators import meaning
from sparsemod.measure.graph import ITEM_BYTES, FloatArray, Operator, OperatorGraph, TensorSpec, Weight

__all__ = ["FileSizes", "Grid", "ReadModel", "ReadWeight", "parse_tflite", "read_tflite"]

Grid = tuple[float, int]
_PRODUCTS = {
    "conv_2d", "depthwise_conv_2d", "transpose_conv", "fully_connected", "batch_matmul",
    "unidirectional_sequence_lstm", "unidirectional_sequence_rnn",
}  # fmt: skip
_MOST_TENSORS = 4096  # in all lists that are run
_DECODED = 8  # values of weights for each byte of the file; shared ones are decoded once
_SMALL = 4096


@dataclass(frozen=True, slots=True, eq=False)
class ReadWeight:
    """A weight as the file stores it: tensors for the values and the bias."""

    values: FileTensor
    bias: FileTensor | None


@dataclass(frozen=True, slots=True)
class FileSizes:
    """What the bytes of a file are spent on; what is shared in it counts once.

    Attributes:
        weights_bytes: Values of weights.
        biases_bytes: Biases.
        constants_bytes: Other constants: shapes, axes, paddings.
        scales_bytes: float32 scales of the weights.
        overhead_bytes: The rest: operators, tensors, names, grids, alignment.
        saved_bytes: What constants would take beyond that if each tensor had its own.
    """

    weights_bytes: int
    biases_bytes: int
    constants_bytes: int
    scales_bytes: int
    overhead_bytes: int
    saved_bytes: int

    @property
    def file_bytes(self) -> int:
        """All of the file."""
        return self.data_bytes + self.scales_bytes + self.overhead_bytes

    @property
    def data_bytes(self) -> int:
        """Weights, biases and other constants, as they lie in the file."""
        return self.weights_bytes + self.biases_bytes + self.constants_bytes

    @property
    def tensors_bytes(self) -> int:
        """The same as the network has it, each tensor by itself."""
        return self.data_bytes + self.saved_bytes


@dataclass(frozen=True, slots=True, eq=False)
class ReadModel:
    """A network as a file holds it.

    Attributes:
        graph: The operators as the interpreter executes them, tensors in the file's order; kinds of
            `sparsemod.measure.interpreted` appear in it.
        grids: Scale and zero point of each tensor by id; None where it has none.
        weights: The stored integers of each weight of the graph, by its name.
        n_tensors: Tensors of the file in all lists, constants included.
        sizes: What the bytes of the file are spent on.
        metadata: Names of what is stored beside the network.
    """

    graph: OperatorGraph
    grids: tuple[Grid | None, ...]
    weights: Mapping[str, ReadWeight]
    n_tensors: int
    sizes: FileSizes
    metadata: tuple[str, ...] = ()


def read_tflite(path: Path) -> ReadModel:
    """Return the network in a file.

    Raises:
        ModelFileError: There is no such file, it is not a `.tflite` file, damaged, or not int8.
    """
    content = read_bytes(path)
    try:
        return parse_tflite(content)
    except ModelFileError as error:
        raise ModelFileError(f"{path}: {error}") from None


def parse_tflite(content: bytes) -> ReadModel:
    """Return the network in the content of a file.

    Raises:
        ModelFileError: It is not a `.tflite` file, damaged, or not int8.
    """
    file = parse(content)
    reader = _Reader(file, _DECODED * len(content) + _SMALL)
    graph, grids = reader.graph(0, ())
    if not any(tensor.dtype == "int8" for part in graph.lists() for tensor in part.tensors):
        found = ", ".join(sorted({tensor.dtype for tensor in graph.tensors})) or "no tensors"
        raise ModelFileError(f"expected an int8 network, got {found}")
    n_tensors = sum(len(part.tensors) for part in file.graphs)
    return ReadModel(graph, grids, reader.stored, n_tensors, _sizes(file, reader.stored), file.metadata)


def _sizes(file: ModelFile, stored: Mapping[str, ReadWeight]) -> FileSizes:
    """Attribute each buffer to what it is used for first."""
    weights = {held.values.buffer: held.values for held in stored.values()}
    biases = {held.bias.buffer: held.bias for held in stored.values() if held.bias is not None}
    constants = [t for part in file.graphs for t in part.tensors if t.constant]
    others = {t.buffer: t for t in constants}
    scales = {held.values.scales_at: held.values.scales for held in stored.values()}
    known: set[int] = set()
    parts = []
    for group in (weights, biases, others):
        parts.append(sum(len(t.data or b"") for i, t in group.items() if i not in known))
        known |= group.keys()
    n_scales = sum(4 * len(values) for values in scales.values())
    saved = sum(len(t.data or b"") for t in constants) - sum(parts)
    return FileSizes(parts[0], parts[1], parts[2], n_scales, file.n_bytes - sum(parts) - n_scales, saved)


@dataclass(slots=True)
class _Reader:
    """Turns the lists of a file into operator lists."""

    file: ModelFile
    left: int
    stored: dict[str, ReadWeight] = field(default_factory=dict)
    decoded: dict[tuple[Any, ...], Weight] = field(default_factory=dict)
    names: set[str] = field(default_factory=set)
    n_tensors: int = 0

    def graph(self, number: int, callers: tuple[int, ...]) -> tuple[OperatorGraph, tuple[Grid | None, ...]]:
        """Return one list; `callers` are those that run it."""
        if not 0 <= number < len(self.file.graphs) or number in callers:
            raise ModelFileError(f"damaged: list {number} of {len(self.file.graphs)} is run by an operator")
        part = self.file.graphs[number]
        places = _activations(part)
        self.n_tensors += len(places)
        if self.n_tensors > _MOST_TENSORS:
            raise ModelFileError(f"expected at most {_MOST_TENSORS} tensors, got more")
        ids = {place: i for i, place in enumerate(places)}
        specs = tuple(self.spec(part.tensors[place], i) for place, i in ids.items())
        operators = tuple(self.operator(op, part, ids, (*callers, number)) for op in part.operators)
        inputs, outputs = (
            tuple(ids[i] for i in listed if i in ids) for listed in (part.inputs, part.outputs)
        )
        grids = tuple(_grid(part.tensors[place]) for place in places)
        return OperatorGraph(specs, operators, inputs, outputs, (), ()), grids

    def spec(self, tensor: FileTensor, i: int) -> TensorSpec:
        if tensor.dtype not in ITEM_BYTES:
            raise ModelFileError(f"tensor {tensor.index}: expected numbers, got {tensor.dtype}")
        return TensorSpec(i, self.unique(tensor.name or f"tensor {tensor.index}"), tensor.shape, tensor.dtype)

    def unique(self, name: str) -> str:
        found, n = name, 1
        while found in self.names:
            n += 1
            found = f"{name}#{n}"
        self.names.add(found)
        return found

    def operator(
        self, operator: FileOperator, part: FileGraph, ids: Mapping[int, int], callers: tuple[int, ...]
    ) -> Operator:
        if operator.code == "WHILE":
            found = self.loop(operator, part, callers)
        else:
            found = meaning(operator, part.tensors)
        _check_integers(operator, found, part.tensors)
        inputs = tuple(ids[i] for i in operator.inputs if i in ids)
        outputs = tuple(ids[i] for i in operator.outputs if i in ids)
        weights = tuple(self.weight(operator, place, part.tensors) for place in found.constants)
        module = part.tensors[operator.outputs[0]].name.split(";")[0] if operator.outputs else ""
        attributes = {"activation": "none", **found.attributes}
        return Operator(found.kind, inputs, outputs, weights, attributes, module, found.n_macs)

    def weight(
        self, operator: FileOperator, place: tuple[int, int | None], tensors: Sequence[FileTensor]
    ) -> Weight:
        values = tensors[operator.inputs[place[0]]]
        bias = None if place[1] is None else tensors[operator.inputs[place[1]]]
        key = (values.buffer, values.shape, values.scales_at, None if bias is None else bias.buffer)
        if key not in self.decoded:
            self.left -= values.n_elements + (0 if bias is None else bias.n_elements)
            if self.left < 0:
                raise ModelFileError("damaged: its weights overlap")
            axis = values.axis if len(values.scales) > 1 else None
            name = self.unique(values.name or f"constant {values.index}")
            dtype = "float32" if values.dtype.startswith("float") else "int8"
            real = None if bias is None else _real(bias)
            self.decoded[key] = Weight(name, _real(values), real, dtype, axis)
            self.stored[name] = ReadWeight(values, bias)
        return self.decoded[key]

    def loop(self, operator: FileOperator, part: FileGraph, callers: tuple[int, ...]) -> Meaning:
        """Return a ``while`` with its lists."""
        places = [operator.option("WhileOptions", f"{name}SubgraphIndex", -1) for name in ("Cond", "Body")]
        (condition, _), (body, _) = (self.graph(place, callers) for place in places)
        lists = [self.file.graphs[place] for place in places]
        steps = n_steps(operator, part.tensors, *lists)
        n_macs = sum(inner.n_macs for inner in (*condition.operators, *body.operators))
        attributes = {
            "condition": condition,
            "body": body,
            "start": start(operator, part.tensors),
            "n_steps": steps,
            "all_states": len(operator.outputs) > 3,
        }
        return Meaning("while", (), attributes, n_macs * steps)


def _activations(part: FileGraph) -> list[int]:
    """Return the indices of what lies in the arena, and check that all is written before it is read."""
    tensors = part.tensors
    written = {i for i in part.inputs if not tensors[i].constant}
    if any(tensors[i].variable for i in written):
        raise ModelFileError("damaged: an input of the network is a variable")
    for operator in part.operators:
        where = f"operator {operator.index} ({operator.code})"
        for i in operator.inputs:
            if i >= 0 and not (i in written or tensors[i].constant or tensors[i].variable):
                raise ModelFileError(f"damaged: {where} reads tensor {i} before it is written")
        for i in operator.outputs:
            if tensors[i].constant or i in written:
                raise ModelFileError(f"damaged: {where} writes tensor {i}, which is taken")
            if not tensors[i].variable:
                written.add(i)
    for i in part.outputs:
        if not (i in written or tensors[i].constant or tensors[i].variable):
            raise ModelFileError(f"damaged: output {i} of the network is never written")
    return [t.index for t in tensors if not t.constant and not t.variable]


def _check_integers(operator: FileOperator, found: Meaning, tensors: Sequence[FileTensor]) -> None:
    """Refuse products in anything but int8."""
    if found.kind not in _PRODUCTS:
        return
    where = f"operator {operator.index} ({operator.code})"
    ends = {tensors[i].dtype for i in operator.outputs}
    held = {operator.inputs[place] for place, _ in found.constants}
    biases = {operator.inputs[place] for _, place in found.constants if place is not None}
    read = [i for i in operator.inputs if i >= 0 and not tensors[i].variable and i not in biases]
    ends |= {tensors[i].dtype for i in read if not tensors[i].constant}
    weights = {tensors[i].dtype for i in held}
    if "float32" in ends:
        if weights & {"int8", "int4"}:
            raise ModelFileError(
                f"expected int8 throughout, got int8 weights with float32 activations at {where}: "
                "dynamic-range quantization, which no kernel here runs"
            )
        raise ModelFileError(f"expected an int8 network, got float32 at {where}")
    odd = (ends - {"int8"}) | (weights - {"int8", "int4"})
    if odd:
        raise ModelFileError(f"expected an int8 network, got {', '.join(sorted(odd))} at {where}")


def _grid(tensor: FileTensor) -> Grid | None:
    if not len(tensor.scales):
        return None
    return float(tensor.scales[0]), int(tensor.zero_points[0]) if len(tensor.zero_points) else 0


def _real(tensor: FileTensor) -> FloatArray:
    """Return the values that the stored integers stand for."""
    stored = tensor.values()
    if not len(tensor.scales):
        return stored.astype(np.float32)
    shape = [1] * stored.ndim
    if len(tensor.scales) > 1:
        shape[tensor.axis] = -1
    scales, zeros = tensor.scales, tensor.zero_points
    with np.errstate(all="ignore"):  # grids of a file may hold anything
        real = stored.astype(np.float32)
        if zeros.any():
            real -= zeros.astype(np.float32).reshape(shape if len(zeros) > 1 else -1)
        real *= scales.reshape(shape if len(scales) > 1 else -1)
    return real
