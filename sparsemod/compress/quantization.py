"""Quantize a trained network as it will run on the chip, and call it like the network itself.

    quantized = quantize(net, "post", [inputs])
    logits = quantized(inputs)

The network is not changed, not copied and needs no stubs: its calls are recorded in calibration and carried
out in int8 arithmetic when it is called again (see `calls`, `resolve` and `steps`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from sparsemod.compress.calls import Call, eval_mode, intercepted_pass
from sparsemod.compress.dynamic import RunTimeWeights, run_dynamic
from sparsemod.compress.fakequant import QParams, QuantizedWeight, to_grid
from sparsemod.compress.kernels import keep
from sparsemod.compress.resolve import resolve
from sparsemod.compress.sequence import Cursor, Positions, moves_elements, positions_of
from sparsemod.compress.steps import Step, build_step
from sparsemod.compress.trace import Trace, module_stack, record
from sparsemod.compress.values import map_tensors, tag
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
        activations: Every value with its grid, in the order of the calls; empty for ``dynamic`` and ``none``.
        weights: Every quantized weight, in the order of the calls.
        inner: Grids of the values inside statically quantized recurrent layers: call, name, grid. The names
            are those of `recurrent_cells`; ``h`` and ``c`` are the states of all layers and directions.
    """

    def __init__(
        self,
        scheme: str,
        forward: Callable[[Any], Any],
        activations: tuple[Activation, ...] = (),
        weights: tuple[Weight, ...] = (),
        inner: Mapping[int, Mapping[str, QParams]] | None = None,
    ) -> None:
        self.scheme = scheme
        self.activations = activations
        self.weights = weights
        self.inner = inner or {}
        self._forward = forward

    def __call__(self, inputs: Any) -> Any:
        """Return what the network returns, as floats; statically quantized values lie on their int8 grid.

        Raises:
            CandidateError: The network fails or calls other operators than in calibration.
        """
        return self._forward(inputs)


def quantize(
    net: nn.Module, scheme: str, calibration: Iterable[Any], quant_params: Iterable[type] | None = ()
) -> QuantizedNet:
    """Quantize a network to int8; the network itself stays as it is.

    Args:
        net: Any trained module. Nets with `QuantStub` and `fuse_model` run unchanged.
        scheme: ``post`` and ``qat`` quantize weights and activations by ranges seen in calibration;
        ``dynamic``
            the modules of the types in `quant_params`, with activations quantized at run time; ``both`` those
            at run time and everything else by calibration; ``none`` nothing.
        calibration: Batches of inputs, 256 samples or more altogether; ``dynamic`` looks at the first only.
        quant_params: Module types for ``dynamic`` and ``both``, such as ``[nn.Linear, nn.LSTM]``.

    Raises:
        ConfigError: Unknown scheme, no calibration batch, or no type where the scheme needs one.
        CandidateError: The network cannot be quantized; one line says why.

    Example:
        >>> quantized = quantize(nn.Linear(4, 2), "post", [torch.randn(256, 4)])
        >>> [activation.op for activation in quantized.activations], quantized.weights[0].values.dtype
        (['input', 'linear'], torch.int8)
    """
    if scheme not in SCHEMES:
        close = nearest(str(scheme), SCHEMES)
        raise ConfigError(f"quant_scheme: expected one of {', '.join(SCHEMES)}, got {scheme!r}{close}")
    if scheme == "none":
        return QuantizedNet(scheme, partial(_float_pass, net))
    types = _module_types(scheme, quant_params) if scheme in ("dynamic", "both") else ()
    if scheme == "dynamic":
        return _quantize_dynamic(net, types, calibration)
    return _quantize_static(net, scheme, types, calibration)


def _module_types(scheme: str, quant_params: Iterable[type] | None) -> tuple[type, ...]:
    types = tuple(quant_params or ())
    if not types:
        raise ConfigError(
            f"quant_params: quant_scheme {scheme!r} expects the module types to quantize at run time, such "
            "as [nn.Linear, nn.LSTM], got none"
        )
    for item in types:
        if not (isinstance(item, type) and issubclass(item, nn.Module)):
            raise ConfigError(f"quant_params: expected module types such as nn.Linear, got {item!r}")
    return types


def _float_pass(net: nn.Module, inputs: Any) -> Any:
    with eval_mode(net), torch.no_grad(), user_code("Net.forward"):
        return net(inputs)


def _quantize_static(
    net: nn.Module, scheme: str, types: tuple[type, ...], calibration: Iterable[Any]
) -> QuantizedNet:
    trace = record(net, calibration, types)
    resolution = resolve(trace)
    steps: list[Step] = []
    weights: list[Weight] = []
    with torch.no_grad():
        for position, node in enumerate(trace.nodes):
            step, held = build_step(trace, resolution, position)
            steps.append(step)
            weights += [
                Weight(position, node.op, node.module, name, w.values, w.scales, w.bias)
                for name, w in held.items()
            ]
    grids = tuple(root.qparams for root in resolution.roots)
    forward = partial(_static_pass, net, steps, positions_of(trace.nodes), grids[: trace.n_inputs])
    inner = {
        position: {name: node.observation.grid(name) for name in node.observation.low}
        for position, node in enumerate(trace.nodes)
        if node.observation is not None and not node.dynamic
    }
    return QuantizedNet(scheme, forward, tuple(_activations(trace, grids)), tuple(weights), inner)


def _static_pass(
    net: nn.Module, steps: list[Step], positions: Positions, grids: tuple[QParams | None, ...], inputs: Any
) -> Any:
    cursor = Cursor(positions)

    def interpret(call: Call) -> Any:
        return keep(call) if moves_elements(call) else steps[cursor.advance(call.op)](call)

    remaining = iter(grids)

    def enter(tensor: Tensor) -> Tensor:
        if not tensor.is_floating_point():
            return tag(tensor.detach())
        grid = next(remaining)
        return tag(tensor.detach() if grid is None else to_grid(tensor, grid), qparams=grid)

    return intercepted_pass(net, map_tensors(enter, inputs), interpret)


def _quantize_dynamic(net: nn.Module, types: tuple[type, ...], calibration: Iterable[Any]) -> QuantizedNet:
    first = next(iter(calibration), None)
    if first is None:
        raise ConfigError("calibration: expected at least one batch of inputs, got none")
    found: list[Weight] = []
    place = ["", ""]

    def note(name: str, w: QuantizedWeight) -> None:
        found.append(Weight(len(found), place[0], place[1], name, w.values, w.scales, None))

    weights = RunTimeWeights(note)

    def forward(inputs: Any) -> Any:
        with module_stack(net) as stack:

            def interpret(call: Call) -> Any:
                if not any(isinstance(module, types) for _, module in stack):
                    return map_tensors(tag, call.run())
                place[:] = call.op, stack[-1][0]
                return run_dynamic(weights, call)

            tagged = map_tensors(lambda tensor: tag(tensor.detach()), inputs)
            return intercepted_pass(net, tagged, interpret)

    forward(first)
    return QuantizedNet("dynamic", forward, (), tuple(found))


def _activations(trace: Trace, grids: tuple[QParams | None, ...]) -> Iterator[Activation]:
    places = [(-1, "input", "", value, value) for value in range(trace.n_inputs)]
    for position, node in enumerate(trace.nodes):
        places += [(position, node.op, node.module, k, value) for k, value in enumerate(node.outputs)]
    for position, op, module, output, value in places:
        grid = grids[value]
        if grid is None:
            yield Activation(position, op, module, output, None, None, 32)
        else:
            yield Activation(position, op, module, output, grid.scale, grid.zero_point, grid.bits)
