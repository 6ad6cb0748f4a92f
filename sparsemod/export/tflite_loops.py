"""How often the loops of a `.tflite` file run, where the file says so.

A converter's loop over the steps of a sequence carries a counter that starts at a constant, grows by a
constant, and is compared with a constant. Any other loop is counted once.
"""

from __future__ import annotations

from collections.abc import Sequence

from sparsemod.export.tflite_file import FileGraph, FileOperator, FileTensor

__all__ = ["n_steps", "start"]

_LONGEST = 2**31
_COMPARISONS = {"LESS": (1, 0), "LESS_EQUAL": (1, 1), "GREATER": (-1, 0), "GREATER_EQUAL": (-1, 1)}


def n_steps(
    operator: FileOperator, tensors: Sequence[FileTensor], condition: FileGraph, body: FileGraph
) -> int:
    """Return how often the body of a ``WHILE`` runs; 1 where that cannot be told.

    Args:
        operator: The loop.
        tensors: Of the list that it is in.
        condition: What says whether it goes on.
        body: What it repeats.
    """
    found = []
    for compared in condition.operators:
        if compared.code not in _COMPARISONS or len(compared.inputs) != 2:
            continue
        counter, limit = compared.inputs[0], _first(condition.tensors, compared.inputs[1])
        if counter not in condition.inputs or limit is None:
            continue
        place = condition.inputs.index(counter)
        first = _first(tensors, operator.inputs[place]) if place < len(operator.inputs) else None
        by = _growth(body, place)
        sign, also = _COMPARISONS[compared.code]
        if first is None or by is None or sign * by <= 0:
            continue
        distance = sign * (limit - first) + also
        found.append(max(0, -(-distance // abs(by))))
    return min([*found, _LONGEST]) if found else 1


def start(operator: FileOperator, tensors: Sequence[FileTensor]) -> int:
    """Return the constant that the first carried value starts at, or 0."""
    return (_first(tensors, operator.inputs[0]) if operator.inputs else None) or 0


def _first(tensors: Sequence[FileTensor], place: int) -> int | None:
    """Return the first number of a constant of integers."""
    tensor = tensors[place] if place >= 0 else None
    if tensor is None or not tensor.constant or tensor.dtype not in {"int32", "int64"}:
        return None
    return int(tensor.values().reshape(-1)[0]) if tensor.n_elements else None


def _growth(body: FileGraph, place: int) -> int | None:
    """Return what a carried value grows by at each step, where that is a constant."""
    if not (place < len(body.inputs) and place < len(body.outputs)):
        return None
    for operator in body.operators:
        if (
            operator.code == "ADD"
            and operator.outputs == (body.outputs[place],)
            and len(operator.inputs) == 2
        ):
            x, y = operator.inputs
            if body.inputs[place] in (x, y):
                return _first(body.tensors, y if x == body.inputs[place] else x)
    return None
