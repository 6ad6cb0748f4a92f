"""Data sets as the training loop reads them: in memory as two tensors, or sample by sample through a collate
function.

Both kinds give batches of ``(inputs, labels)``: inputs are a tensor (samples first) or a `PackedSequence`,
labels are int64 class indices. Anything floating is float32, which is what a network's weights are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence
from torch.utils.data import Dataset, IterableDataset, Subset, TensorDataset, default_collate

from sparsemod.errors import DataError, user_code
from sparsemod.train.checks import Inputs, as_inputs, as_labels, as_tensor_on, kind_of

__all__ = ["Batch", "Data", "Inputs", "LoaderData", "TensorData", "open_data"]

Batch = tuple[Inputs, Tensor]

N_PROBED = 16
"""Samples that are read twice to see whether the data set draws them anew each time (random augmentation)."""


class Data(Protocol):
    """What a trainer reads from."""

    @property
    def n_samples(self) -> int:
        """Samples of the data set, before a collate function splits any."""

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one input after the collate function, without the batch dimension."""

    def n_batches(self, batch_size: int) -> int:
        """Return how many batches one pass has."""

    def batches(self, batch_size: int, generator: torch.Generator | None = None) -> Iterator[Batch]:
        """Iterate once over all samples: in order, or shuffled by the generator."""

    def sample(self, n: int, seed: int) -> Inputs:
        """Return the inputs of `n` random samples (all of them when there are fewer)."""

    def example(self) -> Inputs:
        """Return one input as a batch of one."""


@dataclass(frozen=True, eq=False)
class TensorData:
    """A data set that is held in memory.

    Attributes:
        x: Inputs, (n_samples, ...).
        y: Class indices, (n_samples,), int64.
    """

    x: Tensor
    y: Tensor

    @property
    def n_samples(self) -> int:
        """Samples of the data set."""
        return len(self.y)

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one input, without the batch dimension."""
        return tuple(self.x.shape[1:])

    def n_batches(self, batch_size: int) -> int:
        """Return how many batches one pass has; a single last sample joins the batch before it."""
        return len(_batch_sizes(self.n_samples, batch_size))

    def batches(self, batch_size: int, generator: torch.Generator | None = None) -> Iterator[Batch]:
        """Iterate once over all samples: in order, or shuffled by the (CPU) generator."""
        sizes = _batch_sizes(self.n_samples, batch_size)
        if generator is None:
            yield from zip(torch.split(self.x, sizes), torch.split(self.y, sizes), strict=True)
            return
        order = torch.randperm(self.n_samples, generator=generator).to(self.x.device)
        for indices in torch.split(order, sizes):
            yield self.x.index_select(0, indices), self.y.index_select(0, indices)

    def sample(self, n: int, seed: int) -> Tensor:
        """Return the inputs of `n` random samples (all of them when there are fewer)."""
        return self.x[_draw(self.n_samples, n, seed).to(self.x.device)]

    def example(self) -> Tensor:
        """Return the first input as a batch of one."""
        return self.x[:1]


@dataclass(frozen=True, eq=False)
class LoaderData:
    """A data set that is read sample by sample and put together by a collate function, in each pass anew.

    A collate function may return more or fewer samples than it was given.

    Attributes:
        dataset: A map-style data set.
        collate_fn: Makes ``(inputs, labels)`` of a list of samples.
        classes: Number of classes that labels are checked against, or None.
        device: Where batches are put.
    """

    dataset: Sequence[Any]
    collate_fn: Callable[[list[Any]], Any]
    classes: int | None
    device: torch.device

    @property
    def n_samples(self) -> int:
        """Samples of the data set, before the collate function."""
        return len(self.dataset)

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one input after the collate function; (steps, features) of the example if it is packed."""
        example = self.example()
        return tuple((example.data if isinstance(example, PackedSequence) else example[0]).shape)

    def n_batches(self, batch_size: int) -> int:
        """Return how many batches one pass has; a single last sample joins the batch before it."""
        return len(_batch_sizes(self.n_samples, batch_size))

    def batches(self, batch_size: int, generator: torch.Generator | None = None) -> Iterator[Batch]:
        """Iterate once over all samples: in order, or shuffled by the (CPU) generator.

        Raises:
            CandidateError: The data set or the collate function raised.
            DataError: What came out is no batch.
        """
        n = self.n_samples
        order = torch.arange(n) if generator is None else torch.randperm(n, generator=generator)
        for indices in torch.split(order, _batch_sizes(n, batch_size)):
            yield self._batch(indices.tolist())

    def sample(self, n: int, seed: int) -> Inputs:
        """Return the inputs of `n` random samples (all when there are fewer), as they are collated."""
        return self._batch(_draw(self.n_samples, n, seed).tolist())[0]

    def example(self) -> Inputs:
        """Return one input as a batch of one; of packed sequences the longest of the first samples."""
        return self._first

    def _batch(self, indices: list[int]) -> Batch:
        with user_code("dataset"):
            items = [self.dataset[i] for i in indices]
        with user_code("collate_fn"):
            batch = self.collate_fn(items)
        if not isinstance(batch, tuple | list) or len(batch) != 2:
            raise DataError(f"collate_fn must return (inputs, labels), got {kind_of(batch)}")
        x, y = as_inputs(batch[0], self.device), as_labels(batch[1], self.classes, self.device)
        n_inputs = int(x.batch_sizes[0]) if isinstance(x, PackedSequence) else len(x)
        if n_inputs != len(y):
            found = f"{n_inputs} inputs and {len(y)} labels"
            raise DataError(f"collate_fn must return one label an input, got {found}")
        if not n_inputs:
            raise DataError(f"collate_fn returned no inputs of {len(items)} samples")
        return x, y

    @cached_property
    def _first(self) -> Inputs:
        # Several samples and not one, since collate functions that squeeze their labels fail on a single
        # sample.
        x, _ = self._batch(list(range(min(self.n_samples, N_PROBED))))
        if isinstance(x, Tensor):
            return x[:1]
        padded, lengths = pad_packed_sequence(x, batch_first=True)
        longest = int(lengths.argmax())
        n_steps = lengths[longest : longest + 1]
        return pack_padded_sequence(padded[longest : longest + 1, : int(n_steps)], n_steps, batch_first=True)


def open_data(
    dataset: Dataset[Any],
    *,
    collate_fn: Callable[[list[Any]], Any] | None = None,
    classes: int | None = None,
    device: str | torch.device = "cpu",
    memory_limit_bytes: int = 2 * 1024**3,
) -> Data:
    """Prepare a data set for training.

    Samples are ``(input, label)``. Without a collate function they are read once and held as two tensors when
    all inputs have one shape, fit into the memory limit and do not change from one reading to the next
    (random augmentation); otherwise they are read anew in every pass.

    Args:
        dataset: Any map-style data set; an iterable one is read into a list.
        collate_fn: Makes ``(inputs, labels)`` of a list of samples; inputs a tensor or a `PackedSequence`.
        classes: The number of classes; labels are checked against it.
        device: Where batches are put.
        memory_limit_bytes: How large the inputs may be to be held in memory.

    Raises:
        DataError: The data set is empty, its samples are no pairs, its inputs differ in shape without a
            collate function, or its labels are no class indices.
        CandidateError: Reading a sample or the collate function raised.
    """
    where = torch.device(device)
    if isinstance(dataset, IterableDataset):
        with user_code("dataset"):
            items: Any = list(dataset)
    else:
        items = dataset
    try:
        n_samples = len(items)
    except TypeError as error:
        raise DataError(f"a dataset needs a length, {type(dataset).__name__} has none") from error
    if n_samples == 0:
        raise DataError("the dataset is empty")

    def loaded(collate: Callable[[list[Any]], Any]) -> Data:
        data = LoaderData(items, collate, classes, where)
        data.example()  # what is wrong with the first samples is said now
        return data

    if collate_fn is not None:
        return loaded(collate_fn)
    tensors = _tensors(items)
    if tensors is None:
        first = _pair(items, 0)
        n_bytes = first[0].nbytes * n_samples
        if n_bytes > memory_limit_bytes or _changes(items):
            return loaded(default_collate)
        tensors = _stack(items, first)
    if tensors[0].nbytes > memory_limit_bytes and where.type != "cpu":
        return loaded(default_collate)
    return TensorData(as_tensor_on(tensors[0], where).contiguous(), as_labels(tensors[1], classes, where))


def _tensors(dataset: Any) -> tuple[Tensor, Tensor] | None:
    """Return inputs and labels of a `TensorDataset`, or of a subset of one, without reading samples."""
    if isinstance(dataset, Subset):
        whole = _tensors(dataset.dataset)
        indices = torch.as_tensor(dataset.indices, dtype=torch.int64)
        return None if whole is None else (whole[0][indices], whole[1][indices])
    if not isinstance(dataset, TensorDataset):
        return None
    if len(dataset.tensors) != 2:
        raise DataError(f"a TensorDataset needs (inputs, labels), got {len(dataset.tensors)} tensors")
    return dataset.tensors[0], dataset.tensors[1]


def _pair(dataset: Any, index: int) -> tuple[Tensor, Tensor]:
    with user_code("dataset"):
        item = dataset[index]
    if not isinstance(item, tuple | list) or len(item) != 2:
        raise DataError(
            f"a sample must be (input, label), sample {index} is {kind_of(item)}; or give a collate_fn"
        )
    try:
        return torch.as_tensor(item[0]), torch.as_tensor(item[1])
    except (TypeError, ValueError, RuntimeError) as error:
        kinds = f"({kind_of(item[0])}, {kind_of(item[1])})"
        raise DataError(f"a sample must hold tensors or numbers, sample {index} is {kinds}") from error


def _changes(dataset: Any) -> bool:
    probed = range(min(N_PROBED, len(dataset)))
    return any(not torch.equal(_pair(dataset, i)[0], _pair(dataset, i)[0]) for i in probed)


def _stack(dataset: Any, first: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    n_samples = len(dataset)
    x = first[0].new_empty((n_samples, *first[0].shape))
    labels = []
    for i in range(n_samples):
        item, label = _pair(dataset, i)
        if item.shape != first[0].shape:
            shapes = f"{tuple(first[0].shape)} and {tuple(item.shape)}"
            raise DataError(
                f"samples 0 and {i} have the shapes {shapes}: give a collate_fn that makes them equal"
            )
        x[i] = item
        labels.append(label)
    return x, default_collate(labels)


def _batch_sizes(n_samples: int, batch_size: int) -> list[int]:
    """Cut a pass into batches; a last single sample joins the one before: batch norm cannot train on it."""
    if batch_size < 1:
        raise ValueError(f"batch_size must be 1 or more, got {batch_size}")
    sizes = [batch_size] * (n_samples // batch_size)
    rest = n_samples % batch_size
    if rest == 1 and sizes:
        sizes[-1] += 1
    elif rest:
        sizes.append(rest)
    return sizes


def _draw(n_samples: int, n: int, seed: int) -> Tensor:
    return torch.randperm(n_samples, generator=torch.Generator().manual_seed(seed))[:n]
