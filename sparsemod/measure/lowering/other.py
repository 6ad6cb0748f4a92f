"""Operations that no runtime here has: counted by their tensors and constants, and not exportable."""

from __future__ import annotations

import torch

from sparsemod.measure.layout import Layout
from sparsemod.measure.lowering.builder import Builder, array, constant
from sparsemod.measure.lowering.drafts import Bound
from sparsemod.measure.values import Node, Value

__all__ = ["dtype_of", "lower_other"]


def dtype_of(value: Value) -> str:
    """Return ``float32`` for what is quantized later and bytes, ``int32`` for indices, ``bool`` for masks."""
    if value.dtype == torch.bool:
        return "bool"
    return "int32" if value.dtype in {torch.int16, torch.int32, torch.int64} else "float32"


def lower_other(builder: Builder, node: Node, n_macs: int = 0, name: str = "") -> None:
    """Add ``other:<name>`` with the tensors that the operation reads and writes.

    Images are taken to be stored as NHWC.
    """
    tensors, weights = [], []
    for i, value in enumerate(node.values):
        if value.data is None:
            tensors.append(builder.get(value).tensor)
        elif value.dtype.is_floating_point and value.dtype != torch.bool and value.data.numel() > 1:
            weight_name = value.source or f"{node.module or node.op}.constant{i}"
            weights.append(constant(array(value), weight_name, 0 if value.data.dim() > 1 else None))
    outputs = [value for value in node.outputs if value is not None and value.data is None]
    order = (0, 2, 3, 1)
    layouts = [Layout.of(value.shape, order if len(value.shape) == 4 else None) for value in outputs]
    shapes = [
        [value.shape[i] for i in order] if len(value.shape) == 4 else value.shape or (1,) for value in outputs
    ]
    dtype = dtype_of(outputs[0]) if outputs else "float32"
    ids = builder.emit_many(
        node, f"other:{name or node.op}", tensors, shapes, weights=weights, n_macs=n_macs, dtype=dtype
    )
    for value, tensor, layout in zip(outputs, ids, layouts, strict=True):
        builder.bind(value, Bound(tensor, layout))
