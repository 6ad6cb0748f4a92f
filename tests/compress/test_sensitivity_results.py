"""Results of sensitivity analyses: numbers, JSON, tables, plots."""

import json
import math
import sys
import warnings

import pytest

from sparsemod.compress.sensitivity import (
    LRLossSensitivityAnalysis,
    PruningLossSensitivityAnalysis,
    PruningPerfSensitivityAnalysis,
    PruningSensitivityResult,
    default_pruning_sparsities_loss,
    default_pruning_sparsities_perf,
)
from sparsemod.errors import ConfigError


def result(measurements, baseline=None):
    found = PruningSensitivityResult("1", "conv.weight", 0)
    for sparsity, losses in measurements:
        for loss in losses:
            found.add_measurement(sparsity, loss, baseline=sparsity == baseline)
    return found


TYPICAL = result([(0.0, [1.0, 1.2]), (0.5, [1.5]), (0.9, [2.0, 2.4]), (0.99, [4.0])], baseline=0.0)


class TestResult:
    def test_numbers(self):
        assert list(TYPICAL.averages) == [0.0, 0.5, 0.9, 0.99]
        assert list(TYPICAL.averages.values()) == pytest.approx([1.1, 1.5, 2.2, 4.0])
        assert TYPICAL.sparse_integral == pytest.approx(1.669)
        assert TYPICAL.sparse_comparison() == pytest.approx(1.1)
        assert TYPICAL.baseline_average == pytest.approx(1.1)
        assert TYPICAL.sparse_average == pytest.approx(2.2)
        assert TYPICAL.has_baseline
        assert (TYPICAL.baseline_measurement_index, TYPICAL.baseline_measurement_key) == (0, 0.0)

    def test_without_a_baseline_the_first_inserted_counts(self):
        found = result([(0.9, [3.0]), (0.0, [1.0]), (0.5, [2.0])])
        assert found.sparse_integral == pytest.approx(1.75)
        assert found.sparse_comparison() == 0.0
        assert found.sparse_comparison(1) == -2.0
        assert not found.has_baseline
        assert found.baseline_measurement_index == -1
        with pytest.raises(ValueError, match="no baseline"):
            found.baseline_average

    def test_baseline_is_set_by_the_first_measurement_of_a_sparsity(self):
        found = PruningSensitivityResult("1", "a", 0)
        found.add_measurement(0.0, 1.0, baseline=False)
        found.add_measurement(0.0, 1.0, baseline=True)
        assert not found.has_baseline
        found.add_measurement(0.5, 1.0, baseline=True)
        assert (found.baseline_measurement_index, found.baseline_measurement_key) == (1, 0.5)

    def test_nearest_to_ninety_percent_ties_to_the_first(self):
        found = result([(0.0, [1.0]), (0.85, [5.0]), (0.95, [7.0])], baseline=0.0)
        assert found.sparse_comparison() == 4.0

    @pytest.mark.parametrize(("measurements", "value"), [([], 0.0), ([(0.5, [3.0])], 3.0)])
    def test_few_points(self, measurements, value):
        found = result(measurements)
        assert found.sparse_integral == value
        assert found.sparse_average == value
        assert found.sparse_comparison() == 0.0

    def test_dict(self):
        assert list(TYPICAL.dict()) == [
            "id", "name", "index", "baseline_measurement_index", "has_baseline", "baseline_measurement_key",
            "sparse_measurements", "averages", "baseline_average", "sparse_average", "sparse_integral",
            "sparse_comparison",
        ]  # fmt: skip
        assert TYPICAL.dict()["sparse_measurements"][0] == [0.0, [1.0, 1.2]]
        assert result([(0.5, [1.0])]).dict()["baseline_average"] is None

    def test_rebuilt_from_json(self):
        again = PruningSensitivityResult.from_dict(json.loads(json.dumps(TYPICAL.dict())))
        assert again.dict() == TYPICAL.dict()

    def test_given_measurements(self):
        found = PruningSensitivityResult("1", "a", 3, 0, 0.0, {0.0: [1.0], 0.9: [2.0]})
        assert (found.id_, found.name, found.index) == ("1", "a", 3)
        assert found.sparse_comparison() == 1.0
        assert found.sparse_measurements == {0.0: [1.0], 0.9: [2.0]}


def loss_analysis(integrals=(1.0, 2.0, 3.0)):
    analysis = PruningLossSensitivityAnalysis()
    for index, value in enumerate(integrals):
        for sparsity in (0.0, 1.0):
            analysis.add_result(
                f"id{index}", f"layer{index}", index, sparsity, value, baseline=sparsity == 0.0
            )
    return analysis


class TestLoss:
    def test_matched_by_identifier_or_by_name(self):
        analysis = PruningLossSensitivityAnalysis()
        analysis.add_result("1", "a", 0, 0.0, 1.0, True)
        analysis.add_result("1", "renamed", 0, 0.5, 2.0, False)
        analysis.add_result(None, "a", 0, 0.9, 3.0, False)
        analysis.add_result(None, "b", 1, 0.0, 1.0, True)
        analysis.add_result("2", "a", 2, 0.0, 1.0, True)
        assert [(r.id_, r.name, len(r.averages)) for r in analysis.results] == [
            ("1", "a", 3), ("b", "b", 1), ("2", "a", 1),
        ]  # fmt: skip
        assert analysis.get_result("a") is analysis.results[0]
        assert analysis.get_result("2") is analysis.results[2]
        with pytest.raises(ValueError, match="no result"):
            analysis.get_result("c")

    def test_whole_network_is_the_sum_of_the_averages(self):
        analysis = PruningLossSensitivityAnalysis()
        for name, first in (("a", 1.0), ("b", 10.0)):
            for loss in (first, 3 * first):
                analysis.add_result(None, name, 0, 0.0, loss, True)
            analysis.add_result(None, name, 0, 0.9, 4 * first, False)
        model = analysis.results_model
        assert (model.id_, model.name, model.index) == ("__model__", "__model__", -1)
        assert model.averages == {0.0: 22.0, 0.9: 44.0}
        assert model.has_baseline
        assert model.sparse_comparison() == 22.0

    @pytest.mark.parametrize("name", ["analysis", "analysis.json"])
    def test_json(self, tmp_path, name):
        analysis = loss_analysis()
        analysis.save_json(str(tmp_path / "new" / name))
        path = tmp_path / "new" / "analysis.json"
        assert list(json.loads(path.read_text())) == ["results"]
        again = PruningLossSensitivityAnalysis.load_json(str(path))
        assert again.dict() == analysis.dict()

    def test_json_has_no_nan(self, tmp_path):
        path = tmp_path / "a.json"
        PruningLossSensitivityAnalysis().save_json(path)
        assert PruningLossSensitivityAnalysis.load_json(path).results == []
        analysis = loss_analysis()
        analysis.add_result(None, "c", 3, 0.0, math.nan, True)
        analysis.save_json(path)
        assert "NaN" not in path.read_text()
        assert math.isnan(PruningLossSensitivityAnalysis.load_json(path).get_result("c").averages[0.0])

    def test_missing_file(self, tmp_path):
        with pytest.raises(ConfigError, match="No such file"):
            PruningLossSensitivityAnalysis.load_json(tmp_path / "a.json")
        (tmp_path / "b.json").write_text("[")
        with pytest.raises(ConfigError, match="no JSON"):
            PruningLossSensitivityAnalysis.load_json(tmp_path / "b.json")

    def test_table(self, capsys):
        loss_analysis().print_res()
        lines = capsys.readouterr().out.splitlines()
        assert lines[0] == "index,name,sparse_average,sparse_integral,sparse_comparison"
        assert lines[1] == "0,layer0,1,1,0"
        assert lines[-1] == "-1,__model__,6,6,0"


def widths(drawn):
    return [bar.get_width() for bar in drawn[1].patches]


class TestPlots:
    @pytest.fixture(autouse=True)
    def close(self):
        yield
        from matplotlib import pyplot

        pyplot.close("all")

    def test_normalized_bars(self):
        drawn = loss_analysis().plot(None, plot_integral=True)
        assert widths(drawn) == pytest.approx([-1.2247, 0.0, 1.2247], abs=1e-4)
        assert [label.get_text() for label in drawn[1].get_yticklabels()] == ["layer0", "layer1", "layer2"]

    @pytest.mark.parametrize("value", [2.0, 0.1, 0.0])
    def test_equal_bars_are_zero_without_a_warning(self, value):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert widths(loss_analysis([value] * 3).plot(None, plot_integral=True)) == [0, 0, 0]

    def test_plain_bars(self):
        assert widths(loss_analysis().plot(None, True, normalize=False)) == [1, 2, 3]
        analysis = loss_analysis([1.0])
        analysis.add_result("id0", "layer0", 0, 0.5, 4.0, False)
        assert widths(analysis.plot(None, False, normalize=False)) == [2.0]
        assert widths(analysis.plot(None, True, normalize=False)) == [2.5]

    def test_to_a_file(self, tmp_path):
        path = tmp_path / "new" / "plot.png"
        assert loss_analysis().plot(str(path), True, title="Loss") == (None, None)
        assert path.read_bytes().startswith(b"\x89PNG")

    def test_nothing_to_draw(self, tmp_path):
        assert PruningLossSensitivityAnalysis().plot(tmp_path / "a.png", True) == (None, None)

    @pytest.mark.parametrize(
        ("title", "shown"), [(None, ""), ("__default__", "LR Sensitivity"), ("Mine", "Mine")]
    )
    def test_learning_rates(self, title, shown, tmp_path):
        analysis = LRLossSensitivityAnalysis()
        analysis.add_result(0.001, [1.0, 3.0])
        analysis.add_result(0.01, [2.0])
        _, axes = analysis.plot(None, title)
        assert axes.get_title() == shown
        assert axes.get_xscale() == "log"
        assert axes.lines[0].get_xydata().tolist() == [[0.001, 2.0], [0.01, 2.0]]
        assert analysis.plot(tmp_path / "lr.png", title) == (None, None)

    def test_costs(self, tmp_path):
        analysis = PruningPerfSensitivityAnalysis(1, 1)
        for sparsity, seconds in ((0.0, 10.0), (0.9, 4.0)):
            analysis.add_result(None, "a", 0, sparsity, seconds, sparsity == 0.0)
        assert widths(analysis.plot(None)) == [-6.0]
        assert analysis.plot(tmp_path / "perf.png", "Title") == (None, None)

    def test_without_matplotlib(self, monkeypatch, tmp_path):
        for name in ("matplotlib", "matplotlib.figure", "matplotlib.pyplot"):
            monkeypatch.setitem(sys.modules, name, None)
        with pytest.raises(ConfigError, match="report"):
            loss_analysis().plot(tmp_path / "a.png", True)


class TestCost:
    def analysis(self):
        analysis = PruningPerfSensitivityAnalysis(num_cores=4, batch_size=2)
        analysis.add_model_result(0.0, 10.0, baseline=True)
        analysis.add_model_result(0.9, 4.0, baseline=False)
        analysis.add_result("1", "a", 0, 0.0, 3.0, baseline=True)
        return analysis

    def test_whole_network(self):
        model = self.analysis().results_model
        assert (model.name, model.index) == ("model", -1)
        assert model.sparse_comparison() == -6.0
        assert model.sparse_integral == pytest.approx(6.3)

    def test_json(self, tmp_path):
        analysis = self.analysis()
        assert list(analysis.dict()) == ["num_cores", "batch_size", "results_model", "results"]
        analysis.save_json(tmp_path / "perf")
        again = PruningPerfSensitivityAnalysis.load_json(tmp_path / "perf.json")
        assert again.dict() == analysis.dict()
        assert (again.num_cores, again.batch_size) == (4, 2)


class TestRates:
    def test_averages_and_json(self, tmp_path):
        analysis = LRLossSensitivityAnalysis()
        analysis.add_result(0.001, [1.0, 3.0])
        analysis.add_result(0.01, [2.0])
        assert analysis.results == [
            {"lr": 0.001, "loss_measurements": [1.0, 3.0], "loss_avg": 2.0},
            {"lr": 0.01, "loss_measurements": [2.0], "loss_avg": 2.0},
        ]
        analysis.save_json(tmp_path / "lr")
        assert LRLossSensitivityAnalysis.load_json(tmp_path / "lr.json").dict() == analysis.dict()

    def test_table(self, capsys):
        analysis = LRLossSensitivityAnalysis()
        analysis.add_result(0.001, [1.0, 3.0])
        analysis.print_res()
        assert capsys.readouterr().out == "lr,loss\n0.001,2\n"


def test_default_sparsities():
    assert default_pruning_sparsities_loss(False) == (0, 0.2, 0.4, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 0.99)
    extended = default_pruning_sparsities_loss(True)
    assert len(extended) == 100
    assert (extended[0], extended[1], extended[29], extended[-1]) == (0.0, 0.01, 0.29, 0.99)
    assert default_pruning_sparsities_perf() == (0, 0.4, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 0.975, 0.99)
