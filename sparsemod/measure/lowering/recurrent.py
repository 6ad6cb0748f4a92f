"""Recurrent layers: each layer and direction is one operator over the whole sequence."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparsemod.measure.graph import Weight
from sparsemod.measure.layout import Axes, Axis, Layout, sizes
from sparsemod.measure.lowering.builder import Builder, Handler, array
from sparsemod.measure.lowering.drafts import Bound, Parts
from sparsemod.measure.lowering.matrix import columns_last
from sparsemod.measure.lowering.other import lower_other
from sparsemod.measure.values import Node, Value

__all__ = ["GATES", "HANDLERS"]

KINDS = {
    "lstm": "unidirectional_sequence_lstm",
    "gru": "gru",
    "rnn_tanh": "unidirectional_sequence_rnn",
    "rnn_relu": "unidirectional_sequence_rnn",
}
GATES = {  # in PyTorch's order, which for the LSTM is TensorFlow Lite's, too
    "lstm": ("input", "forget", "cell", "output"),
    "gru": ("reset", "update", "new"),
    "rnn_tanh": ("state",),
    "rnn_relu": ("state",),
}


def _recurrent(builder: Builder, node: Node) -> None:
    """Lower lstm, gru, rnn_tanh and rnn_relu of padded (B, T, F), (T, B, F) or packed (T, F) sequences."""
    a, op = node.arguments, node.op
    packed = "batch_sizes" in a
    source: Value = a["data"] if packed else a["input"]
    hx = a["hx"] if isinstance(a["hx"], list) else [a["hx"]]
    per_layer = (4 if a["has_biases"] else 2) + (
        1 if op == "lstm" and hx[0].shape[-1] != hx[-1].shape[-1] else 0
    )
    n_directions = 2 if a["bidirectional"] else 1
    if (
        source.data is not None
        or any(p.data is None for p in a["params"])
        or any(h.data is None or bool(h.data.any()) for h in hx)
        or per_layer not in {2, 4}
    ):
        n_steps = prod(source.shape[:-1])
        lower_other(
            builder, node, n_macs=n_steps * sum(prod(p.shape) for p in a["params"] if len(p.shape) == 2)
        )
        return
    bound = builder.get(source)
    dims = bound.layout.dims
    time_major = packed or not a["batch_first"]
    if packed:
        dims = ((), *dims)
    elif time_major:
        dims = (dims[1], dims[0], dims[2])
    bound = Bound(bound.tensor, Layout(dims, bound.layout.order))
    finals = []
    for layer in range(a["num_layers"]):
        outputs = []
        for direction in range(n_directions):
            i = (layer * n_directions + direction) * per_layer
            output = _layer(builder, node, bound, a["params"][i : i + per_layer], op, direction == 1)
            outputs.append(output)
            finals.append(output)
        bound = outputs[0] if n_directions == 1 else _joined(builder, node, outputs)
    out = node.outputs[0]
    dims = bound.layout.dims
    dims = dims[1:] if packed else (dims[1], dims[0], dims[2]) if time_major else dims
    builder.bind(out, Bound(bound.tensor, Layout(dims, bound.layout.order)))
    builder.bind(
        node.outputs[1], Parts(tuple(_final(builder, node, x, i, n_directions) for i, x in enumerate(finals)))
    )
    if op == "lstm" and node.outputs[2] is not None:
        builder.bind(node.outputs[2], Parts(tuple(_cell_state(builder, node, x) for x in finals)))


def _layer(builder: Builder, node: Node, bound: Bound, params: list[Value], op: str, reverse: bool) -> Bound:
    """Add one layer in one direction over (B, T, F)."""
    gates = GATES[op]
    matrices = [array(p) for p in params[:2]]
    size = matrices[1].shape[1]
    vectors: list[NDArray[Any] | None] = [array(p) for p in params[2:]] or [None, None]
    bound, columns = columns_last(builder, node, bound)
    batch, time, features = bound.layout.dims
    rows = bound.layout.order[: len(bound.layout.order) - len(features)]
    if rows != (*batch, *time):
        bound = builder.arranged(node, bound, (*batch, *time, *features))
        columns = np.arange(matrices[0].shape[1])
    n_batch, n_steps = prod(sizes(batch)), prod(sizes(time))
    tensor = builder.shaped(node, bound.tensor, (n_batch, n_steps, matrices[0].shape[1]))
    names = [p.source or f"{node.module or op}.weight{i}" for i, p in enumerate(params[:2])]
    output = builder.emit(
        node,
        KINDS[op],
        [tensor],
        (n_batch, n_steps, size),
        weights=_weights(gates, names, matrices[0][:, columns], matrices[1], vectors[0], vectors[1], op),
        attributes={
            "hidden_size": size,
            "reverse": reverse,
            "activation": "relu" if op == "rnn_relu" else "tanh",
        },
        n_macs=n_batch * n_steps * sum(matrix.size for matrix in matrices),
    )
    hidden: Axes = (Axis(size),) if size > 1 else ()
    return Bound(output, Layout((batch, time, hidden), (*batch, *time, *hidden)))


def _weights(
    gates: tuple[str, ...],
    names: list[str],
    inputs: NDArray[Any],
    hidden: NDArray[Any],
    input_bias: NDArray[Any] | None,
    hidden_bias: NDArray[Any] | None,
    op: str,
) -> list[Weight]:
    """Split the stacked matrices by gate: first all from the input, then all from the state.

    The two biases of a gate are one, except in the GRU's new gate, whose second is scaled by the reset gate.
    """
    size = hidden.shape[1]
    from_input, from_state = [], []
    for i, gate in enumerate(gates):
        part = slice(i * size, (i + 1) * size)
        apart = op == "gru" and gate == "new"
        first = second = None
        if input_bias is not None and hidden_bias is not None:
            first = input_bias[part].copy() if apart else input_bias[part] + hidden_bias[part]
            second = hidden_bias[part].copy() if apart else None
        from_input.append(Weight(f"{names[0]}.{gate}", inputs[part].copy(), first, axis=None))
        from_state.append(Weight(f"{names[1]}.{gate}", hidden[part].copy(), second, axis=None))
    return from_input + from_state


def _joined(builder: Builder, node: Node, outputs: list[Bound]) -> Bound:
    tensors = [output.tensor for output in outputs]
    *outer, size = builder.tensors[tensors[0]].shape
    axis = (Axis(2 * size),)
    joined = builder.emit(node, "concatenation", tensors, (*outer, 2 * size), attributes={"axis": 2})
    batch, time, _ = outputs[0].layout.dims
    return Bound(joined, Layout((batch, time, axis), (*batch, *time, *axis)))


def _final(builder: Builder, node: Node, output: Bound, index: int, n_directions: int) -> Any:
    """Return what makes the last state of a layer: its output at the last step, the first one in reverse."""
    n_steps = output.layout.shape[1]
    step = 0 if index % n_directions else n_steps - 1
    made: list[Bound] = []

    def make() -> Bound:
        if not made:
            last = builder.sliced(node, output, 1, step, step + 1)
            batch, _, hidden = last.layout.dims
            made.append(Bound(last.tensor, Layout((batch, hidden), last.layout.order)))
        return made[0]

    return make


def _cell_state(builder: Builder, node: Node, output: Bound) -> Any:
    """Return what gives the operator the last cell state as a second output, which no runtime here has."""
    made: list[Bound] = []

    def make() -> Bound:
        if not made:
            draft = builder.writer[output.tensor]
            batch, _, hidden = output.layout.dims
            shape = (prod(sizes(batch)), prod(sizes(hidden)))
            tensor = builder.add_tensor(f"{node.module or 'lstm'}:cell_state", shape, "float32")
            draft.kind = "other:lstm_cell_state"
            draft.outputs.append(tensor)
            builder.writer[tensor] = draft
            made.append(Bound(tensor, Layout((batch, hidden), (*batch, *hidden))))
        return made[0]

    return make


HANDLERS: dict[str, Handler] = dict.fromkeys(GATES, _recurrent)
