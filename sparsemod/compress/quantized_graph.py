"""A network's operator list with all its numbers as integers: what is written to the chip."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sparsemod.compress.fakequant import QParams
from sparsemod.compress.fixed_point import Rescaling
from sparsemod.measure.graph import Operator, OperatorGraph

__all__ = ["QuantizedGraph", "QuantizedOperator", "StoredWeight"]


@dataclass(frozen=True, slots=True, eq=False)
class StoredWeight:
    """A constant as it is stored.

    Attributes:
        name: The parameter it comes from.
        values: int8, in the layout of the operator list.
        scales: float32, one for each entry of the output-channel axis, or one in all.
        zero_point: The stored integer that means zero; 0 for what is multiplied with sums.
        bias: int32 at scale ``input scale * scales``, or None.
        axis: The output-channel axis, or None.
    """

    name: str
    values: NDArray[np.int8]
    scales: NDArray[np.float32]
    zero_point: int = 0
    bias: NDArray[np.int32] | None = None
    axis: int | None = None


@dataclass(frozen=True, slots=True, eq=False)
class QuantizedOperator:
    """An operator with its integers.

    Attributes:
        operator: The operator, whose weights are the real ones.
        weights: What is stored of them.
        rescalings: Real factors in integer form. Convolution, matrix, product, mean, sum: from the
            accumulator to the output. Sum and difference of two: of the left operand and of the right one,
            both 20 bits up, and back. LSTM: from the accumulator to the gates with 12 bits below the point,
            four from the input and four from the state; then of forget gate times cell, input gate times
            new, output gate times tanh of the cell. Softmax: of the difference to the largest, and back.
        bounds: Smallest and largest stored integer of the output behind the activation.
        table: int8 for the stored values -128 to 127, of an operator of one value.
        cell: The 16-bit grid of an LSTM's cell state.
        condition: What says whether a loop goes on.
        body: What a loop does.
    """

    operator: Operator
    weights: tuple[StoredWeight, ...] = ()
    rescalings: tuple[Rescaling, ...] = ()
    bounds: tuple[int, int] = (-128, 127)
    table: NDArray[np.int8] | None = None
    cell: QParams | None = None
    condition: QuantizedGraph | None = None
    body: QuantizedGraph | None = None


@dataclass(frozen=True, slots=True, eq=False)
class QuantizedGraph:
    """A network in integers.

    Attributes:
        graph: The operator list as the interpreter executes it.
        grids: The grid of each tensor by id; None for counters and truth values.
        operators: In the order of execution.
    """

    graph: OperatorGraph
    grids: tuple[QParams | None, ...]
    operators: tuple[QuantizedOperator, ...]

    def grid(self, tensor: int) -> QParams:
        """Return the grid of a tensor."""
        grid = self.grids[tensor]
        if grid is None:
            raise RuntimeError(f"tensor {self.graph.tensors[tensor].name} has no grid")
        return grid
