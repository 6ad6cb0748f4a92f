"""Descriptions of layers: parameters, shapes and floating-point operations, for people and for files."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from sparsemod.errors import ConfigError
from sparsemod.measure.graph import Operator, OperatorGraph

__all__ = ["AnalyzedLayerDesc", "describe_operators"]

Shape = tuple[int, ...]
Json = dict[str, Any]


@dataclass
class AnalyzedLayerDesc:
    """What is known of a layer that has run.

    Attributes:
        name: Its qualified name.
        type_: Its kind.
        params: Number of its parameters.
        zeroed_params: How many of the prunable ones are zero.
        prunable_params: How many of them pruning may touch.
        params_dims: Shapes of its own parameters by name; None for a container.
        prunable_params_dims: Shapes of the prunable ones.
        execution_order: When it ran, counted from 0; -1 if it has not.
        input_shape: Shapes of its inputs.
        output_shape: Shapes of its outputs.
        flops: Floating-point operations of one pass.
        total_flops: Of all passes.
        stride: Of a convolution or pooling.
    """

    name: str
    type_: str
    params: int = 0
    zeroed_params: int = 0
    prunable_params: int = 0
    params_dims: Mapping[str, Shape] | None = None
    prunable_params_dims: Mapping[str, Shape] | None = None
    execution_order: int = -1
    input_shape: tuple[Shape, ...] | None = None
    output_shape: tuple[Shape, ...] | None = None
    flops: int = 0
    total_flops: int = 0
    stride: Shape | None = None

    @property
    def terminal(self) -> bool:
        """Whether it computes, rather than contain others."""
        return self.params_dims is not None

    @property
    def prunable(self) -> bool:
        """Whether it has parameters that pruning may touch."""
        return self.prunable_params > 0

    def dict(self) -> Json:
        """Return everything as plain JSON values."""
        return {
            "name": self.name,
            "type": self.type_,
            "params": self.params,
            "zeroed_params": self.zeroed_params,
            "prunable_params": self.prunable_params,
            "params_dims": self.params_dims,
            "prunable_params_dims": self.prunable_params_dims,
            "execution_order": self.execution_order,
            "input_shape": self.input_shape,
            "output_shape": self.output_shape,
            "stride": self.stride,
            "flops": self.flops,
            "total_flops": self.total_flops,
            "terminal": self.terminal,
            "prunable": self.prunable,
        }

    @staticmethod
    def save_descs(descs: Iterable[AnalyzedLayerDesc], path: str | Path) -> None:
        """Write descriptions to a JSON file; missing folders are made."""
        file = Path(path)
        file.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps({"descriptions": [desc.dict() for desc in descs]}, indent=2)
        file.write_text(text + "\n", encoding="utf-8")

    @staticmethod
    def load_descs(path: str | Path) -> list[AnalyzedLayerDesc]:
        """Read what `save_descs` wrote; shapes come back as lists.

        Raises:
            ConfigError: There is no such file, or it holds no descriptions.
        """
        try:
            stored = json.loads(Path(path).read_text(encoding="utf-8"))["descriptions"]
            return [_from_dict(desc) for desc in stored]
        except OSError as error:
            raise ConfigError(f"{path}: {error.strerror or error}") from None
        except (ValueError, KeyError, TypeError, RecursionError):
            raise ConfigError(f"{path}: expected a JSON file with the key 'descriptions'") from None

    @staticmethod
    def merge_descs(orig: AnalyzedLayerDesc, descs: Sequence[AnalyzedLayerDesc]) -> AnalyzedLayerDesc:
        """Return a description with the numbers of several added up and everything else from the first.

        Args:
            orig: The first; it stays as it is.
            descs: The others.

        Example:
            >>> one, two = AnalyzedLayerDesc("a", "conv", params=10), AnalyzedLayerDesc("b", "conv", params=1)
            >>> AnalyzedLayerDesc.merge_descs(one, [two, two]).params
            12
        """
        summed = ("params", "zeroed_params", "prunable_params", "flops", "total_flops")
        every = [orig, *descs]
        return replace(orig, **{name: sum(getattr(desc, name) for desc in every) for name in summed})


def describe_operators(graph: OperatorGraph) -> list[AnalyzedLayerDesc]:
    """Describe the operators that a network becomes on a microcontroller, batch norms folded.

    A multiply-accumulate counts as two operations, `flops` only with weights that are not zero, `total_flops`
    with all.

    Args:
        graph: From `sparsemod.measure.operators.lower`.
    """
    return [_described(graph, operator, order) for order, operator in enumerate(graph.operators)]


def _described(graph: OperatorGraph, operator: Operator, order: int) -> AnalyzedLayerDesc:
    dims: dict[str, Shape] = {weight.name: weight.values.shape for weight in operator.weights}
    biases = {f"{w.name}.bias": w.bias.shape for w in operator.weights if w.bias is not None}
    prunable = {name: shape for name, shape in dims.items() if len(shape) > 1}
    n_prunable = sum(prod(shape) for shape in prunable.values())
    n_zero = sum(int(np.count_nonzero(w.values == 0)) for w in operator.weights if w.values.ndim > 1)
    share = 1.0 - n_zero / n_prunable if n_prunable else 1.0
    stride = operator.attributes.get("stride")
    return AnalyzedLayerDesc(
        name=operator.module,
        type_=operator.kind,
        params=sum(prod(shape) for shape in [*dims.values(), *biases.values()]),
        zeroed_params=n_zero,
        prunable_params=n_prunable,
        params_dims=dims | biases,
        prunable_params_dims=prunable,
        execution_order=order,
        input_shape=tuple(graph.tensors[tensor].shape for tensor in operator.inputs),
        output_shape=tuple(graph.tensors[tensor].shape for tensor in operator.outputs),
        flops=round(2 * operator.n_macs * share),
        total_flops=2 * operator.n_macs,
        stride=tuple(stride) if isinstance(stride, list | tuple) else None,
    )


def _from_dict(values: Mapping[str, Any]) -> AnalyzedLayerDesc:
    known = {field.name for field in fields(AnalyzedLayerDesc)}
    renamed = {("type_" if key == "type" else key): value for key, value in values.items()}
    return AnalyzedLayerDesc(**{key: value for key, value in renamed.items() if key in known})
