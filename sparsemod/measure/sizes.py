"""Flash bytes of the weights under each runtime.

Symmetric int8 weights, n values of which n_nz are not zero after quantization, with s scales and b bias
values:

- ``c``: the smaller of n (dense) and ceil(n / 8) + n_nz (bitmap and non-zeros), plus 4 b (int32 biases), plus
  5 s (an int32 multiplier and an int8 shift to requantize).
- ``tflite-micro``: n + 4 b + 4 s (float32 scales).

float32 weights cost 4 bytes a value and a bias value under both. Convolutions and matrices have a scale an
output channel. A recurrent layer is held as its gates: 8 matrices for an LSTM, 6 for a GRU, 2 for a plain
RNN, with one scale each; an LSTM has 4 H biases and a GRU also 4 H, whose new gate has two that cannot be
added up.
"""

from __future__ import annotations

import numpy as np

from sparsemod.measure.graph import OperatorGraph, Weight

__all__ = ["n_nonzero", "n_nonzero_int8", "n_parameters", "tflite_parts", "weight_bytes"]

BIAS_BYTES = 4
REQUANTIZATION_BYTES = 5
SCALE_BYTES = 4


def n_nonzero_int8(weight: Weight) -> int:
    """Return how many values are not zero after symmetric quantization, scale max|w| / 127 an output channel.

    Example:
        >>> n_nonzero_int8(Weight("w", np.array([[127.0, 0.4, -0.6, 0.0]], np.float32)))
        2
    """
    magnitude = np.abs(weight.values)
    if weight.axis is None:
        largest = magnitude.max(initial=0)
    else:
        others = tuple(i for i in range(magnitude.ndim) if i != weight.axis)
        largest = magnitude.max(axis=others, keepdims=True, initial=0)
    # rounding to even takes exactly half a step to zero
    return int(np.count_nonzero(magnitude * np.float32(127) > np.float32(0.5) * largest))


def weight_bytes(weight: Weight, runtime: str) -> int:
    """Return the flash bytes of one weight and its bias under ``c`` or ``tflite-micro``.

    Example:
        A 16-by-10 matrix, 40 of its values not zero, with a bias of 16 values:

        >>> values = np.zeros((16, 10), np.float32)
        >>> values[:10, :4] = 1
        >>> weight = Weight("w", values, np.zeros(16, np.float32))
        >>> weight_bytes(weight, "c"), weight_bytes(weight, "tflite-micro")
        (204, 288)
    """
    n = weight.values.size
    n_biases = 0 if weight.bias is None else weight.bias.size
    if weight.dtype == "float32":
        return 4 * (n + n_biases)
    if runtime == "tflite-micro":
        return n + BIAS_BYTES * n_biases + SCALE_BYTES * weight.n_scales
    stored = min(n, (n + 7) // 8 + n_nonzero_int8(weight))
    return stored + BIAS_BYTES * n_biases + REQUANTIZATION_BYTES * weight.n_scales


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
