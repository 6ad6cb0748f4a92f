"""Reading of FlatBuffers that nobody vouches for: every offset is checked against the file before it is used.

Positions, types and defaults of the fields come from the schema package by their names. Nothing recurses, and
a file may not be made to yield more than a few times its own size, however its vectors overlap.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import tflite
from numpy.typing import NDArray

from sparsemod.errors import ModelFileError

__all__ = ["Source", "Table", "clean", "name_of"]

_FORMATS = {
    "Bool": "<?", "Int8": "<b", "Uint8": "<B", "Int16": "<h", "Uint16": "<H", "Int32": "<i", "Uint32": "<I",
    "Int64": "<q", "Uint64": "<Q", "Float32": "<f", "Float64": "<d",
}  # fmt: skip
_OFFSET = "UOffsetTRelative"
_TIMES = 8  # how often, on average, a byte of the file may be read
_SLACK = 4096
_LONGEST_NAME = 200


class _Recorder:
    """Stands for a builder: notes what the schema package would have written where."""

    def __init__(self) -> None:
        self.slot: tuple[str, int, Any] = ("", -1, 0)

    def __getattr__(self, method: str) -> Any:
        kind = method.removeprefix("Prepend").removesuffix("Slot")

        def note(slot: int, value: Any, default: Any) -> None:
            self.slot = (kind, slot, default)

        return note


@cache
def _slot(table: str, field: str) -> tuple[str, int, Any]:
    """Return type, position and default of a field of the schema."""
    recorder = _Recorder()
    getattr(tflite, f"{table}Add{field}")(recorder, 0)
    return recorder.slot


@cache
def _names(enumeration: str) -> dict[int, str]:
    return {v: k for k, v in vars(getattr(tflite, enumeration)).items() if isinstance(v, int)}


def name_of(enumeration: str, value: int) -> str | None:
    """Return the name of a value of one of the schema's enumerations, or None where it has none.

    Example:
        >>> name_of("TensorType", 9), name_of("BuiltinOperator", 9999)
        ('INT8', None)
    """
    return _names(enumeration).get(value)


def clean(text: bytes) -> str:
    """Return a name that can be printed: at most 200 characters, none that a terminal would act on."""
    letters = text[:_LONGEST_NAME].decode("utf-8", "replace")
    return "".join(letter if letter.isprintable() else "?" for letter in letters)


@dataclass(slots=True)
class Source:
    """The bytes of a file, and how many of them may still be read.

    Attributes:
        content: All of it.
        left: Bytes, falling.
    """

    content: bytes
    left: int

    @classmethod
    def of(cls, content: bytes) -> Source:
        """Start to read a file."""
        return cls(content, _TIMES * len(content) + _SLACK)

    def root(self, table: str) -> Table:
        """Return the table that a file begins with."""
        return Table(self, table, self.offset(0))

    def number(self, kind: str, at: int) -> Any:
        """Return the number at a position."""
        layout = _FORMATS[kind]
        if at < 0 or at + struct.calcsize(layout) > len(self.content):
            raise ModelFileError(f"damaged or truncated: a value at byte {at} of {len(self.content)}")
        return struct.unpack_from(layout, self.content, at)[0]

    def offset(self, at: int) -> int:
        """Return where the offset at a position points to."""
        return at + int(self.number("Uint32", at))

    def vector(self, at: int, item_bytes: int) -> tuple[int, int]:
        """Return the first byte and the length of the vector at a position."""
        length = int(self.number("Uint32", at))
        end = at + 4 + length * item_bytes
        if end > len(self.content):
            what = f"{length} entries of {item_bytes} bytes at byte {at} of {len(self.content)}"
            raise ModelFileError(f"damaged or truncated: {what}")
        self.take(length * item_bytes)
        return at + 4, length

    def take(self, n_bytes: int) -> None:
        """Note that so many bytes are read."""
        self.left -= n_bytes
        if self.left < 0:
            raise ModelFileError(f"damaged: its parts overlap to more than {_TIMES} times its size")


class Table:
    """A table of the schema inside a file."""

    __slots__ = ("_end", "_kind", "_position", "_source", "_vtable")

    def __init__(self, source: Source, kind: str, position: int) -> None:
        self._source, self._kind, self._position = source, kind, position
        self._vtable = position - int(source.number("Int32", position))
        size = int(source.number("Uint16", self._vtable))
        if size < 4 or size % 2 or self._vtable + size > len(source.content):
            raise ModelFileError(f"damaged or truncated: no {kind} at byte {position}")
        self._end = size
        source.take(8)

    def _at(self, field: str) -> tuple[str, int | None, Any]:
        """Return type, position (None where it is left out) and default of a field."""
        kind, slot, default = _slot(self._kind, field)
        entry = 4 + 2 * slot
        inside = int(self._source.number("Uint16", self._vtable + entry)) if entry < self._end else 0
        return kind, self._position + inside if inside else None, default

    def number(self, field: str) -> Any:
        """Return a number, or its default where the file leaves it out."""
        kind, at, default = self._at(field)
        return default if at is None else self._source.number(kind, at)

    def _pointed(self, field: str) -> int | None:
        _, at, _ = self._at(field)
        return None if at is None else self._source.offset(at)

    def table(self, field: str, kind: str) -> Table | None:
        """Return the table that a field points to."""
        at = self._pointed(field)
        return None if at is None else Table(self._source, kind, at)

    def tables(self, field: str, kind: str, at_most: int) -> list[Table]:
        """Return the tables of a vector."""
        at = self._pointed(field)
        if at is None:
            return []
        start, length = self._source.vector(at, 4)
        if length > at_most:
            raise ModelFileError(f"expected at most {at_most} in {self._kind}.{field}, got {length}")
        return [Table(self._source, kind, self._source.offset(start + 4 * i)) for i in range(length)]

    def numbers(self, field: str, dtype: str) -> NDArray[Any]:
        """Return the numbers of a vector."""
        at, item = self._pointed(field), np.dtype(dtype).newbyteorder("<")
        if at is None:
            return np.zeros(0, item)
        start, length = self._source.vector(at, item.itemsize)
        return np.frombuffer(self._source.content, item, length, start)

    def place(self, field: str) -> int | None:
        """Return where in the file a field's content lies, to tell whether two are the same."""
        return self._pointed(field)

    def data(self, field: str) -> bytes | None:
        """Return the bytes of a vector, or None where the field is left out."""
        at = self._pointed(field)
        if at is None:
            return None
        start, length = self._source.vector(at, 1)
        return self._source.content[start : start + length]

    def text(self, field: str) -> str:
        """Return a string, as far as it can be printed."""
        at = self._pointed(field)
        if at is None:
            return ""
        start, length = self._source.vector(at, 1)
        return clean(self._source.content[start : start + min(length, _LONGEST_NAME)])
