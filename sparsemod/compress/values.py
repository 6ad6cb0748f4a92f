"""Marks on the tensors that derive from a network's input, and trees of such tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from sparsemod.compress.fakequant import QParams
from sparsemod.errors import UnsupportedOperatorError

__all__ = ["Value", "forward_to", "is_value", "latest", "map_tensors", "tag", "tensors_in", "value_of"]

_ATTRIBUTE = "_sparsemod_value"


class Value:
    """What is known of a tensor that derives from the network's input.

    Attributes:
        index: Number of the value in the recorded sequence.
        qparams: The grid its elements lie on; None for integers, masks and values left in float.
        latest: The tensor that an operator in place has put in its stead.
        stale: A view of the tensor was changed in place.
    """

    __slots__ = ("index", "latest", "qparams", "stale")

    def __init__(self, index: int = -1, qparams: QParams | None = None) -> None:
        self.index = index
        self.qparams = qparams
        self.latest: Tensor | None = None
        self.stale = False


def tag(tensor: Tensor, index: int = -1, qparams: QParams | None = None) -> Tensor:
    """Mark a tensor as derived from the input and return it."""
    setattr(tensor, _ATTRIBUTE, Value(index, qparams))
    return tensor


def value_of(tensor: Tensor) -> Value | None:
    """Return the mark, or None for parameters and other constants."""
    return getattr(tensor, _ATTRIBUTE, None)


def is_value(x: Any) -> bool:
    """Tell whether something is a marked tensor."""
    return isinstance(x, Tensor) and value_of(x) is not None


def tensors_in(tree: Any) -> Iterator[Tensor]:
    """Yield the tensors of nested tuples, lists, dicts and packed sequences, in order."""
    if isinstance(tree, Tensor):
        yield tree
    elif isinstance(tree, PackedSequence):
        yield tree.data
    elif isinstance(tree, list | tuple):
        for item in tree:
            yield from tensors_in(item)
    elif isinstance(tree, Mapping):
        for item in tree.values():
            yield from tensors_in(item)


def map_tensors(function: Callable[[Tensor], Tensor], tree: Any) -> Any:
    """Return the tree with the function applied to each of the tensors that `tensors_in` yields."""
    if isinstance(tree, Tensor):
        return function(tree)
    if isinstance(tree, PackedSequence):
        return tree._replace(data=function(tree.data))
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*(map_tensors(function, item) for item in tree))
    if isinstance(tree, tuple) and type(tree) is not tuple:  # torch.return_types, torch.Size
        return type(tree)([map_tensors(function, item) for item in tree])
    if isinstance(tree, list | tuple):
        return type(tree)(map_tensors(function, item) for item in tree)
    if isinstance(tree, dict):
        return {key: map_tensors(function, item) for key, item in tree.items()}
    return tree


def latest(tensor: Tensor, assigned: bool = False) -> Tensor:
    """Return what operators in place have made of a tensor.

    Args:
        tensor: Any tensor.
        assigned: It is only assigned to, so that changed views of it do not matter.

    Raises:
        UnsupportedOperatorError: A view of the tensor was changed in place: the change cannot be seen here.
    """
    while (value := value_of(tensor)) is not None and value.latest is not None:
        tensor = value.latest
    if value is not None and value.stale and not assigned:
        raise UnsupportedOperatorError(
            "Net.forward changes a view of a tensor in place and uses the tensor afterwards: assign the "
            "result instead"
        )
    return tensor


def forward_to(target: Tensor, result: Tensor) -> None:
    """Make later uses of `target` see `result`; mark the tensor that `target` is a view of as stale."""
    while (value := value_of(target)) is not None and value.latest is not None:
        target = value.latest
    if target is result:
        return
    (value or _marked(target)).latest = result
    owner = None if target._base is None else value_of(target._base)
    if owner is not None:
        owner.stale = True


def _marked(tensor: Tensor) -> Value:
    value = Value()
    setattr(tensor, _ATTRIBUTE, value)
    return value
