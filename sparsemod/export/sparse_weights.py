"""Weights with many zeros as a bitmap and the values that are not zero, as the C kernels multiply them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "bitmap",
    "can_be_sparse",
    "depthwise_scratch_bytes",
    "encode",
    "sparse_bytes",
    "sparse_scratch_bytes",
]


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


def sparse_bytes(n: int, n_nonzero: int) -> int:
    """Return the flash that a tensor takes.

    Example:
        >>> sparse_bytes(1000, 200)
        325
    """
    return -(-n // 8) + n_nonzero


def sparse_scratch_bytes(values: NDArray[np.int8]) -> int:
    """Return the RAM that a convolution needs for the list of one output channel at a time.

    Args:
        values: (output channels, height, width, channels of a group).

    Example:
        >>> sparse_scratch_bytes(np.ones((16, 3, 3, 8), np.int8))  # two numbers a tap, one a weight
        368
    """
    n_taps = int(values.shape[1] * values.shape[2])
    n_most = int(np.count_nonzero(values.reshape(len(values), -1), axis=1).max())
    return int(4 * (2 * (n_taps + 1) + n_most))


def depthwise_scratch_bytes(
    kernel: tuple[int, int], dilation: tuple[int, int], stride_x: int, out_width: int, *, sparse: bool
) -> int:
    """Return the RAM that a depthwise convolution needs for one channel at a time.

    That is a row of sums in 32 bits, the input rows that the taps meet in 16, and the weights where they are
    stored sparse.

    Args:
        kernel: Height and width.
        dilation: Along height and width.
        stride_x: Along the width.
        out_width: Of the output.
        sparse: Whether the weights are.

    Example:
        >>> depthwise_scratch_bytes((3, 3), (1, 1), 1, 14, sparse=True)  # 14 sums, 3 rows of 16, 9 weights
        161
    """
    rows = (kernel[0] - 1) * dilation[0] + 1
    row = (out_width - 1) * stride_x + (kernel[1] - 1) * dilation[1] + 1
    return 4 * out_width + 2 * rows * row + (kernel[0] * kernel[1] if sparse else 0)


def can_be_sparse(
    kernel: tuple[int, int], dilation: tuple[int, int], width: int, channels: int, groups: int = 1
) -> bool:
    """Say whether the sparse convolution can address its input: offsets have 16 bits.

    Args:
        kernel: Height and width.
        dilation: Along height and width.
        width: Of the input.
        channels: Of the input.
        groups: Of the convolution.

    Example:
        >>> can_be_sparse((3, 3), (1, 1), 96, 64), can_be_sparse((5, 5), (4, 4), 96, 64)
        (True, False)
    """
    rows, columns = ((k - 1) * d for k, d in zip(kernel, dilation, strict=True))
    return bool((rows * width + columns) * channels + channels // groups <= 2**16)
