"""Weights with many zeros as a bitmap and the values that are not zero, as the C kernels multiply them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["bitmap", "encode"]


def bitmap(values: NDArray[np.int8]) -> tuple[bytes, bytes]:
    """Return which values are not zero, and those.

    Args:
        values: Weights in the order in which a kernel reads them: the output channel first. That of a
            convolution is (output channels, height, width, channels of a group), a depthwise one's, too.

    Returns:
        A bit for each value, the first in the lowest bit of the first byte, in whole bytes for the tensor;
        and the non-zero values, a byte each.

    Example:
        >>> bits, values = bitmap(np.array([[0, 7, 0, -1], [0, 0, 0, 0], [5, 0, 0, 0]], np.int8))
        >>> [f"{byte:08b}" for byte in bits], list(np.frombuffer(values, np.int8))
        (['00001010', '00000001'], [np.int8(7), np.int8(-1), np.int8(5)])
    """
    flat = np.ascontiguousarray(values, np.int8).reshape(-1)
    return np.packbits(flat != 0, bitorder="little").tobytes(), flat[flat != 0].tobytes()


def encode(values: NDArray[np.int8]) -> bytes:
    """Return bitmap and non-zero values in one array, as the kernels take it.

    Example:
        >>> encode(np.array([0, 7, 0, -1], np.int8)).hex()
        '0a07ff'
    """
    return b"".join(bitmap(values))
