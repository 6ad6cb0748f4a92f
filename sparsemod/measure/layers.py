"""One trace of a network: the operations that it runs on one input, as values in single-assignment form.

The trace sees PyTorch's own operators below autograd (`conv2d`, `linear`, `lstm`, ...), each once, in eval
mode and without a gradient. In-place operations become new values, and a tensor that does not depend on the
input is a constant.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from sparsemod.errors import CandidateError, user_code
from sparsemod.measure.storages import Storages, address
from sparsemod.measure.values import Node, Value

__all__ = ["Trace", "trace"]


_SHAPE_ONLY = {  # what reads the shape of a tensor but not its values
    "empty_like",
    "full_like",
    "new_empty",
    "new_empty_strided",
    "new_full",
    "new_ones",
    "new_zeros",
    "ones_like",
    "rand_like",
    "randn_like",
    "zeros_like",
}


_LENGTHS = {"_pack_padded_sequence", "_pad_packed_sequence"}
"""What hands back, second, the lengths of sequences: they come with the input and not from its values."""


@dataclass(slots=True, eq=False)
class Trace:
    """What a network did with one input; `nodes` holds only what its outputs need."""

    nodes: list[Node]
    inputs: list[Value]
    outputs: list[Value]
    module_types: Mapping[str, type[nn.Module]] = field(repr=False)


def trace(net: nn.Module, example: Any, whole: frozenset[str]) -> Trace:
    """Run the network once and record its operations.

    The network's modes, parameters and buffers and all random states are afterwards as before.

    Args:
        net: Any network.
        example: One input of batch size 1, a tensor, a `PackedSequence` or a structure of tensors.
        whole: Names of the operators to keep as one node though PyTorch could take them apart.

    Raises:
        CandidateError: The network's own code raised, or its output does not depend on the input.
    """
    modules = list(net.named_modules())
    recorder = _Recorder(net, whole)
    example = recorder.add_inputs(example)
    with _untouched(modules), recorder.following(modules), torch.no_grad():
        try:
            with _below_autograd(), recorder, user_code(f"{type(net).__name__}.forward"):
                result = net(example)
        except CandidateError:
            if recorder.bug is not None:
                raise recorder.bug from None
            raise
        finally:
            recorder.restore_written()
    if isinstance(result, PackedSequence):
        result = result.data
    leaves = [leaf for leaf in pytree.tree_leaves(result) if isinstance(leaf, Tensor)]
    outputs = [value for leaf in leaves if (value := recorder.value(leaf)).data is None]
    if not outputs:
        raise CandidateError(f"the output of {type(net).__name__}.forward does not depend on its input")
    types = {name: type(module) for name, module in modules}
    return Trace(_needed(recorder.nodes, outputs), recorder.inputs, outputs, types)


def _needed(nodes: list[Node], outputs: list[Value]) -> list[Node]:
    """Drop the nodes that no output depends on."""
    wanted = {value.id for value in outputs}
    kept = []
    for node in reversed(nodes):
        if any(value is not None and value.id in wanted for value in node.outputs):
            wanted.update(value.id for value in node.values)
            kept.append(node)
    return kept[::-1]


@contextlib.contextmanager
def _untouched(modules: list[tuple[str, nn.Module]]) -> Iterator[None]:
    """Put the network in eval mode and give back its modes and all random states."""
    modes = [(module, module.training) for _, module in modules]
    states = torch.get_rng_state(), random.getstate(), np.random.get_state()  # noqa: NPY002
    fast_path = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        for module, _ in modes:
            module.training = False
        yield
    finally:
        for module, mode in modes:
            module.training = mode
        torch.backends.mha.set_fastpath_enabled(fast_path)
        torch.set_rng_state(states[0])
        random.setstate(states[1])
        np.random.set_state(states[2])  # noqa: NPY002


def _below_autograd() -> contextlib.AbstractContextManager[Any]:
    # Composite operators take themselves apart at the autograd keys; below them a dispatch mode sees them
    # whole.
    guard: contextlib.AbstractContextManager[Any] = torch._C._AutoDispatchBelowAutograd()
    return guard


@cache
def _schema(func: Any) -> tuple[str, tuple[tuple[str, Any], ...], tuple[str, ...], bool]:
    """Return name, arguments with defaults, written arguments, and whether the result is a view."""
    schema = func._schema
    name = schema.name.partition("::")[2]
    arguments = tuple((a.name, a.default_value if a.has_default_value() else None) for a in schema.arguments)
    written = tuple(a.name for a in schema.arguments if a.alias_info is not None and a.alias_info.is_write)
    if written and name.endswith("_") and not name.endswith("__"):
        name = name[:-1]
    return name, arguments, written, bool(func.is_view)


class _Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __init__(self, net: nn.Module, whole: frozenset[str]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.nodes: list[Node] = []
        self.inputs: list[Value] = []
        self.bug: Exception | None = None
        self._whole = whole
        self._stack = [""]
        named = [*net.named_parameters(), *net.named_buffers()]
        self._owned = {address(tensor): (name, tensor) for name, tensor in named if tensor.numel()}
        self._saved: dict[str, tuple[Tensor, Tensor]] = {}
        self._storages = Storages(self._owned, self.nodes)

    @contextlib.contextmanager
    def following(self, modules: list[tuple[str, nn.Module]]) -> Iterator[None]:
        """Know which module is running."""
        handles = []

        def enter(name: str) -> Callable[[nn.Module, Any], None]:
            return lambda _module, _arguments: self._stack.append(name)

        def leave(_module: nn.Module, _arguments: Any, _result: Any) -> None:
            self._stack.pop()

        try:
            for name, module in modules:
                handles.append(module.register_forward_pre_hook(enter(name)))
                handles.append(module.register_forward_hook(leave))
            yield
        finally:
            for handle in handles:
                handle.remove()

    def add_inputs(self, example: Any) -> Any:
        """Copy the example, whose tensors are the inputs."""
        if isinstance(example, PackedSequence):
            return example._replace(data=self._input(example.data))
        return pytree.tree_map_only(Tensor, self._input, example)

    def _input(self, tensor: Tensor) -> Tensor:
        copy = tensor.detach().clone()
        self.inputs.append(self._storages.register(copy))
        return copy

    def value(self, tensor: Tensor) -> Value:
        """Return the value that a tensor holds now."""
        return self._storages.lookup(tensor, self._stack[-1])

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if _schema(func)[0] not in self._whole:
            with self:
                result = func.decompose(*args, **kwargs)
            if result is not NotImplemented:
                return result
        bound = self._guarded(self._bind, func, args, kwargs)
        arguments = self._guarded(self._prepare, func, bound)
        result = func(*args, **kwargs)
        self._guarded(self._record, func, bound, arguments, result)
        return result

    def _guarded(self, step: Callable[..., Any], *arguments: Any) -> Any:
        """Remember an exception of our own, which must not pass for one of the network's."""
        try:
            return step(*arguments)
        except Exception as error:
            self.bug = error
            raise

    def _bind(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """Name the arguments and fill in the defaults."""
        n = len(args)
        names = _schema(func)[1]
        return {key: args[i] if i < n else kwargs.get(key, default) for i, (key, default) in enumerate(names)}

    def _prepare(self, func: Any, bound: dict[str, Any]) -> dict[str, Any]:
        """Replace the tensors among the arguments by their values, before any of them is written."""
        name, _, written, _ = _schema(func)
        arguments: dict[str, Any] = {}
        for key, item in bound.items():
            if isinstance(item, Tensor):
                arguments[key] = self.value(item)
            elif isinstance(item, (list, tuple)):
                arguments[key] = [self.value(x) if isinstance(x, Tensor) else x for x in item]
            else:
                arguments[key] = item
        if name == "batch_norm" and bound["training"]:
            written = ("running_mean", "running_var")  # which its schema does not tell
        for key in written:
            if isinstance(bound[key], Tensor):
                self._save(bound[key])
        return arguments

    def _record(
        self,
        func: Any,
        bound: dict[str, Any],
        arguments: dict[str, Any],
        result: Any,
    ) -> None:
        name, _, written, is_view = _schema(func)
        node = Node(name, arguments, (), self._stack[-1])
        depends = name not in _SHAPE_ONLY and any(value.data is None for value in node.values)
        tensors = result if isinstance(result, (list, tuple)) else [result]
        if written:
            targets = [bound[key] for key in written if isinstance(bound[key], Tensor)]
            node.outputs = tuple(self._storages.write(target, depends) for target in targets)
        elif depends:
            followed = tensors[:1] if name in _LENGTHS else tensors
            node.outputs = tuple(
                self._storages.register(t, is_view) if isinstance(t, Tensor) else None for t in followed
            )
        else:
            source = next((value.source for value in node.values if value.source), None)
            for tensor in tensors:
                if source and isinstance(tensor, Tensor):
                    self._storages.constant(tensor, source)
        if depends and any(value is not None and value not in node.values for value in node.outputs):
            self.nodes.append(node)

    def _save(self, tensor: Tensor) -> None:
        name, owner = self._owned.get(address(tensor), ("", tensor))
        if name and name not in self._saved:
            self._saved[name] = owner, owner.detach().clone()

    def restore_written(self) -> None:
        """Give parameters and buffers that the network wrote their old content."""
        for target, copy in self._saved.values():
            target.data.copy_(copy)
