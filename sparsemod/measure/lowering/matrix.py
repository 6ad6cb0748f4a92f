"""Matrix products: fully connected layers, products of two activations, attention, embeddings."""

from __future__ import annotations

from math import prod, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparsemod.measure.graph import Weight
from sparsemod.measure.layout import Axis, Layout, position, sizes
from sparsemod.measure.lowering.builder import Builder, Handler, array, constant
from sparsemod.measure.lowering.drafts import Bound
from sparsemod.measure.lowering.other import lower_other
from sparsemod.measure.values import Node, Value

__all__ = ["HANDLERS", "columns_last", "fully_connected"]


def columns_last(builder: Builder, node: Node, bound: Bound) -> tuple[Bound, NDArray[np.intp]]:
    """Put the last dimension innermost in memory, its axes in any order.

    Returns:
        The value, and the permutation of a matrix's columns that makes up for the order of the axes.
    """
    columns = bound.layout.dims[-1]
    tail = bound.layout.order[len(bound.layout.order) - len(columns) :]
    if set(tail) != set(columns):
        rows = tuple(axis for axis in bound.layout.order if axis not in columns)
        bound, tail = builder.arranged(node, bound, (*rows, *columns)), columns
    return bound, position(columns, tail)


def fully_connected(
    builder: Builder, node: Node, bound: Bound, matrix: NDArray[Any], bias: NDArray[Any] | None, name: str
) -> Bound:
    """Add ``x @ matrix.T + bias`` over the last dimension of a value.

    Args:
        builder: The operator list.
        node: The operation.
        bound: The value, (..., K) in PyTorch.
        matrix: (O, K).
        bias: (O,) or None.
        name: Name of the weight.
    """
    n_outputs, n_inputs = matrix.shape
    bound, columns = columns_last(builder, node, bound)
    rows = bound.layout.order[: len(bound.layout.order) - len(bound.layout.dims[-1])]
    shape, n_rows = builder.tensors[bound.tensor].shape, prod(sizes(rows))
    keeps = shape[-1] == n_inputs
    weight = Weight(name, np.array(matrix[:, columns], np.float32), None if bias is None else bias.copy())
    output = builder.emit(
        node,
        "fully_connected",
        [bound.tensor],
        (*shape[:-1], n_outputs) if keeps else (n_rows, n_outputs),
        weights=[weight],
        n_macs=n_rows * matrix.size,
    )
    last = (Axis(n_outputs),) if n_outputs > 1 else ()
    return Bound(output, Layout((*bound.layout.dims[:-1], last), (*rows, *last)))


def _linear(builder: Builder, node: Node) -> None:
    a = node.arguments
    weight, bias = a["weight"], a["bias"]
    if weight.data is None or a["input"].data is not None or (bias is not None and bias.data is None):
        lower_other(builder, node, n_macs=prod(a["input"].shape) * weight.shape[0])
        return
    name = weight.source or f"{node.module}.weight"
    vector = None if bias is None else array(bias)
    bound = fully_connected(builder, node, builder.get(a["input"]), array(weight), vector, name)
    builder.bind(node.outputs[0], bound)


def _matrix_product(builder: Builder, node: Node) -> None:
    """Lower mm, addmm, bmm, baddbmm and mv-like products."""
    a = node.arguments
    left: Value = a.get("mat1") or a.get("batch1") or a["self"]
    right: Value = a.get("mat2") or a.get("batch2") or a["other" if "other" in a else "mat2"]
    added: Value | None = a["self"] if node.op in {"addmm", "baddbmm"} else None
    constants = right.data is not None and (added is None or added.data is not None)
    scaled = float(a.get("alpha") or 1) != 1 or float(a.get("beta") or 1) != 1
    n_macs = prod(left.shape) * right.shape[-1]
    if left.data is None and constants and len(right.shape) == 2 and not scaled:
        bias = None if added is None else np.broadcast_to(array(added).reshape(-1), (right.shape[1],))
        name = right.source or f"{node.module or node.op}.weight"
        bound = fully_connected(builder, node, builder.get(left), array(right).T, bias, name)
        builder.bind(node.outputs[0], bound)
    elif added is None and (left.data is None or right.data is None):
        builder.bind(node.outputs[0], product(builder, node, left, right))
    else:
        lower_other(builder, node, n_macs=n_macs)


def product(builder: Builder, node: Node, left: Value | Bound, right: Value | Bound) -> Bound:
    """Add a batch matrix product of (..., M, K) and (..., K, N), at most one of them constant."""
    attributes: dict[str, Any] = {"adj_x": False, "adj_y": False, "constant": None}
    tensors, weights, layouts = [], [], []
    for key, flag, operand in (("x", "adj_x", left), ("y", "adj_y", right)):
        if isinstance(operand, Value) and operand.data is not None:
            attributes["constant"] = key
            weights.append(constant(array(operand), operand.source or f"{node.module or node.op}.constant"))
            layouts.append(Layout.of(operand.shape))
            continue
        bound = builder.get(operand) if isinstance(operand, Value) else operand
        batch = tuple(axis for axes in bound.layout.dims[:-2] for axis in axes)
        rows, columns = bound.layout.dims[-2:]
        attributes[flag] = bool(rows) and bound.layout.order[-1] == rows[-1]
        order = (*batch, *columns, *rows) if attributes[flag] else (*batch, *rows, *columns)
        bound = builder.arranged(node, bound, order)
        n, m = prod(sizes(rows)), prod(sizes(columns))
        wanted = (prod(sizes(batch)), *((m, n) if attributes[flag] else (n, m)))
        tensors.append(builder.shaped(node, bound.tensor, wanted))
        layouts.append(bound.layout)
    dims = (*layouts[0].dims[:-1], layouts[1].dims[-1])
    layout = Layout.of([prod(sizes(axes)) for axes in dims])
    *outer, n, m = layout.shape
    output = builder.emit(
        node,
        "batch_matmul",
        tensors,
        (prod(outer), n, m),
        weights=weights,
        attributes=attributes,
        n_macs=prod(layout.shape) * layouts[0].shape[-1],
    )
    return Bound(output, layout)


def _attention(builder: Builder, node: Node) -> None:
    """Lower scaled dot-product attention without a mask to two products and a softmax."""
    a = node.arguments
    query, key, value = a["query"], a["key"], a["value"]
    n_macs = prod(query.shape) * key.shape[-2] + prod(query.shape[:-1]) * prod(value.shape[-2:])
    batches = {tuple(x.shape[:-2]) for x in (query, key, value)}
    if a["attn_mask"] is not None or a["is_causal"] or len(batches) > 1 or a.get("enable_gqa"):
        lower_other(builder, node, n_macs=n_macs)
        return
    bound = builder.get(key)
    swapped = [*range(len(key.shape) - 2), len(key.shape) - 1, len(key.shape) - 2]
    scores = product(builder, node, query, Bound(bound.tensor, bound.layout.permuted(swapped)))
    scale = float(a["scale"]) if a.get("scale") is not None else 1 / sqrt(query.shape[-1])
    factor = constant(np.array([scale]), f"{node.module or 'attention'}.scale")
    shape = builder.tensors[scores.tensor].shape
    scaled = builder.emit(node, "mul", [scores.tensor], shape, weights=[factor], attributes={"constant": "y"})
    shares = builder.emit(node, "softmax", [scaled], shape, attributes={"beta": 1.0})
    builder.bind(node.outputs[0], product(builder, node, Bound(shares, scores.layout), value))


def _embedding(builder: Builder, node: Node) -> None:
    weight, indices, out = node.arguments["weight"], node.arguments["indices"], node.outputs[0]
    if weight.data is None or indices.data is not None or out is None:
        lower_other(builder, node)
        return
    bound = builder.canonical(node, builder.get(indices))
    table = constant(array(weight), weight.source or f"{node.module}.weight")
    output = builder.emit(node, "gather", [bound.tensor], out.shape, weights=[table], attributes={"axis": 0})
    last = (Axis(out.shape[-1]),) if out.shape[-1] > 1 else ()
    builder.bind(out, Bound(output, Layout((*bound.layout.dims, last), (*bound.layout.order, *last))))


HANDLERS: dict[str, Handler] = {
    "linear": _linear,
    "mm": _matrix_product,
    "addmm": _matrix_product,
    "bmm": _matrix_product,
    "baddbmm": _matrix_product,
    "scaled_dot_product_attention": _attention,
    "embedding": _embedding,
}
