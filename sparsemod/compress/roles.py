"""What each torch function means for quantization."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from sparsemod.compress.fakequant import QParams

__all__ = [
    "FIXED",
    "KEEP",
    "Weighted",
    "batch_norm_affine",
    "clamp_range",
    "commutes_with_clamp",
    "is_average",
    "is_keep",
    "weighted",
]

_MOVES = """
    max_pool1d max_pool2d max_pool3d adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d reshape
    reshape_as view view_as flatten unflatten ravel permute transpose t T mT movedim moveaxis squeeze
    unsqueeze expand expand_as broadcast_to repeat tile repeat_interleave getitem select narrow index_select
    gather take take_along_dim chunk split split_with_sizes tensor_split hsplit vsplit unbind pad roll flip
    pixel_shuffle pixel_unshuffle channel_shuffle amax amin masked_fill unfold rot90 diagonal masked_select
    _pack_padded_sequence _pad_packed_sequence
"""
KEEP = frozenset(_MOVES.split())  # move or choose elements: the output lies on the input's grid

# Results with a known range have the grid that the interpreter's kernels prescribe.
FIXED = {
    "sigmoid": QParams(1 / 256, -128),
    "softmax": QParams(1 / 256, -128),
    "tanh": QParams(1 / 128, 0),
    "log_softmax": QParams(16 / 256, 127),
}

_AVERAGES = frozenset(f"{kind}avg_pool{n}d" for kind in ("", "adaptive_") for n in (1, 2, 3))
_CONVOLUTION = ("input", "weight", "bias", "stride", "padding", "dilation", "groups")
_TRANSPOSED = ("input", "weight", "bias", "stride", "padding", "output_padding", "groups", "dilation")
_BATCH_NORM = ("input", "running_mean", "running_var", "weight", "bias", "training", "momentum", "eps")


@dataclass(frozen=True, slots=True)
class Weighted:
    """An operator with constant weights in one form: ``accumulate(x, weight, bias)`` plus where its channels
    are.

    Attributes:
        input: The value (or its stand-in) that is multiplied.
        weight: Constant weight.
        bias: Constant bias, (n_channels,), or None.
        channels: Output channel of each element of the weight; broadcasts to it.
        n_channels: Number of output channels.
        trailing: Dimensions behind the channel dimension of the output.
        accumulate: The operator on any input, weight and bias of these shapes.
    """

    input: Any
    weight: Tensor
    bias: Tensor | None
    channels: Tensor
    n_channels: int
    trailing: int
    accumulate: Callable[[Tensor, Tensor, Tensor | None], Tensor]

    def per_channel(self, values: Tensor) -> Tensor:
        """Shape (n_channels,) values so that they broadcast to the output."""
        return values.reshape(-1, *[1] * self.trailing)

    def per_element(self, values: Tensor) -> Tensor:
        """Spread (n_channels,) values so that they broadcast to the weight."""
        return values[self.channels]


def weighted(
    op: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], is_value: Callable[[Any], bool]
) -> Weighted | None:
    """Return the operator's common form when it multiplies one value by constant weights, else None.

    Args:
        op: Plain name.
        args: Positional arguments, values as tagged tensors or as stand-ins.
        kwargs: Keyword arguments.
        is_value: Tells values from constants.
    """
    if op in ("conv1d", "conv2d", "conv3d", "linear"):
        bound = _bind(_CONVOLUTION, args, kwargs)
        rest = {name: value for name, value in bound.items() if name not in _CONVOLUTION[:3]}
        trailing = int(op[4]) if op != "linear" else 0
        accumulate = partial(_apply, getattr(torch, op) if op != "linear" else F.linear, rest)
        return _form(bound, 0, trailing, accumulate, is_value)
    if op in ("conv_transpose1d", "conv_transpose2d", "conv_transpose3d"):
        bound = _bind(_TRANSPOSED, args, kwargs)
        rest = {name: value for name, value in bound.items() if name not in _TRANSPOSED[:3]}
        accumulate = partial(_apply, getattr(torch, op), rest)
        return _form(bound, int(bound.get("groups", 1)), int(op[14]), accumulate, is_value)
    if op in ("matmul", "mm") and _is_matrix(args[-1]) and len(args) == 2:
        return _form({"input": args[0], "weight": args[1].t()}, 0, 0, partial(_apply, F.linear, {}), is_value)
    if op == "addmm" and len(args) == 3 and not kwargs and _is_matrix(args[2]):
        bound = {"input": args[1], "weight": args[2].t(), "bias": args[0]}
        return _form(bound, 0, 0, partial(_apply, F.linear, {}), is_value)
    return None


def batch_norm_affine(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Tensor, Tensor] | None:
    """Return per-channel (factor, offset) in float64 of a batch norm with running statistics, else None."""
    bound = _bind(_BATCH_NORM, args, kwargs)
    mean, var, weight, bias = (bound.get(name) for name in ("running_mean", "running_var", "weight", "bias"))
    if bound.get("training") or mean is None or var is None:
        return None
    factor = torch.rsqrt(var.double() + float(bound.get("eps", 1e-5)))
    if weight is not None:
        factor = factor * weight.double()
    offset = -mean.double() * factor
    return factor, offset if bias is None else offset + bias.double()


def clamp_range(op: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[float, float] | None:
    """Return the limits of an activation that clamps to an interval with zero in it, else None.

    Example:
        >>> clamp_range("relu6", (None,), {})
        (0.0, 6.0)
        >>> clamp_range("clamp", (None, 1.0), {}) is None
        True
    """
    if op == "relu":
        return 0.0, math.inf
    if op == "relu6":
        return 0.0, 6.0
    if op == "hardtanh":
        bound = _bind(("input", "min_val", "max_val"), args, kwargs)
        limits = (bound.get("min_val", -1.0), bound.get("max_val", 1.0))
    elif op == "clamp":
        bound = _bind(("input", "min", "max"), args, kwargs)
        limits = (bound.get("min"), bound.get("max"))
    elif op in ("clamp_min", "clamp_max"):
        bound = _bind(("input", op[-3:]), args, kwargs)
        limits = (bound.get("min"), bound.get("max"))
    elif op == "threshold":
        bound = _bind(("input", "threshold", "value"), args, kwargs)
        return (0.0, math.inf) if bound.get("threshold") == 0 and bound.get("value") == 0 else None
    else:
        return None
    if not all(limit is None or isinstance(limit, int | float) for limit in limits):
        return None
    low = -math.inf if limits[0] is None else float(limits[0])
    high = math.inf if limits[1] is None else float(limits[1])
    return (low, high) if low <= 0 <= high else None


def is_average(op: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], n_dims: int) -> bool:
    """Tell whether the call is an average pool; the mean over all positions of a feature map is one."""
    if op in _AVERAGES:
        return kwargs.get("divisor_override") is None and (len(args) < 7 or args[6] is None)
    if op != "mean" or n_dims < 3:
        return False
    dims = _bind(("input", "dim"), args, kwargs).get("dim")
    if dims is None:
        return False
    dims = [dims] if isinstance(dims, int) else list(dims)
    return sorted(dim % n_dims for dim in dims) == list(range(2, n_dims))


def is_keep(op: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    """Tell whether the output holds elements of the input only."""
    if op in ("max", "min"):
        return "other" not in kwargs and (len(args) < 2 or isinstance(args[1], int))
    if op == "interpolate":
        return kwargs.get("mode", "nearest") in ("nearest", "nearest-exact")
    return op in KEEP


def commutes_with_clamp(op: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    """Tell whether clamping before an element-moving operator gives the same as clamping behind it."""
    if op == "pad":
        value = _bind(("input", "pad", "mode", "value"), args, kwargs).get("value")
        return not value
    return op not in ("masked_fill", "chunk", "split", "split_with_sizes", "tensor_split", "unbind")


def _bind(names: tuple[str, ...], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    return {**dict(zip(names, args, strict=False)), **kwargs}


def _apply(
    function: Callable[..., Tensor], rest: dict[str, Any], x: Tensor, weight: Tensor, bias: Tensor | None
) -> Tensor:
    return function(x, weight, bias, **rest)


def _is_matrix(x: Any) -> bool:
    return isinstance(x, Tensor) and x.dim() == 2


def _form(
    bound: Mapping[str, Any],
    transposed_groups: int,
    trailing: int,
    accumulate: Callable[[Tensor, Tensor, Tensor | None], Tensor],
    is_value: Callable[[Any], bool],
) -> Weighted | None:
    weight, bias = bound["weight"], bound.get("bias")
    if not is_value(bound["input"]) or is_value(weight) or is_value(bias) or not isinstance(weight, Tensor):
        return None
    if weight.dim() < 2 or (bias is not None and bias.dim() != 1):
        return None
    if transposed_groups:
        per_group = weight.shape[1]
        group = torch.arange(weight.shape[0], device=weight.device) // (weight.shape[0] // transposed_groups)
        channels = group[:, None] * per_group + torch.arange(per_group, device=weight.device)
        channels = channels.reshape(*channels.shape, *[1] * (weight.dim() - 2))
        count = per_group * transposed_groups
    else:
        count = weight.shape[0]
        channels = torch.arange(count, device=weight.device).reshape(-1, *[1] * (weight.dim() - 1))
    if bias is not None and bias.shape[0] != count:
        return None
    return Weighted(bound["input"], weight, bias, channels, count, trailing, accumulate)
