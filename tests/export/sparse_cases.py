"""Random layers, with few weights or with all: as C that calls the kernels, and what they have to return."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional as F

import sparsemod
from sparsemod.compress.fixed_point import Rescaling, rescale
from sparsemod.export.sparse_weights import encode
from sparsemod.measure.sparse import depthwise_scratch_bytes, sparse_scratch_bytes

KERNELS = Path(sparsemod.__file__).parent / "export" / "kernels"
HEADERS = {
    name: (KERNELS / name).read_text()
    for name in (
        "common.h",
        "conv.h",
        "depthwise.h",
        "depthwise_channel.h",
        "lstm.h",
        "matrix.h",
        "store.h",
        "sparse_bits.h",
        "sparse_conv.h",
        "sparse_depthwise.h",
        "sparse_matrix.h",
    )
}
PREFIX = '#include "conv.h"\n#include "depthwise.h"\n#include "lstm.h"\n'
PREFIX += '#include "sparse_conv.h"\n#include "sparse_depthwise.h"\n#include "sparse_matrix.h"\n'


@dataclass(frozen=True)
class Case:
    """A layer: `text` defines run_NAME, input_NAME and output_NAME."""

    name: str
    text: str
    expected: np.ndarray
    n_macs: int = 0
    n_outputs: int = 0


def _array(kind: str, name: str, values) -> str:
    numbers = ",".join(map(str, np.asarray(values).reshape(-1).tolist()))
    return f"const {kind} {name}[] = {{{numbers}}};\n"


def sparse_values(rng, shape, sparsity):
    values = rng.integers(1, 128, shape) * rng.choice([-1, 1], shape)
    order = rng.permutation(values.size)
    values.reshape(-1)[order[: round(sparsity * values.size)]] = 0
    return values.astype(np.int8)


def factors(rng, n, fan_in):
    shift = rng.integers(-12, -5, n) - int(np.log2(max(1, fan_in)) / 2)
    if rng.random() < 0.2:
        shift[0] = 1
    multiplier = rng.integers(2**30, 2**31, n)
    return Rescaling(multiplier.astype(np.int32), shift.astype(np.int32))


def grid(rng):
    low, high = sorted(int(v) for v in rng.integers(-128, 128, 2)) if rng.random() < 0.3 else (-128, 127)
    return int(rng.integers(-128, 128)), int(rng.integers(-128, 128)), low, high


def conv(
    name,
    rng,
    *,
    size,
    channels,
    out_channels,
    kernel,
    groups=1,
    stride=(1, 1),
    dilation=(1, 1),
    pads=(0, 0, 0, 0),
    sparsity=0.8,
    values=None,
    depthwise=False,
    full=False,
):
    """pads: top, bottom, left, right; depthwise: by the kernel made for it; full: by the dense one."""
    if values is None:
        values = sparse_values(rng, (out_channels, *kernel, channels // groups), sparsity)
    x = rng.integers(-128, 128, (*size, channels)).astype(np.int8)
    bias = rng.integers(-3000, 3000, out_channels)
    zero_point, out_zero_point, low, high = grid(rng)
    rescaling = factors(rng, out_channels, np.prod(kernel) * channels // groups)
    centred = torch.from_numpy(x.astype(np.float64) - zero_point).permute(2, 0, 1)[None]
    padded = F.pad(centred, (pads[2], pads[3], pads[0], pads[1]))
    weight = torch.from_numpy(values.astype(np.float64)).permute(0, 3, 1, 2)
    total = F.conv2d(padded, weight, None, stride, 0, dilation, groups)[0].permute(1, 2, 0).long()
    y = rescale(total + torch.from_numpy(bias), rescaling) + out_zero_point
    expected = y.clamp(low, high).to(torch.int8).numpy()
    numbers = (
        *size,
        channels,
        *expected.shape,
        *kernel,
        *(() if depthwise else (groups,)),
        *stride,
        *dilation,
        pads[0],
        pads[2],
        zero_point,
        out_zero_point,
        low,
        high,
    )
    if full and depthwise:
        numbers = (*size, channels, *expected.shape[:2], out_channels // channels, *numbers[6:])
    elif full:
        bias = bias - zero_point * values.reshape(out_channels, -1).astype(np.int64).sum(1)
        in_pieces = groups != 1 or (kernel[1] > 1 and dilation[1] != 1)
        numbers += (-1 if in_pieces else int(kernel[0] == 1),)
    if full:
        text = _array("int8_t", f"weights_{name}", values.transpose(3, 1, 2, 0) if depthwise else values)
    else:
        text = _array("uint8_t", f"weights_{name}", list(encode(values)))
    text += _array("int32_t", f"bias_{name}", bias) + _array(
        "int32_t", f"multiplier_{name}", rescaling.multiplier
    )
    text += _array("int8_t", f"shift_{name}", rescaling.shift) + _array("int8_t", f"input_{name}", x)
    text += f"int8_t output_{name}[{expected.size}];\n"
    if full:
        text += f"int8_t scratch_{name}[{2 * values[0].size}];\n"
    elif depthwise:
        n_bytes = depthwise_scratch_bytes(kernel, dilation, stride[1], expected.shape[1], sparse=True)
        text += f"int32_t scratch_{name}[{(n_bytes + 3) // 4}];\n"
    else:
        text += f"int32_t scratch_{name}[{_list_bytes(values) // 4}];\n"
    function = ("sm_" if full else "sm_sparse_") + ("depthwise" if depthwise else "conv")
    arrays = ("weights", "bias", "multiplier", "shift", "input", "output", "scratch")
    arrays = arrays[:-1] if full and depthwise else arrays
    arguments = [*map(str, numbers), *(f"{array}_{name}" for array in arrays)]
    text += f"void run_{name}(void);\nvoid run_{name}(void) {{ {function}({', '.join(arguments)}); }}\n"
    return Case(name, text, expected, expected.size * int(np.prod(values.shape[1:])), expected.size)


def dense(name, rng, *, rows, columns, sparsity=0.8, per_row=True, values=None, full=False):
    if values is None:
        values = sparse_values(rng, (rows, columns), sparsity)
    x = rng.integers(-128, 128, columns).astype(np.int8)
    bias = rng.integers(-3000, 3000, rows)
    zero_point, out_zero_point, low, high = grid(rng)
    rescaling = factors(rng, rows if per_row else 1, columns)
    total = values.astype(np.int64) @ (x.astype(np.int64) - zero_point) + bias
    y = rescale(torch.from_numpy(total), rescaling) + out_zero_point
    expected = y.clamp(low, high).to(torch.int8).numpy()
    folded = bias - zero_point * values.astype(np.int64).sum(1)
    kind, stored = ("int8_t", values) if full else ("uint8_t", list(encode(values)))
    text = _array(kind, f"weights_{name}", stored)
    text += _array("int32_t", f"bias_{name}", folded) + _array(
        "int32_t", f"multiplier_{name}", rescaling.multiplier
    )
    text += _array("int8_t", f"shift_{name}", rescaling.shift) + _array("int8_t", f"input_{name}", x)
    text += f"int8_t output_{name}[{rows}];\nvoid run_{name}(void);\nvoid run_{name}(void) {{ "
    matrix = f"1, {rows}, {columns}, weights_{name}" if full else f"weights_{name}, {rows}, {columns}"
    text += f"sm_{'' if full else 'sparse_'}fully_connected({matrix}, "
    text += f"bias_{name}, multiplier_{name}, shift_{name}, {int(per_row)}, "
    text += f"{out_zero_point}, {low}, {high}, input_{name}, output_{name}); }}\n"
    return Case(name, text, expected, rows * columns, rows)


def gate(name, rng, *, inputs, size, sparsity=0.8, full=False):
    """A gate's sum: the part from the input, then that from the state."""
    parts, text, calls = [], "", ""
    for k, columns in enumerate((inputs, size)):
        values = sparse_values(rng, (size, columns), sparsity)
        x = rng.integers(-128, 128, columns).astype(np.int8)
        zero_point = int(rng.integers(-20, 20))
        bias = rng.integers(-3000, 3000, size) if k == 0 else np.zeros(size, np.int64)
        rescaling = Rescaling(
            rng.integers(2**30, 2**31, 1).astype(np.int32), rng.integers(-3, 1, 1).astype(np.int32)
        )
        total = values.astype(np.int64) @ (x.astype(np.int64) - zero_point) + bias
        parts.append(rescale(torch.from_numpy(total), rescaling).clamp(-(2**15), 2**15 - 1))
        folded = bias - zero_point * values.astype(np.int64).sum(1)
        kind, stored = ("int8_t", values) if full else ("uint8_t", list(encode(values)))
        text += _array(kind, f"weights{k}_{name}", stored) + _array("int32_t", f"bias{k}_{name}", folded)
        text += _array("int8_t", f"x{k}_{name}", x)
        matrix = f"{size}, {columns}, weights{k}_{name}" if full else f"weights{k}_{name}, {size}, {columns}"
        calls += f"sm_{'' if full else 'sparse_'}gate({matrix}, bias{k}_{name}, "
        calls += f"{rescaling.multiplier[0]}, {rescaling.shift[0]}, {k}, x{k}_{name}, output_{name}); "
    expected = (parts[0] + parts[1]).clamp(-(2**15), 2**15 - 1).to(torch.int16).numpy()
    text += f"int16_t output_{name}[{size}];\nvoid run_{name}(void);\nvoid run_{name}(void) {{ {calls}}}\n"
    return Case(name, text, expected, size * (inputs + size), size)


def random_conv(name, rng, full=False):
    kernel = tuple(int(v) for v in rng.integers(1, 6, 2))
    dilation = tuple(int(v) for v in rng.choice([1, 1, 2, 3], 2))
    stride = tuple(int(v) for v in rng.choice([1, 1, 2, 3], 2))
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
    pads = [int(rng.integers(0, r)) if rng.random() < 0.7 else 0 for r in reach for _ in range(2)]
    size = tuple(
        max(1, r - pads[2 * i] - pads[2 * i + 1]) + int(rng.integers(0, 12)) for i, r in enumerate(reach)
    )
    groups = int(rng.choice([1, 1, 2, 3]))
    per_group, out_per_group = (int(v) for v in rng.integers(1, 9, 2))
    if rng.random() < 0.3:
        groups, per_group, out_per_group = int(rng.integers(1, 20)), 1, int(rng.choice([1, 1, 2, 3]))
    depthwise = per_group == 1 and bool(rng.integers(2))
    return conv(
        name,
        rng,
        size=size,
        channels=groups * per_group,
        out_channels=groups * out_per_group,
        kernel=kernel,
        groups=groups,
        stride=stride,
        dilation=dilation,
        pads=tuple(pads),
        depthwise=depthwise,
        sparsity=float(rng.choice([0, 0.5, 0.8, 0.9, 1.0])),
        full=full,
    )


def _list_bytes(values):
    fullest = int(np.count_nonzero(values.reshape(len(values), -1), axis=1).max())
    return sparse_scratch_bytes(values.shape[1] * values.shape[2], fullest)
