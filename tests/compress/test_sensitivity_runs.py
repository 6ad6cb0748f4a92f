"""Measuring sensitivity: networks are given back as they were, numbers worked by hand."""

import pytest
import torch
from torch import nn

from sparsemod.compress.sensitivity import (
    default_exponential_check_lrs,
    lr_loss_sensitivity,
    model_prunability_magnitude,
    pruning_loss_sens_magnitude,
    pruning_loss_sens_one_shot,
    pruning_perf_sens_one_shot,
)
from sparsemod.errors import ConfigError, DataError
from sparsemod.measure.latency import latency_seconds
from sparsemod.measure.operators import lower
from sparsemod.measure.targets import find_target


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))


def data(n=3):
    generator = torch.Generator().manual_seed(0)
    return [
        (torch.randn(6, 4, generator=generator), torch.randint(0, 3, (6,), generator=generator))
        for _ in range(n)
    ]


def state(model):
    return {name: value.clone() for name, value in model.state_dict().items()}


def same(one, two):
    return one.keys() == two.keys() and all(torch.equal(one[name], two[name]) for name in one)


class TestMagnitude:
    def test_mean_magnitude_of_what_goes(self):
        model = nn.Linear(4, 1)
        model.weight = nn.Parameter(torch.tensor([[0.4, -0.1, 0.3, -0.2]]))
        (result,) = pruning_loss_sens_magnitude(model, [0.0, 0.5, 0.75, 1.0]).results
        assert list(result.averages.values()) == pytest.approx([0.0, 0.15, 0.2, 0.25])
        assert (result.name, result.index, result.baseline_measurement_key) == ("weight", 0, 0.0)

    def test_rises_with_the_sparsity(self):
        analysis = pruning_loss_sens_magnitude(net())
        assert [result.index for result in analysis.results] == [0, 1]
        for result in analysis.results:
            values = list(result.averages.values())
            assert len(values) == 100
            assert values == sorted(values)

    def test_prunability(self):
        model = nn.Sequential(nn.Linear(2, 1), nn.Linear(1, 1))
        model[0].weight = nn.Parameter(torch.tensor([[1.0, -2.0]]))
        model[1].weight = nn.Parameter(torch.tensor([[6.0]]))
        assert model_prunability_magnitude(model) == 3.0
        assert model_prunability_magnitude(nn.ReLU()) == 0.0


class TestOneShot:
    def run(self, model, **options):
        return pruning_loss_sens_one_shot(model, data(), nn.functional.cross_entropy, **options)

    def test_index_of_each_layer_and_weights_unchanged(self):
        model = net().train()
        before = state(model)
        analysis = self.run(model, steps_per_measurement=2)
        assert [(result.name, result.index) for result in analysis.results] == [
            ("0.weight", 0),
            ("3.weight", 1),
        ]
        assert same(state(model), before)
        assert model.training

    def test_measurements(self):
        model = net()
        analysis = self.run(model, steps_per_measurement=2, sparsity_levels=[0.0, 0.5])
        for result in analysis.results:
            assert [len(losses) for losses in result.sparse_measurements.values()] == [2, 2]
        model.eval()
        x, y = data()[1]
        with torch.no_grad():
            dense = float(nn.functional.cross_entropy(model(x), y))
            kept = model[3].weight.abs().flatten().argsort()[12:]
            mask = torch.zeros(24).index_fill(0, kept, 1.0).reshape(3, 8)
            model[3].weight.mul_(mask)
            pruned = float(nn.functional.cross_entropy(model(x), y))
        measured = analysis.get_result("3.weight").sparse_measurements
        assert measured[0.0][1] == pytest.approx(dense)
        assert measured[0.5][1] == pytest.approx(pruned)

    def test_weights_come_back_after_an_error(self):
        model = net()
        before = state(model)

        def broken(outputs, targets):
            raise RuntimeError("broken")

        with pytest.raises(RuntimeError, match="broken"):
            pruning_loss_sens_one_shot(model, data(), broken)
        assert same(state(model), before)
        assert model.training

    def test_no_data(self):
        with pytest.raises(DataError):
            pruning_loss_sens_one_shot(net(), [], nn.functional.cross_entropy)


class TestRates:
    def run(self, model, optimizer, **options):
        return lr_loss_sensitivity(model, data(), nn.functional.cross_entropy, optimizer, **options)

    def test_same_number_of_measurements_for_each_rate(self):
        model = net()
        analysis = self.run(
            model, torch.optim.SGD(model.parameters(), 0.1), steps_per_measurement=2, check_lrs=[0.01, 0.1]
        )
        assert [(r["lr"], len(r["loss_measurements"])) for r in analysis.results] == [(0.01, 2), (0.1, 2)]

    def test_given_back_as_it_was(self):
        model = net().eval()
        optimizer = torch.optim.Adam(model.parameters(), 0.123)
        nn.functional.cross_entropy(model(data()[0][0]), data()[0][1]).backward()
        optimizer.step()
        before, momentum = state(model), optimizer.state[model[0].weight]["exp_avg"].clone()
        self.run(model, optimizer, steps_per_measurement=4, check_lrs=[0.01, 0.1])
        assert same(state(model), before)
        assert optimizer.param_groups[0]["lr"] == 0.123
        assert torch.equal(optimizer.state[model[0].weight]["exp_avg"], momentum)
        assert not model.training

    def test_trains_on(self):
        model = nn.Linear(4, 3)
        analysis = self.run(
            model,
            torch.optim.SGD(model.parameters(), 0.1),
            steps_per_measurement=3,
            check_lrs=[0.0, 0.5, 0.5],
        )
        first, _, last = (result["loss_avg"] for result in analysis.results)
        assert last < first

    def test_no_data(self):
        model = net()
        with pytest.raises(DataError):
            lr_loss_sensitivity(
                model, [], nn.functional.cross_entropy, torch.optim.SGD(model.parameters(), 0.1)
            )

    def test_default_rates(self):
        rates = default_exponential_check_lrs()
        assert len(rates) == 140
        assert rates[0] == 1e-6
        assert rates[1] == pytest.approx(1.1e-6)
        assert rates[-1] == 0.5


class TestCost:
    def test_pays_under_the_sparse_runtime(self):
        model = net()
        before = state(model)
        example = torch.zeros(1, 4)
        analysis = pruning_perf_sens_one_shot(model, example, "STM32F446", sparsity_levels=[0.0, 0.9])
        assert same(state(model), before)
        target = find_target("STM32F446")
        dense = latency_seconds(lower(model, example), target, "c")
        assert analysis.results_model.baseline_average == pytest.approx(dense)
        assert analysis.results_model.sparse_comparison() < 0
        assert [result.name for result in analysis.results] == ["0.weight", "3.weight"]
        assert sum(r.baseline_average for r in analysis.results) <= dense * (1 + 1e-9)
        assert (analysis.num_cores, analysis.batch_size) == (1, 1)

    def test_size(self):
        model = nn.Linear(64, 64)
        nn.init.normal_(model.weight, generator=torch.Generator().manual_seed(0))
        with torch.no_grad():
            model.weight.sign_()  # no weight rounds to zero in int8
        analysis = pruning_perf_sens_one_shot(
            model, torch.zeros(1, 64), "STM32F446", sparsity_levels=[0.0, 0.5], cost="model_size"
        )
        dense, half = analysis.results_model.averages.values()
        assert dense - half == 64 * 64 - (64 * 64 / 8 + 64 * 64 / 2)

    def test_dense_runtime_gains_nothing(self):
        analysis = pruning_perf_sens_one_shot(
            net(), torch.zeros(1, 4), find_target("STM32F446"), "tflite-micro", [0.0, 0.1]
        )
        assert analysis.results_model.sparse_comparison() == 0.0

    def test_recurrent_layers_have_the_name_of_their_parameter(self):
        class Recurrent(nn.Module):
            def __init__(self):
                super().__init__()
                self.lstm, self.head = nn.LSTM(4, 8, batch_first=True), nn.Linear(8, 3)

            def forward(self, x):
                return self.head(self.lstm(x)[0][:, -1])

        analysis = pruning_perf_sens_one_shot(
            Recurrent(), torch.zeros(1, 5, 4), "STM32F446", sparsity_levels=[0.0, 0.5], cost="model_size"
        )
        assert [result.name for result in analysis.results] == ["lstm.weight_ih_l0", "head.weight"]

    def test_unknown_target(self):
        with pytest.raises(ConfigError, match="catalogue"):
            pruning_perf_sens_one_shot(net(), torch.zeros(1, 4), "STM32F4466")
