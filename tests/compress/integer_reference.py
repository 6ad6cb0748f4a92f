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


def lstm(q, grid_in, weights, grid_hidden, cell_scale):
    """The interpreter's LSTM, 8-bit state and 16-bit cell; q: (N, T, F) stored integers -> (N, T, H).

    Gates have 12 bits behind the point, and 15 behind sigmoid and tanh, which are rounded from float.
    """
    from_input, from_hidden = weights
    width = from_hidden.values.shape[1]
    reals_x = grid_in.scale * from_input.scales.numpy().astype(np.float64) * 2**12
    reals_h = grid_hidden.scale * from_hidden.scales.numpy().astype(np.float64) * 2**12
    w_x = from_input.values.numpy().astype(np.int64).T
    w_h = from_hidden.values.numpy().astype(np.int64).T
    bias = 0 if from_input.bias is None else from_input.bias.numpy().astype(np.int64)
    hidden = np.full((len(q), width), grid_hidden.zero_point, np.int64)
    cell = np.zeros((len(q), width), np.int64)
    outputs = []
    for t in range(q.shape[1]):
        x = per_channel((q[:, t] - grid_in.zero_point) @ w_x + bias, reals_x)
        h = per_channel((hidden - grid_hidden.zero_point) @ w_h, reals_h)
        gates = int16(int16(x) + int16(h)) / 2**12
        enter, keep, new, out = np.split(gates, 4, 1)
        enter, keep, out = (int16(np.floor(2**15 / (1 + np.exp(-g)) + 0.5)) for g in (enter, keep, out))
        new = int16(np.floor(np.tanh(new) * 2**15 + 0.5))
        kept = int16(multiply(keep * cell, 2.0**-15))
        cell = int16(kept + int16(multiply(enter * new, 2.0**-30 / cell_scale)))
        level = int16(np.floor(np.tanh(cell * cell_scale) * 2**15 + 0.5))
        hidden = saturate(multiply(out * level, 2.0**-30 / grid_hidden.scale), grid_hidden.zero_point)
        outputs.append(hidden)
    return np.stack(outputs, 1)


def int16(x):
    return np.clip(x, -(2**15), 2**15 - 1).astype(np.int64)
