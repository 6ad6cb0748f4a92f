"""What every trainer promises (run over ours and a minimal one of a user), and what ours does beyond that."""

import math

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import PackedSequence, pack_sequence, pad_packed_sequence
from torch.utils.data import Dataset, TensorDataset

from sparsemod.compress.masks import prunable_parameters
from sparsemod.compress.pruning import PruningHook
from sparsemod.compress.structured import StructuredPruningHook
from sparsemod.errors import CandidateError, DataError
from sparsemod.train.data import open_data
from sparsemod.train.trainer import FitResult, TorchTrainer, TrainSettings, accuracy, settings


class MinimalTrainer:
    """A user's own trainer: plain SGD, and no more than the contract asks for."""

    def __init__(self, device="cpu"):
        self.device = device

    def fit(self, net, train, validation, settings, hooks=()):
        generator = torch.Generator().manual_seed(settings.seed)
        for hook in hooks:
            hook.start(net, settings.epochs * train.n_batches(settings.batch_size))
        forward = next((lambda x, h=h: h.forward(net, x) for h in hooks if hasattr(h, "forward")), net)
        best, best_accuracy, best_epoch, step = None, -1.0, 0, 0
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(settings.seed)
            for epoch in range(1, settings.epochs + 1):
                net.train()
                for x, y in train.batches(settings.batch_size, generator):
                    for hook in hooks:
                        hook.before_step(step)
                    optimizer = torch.optim.SGD(net.parameters(), settings.rate(step))
                    optimizer.zero_grad()
                    loss = nn.functional.cross_entropy(forward(x), y)
                    if not loss.isfinite():
                        raise CandidateError(f"loss became {loss} at step {step + 1}")
                    loss.backward()
                    optimizer.step()
                    for hook in hooks:
                        hook.after_step(step)
                    step += 1
                net.eval()
                share = accuracy(forward, validation)
                ready = all(hook.ready(step - 1) for hook in hooks)
                if ready and share > best_accuracy:
                    best_accuracy, best_epoch = share, epoch
                    best = {name: value.clone() for name, value in net.state_dict().items()}
        if best is None:
            return FitResult(settings.epochs, settings.epochs, share)
        net.load_state_dict(best)
        return FitResult(best_epoch, settings.epochs, best_accuracy)


@pytest.fixture(params=[TorchTrainer, MinimalTrainer])
def trainer(request):
    return request.param(device="cpu")


def blobs(n=120, seed=0, shape=(2,)):
    """Three well separated classes."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(n) % 3
    noise = torch.randn((n, *shape), generator=generator) * 0.3
    centres = torch.tensor([[2.0, 0.0], [-1.0, 2.0], [-1.0, -2.0]])
    x = noise + (centres[y] if shape == (2,) else y.float().view(-1, *[1] * len(shape)))
    return open_data(TensorDataset(x, y))


TRAIN, VALIDATION = blobs(), blobs(60, seed=1)
SETTINGS = TrainSettings(0.05, 0.9, 0.1, batch_size=16, epochs=6)


def network(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(2, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Dropout(0.2), nn.Linear(12, 3))


class Recorder:
    """A hook that writes down what it is told, and is ready from a step on."""

    def __init__(self, ready_from=0):
        self.calls = []
        self.ready_from = ready_from

    def start(self, net, n_steps):
        self.calls.append(("start", n_steps))

    def before_step(self, step):
        self.calls.append(("before", step))

    def after_step(self, step):
        self.calls.append(("after", step))

    def ready(self, step):
        self.calls.append(("ready", step))
        return step >= self.ready_from


# The contract of every trainer


def test_it_learns_and_reports_the_accuracy_of_the_network_it_leaves(trainer):
    net = network()
    result = trainer.fit(net, TRAIN, VALIDATION, SETTINGS)
    assert result.validation_accuracy > 0.9
    assert result.n_epochs == 6
    assert 1 <= result.best_epoch <= 6
    assert accuracy(net.eval(), VALIDATION) == result.validation_accuracy


def test_the_same_seed_gives_the_same_network_to_the_last_bit(trainer):
    def weights(seed):
        net = network()
        trainer.fit(
            net, TRAIN, VALIDATION, TrainSettings(0.05, 0.9, 0.1, 16, 3, seed=seed), [PruningHook(0.5)]
        )
        return torch.cat([value.double().flatten() for value in net.state_dict().values()])

    first = weights(7)
    torch.rand(13)
    assert torch.equal(first, weights(7))
    assert not torch.equal(first, weights(8))


def test_the_global_generator_is_left_as_it_was(trainer):
    net = network()
    before = torch.get_rng_state()
    trainer.fit(net, TRAIN, VALIDATION, SETTINGS)
    assert torch.equal(torch.get_rng_state(), before)


def test_hooks_are_told_of_the_start_and_of_every_step(trainer):
    hook = Recorder()
    trainer.fit(network(), TRAIN, VALIDATION, TrainSettings(0.05, 0.9, 0.1, 50, 2), [hook])
    assert [call for call in hook.calls if call[0] != "ready"] == [
        ("start", 6),
        *[(when, step) for step in range(6) for when in ("before", "after")],
    ]
    assert {step for name, step in hook.calls if name == "ready"} <= {2, 5}


def test_the_best_epoch_is_chosen_only_when_all_hooks_are_ready(trainer):
    n_steps = TRAIN.n_batches(16)
    for ready_from, allowed in ((3 * n_steps - 1, range(3, 7)), (6 * n_steps - 1, [6]), (10**6, [6])):
        result = trainer.fit(network(), TRAIN, VALIDATION, SETTINGS, [Recorder(), Recorder(ready_from)])
        assert result.best_epoch in allowed


@pytest.mark.parametrize("sparsity", [0.3, 0.9])
def test_a_pruned_network_is_left_at_its_final_sparsity(trainer, sparsity):
    net = network()
    trainer.fit(net, TRAIN, VALIDATION, SETTINGS, [PruningHook(sparsity)])
    assert sum(int((w == 0).sum()) for w in prunable_parameters(net).values()) == round(60 * sparsity)


class Doubling:
    """A forward that stands in for the network's."""

    def __init__(self):
        self.seen = []

    def start(self, net, n_steps):
        self.net = net

    def before_step(self, step):
        pass

    def after_step(self, step):
        pass

    def ready(self, step):
        return True

    def forward(self, net, x):
        assert net is self.net
        self.seen.append(net.training)
        return -net(x)


def test_the_forward_of_a_hook_trains_and_judges(trainer):
    net, hook = network(), Doubling()
    result = trainer.fit(net, TRAIN, VALIDATION, SETTINGS, [hook])
    assert set(hook.seen) == {True, False}
    assert accuracy(lambda x: -net.eval()(x), VALIDATION) == result.validation_accuracy > 0.9


def test_a_diverging_training_fails_with_the_step(trainer):
    with pytest.raises(CandidateError, match=r"loss became (nan|inf)\w* at step \d+"):
        trainer.fit(network(), TRAIN, VALIDATION, TrainSettings(1e30, 1.0, 1, 16, 20))


# Ours


def fit(net, train=TRAIN, validation=VALIDATION, hooks=(), **changes):
    values = {
        "learning_rate": 0.05,
        "learning_gamma": 0.9,
        "learning_step": 0.1,
        "batch_size": 16,
        "epochs": 2,
    }
    return TorchTrainer().fit(net, train, validation, TrainSettings(**values | changes), hooks)


def test_the_first_nan_is_named_by_its_step():
    class Poisoned(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.n = nn.Linear(2, 3), 0

        def forward(self, x):
            self.n += self.training
            return self.layer(x) * (math.nan if self.n >= 3 else 1.0)

    with pytest.raises(CandidateError, match=r"^loss became nan at step 3$"):
        fit(Poisoned())


def test_the_history_has_every_epoch_and_the_best_is_the_first_of_the_most_accurate():
    result = fit(network(), epochs=6, hooks=[Recorder(ready_from=2 * TRAIN.n_batches(16) - 1)])
    assert len(result.history) == 6
    assert [epoch.ready for epoch in result.history] == [False, *[True] * 5]
    shares = [epoch.validation_accuracy if epoch.ready else -1.0 for epoch in result.history]
    assert result.best_epoch == shares.index(max(shares)) + 1
    assert result.history[0].loss > result.history[-1].loss > 0


def test_the_weights_of_the_best_epoch_come_back():
    class Clock:
        """Spoils the network in the last epoch."""

        def __init__(self):
            self.kept = None

        def start(self, net, n_steps):
            self.net, self.n_steps = net, n_steps

        def before_step(self, step):
            pass

        def after_step(self, step):
            if step == self.n_steps // 2 - 1:
                self.kept = {name: value.clone() for name, value in self.net.state_dict().items()}
            if step >= self.n_steps // 2:
                with torch.no_grad():
                    self.net[-1].weight.zero_()

        def ready(self, step):
            return True

    net, clock = network(), Clock()
    assert fit(net, hooks=[clock], learning_rate=0.1).best_epoch == 1
    assert all(torch.equal(value, clock.kept[name]) for name, value in net.state_dict().items())


def test_the_learning_rate_falls_every_thousand_steps_times_its_period():
    half = TrainSettings(0.1, 0.1, 0.002, batch_size=1, epochs=1)
    assert [half.rate(step) for step in range(6)] == pytest.approx([0.1, 0.1, 0.01, 0.01, 0.001, 0.001])
    shortest = TrainSettings(0.1, 0.5, 0.0, batch_size=1, epochs=1)
    assert [shortest.rate(step) for step in range(3)] == pytest.approx([0.1, 0.05, 0.025])


def test_the_schedule_reaches_the_optimizer():
    frozen = network()
    fit(frozen, learning_rate=0.0)
    assert torch.equal(frozen[0].weight, network()[0].weight)
    stopped, short = network(), network()
    fit(
        stopped, learning_gamma=0.0, learning_step=0.008, epochs=2
    )  # one epoch of 8 steps, then a rate of zero
    fit(short, learning_gamma=0.0, learning_step=0.008, epochs=1)
    assert torch.equal(stopped[0].weight, short[0].weight)


def test_a_batch_norm_network_survives_a_last_single_sample():
    assert fit(network(), train=blobs(33), batch_size=16).n_epochs == 2


def test_a_batch_size_above_both_data_sets_works():
    assert fit(network(), batch_size=1000).n_epochs == 2


def test_lazy_layers_take_their_shape_from_the_data():
    net = nn.Sequential(nn.LazyLinear(4), nn.ReLU(), nn.LazyLinear(3))
    assert fit(net).n_epochs == 2


class Views(nn.Module):
    """A flattening by `view`, which a channels-last tensor refuses."""

    def __init__(self):
        super().__init__()
        self.conv, self.head = nn.Conv2d(1, 4, 3), nn.Linear(4 * 16, 3)

    def forward(self, x):
        x = self.conv(x)
        return self.head(x.view(x.size(0), -1))


@pytest.mark.parametrize(
    "make",
    [Views, lambda: nn.Sequential(nn.Conv2d(1, 4, 3), nn.Flatten(), nn.Linear(64, 3))],
    ids=["view", "flatten"],
)
def test_convolutions_train_and_come_back_in_the_usual_memory_format(make):
    torch.manual_seed(0)
    net = make()
    images = blobs(60, shape=(1, 6, 6))
    assert fit(net, images, images, epochs=8, learning_rate=0.01).validation_accuracy > 0.8
    assert all(parameter.is_contiguous() for parameter in net.parameters())


class PackedNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn, self.head = nn.GRU(1, 8, batch_first=True), nn.Linear(8, 2)

    def forward(self, x):
        assert isinstance(x, PackedSequence)
        return self.head(self.rnn(x)[1][-1])


class Ragged(Dataset):
    def __len__(self):
        return 40

    def __getitem__(self, index):
        return torch.full((3 + index % 4, 1), 1.0 if index % 2 else -1.0), index % 2


def test_packed_sequences_train():
    def pack(items):
        return pack_sequence([x for x, _ in items], enforce_sorted=False), torch.tensor([y for _, y in items])

    data = open_data(Ragged(), collate_fn=pack)
    assert pad_packed_sequence(data.example())[1].tolist() == [6]
    torch.manual_seed(0)
    assert fit(PackedNet(), data, data, epochs=4).validation_accuracy == 1.0


def test_channels_can_be_taken_out_while_the_network_trains():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(128, 3))
    images = blobs(60, shape=(1, 6, 6))
    result = fit(net, images, images, epochs=10, hooks=[StructuredPruningHook(0.5, images.example())])
    assert net[0].out_channels == 4
    assert net[4].in_features == 64
    assert result.best_epoch >= 7
    assert accuracy(net.eval(), images) == result.validation_accuracy > 0.8


class Failing(nn.Module):
    def __init__(self, output):
        super().__init__()
        self.layer, self.output = nn.Linear(2, 3), output

    def forward(self, x):
        return self.output(self.layer(x))


def explode(x):
    raise RuntimeError("shape '[3]' is\n invalid")


@pytest.mark.parametrize(
    ("output", "message"),
    [
        (explode, r"^Net.forward raised RuntimeError: shape '\[3\]' is invalid$"),
        (lambda x: x[0], r"^Net.forward must return logits of shape \(16, classes\), got \(3,\)$"),
        (
            lambda x: x.unsqueeze(2),
            r"^Net.forward must return logits of shape \(16, classes\), got \(16, 3, 1\)$",
        ),
        (lambda x: (x, x), r"^Net.forward must return a tensor of logits, got tuple$"),
        (lambda x: x.detach(), r"^the training step of Net raised RuntimeError: element 0 of tensors"),
    ],
)
def test_a_network_that_cannot_be_trained_fails_with_one_line(output, message):
    with pytest.raises(CandidateError, match=message):
        fit(Failing(output))


def test_running_out_of_memory_is_named():
    def greedy(x):
        raise MemoryError

    with pytest.raises(CandidateError, match=r"^Net.forward ran out of memory"):
        fit(Failing(greedy))


def test_a_network_without_parameters_is_refused():
    with pytest.raises(CandidateError, match="no trainable parameters"):
        fit(nn.Identity())


def test_a_label_beyond_the_outputs_is_a_data_error():
    with pytest.raises(DataError, match="labels must be below the network's 2 outputs, got 2"):
        fit(nn.Linear(2, 2))


def test_two_forwards_are_refused():
    with pytest.raises(ValueError, match="at most one hook may have a forward, got 2"):
        fit(network(), hooks=[Doubling(), Doubling()])


# Settings


def test_settings_are_read_from_the_mandatory_parameters():
    parametrization = {
        "learning_rate": 0.1,
        "learning_gamma": 1,
        "learning_step": 2,
        "batch_size": 8.0,
        "filters": 3,
    }
    assert settings(parametrization, 5, 9) == TrainSettings(0.1, 1.0, 2.0, 8, 5, 9)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"learning_rate": None}, "learning_rate must be a number, got None"),
        ({"batch_size": "8"}, "batch_size must be a number, got '8'"),
        ({"batch_size": 0}, "batch_size must be 1 or more, got 0"),
        ({"learning_rate": -0.1}, "learning_rate must be a finite number of 0 or more, got -0.1"),
        ({"learning_gamma": math.inf}, "learning_gamma must be a finite number"),
    ],
)
def test_a_parameter_that_cannot_be_used_fails_the_arm(changes, message):
    parametrization = {"learning_rate": 0.1, "learning_gamma": 1, "learning_step": 2, "batch_size": 8}
    with pytest.raises(CandidateError, match=message):
        settings(parametrization | changes, 5)


def test_no_epochs_are_an_error_of_the_caller():
    with pytest.raises(ValueError, match="epochs must be 1 or more, got 0"):
        settings({"learning_rate": 0.1, "learning_gamma": 1, "learning_step": 2, "batch_size": 8}, 0)


def test_accuracy_counts_over_batches_of_any_size():
    data = open_data(TensorDataset(torch.eye(4), torch.tensor([0, 1, 2, 0])))
    assert [accuracy(lambda x: x, data, batch_size) for batch_size in (1, 3, 4, 100)] == [0.75] * 4
