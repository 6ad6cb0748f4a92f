"""Instructions of CMSIS-NN's kernels by core, as counted on emulated cores, and what stands for what.

Counts: QEMU `-icount` over 38 shapes a core; the fits are by least squares (`benchmarks/fit_latency.py
--cmsis`). An entry that says "assumed" was not counted. The C bundle's kernels have `c_costs`.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["CMSIS_NN", "C_CORES", "DSP", "ESTIMATES", "FLOAT_MAC", "Kernels"]


@dataclass(frozen=True, slots=True)
class Kernels:
    """Coefficients of CMSIS-NN on one core, in instructions.

    Attributes:
        convolution: For each MAC in whole groups, each other MAC, output, im2col element (output pixel times
            fan-in), and output pixel times kernel position.
        group: MACs of a group: what fan-in is rounded down to.
        pointwise: For each MAC, output and output pixel of a 1x1 convolution.
        depthwise_3x3: For each kernel position of an output that lies inside the input, output, and output
            pixel.
        depthwise: For each MAC of another kernel size.
        dense: For each MAC and output of a fully connected layer.
        add: For each output.
        max_pool: For each element of a window.
        average_pool: For each element of a window.
        softmax: For each class.
    """

    convolution: tuple[float, float, float, float, float]
    group: int
    pointwise: tuple[float, float, float]
    depthwise_3x3: tuple[float, float, float]
    depthwise: float
    dense: tuple[float, float]
    add: float
    max_pool: float
    average_pool: float
    softmax: float


_M0 = Kernels(
    convolution=(5.77, 4.66, 112.9, 14.7, 42.8),
    group=4,
    pointwise=(6.15, 95.9, 11.5),
    depthwise_3x3=(27.14, 113.65, 66.51),
    depthwise=38.4,
    dense=(6.00, 128.0),
    add=237.0,
    max_pool=41.8,
    average_pool=22.0,
    softmax=1887.0,
)
_M3 = Kernels(
    convolution=(2.43, 2.82, 45.0, 7.07, 42.7),
    group=4,
    pointwise=(2.63, 35.0, 9.3),
    depthwise_3x3=(5.07, 44.75, 66.54),
    depthwise=17.6,
    dense=(3.41, 54.0),
    add=84.0,
    max_pool=10.8,
    average_pool=12.6,
    softmax=504.0,
)
_M4 = Kernels(
    convolution=(1.56, 3.43, 51.2, 4.12, 45.0),
    group=4,
    pointwise=(1.55, 39.5, 14.4),
    depthwise_3x3=(3.68, 45.60, 94.73),
    depthwise=11.15,
    dense=(1.82, 66.0),
    add=81.0,
    max_pool=10.8,
    average_pool=6.6,
    softmax=508.0,
)
_M55 = Kernels(
    convolution=(0.14, -0.10, 21.6, 0.40, 23.3),
    group=16,
    pointwise=(0.18, 13.8, 28.2),
    depthwise_3x3=(0.0, 17.03, 233.1),
    depthwise=2.52,
    dense=(0.42, 31.0),
    add=13.8,
    max_pool=2.74,
    average_pool=1.3,
    softmax=539.0,
)

CMSIS_NN: dict[str, Kernels] = {
    "cortex-m0+": _M0,
    "cortex-m3": _M3,
    "cortex-m4": _M4,
    "cortex-m7": _M4,  # the same instruction set
    "cortex-m33": _M4,  # assumed: the same integer and DSP instructions
    "cortex-m55": _M55,
}


ESTIMATES: dict[str, float] = {
    "activation": 150.0,
    "copy": 1.0,
    "reshape": 1.0,
    "gather": 10.0,
    "convert": 20.0,
}
"""Assumed, not counted: instructions an element of the interpreter's other operators."""

C_CORES = {
    "cortex-m0+": "cortex-m0+",
    "cortex-m3": "cortex-m3",
    "cortex-m4": "cortex-m4",
    "cortex-m7": "cortex-m4",  # the same instruction set
    "cortex-m33": "cortex-m4",  # assumed: the same integer and DSP instructions
    "cortex-m55": "cortex-m4",  # assumed: not emulated, and our kernels have no vector instructions
}
"""Whose costs in `sparsemod.measure.c_costs` stand for a core."""

DSP = frozenset({"cortex-m4", "cortex-m7", "cortex-m33", "cortex-m55"})
"""Cores that add two products of 16 bits in one instruction."""

FLOAT_MAC = {"cortex-m0+": 130.0, "cortex-m3": 70.0}
"""Assumed: added instructions a MAC in software floating point; other cores have a unit for it."""
