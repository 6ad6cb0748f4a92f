"""The operator list: a network in the terms of a microcontroller runtime (TensorFlow Lite's words, NHWC).

Kinds, with their weights and their attributes beside ``activation``; whatever is fused is applied last:

- ``conv_2d``: OHWI, groups in O (input channels / groups innermost); ``stride``, ``dilation``, ``padding``,
  ``groups``. ``depthwise_conv_2d``: 1HWO, output o reads input o // ``depth_multiplier``.
- ``transpose_conv``: OHWI; ``stride``, ``crop``: rows and columns cut off above and to the left of the full
  output, which ends where the output's shape does.
- ``fully_connected``: OI over the innermost I elements of the input in memory, whatever its shape.
- ``max_pool_2d``, ``average_pool_2d``: ``filter``, ``stride``, ``padding``; padding has no part in an
  average.
- ``pad``: ``paddings`` (before, after) of each dimension, ``value`` (0, or minus infinity before a max pool:
  the least value there is).
- ``add``, ``sub``, ``mul``, ``div``, ``maximum``, ``minimum``: two inputs, or one and a weight that stands on
  the side ``constant`` (``x`` left, ``y`` right, else None); shapes broadcast.
- ``relu``, ``relu6``, ``relu_n1_to_1``, ``leaky_relu`` (``alpha``), ``prelu`` (a weight), ``elu``, ``gelu``
  (``approximate``), ``logistic``, ``tanh``, ``hard_swish``, ``abs``, ``exp``, ``log``, ``neg``, ``sqrt``,
  ``rsqrt``, ``sin``, ``cos``; ``softmax`` (``beta``) and ``log_softmax`` over the last dimension.
- ``mean``, ``sum``, ``reduce_max``, ``reduce_min``: ``axes``, which the output no longer has.
- ``reshape``; ``transpose``: ``permutation``; ``concatenation``: ``axis``; ``pack``: stack along a new
  ``axis``; ``strided_slice``: ``axis``, ``begin``, ``end``, ``stride``; ``gather``: rows of a weight by
  indices.
- ``resize_nearest_neighbor``, ``resize_bilinear``: ``align_corners``, ``half_pixel_centers``.
- ``batch_matmul``: ``adj_x``, ``adj_y``, ``constant`` as above.
- ``unidirectional_sequence_lstm``, ``gru``, ``unidirectional_sequence_rnn`` over (batch, time, features):
  ``hidden_size``, ``reverse``, ``activation`` (that of the state); first the weights of all gates from the
  input, then those from the state, in the order input, forget, cell, output or reset, update, new. The state
  starts at zero.
- ``quantize``, ``dequantize``: between int8 and float32.
- ``other:<name>``: what no runtime here has.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["ITEM_BYTES", "FloatArray", "Operator", "OperatorGraph", "Port", "TensorSpec", "Weight"]

ITEM_BYTES = {
    "int8": 1, "float32": 4, "int32": 4, "bool": 1,
    # only in files that others wrote
    "uint8": 1, "int16": 2, "uint16": 2, "float16": 2, "uint32": 4, "resource": 4, "int64": 8, "uint64": 8,
    "float64": 8,
}  # fmt: skip

FloatArray = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """One activation tensor.

    Attributes:
        id: Position in `OperatorGraph.tensors`: inputs first, then in the order in which they are written.
        name: Unique and the same for the same network, so that quantization parameters can be joined by it.
        shape: As it lies in memory: NHWC for images, (1, 1, L, C) for `Conv1d`, (1, T, F) for sequences.
        dtype: ``int8``, ``float32``, ``int32`` (indices) or ``bool``; in a file that was read any key of
            `ITEM_BYTES`.
    """

    id: int
    name: str
    shape: tuple[int, ...]
    dtype: str

    @property
    def n_elements(self) -> int:
        """Number of values."""
        return prod(self.shape)

    @property
    def n_bytes(self) -> int:
        """Bytes in RAM."""
        return self.n_elements * ITEM_BYTES[self.dtype]


@dataclass(frozen=True, slots=True, eq=False)
class Weight:
    """A constant tensor of an operator, with the bias that belongs to its output channels.

    Attributes:
        name: The parameter it comes from. Operators that share a weight hold a weight of the same name.
        values: float32 in TensorFlow Lite's layout, batch norm folded in: OHWI for a convolution (HWIO's
            groups stay in O), 1HWO for a depthwise one, OI for a matrix, the shape of the operand for a
            constant.
        bias: (O,) float32, or None.
        dtype: ``int8`` or ``float32``, how it is stored.
        axis: The output-channel axis of `values` that has a scale a channel, or None for one scale in all.
    """

    name: str
    values: FloatArray
    bias: FloatArray | None = None
    dtype: str = "int8"
    axis: int | None = 0

    @property
    def n_scales(self) -> int:
        """Number of quantization scales of the values."""
        return 1 if self.axis is None else int(self.values.shape[self.axis])


@dataclass(frozen=True, slots=True, eq=False)
class Operator:
    """One operator that the runtime executes.

    Attributes:
        kind: TensorFlow Lite's name in lower case, ``gru``, or ``other:<name>`` for what no runtime here has.
        inputs: Ids of the tensors that are read; a constant operand is in `weights` instead.
        outputs: Ids of the tensors that are written.
        weights: Constants, in the order that the operator's kind defines.
        attributes: What else the operator needs: ``activation`` (none, relu, relu6, relu_n1_to_1),
            ``padding`` (same, valid), ``stride``, ``dilation``, ``groups``, ``filter``, ``axis`` and the
            like.
        module: Qualified name of the module that it comes from, for people.
        n_macs: Multiply-accumulates of one inference.
    """

    kind: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    weights: tuple[Weight, ...] = ()
    attributes: Mapping[str, Any] = field(default_factory=dict)
    module: str = ""
    n_macs: int = 0

    @property
    def exportable(self) -> bool:
        """Whether the operator has a meaning in a runtime here."""
        return not self.kind.startswith("other:")


@dataclass(frozen=True, slots=True)
class Port:
    """How a tensor of the PyTorch network lies in the memory of the graph's input or output.

    Attributes:
        tensor: Id of the tensor.
        shape: The shape in PyTorch, batch dimension included.
        split: `shape` with some dimensions split in factors.
        permutation: Order of the dimensions of `split` in memory.

    Example:
        A (1, 3, 32, 32) image whose channels lie innermost:

        >>> port = Port(0, (1, 3, 32, 32), (3, 32, 32), (1, 2, 0))
        >>> port.to_memory(np.zeros((1, 3, 32, 32)), (1, 32, 32, 3)).shape
        (1, 32, 32, 3)
    """

    tensor: int
    shape: tuple[int, ...]
    split: tuple[int, ...]
    permutation: tuple[int, ...]

    def to_memory(self, values: NDArray[Any], shape: tuple[int, ...]) -> NDArray[Any]:
        """Rearrange values of PyTorch's `self.shape` to the shape of the graph's tensor."""
        return values.reshape(self.split).transpose(self.permutation).reshape(shape)

    def from_memory(self, values: NDArray[Any]) -> NDArray[Any]:
        """Rearrange values of the graph's tensor to PyTorch's `self.shape`."""
        inverse = np.argsort(self.permutation)
        return (
            values.reshape([self.split[i] for i in self.permutation]).transpose(inverse).reshape(self.shape)
        )


@dataclass(frozen=True, slots=True, eq=False)
class OperatorGraph:
    """A network as the list of operators that the runtime executes, in order.

    Attributes:
        tensors: All activations, by id.
        operators: In the order of execution.
        inputs: Ids of the network's inputs.
        outputs: Ids of its outputs.
        input_ports: For each input, how PyTorch's tensor is laid out in it.
        output_ports: The same for each output.
    """

    tensors: tuple[TensorSpec, ...]
    operators: tuple[Operator, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    input_ports: tuple[Port, ...]
    output_ports: tuple[Port, ...]

    def lists(self) -> Iterator[OperatorGraph]:
        """Yield this list of operators and those of the loops in it."""
        yield self
        for operator in self.operators:
            if operator.kind == "while":
                for part in ("condition", "body"):
                    yield from operator.attributes[part].lists()

    def weights(self) -> Iterator[Weight]:
        """Yield each weight once, however many operators share it; those inside loops, too."""
        seen = set()
        for part in self.lists():
            for operator in part.operators:
                for weight in operator.weights:
                    if weight.name not in seen:
                        seen.add(weight.name)
                        yield weight

    def renumbered(self) -> OperatorGraph:
        """Number the tensors in the order of writing, inputs first, and drop those that nothing writes."""
        order = [*self.inputs, *(o for op in self.operators for o in op.outputs)]
        if order == list(range(len(self.tensors))):
            return self
        ids = {old: new for new, old in enumerate(order)}
        return OperatorGraph(
            tuple(replace(self.tensors[old], id=new) for new, old in enumerate(order)),
            tuple(
                replace(
                    op, inputs=tuple(ids[i] for i in op.inputs), outputs=tuple(ids[i] for i in op.outputs)
                )
                for op in self.operators
            ),
            tuple(ids[i] for i in self.inputs),
            tuple(ids[i] for i in self.outputs),
            tuple(replace(port, tensor=ids[port.tensor]) for port in self.input_ports),
            tuple(replace(port, tensor=ids[port.tensor]) for port in self.output_ports),
        )

    def unexportable(self) -> tuple[Operator, ...]:
        """Return the operators that no runtime here can execute."""
        return tuple(operator for operator in self.operators if not operator.exportable)
