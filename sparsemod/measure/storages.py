"""What the memory behind tensors holds at each moment of a trace, through views and in-place writes."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from sparsemod.measure.values import Node, Value

__all__ = ["Storages", "address"]

_Geometry = tuple[int, tuple[int, ...], tuple[int, ...]]


def address(tensor: Tensor) -> int:
    """Return where the storage of a tensor begins: the same for all views of it."""
    return tensor.data_ptr() - int(tensor.storage_offset()) * tensor.element_size()


@dataclass(slots=True)
class _Storage:
    """The values of the tensors that look at a storage, and the largest that has been overwritten in part."""

    values: dict[_Geometry, Value] = field(default_factory=dict)
    before: Value | None = None


class Storages:
    """Finds the value that a tensor holds, whatever view of a storage it is and however that was written.

    Args:
        owned: Name and tensor of each parameter and buffer, by address.
        nodes: Where a node is added when a value has to be derived from others.
    """

    def __init__(self, owned: dict[int, tuple[str, Tensor]], nodes: list[Node]) -> None:
        self._owned = owned
        self._nodes = nodes
        self._storages: dict[int, _Storage] = {}
        self._alive: list[Tensor] = []  # so that no address is used again while the trace runs
        self._n_values = 0

    def register(self, tensor: Tensor, is_view: bool = False) -> Value:
        """Return the value of a tensor that was just computed, which may be one that is handed back."""
        storage, geometry = self._storage(tensor), _geometry(tensor)
        if not is_view and geometry in storage.values:
            return storage.values[geometry]
        return self._hold(tensor, storage, geometry)

    def constant(self, tensor: Tensor, source: str | None) -> Value:
        """Return the value of a tensor that does not depend on the input."""
        storage, geometry = self._storage(tensor), _geometry(tensor)
        known = storage.values.get(geometry)
        if known is not None:
            return known
        owned = self._owned.get(address(tensor))
        data = tensor if owned else tensor.clone()
        return self._hold(tensor, storage, geometry, data, owned[0] if owned else source)

    def write(self, tensor: Tensor, depends: bool) -> Value | None:
        """Start a new version of what an in-place operation has written; the rest of the storage stays."""
        storage, geometry = self._storage(tensor), _geometry(tensor)
        for other in [g for g in storage.values if g == geometry or _overlap(g, geometry)]:
            value = storage.values.pop(other)
            larger = storage.before is None or prod(value.shape) > prod(storage.before.shape)
            if other != geometry and larger:
                storage.before = value
        return self._hold(tensor, storage, geometry) if depends else None

    def lookup(self, tensor: Tensor, module: str) -> Value:
        """Return the value that a tensor holds now, derived from others if it was written through them."""
        storage = self._storages.get(address(tensor)) if tensor.numel() else None
        if storage is None:
            return self.constant(tensor, None)
        geometry = _geometry(tensor)
        if geometry in storage.values:
            return storage.values[geometry]
        parts = [value for other, value in storage.values.items() if _overlap(other, geometry)]
        if storage.before is not None:
            parts.append(storage.before)
        if all(value.data is not None for value in parts):
            return self.constant(tensor, parts[0].source if parts else None)
        same = next((v for g, v in storage.values.items() if _same_elements(g, geometry)), None)
        value = self._hold(tensor, storage, geometry)
        if same is not None:
            self._nodes.append(Node("view", {"self": same}, (value,), module))
        else:
            self._nodes.append(Node("partial_write", {"parts": parts}, (value,), module))
        return value

    def _storage(self, tensor: Tensor) -> _Storage:
        key = address(tensor)
        storage = self._storages.get(key)
        if storage is None:
            storage = self._storages[key] = _Storage()
        return storage

    def _hold(
        self,
        tensor: Tensor,
        storage: _Storage,
        geometry: _Geometry,
        data: Tensor | None = None,
        source: str | None = None,
    ) -> Value:
        value = Value(self._n_values, geometry[1], tensor.dtype, data, source)
        self._n_values += 1
        self._alive.append(tensor)
        storage.values[geometry] = value
        return value


def _geometry(tensor: Tensor) -> _Geometry:
    return int(tensor.storage_offset()), tuple(tensor.shape), tensor.stride()


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
    return prod(a[1]) == prod(b[1]) and np.array_equal(_elements(a).ravel(), _elements(b).ravel())


def _elements(geometry: _Geometry) -> NDArray[np.intp]:
    offset, shape, stride = geometry
    index = np.full(shape, offset, np.intp)
    for i, (n, step) in enumerate(zip(shape, stride, strict=True)):
        index += np.arange(n).reshape([-1 if j == i else 1 for j in range(len(shape))]) * step
    return index
