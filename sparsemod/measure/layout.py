"""Where the elements of a PyTorch tensor lie in memory, as named axes.

PyTorch counts an image as NCHW, a microcontroller runtime stores it as NHWC. Each dimension of a PyTorch
tensor is here a tuple of axes, and the memory an order of the same axes. Permuting and reshaping only regroup
the axes; data is moved only where an operator needs an order that the memory does not have. Dimensions of
size 1 have no axes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from math import prod

import numpy as np
from numpy.typing import NDArray

__all__ = ["Axes", "Axis", "Layout", "align", "position", "sizes"]


@dataclass(frozen=True, slots=True, eq=False)
class Axis:
    """One axis; two axes of the same size are still different ones."""

    size: int


Axes = tuple[Axis, ...]


def sizes(axes: Iterable[Axis]) -> tuple[int, ...]:
    """Return the sizes of axes."""
    return tuple(axis.size for axis in axes)


@dataclass(frozen=True, slots=True)
class Layout:
    """The dimensions of a tensor and the order of their axes in memory.

    Attributes:
        dims: The axes of each of PyTorch's dimensions, outermost first.
        order: The same axes, outermost in memory first.
    """

    dims: tuple[Axes, ...]
    order: Axes

    @classmethod
    def of(cls, shape: Sequence[int], order: Sequence[int] | None = None) -> Layout:
        """Return new axes for a shape; `order` lists the dimensions as they lie in memory.

        Example:
            >>> sizes(Layout.of((1, 8, 5, 7), order=(0, 2, 3, 1)).order)
            (5, 7, 8)
        """
        dims = tuple((Axis(int(n)),) if n != 1 else () for n in shape)
        return cls(dims, tuple(chain.from_iterable(dims[i] for i in order or range(len(dims)))))

    @property
    def shape(self) -> tuple[int, ...]:
        """PyTorch's shape."""
        return tuple(prod(sizes(axes)) for axes in self.dims)

    @property
    def logical(self) -> Axes:
        """All axes in PyTorch's order."""
        return tuple(chain.from_iterable(self.dims))

    def permuted(self, permutation: Sequence[int]) -> Layout:
        """Return the layout after `Tensor.permute`."""
        return replace(self, dims=tuple(self.dims[i] for i in permutation))

    def reshaped(self, shape: Sequence[int]) -> Layout | None:
        """Return the layout after `Tensor.reshape`, or None where the elements would have to be moved for it.

        Example:
            >>> image = Layout.of((1, 8, 5, 7), order=(0, 2, 3, 1))
            >>> flat = image.reshaped((1, 280))
            >>> sizes(flat.dims[1]), sizes(flat.order)
            ((8, 5, 7), (5, 7, 8))
            >>> image.reshaped((1, 16, 35)) is None
            True
        """
        regrouped = _regrouped(self, shape)
        if regrouped is None and self.logical == self.order:
            regrouped = _regrouped(Layout.of((prod(sizes(self.order)),)), shape)
        return regrouped

    def merged(self, dim: int) -> Layout | None:
        """Return the layout with one axis for a dimension, or None where its axes are not neighbours."""
        axes = self.dims[dim]
        if len(axes) < 2:
            return self
        start = self.order.index(axes[0])
        if self.order[start : start + len(axes)] != axes:
            return None
        one = (Axis(prod(sizes(axes))),)
        dims = (*self.dims[:dim], one, *self.dims[dim + 1 :])
        return Layout(dims, (*self.order[:start], *one, *self.order[start + len(axes) :]))

    def split(self, old: Axis, new: Axes) -> Layout:
        """Return the layout with one axis split in several, outermost first."""
        dims = tuple(_spliced(axes, old, new) for axes in self.dims)
        return Layout(dims, _spliced(self.order, old, new))


def _spliced(axes: Axes, old: Axis, new: Axes) -> Axes:
    if old not in axes:
        return axes
    i = axes.index(old)
    return (*axes[:i], *new, *axes[i + 1 :])


def _regrouped(layout: Layout, shape: Sequence[int]) -> Layout | None:
    """Deal the axes out to the new dimensions in PyTorch's order, splitting those that span a border."""
    axes, order, dims = list(layout.logical), layout.order, []
    for size in shape:
        dim: list[Axis] = []
        missing = int(size)
        while missing > 1:
            axis = axes.pop(0)
            if axis.size <= missing:
                if missing % axis.size:
                    return None
            else:
                if axis.size % missing:
                    return None
                outer, inner = Axis(missing), Axis(axis.size // missing)
                order = _spliced(order, axis, (outer, inner))
                axes.insert(0, inner)
                axis = outer
            dim.append(axis)
            missing //= axis.size
        dims.append(tuple(dim))
    return Layout(tuple(dims), order)


def position(wanted: Axes, present: Axes) -> NDArray[np.intp]:
    """Return for each element of the axes in the order `present` its index in the order `wanted`.

    Weights that count their columns in the order `wanted` are moved to the order `present` by ``w[:,
    position(...)]``.

    Example:
        >>> c, h = Axis(2), Axis(3)
        >>> position((c, h), (h, c)).tolist()
        [0, 3, 1, 4, 2, 5]
    """
    index = np.arange(prod(sizes(wanted))).reshape(sizes(wanted))
    return index.transpose([wanted.index(axis) for axis in present]).ravel()


def align(a: Layout, b: Layout) -> tuple[Layout, Layout] | None:
    """Give two layouts that are combined element by element the same axes, or None where that cannot be.

    Dimensions are matched from the last; a dimension of size 1 matches any.
    """
    rank = max(len(a.dims), len(b.dims))
    for axis in b.order:  # an axis of `a` may sit at another place of `b`
        b = b.split(axis, (Axis(axis.size),))
    a, b = (replace(x, dims=((),) * (rank - len(x.dims)) + x.dims) for x in (a, b))
    for i in range(rank):
        if a.dims[i] and b.dims[i]:
            j = 0
            while j < len(a.dims[i]) and j < len(b.dims[i]):
                left, right = a.dims[i][j], b.dims[i][j]
                if left.size > right.size:
                    if left.size % right.size:
                        return None
                    a = a.split(left, (Axis(right.size), Axis(left.size // right.size)))
                elif right.size > left.size:
                    if right.size % left.size:
                        return None
                    b = b.split(right, (Axis(left.size), Axis(right.size // left.size)))
                b = b.split(b.dims[i][j], (a.dims[i][j],))
                j += 1
            if len(a.dims[i]) != len(b.dims[i]):
                return None
    return a, b
