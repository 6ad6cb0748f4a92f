"""Recognise the recorded calls when a network runs again."""

from __future__ import annotations

from collections.abc import Iterable

from sparsemod.compress.calls import Call
from sparsemod.compress.roles import is_keep
from sparsemod.compress.trace import Node, out_of_step
from sparsemod.compress.values import tensors_in

__all__ = ["Cursor", "Positions", "moves_elements", "positions_of"]

Positions = tuple[tuple[int, str], ...]


class Cursor:
    """Tells which recorded call comes next in a pass.

    Operators that only move elements are left out of the comparison, so that a packed sequence may be sorted
    or not, a sequence sliced or padded in other ways.

    Args:
        positions: From `positions_of`.
    """

    def __init__(self, positions: Positions) -> None:
        self._positions = positions
        self._next = 0

    def advance(self, op: str) -> int:
        """Return the position of the call, which must have this name.

        Raises:
            CandidateError: The recorded one had another.
        """
        place = self._next
        position, expected = (
            self._positions[place] if place < len(self._positions) else (-1, "the end of the network")
        )
        if op != expected:
            raise out_of_step(place, op, expected)
        self._next += 1
        return position


def moves_elements(call: Call) -> bool:
    """Tell whether a call only moves elements of values, so that its results keep their grid, if any.

    A constant table that is indexed by a value is another matter: what it gives must be rounded.
    """
    if not is_keep(call.op, call.args, call.kwargs):
        return False
    if any(x.is_floating_point() for x in call.inputs):
        return True
    return not any(x.is_floating_point() for x in tensors_in((call.args, call.kwargs)))


def positions_of(nodes: Iterable[Node]) -> Positions:
    """Return position and name of the recorded calls that a pass must repeat in order."""
    return tuple(
        (position, node.op)
        for position, node in enumerate(nodes)
        if not (is_keep(node.op, node.args, node.kwargs) and (node.inputs or not node.outputs))
    )
