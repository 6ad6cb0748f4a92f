"""Flash that the constants of a C bundle take: what the linked program holds, to the byte.

All constants of a network are one object: first the numbers of 32 bits, then those of 16, then bytes, and up
to three bytes that fill the last word.

- Values, n of them of which n_nz are not zero, each shared weight once: n bytes, or ceil(n / 8) + n_nz (a
  bitmap and the non-zeros) where that is less and a sparse kernel can take them: a convolution, a matrix, a
  gate of a recurrent layer.
- Biases, 4 bytes an output channel: every product with a weight has them, as the input's zero point is folded
  into them.
- Rescalings, 5 bytes (an int32 multiplier and an int8 shift) for each scale of a convolution or a matrix,
  which is one an output channel, or one in all in a recurrent layer; those of an LSTM are in the code.
- Tables, 256 bytes for each function of one value, and 512 in all for what the LSTMs of a network look up.

float32 values and biases take 4 bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from sparsemod.measure.graph import Operator, OperatorGraph, Weight
from sparsemod.measure.interpreted import interpreted
from sparsemod.measure.sizes import n_nonzero_int8
from sparsemod.measure.sparse import can_be_sparse, sparse_bytes

__all__ = [
    "LSTM_TABLE_BYTES",
    "TABLED",
    "Constants",
    "all_operators",
    "constants",
    "is_sparse",
    "operator_constants",
]

LSTM = "unidirectional_sequence_lstm"
LSTM_TABLE_BYTES = 512
TABLE_BYTES = 256
TABLED = frozenset({"logistic", "tanh", "relu", "quantize", "leaky_relu", "hard_swish", "elu"})
"""Functions of one int8 value that are looked up."""

_SUMMED = frozenset({
    "conv_2d", "depthwise_conv_2d", "fully_connected", LSTM, "gru", "unidirectional_sequence_rnn",
    "transpose_conv",
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class Constants:
    """Bytes of a network's constants, by what they are for."""

    weights: int = 0
    biases: int = 0
    scales: int = 0
    tables: int = 0

    @property
    def n_bytes(self) -> int:
        """All of them, in whole words."""
        return -(-(self.weights + self.biases + self.scales + self.tables) // 4) * 4


def constants(graph: OperatorGraph) -> Constants:
    """Return what the constants of a network take.

    Args:
        graph: From `sparsemod.measure.operators.lower`, or as the bundle executes it
            (`sparsemod.measure.interpreted.interpreted`).

    Example:
        A matrix of 16 rows and 10 columns, 40 of whose values are not zero:

        >>> import numpy as np
        >>> from sparsemod.measure.graph import TensorSpec
        >>> values = np.zeros((16, 10), np.float32)
        >>> values[:10, :4] = 1
        >>> x, y = TensorSpec(0, "x", (1, 10), "int8"), TensorSpec(1, "y", (1, 16), "int8")
        >>> product = Operator("fully_connected", (0,), (1,), (Weight("w", values),))
        >>> constants(OperatorGraph((x, y), (product,), (0,), (1,), (), ()))
        Constants(weights=60, biases=64, scales=80, tables=0)
    """
    stored: set[tuple[str, str, bool]] = set()
    parts = [operator_constants(own, op, stored) for own, op in all_operators(interpreted(graph))]
    is_lstm = any(
        op.kind == LSTM and own.tensors[op.outputs[0]].dtype == "int8" for own, op in all_operators(graph)
    )
    return Constants(
        sum(part.weights for part in parts),
        sum(part.biases for part in parts),
        sum(part.scales for part in parts),
        sum(part.tables for part in parts) + (LSTM_TABLE_BYTES if is_lstm else 0),
    )


def operator_constants(
    graph: OperatorGraph, operator: Operator, stored: set[tuple[str, str, bool]]
) -> Constants:
    """Return what the constants of one operator take, without what all LSTMs share.

    Args:
        graph: The list that it stands in.
        operator: The operator.
        stored: What has been charged to others; what is charged here is added.
    """
    weights = biases = scales = 0
    for weight in operator.weights:
        sparse = is_sparse(graph, operator, weight)
        if (weight.name, operator.kind, sparse) not in stored:
            stored.add((weight.name, operator.kind, sparse))
            weights += _value_bytes(weight, sparse)
        if weight.dtype == "float32":
            biases += 0 if weight.bias is None else 4 * weight.bias.size
        elif operator.kind in _SUMMED:
            n_rows = int(weight.values.shape[0 if weight.axis is None else weight.axis])
            biases += 4 * n_rows
            scales += 5 * n_rows if weight.axis is not None else 0 if operator.kind == LSTM else 5
    is_int8 = bool(operator.outputs) and graph.tensors[operator.outputs[0]].dtype == "int8"
    return Constants(weights, biases, scales, TABLE_BYTES * _n_tables(operator) if is_int8 else 0)


def all_operators(graph: OperatorGraph) -> Iterator[tuple[OperatorGraph, Operator]]:
    """Yield each operator with the list it stands in, those of loops' bodies included."""
    for operator in graph.operators:
        yield graph, operator
        if operator.kind == "while":
            yield from all_operators(operator.attributes["body"])


def is_sparse(graph: OperatorGraph, operator: Operator, weight: Weight) -> bool:
    """Say whether a weight is held as a bitmap and its non-zeros."""
    if weight.dtype != "int8" or operator.kind not in _SUMMED or operator.kind == "transpose_conv":
        return False
    n = int(weight.values.size)
    if sparse_bytes(n, n_nonzero_int8(weight)) >= n:
        return False
    if operator.kind != "conv_2d":
        return True
    _, _, width, channels = graph.tensors[operator.inputs[0]].shape
    attributes = operator.attributes
    kernel, dilation = weight.values.shape[1:3], attributes["dilation"]
    return can_be_sparse(kernel, dilation, width, channels, attributes["groups"])


def _n_tables(operator: Operator) -> int:
    if operator.kind == "gru":
        return 3
    if operator.kind == "unidirectional_sequence_rnn":
        return 0 if operator.attributes["activation"] == "relu" else 1
    return int(operator.kind in TABLED)


def _value_bytes(weight: Weight, sparse: bool) -> int:
    n = prod(weight.values.shape)
    if weight.dtype == "float32":
        return 4 * n
    return sparse_bytes(n, n_nonzero_int8(weight)) if sparse else n
