"""`SparseExperiment`: the documented way to look at the stored arms of a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict, TypeVar, Unpack

from torch import nn

from sparsemod.candidate import Arm
from sparsemod.config.values import file_stem, folder, objectives
from sparsemod.errors import ConfigError, StoreError, nearest
from sparsemod.evaluate.build import rebuild
from sparsemod.search.experiment import Experiment
from sparsemod.space.space import Space
from sparsemod.sparse.setup import Setup
from sparsemod.store import Store

__all__ = ["SparseExperiment", "load_net", "stored_arm", "stored_arms", "stored_experiment"]

T = TypeVar("T")


class ExperimentArguments(TypedDict, total=False):
    """The documented arguments; only `name` and `root` are needed to read a run."""

    name: str
    root: str | Path
    objectives: int | Sequence[str]
    pruning: bool
    epochs: Any
    datasets: Any
    classes: int
    search_space: Any
    net: Any
    flops: int
    quant_scheme: str
    quant_params: Any
    collate_fn: Any
    splitter: bool
    models_path: str | Path


class SparseExperiment:
    """The stored experiment of a run, read without the user's network, data or any code of the file's.

    Args:
        **arguments: ``name`` and ``root`` say where the results are; ``search_space`` and ``objectives`` are
            needed where there are none yet. The other documented arguments are accepted and not needed.

    Raises:
        ConfigError: An argument is unknown, or ``name`` or ``root`` is missing.
    """

    def __init__(self, **arguments: Unpack[ExperimentArguments]) -> None:
        known = ExperimentArguments.__annotations__
        for argument in arguments:
            if argument not in known:
                raise ConfigError(
                    f"SparseExperiment(...): unknown argument '{argument}'{nearest(argument, known)}"
                )
        missing = [k for k in ("name", "root") if k not in arguments]
        if missing:
            raise ConfigError(
                f"SparseExperiment(...): missing argument{'s' * (len(missing) > 1)} {', '.join(missing)}"
            )
        self._arguments = arguments

    def create_load_experiment(self) -> tuple[Any, Any]:
        """Load the experiment, or create an empty one where there is none yet.

        Returns:
            An `ax.Experiment`, whose ``arms_by_name["12_0"].parameters`` are an arm's parameters, and its
            `ax.Data` with the documented standardised values.

        Raises:
            StoreError: The file cannot be read.
            ConfigError: An argument is ill-typed, or there is no file and no ``search_space`` to begin with.
            SpaceError: There is no file and the search space cannot be used.
        """
        name, root = _read(file_stem, "name", self._arguments), _read(folder, "root", self._arguments)
        path = root / f"{name}.json"
        try:
            experiment = Experiment.from_json(path.read_bytes(), str(path))
        except FileNotFoundError:
            experiment = self._create(name, path)
        except OSError as error:
            raise StoreError(f"{path}: cannot be read: {error.strerror}") from error
        return experiment.ax_experiment(), experiment.ax_data()

    def _create(self, name: str, path: Path) -> Experiment:
        if "search_space" not in self._arguments:
            raise ConfigError(
                f"SparseExperiment(...): {path} does not exist, and there is no search_space to begin with"
            )
        space = Space.from_ax(self._arguments["search_space"])
        wanted = _read(objectives, "objectives", {"objectives": 1, **self._arguments})
        return Experiment(name, space.ax, wanted)


def _read(convert: Callable[[object], T], key: str, arguments: Mapping[str, Any]) -> T:
    try:
        return convert(arguments[key])
    except ValueError as error:
        raise ConfigError(f"SparseExperiment(...) {key}: {error}") from None


def load_net(setup: Setup, arm: str) -> nn.Module:
    """Rebuild the trained and pruned float network of an arm on the front.

    Raises:
        StoreError: There is no such arm, or it has no stored weights.
    """
    stored, weights = stored_arm(setup, arm)
    return rebuild(setup.task, stored.candidate.parametrization, weights, stored.seed)


def stored_arm(setup: Setup, name: str) -> tuple[Arm, bytes]:
    """Return an arm on the front and its weights.

    Raises:
        StoreError: There is no such arm, or it has no stored weights.
    """
    return _stored(setup, stored_experiment(setup), [name])[0]


def stored_arms(setup: Setup, arms: str | Sequence[str]) -> list[tuple[Arm, bytes]]:
    """Return arms on the front and their weights, each once.

    Args:
        setup: Of the search.
        arms: A name, several, or ``"front"`` for the whole front.

    Raises:
        StoreError: There is no such arm, or it has no stored weights.
    """
    experiment = stored_experiment(setup)
    names = [arms] if isinstance(arms, str) else list(dict.fromkeys(arms))
    if names == ["front"]:
        names = [arm.name for arm in experiment.front(setup.config.constraints)]
    return _stored(setup, experiment, names)


def stored_experiment(setup: Setup) -> Experiment:
    """Read the results of a search.

    Raises:
        StoreError: There are none, or they are damaged.
    """
    store = Store(setup.config.root, setup.config.name)
    stored = store.read()
    if stored is None:
        raise StoreError(f"{store.json_path}: there are no results yet")
    return Experiment.from_json(stored, str(store.json_path))


def _stored(setup: Setup, experiment: Experiment, names: Sequence[str]) -> list[tuple[Arm, bytes]]:
    store = Store(setup.config.root, setup.config.name)
    arms = {a.name: a for a in experiment.arms}
    found = []
    for name in names:
        if name not in arms:
            raise StoreError(f"{store.json_path}: there is no arm '{name}'{nearest(str(name), arms)}")
        weights = store.weights(name)
        if weights is None:
            raise StoreError(
                f"{store.models_path}: arm '{name}' has no weights; only arms on the front keep theirs"
            )
        found.append((arms[name], weights))
    return found
