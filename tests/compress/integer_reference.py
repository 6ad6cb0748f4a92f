"""TensorFlow Lite's int8 kernels in plain integers, from their definition and independent of the engine."""

import numpy as np


def quantize_input(x, scale, zero_point):
    q = np.asarray(x, np.float32) / np.float32(scale)
    q = np.sign(q) * np.floor(np.abs(q) + np.float32(0.5)) + zero_point
    return np.clip(q, -128, 127).astype(np.int64)


def quantized_multiplier(real):
    mantissa, exponent = np.frexp(real)
    fixed = int(np.floor(mantissa * 2**31 + 0.5))
    if fixed == 2**31:
        fixed, exponent = fixed // 2, exponent + 1
    return fixed, int(exponent)


def high_multiply(a, b):
    """SaturatingRoundingDoublingHighMul; C's division truncates."""
    product = a * b
    nudged = product + np.where(product >= 0, 2**30, 1 - 2**30)
    return np.sign(nudged) * (np.abs(nudged) // 2**31)


def rounding_shift(x, exponent):
    """RoundingDivideByPOT."""
    mask = (1 << exponent) - 1
    remainder = x & mask
    threshold = (mask >> 1) + (x < 0)
    return (x >> exponent) + (remainder > threshold)


def multiply(x, real):
    """MultiplyByQuantizedMultiplier."""
    fixed, exponent = quantized_multiplier(real)
    left, right = max(exponent, 0), max(-exponent, 0)
    return rounding_shift(high_multiply(x << left, fixed), right)


def per_channel(accumulator, reals):
    return np.stack([multiply(accumulator[:, c], reals[c]) for c in range(accumulator.shape[1])], 1)


def saturate(x, zero_point, low=-128, high=127):
    return np.clip(x + zero_point, low, high)


def convolution(q, grid_in, weight, grid_out, stride=1, padding=0, groups=1, relu=False):
    """q: (N, C, H, W) stored integers; weight has values (O, C/g, k, k), scales, bias."""
    kernel = weight.values.numpy().astype(np.int64)
    x = np.pad(q - grid_in.zero_point, ((0, 0), (0, 0), (padding, padding), (padding, padding)))
    windows = np.lib.stride_tricks.sliding_window_view(x, kernel.shape[2:], axis=(2, 3))
    windows = windows[:, :, ::stride, ::stride]
    per_group_in, per_group_out = x.shape[1] // groups, kernel.shape[0] // groups
    parts = [
        np.einsum(
            "nchwij,ocij->nohw",
            windows[:, g * per_group_in : (g + 1) * per_group_in],
            kernel[g * per_group_out : (g + 1) * per_group_out],
        )
        for g in range(groups)
    ]
    accumulator = np.concatenate(parts, 1) + weight.bias.numpy().astype(np.int64)[:, None, None]
    assert np.abs(accumulator).max() < 2**31
    reals = grid_in.scale * weight.scales.numpy().astype(np.float64) / grid_out.scale
    low = grid_out.zero_point if relu else -128
    return saturate(per_channel(accumulator, reals), grid_out.zero_point, low)


def dense(q, grid_in, weight, grid_out):
    accumulator = (q - grid_in.zero_point) @ weight.values.numpy().astype(np.int64).T
    if weight.bias is not None:
        accumulator = accumulator + weight.bias.numpy().astype(np.int64)
    reals = grid_in.scale * weight.scales.numpy().astype(np.float64) / grid_out.scale
    return saturate(per_channel(accumulator, reals), grid_out.zero_point)


def add(a, grid_a, b, grid_b, grid_out, relu=False):
    """The interpreter's ADD: operands at 20 more bits on twice the larger scale."""
    twice = 2 * max(grid_a.scale, grid_b.scale)
    total = multiply((a - grid_a.zero_point) << 20, grid_a.scale / twice)
    total = total + multiply((b - grid_b.zero_point) << 20, grid_b.scale / twice)
    low = grid_out.zero_point if relu else -128
    return saturate(multiply(total, twice / (2**20 * grid_out.scale)), grid_out.zero_point, low)


def max_pool(q, size):
    n, c, h, w = q.shape
    return (
        q[:, :, : h // size * size, : w // size * size]
        .reshape(n, c, h // size, size, w // size, size)
        .max((3, 5))
    )


def global_average(q):
    count = q.shape[2] * q.shape[3]
    total = q.sum((2, 3))
    half = np.where(total > 0, count // 2, -(count // 2))
    shifted = total + half
    return np.sign(shifted) * (np.abs(shifted) // count)
