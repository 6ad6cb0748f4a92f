"""Inputs and labels as a network takes them: checked, on their device, in their types."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from sparsemod.errors import DataError

__all__ = ["Inputs", "as_inputs", "as_labels", "as_tensor_on", "kind_of"]

Inputs = Tensor | PackedSequence


def as_inputs(x: Any, device: torch.device) -> Inputs:
    """Put inputs on the device; floating ones become float32.

    Raises:
        DataError: They are neither a tensor nor a `PackedSequence`.
    """
    if isinstance(x, PackedSequence):
        moved: PackedSequence = x.to(device)  # type: ignore[arg-type]
        return moved.float() if moved.data.is_floating_point() else moved
    if not isinstance(x, Tensor):
        raise DataError(f"inputs must be a tensor or a PackedSequence, got {kind_of(x)}")
    return as_tensor_on(x, device)


def as_tensor_on(x: Tensor, device: torch.device) -> Tensor:
    """Put a tensor on the device; a floating one becomes float32."""
    return x.to(device, torch.float32) if x.is_floating_point() else x.to(device)


def as_labels(y: Any, classes: int | None, device: torch.device) -> Tensor:
    """Put labels on the device as int64 class indices, (n,); a column (n, 1) is taken, too.

    Raises:
        DataError: They are no whole numbers from 0 to below the number of classes, one a sample.
    """
    if not isinstance(y, Tensor):
        raise DataError(f"labels must be a tensor of class indices, got {kind_of(y)}")
    if y.dim() == 2 and y.shape[1] == 1:
        y = y.squeeze(1)
    if y.dim() != 1:
        raise DataError(f"labels must be one class index a sample, got labels of shape {tuple(y.shape)}")
    if y.is_complex():
        raise DataError("labels must be whole class indices, got complex numbers")
    if y.is_floating_point() and not bool((whole := y.isfinite() & (y == y.round())).all()):
        raise DataError(f"labels must be whole class indices, got {float(y[~whole][0])}")
    indices: Tensor = y.to(device, torch.int64)
    if len(indices):
        low, high = (int(value) for value in torch.aminmax(indices))
        if low < 0 or (classes is not None and high >= classes):
            bound = "the number of classes" if classes is None else classes
            raise DataError(f"labels must be in [0, {bound}), got {low if low < 0 else high}")
    return indices


def kind_of(value: Any) -> str:
    """Say in a word or four what a value is, for an error message."""
    if isinstance(value, tuple | list):
        return f"a {type(value).__name__} of {len(value)}"
    return type(value).__name__
