"""Quantize a trained network as it will run on the chip, and call it like the network itself.

    quantized = quantize(net, "post", [inputs])
    logits = quantized(inputs)

The network is not changed, not copied and needs no stubs: its calls are recorded in calibration and carried out in
int8 arithmetic when it is called again (see `calls`, `resolve` and `kernels`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from sparsemod.compress.calls import Call, CallSequence, eval_mode, map_tensors, tag, value_of
from sparsemod.compress.fakequant import QParams, QuantizedWeight, to_grid
from sparsemod.compress.kernels import Step, build_step
from sparsemod.compress.resolve import resolve
from sparsemod.compress.trace import Trace, out_of_step, record
from sparsemod.errors import ConfigError, nearest, user_code

__all__ = ["SCHEMES", "Activation", "QuantizedNet", "Weight", "quantize"]

SCHEMES = ("post", "dynamic", "both", "qat", "none")


@dataclass(frozen=True, slots=True)
class Activation:
    """A value of the network and the grid it is rounded to.

    Attributes:
        index: Position of the call that makes it; -1 for an input of the network.
        op: Plain name of the torch function, ``input`` for an input.
        module: Qualified name of the module that calls it.
        output: Which of the call's outputs, or of the network's inputs.
        scale: Real value of one step; None where the value stays in float.
        zero_point: The stored integer that means zero.
        bits: Width of the stored integer.
    """

    index: int
    op: str
    module: str
    output: int
    scale: float | None
    zero_point: int | None
    bits: int


@dataclass(frozen=True, slots=True)
class Weight:
    """A weight at the call that uses it.

    Attributes:
        index: Position of the call.
        op: Plain name of the torch function.
        module: Qualified name of the module that calls it.
        name: Name of the parameter within the module.
        values: int8 in PyTorch's layout, batch norm folded in.
        scales: float32, one for each output channel.
        bias: int32 at scale ``input scale * scales``, or None.
    """

    index: int
    op: str
    module: str
    name: str
    values: Tensor
    scales: Tensor
    bias: Tensor | None


class QuantizedNet:
    """A quantized network: call it with what the float network takes, get the float network's kind of answer.

    Attributes:
        scheme: How it was quantized.
        activations: Every value with its grid, in the order of the calls.
        weights: Every quantized weight, in the order of the calls.
    """

    def __init__(
        self,
        net: nn.Module,
        scheme: str,
        steps: tuple[tuple[str, Step], ...],
        inputs: tuple[QParams | None, ...],
        activations: tuple[Activation, ...],
        weights: tuple[Weight, ...],
    ) -> None:
        self.scheme = scheme
        self.activations = activations
        self.weights = weights
        self._net = net
        self._steps = steps
        self._inputs = inputs

    def __call__(self, inputs: Any) -> Any:
        """Return what the network returns, its values on the int8 grid but given as floats.

        Raises:
            CandidateError: The network fails or calls other operators than in calibration.
        """
        with eval_mode(self._net), torch.no_grad(), user_code("Net.forward"):
            if self.scheme == "none":
                return self._net(inputs)
            run = _Run(self._steps)
            with CallSequence(run.interpret):
                outputs = self._net(_on_grids(inputs, self._inputs))
            return map_tensors(_latest, outputs)


def quantize(
    net: nn.Module, scheme: str, calibration: Iterable[Any], quant_params: Iterable[type] = ()
) -> QuantizedNet:
    """Quantize a network to int8; the network itself stays as it is.

    Args:
        net: Any trained module. Nets with `QuantStub` and `fuse_model` run unchanged.
        scheme: ``post`` and ``qat`` quantize weights and activations by ranges seen in calibration; ``dynamic`` the
            modules of the types in `quant_params`, with activations quantized at run time; ``both`` those at run
            time and everything else by calibration; ``none`` nothing.
        calibration: Batches of inputs, 256 samples or more altogether.
        quant_params: Module types for ``dynamic`` and ``both``, such as ``[nn.Linear, nn.LSTM]``.

    Raises:
        ConfigError: Unknown scheme, no calibration batch, or no type where the scheme needs one.
        CandidateError: The network cannot be quantized; one line says why.
    """
    if scheme not in SCHEMES:
        raise ConfigError(f"quant_scheme: expected one of {', '.join(SCHEMES)}, got {scheme!r}{nearest(scheme, SCHEMES)}")
    if scheme == "none":
        return QuantizedNet(net, scheme, (), (), (), ())
    trace = record(net, calibration, tuple(quant_params))
    resolution = resolve(trace)
    steps, weights = [], []
    with torch.no_grad():
        for position, node in enumerate(trace.nodes):
            step, held = build_step(trace, resolution, position)
            steps.append((node.op, step))
            weights += [_weight(position, trace, name, weight) for name, weight in held.items()]
    grids = tuple(root.qparams for root in resolution.roots)
    return QuantizedNet(
        net, scheme, tuple(steps), grids[: trace.n_inputs], tuple(_activations(trace, grids)), tuple(weights)
    )


class _Run:
    """Carries out the steps of one pass, in order."""

    def __init__(self, steps: tuple[tuple[str, Step], ...]) -> None:
        self._steps = steps
        self._position = 0

    def interpret(self, call: Call) -> Any:
        position = self._position
        op, step = self._steps[position] if position < len(self._steps) else ("the end of the network", None)
        if op != call.op or step is None:
            raise out_of_step(position, call.op, op)
        self._position += 1
        return step(call)


def _on_grids(batch: Any, grids: tuple[QParams | None, ...]) -> Any:
    remaining = iter(grids)

    def enter(tensor: Tensor) -> Tensor:
        tensor = tensor.detach()
        if not tensor.is_floating_point():
            return tag(tensor)
        grid = next(remaining)
        return tag(tensor if grid is None else to_grid(tensor, grid), qparams=grid)

    return map_tensors(enter, batch)


def _latest(tensor: Tensor) -> Tensor:
    while (value := value_of(tensor)) is not None and value.latest is not None:
        tensor = value.latest
    return tensor.detach()


def _activations(trace: Trace, grids: tuple[QParams | None, ...]) -> Iterable[Activation]:
    places = [(-1, "input", "", value, value) for value in range(trace.n_inputs)]
    for position, node in enumerate(trace.nodes):
        places += [(position, node.op, node.module, k, value) for k, value in enumerate(node.outputs)]
    for position, op, module, output, value in places:
        grid = grids[value]
        if grid is None:
            yield Activation(position, op, module, output, None, None, 32)
        else:
            yield Activation(position, op, module, output, grid.scale, grid.zero_point, grid.bits)


def _weight(position: int, trace: Trace, name: str, weight: QuantizedWeight) -> Weight:
    node = trace.nodes[position]
    return Weight(position, node.op, node.module, name, weight.values, weight.scales, weight.bias)
