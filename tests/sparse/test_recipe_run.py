"""A search by a recipe: the digits to within a point at 80 % sparsity, and what is refused beforehand."""

import json

import pytest
import torch
from ax.core.parameter import ChoiceParameter, ParameterType, RangeParameter
from recipe_problem import THREE_STAGES, Net, arguments, digits, space
from torch import nn

from sparsemod import Sparse
from sparsemod.candidate import Status
from sparsemod.compress.model_pruning import ModelPruning
from sparsemod.compress.quantization import quantize
from sparsemod.errors import ConfigError, StoreError
from sparsemod.optim import ScheduledModifierManager
from sparsemod.train.trainer import TorchTrainer

RATE = "modifiers:\n  - !SetLearningRateModifier {learning_rate: 0.01, start_epoch: 0}\n"
QAT = "modifiers:\n  - !QuantizationModifier {start_epoch: 1}\n"


def evaluation(tmp_path, **changes):
    result = Sparse(**arguments(tmp_path, **changes)).run_sparse()
    (arm,) = result.arms
    assert arm.evaluation.status is Status.COMPLETED, arm.evaluation.reason
    return arm.evaluation


def right(forward, data):
    x, y = data.tensors
    with torch.no_grad():
        return float((forward(x).argmax(1) == y).float().mean())


def plain_loop(recipe=None, epochs=12):
    """Train as anybody does, with the optimizer of the recipe where there is one."""
    torch.manual_seed(0)
    train, validation, _ = digits()
    net = Net({"width": 12})
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    loader = torch.utils.data.DataLoader(train, batch_size=32, shuffle=True)
    manager = recipe and ScheduledModifierManager.from_yaml(recipe)
    if manager:
        optimizer = manager.modify(net, optimizer, steps_per_epoch=len(loader))
    for _ in range(epochs):
        net.train()
        for x, y in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(net(x), y).backward()
            optimizer.step()
    if manager:
        manager.finalize(net)
    return net.eval(), train, validation


class TestThreeStages:
    """Dense, pruned to 80 %, then on int8 grids: within one point of the dense float network."""

    def test_in_a_search(self, tmp_path):
        dense = evaluation(tmp_path / "dense", pruning=False, quant_scheme="none")
        small = evaluation(tmp_path / "small", recipe=THREE_STAGES)
        assert small.sparsity == pytest.approx(0.8, abs=1e-3)
        assert small.error <= dense.error + 0.01
        assert small.best_epoch >= 10
        assert small.resources.model_size_bytes * 5 < dense.resources.model_size_bytes

    def test_in_a_plain_loop(self):
        dense, _, validation = plain_loop()
        net, train, _ = plain_loop(THREE_STAGES)
        weights = [net[i].weight for i in (0, 4, 8)]
        n = sum(w.numel() for w in weights)
        assert sum(int((w == 0).sum()) for w in weights) == round(0.8 * n)
        shipped = quantize(net, "post", [train.tensors[0][:256]])
        assert right(shipped, validation) >= right(dense, validation) - 0.01


def test_a_schedule_is_searched_and_arms_it_does_not_fit_fail(tmp_path):
    INT, STRING = ParameterType.INT, ParameterType.STRING
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text("""
modifiers:
  - !LearningRateFunctionModifier
      {lr_func: eval(schedule), init_lr: 0.01, final_lr: 0.001, start_epoch: 0, end_epoch: eval(last)}
""")
    more = [
        ChoiceParameter("schedule", STRING, ["linear", "cosine"]),
        RangeParameter("last", INT, 1, 4),
    ]
    changes = {"search_space": space(*more), "r1": 2, "batch_size": 3, "epochs1": 2, "executor": "inline"}
    result = Sparse(**arguments(tmp_path / "run", recipe=recipe, **changes)).run_sparse()
    assert len(result.arms) == 6
    for arm in result.arms:
        if arm.candidate.parametrization["last"] > 2:
            assert arm.evaluation.status is Status.FAILED
            assert "training has 2" in arm.evaluation.reason
        else:
            assert arm.evaluation.status is Status.COMPLETED, arm.evaluation.reason


def test_a_manager_is_taken_by_its_text(tmp_path):
    manager = ScheduledModifierManager.from_yaml(THREE_STAGES, recipe_variables={"epochs": 4})
    sparse = Sparse(**arguments(tmp_path, recipe=manager))
    assert ScheduledModifierManager.from_yaml(sparse.config.recipe) == manager


def test_a_recipe_of_the_configuration_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "recipe.yaml").write_text(RATE)
    keys = (
        "r1",
        "r2",
        "r3",
        "epochs1",
        "epochs2",
        "epochs3",
        "name",
        "objectives",
        "pruning",
        "quant_scheme",
    )
    values = arguments("results", epochs1=1)
    lines = [f"{key} = {values[key]}" for key in (*keys, "root", "target", "morphisms")]
    (tmp_path / "config.cfg").write_text("\n".join(["[TRAIN]", "recipe = recipe.yaml", *lines]))
    objects = {key: values[key] for key in ("datasets", "classes", "search_space", "net")}
    sparse = Sparse.from_config("config.cfg", **objects)
    assert sparse.config.recipe == "recipe.yaml"
    sparse.run_sparse()
    assert json.loads((tmp_path / "results" / "run.json").read_text())["recipe"] == RATE
    (tmp_path / "recipe.yaml").write_text(RATE.replace("0.01", "0.02"))
    with pytest.raises(StoreError, match="made with another recipe"):
        Sparse.from_config("config.cfg", **objects).run_sparse()
    (tmp_path / "recipe.yaml").unlink()
    with pytest.raises(ConfigError, match=r"recipe: recipe.yaml: No such file"):
        Sparse.from_config("config.cfg", **objects)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"recipe": "nowhere.yaml"}, ["nowhere.yaml", "No such file"]),
        ({"recipe": "recipe.txt"}, ["recipe.txt", ".yaml"]),
        ({"recipe": 3}, ["recipe", "3"]),
        ({"recipe": "modifiers:\n  - !SetLearninRateModifier {}\n"}, ["line 2", "SetLearningRateModifier"]),
        ({"recipe": RATE.replace("0.01", "2")}, ["learning_rate"]),
        (
            {"recipe": RATE.replace("0.01", "eval(learning_rat)")},
            ["learning_rat", "did you mean 'learning_rate'"],
        ),
        ({"recipe": RATE.replace("start_epoch: 0", "start_epoch: 12")}, ["epoch 12", "epochs1 = 12"]),
        (
            {"recipe": "modifiers:\n  - !EpochRangeModifier {start_epoch: 0, end_epoch: 13}\n"},
            ["epoch 13", "training has 12", "epochs1 = 12"],
        ),
        (
            {"recipe": RATE.replace("start_epoch: 0", "start_epoch: 5"), "r2": 1, "epochs2": 5},
            ["epoch 5", "epochs2 = 5"],
        ),
        ({"recipe": QAT, "quant_scheme": "none"}, ["quant_scheme", "post or qat", "none"]),
        ({"recipe": QAT, "quant_scheme": "dynamic", "quant_params": [nn.Linear]}, ["dynamic"]),
    ],
)
def test_what_no_arm_could_use_is_one_line_when_the_search_is_made(tmp_path, changes, words):
    with pytest.raises(ConfigError) as caught:
        Sparse(**arguments(tmp_path, **changes))
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith("Sparse(...)")
    assert all(word in message for word in ["recipe", *words]), message
    assert not list(tmp_path.iterdir())


class PruningTrainer(TorchTrainer):
    """Takes half of what is left at the end of the first two epochs."""

    def fit(self, net, train, validation, settings, hooks=()):
        pruning = ModelPruning(
            "l1_unstructured",
            parameter_names=["weight"],
            amount=lambda epoch: 0.5 if epoch < 2 else 0,
            use_lottery_ticket_hypothesis=False,
        )
        return super().fit(net, train, validation, settings, [*hooks, pruning])


def test_a_search_with_model_pruning_as_its_trainer(tmp_path):
    result = evaluation(tmp_path, trainer=PruningTrainer, pruning=False, epochs1=4)
    assert result.sparsity == pytest.approx(0.75, abs=0.01)
    assert result.best_epoch > 2
