"""Checks what a user hands to `Sparse` and turns it into the values a run is made of."""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils.data import IterableDataset

from sparsemod.candidate import Constraints
from sparsemod.compress.manager import BaseManager
from sparsemod.config import RunConfig
from sparsemod.errors import CandidateError, ConfigError, DataError, nearest, user_code
from sparsemod.evaluate.evaluation import Task
from sparsemod.measure.targets import limits, resolve_target
from sparsemod.space.morphisms import check_morphisms
from sparsemod.space.space import Space
from sparsemod.sparse.groups import group_names
from sparsemod.sparse.recipe import checked_recipe

__all__ = ["OBJECTS", "REQUIRED_OBJECTS", "Setup", "prepare", "split_arguments"]

# The arguments that are Python objects; everything else is a key of the configuration.
REQUIRED_OBJECTS = ("datasets", "classes", "search_space", "net")
OBJECTS = (*REQUIRED_OBJECTS, "quant_params", "collate_fn", "morpher_ops", "trainer", "groups")


@dataclass(frozen=True)
class Setup:
    """All that a run needs, checked."""

    config: RunConfig
    space: Space
    task: Task
    morphisms: Mapping[str, Callable[[dict[str, Any]], dict[str, Any]]]
    groups: tuple[str, ...] | None = None
    """The subject of each sample of the training, validation and test set, one behind the other."""


def split_arguments(
    arguments: Mapping[str, Any], where: str, keys: Sequence[str] = RunConfig.keys()
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Part keyword arguments into configuration keys and Python objects.

    Args:
        arguments: As they were given.
        where: What an error begins with.
        keys: The configuration keys that are known.

    Raises:
        ConfigError: An argument is unknown, or a required object is missing.
    """
    known = {*keys, *OBJECTS}
    for name in arguments:
        if name not in known:
            raise ConfigError(f"{where}: unknown argument '{name}'{nearest(name, known)}")
    objects = {name: arguments[name] for name in OBJECTS if name in arguments}
    missing = [name for name in REQUIRED_OBJECTS if name not in objects]
    if missing:
        raise ConfigError(f"{where}: missing argument{'s' * (len(missing) > 1)} {', '.join(missing)}")
    settings = {k: v for k, v in arguments.items() if k not in OBJECTS}
    if isinstance(settings.get("recipe"), BaseManager):
        settings["recipe"] = str(settings["recipe"])
    return settings, objects


def prepare(config: RunConfig, objects: Mapping[str, Any], where: str) -> Setup:
    """Check the objects against each other and against the configuration.

    Raises:
        ConfigError: An argument has the wrong type or contradicts the configuration.
        DataError: The datasets are not three, or one is empty.
        SpaceError: The search space cannot be used.
    """
    space = Space.from_ax(objects["search_space"])
    morphisms = check_morphisms(objects.get("morpher_ops") or {})
    if not morphisms and any(s.strategy == "morph" for s in config.stages):
        raise ConfigError(
            f"{where}: r3 = {config.r3} needs morpher_ops, a dict of name: function; "
            "without any, set morphisms = false"
        )
    train, validation, test = _datasets(objects["datasets"], where)
    target = resolve_target(config.target, config.flops, config.target_spec)
    task = Task(
        net=_net(objects["net"], where),
        classes=_classes(objects["classes"], where),
        train=train,
        validation=validation,
        test=test,
        collate_fn=_collate(objects.get("collate_fn"), config, space, where),
        splitter=config.splitter,
        pruning=config.pruning,
        quant_scheme=config.quant_scheme,
        quant_params=_quant_params(objects.get("quant_params"), config, where),
        runtime=config.runtime,
        target=target,
        recipe=checked_recipe(config, space, len(train), where),
        trainer=_trainer(objects.get("trainer"), where),
        device="cuda" if torch.cuda.is_available() else "cpu",
        export=config.export,
    )
    constraints = _constraints(limits(target, config.runtime), config.constraints)
    sizes = (len(train), len(validation), len(test))
    groups = group_names(objects.get("groups"), sizes, where)
    return Setup(config.model_copy(update={"constraints": constraints}), space, task, morphisms, groups)


def _constraints(board: Constraints, own: Constraints) -> Constraints:
    """Return the board's limits, replaced by those that the user set."""
    return Constraints(
        board.model_size if own.model_size is None else own.model_size,
        board.working_memory if own.working_memory is None else own.working_memory,
        board.latency if own.latency is None else own.latency,
    )


def _net(net: Any, where: str) -> Callable[..., nn.Module]:
    expected = "a builder that is called as net(parametrization, classes, input_shape)"
    if not callable(net) or isinstance(net, nn.Module):
        raise ConfigError(f"{where} net: expected {expected}, got {type(net).__name__}")
    signature = inspect.signature(net)
    try:
        signature.bind({}, 2, (1,))
    except TypeError:
        name = getattr(net, "__name__", type(net).__name__)
        raise ConfigError(f"{where} net: expected {expected}, but it is {name}{signature}") from None
    builder: Callable[..., nn.Module] = net
    return builder


def _datasets(datasets: Any, where: str) -> tuple[Any, Any, Any]:
    parts = ("training", "validation", "test")
    if not isinstance(datasets, Sequence) or len(datasets) != len(parts):
        got = f"{len(datasets)} of them" if isinstance(datasets, Sequence) else type(datasets).__name__
        raise DataError(f"{where} datasets: expected the list [training, validation, test], got {got}")
    datasets = [_listed(dataset, part, where) for part, dataset in zip(parts, datasets, strict=True)]
    for part, dataset in zip(parts, datasets, strict=True):
        if not hasattr(dataset, "__len__") or not hasattr(dataset, "__getitem__"):
            kind = type(dataset).__name__
            raise DataError(f"{where} datasets: the {part} set must have a length and items, {kind} has not")
        if len(dataset) == 0:
            raise DataError(f"{where} datasets: the {part} set is empty")
    return datasets[0], datasets[1], datasets[2]


def _listed(dataset: Any, part: str, where: str) -> Any:
    """Read an iterable data set, which has neither a length nor places, into a list."""
    if not isinstance(dataset, IterableDataset):
        return dataset
    try:
        with user_code("dataset"):
            return list(dataset)
    except CandidateError as error:
        raise DataError(f"{where} datasets: the {part} set: {error}") from error


def _classes(classes: Any, where: str) -> int:
    try:
        number = 0 if isinstance(classes, bool) else operator.index(classes)  # numpy's integers, too
    except TypeError:
        number = 0
    if number < 2:
        raise ConfigError(
            f"{where} classes: expected the number of classes, an integer of 2 or more, got {classes!r}"
        )
    return number


def _collate(collate_fn: Any, config: RunConfig, space: Space, where: str) -> Callable[..., Any] | None:
    if collate_fn is not None and not callable(collate_fn):
        raise ConfigError(f"{where} collate_fn: expected a function, got {type(collate_fn).__name__}")
    if not config.splitter:
        function: Callable[..., Any] | None = collate_fn
        return function
    if collate_fn is None:
        raise ConfigError(
            f"{where} splitter: splitter = true passes max_len to collate_fn, but there is no collate_fn"
        )
    if "max_len" not in space.names:
        raise ConfigError(
            f"{where} splitter: splitter = true needs a parameter named max_len in the search space"
        )
    try:
        inspect.signature(collate_fn).bind([], max_len=1)
    except TypeError:
        raise ConfigError(
            f"{where} splitter: splitter = true calls collate_fn(data, max_len=...), but it is "
            f"{getattr(collate_fn, '__name__', 'collate_fn')}{inspect.signature(collate_fn)}"
        ) from None
    split: Callable[..., Any] = collate_fn
    return split


def _quant_params(quant_params: Any, config: RunConfig, where: str) -> tuple[type[nn.Module], ...]:
    if not isinstance(quant_params, Collection | None) or isinstance(quant_params, str):
        raise ConfigError(
            f"{where} quant_params: expected a list such as [nn.Linear, nn.LSTM], got {quant_params!r}"
        )
    kinds = tuple(quant_params or ())
    for kind in kinds:
        if not (isinstance(kind, type) and issubclass(kind, nn.Module)):
            raise ConfigError(
                f"{where} quant_params: expected module types such as [nn.Linear, nn.LSTM], got {kind!r}"
            )
    if config.quant_scheme in ("dynamic", "both") and not kinds:
        raise ConfigError(
            f"{where} quant_params: quant_scheme = {config.quant_scheme} needs the module types to quantize "
            "dynamically, for example [nn.Linear, nn.LSTM]"
        )
    return kinds


def _trainer(trainer: Any, where: str) -> Any:
    if trainer is not None and not (callable(trainer) and callable(getattr(trainer, "fit", None))):
        kind = type(trainer).__name__
        raise ConfigError(
            f"{where} trainer: expected a class with fit(net, train, validation, settings, hooks), got {kind}"
        )
    return trainer
