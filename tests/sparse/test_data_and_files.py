"""Data that no search can use are refused before it begins; damaged files cost as little as they can."""

import json
import math

import pytest
import torch
from tiny_problem import Net, arguments, datasets, search_space
from torch import nn
from torch.utils.data import Dataset, IterableDataset, TensorDataset

from sparsemod import Sparse, SparseExperiment
from sparsemod.candidate import Status
from sparsemod.errors import ConfigError, DataError, SpaceError, StoreError

TRAIN, VALIDATION, TEST = datasets()
X, Y = TEST.tensors


class Unreadable(Dataset):
    def __len__(self):
        return 20

    def __getitem__(self, index):
        if index == 17:
            raise OSError("cannot read image 17")
        return X[index], Y[index]


class Stream(IterableDataset):
    def __init__(self, dataset):
        self.dataset = dataset

    def __iter__(self):
        return iter(self.dataset)


class LeavingNet(Net):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        if self.conv.out_channels != 4:
            raise SystemExit(3)


def raising_collate(items):
    raise ValueError("no")


def run(root, **changes):
    return Sparse(**arguments(root, **{"r1": 2, "r2": 0, "r3": 0, **changes})).run_sparse()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"datasets": [TRAIN, VALIDATION, TensorDataset(X, Y + 7)]},
            r"^the test set: labels must be in \[0, 3\), got 9$",
        ),
        (
            {"datasets": [TRAIN, TensorDataset(X[:, :, :5], Y), TEST]},
            r"^the validation set: expected inputs of shape \(1, 6, 6\) like .*, got \(1, 5, 6\)$",
        ),
        (
            {"datasets": [TRAIN, VALIDATION, Unreadable()]},
            "^the test set: dataset raised OSError: cannot read image 17$",
        ),
        (
            {"datasets": [TRAIN, TensorDataset(torch.where(Y.view(-1, 1, 1, 1) == 1, math.nan, X), Y), TEST]},
            r"^the validation set: expected finite inputs, got NaN or infinity in \d+ of \d+ samples",
        ),
        ({"collate_fn": raising_collate}, "^the training set: collate_fn raised ValueError: no$"),
    ],
)
def test_bad_data_are_named_before_anything_is_trained(tmp_path, changes, said):
    with pytest.raises(DataError, match=said):
        run(tmp_path / "new", **changes)
    assert not (tmp_path / "new").exists()


def test_iterable_datasets_are_read_into_lists(tmp_path):
    result = run(tmp_path, datasets=[Stream(d) for d in datasets()])
    assert all(a.status is Status.COMPLETED for a in result.arms)


def test_numpy_integers_are_numbers_of_classes(tmp_path):
    assert run(tmp_path, classes=(Y.max() + 1).numpy()).front


def test_a_net_that_calls_exit_costs_its_arm(tmp_path):
    result = run(tmp_path, net=LeavingNet)
    assert {a.evaluation.reason for a in result.arms} == {"Net.__init__ raised SystemExit: 3"}


def test_damaged_weights_of_a_parent_mean_training_from_scratch(tmp_path, capsys):
    run(tmp_path, r1=3)
    for path in (tmp_path / "models").iterdir():
        path.write_bytes(path.read_bytes()[:100])
    result = run(tmp_path, r1=3, r3=2)
    assert all(a.status is Status.COMPLETED for a in result.arms)
    assert "are damaged, it is trained from scratch" in capsys.readouterr().out


@pytest.mark.parametrize("seconds", [[1], {"sobol": "long"}, None])
def test_odd_times_in_the_record_are_begun_anew(tmp_path, seconds):
    run(tmp_path, r1=1)
    path = tmp_path / "run.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "seconds": seconds}))
    run(tmp_path, r1=2)
    assert json.loads(path.read_text())["seconds"]["sobol"] > 0


def test_a_file_in_place_of_the_models_is_named(tmp_path):
    (tmp_path / "models").write_text("x")
    with pytest.raises(StoreError, match=r"models: cannot be used: File exists$"):
        run(tmp_path)


@pytest.mark.parametrize(
    ("changes", "kind", "said"),
    [
        ({"root": None}, ConfigError, r"^SparseExperiment\(\.\.\.\) root: expected the path of a folder"),
        ({"name": "../up"}, ConfigError, r"^SparseExperiment\(\.\.\.\) name: expected a plain file name"),
        (
            {"objectives": "two"},
            ConfigError,
            r"^SparseExperiment\(\.\.\.\) objectives: expected 1, 2, 3 or 4",
        ),
        ({"objectives": 9}, ConfigError, "got 9$"),
        ({"search_space": 3}, SpaceError, "expected an Ax SearchSpace, got int$"),
    ],
)
def test_wrong_arguments_of_the_experiment_are_named(tmp_path, changes, kind, said):
    known = {"name": "new", "root": tmp_path, "search_space": search_space(), **changes}
    with pytest.raises(kind, match=said):
        SparseExperiment(**known).create_load_experiment()


def test_the_experiment_takes_objectives_by_name(tmp_path):
    new = SparseExperiment(
        name="new", root=tmp_path, search_space=search_space(), objectives=["error", "latency"]
    )
    experiment, _ = new.create_load_experiment()
    assert experiment.optimization_config.objective.metric_names == ["error", "latency"]


def test_an_arm_that_is_no_text_does_not_exist(tmp_path):
    sparse = Sparse(**arguments(tmp_path, r1=1, r2=0, r3=0))
    sparse.run_sparse()
    with pytest.raises(StoreError, match="there is no arm '3'"):
        sparse.load_net(3)


def test_one_type_is_no_list_of_types(tmp_path):
    with pytest.raises(ConfigError, match=r"quant_params: expected a list such as \[nn.Linear, nn.LSTM\]"):
        run(tmp_path, quant_scheme="dynamic", quant_params=nn.Linear)


def test_a_torch_tensor_of_classes_is_taken(tmp_path):
    assert run(tmp_path, classes=torch.tensor(3), r1=1).front
