"""Quantization-aware training by recipe."""

import copy

import pytest
import torch
from torch import nn

from sparsemod.compress.quantization import quantize
from sparsemod.compress.recipe import (
    DistillationModifier,
    EpochRangeModifier,
    GMPruningModifier,
    Modifier,
    QuantizationModifier,
    ScheduledModifierManager,
)


def net():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 4, 3),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(4 * 36, 8),
        nn.ReLU(),
        nn.Linear(8, 3),
    )


def batches(n, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(8, 1, 8, 8, generator=generator) for _ in range(n)]


def started(modifier, model=None, **options):
    model = model or net()
    manager = ScheduledModifierManager([modifier])
    optimizer = manager.modify(model, torch.optim.SGD(model.parameters(), 0.0), 1, **options)
    return model, manager, optimizer


def on_a_grid(values):
    """Whether the values have at most 256 different ones, as int8 has."""
    return len(values.unique()) <= 256


def test_on_from_its_start():
    model, _, optimizer = started(QuantizationModifier(start_epoch=2))
    plain = net().eval()
    model.eval()
    x = torch.randn(512, 1, 8, 8)
    same = []
    for _ in range(4):
        same.append(torch.equal(model(x), plain(x)))
        optimizer.step()
    assert same == [True, True, True, False]


def test_the_pass_runs_on_int8_grids():
    model, _, optimizer = started(QuantizationModifier())
    optimizer.step()
    x = torch.randn(512, 1, 8, 8)
    outputs = model(x)
    assert on_a_grid(outputs)
    assert not on_a_grid(net()(x))


def test_gradients_reach_the_weights():
    model, _, optimizer = started(QuantizationModifier())
    optimizer.step()
    model(batches(1)[0]).square().sum().backward()
    assert all(
        parameter.grad is not None and parameter.grad.abs().sum() > 0 for parameter in model[0].parameters()
    )


def test_trains_with_pruning_towards_the_network_that_ships():
    model = net()
    manager = ScheduledModifierManager(
        [
            EpochRangeModifier(0, 3),
            GMPruningModifier(0.1, 0.5, 0, 1, 0.25, "__ALL_PRUNABLE__"),
            QuantizationModifier(start_epoch=1),
        ]
    )
    optimizer = manager.modify(model, torch.optim.Adam(model.parameters(), 0.01), 4)
    data = batches(4)
    for _ in range(3):
        for x in data:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), (x.mean(dim=(1, 2, 3)) > 0).long()).backward()
            optimizer.step()
    model.eval()
    trained = model(data[0]).detach()
    manager.finalize(model)
    shipped = quantize(model, "qat", data)(data[0])
    assert int((model[4].weight == 0).sum()) == model[4].weight.numel() // 2
    assert (trained - shipped).abs().max() < 0.2 * shipped.abs().max()


def test_finalize_gives_the_float_network_back():
    model, manager, optimizer = started(QuantizationModifier())
    optimizer.step()
    x = batches(1)[0]
    model.eval()
    quantized = model(x)
    manager.finalize(model)
    assert "forward" not in vars(model)
    assert torch.equal(model(x), net().eval()(x))
    assert not torch.equal(model(x), quantized)


def test_a_copy_is_a_network_of_its_own():
    model, manager, optimizer = started(QuantizationModifier())
    optimizer.step()
    x = batches(1)[0]
    model(x)
    twin = copy.deepcopy(model).eval()
    with torch.no_grad():
        twin[6].weight.zero_()
        twin[6].bias.zero_()
    assert float(twin(x).detach().abs().max()) == 0.0
    assert float(model.eval()(x).detach().abs().max()) > 0.0
    manager.finalize(model)
    assert float(twin(x).detach().abs().max()) == 0.0


def test_batch_statistics_are_frozen():
    model, _, optimizer = started(QuantizationModifier(start_epoch=1, freeze_bn_stats_epoch=2))
    model.train()
    means = []
    for x in batches(5):
        model(x)
        means.append(model[1].running_mean.clone())
        optimizer.step()
    assert not torch.equal(means[0], means[1])
    assert torch.equal(means[1], means[4])


def test_grids_follow_the_batches_until_they_are_frozen():
    model, _, optimizer = started(QuantizationModifier(start_epoch=0, disable_quantization_observer_epoch=2))
    model.train()
    x = batches(1)[0]
    optimizer.step()
    before = model(x)
    model(100 * x)
    moved = model(x)
    assert not torch.equal(before, moved)
    optimizer.step()
    optimizer.step()
    frozen = model(x)
    model(100 * x)
    assert torch.equal(model(x), frozen)


def test_calibration_batches_set_the_first_grids():
    small, large = batches(1)[0], 50 * batches(1)[0]
    by_training = started(QuantizationModifier())
    by_loader = started(QuantizationModifier(), calibration_dataloader=[(large, None), (small, None)])
    by_one = started(QuantizationModifier(num_calibration_steps=1), calibration_dataloader=[small, large])
    outputs = []
    for model, _, optimizer in (by_training, by_loader, by_one):
        optimizer.step()
        outputs.append(model.eval()(small))
    steps = [len(output.unique()) for output in outputs]
    assert steps[1] < steps[0]
    assert torch.equal(outputs[0], outputs[2])


class TestFloat:
    def weights_on_grid(self, modifier):
        """Which linear layers are quantized: their weights as they are used have one scale a row."""
        model, _, optimizer = started(modifier)
        optimizer.step()
        x = torch.randn(512, 1, 8, 8)
        return on_a_grid(model(x))

    def test_nothing(self):
        assert self.weights_on_grid(QuantizationModifier())

    @pytest.mark.parametrize(
        "options",
        [
            {"ignore": ["6"]}, {"ignore": ["Linear"]}, {"exclude_module_types": ["Linear"]},
            {"submodules": ["0", "4"]},
            {"scheme_overrides": {"6": {"weights": None, "input_activations": None}}},
            {"scheme_overrides": {"Linear": {"input_activations": "null"}}},
            {"scheme_overrides": {"6": {"weights": None, "input_activations": {"num_bits": 8}}}},
            {"ignore": ["Sequential"]},
        ],
    )  # fmt: skip
    def test_modules_left_in_float(self, options):
        assert not self.weights_on_grid(QuantizationModifier(**options))

    def test_everything_in_float_is_the_network_itself(self):
        model, _, optimizer = started(QuantizationModifier(ignore=["Sequential"]))
        optimizer.step()
        x = batches(1)[0]
        assert torch.allclose(model.eval()(x), net().eval()(x), atol=0.05)

    def test_unknown_module(self):
        with pytest.raises(ValueError, match="did you mean 'Linear'"):
            started(QuantizationModifier(ignore=["Linaer"]))
        started(QuantizationModifier(ignore=["Linaer"], strict=False))


class TestArguments:
    @pytest.mark.parametrize(
        "options",
        [
            {"end_epoch": 5}, {"start_epoch": 3, "disable_quantization_observer_epoch": 2},
            {"start_epoch": 3, "freeze_bn_stats_epoch": 2}, {"num_calibration_steps": 0},
            {"ignore": "Linear"},
            {"scheme": {"weights": {"num_bits": 4}}}, {"scheme": {"weights": {"symmetric": False}}},
            {"scheme": {"input_activations": {"symmetric": True}}}, {"scheme": "tensorrt"},
            {"scheme": {"weight": {}}},
            {"scheme": {"weights": None}}, {"scheme": {"weights": None, "input_activations": None}},
            {"scheme": {"weights": {"num_bits": 8}, "input_activations": None}}, {"weight_bits": 4},
            {"tensorrt": True},
            {"reduce_range": True}, {"ignored": ["a"]},
            {"scheme_overrides": {"Linear": {"weights": {"num_bits": 4}}}}, {"strict": "no"},
        ],
    )  # fmt: skip
    def test_refused(self, options):
        with pytest.raises(ValueError):
            QuantizationModifier(**options)

    def test_advance(self):
        modifier = QuantizationModifier(1, freeze_bn_stats_epoch=2, disable_quantization_observer_epoch=3)
        modifier.advance_epochs(10)
        assert modifier.start_epoch == 11
        assert modifier.freeze_bn_stats_epoch == 12
        assert modifier.disable_quantization_observer_epoch == 13
        assert modifier.end_epoch == -1

    def test_composed(self):
        base = (
            "modifiers:\n  - !EpochRangeModifier {start_epoch: 0, end_epoch: 10}\n"
            "  - !QuantizationModifier {start_epoch: 3}\n"
        )
        composed = ScheduledModifierManager.compose_staged(base, base)
        assert [(m.start_epoch, m.end_epoch) for m in composed.quantization_modifiers] == [(3, -1), (13, -1)]
        assert str(ScheduledModifierManager.from_yaml(str(composed))) == str(composed)
        assert composed.structured_modifiers == composed.quantization_modifiers

    @pytest.mark.parametrize(
        "modifier",
        [
            QuantizationModifier(2.0),
            QuantizationModifier(
                2, {"weights": {"num_bits": 8, "symmetric": True}, "output_activations": None},
                ignore=["ReLU", "a.b"],
                scheme_overrides={"Linear": "default"}, freeze_bn_stats_epoch=3, num_calibration_steps=4,
                strict=False,
                submodules=["a"], exclude_module_types=["B"], model_fuse_fn_name="no_fuse",
                quantize_linear_activations=0, quantize_embeddings=1, tensorrt=False, weight_bits=8,
            ),
        ],
    )  # fmt: skip
    def test_text_makes_the_same_modifier(self, modifier):
        again = Modifier.load_obj(str(modifier))
        assert again.identifier() == modifier.identifier()


def test_one_shot_leaves_a_float_network():
    model = net().eval()
    ScheduledModifierManager([QuantizationModifier()]).apply(model, calibration_dataloader=batches(2))
    assert torch.equal(model(batches(1)[0]), net().eval()(batches(1)[0]))


def test_a_network_of_two_arguments_is_refused_by_name():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(2, 2)

        def forward(self, x, y):
            return self.layer(x + y)

    model, _, optimizer = started(QuantizationModifier(), Two())
    optimizer.step()
    with pytest.raises(ValueError, match="one argument"):
        model(torch.ones(1, 2), torch.ones(1, 2))


def test_recurrent_networks():
    class Recurrent(nn.Module):
        def __init__(self):
            super().__init__()
            self.gru, self.head = nn.GRU(4, 8, batch_first=True), nn.Linear(8, 3)

        def forward(self, x):
            return self.head(self.gru(x)[0][:, -1])

    model, manager, optimizer = started(QuantizationModifier(), Recurrent())
    optimizer.step()
    outputs = model(torch.randn(512, 5, 4))
    assert on_a_grid(outputs)
    outputs.sum().backward()
    assert model.gru.weight_hh_l0.grad.abs().sum() > 0
    manager.finalize(model)


def test_together_with_a_teacher_made_of_the_network_itself():
    model = net()
    manager = ScheduledModifierManager([DistillationModifier(hardness=1.0), QuantizationModifier()])
    optimizer = manager.modify(
        model, torch.optim.SGD(model.parameters(), 0.01), 1, distillation_teacher="self"
    )
    for x in batches(3):
        optimizer.zero_grad()
        outputs = model(x)
        optimizer.loss_update(outputs.sum(), student_inputs=x, student_outputs=outputs).backward()
        optimizer.step()
    manager.finalize(model)
