"""Writes a quantized network as a `.tflite` file, int8 from the input to the output.

    content = write_tflite(quantize_graph(lower(net, example), [samples]))

Nothing in the file is there twice: equal buffers, shapes, grids, options and indices are shared, tensors have
no names. It runs in TensorFlow Lite Micro of 2024 or later, the first whose matrices have a scale a row; a
network with an LSTM wants a new interpreter for each sequence, since resetting one does not clear the state.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparsemod.compress.fakequant import QParams
from sparsemod.compress.quantized_graph import QuantizedGraph, QuantizedOperator, StoredWeight
from sparsemod.compress.tables import quantize_value
from sparsemod.export.flatbuffer import Writer, enum
from sparsemod.export.operators import Form, form

__all__ = ["Description", "write_tflite"]

_VERSION = 3  # of the schema
_OMITTED = -1  # index of an input that is left out


@dataclass(frozen=True, slots=True)
class Description:
    """What a firmware has to know beside the network, stored as JSON in the metadata entry ``sparsemod``.

    Attributes:
        classes: Number of classes.
        mean: What was subtracted from each channel of the raw input in training, or nothing.
        std: By what it was divided then.
    """

    classes: int
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()

    def to_json(self) -> str:
        """Return the shortest JSON; what is not known is left out."""
        values: dict[str, Any] = {"classes": self.classes}
        values |= {name: list(value) for name, value in (("mean", self.mean), ("std", self.std)) if value}
        return json.dumps(values, separators=(",", ":"))


def write_tflite(quantized: QuantizedGraph, description: Description | None = None) -> bytes:
    """Return the content of a `.tflite` file.

    Args:
        quantized: From `sparsemod.compress.graph_quantization.quantize_graph`.
        description: Stored with it.
    """
    return _File().write(quantized, description)


@dataclass(slots=True)
class _File:
    """The parts of a file that all lists of operators share."""

    writer: Writer = field(default_factory=Writer)
    buffers: dict[bytes, int] = field(default_factory=dict)
    codes: dict[str, int] = field(default_factory=dict)
    versions: dict[str, int] = field(default_factory=dict)
    lists: list[QuantizedGraph] = field(default_factory=list)

    def write(self, quantized: QuantizedGraph, description: Description | None) -> bytes:
        self.lists.append(quantized)
        written: list[int] = []
        while len(written) < len(self.lists):
            written.append(_Subgraph(self, self.lists[len(written)]).write())
        metadata = None
        if description is not None:
            entry = self.writer.table(
                "Metadata",
                Name=self.writer.string("sparsemod"),
                Buffer=self.buffer(description.to_json().encode()),
            )
            metadata = self.writer.offsets([entry])
        subgraphs = self.writer.offsets(written)
        codes = self.writer.offsets([self.code(name) for name in self.codes])
        empty = self.writer.table("Buffer")
        stored = [self.writer.table("Buffer", Data=self.writer.data(content)) for content in self.buffers]
        buffers = self.writer.offsets([empty, *stored])
        model = self.writer.table(
            "Model",
            Version=_VERSION,
            OperatorCodes=codes,
            Subgraphs=subgraphs,
            Buffers=buffers,
            Metadata=metadata,
        )
        return self.writer.finish(model, "TFL3")

    def buffer(self, content: bytes) -> int:
        """Return the index of a buffer with this content; 0 is the empty one."""
        if content not in self.buffers:
            self.writer.data(content)
            self.buffers[content] = len(self.buffers) + 1
        return self.buffers[content]

    def code_index(self, shape: Form) -> int:
        self.versions[shape.code] = max(shape.version, self.versions.get(shape.code, 1))
        return self.codes.setdefault(shape.code, len(self.codes))

    def code(self, name: str) -> int:
        value = enum("BuiltinOperator", name)
        return self.writer.table(
            "OperatorCode",
            Version=self.versions[name],
            BuiltinCode=value,
            DeprecatedBuiltinCode=min(value, enum("BuiltinOperator", "PLACEHOLDER_FOR_GREATER_OP_CODES")),
        )


class _Subgraph:
    """One list of operators while it is written."""

    def __init__(self, file: _File, quantized: QuantizedGraph) -> None:
        self.file = file
        self.writer = file.writer
        self.quantized = quantized
        self.tensors: list[int] = []
        self.constants: dict[tuple[Any, ...], int] = {}

    def write(self) -> int:
        graph = self.quantized.graph
        for tensor, grid in zip(graph.tensors, self.quantized.grids, strict=True):
            self.tensor(tensor.shape, tensor.dtype, self.grid(grid))
        operators = [self.operator(held) for held in self.quantized.operators]
        return self.writer.table(
            "SubGraph",
            Tensors=self.writer.offsets(self.tensors),
            Inputs=self.writer.numbers("Int32", graph.inputs),
            Outputs=self.writer.numbers("Int32", graph.outputs),
            Operators=self.writer.offsets(operators),
        )

    def tensor(
        self,
        shape: Sequence[int],
        dtype: str,
        quantization: int | None,
        content: bytes | None = None,
        variable: bool = False,
    ) -> int:
        """Add a tensor and return its index."""
        self.tensors.append(
            self.writer.table(
                "Tensor",
                Shape=self.writer.numbers("Int32", shape),
                Buffer=None if content is None else self.file.buffer(content),
                Quantization=quantization,
                Type=enum("TensorType", dtype.upper()),
                IsVariable=variable or None,
            )
        )
        return len(self.tensors) - 1

    def constant(
        self, values: NDArray[Any], quantization: int | None = None, shape: Sequence[int] | None = None
    ) -> int:
        """Add a constant tensor, once, and return its index."""
        content, shape = (
            np.ascontiguousarray(values).tobytes(),
            tuple(values.shape if shape is None else shape),
        )
        key = (content, shape, str(values.dtype), quantization)
        if key not in self.constants:
            self.constants[key] = self.tensor(shape, str(values.dtype), quantization, content)
        return self.constants[key]

    def grid(self, grid: QParams | None) -> int | None:
        return None if grid is None else self.quantization([grid.scale], grid.zero_point)

    def quantization(self, scales: Iterable[float], zero_point: int = 0, axis: int | None = None) -> int:
        numbers = [float(scale) for scale in scales]
        return self.writer.table(
            "QuantizationParameters",
            Scale=self.writer.numbers("Float32", numbers),
            ZeroPoint=self.writer.numbers("Int64", [zero_point] * len(numbers)),
            QuantizedDimension=axis or None,
        )

    def weight(self, stored: StoredWeight) -> int:
        return self.constant(stored.values, self.quantization(stored.scales, stored.zero_point, stored.axis))

    def bias(self, stored: StoredWeight, source: QParams) -> int:
        if stored.bias is None:
            return _OMITTED
        scales = np.float32(source.scale) * stored.scales
        return self.constant(stored.bias, self.quantization(scales))

    def operator(self, held: QuantizedOperator) -> int:
        operator, graph = held.operator, self.quantized.graph
        if held.body is not None and held.condition is not None:
            return self.loop(held)
        given, made = ([graph.tensors[i].shape for i in ids] for ids in (operator.inputs, operator.outputs))
        shape = form(operator, given, made, self.writer)
        if operator.kind == "unidirectional_sequence_lstm":
            inputs = self.lstm_inputs(held)
        else:
            inputs = [*self.operands(held), *(self.constant(values) for values in shape.constants)]
        if shape.code == "PADV2":
            inputs.append(self.pad_value(held))
        return self.entry(shape, inputs, operator.outputs)

    def entry(self, shape: Form, inputs: Sequence[int], outputs: Sequence[int]) -> int:
        """Write an operator; inputs left out at the end are not written."""
        options = self.writer.table(shape.options, **shape.fields) if shape.options else None
        return self.writer.table(
            "Operator",
            OpcodeIndex=self.file.code_index(shape),
            Inputs=self.writer.numbers("Int32", inputs),
            Outputs=self.writer.numbers("Int32", outputs),
            BuiltinOptions=options,
            BuiltinOptionsType=enum("BuiltinOptions", shape.options) if shape.options else None,
        )

    def operands(self, held: QuantizedOperator) -> list[int]:
        """Return the indices of tensors, weights and biases in their places."""
        operator = held.operator
        if operator.kind in {"conv_2d", "depthwise_conv_2d", "fully_connected"}:
            stored, source = held.weights[0], self.quantized.grid(operator.inputs[0])
            return [operator.inputs[0], self.weight(stored), self.bias(stored, source)]
        if operator.kind == "slice":
            return list(operator.inputs)
        constants = [self.weight(stored) for stored in held.weights]
        if operator.attributes.get("constant") == "x":
            return [*constants, *operator.inputs]
        return [*operator.inputs, *constants]

    def pad_value(self, held: QuantizedOperator) -> int:
        grid, value = self.quantized.grid(held.operator.outputs[0]), held.operator.attributes["value"]
        stored = -128 if value == -np.inf else min(127, max(-128, quantize_value(value, grid)))
        return self.constant(np.array([stored], np.int8), self.grid(grid))

    def lstm_inputs(self, held: QuantizedOperator) -> list[int]:
        """Return the 24 inputs: no peepholes, no projection, no layer normalization."""
        source, out = (self.quantized.grid(i[0]) for i in (held.operator.inputs, held.operator.outputs))
        size = held.operator.attributes["hidden_size"]
        n_sequences = self.quantized.graph.tensors[held.operator.inputs[0]].shape[0]
        weights = [self.weight(stored) for stored in held.weights]
        biases = [
            self.bias(stored, source) if stored.bias is not None else self.constant(np.zeros(size, np.int32))
            for stored in held.weights[:4]
        ]
        states = [
            self.tensor((n_sequences, size), dtype, self.grid(grid), variable=True)
            for dtype, grid in (("int8", out), ("int16", held.cell))
        ]
        none = [_OMITTED]
        return [held.operator.inputs[0], *weights, *none * 3, *biases, *none * 2, *states, *none * 4]

    def loop(self, held: QuantizedOperator) -> int:
        """Write a ``while`` whose counter and states start as constants."""
        operator, condition, body = held.operator, held.condition, held.body
        if condition is None or body is None:
            raise RuntimeError("a loop without condition or body")
        at = len(self.file.lists)
        self.file.lists += [condition, body]
        inputs = [self.constant(np.array([operator.attributes["start"], 0], np.int32)), operator.inputs[0]]
        for i in body.graph.inputs[2:]:
            grid, shape = body.grid(i), body.graph.tensors[i].shape
            inputs.append(self.constant(np.full(shape, grid.zero_point, np.int8), self.grid(grid)))
        fields = {"CondSubgraphIndex": at, "BodySubgraphIndex": at + 1}
        return self.entry(Form("WHILE", 1, "WhileOptions", fields), inputs, operator.outputs)
