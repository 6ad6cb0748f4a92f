"""Flash bytes of the weights under the interpreter, and counts of them; `bundle` has the bytes of a C bundle.

Symmetric int8 weights, n values with s scales and b bias values, take n + 4 b + 4 s bytes (int32 biases and
float32 scales); float32 weights take 4 bytes a value and a bias value. Convolutions and matrices have a scale
an output channel. A recurrent layer is held as its gates: 8 matrices for an LSTM, 6 for a GRU, 2 for a plain
RNN, with one scale each; an LSTM has 4 H biases and a GRU also 4 H, whose new gate has two that cannot be
added up.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sparsemod.measure.graph import OperatorGraph, Weight

__all__ = ["n_nonzero", "n_nonzero_int8", "n_parameters", "nonzero_int8", "tflite_parts", "weight_bytes"]

BIAS_BYTES = 4
SCALE_BYTES = 4


def n_nonzero_int8(weight: Weight) -> int:
    """Return how many values are not zero after symmetric quantization, scale max|w| / 127 an output channel.

    Example:
        >>> n_nonzero_int8(Weight("w", np.array([[127.0, 0.4, -0.6, 0.0]], np.float32)))
        2
    """
    return int(np.count_nonzero(nonzero_int8(weight)))


def nonzero_int8(weight: Weight) -> NDArray[np.bool_]:
    """Return which values are not zero after symmetric quantization, in the shape of the weight."""
    magnitude = np.abs(weight.values)
    if weight.axis is None:
        largest = magnitude.max(initial=0)
    else:
        others = tuple(i for i in range(magnitude.ndim) if i != weight.axis)
        largest = magnitude.max(axis=others, keepdims=True, initial=0)
    above = magnitude * np.float32(127) >= np.float32(0.5) * largest
    return np.asarray(above & (magnitude > 0))


def weight_bytes(weight: Weight) -> int:
    """Return the flash bytes of one weight and its bias under ``tflite-micro``.

    Example:
        A 16-by-10 matrix with a bias of 16 values:

        >>> weight_bytes(Weight("w", np.ones((16, 10), np.float32), np.zeros(16, np.float32)))
        288
    """
    n_biases = 0 if weight.bias is None else weight.bias.size
    if weight.dtype == "float32":
        return int(4 * (weight.values.size + n_biases))
    return int(weight.values.size + BIAS_BYTES * n_biases + SCALE_BYTES * weight.n_scales)


def tflite_parts(graph: OperatorGraph) -> tuple[int, int, int]:
    """Return the bytes of values, biases and scales under ``tflite-micro``; the rest of a file is overhead.

    Example:
        >>> from sparsemod.measure.graph import Operator
        >>> weight = Weight("w", np.ones((16, 10), np.float32), np.zeros(16, np.float32))
        >>> tflite_parts(OperatorGraph((), (Operator("fully_connected", (), (), (weight,)),), (), (), (), ()))
        (160, 64, 64)
    """
    values = biases = scales = 0
    for weight in graph.weights():
        width = 4 if weight.dtype == "float32" else 1
        values += width * weight.values.size
        biases += BIAS_BYTES * (0 if weight.bias is None else weight.bias.size)
        scales += 0 if width == 4 else SCALE_BYTES * weight.n_scales
    return values, biases, scales


def n_parameters(graph: OperatorGraph) -> int:
    """Return the number of weights and biases, zeros included, each shared one once."""
    return sum(w.values.size + (0 if w.bias is None else w.bias.size) for w in graph.weights())


def n_nonzero(graph: OperatorGraph) -> int:
    """Return the number of weights and biases that are not zero."""
    return sum(
        int(np.count_nonzero(w.values)) + (0 if w.bias is None else int(np.count_nonzero(w.bias)))
        for w in graph.weights()
    )
