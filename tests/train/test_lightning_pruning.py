"""The pruning callback in Lightning's Trainer: what only Lightning has, checkpoints above all."""

import inspect

import pytest
import torch
from pruning_runs import LIGHTNING, A
from torch import nn
from torch.nn.utils import prune

if not LIGHTNING:
    pytest.skip("lightning is not installed", allow_module_level=True)

import lightning as L
from lightning.pytorch.callbacks import Callback, ModelCheckpoint
from lightning.pytorch.callbacks import ModelPruning as Theirs
from lightning.pytorch.utilities.exceptions import MisconfigurationException
from pruning_runs import Lightning, LightningNet, fill, lightning_trainer

from sparsemod.compress.masked import live_masks, permanent_state
from sparsemod.errors import ConfigError
from sparsemod.train.lightning import KEY, ModelPruning

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*(does not have many workers|LeafSpec|deprecated|num_workers|logging interval|isn't empty)"
)

run = Lightning()


class Saver(Callback):
    """Saves at the end of each validation or training epoch."""

    def __init__(self, folder, when="validation"):
        self.folder, self.when = folder, when
        self.states = []

    def save(self, trainer):
        path = self.folder / f"{trainer.current_epoch}.ckpt"
        trainer.save_checkpoint(path)
        self.states.append(torch.load(path, weights_only=True)["state_dict"])

    def on_validation_end(self, trainer, pl_module):
        if self.when == "validation":
            self.save(trainer)

    def on_train_epoch_end(self, trainer, pl_module):
        if self.when == "training":
            self.save(trainer)


def zeros(tensor):
    return int((tensor == 0).sum())


def test_the_arguments_are_those_of_lightning_and_a_seed():
    ours, theirs = inspect.signature(ModelPruning).parameters, inspect.signature(Theirs).parameters
    assert list(ours) == [*theirs, "seed"]
    assert {n: p.default for n, p in ours.items() if n != "seed"} == {n: p.default for n, p in theirs.items()}


def test_what_is_refused_is_a_misconfiguration():
    for kind in (MisconfigurationException, ConfigError):
        with pytest.raises(kind, match="pruning_fn"):
            ModelPruning("foo")
        with pytest.raises(kind, match="is not a layer of the model"):
            ModelPruning.sanitize_parameters_to_prune(run.net(), [(nn.Linear(1, 1), "weight")])
        with pytest.raises(kind, match=r"out of range for a\.weight"):
            pruning = ModelPruning("random_structured", use_global_unstructured=False, pruning_dim=5)
            lightning_trainer(pruning).fit(run.net())


def test_parameters_of_the_module_itself_are_not_found():
    net = run.net()
    net.weight = nn.Parameter(torch.ones(2))
    assert ModelPruning.sanitize_parameters_to_prune(net) == [(net.a, "weight"), (net.b, "weight")]


# Every combination


class EveryOther(prune.BasePruningMethod):
    PRUNING_TYPE = "unstructured"

    def compute_mask(self, t, default_mask):
        mask = default_mask.clone()
        mask.view(-1)[::2] = 0
        return mask


METHODS = ["l1_unstructured", "random_unstructured", "ln_structured", "random_structured", EveryOther]


@pytest.mark.parametrize("listed", [False, True])
@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("lottery", [False, True])
def test_every_combination_trains_or_is_refused(listed, together, method, lottery):
    net = run.net(bias=True)
    structured = isinstance(method, str) and method.endswith("_structured")
    arguments = {"amount": 0.3, "use_global_unstructured": together, "use_lottery_ticket_hypothesis": lottery}
    if structured:
        arguments |= {"pruning_dim": 0, "pruning_norm": 1}
    if listed:
        arguments["parameters_to_prune"] = [(net.a, "weight"), (net.b, "weight")]
    if (structured and together) or (method is EveryOther and not together):
        with pytest.raises(MisconfigurationException):
            ModelPruning(method, **arguments)
        return
    lightning_trainer(ModelPruning(method, **arguments), 3).fit(net)
    assert zeros(net.a.weight) + zeros(net.b.weight) > 0
    assert not prune.is_pruned(net)


# Checkpoints


def pruning_of_half(**arguments):
    return ModelPruning("l1_unstructured", **{"use_lottery_ticket_hypothesis": False, **arguments})


@pytest.mark.parametrize("permanent", [True, False])
def test_a_checkpoint_behind_the_training(tmp_path, permanent):  # B23
    net = run.net()
    trainer = lightning_trainer(pruning_of_half(make_pruning_permanent=permanent))
    trainer.fit(net)
    trainer.save_checkpoint(tmp_path / "a.ckpt")
    state = torch.load(tmp_path / "a.ckpt", weights_only=True)["state_dict"]
    names = ("weight",) if permanent else ("weight_mask", "weight_orig")
    assert sorted(state) == [f"{layer}.{name}" for layer in "ab" for name in names]
    assert zeros(permanent_state(state)["a.weight"]) == 6


def test_checkpoints_within_the_training_are_permanent_and_the_model_is_not(tmp_path):  # B24
    net = run.net()
    alive = []

    class Watch(Callback):
        def on_train_epoch_end(self, trainer, pl_module):
            alive.append({name: zeros(mask) for name, mask in live_masks(pl_module).items()})

    saver = Saver(tmp_path)
    lightning_trainer([pruning_of_half(), saver, Watch()], 2).fit(net)
    assert [sorted(state) for state in saver.states] == [["a.weight", "b.weight"]] * 2
    assert [zeros(state["a.weight"]) for state in saver.states] == [0, 6]
    assert alive == [{"a.weight": 6, "b.weight": 0}, {"a.weight": 8, "b.weight": 1}]


def test_a_best_model_by_a_metric_of_before_the_pruning_is_warned_of(tmp_path):  # B24; known bug 8
    keeper = ModelCheckpoint(tmp_path, monitor="loss")
    trainer = lightning_trainer([pruning_of_half(), keeper], enable_checkpointing=True)
    with pytest.warns(UserWarning, match="compares networks by 'loss', which is measured before"):
        trainer.fit(run.net())


@pytest.mark.parametrize("on_train_end", [True, False])
@pytest.mark.parametrize("save_on_train_end", [True, False])
@pytest.mark.filterwarnings("ignore:.*compares networks")
def test_what_model_checkpoint_saves_is_permanent(tmp_path, on_train_end, save_on_train_end):
    net = run.net()
    keeper = ModelCheckpoint(tmp_path, "{epoch}", "loss", save_top_k=2, save_last=True)
    keeper._save_on_train_epoch_end = save_on_train_end
    pruning = ModelPruning("random_unstructured", [(net.a, "weight")], prune_on_train_epoch_end=on_train_end)
    lightning_trainer([pruning, keeper], 3, enable_checkpointing=True).fit(net)
    assert not hasattr(net.a, "weight_orig")
    for path in (keeper.kth_best_model_path, keeper.last_model_path):
        state = torch.load(path, weights_only=True)["state_dict"]
        assert sorted(state) == ["a.weight", "b.weight"]
        fill(LightningNet()).load_state_dict(state)


def resumed(tmp_path, permanent, lottery=False, epoch=1, optimizer=torch.optim.SGD, **arguments):
    """Train 4 epochs at once, and again from the checkpoint of an epoch."""

    class Net(LightningNet):
        def configure_optimizers(self):
            return optimizer(self.parameters(), 0.01)

    nets = []
    for path in (None, tmp_path / f"{epoch}.ckpt"):
        torch.manual_seed(len(nets))  # the layers are made anew in a resumed training, too
        net = fill(Net(), bias=True)
        if path:
            nn.init.normal_(net.a.weight), nn.init.normal_(net.b.weight)
        pruning = ModelPruning(
            arguments.get("method", "l1_unstructured"),
            amount=0.3,
            make_pruning_permanent=permanent,
            use_lottery_ticket_hypothesis=lottery,
            seed=5,
        )
        callbacks = [pruning] if path else [pruning, Saver(tmp_path, "training")]
        lightning_trainer(callbacks, 4).fit(net, ckpt_path=path)
        nets.append(net)
    return nets


@pytest.mark.parametrize("permanent", [True, False])
@pytest.mark.parametrize("lottery", [True, False])
@pytest.mark.parametrize("method", ["l1_unstructured", "random_unstructured"])
def test_a_resumed_training_ends_like_an_uninterrupted_one(tmp_path, permanent, lottery, method):
    # B29; known bugs 6 and 7. Plain SGD, as what is masked out is not in a permanent checkpoint.
    whole, again = (net.state_dict() for net in resumed(tmp_path, permanent, lottery, method=method))
    assert list(whole) == list(again)
    plain, other = permanent_state(whole), permanent_state(again)
    assert all(torch.equal(plain[name], other[name]) for name in plain)
    assert 0 < sum(zeros(value) for value in plain.values()) < 16


@pytest.mark.parametrize("permanent", [True, False])
def test_the_optimizer_finds_its_state_when_it_is_resumed(tmp_path, permanent):
    whole, again = (net.state_dict() for net in resumed(tmp_path, permanent, optimizer=torch.optim.Adam))
    plain, other = permanent_state(whole), permanent_state(again)
    assert all(torch.equal(plain[name], other[name]) for name in plain)


def test_a_resumed_training_keeps_the_masks_at_once(tmp_path):
    seen = []

    class Watch(Callback):
        def on_train_start(self, trainer, pl_module):
            seen.append({name: zeros(mask) for name, mask in live_masks(pl_module).items()})

    net = run.net()
    trainer = lightning_trainer(pruning_of_half())
    trainer.fit(net)
    trainer.save_checkpoint(tmp_path / "a.ckpt")  # the masks are permanent by now
    again = fill(LightningNet())
    lightning_trainer([pruning_of_half(), Watch()], 2).fit(again, ckpt_path=tmp_path / "a.ckpt")
    assert seen == [{"a.weight": 6, "b.weight": 0}]
    assert zeros(again.a.weight) + zeros(again.b.weight) == 9


def test_a_checkpoint_of_lightnings_own_callback_resumes(tmp_path):
    net = run.net()
    theirs = Theirs("l1_unstructured", make_pruning_permanent=False, use_lottery_ticket_hypothesis=False)
    trainer = lightning_trainer(theirs)
    trainer.fit(net)
    trainer.save_checkpoint(tmp_path / "a.ckpt")
    again = fill(LightningNet())
    lightning_trainer(pruning_of_half(), 2).fit(again, ckpt_path=tmp_path / "a.ckpt")
    assert zeros(again.a.weight) + zeros(again.b.weight) == 9


def test_a_checkpoint_with_masks_can_be_validated(tmp_path):
    net = run.net()
    trainer = lightning_trainer(pruning_of_half(make_pruning_permanent=False))
    trainer.fit(net)
    trainer.save_checkpoint(tmp_path / "a.ckpt")
    expected = trainer.validate(net)
    fresh = lightning_trainer(pruning_of_half(make_pruning_permanent=False))
    assert fresh.validate(fill(LightningNet()), ckpt_path=tmp_path / "a.ckpt") == expected


def test_two_callbacks_save_and_resume_together(tmp_path):
    def callbacks(net):
        return [
            ModelPruning(
                "l1_unstructured", [(net.a, "weight")], amount=2, use_lottery_ticket_hypothesis=True
            ),
            ModelPruning("random_unstructured", [(net.b, "weight")], amount=1, seed=1),
        ]

    net = run.net()
    lightning_trainer([*callbacks(net), Saver(tmp_path, "training")], 2).fit(net)
    again = fill(LightningNet())
    lightning_trainer(callbacks(again), 2).fit(again, ckpt_path=tmp_path / "0.ckpt")
    assert torch.equal(net.a.weight, again.a.weight)
    assert torch.equal(net.b.weight, again.b.weight)
    saved = torch.load(tmp_path / "1.ckpt", weights_only=True)[KEY]
    assert sorted(saved["masks"]) == sorted(saved["originals"]) == ["a.weight", "b.weight"]
    assert saved["originals"]["a.weight"].tolist() == torch.tensor(A).tolist()


def test_the_model_is_left_without_anything_of_ours():
    net = run.net()
    lightning_trainer(pruning_of_half()).fit(net)
    assert not net._load_state_dict_pre_hooks
    assert not net._load_state_dict_post_hooks
    assert not any(module._forward_pre_hooks for module in net.modules())


# Validation


def test_pruning_behind_the_validation(tmp_path):
    net = run.net()
    saver = Saver(tmp_path)
    lightning_trainer([pruning_of_half(prune_on_train_epoch_end=False), saver], 2).fit(net)
    assert [zeros(state["a.weight"]) for state in saver.states] == [6, 8]


def test_the_sanity_check_prunes_nothing():
    called = []
    net = run.net()
    pruning = pruning_of_half(
        prune_on_train_epoch_end=False, apply_pruning=lambda e: called.append(e) or True
    )
    lightning_trainer(pruning, 2, num_sanity_val_steps=2).fit(net)
    assert called == [0, 1]


def test_validating_alone_prunes_nothing():
    net = run.net()
    trainer = lightning_trainer(pruning_of_half(prune_on_train_epoch_end=False))
    trainer.validate(net)
    assert zeros(net.a.weight) == 0


@pytest.mark.parametrize("options", [{"limit_val_batches": 0}, {"check_val_every_n_epoch": 5}])
def test_pruning_behind_a_validation_that_never_comes_is_warned_of_once(options):  # B25; known bug 9
    net = run.net()
    trainer = lightning_trainer(pruning_of_half(prune_on_train_epoch_end=False), **options)
    with pytest.warns(UserWarning, match="prunes behind the validation, but there is none") as record:
        trainer.fit(net)
    assert sum("prunes behind" in str(warning.message) for warning in record) == 1
    assert zeros(net.a.weight) == 0


def test_a_model_of_many_layers_is_pruned_by_default():
    class Model(L.LightningModule):
        def __init__(self):
            super().__init__()
            self.layer = nn.Sequential(nn.Linear(32, 8), nn.BatchNorm1d(8), nn.Linear(8, 2))

        def training_step(self, batch, _):
            return self.layer(batch).square().mean()

        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters(), 0.01)

    net = Model()
    data = torch.utils.data.DataLoader(torch.randn(64, 32), batch_size=16)
    lightning_trainer(
        ModelPruning("l1_unstructured", amount=0.2, use_lottery_ticket_hypothesis=False), 3
    ).fit(net, data)
    n = sum(p.numel() for p in net.parameters())
    left = n
    for _ in range(3):
        left -= round(0.2 * left)
    assert sum(int(p.count_nonzero()) for p in net.parameters()) <= left
    assert 0 < zeros(net.layer[0].weight) < 32 * 8
