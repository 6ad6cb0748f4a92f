"""The recorded sequence of operators of a network, with the range of every value seen in calibration."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from sparsemod.compress.calls import Call, CallSequence, eval_mode
from sparsemod.compress.recurrent import RECURRENT, Observation, observe
from sparsemod.compress.values import latest, map_tensors, tag, tensors_in, value_of
from sparsemod.errors import CandidateError, ConfigError, UnsupportedOperatorError, user_code

__all__ = ["Node", "Ref", "Trace", "module_stack", "out_of_step", "record", "tagged_inputs"]


@dataclass(frozen=True, slots=True)
class Ref:
    """Stands for a value of the network in the recorded arguments of a node."""

    index: int


@dataclass(frozen=True, slots=True)
class Node:
    """One recorded call.

    Attributes:
        op: Plain name of the torch function.
        module: Qualified name of the innermost module that called it, empty for the network itself.
        dynamic: It runs inside a module of a type that is quantized at run time.
        args: Positional arguments; values of the network are replaced by `Ref`.
        kwargs: Keyword arguments, likewise.
        inputs: Indices of the float values it takes, each once.
        outputs: Indices of the float values it makes.
        n_dims: Dimensions of its first input.
        observation: Ranges inside a recurrent layer, None elsewhere.
    """

    op: str
    module: str
    dynamic: bool
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    n_dims: int
    observation: Observation | None


@dataclass(slots=True)
class Trace:
    """What a network did with the calibration inputs.

    Attributes:
        nodes: The calls, in order.
        low: Smallest element of each value.
        high: Largest element of each value.
        consumers: For each value the nodes that take it; -1 stands for the network's output.
        n_inputs: The first so many values are the network's inputs.
    """

    nodes: list[Node] = field(default_factory=list)
    low: list[float] = field(default_factory=list)
    high: list[float] = field(default_factory=list)
    consumers: list[set[int]] = field(default_factory=list)
    n_inputs: int = 0

    def describe(self, value: int) -> str:
        """Say what a value is, for messages."""
        if value < self.n_inputs:
            return f"input {value} of the network"
        node = next(node for node in self.nodes if value in node.outputs)
        return f"the output of {node.op} in {node.module or 'Net.forward'}"


def record(net: nn.Module, batches: Iterable[Any], dynamic: tuple[type, ...] = ()) -> Trace:
    """Run the network in float on every batch and record its calls and ranges.

    The network's parameters, buffers, training flags and the global random state stay as they are.

    Args:
        net: Any module.
        batches: What `net` takes, one argument each: a tensor, a packed sequence, or a tuple of them.
        dynamic: Module types whose calls are marked.

    Raises:
        ConfigError: There is no batch.
        UnsupportedOperatorError: A module is scripted.
        CandidateError: The network fails, takes another way on a later batch, or its output cannot be
        followed.
    """
    trace: Trace | None = None
    with eval_mode(net), torch.no_grad(), torch.random.fork_rng(devices=[]):
        for batch in batches:
            trace = _record_batch(net, batch, trace, dynamic)
    if trace is None:
        raise ConfigError("calibration: expected at least one batch of inputs, got none")
    return trace


def tagged_inputs(batch: Any) -> Any:
    """Return the batch with its tensors tagged as the values 0, 1, ...; the caller's own stay unmarked."""
    numbers = iter(range(10_000))

    def mark(tensor: Tensor) -> Tensor:
        copy = tensor.detach()
        return tag(copy, next(numbers)) if copy.is_floating_point() else tag(copy)

    return map_tensors(mark, batch)


def out_of_step(position: int, op: str, expected: str) -> CandidateError:
    """Return the error for a network that calls other operators than it did in calibration."""
    return CandidateError(
        f"quantization: operator {position} of the network is {op}, in calibration it was {expected}; static "
        "quantization needs the same operators for every input"
    )


@contextlib.contextmanager
def module_stack(net: nn.Module) -> Iterator[list[tuple[str, nn.Module]]]:
    """Give a list that holds the modules being run at any moment, outermost first, with their names."""
    stack: list[tuple[str, nn.Module]] = []
    handles: list[Any] = []

    def watch(name: str, module: nn.Module) -> None:
        def enter(*_: Any) -> None:
            stack.append((name, module))

        def leave(*_: Any) -> None:
            stack.pop()

        handles.append(module.register_forward_pre_hook(enter))
        handles.append(module.register_forward_hook(leave, always_call=True))

    for name, module in net.named_modules():
        if isinstance(module, torch.jit.ScriptModule):
            raise UnsupportedOperatorError(
                f"quantization: scripted module {name or 'Net'} hides its operators"
            )
    for name, module in net.named_modules():
        watch(name, module)
    try:
        yield stack
    finally:
        for handle in handles:
            handle.remove()


def _record_batch(net: nn.Module, batch: Any, known: Trace | None, dynamic: tuple[type, ...]) -> Trace:
    inputs = tagged_inputs(batch)
    recorder = _Recorder(dynamic)
    for tensor in tensors_in(inputs):
        if tensor.is_floating_point():
            recorder.new_value(tensor)
    recorder.trace.n_inputs = len(recorder.trace.low)
    with module_stack(net) as recorder.stack, user_code("Net.forward"), CallSequence(recorder.interpret):
        outputs = map_tensors(latest, net(inputs))
    followed = [value for tensor in tensors_in(outputs) if (value := value_of(tensor)) is not None]
    if not followed:
        raise CandidateError(
            "quantization: the network's output does not come from its input by torch functions that can be "
            "seen (numpy cannot)"
        )
    for value in followed:
        if value.index >= 0:
            recorder.trace.consumers[value.index].add(-1)
    return recorder.trace if known is None else _merge(known, recorder.trace)


class _Recorder:
    """Runs each call in float and notes it down."""

    def __init__(self, dynamic: tuple[type, ...]) -> None:
        self.trace = Trace()
        self.stack: list[tuple[str, nn.Module]] = []
        self._dynamic = dynamic

    def new_value(self, tensor: Tensor) -> int:
        low, high = (math.inf, -math.inf)
        if tensor.numel():
            low, high = (float(bound) for bound in torch.aminmax(tensor.detach()))
        self.trace.low.append(low)
        self.trace.high.append(high)
        self.trace.consumers.append(set())
        return len(self.trace.low) - 1

    def interpret(self, call: Call) -> Any:
        known = [(tensor, value) for tensor in call.inputs if (value := value_of(tensor)) is not None]
        inputs = tuple(dict.fromkeys(value.index for _, value in known if value.index >= 0))
        result, observation = observe(call) if call.op in RECURRENT else (call.run(), None)
        made = [tensor for tensor in tensors_in(result) if tensor.is_floating_point()]
        for tensor in tensors_in(result):
            if not tensor.is_floating_point():
                tag(tensor)
        for index in inputs:
            self.trace.consumers[index].add(len(self.trace.nodes))
        refs = {id(tensor): Ref(value.index) for tensor, value in known}
        outputs = tuple(self.new_value(tensor) for tensor in made)
        name, _ = self.stack[-1] if self.stack else ("", None)
        self.trace.nodes.append(
            Node(
                call.op, name, any(isinstance(module, self._dynamic) for _, module in self.stack),
                _with_refs(call.args, refs), _with_refs(dict(call.kwargs), refs), inputs, outputs,
                known[0][0].dim(), observation,
            )
        )  # fmt: skip
        for tensor, index in zip(made, outputs, strict=True):
            tag(tensor, index)
        return result


def _with_refs(tree: Any, refs: dict[int, Ref]) -> Any:
    if isinstance(tree, Tensor):
        return refs.get(id(tree), tree)
    if isinstance(tree, list):
        return [_with_refs(item, refs) for item in tree]
    if type(tree) is tuple:
        return tuple(_with_refs(item, refs) for item in tree)
    if isinstance(tree, dict):
        return {key: _with_refs(item, refs) for key, item in tree.items()}
    return tree


def _merge(known: Trace, new: Trace) -> Trace:
    """Widen the known ranges by those of another batch."""
    for position, (old, node) in enumerate(zip(known.nodes, new.nodes, strict=False)):
        if old.op != node.op or old.outputs != node.outputs:
            raise out_of_step(position, node.op, old.op)
        if old.observation is not None and node.observation is not None:
            old.observation.widen(node.observation)
    if len(known.nodes) != len(new.nodes):
        longer = max(known.nodes, new.nodes, key=len)[min(len(known.nodes), len(new.nodes))]
        raise out_of_step(min(len(known.nodes), len(new.nodes)), longer.op, "the end of the network")
    known.low = np.minimum(known.low, new.low).tolist()  # unlike min() it keeps a NaN
    known.high = np.maximum(known.high, new.high).tolist()
    for old_set, new_set in zip(known.consumers, new.consumers, strict=True):
        old_set |= new_set
    return known
