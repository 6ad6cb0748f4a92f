"""Batches of a network's inputs and outputs in the memory order of its operator list.

An operator list is made for one sample. It is run on many at once with one more dimension in front of every
tensor's shape.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence, pad_packed_sequence

from sparsemod.errors import CandidateError
from sparsemod.measure.graph import OperatorGraph, Port

__all__ = ["from_memory", "to_memory"]


def to_memory(graph: OperatorGraph, inputs: Any) -> list[Tensor]:
    """Return a batch as (samples, *shape of the list's tensor) for each input.

    Args:
        graph: From `sparsemod.measure.operators.lower`.
        inputs: What the network takes, of any batch size: a tensor, a `PackedSequence`, or a list of tensors.
            Packed sequences are cut, or filled up with zeros, to the length that the list was made for.

    Raises:
        CandidateError: The inputs are not of the shapes that the list was made for.
    """
    items: list[Tensor | PackedSequence] = list(inputs) if _is_several(inputs) else [inputs]
    if len(items) != len(graph.input_ports):
        raise CandidateError(f"expected {len(graph.input_ports)} inputs of the network, got {len(items)}")
    return [
        _arranged(_samples(item, port), port, graph.tensors[port.tensor].shape)
        for item, port in zip(items, graph.input_ports, strict=True)
    ]


def from_memory(graph: OperatorGraph, values: Sequence[Tensor]) -> list[Tensor]:
    """Return outputs, (samples, *shape of the list's tensor) each, in PyTorch's shapes."""
    return [_restored(x, port) for x, port in zip(values, graph.output_ports, strict=True)]


def _is_several(inputs: Any) -> bool:
    return isinstance(inputs, list | tuple) and not isinstance(inputs, PackedSequence)


def _samples(inputs: Tensor | PackedSequence, port: Port) -> Tensor:
    """Return a batch as (samples, *port.shape)."""
    if isinstance(inputs, PackedSequence):
        padded, _ = pad_packed_sequence(inputs, batch_first=True, total_length=None)
        n_steps = port.shape[0]
        filled = padded.new_zeros(len(padded), max(0, n_steps - padded.shape[1]), *padded.shape[2:])
        return torch.cat([padded[:, :n_steps], filled], 1).reshape(-1, *port.shape)
    shape = tuple(inputs.shape)
    if len(shape) == len(port.shape):
        differs = [i for i, (n, own) in enumerate(zip(shape, port.shape, strict=True)) if n != own]
        if not differs:
            return inputs[None]
        if len(differs) == 1 and port.shape[differs[0]] == 1:
            return inputs.movedim(differs[0], 0).reshape(-1, *port.shape)
    raise CandidateError(f"expected an input of shape {port.shape} with any batch size, got {shape}")


def _arranged(x: Tensor, port: Port, shape: tuple[int, ...]) -> Tensor:
    order = [0, *(i + 1 for i in port.permutation)]
    return x.reshape(-1, *port.split).permute(order).reshape(-1, *shape)


def _restored(x: Tensor, port: Port) -> Tensor:
    inverse = sorted(range(len(port.permutation)), key=port.permutation.__getitem__)
    x = x.reshape(-1, *(port.split[i] for i in port.permutation))
    x = x.permute([0, *(i + 1 for i in inverse)]).reshape(-1, *port.shape)
    if len(x) == 1:
        return x[0]
    batch = next((i for i, n in enumerate(port.shape) if n == 1), None)
    return x if batch is None else x.squeeze(batch + 1).movedim(0, batch)
