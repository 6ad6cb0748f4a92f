"""`ModelPruning` as a hook of the trainer."""

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from sparsemod.compress.masked import live_masks
from sparsemod.compress.model_pruning import ModelPruning
from sparsemod.errors import ConfigError
from sparsemod.train.data import open_data
from sparsemod.train.settings import TrainSettings
from sparsemod.train.trainer import TorchTrainer, accuracy

SETTINGS = TrainSettings(0.02, 0.9, 1, batch_size=16, epochs=5, seed=3)


def blobs(n, seed):
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(n) % 3
    centres = torch.tensor([[2.0, 0.0], [-1.0, 2.0], [-1.0, -2.0]])
    return open_data(TensorDataset(torch.randn((n, 2), generator=generator) * 0.3 + centres[y], y))


TRAIN, VALIDATION = blobs(90, 0), blobs(60, 1)


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 3))


def fit(pruning, net=None, settings=SETTINGS):
    net = net or network()
    result = TorchTrainer().fit(net, TRAIN, VALIDATION, settings, [pruning])
    return net, result


def zeros(net):
    return sum(int((m.weight == 0).sum() + (m.bias == 0).sum()) for m in (net[0], net[2]))


N = 2 * 16 + 16 + 16 * 3 + 3


def left(times, amount=0.3):
    n = N
    for _ in range(times):
        n -= round(amount * n)
    return n


@pytest.mark.parametrize("on_train_end", [True, False])
def test_pruning_at_every_epoch_ends_with_the_last_one(on_train_end):
    pruning = ModelPruning(
        "l1_unstructured",
        amount=0.3,
        use_lottery_ticket_hypothesis=False,
        prune_on_train_epoch_end=on_train_end,
    )
    net, result = fit(pruning)
    assert zeros(net) == N - left(5)
    assert result.best_epoch == 5
    assert list(net.state_dict()) == list(network().state_dict())


@pytest.mark.parametrize("on_train_end", [True, False])
@pytest.mark.parametrize("permanent", [True, False])
def test_the_best_epoch_is_one_behind_the_last_pruning_and_its_weights_come_back(on_train_end, permanent):
    pruning = ModelPruning(
        "l1_unstructured",
        amount=lambda epoch: 0.3 if epoch < 2 else 0,
        use_lottery_ticket_hypothesis=False,
        prune_on_train_epoch_end=on_train_end,
        make_pruning_permanent=permanent,
    )
    net, result = fit(pruning)
    assert zeros(net) == N - left(2)
    assert result.best_epoch >= 3
    assert accuracy(net.eval(), VALIDATION) == result.validation_accuracy
    assert bool(live_masks(net)) is not permanent


def test_accuracies_are_those_of_the_pruned_network():
    net, result = fit(ModelPruning("l1_unstructured", amount=1.0, use_lottery_ticket_hypothesis=False))
    assert [epoch.validation_accuracy for epoch in result.history] == [pytest.approx(1 / 3)] * 5
    assert zeros(net) == N


def test_a_pruning_that_is_switched_off_leaves_the_choice_of_the_epoch_alone():
    expected = TorchTrainer().fit(network(), TRAIN, VALIDATION, SETTINGS)
    for off in ({"amount": 0}, {"apply_pruning": False}):
        net, result = fit(ModelPruning("l1_unstructured", **off))
        assert result == expected
        assert zeros(net) == 0


def test_the_winning_ticket_is_trained_under_its_mask_from_the_first_values():
    first = network()[0].weight.detach()
    pruning = ModelPruning("l1_unstructured", amount=0.5)
    net, _ = fit(pruning)
    kept = net[0].weight != 0
    assert torch.equal(net[0].weight[kept], first[kept]), "the last epoch ended with a pruning"
    pruning = ModelPruning("l1_unstructured", amount=0.5, apply_pruning=lambda epoch: epoch == 0)
    net, result = fit(pruning)
    assert zeros(net) == N - left(1, 0.5)
    assert result.validation_accuracy > 0.9


def test_random_pruning_follows_the_seed_of_the_training():
    def masks(seed):
        settings = TrainSettings(0.02, 0.9, 1, batch_size=16, epochs=1, seed=seed)
        net, _ = fit(ModelPruning("random_unstructured", make_pruning_permanent=False), settings=settings)
        return live_masks(net)["0.weight"].flatten().tolist()

    assert masks(0) == masks(0)
    assert masks(0) != masks(1)


def test_convolutions_in_channels_last_are_pruned():
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Unflatten(1, (1, 1, 2)), nn.Conv2d(1, 8, 1), nn.ReLU(), nn.Flatten(), nn.Linear(16, 3)
    )
    pruning = ModelPruning(
        "ln_structured",
        [(net[1], "weight")],
        use_global_unstructured=False,
        amount=2,
        apply_pruning=lambda epoch: epoch < 2,
        pruning_dim=0,
        pruning_norm=2,
        use_lottery_ticket_hypothesis=False,
    )
    fit(pruning, net)
    assert int((net[1].weight.flatten() == 0).sum()) == 4


def test_a_trainer_that_does_not_tell_of_epochs_is_refused():
    pruning = ModelPruning("l1_unstructured")
    pruning.start(network(), 4)
    pruning.after_step(0)
    with pytest.raises(ConfigError, match="a trainer that calls its end_epoch"):
        pruning.ready(0)
