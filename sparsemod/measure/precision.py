"""Which tensors are int8 and which float32 under a quantization scheme."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from torch import nn

from sparsemod.measure.graph import Operator, OperatorGraph, TensorSpec

__all__ = ["assign_dtypes"]


def assign_dtypes(
    graph: OperatorGraph,
    module_types: Mapping[str, type[nn.Module]],
    scheme: str,
    quant_params: Collection[Any],
) -> OperatorGraph:
    """Give every tensor and weight its dtype, with quantize and dequantize operators where dtypes meet.

    Args:
        graph: The operators, with all activations float32 (and indices int32).
        module_types: Type of every module of the network by its qualified name.
        scheme: ``post``, ``qat``, ``none``, ``dynamic`` or ``both``.
        quant_params: Types or qualified names of the modules that are quantized dynamically.

    Raises:
        ValueError: There is no such scheme.
    """
    if scheme not in {"post", "qat", "none", "dynamic", "both"}:
        raise ValueError(f"expected a scheme of post, qat, none, dynamic, both, got {scheme!r}")
    chosen = set(quant_params) if scheme in {"dynamic", "both"} else set()
    static = scheme in {"post", "qat", "both"}
    dynamic = [op.module in chosen or module_types.get(op.module) in chosen for op in graph.operators]
    activations = ["int8" if static and not is_dynamic else "float32" for is_dynamic in dynamic]
    operators = []
    tensors = list(graph.tensors)
    for i in graph.inputs:
        readers = [a for op, a in zip(graph.operators, activations, strict=True) if i in op.inputs]
        dtype = "int8" if "int8" in readers or (static and not readers) else "float32"
        tensors[i] = _with_dtype(tensors[i], dtype)
    converted: dict[int, int] = {}
    for op, activation, is_dynamic in zip(graph.operators, activations, dynamic, strict=True):
        inputs = []
        for i in op.inputs:
            if tensors[i].dtype not in {"int8", "float32"} - {activation}:
                inputs.append(i)
                continue
            if i not in converted:
                converted[i] = len(tensors)
                kind = "quantize" if activation == "int8" else "dequantize"
                spec = TensorSpec(len(tensors), f"{tensors[i].name}:{kind}", tensors[i].shape, activation)
                tensors.append(spec)
                operators.append(Operator(kind, (i,), (spec.id,), module=op.module))
            inputs.append(converted[i])
        for o in op.outputs:
            tensors[o] = _with_dtype(tensors[o], activation)
        weight_dtype = "int8" if is_dynamic or activation == "int8" else "float32"
        weights = tuple(replace(weight, dtype=weight_dtype) for weight in op.weights)
        operators.append(replace(op, inputs=tuple(inputs), weights=weights))
    return replace(graph, tensors=tuple(tensors), operators=tuple(operators)).renumbered()


def _with_dtype(tensor: TensorSpec, dtype: str) -> TensorSpec:
    return replace(tensor, dtype=dtype) if tensor.dtype in {"int8", "float32"} else tensor
