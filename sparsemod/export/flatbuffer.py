"""Writing of FlatBuffers by the schema package's own functions, everything that is equal only once."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import flatbuffers
import tflite

__all__ = ["Writer", "enum"]

_ALIGNMENT = 16  # of buffers, as the schema demands


def enum(kind: str, name: str) -> int:
    """Return the value of a name of one of the schema's enumerations.

    Example:
        >>> enum("TensorType", "INT8")
        9
    """
    value: int = getattr(getattr(tflite, kind), name)
    return value


class Writer:
    """A builder that remembers what it wrote and gives out the same offset for the same content."""

    def __init__(self) -> None:
        self._builder = flatbuffers.Builder(1024)
        self._known: dict[Hashable, int] = {}

    def table(self, kind: str, **fields: Any) -> int:
        """Write a table of the schema.

        Args:
            kind: Its name.
            **fields: Values and offsets by the schema's names of the fields in camel case; None is left out.
                Wide ones come first.
        """
        key = ("table", kind, tuple(fields.items()))
        if key not in self._known:
            getattr(tflite, f"{kind}Start")(self._builder)
            for name, value in fields.items():
                if value is not None:
                    getattr(tflite, f"{kind}Add{name}")(self._builder, value)
            self._known[key] = getattr(tflite, f"{kind}End")(self._builder)
        return self._known[key]

    def numbers(self, kind: str, values: Sequence[float]) -> int:
        """Write a vector of ``Int32``, ``Int64`` or ``Float32``."""
        key = ("numbers", kind, tuple(values))
        if key not in self._known:
            size = 8 if kind == "Int64" else 4
            self._builder.StartVector(size, len(values), size)
            for value in reversed(values):
                getattr(self._builder, f"Prepend{kind}")(value)
            self._known[key] = self._builder.EndVector()
        return self._known[key]

    def offsets(self, values: Sequence[int]) -> int:
        """Write a vector of tables."""
        self._builder.StartVector(4, len(values), 4)
        for value in reversed(values):
            self._builder.PrependUOffsetTRelative(value)
        offset: int = self._builder.EndVector()
        return offset

    def data(self, content: bytes) -> int:
        """Write bytes as a vector that is aligned for any number."""
        key = ("data", content)
        if key not in self._known:
            self._builder.StartVector(1, len(content), _ALIGNMENT)
            self._builder.head = self._builder.Head() - len(content)
            self._builder.Bytes[self._builder.Head() : self._builder.Head() + len(content)] = content
            self._known[key] = self._builder.EndVector()
        return self._known[key]

    def string(self, text: str) -> int:
        """Write a string."""
        key = ("string", text)
        if key not in self._known:
            self._known[key] = self._builder.CreateString(text)
        return self._known[key]

    def finish(self, root: int, identifier: str) -> bytes:
        """Return the finished file."""
        self._builder.Finish(root, identifier.encode())
        return bytes(self._builder.Output())
