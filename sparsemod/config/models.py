"""The configuration of a search, of a test and of a user's own target."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BeforeValidator

from sparsemod.candidate import Constraints
from sparsemod.config.checked import Checked, unknown_key
from sparsemod.config.file import DEFAULT, read_sections
from sparsemod.config.values import (
    arm_name,
    choice,
    constraints,
    expected,
    file_stem,
    folder,
    fraction,
    integer,
    objectives,
    positive_number,
    pruning,
    recipe,
    text,
    truth,
)
from sparsemod.errors import ConfigError

__all__ = ["RunConfig", "StageConfig", "TargetConfig", "TestConfig", "board", "trains"]

_SCHEMES = ("post", "dynamic", "both", "qat", "none")
_EXPORTED = ("post", "qat")
_STRATEGIES = ("sobol", "bayes", "morph")


def _optional(read: Any) -> BeforeValidator:
    return BeforeValidator(lambda value: None if value is None else read(value))


Truth = Annotated[bool, BeforeValidator(truth)]
Count = Annotated[int, BeforeValidator(integer(0))]
Positive = Annotated[int, BeforeValidator(integer(1))]
Seed = Annotated[int, BeforeValidator(integer(0, 2**63 - 1))]
Line = Annotated[str, BeforeValidator(text)]
Pruning = Annotated[Literal["none", "unstructured", "structured"], BeforeValidator(pruning)]
QuantScheme = Annotated[Literal["post", "dynamic", "both", "qat", "none"], BeforeValidator(choice(*_SCHEMES))]
Runtime = Annotated[Literal["c", "tflite-micro"], BeforeValidator(choice("c", "tflite-micro"))]
Executor = Annotated[
    Literal["inline", "processes", "ray"] | None, _optional(choice("inline", "processes", "ray"))
]
Objectives = Annotated[tuple[str, ...], BeforeValidator(objectives)]
Limits = Annotated[Constraints, BeforeValidator(constraints)]
RecipeSource = Annotated[str | None, _optional(recipe)]
SplitName = Annotated[
    Literal["loso", "kfold", "stratified", "groups"] | None,
    _optional(choice("loso", "kfold", "stratified", "groups")),
]
Stem = Annotated[str, BeforeValidator(file_stem)]
Folder = Annotated[Path, BeforeValidator(folder)]


class TargetConfig(Checked):
    """A user's own MCU, the section [TARGET].

    Attributes:
        name: For people.
        core: For example ``cortex-m4``.
        clock_hz: Clock in Hz.
        flash_bytes: Flash that the model and its runtime may fill.
        ram_bytes: RAM that they may fill.
        cycles_per_instruction: Of this core; None takes the core's usual value.
    """

    name: Line
    core: Line
    clock_hz: Positive
    flash_bytes: Positive
    ram_bytes: Positive
    cycles_per_instruction: Annotated[float | None, _optional(positive_number)] = None


@dataclass(frozen=True, slots=True)
class StageConfig:
    """One stage of a search: how many rounds of which strategy, and the epochs of each arm."""

    stage: int
    strategy: str
    rounds: int
    epochs: int


def _target_spec(value: object) -> TargetConfig | None:
    if value is None or isinstance(value, TargetConfig):
        return value
    if not isinstance(value, Mapping):
        raise expected("a mapping with the keys of [TARGET]", value)
    return TargetConfig.from_mapping(value, where="[TARGET]")


class RunConfig(Checked):
    """The configuration of a search: the section [TRAIN], or the arguments of `Sparse` that are no objects.

    Attributes:
        r1, r2, r3: Rounds of the Sobol, Bayesian and morphism stage.
        epochs1, epochs2, epochs3: Epochs of each arm at that stage.
        name: Stem of the results files.
        root: Folder of the results.
        objectives: Names, the first is always ``error``.
        batch_size: Arms in a round.
        morphisms: Whether there is a third stage.
        pruning: ``none``, ``unstructured`` or ``structured``.
        debug: Print the traceback of a failed arm.
        flops: Clock in Hz; it overrides the target's.
        quant_scheme: ``post``, ``dynamic``, ``both``, ``qat`` or ``none``.
        splitter: Pass the arm's ``max_len`` to the collate function.
        recipe: Path of a recipe that arms train by, or its text.
        runtime: What runs on the chip, ``c`` or ``tflite-micro``.
        target: Name of an MCU of the catalogue.
        target_spec: An MCU of the user's own, from [TARGET].
        constraints: Limits in bytes and seconds.
        workers: Processes that train; None decides by the batch size.
        executor: ``inline``, ``processes`` or ``ray``; None decides by the workers.
        asynchronous: Propose an arm as soon as a worker is free for it, instead of by rounds.
        seed: The same seed gives the same run.
        arc: The Arc kernel in the second stage.
        resume: Go on with the results that are there.
        export: Write the `.tflite` file of each arm on the front.
    """

    r1: Count
    r2: Count
    r3: Count
    epochs1: Count
    epochs2: Count
    epochs3: Count
    name: Stem
    root: Folder
    objectives: Objectives
    batch_size: Positive = 1
    morphisms: Truth = True
    pruning: Pruning
    debug: Truth = False
    flops: Annotated[int | None, _optional(integer(1))] = None
    quant_scheme: QuantScheme
    splitter: Truth = False
    recipe: RecipeSource = None
    runtime: Runtime = "c"
    target: Annotated[str | None, _optional(text)] = None
    target_spec: Annotated[TargetConfig | None, BeforeValidator(_target_spec)] = None
    constraints: Limits = Constraints()
    workers: Annotated[int | None, _optional(integer(1))] = None
    executor: Executor = None
    asynchronous: Truth = False
    seed: Seed = 0
    arc: Truth = False
    resume: Truth = True
    export: Truth = False

    @property
    def stages(self) -> tuple[StageConfig, ...]:
        """The stages that have rounds, in order; without morphisms there is no third."""
        rounds = (self.r1, self.r2, self.r3 if self.morphisms else 0)
        epochs = (self.epochs1, self.epochs2, self.epochs3)
        stages = zip((1, 2, 3), _STRATEGIES, rounds, epochs, strict=True)
        return tuple(StageConfig(*values) for values in stages if values[2])

    def contradiction(self) -> str | None:
        """Say which values contradict each other."""
        if not self.stages:
            why = f", as morphisms = false leaves out the {self.r3} of r3" if self.r3 else ""
            return f"r1, r2, r3: expected at least one round, got none{why}"
        for stage in self.stages:
            if stage.epochs == 0:
                n = stage.stage
                return (
                    f"epochs{n}: expected an integer of 1 or more for the r{n} = {stage.rounds} rounds, got 0"
                )
        if self.export and self.quant_scheme not in _EXPORTED:
            return (
                "export: export = true needs a network that is int8 throughout, quant_scheme = post or qat, "
                f"got {self.quant_scheme}"
            )
        if wrong := _executor_contradiction(self.executor, self.workers):
            return wrong
        if self.target is not None and self.target_spec is not None:
            return f"target: '{self.target}' is named, but [TARGET] describes another one; keep one of them"
        if self.flops is None and self.target is None and self.target_spec is None:
            if "latency" in self.objectives:
                return "objectives: latency needs a clock; set target, or flops in Hz"
            if self.constraints.latency is not None:
                return "constraints: a limit on latency needs a clock; set target, or flops in Hz"
        return None

    @classmethod
    def from_file(cls, path: str | os.PathLike[str] = "config.cfg", **overrides: Any) -> Self:
        """Read a search's configuration, and check the whole file.

        Args:
            path: The file.
            overrides: Keys that replace those of [TRAIN].

        Raises:
            ConfigError: If the file cannot be read, says ``train = false``, or anything in it is wrong. Of
                [TEST] only the keys are checked: its arm is not known before a search.
        """
        sections = _checked_sections(path)
        if _train(path, sections) is False:
            raise ConfigError(
                f"{path} [DEFAULT] train: expected true for a search of [TRAIN], got false, which runs [TEST]"
            )
        values: dict[str, Any] = _with_defaults(path, sections, "TRAIN", _FILE_KEYS["TRAIN"])
        if "TARGET" in sections:
            values["target_spec"] = TargetConfig.from_mapping(sections["TARGET"], where=f"{path} [TARGET]")
        return cls.from_mapping(values | overrides, where=f"{path} [TRAIN]")


def _executor_contradiction(executor: str | None, workers: int | None) -> str | None:
    if executor == "inline" and (workers or 1) > 1:
        return f"workers: executor = inline runs in this process, so expected 1, got {workers}"
    return None


class TestConfig(Checked):
    """The configuration of a test of one arm, the section [TEST].

    Attributes:
        pruning, splitter, quant_scheme, objectives, name, root: As in `RunConfig`.
        epochs: Epochs that each split is trained for.
        arm: Name of the arm.
        recipe: As in `RunConfig`.
        split: ``loso`` (leave one subject out), ``kfold``, ``stratified`` or ``groups``; None decides by
            whether there are groups: ``loso`` with them, ``stratified`` without.
        n_splits: Folds of all but ``loso``.
        seeds: How often the whole is repeated, each time with other folds and another training.
        validation: Share of what is not tested that chooses the best epoch and is not trained on.
        workers, executor, seed: As in `RunConfig`; without workers, everything in this process.
    """

    __test__: ClassVar[bool] = False  # its name makes pytest take it for a test

    pruning: Pruning
    splitter: Truth = False
    quant_scheme: QuantScheme
    objectives: Objectives
    name: Stem
    root: Folder
    epochs: Positive
    arm: Annotated[str, BeforeValidator(arm_name)]
    recipe: RecipeSource = None
    split: SplitName = None
    n_splits: Annotated[int, BeforeValidator(integer(2))] = 5
    seeds: Positive = 1
    validation: Annotated[float, BeforeValidator(fraction)] = 0.2
    workers: Annotated[int | None, _optional(integer(1))] = None
    executor: Executor = None
    seed: Seed = 0

    def contradiction(self) -> str | None:
        """Say which values contradict each other."""
        return _executor_contradiction(self.executor, self.workers)

    @classmethod
    def from_file(cls, path: str | os.PathLike[str] = "config.cfg", **overrides: Any) -> Self:
        """Read a test's configuration; of the other sections only the keys are checked.

        Args:
            path: The file.
            overrides: Keys that replace those of [TEST].

        Raises:
            ConfigError: If the file cannot be read, says ``train = true``, or anything in it is wrong.
        """
        sections = _checked_sections(path)
        if _train(path, sections) is True:
            raise ConfigError(
                f"{path} [DEFAULT] train: expected false for a test of [TEST], got true, which runs [TRAIN]"
            )
        values = _with_defaults(path, sections, "TEST", _FILE_KEYS["TEST"])
        return cls.from_mapping(values | overrides, where=f"{path} [TEST]")


def trains(path: str | os.PathLike[str]) -> bool:
    """Say what a file's switch in [DEFAULT] asks for: a search (so without a switch, too) or a test.

    Raises:
        ConfigError: If the file cannot be read, or anything but the values of the other sections is wrong.
    """
    return _train(path, _checked_sections(path)) is not False


def board(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the keys of a file's [TRAIN] (or [DEFAULT]) and [TARGET] that say what a net is measured for.

    Raises:
        ConfigError: If the file cannot be read, or [TARGET] is wrong.
    """
    sections = _checked_sections(path)
    known = {**sections.get(DEFAULT, {}), **sections.get("TRAIN", {})}
    values: dict[str, Any] = {key: known[key] for key in ("flops", "target", "runtime") if key in known}
    if "TARGET" in sections:
        values["target_spec"] = TargetConfig.from_mapping(sections["TARGET"], where=f"{path} [TARGET]")
    return values


_FILE_KEYS = {
    "TRAIN": tuple(key for key in RunConfig.model_fields if key != "target_spec"),
    "TEST": TestConfig.keys(),
    "TARGET": TargetConfig.keys(),
}
_FILE_KEYS[DEFAULT] = ("train", *dict.fromkeys((*_FILE_KEYS["TRAIN"], *_FILE_KEYS["TEST"])))


def _checked_sections(path: str | os.PathLike[str]) -> dict[str, dict[str, str]]:
    """Read the file and refuse keys that no section of this name has."""
    sections = read_sections(path)
    for name, values in sections.items():
        for key in values:
            if key not in _FILE_KEYS[name]:
                raise ConfigError(unknown_key(f"{path} [{name}]", key, _FILE_KEYS[name]))
    return sections


def _train(path: str | os.PathLike[str], sections: Mapping[str, Mapping[str, str]]) -> bool | None:
    """Return the switch of [DEFAULT], None when it is not there."""
    value = sections.get(DEFAULT, {}).get("train")
    try:
        return None if value is None else truth(value)
    except ValueError as error:
        raise ConfigError(f"{path} [DEFAULT] train: {error}") from None


def _with_defaults(
    path: str | os.PathLike[str], sections: Mapping[str, Mapping[str, str]], name: str, keys: tuple[str, ...]
) -> dict[str, Any]:
    """Return a section's keys, completed with those of [DEFAULT] that it may have."""
    if name not in sections:
        found = ", ".join(f"[{s}]" for s in sections) or "none"
        raise ConfigError(f"{path}: no section [{name}], found {found}")
    inherited = {key: value for key, value in sections.get(DEFAULT, {}).items() if key in keys}
    return inherited | dict(sections[name])
