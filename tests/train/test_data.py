"""Data sets of every kind become batches of inputs and class indices."""

import functools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.utils.rnn import PackedSequence, pack_sequence, pad_packed_sequence
from torch.utils.data import Dataset, IterableDataset, Subset, TensorDataset

from sparsemod.errors import CandidateError, DataError
from sparsemod.train.data import LoaderData, TensorData, open_data


class Listed(Dataset):
    def __init__(self, items):
        self.items = items

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        return self.items[index]


def numbered(n=10):
    return TensorDataset(torch.arange(n, dtype=torch.float32).unsqueeze(1), torch.arange(n) % 3)


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def everything(data, batch_size, seed=None):
    return list(data.batches(batch_size, None if seed is None else generator(seed)))


def stack(items):
    return torch.stack([x for x, _ in items]), torch.tensor([int(y) for _, y in items])


# Both kinds alike

KINDS = {"in memory": None, "collated": stack}


@pytest.fixture(params=list(KINDS))
def opened(request):
    return lambda dataset, **more: open_data(dataset, collate_fn=KINDS[request.param], **more)


def test_in_order_without_a_generator(opened):
    batches = everything(opened(numbered()), 4)
    assert [x.flatten().tolist() for x, _ in batches] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert [y.tolist() for _, y in batches] == [[0, 1, 2, 0], [1, 2, 0, 1], [2, 0]]


def test_shuffled_by_the_generator_alone(opened):
    data = opened(numbered(50))
    first, again, other = ([x.flatten().tolist() for x, _ in everything(data, 8, seed)] for seed in (1, 1, 2))
    assert first == again != other
    assert sorted(value for batch in first for value in batch) == list(range(50))
    assert all(y.tolist() == (x.flatten() % 3).tolist() for x, y in everything(data, 8, 1))


def test_the_global_generator_is_untouched(opened):
    before = torch.get_rng_state()
    data = opened(numbered())
    everything(data, 4, 3)
    data.sample(5, 3)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_last_single_sample_joins_the_batch_before(opened):
    data = opened(numbered(9))
    assert [len(y) for _, y in everything(data, 4, 0)] == [4, 5]
    assert data.n_batches(4) == 2
    assert [len(y) for _, y in everything(opened(numbered(1)), 4)] == [1]
    assert [len(y) for _, y in everything(data, 1)] == [1] * 9


def test_a_batch_size_above_the_data_set_gives_one_batch(opened):
    assert [len(y) for _, y in everything(opened(numbered()), 1000)] == [10]


@given(n=st.integers(1, 30), batch_size=st.integers(1, 40))
def test_as_many_batches_as_announced_and_every_sample_once(n, batch_size):
    data = open_data(numbered(n))
    batches = everything(data, batch_size, 0)
    assert len(batches) == data.n_batches(batch_size)
    assert sorted(x for batch, _ in batches for x in batch.flatten().tolist()) == list(range(n))
    assert all(len(y) > 1 for _, y in batches) or batch_size == 1 or n == 1


def test_a_batch_size_of_zero_is_refused(opened):
    with pytest.raises(ValueError, match="batch_size must be 1 or more, got 0"):
        opened(numbered()).n_batches(0)


def test_example_shape_and_size(opened):
    data = opened(TensorDataset(torch.rand(6, 2, 5), torch.zeros(6, dtype=torch.long)))
    assert data.input_shape == (2, 5)
    assert data.example().shape == (1, 2, 5)
    assert data.n_samples == 6


def test_a_sample_is_random_repeatable_and_without_repetition(opened):
    data = opened(numbered(20))
    drawn = data.sample(8, seed=1).flatten().tolist()
    assert len(set(drawn)) == 8
    assert drawn == data.sample(8, seed=1).flatten().tolist() != data.sample(8, seed=2).flatten().tolist()
    assert len(data.sample(100, seed=1)) == 20


def test_inputs_become_float32_and_labels_int64(opened):
    data = opened(TensorDataset(torch.rand(4, 2, dtype=torch.float64), torch.ones(4, 1, dtype=torch.uint8)))
    [(x, y)] = everything(data, 4)
    assert x.dtype == torch.float32
    assert y.dtype == torch.int64
    assert y.shape == (4,)


def test_labels_are_checked_against_the_classes(opened):
    with pytest.raises(DataError, match=r"^labels must be in \[0, 2\), got 2$"):
        everything(opened(numbered(), classes=2), 10)
    with pytest.raises(DataError, match=r"^labels must be in \[0, 3\), got -1$"):
        everything(opened(TensorDataset(torch.rand(4, 2), -torch.ones(4)), classes=3), 4)


# What is held in memory


def test_integer_inputs_stay_integers():
    data = open_data(TensorDataset(torch.tensor([[1, 2], [3, 4]]), torch.tensor([0, 1])))
    assert data.example().dtype == torch.int64


def test_whole_floats_are_labels_and_broken_ones_are_not():
    assert open_data(TensorDataset(torch.rand(2, 1), torch.tensor([0.0, 1.0]))).y.tolist() == [0, 1]
    with pytest.raises(DataError, match=r"labels must be whole class indices, got 0\.5"):
        open_data(TensorDataset(torch.rand(2, 1), torch.tensor([0.0, 0.5])))


def test_one_hot_labels_are_refused_by_their_shape():
    with pytest.raises(
        DataError, match=r"labels must be one class index a sample, got labels of shape \(2, 3\)"
    ):
        open_data(TensorDataset(torch.rand(2, 1), torch.eye(3)[:2]))


def test_subsets_of_tensors_are_read_at_once():
    data = open_data(Subset(Subset(numbered(), range(2, 10)), [0, 3]))
    assert isinstance(data, TensorData)
    assert data.x.flatten().tolist() == [2, 5]


def test_subsets_may_be_given_by_tensors_and_nested():
    x = torch.arange(12.0).view(6, 2)
    whole = TensorDataset(x, torch.zeros(6, dtype=torch.long))
    part = Subset(Subset(whole, torch.tensor([5, 3, 1])), [0, 2])
    assert torch.equal(open_data(part).x, x[[5, 1]])


def test_any_data_set_of_equal_arrays_is_stacked():
    items = [(np.full((2, 2), i, dtype=np.float64), i % 2) for i in range(5)]
    data = open_data(Listed(items))
    assert isinstance(data, TensorData)
    assert data.x[:, 0, 0].tolist() == [0, 1, 2, 3, 4]
    assert data.y.tolist() == [0, 1, 0, 1, 0]


def test_an_iterable_data_set_is_read_into_memory():
    class Stream(IterableDataset):
        def __iter__(self):
            return iter([(torch.tensor([1.0]), 0), (torch.tensor([2.0]), 1)])

    assert open_data(Stream()).x.tolist() == [[1.0], [2.0]]


class Noisy(Dataset):
    def __len__(self):
        return 20

    def __getitem__(self, index):
        return torch.rand(3), index % 2


def test_random_augmentation_stays_random():
    data = open_data(Noisy())
    assert isinstance(data, LoaderData)
    (first, _), (again, _) = everything(data, 20) + everything(data, 20)
    assert first.shape == (20, 3)
    assert not torch.equal(first, again)


def test_what_does_not_fit_is_read_batch_by_batch():
    items = [(torch.full((100,), float(i)), i % 2) for i in range(10)]
    data = open_data(Listed(items), memory_limit_bytes=1000)
    assert isinstance(data, LoaderData)
    assert [len(y) for _, y in everything(data, 4, 0)] == [4, 4, 2]


def test_ragged_samples_need_a_collate_function():
    items = [(torch.zeros(3), 0), (torch.zeros(4), 1)]
    with pytest.raises(
        DataError, match=r"samples 0 and 1 have the shapes \(3,\) and \(4,\): give a collate_fn"
    ):
        open_data(Listed(items))


# What a collate function makes


def split(items, max_len):
    """Cut every sequence into parts of `max_len`, each with the label of the whole."""
    labels = torch.stack([torch.tensor(item["label"]) for item in items]).squeeze()
    parts = [
        (part, y) for item, y in zip(items, labels, strict=True) for part in item["signal"].split(max_len)
    ]
    return torch.stack([part for part, _ in parts if len(part) == max_len]), torch.tensor(
        [y for part, y in parts if len(part) == max_len]
    )


SEQUENCES = Listed([{"signal": torch.full((12, 2), float(i)), "label": i % 2} for i in range(7)])


def test_a_collate_function_may_split_samples():
    data = open_data(SEQUENCES, collate_fn=functools.partial(split, max_len=4))
    assert data.n_samples == 7
    assert data.input_shape == (4, 2)
    assert [len(y) for _, y in everything(data, 2, 0)] == [6, 6, 9]
    assert data.example().shape == (1, 4, 2)


def pack(items):
    return pack_sequence([x for x, _ in items], enforce_sorted=False), torch.tensor([y for _, y in items])


RAGGED = Listed([(torch.full((n, 2), float(n)), n % 2) for n in (3, 5, 2, 4)])


def test_packed_sequences_pass_and_the_longest_is_the_example():
    data = open_data(RAGGED, collate_fn=pack)
    [(x, y)] = everything(data, 4)
    assert isinstance(x, PackedSequence)
    assert y.tolist() == [1, 1, 0, 0]
    padded, lengths = pad_packed_sequence(data.example(), batch_first=True)
    assert lengths.tolist() == [5]
    assert padded.tolist() == [[[5.0, 5.0]] * 5]
    assert data.input_shape == (5, 2)
    assert isinstance(data.sample(2, 0), PackedSequence)


def test_double_precision_in_a_packed_sequence_becomes_float32():
    items = Listed([(torch.ones(2, 1, dtype=torch.float64), 0)] * 3)
    [(x, _)] = everything(open_data(items, collate_fn=pack), 3)
    assert x.data.dtype == torch.float32


# One line for what is wrong


def raising(items):
    raise KeyError("signal")


class Broken(Dataset):
    def __len__(self):
        return 3

    def __getitem__(self, index):
        raise FileNotFoundError("no such file: 7.wav")


@pytest.mark.parametrize(
    ("dataset", "collate_fn", "error", "message"),
    [
        (Listed([]), None, DataError, "the dataset is empty"),
        (7, None, DataError, "a dataset needs a length, int has none"),
        (
            TensorDataset(torch.zeros(3)),
            None,
            DataError,
            r"a TensorDataset needs \(inputs, labels\), got 1 tensors",
        ),
        (Listed([torch.zeros(3)]), None, DataError, r"a sample must be \(input, label\), sample 0 is Tensor"),
        (Listed([(1, 2, 3)]), None, DataError, r"sample 0 is a tuple of 3"),
        (Listed([("a", 0)]), None, DataError, r"must hold tensors or numbers, sample 0 is \(str, int\)"),
        (numbered(), raising, CandidateError, "collate_fn raised KeyError: 'signal'"),
        (numbered(), lambda items: items[0], DataError, "got 1 inputs and 0 labels|must be one class index"),
        (
            numbered(),
            lambda items: torch.zeros(3),
            DataError,
            r"collate_fn must return \(inputs, labels\), got Tensor",
        ),
        (
            numbered(),
            lambda items: ([1], [2]),
            DataError,
            "inputs must be a tensor or a PackedSequence, got a list of 1",
        ),
        (numbered(), lambda items: (torch.zeros(2, 1), [2]), DataError, "labels must be a tensor"),
        (
            numbered(),
            lambda items: (torch.zeros(2, 1), torch.zeros(3)),
            DataError,
            "one label an input, got 2 inputs and 3 labels",
        ),
        (
            numbered(),
            lambda items: (torch.zeros(0, 1), torch.zeros(0)),
            DataError,
            r"collate_fn returned no inputs of \d+ samples",
        ),
        (Listed([(1, float("inf"))]), None, DataError, "labels must be whole class indices, got inf"),
        (Listed([(1, float("nan"))]), None, DataError, "labels must be whole class indices, got nan"),
        (Listed([(1, 1j)]), None, DataError, "labels must be whole class indices, got complex numbers"),
        (Broken(), None, CandidateError, "dataset raised FileNotFoundError: no such file: 7.wav"),
        (Broken(), stack, CandidateError, "dataset raised FileNotFoundError: no such file: 7.wav"),
    ],
)
def test_a_data_set_that_cannot_be_used_is_said_in_one_line(dataset, collate_fn, error, message):
    with pytest.raises(error, match=message) as caught:
        open_data(dataset, collate_fn=collate_fn)
    assert "\n" not in str(caught.value)
