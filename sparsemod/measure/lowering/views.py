"""Operations that only regroup the dimensions of a tensor: they cost nothing where the memory allows it."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

from sparsemod.measure.layout import Layout
from sparsemod.measure.lowering.builder import Builder, Handler
from sparsemod.measure.lowering.drafts import Bound, Parts
from sparsemod.measure.lowering.other import dtype_of, lower_other
from sparsemod.measure.values import Node, Value

__all__ = ["HANDLERS", "regrouped"]

_RESHAPES = {
    "view",
    "_unsafe_view",
    "reshape",
    "_reshape_alias",
    "flatten",
    "unflatten",
    "squeeze",
    "unsqueeze",
    "_pad_packed_sequence",
    "_pack_padded_sequence",
}
_IDENTITIES = {
    "alias",
    "clone",
    "contiguous",
    "detach",
    "dropout",
    "feature_dropout",
    "alpha_dropout",
    "native_dropout",
    "lift_fresh",
    "_to_copy",
    "positive",
    "view_as",
}


def _transposition(node: Node, rank: int) -> list[int]:
    order = list(range(rank))
    if node.op == "t":
        return order[::-1]
    i, j = node.arguments["dim0"], node.arguments["dim1"]
    order[i], order[j] = order[j], order[i]
    return order


def _output_shape(node: Node) -> tuple[int, ...]:
    value = node.outputs[0]
    return () if value is None else value.shape


def regrouped(node: Node, layout: Layout) -> Layout | None:
    """Return the layout of a view of a tensor, or None where elements have to be moved for it.

    Raises:
        KeyError: The operation is not one that only regroups.
    """
    return _REGROUP[node.op](node, layout)


def _channel_shuffle(node: Node, layout: Layout) -> Layout | None:
    n, c, *rest = layout.shape
    groups = node.arguments["groups"]
    layouts = layout.reshaped((n, groups, c // groups, *rest))
    if layouts is None:
        return None
    shuffled = layouts.permuted([0, 2, 1, *range(3, len(rest) + 3)])
    dims = (shuffled.dims[0], shuffled.dims[1] + shuffled.dims[2], *shuffled.dims[3:])
    return Layout(dims, shuffled.order)


_REGROUP: dict[str, Callable[[Node, Layout], Layout | None]] = {
    **dict.fromkeys(_RESHAPES, lambda node, layout: layout.reshaped(_output_shape(node))),
    **dict.fromkeys(_IDENTITIES, lambda node, layout: layout),
    **dict.fromkeys(
        ("t", "transpose"), lambda node, layout: layout.permuted(_transposition(node, len(layout.dims)))
    ),
    "permute": lambda node, layout: layout.permuted([int(d) for d in node.arguments["dims"]]),
    "channel_shuffle": _channel_shuffle,
    "native_channel_shuffle": _channel_shuffle,
}


def _source(node: Node) -> Value:
    value: Any = node.arguments.get("self", node.arguments.get("input", node.arguments.get("data")))
    if not isinstance(value, Value):
        raise TypeError(f"{node.op} without a tensor to view")
    return value


def _lower(builder: Builder, node: Node) -> None:
    source = _source(node)
    out = node.outputs[0]
    if out is not None and dtype_of(out) != dtype_of(source):
        lower_other(builder, node, name="cast")
        return
    raw = builder.raw(source)
    if isinstance(raw, Parts) and node.op in _IDENTITIES:
        builder.bind(node.outputs[0], raw)
        return
    bound = builder.get(source)
    if prod(_output_shape(node)) > prod(bound.layout.shape):  # padded beyond the longest sequence
        lower_other(builder, node)
        return
    if prod(_output_shape(node)) < prod(bound.layout.shape):
        bound = _first_steps(builder, node, bound)
    layout = regrouped(node, bound.layout)
    if layout is None:
        bound = builder.canonical(node, bound)
        layout = regrouped(node, bound.layout)
    if layout is None:
        raise RuntimeError(
            f"{node.op} from {bound.layout.shape} to {_output_shape(node)} cannot be expressed"
        )
    builder.bind(node.outputs[0], Bound(bound.tensor, layout))


def _first_steps(builder: Builder, node: Node, bound: Bound) -> Bound:
    """Cut a padded sequence to its length when it is packed (batch size 1)."""
    time = 1 if node.arguments.get("batch_first") else 0
    return builder.sliced(node, bound, time, 0, _output_shape(node)[0])


HANDLERS: dict[str, Handler] = dict.fromkeys(_REGROUP, _lower)
