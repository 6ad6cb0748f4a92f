"""Flash and RAM of weights that are stored as a bitmap and their non-zeros."""

from __future__ import annotations

__all__ = ["can_be_sparse", "depthwise_scratch_bytes", "sparse_bytes", "sparse_scratch_bytes"]


def sparse_bytes(n: int, n_nonzero: int) -> int:
    """Return the flash that a tensor takes.

    Example:
        >>> sparse_bytes(1000, 200)
        325
    """
    return -(-n // 8) + n_nonzero


def sparse_scratch_bytes(n_taps: int, n_most: int) -> int:
    """Return the RAM that a convolution needs for the list of one output channel at a time.

    Args:
        n_taps: Kernel positions.
        n_most: Largest number of non-zero weights of an output channel.

    Example:
        >>> sparse_scratch_bytes(9, 72)  # two numbers a tap, one a weight
        368
    """
    return 4 * (2 * (n_taps + 1) + n_most)


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
