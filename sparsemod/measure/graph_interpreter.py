"""A float interpreter of operator lists: what each operator means, on a batch of samples at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from sparsemod.measure.batches import from_memory, to_memory
from sparsemod.measure.graph import Operator, OperatorGraph
from sparsemod.measure.meanings import compute

__all__ = ["Observer", "run", "run_list"]

Observer = Callable[[str, Tensor], None]


def run(graph: OperatorGraph, inputs: Any, observe: Observer | None = None) -> list[Tensor]:
    """Return the outputs of a network's operator list, in PyTorch's shapes.

    Args:
        graph: From `sparsemod.measure.operators.lower`, or as the interpreter executes it.
        inputs: What the network takes, of any batch size.
        observe: Called with the name and the values of each float tensor, also of those inside loops, and of
            an LSTM's cell state as ``<name of the output>:cell``.

    Example:
        >>> from sparsemod.measure.operators import lower
        >>> net = torch.nn.Linear(3, 2)
        >>> x = torch.ones(5, 3)
        >>> torch.allclose(run(lower(net, x[:1]), x)[0], net(x))
        True
    """
    with torch.no_grad():
        return from_memory(graph, run_list(graph, to_memory(graph, inputs), observe))


def run_list(graph: OperatorGraph, inputs: Sequence[Tensor], observe: Observer | None = None) -> list[Tensor]:
    """Return the outputs of an operator list in its own memory order.

    Args:
        graph: The list.
        inputs: (samples, *shape) of each of its inputs.
        observe: As in `run`.
    """
    values: dict[int, Tensor] = dict(zip(graph.inputs, inputs, strict=True))
    if observe is not None:
        for i in graph.inputs:
            _note(graph, i, values[i], observe)
    last_reader = {i: at for at, op in enumerate(graph.operators) for i in op.inputs}
    for at, operator in enumerate(graph.operators):
        arguments = [values[i] for i in operator.inputs]
        shapes = [graph.tensors[i].shape for i in operator.outputs]
        if operator.kind == "while":
            results = _loop(operator, arguments[0], shapes, observe)
        else:
            cell = partial(_cell, graph.tensors[operator.outputs[0]].name, observe)
            results = compute(operator, arguments, shapes, cell)
        for i, x in zip(operator.outputs, results, strict=True):
            values[i] = x.reshape(-1, *graph.tensors[i].shape)
            if observe is not None:
                _note(graph, i, values[i], observe)
        for i in set(operator.inputs):
            if last_reader[i] == at and i not in graph.outputs:
                del values[i]
    return [values[i] for i in graph.outputs]


def _loop(
    operator: Operator, x: Tensor, shapes: list[tuple[int, ...]], observe: Observer | None
) -> list[Tensor]:
    """Run the body of a ``while`` as often as its condition holds."""
    condition, body = operator.attributes["condition"], operator.attributes["body"]
    counter = torch.tensor([[operator.attributes["start"], 0]]).expand(len(x), 2)
    carried = [counter, x.reshape(-1, *body.tensors[body.inputs[1]].shape)]
    carried += [x.new_zeros(len(x), *body.tensors[i].shape) for i in body.inputs[2:]]
    while bool(run_list(condition, carried)[0][0, 0]):
        carried = run_list(body, carried, observe)
    return [value.reshape(-1, *shape) for value, shape in zip(carried, shapes, strict=True)]


def _note(graph: OperatorGraph, i: int, x: Tensor, observe: Observer) -> None:
    if x.is_floating_point():
        observe(graph.tensors[i].name, x)


def _cell(name: str, observe: Observer | None, x: Tensor) -> None:
    if observe is not None:
        observe(f"{name}:cell", x)
