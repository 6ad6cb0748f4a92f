"""An operator of a `.tflite` file with the tensors that it names, and what it can mean."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sparsemod.errors import ModelFileError
from sparsemod.export.flatbuffer_reader import name_of
from sparsemod.export.tflite_file import FileOperator, FileTensor

__all__ = ["Given", "Handler", "Meaning"]

_STATEFUL = {"unidirectional_sequence_lstm", "unidirectional_sequence_rnn"}


@dataclass(frozen=True, slots=True)
class Meaning:
    """An operator in our words.

    Attributes:
        kind: As in `sparsemod.measure.graph`.
        constants: For each weight the place of its values among the inputs, and of its bias or None.
        attributes: By the kind.
        n_macs: Multiply-accumulates.
    """

    kind: str
    constants: tuple[tuple[int, int | None], ...] = ()
    attributes: Mapping[str, Any] = field(default_factory=dict)
    n_macs: int = 0


@dataclass(frozen=True, slots=True)
class Given:
    """An operator of the file with the tensors that it names."""

    operator: FileOperator
    tensors: Sequence[FileTensor]

    @property
    def where(self) -> str:
        """Name the operator for people."""
        return f"operator {self.operator.index} ({self.operator.code})"

    def optional(self, i: int) -> FileTensor | None:
        """Return an input, or None where it is left out."""
        inputs = self.operator.inputs
        return self.tensors[inputs[i]] if i < len(inputs) and inputs[i] >= 0 else None

    def given(self, i: int) -> FileTensor:
        """Return an input that has to be there."""
        tensor = self.optional(i)
        if tensor is None:
            raise ModelFileError(f"damaged: {self.where} has no input {i}")
        return tensor

    def made(self) -> FileTensor:
        """Return the first output."""
        if not self.operator.outputs:
            raise ModelFileError(f"damaged: {self.where} has no output")
        return self.tensors[self.operator.outputs[0]]

    def all_computed(self) -> bool:
        """Whether none of the inputs is a constant."""
        return not any(self.tensors[i].constant for i in self.operator.inputs if i >= 0)

    def flows(self, kind: str) -> bool:
        """Whether what it reads and writes is computed anew at each inference, apart from a layer's state."""
        inputs = [self.tensors[i] for i in self.operator.inputs if i >= 0]
        if kind in _STATEFUL:
            inputs = inputs[:1]
        computed = [tensor for tensor in inputs if not tensor.constant]
        outputs = [self.tensors[i] for i in self.operator.outputs]
        return bool(computed and outputs) and not any(tensor.variable for tensor in (*computed, *outputs))

    def option(self, table: str, name: str, default: Any = 0) -> Any:
        """Return an option of the file's."""
        return self.operator.option(table, name, default)

    def activation(self, table: str) -> str | None:
        """Return the fused activation, or None for one that has no word here."""
        value = self.option(table, "FusedActivationFunction")
        name = (name_of("ActivationFunctionType", value) or "unknown").lower()
        return name if name in {"none", "relu", "relu6", "relu_n1_to_1"} else None

    def need(self, holds: bool, expected: str) -> None:
        """Raise unless something holds of the shapes."""
        if not holds:
            inputs = [list(self.tensors[i].shape) for i in self.operator.inputs if i >= 0]
            raise ModelFileError(
                f"damaged: {self.where}: expected {expected}, got {inputs} to {list(self.made().shape)}"
            )

    def integers(self, i: int) -> list[int] | None:
        """Return a constant input of integers, or None where it is computed or left out."""
        tensor = self.optional(i)
        if tensor is None or not tensor.constant or tensor.dtype not in {"int32", "int64"}:
            return None
        return [int(n) for n in tensor.values().reshape(-1)]

    def other(self, n_macs: int = 0) -> Meaning:
        """Return the meaning of what has no word here; constants of numbers are its weights."""
        names = [i for i, place in enumerate(self.operator.inputs) if place >= 0]
        held = [i for i in names if self.tensors[self.operator.inputs[i]].constant]
        weights = [i for i in held if self.given(i).dtype in {"int4", "int8", "int16", "float16", "float32"}]
        return Meaning(f"other:{self.operator.code}", tuple((i, None) for i in weights), n_macs=n_macs)


Handler = Callable[[Given], Meaning]
