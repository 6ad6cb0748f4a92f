"""What a `.tflite` file holds: lists of tensors and operators, with every index and size checked.

Operators keep their options as a table of the file; what they mean is said in `tflite_operators`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparsemod.errors import ModelFileError
from sparsemod.export.flatbuffer_reader import Source, Table, name_of

__all__ = ["FileGraph", "FileOperator", "FileTensor", "ModelFile", "parse", "read_bytes"]

SCHEMA_VERSION = 3
_IDENTIFIER = b"TFL3"
_LARGEST_FILE = 2**28  # more than any microcontroller can address
_LARGEST_TENSOR = 2**31 - 1  # elements, and bytes: what an int32 of the interpreter holds
_MOST = 4096  # operators, tensors; the largest networks on microcontrollers have a few hundred
_MOST_LISTS = 64
_ITEM_BITS = {
    "float16": 16, "float32": 32, "float64": 64, "int4": 4, "int8": 8, "int16": 16, "int32": 32, "int64": 64,
    "uint8": 8, "uint16": 16, "uint32": 32, "uint64": 64, "bool": 8, "resource": 32,
}  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class FileTensor:
    """A tensor of a list.

    Attributes:
        index: Its place in the list.
        name: What the file calls it.
        shape: As the file has it.
        dtype: Name in the schema's ``TensorType``, in lower case.
        data: Bytes of a constant, None for what is computed.
        buffer: Where they lie; equal for constants that share them.
        scales: float32; empty where there is no grid.
        zero_points: int64, as many, or none.
        axis: The dimension that has a scale an entry, where there is more than one.
        scales_at: Where the scales lie in the file; equal for grids that share them.
        variable: Whether it keeps its value from one inference to the next.
    """

    index: int
    name: str
    shape: tuple[int, ...]
    dtype: str
    data: bytes | None
    buffer: int
    scales: NDArray[np.float32]
    zero_points: NDArray[np.int64]
    axis: int
    scales_at: int | None
    variable: bool

    @property
    def constant(self) -> bool:
        """Whether its values are in the file."""
        return self.data is not None

    @property
    def n_elements(self) -> int:
        """Number of values."""
        return prod(self.shape)

    def values(self) -> NDArray[Any]:
        """Return the values of a constant as they are stored; those of 4 bits as int8."""
        if self.data is None or self.dtype not in _ITEM_BITS:
            raise ModelFileError(f"tensor {self.index}: expected a constant of numbers, got {self.dtype}")
        if self.dtype == "int4":
            packed = np.frombuffer(self.data, np.int8)
            pairs = np.stack([(packed << 4).astype(np.int8) >> 4, packed >> 4], 1)
            return pairs.reshape(-1)[: self.n_elements].reshape(self.shape)
        item = np.dtype("int32" if self.dtype == "resource" else self.dtype).newbyteorder("<")
        return np.frombuffer(self.data, item).reshape(self.shape)


@dataclass(frozen=True, slots=True, eq=False)
class FileOperator:
    """An operator of a list.

    Attributes:
        index: Its place.
        code: Name in the schema's ``BuiltinOperator``, or what a custom one is called.
        inputs: Indices of tensors, -1 for an optional one that is left out.
        outputs: Indices of tensors.
        options: Its options; None where all are at their defaults.
        options_type: Name of their table.
    """

    index: int
    code: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    options: Table | None
    options_type: str

    def option(self, table: str, name: str, default: Any) -> Any:
        """Return an option.

        Raises:
            ModelFileError: The operator has options of another kind.
        """
        if self.options is None:
            return default
        if self.options_type != table:
            raise ModelFileError(
                f"operator {self.index} ({self.code}): expected {table}, got {self.options_type}"
            )
        return self.options.number(name)


@dataclass(frozen=True, slots=True, eq=False)
class FileGraph:
    """A list of operators."""

    tensors: tuple[FileTensor, ...]
    operators: tuple[FileOperator, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class ModelFile:
    """A file; the first list is the network, others are run by its operators.

    Attributes:
        n_bytes: Its size.
        graphs: The lists of operators.
        metadata: Names of what is stored beside the network.
    """

    n_bytes: int
    graphs: tuple[FileGraph, ...]
    metadata: tuple[str, ...] = ()


def read_bytes(path: Path) -> bytes:
    """Return the content of a file.

    Raises:
        ModelFileError: It is not there, not a file, empty, too large or cannot be read.
    """
    try:
        if not path.exists():
            raise ModelFileError(f"{path}: no such file")
        if not path.is_file():
            raise ModelFileError(f"{path}: expected a file, got a {'folder' if path.is_dir() else 'device'}")
        size = path.stat().st_size
        if size > _LARGEST_FILE:
            raise ModelFileError(f"{path}: expected at most {_LARGEST_FILE} bytes, got {size}")
        return path.read_bytes()
    except (OSError, ValueError) as error:  # a name with a null character is a ValueError
        if isinstance(error, ModelFileError):
            raise
        raise ModelFileError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from None


def parse(content: bytes) -> ModelFile:
    """Return what a file holds.

    Raises:
        ModelFileError: It is not a `.tflite` file, is damaged, or of another version of the schema.
    """
    if not content:
        raise ModelFileError("expected a .tflite file, got an empty one")
    if content[4:8] != _IDENTIFIER:
        raise ModelFileError("expected a .tflite file (TFL3 at byte 4), got something else")
    model = Source.of(content).root("Model")
    version = model.number("Version")
    if version != SCHEMA_VERSION:
        raise ModelFileError(f"expected version {SCHEMA_VERSION} of the schema, got {version}")
    codes = [_code(table) for table in model.tables("OperatorCodes", "OperatorCode", _MOST)]
    buffers = _Buffers(content, model.tables("Buffers", "Buffer", 16 * _MOST))
    subgraphs = model.tables("Subgraphs", "SubGraph", _MOST_LISTS)
    if not subgraphs:
        raise ModelFileError("damaged: there is no network in it")
    metadata = tuple(entry.text("Name") for entry in model.tables("Metadata", "Metadata", _MOST))
    return ModelFile(len(content), tuple(_graph(table, codes, buffers) for table in subgraphs), metadata)


@dataclass(slots=True)
class _Buffers:
    """The constants of a file, each read once."""

    content: bytes
    tables: list[Table]
    known: dict[int, bytes | None] = field(default_factory=dict)

    def get(self, index: int) -> bytes | None:
        """Return the content of a buffer; None for an empty one."""
        if index not in self.known:
            if not 0 <= index < max(1, len(self.tables)):
                raise ModelFileError(f"damaged: buffer {index} of {len(self.tables)}")
            self.known[index] = self._read(self.tables[index]) if self.tables else None
        return self.known[index]

    def _read(self, table: Table) -> bytes | None:
        start, size = table.number("Offset"), table.number("Size")
        if start > 1:  # behind the tables, where the file is too large for their offsets
            if start + size > len(self.content):
                raise ModelFileError(
                    f"damaged or truncated: a buffer of {size} bytes at byte {start} of {len(self.content)}"
                )
            return self.content[start : start + size] or None
        return table.data("Data") or None


def _code(table: Table) -> str:
    value = max(table.number("BuiltinCode"), table.number("DeprecatedBuiltinCode"))
    name = name_of("BuiltinOperator", value)
    if name == "CUSTOM":
        return table.text("CustomCode") or "CUSTOM"
    return name or f"BUILTIN_{value}"


def _graph(table: Table, codes: list[str], buffers: _Buffers) -> FileGraph:
    tensors = tuple(
        _tensor(i, entry, buffers) for i, entry in enumerate(table.tables("Tensors", "Tensor", _MOST))
    )
    operators = tuple(
        _operator(i, entry, codes, len(tensors))
        for i, entry in enumerate(table.tables("Operators", "Operator", _MOST))
    )
    ends = [_indices(table, name, len(tensors), name.lower()) for name in ("Inputs", "Outputs")]
    if any(i < 0 for i in (*ends[0], *ends[1])):
        raise ModelFileError("damaged: an input or output of the network is left out")
    return FileGraph(tensors, operators, *ends)


def _tensor(index: int, table: Table, buffers: _Buffers) -> FileTensor:
    shape = tuple(int(n) for n in table.numbers("Shape", "int32"))
    code = table.number("Type")
    dtype = (name_of("TensorType", code) or f"type {code}").lower()
    if any(n < 0 for n in shape):
        raise ModelFileError(f"tensor {index}: expected a shape known in advance, got {list(shape)}")
    bits = _ITEM_BITS.get(dtype, 8)
    if prod(shape) * max(8, bits) // 8 > _LARGEST_TENSOR:
        raise ModelFileError(f"tensor {index}: {list(shape)} of {dtype} is beyond 2 GiB")
    if table.table("Sparsity", "SparsityParameters") is not None:
        raise ModelFileError(f"tensor {index}: sparse constants are not understood")
    buffer = table.number("Buffer")
    data = buffers.get(buffer)
    if data is not None and dtype in _ITEM_BITS and -(-prod(shape) * bits // 8) != len(data):
        raise ModelFileError(
            f"damaged: tensor {index} of shape {list(shape)} and {dtype} has a buffer of {len(data)} bytes"
        )
    grid = table.table("Quantization", "QuantizationParameters")
    scales = np.zeros(0, np.float32) if grid is None else grid.numbers("Scale", "float32")
    zeros = np.zeros(0, np.int64) if grid is None else grid.numbers("ZeroPoint", "int64")
    axis = 0 if grid is None else int(grid.number("QuantizedDimension"))
    if len(scales) > 1 and not (0 <= axis < len(shape) and shape[axis] == len(scales)):
        raise ModelFileError(
            f"damaged: tensor {index} of shape {list(shape)} has {len(scales)} scales along dimension {axis}"
        )
    if len(zeros) > 1 and len(zeros) != len(scales):
        raise ModelFileError(f"damaged: tensor {index} has {len(scales)} scales and {len(zeros)} zero points")
    place = grid.place("Scale") if grid is not None and len(scales) else None
    name, variable = table.text("Name"), bool(table.number("IsVariable"))
    return FileTensor(index, name, shape, dtype, data, buffer, scales, zeros, axis, place, variable)


def _operator(index: int, table: Table, codes: list[str], n_tensors: int) -> FileOperator:
    code = table.number("OpcodeIndex")
    if code >= len(codes):
        raise ModelFileError(f"damaged: operator {index} is of kind {code} of {len(codes)}")
    options, kind = None, "nothing"
    value = table.number("BuiltinOptionsType")
    if value:
        kind = name_of("BuiltinOptions", value) or f"options {value}"
        options = table.table("BuiltinOptions", kind)
    where = f"operator {index} ({codes[code]})"
    inputs, outputs = (_indices(table, name, n_tensors, where) for name in ("Inputs", "Outputs"))
    if any(i < 0 for i in outputs):
        raise ModelFileError(f"damaged: {where} leaves an output out")
    return FileOperator(index, codes[code], inputs, outputs, options, kind)


def _indices(table: Table, name: str, n_tensors: int, where: str) -> tuple[int, ...]:
    numbers = tuple(int(i) for i in table.numbers(name, "int32"))
    for i in numbers:
        if not -1 <= i < n_tensors:
            raise ModelFileError(f"damaged: {where} names tensor {i} of {n_tensors}")
    return numbers
