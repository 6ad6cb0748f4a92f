"""Results of a whole network: how loss and cost react to pruning, and the loss to the learning rate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sparsemod.compress.sensitivity_plots import draw_bars, draw_rates
from sparsemod.compress.sensitivity_result import (
    Json,
    PruningSensitivityResult,
    mean,
    number,
    read_json,
    write_json,
)

__all__ = [
    "LRLossSensitivityAnalysis",
    "PruningLossSensitivityAnalysis",
    "PruningPerfSensitivityAnalysis",
    "default_pruning_sparsities_loss",
    "default_pruning_sparsities_perf",
]

MODEL = "__model__"

Averages = dict[float, float]


def default_pruning_sparsities_loss(extended: bool) -> tuple[float, ...]:
    """Return the sparsities at which the loss is looked at.

    Args:
        extended: All from 0 to 0.99 in steps of 0.01, instead of ten.
    """
    if extended:
        return tuple(percent / 100 for percent in range(100))
    return (0.0, 0.2, 0.4, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 0.99)


def default_pruning_sparsities_perf() -> tuple[float, ...]:
    """Return the sparsities at which the time is looked at."""
    return (0.0, 0.4, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 0.975, 0.99)


class _Results:
    """Results by parameter."""

    def __init__(self) -> None:
        self._results: list[PruningSensitivityResult] = []

    @property
    def results(self) -> list[PruningSensitivityResult]:
        """One for each parameter, in the order of first measurement."""
        return self._results

    def add_result(
        self, id_: str | None, name: str, index: int, sparsity: float, measurement: float, baseline: bool
    ) -> None:
        """Add a measurement of a parameter.

        Args:
            id_: Its identifier; None identifies it by its name.
            name: Its name, for people.
            index: Its place in the network.
            sparsity: Where it was measured.
            measurement: What was measured.
            baseline: Whether others are compared with it.
        """
        found = (r for r in self._results if (r.name == name if id_ is None else r.id_ == id_))
        result = next(found, None)
        if result is None:
            result = PruningSensitivityResult(name if id_ is None else id_, name, index)
            self._results.append(result)
        result.add_measurement(sparsity, measurement, baseline)

    def get_result(self, id_or_name: str) -> PruningSensitivityResult:
        """Return the first result with this identifier or name.

        Raises:
            ValueError: There is none.
        """
        for result in self._results:
            if id_or_name in (result.id_, result.name):
                return result
        raise ValueError(f"there is no result for {id_or_name!r}")

    def dict(self) -> Json:
        """Return everything as plain JSON values."""
        return {"results": [result.dict() for result in self._results]}

    def save_json(self, path: str | Path) -> None:
        """Write `dict` to a file; ``.json`` is appended, missing folders are made."""
        write_json(self.dict(), path)

    @property
    def results_model(self) -> PruningSensitivityResult:
        """The result of the whole network."""
        raise NotImplementedError

    def print_res(self) -> None:
        """Print a table: each parameter, and the whole network."""
        print("index,name,sparse_average,sparse_integral,sparse_comparison")
        for result in [*self._results, self.results_model]:
            numbers = result.sparse_average, result.sparse_integral, result.sparse_comparison()
            print(f"{result.index},{result.name},{','.join(f'{number:.6g}' for number in numbers)}")


class PruningLossSensitivityAnalysis(_Results):
    """How the loss depends on the sparsity of each parameter."""

    @property
    def results_model(self) -> PruningSensitivityResult:
        """The sums of all parameters' averages at each sparsity."""
        total: Averages = {}
        for result in self._results:
            for key, average in result.averages.items():
                total[key] = total.get(key, 0.0) + average
        baselines = {result.baseline_measurement_key for result in self._results if result.has_baseline}
        model = PruningSensitivityResult(MODEL, MODEL, -1)
        for key, average in total.items():
            model.add_measurement(key, average, baseline=key in baselines)
        return model

    @staticmethod
    def from_dict(dictionary: Mapping[str, Any]) -> PruningLossSensitivityAnalysis:
        """Rebuild from `dict`."""
        analysis = PruningLossSensitivityAnalysis()
        analysis._results = [PruningSensitivityResult.from_dict(result) for result in dictionary["results"]]
        return analysis

    @staticmethod
    def load_json(path: str | Path) -> PruningLossSensitivityAnalysis:
        """Read what `save_json` wrote."""
        return PruningLossSensitivityAnalysis.from_dict(read_json(path))

    def plot(
        self, path: str | Path | None, plot_integral: bool, normalize: bool = True, title: str | None = None
    ) -> Any:
        """Draw a bar for each parameter: its integral or its average.

        Args:
            path: Where to write the picture; None returns it.
            plot_integral: The integrals, rather than the averages.
            normalize: To mean 0 and standard deviation 1.
            title: Of the picture.

        Returns:
            The figure and its axes where `path` is None, else (None, None).

        Raises:
            ConfigError: matplotlib is not installed.
        """
        values = [r.sparse_integral if plot_integral else r.sparse_average for r in self._results]
        label = f"{'integral' if plot_integral else 'average'} of the loss"
        return draw_bars([r.name for r in self._results], values, path, label, title, normalize=normalize)


class PruningPerfSensitivityAnalysis(_Results):
    """How the time (or another cost) depends on the sparsity of each parameter.

    Args:
        num_cores: Cores that the measurements are for.
        batch_size: Inputs of one inference.
    """

    def __init__(self, num_cores: int, batch_size: int) -> None:
        super().__init__()
        self._num_cores = num_cores
        self._batch_size = batch_size
        self._model = PruningSensitivityResult("model", "model", -1)

    @property
    def num_cores(self) -> int:
        """Cores that the measurements are for."""
        return self._num_cores

    @property
    def batch_size(self) -> int:
        """Inputs of one inference."""
        return self._batch_size

    @property
    def results_model(self) -> PruningSensitivityResult:
        """The result of the whole network."""
        return self._model

    def add_model_result(self, sparsity: float, measurement: float, baseline: bool) -> None:
        """Add a measurement of the whole network."""
        self._model.add_measurement(sparsity, measurement, baseline)

    def dict(self) -> Json:
        """Return everything as plain JSON values."""
        return {
            "num_cores": self._num_cores,
            "batch_size": self._batch_size,
            "results_model": self._model.dict(),
            "results": [result.dict() for result in self._results],
        }

    @staticmethod
    def from_dict(dictionary: Mapping[str, Any]) -> PruningPerfSensitivityAnalysis:
        """Rebuild from `dict`."""
        analysis = PruningPerfSensitivityAnalysis(dictionary["num_cores"], dictionary["batch_size"])
        analysis._model = PruningSensitivityResult.from_dict(dictionary["results_model"])
        analysis._results = [PruningSensitivityResult.from_dict(result) for result in dictionary["results"]]
        return analysis

    @staticmethod
    def load_json(path: str | Path) -> PruningPerfSensitivityAnalysis:
        """Read what `save_json` wrote."""
        return PruningPerfSensitivityAnalysis.from_dict(read_json(path))

    def plot(self, path: str | Path | None, title: str | None = None) -> Any:
        """Draw a bar for each parameter: what it gains at 90 % sparsity.

        Args:
            path: Where to write the picture; None returns it.
            title: Of the picture.

        Returns:
            The figure and its axes where `path` is None, else (None, None).

        Raises:
            ConfigError: matplotlib is not installed.
        """
        values = [result.sparse_comparison() for result in self._results]
        names = [result.name for result in self._results]
        return draw_bars(names, values, path, "change at 90 % sparsity", title, normalize=False)


class LRLossSensitivityAnalysis:
    """How the loss goes at rising learning rates."""

    def __init__(self) -> None:
        self._results: list[Json] = []

    @property
    def results(self) -> list[Json]:
        """For each rate ``lr``, ``loss_measurements`` and ``loss_avg``, in the order of measurement."""
        return self._results

    def add_result(self, lr: float, loss_measurements: Sequence[float]) -> None:
        """Add the losses that were measured at a rate."""
        losses = list(loss_measurements)
        self._results.append({"lr": lr, "loss_measurements": losses, "loss_avg": mean(losses)})

    def dict(self) -> Json:
        """Return everything as plain JSON values."""
        return {"results": [{**result} for result in self._results]}

    def save_json(self, path: str | Path) -> None:
        """Write `dict` to a file; ``.json`` is appended, missing folders are made."""
        write_json(self.dict(), path)

    @staticmethod
    def load_json(path: str | Path) -> LRLossSensitivityAnalysis:
        """Read what `save_json` wrote."""
        analysis = LRLossSensitivityAnalysis()
        for result in read_json(path)["results"]:
            analysis.add_result(result["lr"], [number(loss) for loss in result["loss_measurements"]])
        return analysis

    def print_res(self) -> None:
        """Print a table of rates and average losses."""
        print("lr,loss")
        for result in self._results:
            print(f"{result['lr']:.6g},{result['loss_avg']:.6g}")

    def plot(self, path: str | Path | None, title: str | None = None) -> Any:
        """Draw the average loss over the learning rate, on a logarithmic axis.

        Args:
            path: Where to write the picture; None returns it.
            title: Of the picture; ``__default__`` for "LR Sensitivity".

        Returns:
            The figure and its axes where `path` is None, else (None, None).

        Raises:
            ConfigError: matplotlib is not installed.
        """
        rates = [result["lr"] for result in self._results]
        losses = [result["loss_avg"] for result in self._results]
        return draw_rates(rates, losses, path, "LR Sensitivity" if title == "__default__" else title)
