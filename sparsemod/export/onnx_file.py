"""Writes a network as ONNX: of real numbers, or of the integers of the `.tflite` between real ones (QDQ).

    write_onnx(lower(net, example, scheme="none"))
    write_onnx_qdq(quantize_graph(lower(net, example), [samples]))

Both take and return what the PyTorch network does, one sample at a time. In a QDQ file every weight is stored
as int8 and every tensor is rounded to the grid it has in the `.tflite` file, by pairs of QuantizeLinear and
DequantizeLinear. Needs the package `onnx` (extra ``onnx``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparsemod.compress.fakequant import QParams
from sparsemod.compress.fixed_point import Rescaling
from sparsemod.compress.quantized_graph import QuantizedGraph, QuantizedOperator
from sparsemod.export.onnx_nodes import Nodes, Permutation, Weights, package
from sparsemod.export.onnx_operators import emit
from sparsemod.export.tflite import Description
from sparsemod.measure.graph import Operator, OperatorGraph, Port

__all__ = ["write_onnx", "write_onnx_qdq"]

_OPSET, _IR_VERSION = 17, 8
_RESCALED = {"conv_2d", "depthwise_conv_2d", "fully_connected", "mul", "mean", "sum"}
_LSTM = "unidirectional_sequence_lstm"


def write_onnx(graph: OperatorGraph, description: Description | None = None) -> bytes:
    """Return an ONNX file that computes in float32.

    Args:
        graph: From `sparsemod.measure.operators.lower` with scheme ``none``.
        description: Stored with it as metadata.

    Raises:
        ConfigError: The package onnx is not installed.
        UnsupportedOperatorError: Names operator and module of what cannot be written.
    """
    nodes = Nodes()
    values = {port.tensor: _arranged(nodes, f"input_{i}", port, graph) for i, port in _numbered(graph)}
    for operator in graph.operators:
        xs, shapes = _inputs(operator, values, graph)
        made = graph.tensors[operator.outputs[0]].shape
        values[operator.outputs[0]] = emit(nodes, operator, xs, _real(nodes, operator), shapes, made)
    return _file(nodes, graph, values, description)


def write_onnx_qdq(quantized: QuantizedGraph, description: Description | None = None) -> bytes:
    """Return an ONNX file with the grids and the int8 weights of the `.tflite` file.

    Args:
        quantized: From `sparsemod.compress.graph_quantization.quantize_graph`.
        description: Stored with it as metadata.

    Raises:
        ConfigError: The package onnx is not installed.
        UnsupportedOperatorError: Names operator and module of what cannot be written.
    """
    nodes, graph = Nodes(), quantized.graph
    values = {}
    for i, port in _numbered(graph):
        x = _arranged(nodes, f"input_{i}", port, graph)
        values[port.tensor] = _rounded(nodes, x, quantized.grid(port.tensor))
    _emit_quantized(nodes, quantized, values)
    return _file(nodes, graph, values, description)


def _emit_quantized(nodes: Nodes, quantized: QuantizedGraph, values: dict[int, str]) -> None:
    for held in quantized.operators:
        operator = held.operator
        if held.body is not None:
            found = _loop(nodes, held, held.body, values[operator.inputs[0]])
            for i, name in found.items():
                values[i] = nodes.reshaped(name, quantized.graph.tensors[i].shape)
            continue
        xs, shapes = _inputs(operator, values, quantized.graph)
        out = operator.outputs[0]
        weights = _stored(nodes, held, quantized.grids[operator.inputs[0]])
        made = quantized.graph.tensors[out].shape
        if operator.kind == _LSTM:
            values[out] = _lstm(nodes, held, weights, xs[0], quantized.grid(out), made)
        elif held.table is not None:
            grids = quantized.grid(operator.inputs[0]), quantized.grid(out)
            values[out] = _looked_up(nodes, held.table, xs[0], *grids)
        else:
            y = emit(nodes, operator, xs, weights, shapes, made)
            if operator.kind == "average_pool_2d":
                y = _halves_from_stored_zero(nodes, y, quantized.grid(out))
            elif operator.kind in _RESCALED:
                y = _rounded_twice(nodes, y, quantized.grid(out), held.rescalings[0])
            values[out] = _rounded(nodes, y, quantized.grid(out))


def _inputs(operator: Operator, values: dict[int, str], graph: OperatorGraph) -> tuple[list[str], Any]:
    return [values[i] for i in operator.inputs], [graph.tensors[i].shape for i in operator.inputs]


def _real(nodes: Nodes, operator: Operator) -> Weights:
    def value(i: int, permutation: Permutation | None) -> str:
        values = operator.weights[i].values.astype(np.float32)
        return nodes.constants.name(values if permutation is None else values.transpose(permutation))

    def bias(i: int) -> str:
        values = operator.weights[i].bias
        return "" if values is None else nodes.constants.name(values.astype(np.float32))

    return Weights(value, bias)


def _stored(nodes: Nodes, held: QuantizedOperator, source: QParams | None) -> Weights:
    def value(i: int, permutation: Permutation | None) -> str:
        stored = held.weights[i]
        values, axis = stored.values, stored.axis
        if permutation is not None:
            values, axis = values.transpose(permutation), None if axis is None else permutation.index(axis)
        many = len(stored.scales) > 1
        zero = np.full(len(stored.scales), stored.zero_point, np.int8)
        parameters = (stored.scales, zero) if many else (stored.scales[0], zero[0])
        names = [nodes.constants.name(np.asarray(part)) for part in (values, *parameters)]
        return nodes.add("DequantizeLinear", *names, axis=(axis or 0) if many else 0)

    def bias(i: int) -> str:
        stored = held.weights[i]
        if stored.bias is None or source is None:
            return ""
        scales = np.float32(source.scale) * stored.scales
        scales = np.broadcast_to(scales, stored.bias.shape) if len(scales) == 1 else scales
        zero = np.zeros(len(scales), np.int32)
        names = [nodes.constants.name(part) for part in (stored.bias, scales.astype(np.float32), zero)]
        return nodes.add("DequantizeLinear", *names, axis=0)

    return Weights(value, bias)


def _parameters(nodes: Nodes, grid: QParams) -> tuple[str, str]:
    scale = nodes.constants.name(np.array(grid.scale, np.float32))
    return scale, nodes.constants.name(np.array(grid.zero_point, np.int8))


def _rounded(nodes: Nodes, x: str, grid: QParams) -> str:
    parameters = _parameters(nodes, grid)
    return nodes.add("DequantizeLinear", nodes.add("QuantizeLinear", x, *parameters), *parameters)


def _looked_up(nodes: Nodes, table: NDArray[np.int8], x: str, source: QParams, out: QParams) -> str:
    """Add an operator of one value as the table that the interpreter has for it."""
    stored = nodes.add("QuantizeLinear", x, *_parameters(nodes, source))
    wide = nodes.add("Cast", stored, to=package().TensorProto.INT32)
    at = nodes.add("Add", wide, nodes.constants.name(np.array(128, np.int32)))
    found = nodes.add("Gather", nodes.constants.name(table), at)
    return nodes.add("DequantizeLinear", found, *_parameters(nodes, out))


def _halves_from_stored_zero(nodes: Nodes, x: str, grid: QParams) -> str:
    """Move averages away from the stored zero by less than any two of them differ.

    The interpreter rounds halves, of which averages have many, away from it; QuantizeLinear rounds to even.
    """
    stored = nodes.add("Add", x, nodes.floats(grid.zero_point * grid.scale))
    return nodes.add("Add", x, nodes.add("Mul", nodes.add("Sign", stored), nodes.floats(grid.scale * 2**-10)))


def _rounded_twice(nodes: Nodes, x: str, grid: QParams, factor: Rescaling) -> str:
    """Move sums away from zero by what the interpreter's first rounding, to few bits below a step, can."""
    shares = np.where(factor.shift < 0, 2.0 ** (np.minimum(factor.shift, 0) - 1.0), 0.0)
    steps = nodes.constants.name((shares * grid.scale).astype(np.float32))
    return nodes.add("Add", x, nodes.add("Mul", nodes.add("Sign", x), steps))


def _scan(
    nodes: Nodes,
    body: Nodes,
    states: Sequence[tuple[str, str, tuple[int, ...]]],
    step: tuple[str, int],
    out: tuple[str, int],
    x: str,
    reverse: bool,
) -> str:
    """Add a loop over the rows of a matrix; return its first result: last states, then rows that were made.

    Args:
        nodes: Where it is added.
        body: Its nodes.
        states: Name before a step, name behind it and shape of each state, which starts at zero.
        step: Name of the row within the body, and its length.
        out: Name of the row that a step makes, and its length.
        x: The matrix.
        reverse: Begin with the last row.
    """
    onnx = package()
    info = onnx.helper.make_tensor_value_info
    kind = onnx.TensorProto.FLOAT
    graph = onnx.helper.make_graph(
        body.nodes,
        "step",
        [*(info(before, kind, shape) for before, _, shape in states), info(step[0], kind, (step[1],))],
        [*(info(behind, kind, shape) for _, behind, shape in states), info(out[0], kind, (out[1],))],
    )
    starts = [nodes.constants.name(np.zeros(shape, np.float32)) for _, _, shape in states]
    directions = {f"scan_{what}_directions": [int(reverse)] for what in ("input", "output")}
    return nodes.add(
        "Scan", *starts, x, n_outputs=len(states) + 1, body=graph, num_scan_inputs=1, **directions
    )


def _lstm(
    nodes: Nodes, held: QuantizedOperator, weights: Weights, x: str, grid: QParams, made: tuple[int, ...]
) -> str:
    """Add an LSTM whose state lies on its grid after each step, gates and cell on theirs of 16 bits."""
    size = held.operator.attributes["hidden_size"]
    n_features = held.operator.weights[0].values.shape[1]
    names = [(weights.value(i, None), weights.value(4 + i, None), weights.bias(i)) for i in range(4)]
    body = nodes.child()
    before = [body.add("Identity", name) for name in ("h", "c")]
    body.nodes.clear()
    row = body.add("Identity", "row")
    body.nodes.clear()
    h, c = before
    xs = body.reshaped(row, (1, n_features))
    gates = []
    for w, u, b in names:
        total = body.add("Gemm", xs, w, *filter(None, [b]), transB=1)
        total = body.add("Add", total, body.add("Gemm", h, u, transB=1))
        gates.append(_on_grid(body, total, 2.0**-12))
    enter, forget, output = (body.add("Sigmoid", gates[i]) for i in (0, 1, 3))
    entered = body.add("Mul", enter, body.add("Tanh", gates[2]))
    scale = held.cell.scale if held.cell is not None else 2.0**-15
    parts = (_on_grid(body, part, scale) for part in (body.add("Mul", forget, c), entered))
    cell = body.add("Add", *parts)
    state = _rounded(body, body.add("Mul", output, body.add("Tanh", cell)), grid)
    out = body.reshaped(state, (size,))
    states = [(h, state, (1, size)), (c, cell, (1, size))]
    rows = nodes.reshaped(x, (-1, n_features))
    name = _scan(nodes, body, states, (row, n_features), (out, size), rows, reverse=False)
    return nodes.reshaped(f"{name}_2", made)


def _on_grid(nodes: Nodes, x: str, scale: float) -> str:
    steps = nodes.add("Round", nodes.add("Div", x, nodes.floats(scale)))
    return nodes.add("Mul", steps, nodes.floats(scale))


def _loop(nodes: Nodes, held: QuantizedOperator, body: QuantizedGraph, x: str) -> dict[int, str]:
    """Add a ``while`` over the steps of a sequence as a loop over rows."""
    operator, inner = held.operator, body.graph
    n_steps, n_features = inner.tensors[inner.inputs[1]].shape
    size = inner.tensors[inner.inputs[2]].shape[1]
    child = nodes.child()
    state, row = (child.add("Identity", name) for name in ("h", "row"))
    child.nodes.clear()
    values = {inner.inputs[2]: state}
    kept = []
    for part in body.operators:
        kind = part.operator.kind
        if kind == "slice":
            values[part.operator.outputs[0]] = child.reshaped(row, (1, n_features))
        elif kind not in {"count", "dynamic_update_slice"}:
            kept.append(part)
    _emit_quantized(child, QuantizedGraph(inner, body.grids, tuple(kept)), values)
    behind = values[inner.outputs[2]]
    out = child.reshaped(behind, (size,))
    rows = nodes.reshaped(x, (n_steps, n_features))
    reverse = operator.attributes["start"] != 0
    name = _scan(nodes, child, [(state, behind, (1, size))], (row, n_features), (out, size), rows, reverse)
    shaped = {operator.outputs[2]: name}
    if operator.attributes["all_states"]:
        shaped[operator.outputs[3]] = f"{name}_1"
    return shaped


def _numbered(graph: OperatorGraph) -> list[tuple[int, Port]]:
    return list(enumerate(graph.input_ports))


def _arranged(nodes: Nodes, name: str, port: Port, graph: OperatorGraph) -> str:
    x = name if port.split == port.shape else nodes.reshaped(name, port.split)
    arranged = nodes.transposed(x, port.permutation)
    return nodes.reshaped(arranged, graph.tensors[port.tensor].shape)


def _restored(nodes: Nodes, x: str, port: Port) -> str:
    x = nodes.reshaped(x, [port.split[i] for i in port.permutation])
    return nodes.reshaped(nodes.transposed(x, [int(i) for i in np.argsort(port.permutation)]), port.shape)


def _file(
    nodes: Nodes, graph: OperatorGraph, values: dict[int, str], description: Description | None
) -> bytes:
    onnx = package()
    kinds = {"int32": onnx.TensorProto.INT32}
    info = onnx.helper.make_tensor_value_info
    inputs = [
        info(f"input_{i}", kinds.get(graph.tensors[port.tensor].dtype, onnx.TensorProto.FLOAT), port.shape)
        for i, port in _numbered(graph)
    ]
    outputs = []
    for i, port in enumerate(graph.output_ports):
        name = _restored(nodes, values[port.tensor], port)
        nodes.nodes.append(onnx.helper.make_node("Identity", [name], [f"output_{i}"]))
        outputs.append(info(f"output_{i}", onnx.TensorProto.FLOAT, port.shape))
    constants = [
        onnx.numpy_helper.from_array(values, name) for name, values in nodes.constants.arrays.items()
    ]
    model = onnx.helper.make_model(
        onnx.helper.make_graph(nodes.nodes, "network", inputs, outputs, constants),
        opset_imports=[onnx.helper.make_opsetid("", _OPSET)],
        ir_version=_IR_VERSION,
        producer_name="sparsemod",
    )
    if description is not None:
        onnx.helper.set_model_props(model, {"sparsemod": description.to_json()})
    onnx.checker.check_model(model)
    content: bytes = model.SerializeToString(deterministic=True)
    return content
