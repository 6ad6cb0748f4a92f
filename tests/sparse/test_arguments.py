"""Whatever is wrong with the arguments of `Sparse` is said in one line when the object is made."""

import pytest
import torch
from ax.core.search_space import SearchSpace
from tiny_problem import Net, arguments, datasets, search_space
from torch.utils.data import TensorDataset

from sparsemod import Sparse, SparseExperiment, SparsemodError
from sparsemod.errors import ConfigError, DataError, SpaceError


def error_of(tmp_path, **changes):
    with pytest.raises(SparsemodError) as caught:
        Sparse(**arguments(tmp_path, **changes))
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.iterdir())
    return caught.value


def two_arguments(parametrization, classes):
    return Net(parametrization, classes)


def plain_collate(items):
    return items


EMPTY = TensorDataset(torch.zeros(0, 1, 6, 6), torch.zeros(0, dtype=torch.long))


@pytest.mark.parametrize(
    ("changes", "kind", "words"),
    [
        ({"epochs4": 1}, ConfigError, ["epochs4", "did you mean 'epochs"]),
        ({"r1": "ten"}, ConfigError, ["Sparse(...)", "r1", "ten"]),
        ({"r1": -1}, ConfigError, ["r1", "-1"]),
        ({"r1": 0, "r2": 0, "r3": 0}, ConfigError, ["r1"]),
        ({"objectives": 5}, ConfigError, ["objectives", "5"]),
        ({"quant_scheme": "pots"}, ConfigError, ["quant_scheme", "pots", "did you mean 'post'"]),
        ({"quant_scheme": "dynamic"}, ConfigError, ["quant_params", "dynamic"]),
        ({"quant_params": [3], "quant_scheme": "both"}, ConfigError, ["quant_params", "3"]),
        ({"target": "STM32F44"}, ConfigError, ["STM32F44", "did you mean"]),
        ({"morpher_ops": None}, ConfigError, ["morpher_ops", "morphisms = false"]),
        ({"morpher_ops": {"filters": 3}}, ConfigError, ["morpher_ops", "filters"]),
        (
            {"net": two_arguments},
            ConfigError,
            ["net", "(parametrization, classes, input_shape)", "two_arguments"],
        ),
        ({"net": 3}, ConfigError, ["net", "int"]),
        ({"classes": 1}, ConfigError, ["classes", "1"]),
        ({"collate_fn": 3}, ConfigError, ["collate_fn"]),
        ({"splitter": True}, ConfigError, ["splitter", "collate_fn"]),
        ({"splitter": True, "collate_fn": plain_collate}, ConfigError, ["splitter", "max_len"]),
        ({"trainer": 3}, ConfigError, ["trainer", "int"]),
        ({"datasets": datasets()[:2]}, DataError, ["datasets", "2"]),
        ({"datasets": [datasets()[0], EMPTY, datasets()[2]]}, DataError, ["validation", "empty"]),
        ({"datasets": [[1, 2], iter([]), [3]]}, DataError, ["validation", "length"]),
        ({"name": "a/b"}, ConfigError, ["name", "a/b"]),
        ({"constraints": {"model_sise": 3}}, ConfigError, ["model_sise", "did you mean 'model_size'"]),
        ({"executor": "proceses"}, ConfigError, ["executor", "did you mean 'processes'"]),
    ],
)
def test_one_line_that_names_the_argument(tmp_path, changes, kind, words):
    error = error_of(tmp_path, **changes)
    assert isinstance(error, kind)
    for word in words:
        assert word in str(error)


def test_a_missing_argument_is_named(tmp_path):
    complete = arguments(tmp_path)
    for name in ("datasets", "net", "classes", "search_space", "r1", "epochs2", "name", "root"):
        with pytest.raises(ConfigError, match=name):
            Sparse(**{k: v for k, v in complete.items() if k != name})


def test_a_space_without_mandatory_parameters_is_refused_by_name(tmp_path):
    kept = [
        p for p in search_space().parameters.values() if p.name not in ("learning_step", "prune_threshold")
    ]
    error = error_of(tmp_path, search_space=SearchSpace(parameters=kept))
    assert isinstance(error, SpaceError)
    assert "learning_step" in str(error)
    assert "prune_threshold" in str(error)


def test_the_experiment_checks_its_arguments_too(tmp_path):
    with pytest.raises(ConfigError, match=r"unknown argument 'nam' \(did you mean 'name'\?\)"):
        SparseExperiment(nam="tiny", root=tmp_path)
    with pytest.raises(ConfigError, match="missing argument root"):
        SparseExperiment(name="tiny")
    with pytest.raises(ConfigError, match="does not exist"):
        SparseExperiment(name="tiny", root=tmp_path).create_load_experiment()
    experiment, data = SparseExperiment(
        name="tiny", root=tmp_path, search_space=search_space(), objectives=2
    ).create_load_experiment()
    assert not experiment.trials
    assert data.df.empty
