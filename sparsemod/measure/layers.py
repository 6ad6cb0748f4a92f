"""One trace of a network: the operations that it runs on one input, as values in single-assignment form.

The trace sees PyTorch's own operators below autograd (`conv2d`, `linear`, `lstm`, ...), each once, in eval mode and
without a gradient. In-place operations become new values, and a tensor that does not depend on the input is a constant.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from sparsemod.errors import CandidateError, user_code

__all__ = ["Node", "Trace", "Value", "trace"]


@dataclass(slots=True, eq=False)
class Value:
    """A tensor at one moment.

    Attributes:
        id: Counted in the order of appearance.
        shape: PyTorch's shape.
        dtype: PyTorch's dtype.
        data: The content of a constant; None for what depends on the input.
        source: The parameter or buffer that a constant comes from, if there is one.
    """

    id: int
    shape: tuple[int, ...]
    dtype: torch.dtype
    data: Tensor | None = None
    source: str | None = None


@dataclass(slots=True, eq=False)
class Node:
    """One operation: PyTorch's name without overload or in-place mark, arguments by their names in the schema."""

    op: str
    arguments: dict[str, Any]
    outputs: tuple[Value | None, ...]
    module: str

    def values(self) -> Iterator[Value]:
        """Yield the tensors among the arguments."""
        for argument in self.arguments.values():
            if isinstance(argument, Value):
                yield argument
            elif isinstance(argument, (list, tuple)):
                yield from (item for item in argument if isinstance(item, Value))


@dataclass(slots=True, eq=False)
class Trace:
    """What a network did with one input; `nodes` holds only what its outputs need."""

    nodes: list[Node]
    inputs: list[Value]
    outputs: list[Value]
    module_types: Mapping[str, type[nn.Module]] = field(repr=False)


def trace(net: nn.Module, example: Any, whole: frozenset[str]) -> Trace:  # noqa: ANN401
    """Run the network once and record its operations.

    The network's modes, parameters and buffers and all random states are afterwards as before.

    Args:
        net: Any network.
        example: One input of batch size 1, a tensor, a `PackedSequence` or a structure of tensors.
        whole: Names of the operators to keep as one node though PyTorch could take them apart.

    Raises:
        CandidateError: The network's own code raised, or its output does not depend on the input.
    """
    recorder = _Recorder(net, whole)
    example = recorder.add_inputs(example)
    with _untouched(net), recorder.modules(), torch.no_grad():
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
    outputs = [value for leaf in leaves if (value := recorder.lookup(leaf)).data is None]
    if not outputs:
        raise CandidateError(f"the output of {type(net).__name__}.forward does not depend on its input")
    nodes = _needed(recorder.nodes, outputs)
    types = {name: type(module) for name, module in net.named_modules()}
    return Trace(nodes, recorder.inputs, outputs, types)


def _needed(nodes: list[Node], outputs: list[Value]) -> list[Node]:
    """Drop the nodes that no output depends on."""
    wanted = {value.id for value in outputs}
    kept = []
    for node in reversed(nodes):
        if any(value is not None and value.id in wanted for value in node.outputs):
            wanted.update(value.id for value in node.values())
            kept.append(node)
    return kept[::-1]


@contextlib.contextmanager
def _untouched(net: nn.Module) -> Iterator[None]:
    """Put the network in eval mode and give back its modes and all random states."""
    modes = [(module, module.training) for module in net.modules()]
    states = torch.get_rng_state(), random.getstate(), np.random.get_state()  # noqa: NPY002 (to be given back)
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


def _below_autograd() -> contextlib.AbstractContextManager[None]:
    # Composite operators take themselves apart at the autograd keys; below them a dispatch mode sees them whole.
    guard: contextlib.AbstractContextManager[None] = torch._C._AutoDispatchBelowAutograd()  # type: ignore[attr-defined]
    return guard


@lru_cache(maxsize=None)
def _schema(func: Any) -> tuple[str, tuple[tuple[str, Any], ...], tuple[str, ...], bool]:  # noqa: ANN401
    """Return name, arguments with defaults, written arguments, and whether the result is a view."""
    schema = func._schema
    name = schema.name.partition("::")[2]
    arguments = tuple((a.name, a.default_value if a.has_default_value() else None) for a in schema.arguments)
    written = tuple(a.name for a in schema.arguments if a.alias_info is not None and a.alias_info.is_write)
    if written and name.endswith("_") and not name.endswith("__"):
        name = name[:-1]
    return name, arguments, written, bool(func.is_view)


_Geometry = tuple[int, tuple[int, ...], tuple[int, ...]]


@dataclass(slots=True)
class _Storage:
    """What a storage holds now, by the tensors that look at it, and what it held before parts were overwritten."""

    values: dict[_Geometry, Value] = field(default_factory=dict)
    before: Value | None = None


def _geometry(tensor: Tensor) -> _Geometry:
    return tensor.storage_offset(), tuple(tensor.shape), tensor.stride()


def _overlap(a: _Geometry, b: _Geometry) -> bool:
    """Return whether two tensors of one storage have an element in common."""
    (start, stop), (other_start, other_stop) = (
        (offset, offset + sum((n - 1) * step for n, step in zip(shape, stride, strict=True)) + 1)
        for offset, shape, stride in (a, b)
    )
    if start >= other_stop or other_start >= stop:
        return False
    return bool(np.intersect1d(_elements(a), _elements(b)).size)


def _same_elements(a: _Geometry, b: _Geometry) -> bool:
    """Return whether two tensors of one storage hold the same elements in the same order."""
    return prod(a[1]) == prod(b[1]) and bool(np.array_equal(_elements(a).ravel(), _elements(b).ravel()))


def _elements(geometry: _Geometry) -> NDArray[np.intp]:
    offset, shape, stride = geometry
    index = np.full(shape, offset, np.intp)
    for i, (n, step) in enumerate(zip(shape, stride, strict=True)):
        index += np.arange(n).reshape([-1 if j == i else 1 for j in range(len(shape))]) * step
    return index


class _Recorder(TorchDispatchMode):
    def __init__(self, net: nn.Module, whole: frozenset[str]) -> None:
        super().__init__()
        self.net = net
        self.whole = whole
        self.nodes: list[Node] = []
        self.inputs: list[Value] = []
        self.bug: Exception | None = None
        self._storages: dict[int, _Storage] = {}
        self._alive: list[Tensor] = []  # so that no address is used again while the trace runs
        self._stack: list[str] = [""]
        self._n_values = 0
        named = [*net.named_parameters(), *net.named_buffers()]
        self._owned = {t.untyped_storage().data_ptr(): (name, t) for name, t in named if t.numel()}
        self._saved: list[tuple[Tensor, Tensor]] = []

    @contextlib.contextmanager
    def modules(self) -> Iterator[None]:
        """Know which module is running."""
        handles = []

        def enter(name: str) -> Any:  # noqa: ANN401
            return lambda _module, _arguments: self._stack.append(name)

        def leave(_module: nn.Module, _arguments: Any, _result: Any) -> None:  # noqa: ANN401
            self._stack.pop()

        try:
            for name, module in self.net.named_modules():
                handles.append(module.register_forward_pre_hook(enter(name)))
                handles.append(module.register_forward_hook(leave))
            yield
        finally:
            for handle in handles:
                handle.remove()

    def add_inputs(self, example: Any) -> Any:  # noqa: ANN401
        """Copy the example, whose tensors are the inputs."""
        if isinstance(example, PackedSequence):
            return example._replace(data=self._input(example.data))
        return pytree.tree_map_only(Tensor, self._input, example)

    def _input(self, tensor: Tensor) -> Tensor:
        copy = tensor.detach().clone()
        self.inputs.append(self._register(copy))
        return copy

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None  # noqa: ANN401
    ) -> Any:  # noqa: ANN401
        kwargs = kwargs or {}
        name = _schema(func)[0]
        if name not in self.whole:
            with self:
                result = func.decompose(*args, **kwargs)
            if result is not NotImplemented:
                return result
        if self.bug is None:
            try:
                prepared = self._prepare(func, args, kwargs)
            except Exception as error:
                self.bug = error
                raise
        result = func(*args, **kwargs)
        if self.bug is None:
            try:
                self._record(func, prepared, result)
            except Exception as error:
                self.bug = error
                raise
        return result

    def _prepare(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:  # noqa: ANN401
        """Replace the tensors among the arguments by their values, before any of them is written."""
        name, names, written, _ = _schema(func)
        bound = {key: (args[i] if i < len(args) else kwargs.get(key, default)) for i, (key, default) in enumerate(names)}
        for key in written:
            if isinstance(bound[key], Tensor):
                self._save(bound[key])
        if name == "batch_norm" and bound["training"]:
            for key in ("running_mean", "running_var"):
                if bound[key] is not None:
                    self._save(bound[key])
        return {
            key: self.lookup(item)
            if isinstance(item, Tensor)
            else [self.lookup(x) if isinstance(x, Tensor) else x for x in item]
            if isinstance(item, (list, tuple))
            else item
            for key, item in bound.items()
        } | {"": bound}

    def _record(self, func: Any, arguments: dict[str, Any], result: Any) -> None:  # noqa: ANN401
        name, _, written, is_view = _schema(func)
        bound = arguments.pop("")
        tensors = list(result) if isinstance(result, (list, tuple)) else [result]
        node = Node(name, arguments, (), self._stack[-1])
        depends = any(value.data is None for value in node.values())
        if written:
            targets = [bound[key] for key in written if isinstance(bound[key], Tensor)]
            node.outputs = tuple(self._write(target, depends) for target in targets)
        elif depends:
            node.outputs = tuple(self._register(t, is_view) if isinstance(t, Tensor) else None for t in tensors)
        else:
            source = next((value.source for value in node.values() if value.source), None)
            for tensor in tensors:
                if isinstance(tensor, Tensor) and source:
                    self._constant(tensor, source)
            return
        if depends and any(value is not None and value not in node.values() for value in node.outputs):
            self.nodes.append(node)

    def _value(self, tensor: Tensor, data: Tensor | None = None, source: str | None = None) -> Value:
        self._n_values += 1
        return Value(self._n_values - 1, tuple(tensor.shape), tensor.dtype, data, source)

    def _storage(self, tensor: Tensor) -> _Storage:
        return self._storages.setdefault(tensor.untyped_storage().data_ptr(), _Storage())

    def _register(self, tensor: Tensor, is_view: bool = False) -> Value:
        """Make a new value for a tensor that was just computed."""
        known = self._storages.get(tensor.untyped_storage().data_ptr())
        if known is not None and not is_view and (same := known.values.get(_geometry(tensor))) is not None:
            return same  # an identity such as dropout handed back its argument
        self._alive.append(tensor)
        value = self._value(tensor)
        self._storage(tensor).values[_geometry(tensor)] = value
        return value

    def _constant(self, tensor: Tensor, source: str | None) -> Value:
        storage, geometry = self._storage(tensor), _geometry(tensor)
        if geometry not in storage.values:
            self._alive.append(tensor)
            owned = self._owned.get(tensor.untyped_storage().data_ptr())
            data = tensor if owned else tensor.clone()
            storage.values[geometry] = self._value(tensor, data, owned[0] if owned else source)
        return storage.values[geometry]

    def _write(self, tensor: Tensor, depends: bool) -> Value | None:
        """Start a new version of what an in-place operation has written; the rest of the storage stays."""
        storage, geometry = self._storage(tensor), _geometry(tensor)
        for other in [g for g in storage.values if g == geometry or _overlap(g, geometry)]:
            value = storage.values.pop(other)
            if other != geometry and (storage.before is None or prod(value.shape) > prod(storage.before.shape)):
                storage.before = value
        if not depends:
            return None
        self._alive.append(tensor)
        value = self._value(tensor)
        storage.values[geometry] = value
        return value

    def lookup(self, tensor: Tensor) -> Value:
        """Return the value that a tensor holds now."""
        storage = self._storages.get(tensor.untyped_storage().data_ptr())
        if storage is None:
            return self._constant(tensor, None)
        geometry = _geometry(tensor)
        if geometry in storage.values:
            return storage.values[geometry]
        parts = [value for other, value in storage.values.items() if _overlap(other, geometry)]
        if storage.before is not None:
            parts.append(storage.before)
        if all(value.data is not None for value in parts):
            return self._constant(tensor, parts[0].source if parts else None)
        return self._alias(tensor, storage, parts)

    def _alias(self, tensor: Tensor, storage: _Storage, parts: list[Value]) -> Value:
        """Derive the value of a tensor that was written, or made, through other tensors of its storage."""
        value = self._value(tensor)
        same = next((v for g, v in storage.values.items() if _same_elements(g, _geometry(tensor))), None)
        if same is not None:
            self.nodes.append(Node("view", {"self": same}, (value,), self._stack[-1]))
        else:
            self.nodes.append(Node("partial_write", {"parts": parts}, (value,), self._stack[-1]))
        storage.values[_geometry(tensor)] = value
        return value

    def _save(self, tensor: Tensor) -> None:
        owned = self._owned.get(tensor.untyped_storage().data_ptr())
        if owned is not None and not any(owned[1] is target for target, _ in self._saved):
            self._saved.append((owned[1], owned[1].detach().clone()))

    def restore_written(self) -> None:
        """Give parameters and buffers that the network wrote their old content."""
        for target, copy in self._saved:
            target.data.copy_(copy)
