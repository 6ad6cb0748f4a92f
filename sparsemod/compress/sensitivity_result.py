"""What was measured at which sparsity for one parameter, and how results become JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

from sparsemod.errors import ConfigError

__all__ = ["Json", "PruningSensitivityResult", "mean", "number", "read_json", "write_json"]

TYPICAL_SPARSITY = 0.9

Json = dict[str, Any]
Averages = dict[float, float]
Measurements = dict[float, list[float]]


class PruningSensitivityResult:
    """What was measured for one parameter, layer or network at several sparsities.

    Args:
        id_: Its identifier.
        name: Its name, for people.
        index: Its place in the network.
        baseline_measurement_index: The place of the baseline among the sparsities; -1 for none.
        baseline_measurement_key: The sparsity of the baseline.
        sparse_measurements: What is already known: measurements by sparsity.

    Example:
        >>> result = PruningSensitivityResult("1", "conv.weight", 0)
        >>> result.add_measurement(0.0, 1.0, baseline=True)
        >>> result.add_measurement(0.5, 3.0, baseline=False)
        >>> result.sparse_comparison(), result.sparse_integral
        (2.0, 1.0)
    """

    def __init__(
        self,
        id_: str,
        name: str,
        index: int,
        baseline_measurement_index: int = -1,
        baseline_measurement_key: float | None = None,
        sparse_measurements: Mapping[float, Iterable[float]] | None = None,
    ) -> None:
        self._id = id_
        self._name = name
        self._index = index
        self._baseline_index = baseline_measurement_index
        self._baseline_key = baseline_measurement_key
        self._measurements = {key: list(values) for key, values in (sparse_measurements or {}).items()}

    def __repr__(self) -> str:
        return f"PruningSensitivityResult({self.dict()})"

    @property
    def id_(self) -> str:
        """The identifier."""
        return self._id

    @property
    def name(self) -> str:
        """The name, for people."""
        return self._name

    @property
    def index(self) -> int:
        """The place in the network."""
        return self._index

    @property
    def baseline_measurement_index(self) -> int:
        """The baseline's place among the sparsities, in the order of their first measurement; -1 for none."""
        return self._baseline_index

    @property
    def baseline_measurement_key(self) -> float | None:
        """The sparsity of the baseline."""
        return self._baseline_key

    @property
    def has_baseline(self) -> bool:
        """Whether a baseline was measured."""
        return self._baseline_index > -1

    @property
    def sparse_measurements(self) -> Measurements:
        """The measurements by sparsity, in the order of their first measurement."""
        return self._measurements

    @property
    def averages(self) -> Averages:
        """The mean of the measurements at each sparsity."""
        return {key: mean(values) for key, values in self._measurements.items()}

    @property
    def baseline_average(self) -> float:
        """The mean of the baseline's measurements.

        Raises:
            ValueError: There is none.
        """
        if not self.has_baseline or self._baseline_key is None:
            raise ValueError(f"{self._name} has no baseline measurement")
        return self.averages[self._baseline_key]

    @property
    def sparse_average(self) -> float:
        """The mean of the averages; 0 for none."""
        return mean(self.averages.values())

    @property
    def sparse_integral(self) -> float:
        """The integral of the averages over the sparsity (trapezoids); of one point its value, of none 0."""
        points = sorted(self.averages.items())
        if len(points) < 2:
            return points[0][1] if points else 0.0
        return sum((a + b) / 2 * (y - x) for (x, a), (y, b) in pairwise(points))

    def add_measurement(self, sparsity: float, loss: float, baseline: bool) -> None:
        """Add a measurement.

        Args:
            sparsity: Where it was made.
            loss: What was measured.
            baseline: Whether others are compared with it; counts when a sparsity is measured first.
        """
        if sparsity not in self._measurements:
            if baseline:
                self._baseline_index = len(self._measurements)
                self._baseline_key = sparsity
            self._measurements[sparsity] = []
        self._measurements[sparsity].append(loss)

    def sparse_comparison(self, compare_index: int = -1) -> float:
        """Return an average minus the baseline's, or minus the first one's where there is no baseline.

        Args:
            compare_index: Which average, in the order of first measurement; by default the one whose sparsity
                is nearest to 0.9.
        """
        averages = self.averages
        if len(averages) < 2:
            return 0.0
        keys = list(averages)
        if compare_index >= 0:
            key = keys[compare_index]
        else:
            key = min(keys, key=lambda sparsity: round(abs(sparsity - TYPICAL_SPARSITY), 9))
        return averages[key] - (self.baseline_average if self.has_baseline else averages[keys[0]])

    def dict(self) -> Json:
        """Return everything as plain JSON values."""
        return {
            "id": self._id,
            "name": self._name,
            "index": self._index,
            "baseline_measurement_index": self._baseline_index,
            "has_baseline": self.has_baseline,
            "baseline_measurement_key": self._baseline_key,
            "sparse_measurements": [[key, list(values)] for key, values in self._measurements.items()],
            "averages": self.averages,
            "baseline_average": self.baseline_average if self.has_baseline else None,
            "sparse_average": self.sparse_average,
            "sparse_integral": self.sparse_integral,
            "sparse_comparison": self.sparse_comparison(),
        }

    @staticmethod
    def from_dict(dictionary: Mapping[str, Any]) -> PruningSensitivityResult:
        """Rebuild from `dict`."""
        return PruningSensitivityResult(
            dictionary["id"],
            dictionary["name"],
            dictionary["index"],
            dictionary.get("baseline_measurement_index", -1),
            dictionary.get("baseline_measurement_key"),
            {key: [number(value) for value in values] for key, values in dictionary["sparse_measurements"]},
        )


def write_json(values: Json, path: str | Path) -> None:
    """Write results to a file, numbers that are not finite as null.

    Args:
        values: The results.
        path: The file; ``.json`` is appended, missing folders are made.
    """
    file = Path(path)
    if file.suffix != ".json":
        file = file.with_name(f"{file.name}.json")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(_finite(values), indent=2, allow_nan=False) + "\n", encoding="utf-8")


def read_json(path: str | Path) -> Json:
    """Read what `write_json` wrote.

    Raises:
        ConfigError: There is no such file, or it is no JSON object.
    """
    try:
        values = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path} is no JSON: {error}") from None
    if not isinstance(values, dict):
        raise ConfigError(f"{path}: expected a JSON object, found a {type(values).__name__}")
    return values


def mean(values: Iterable[float]) -> float:
    """Return the mean; 0 for no values."""
    items = list(values)
    return sum(items) / len(items) if items else 0.0


def number(value: float | None) -> float:
    """Read a measurement of a JSON file, where null stands for one that was not finite."""
    return math.nan if value is None else value


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
