"""Quantization-aware training: the last part of training runs on int8 grids, gradients pass straight through.

The fusion is the one of `resolve`, made from the first batch of that part; from there on

- weights are rounded to int8 with the scales of the moment, batch norms folded in. Batch norms are frozen:
their
  running statistics are used and not updated, their factors and offsets are still trained;
- activations are rounded to grids that follow the ranges of the batches: they widen at once, as calibration
  will, and shrink slowly. No gradient passes where a value saturates;
- the insides of recurrent layers run in float on int8 weights; their outputs are rounded;
- dropout stays active. Biases stay in float, as their int32 grid is much finer than the weights'.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sparsemod.compress.calls import Call, intercepted_pass
from sparsemod.compress.fakequant import WEIGHT_MAX, activation_qparams, fake_quantize, weight_scales
from sparsemod.compress.kernels import main_input
from sparsemod.compress.recurrent import RECURRENT, with_weights
from sparsemod.compress.resolve import Resolution, Root, resolve
from sparsemod.compress.roles import FIXED, weighted
from sparsemod.compress.sequence import Cursor, moves_elements, positions_of
from sparsemod.compress.steps import folded
from sparsemod.compress.trace import Trace, record
from sparsemod.compress.values import is_value, map_tensors, tag, value_of
from sparsemod.errors import ConfigError

__all__ = ["FakeQuantizedPasses", "QATHook", "fake_quantize_weight"]

_MOMENTUM = 0.02


class QATHook:
    """Train hook that makes the forward pass of the last steps a quantized one, in validation, too.

    Args:
        start_fraction: Share of the steps that are trained in float, in [0, 1).

    Raises:
        ConfigError: The share is outside [0, 1).
    """

    def __init__(self, start_fraction: float = 0.7) -> None:
        if not 0 <= start_fraction < 1:
            raise ConfigError(f"start_fraction: expected a number in [0, 1), got {start_fraction!r}")
        self._start_fraction = start_fraction
        self._first_step = 0
        self._step = 0
        self._passes: FakeQuantizedPasses | None = None
        self._identity: tuple[Any, ...] = ()

    def start(self, net: nn.Module, n_steps: int) -> None:
        """Begin a training of `n_steps` optimizer steps; at least the last one is quantized."""
        self._first_step = min(int(self._start_fraction * n_steps), max(0, n_steps - 1))
        self._step = 0
        self._passes = None

    def before_step(self, step: int) -> None:
        """Note the step that comes, counted from 0."""
        self._step = step

    def after_step(self, step: int) -> None:
        """Do nothing."""

    def ready(self, step: int) -> bool:
        """Tell, after a step, whether it was a quantized one, so that a best epoch may be chosen."""
        return step >= self._first_step

    def forward(self, net: nn.Module, x: Any) -> Any:
        """Return ``net(x)`` before the first quantized step, from there on its fake-quantized form.

        In training mode gradients flow, dropout is applied and ranges follow the batch; in evaluation
        mode not.

        Raises:
            CandidateError: The network cannot be quantized.
        """
        if self._step < self._first_step:
            return net(x)
        identity = tuple((id(t), t.shape) for t in (*net.parameters(), *net.buffers()))
        if self._passes is None or identity != self._identity:  # structured pruning replaces parameters
            self._passes, self._identity = FakeQuantizedPasses(record(net, [x])), identity
        return self._passes.run(net, x, net.training)


def fake_quantize_weight(weight: Tensor, channels: Tensor, n_channels: int, shared: int = 1) -> Tensor:
    """Return the weight's int8 form as real values; the gradient passes as if it were the weight itself.

    Args:
        weight: Real weight.
        channels: Output channel of each element; broadcasts to `weight`.
        n_channels: Number of output channels.
        shared: So many channels in a row share one scale.

    Example:
        >>> fake_quantize_weight(torch.tensor([[1.27, 0.014]]), torch.zeros(1, 1, dtype=torch.long), 1)
        tensor([[1.2700, 0.0100]])
    """
    with torch.no_grad():
        index = channels.expand_as(weight)
        largest = weight.new_zeros(n_channels).scatter_reduce(
            0, index.flatten(), weight.abs().flatten(), "amax"
        )
        scales = weight_scales(largest.reshape(-1, shared).amax(1)).repeat_interleave(shared)[channels]
        change = (weight / scales).round_().clamp_(-WEIGHT_MAX, WEIGHT_MAX).mul_(scales).sub_(weight)
    return weight + change


class FakeQuantizedPasses:
    """Passes under fake quantization with the fusion of one recorded pass.

    Args:
        trace: The recorded pass; several batches give better first ranges.
        in_float: Says by its qualified name whether a module stays in float; none does by default.

    Attributes:
        frozen: While True, the ranges no longer follow the batches.
    """

    def __init__(self, trace: Trace, in_float: Callable[[str], bool] = lambda _: False) -> None:
        self.frozen = False
        self._in_float = in_float
        self._trace = trace
        self._resolution: Resolution = resolve(trace)
        self._ranges: dict[int, list[float]] = {id(r): [r.low, r.high] for r in self._resolution.roots}
        self._cursor = Cursor(())
        self._training = True

    def run(self, net: nn.Module, x: Any, training: bool) -> Any:
        """Return the network's output; ranges follow, and dropout is applied, in training only."""
        self._cursor, self._training = Cursor(positions_of(self._trace.nodes)), training
        values = iter(range(self._trace.n_inputs))

        def enter(tensor: Tensor) -> Tensor:
            if not tensor.is_floating_point():
                return tag(tensor.detach())
            return tag(self._round(self._resolution.roots[next(values)], tensor.detach()))

        return intercepted_pass(net, map_tensors(enter, x), self._interpret, training)

    def _interpret(self, call: Call) -> Any:
        if moves_elements(call):
            return map_tensors(_tag_new, call.run())
        nodes = self._trace.nodes
        position = self._cursor.advance(call.op)
        role = self._resolution.roles[position]
        if role == "fused":
            return main_input(call)
        if role in ("plain", "keep", "average"):
            return map_tensors(_tag_new, call.run())
        roots = iter([self._resolution.roots[value] for value in nodes[position].outputs])

        def place(tensor: Tensor) -> Tensor:
            return tag(self._round(next(roots), tensor) if tensor.is_floating_point() else tensor)

        return map_tensors(place, self._compute(position, call))

    def _compute(self, position: int, call: Call) -> Any:
        in_float = self._in_float(self._trace.nodes[position].module)
        if call.op in RECURRENT:
            return call.run() if in_float else _recurrent(call)
        if call.op == "embedding" and value_of(call.args[1]) is None:
            if in_float:
                return call.run()
            table = call.args[1]
            whole = torch.zeros_like(table, dtype=torch.long)
            return F.embedding(call.args[0], fake_quantize_weight(table, whole, 1))
        form = weighted(call.op, call.args, call.kwargs, is_value)
        if form is None:
            return call.run()
        root = self._resolution.roots[self._trace.nodes[position].outputs[0]]
        weight, bias = folded(form, [self._trace.nodes[norm] for norm in root.norms])
        if not in_float:
            weight = fake_quantize_weight(weight, form.channels, form.n_channels)
        return form.accumulate(form.input, weight, bias)

    def _round(self, root: Root, x: Tensor) -> Tensor:
        """Apply the fused activation, let the range follow the batch, and round."""
        if root.clamp_low > -torch.inf or root.clamp_high < torch.inf:
            x = x.clamp(root.clamp_low, root.clamp_high)
        node = None if root.node is None else self._trace.nodes[root.node]
        if node is not None and self._in_float(node.module):
            return x
        if node is not None and node.op in FIXED:
            return fake_quantize(x, FIXED[node.op])
        if root.qparams is not None and root.qparams.bits > 8:
            return x
        bounds = self._ranges[id(root)]
        if self._training and not self.frozen and x.numel():
            low, high = (float(bound) for bound in torch.aminmax(x.detach()))
            bounds[0] = min(low, bounds[0] + _MOMENTUM * (low - bounds[0]))
            bounds[1] = max(high, bounds[1] + _MOMENTUM * (high - bounds[1]))
        final = root
        while final.joined is not None:
            final = final.joined
        return fake_quantize(x, activation_qparams(*self._ranges[id(final)]))


def _tag_new(tensor: Tensor) -> Tensor:
    return tensor if value_of(tensor) is not None else tag(tensor)


def _recurrent(call: Call) -> Any:
    """Run a recurrent function of PyTorch on int8 weights."""

    def rounded(weight: Tensor) -> Tensor:
        if weight.dim() < 2:
            return weight
        rows = torch.arange(len(weight), device=weight.device).reshape(-1, 1)
        return fake_quantize_weight(weight, rows, len(weight), len(weight) // 4 if "lstm" in call.op else 1)

    return call.func(*with_weights(call.op, call.args, rounded), **call.kwargs)
