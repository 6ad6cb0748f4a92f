"""Files for the chip: of the front while a search runs, and of any of its arms on demand."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, get_args

import numpy as np

from sparsemod.candidate import Arm
from sparsemod.compress.graph_quantization import check_exportable
from sparsemod.compress.quantized_graph import QuantizedGraph
from sparsemod.errors import CandidateError, ConfigError, StoreError, UnsupportedOperatorError, nearest
from sparsemod.evaluate.build import build, opened, rebuild
from sparsemod.evaluate.reproducible import memory_guard, reproducible
from sparsemod.evaluate.scoring import stored_integers
from sparsemod.evaluate.shipping import lowered, tflite_file
from sparsemod.evaluate.task import Task
from sparsemod.export.onnx_nodes import package
from sparsemod.export.tflite import Description
from sparsemod.measure.graph import OperatorGraph
from sparsemod.sparse.before import stored_weights
from sparsemod.sparse.experiment import stored_arms
from sparsemod.sparse.setup import Setup
from sparsemod.store import Store, write_whole

__all__ = [
    "FORMATS",
    "Format",
    "Written",
    "check_space_exportable",
    "export_arms",
    "export_missing",
]

Format = Literal["tflite", "onnx", "onnx-qdq", "c"]
FORMATS: tuple[Format, ...] = get_args(Format)

_N_TRIED = 16


@dataclass(frozen=True, slots=True)
class Written:
    """A file that was written.

    Attributes:
        arm: The arm.
        format: What it is.
        path: Where it is.
        n_bytes: Its size.
    """

    arm: str
    format: Format
    path: Path
    n_bytes: int


def check_space_exportable(setup: Setup) -> None:
    """Lower one network of the space and refuse the search if that cannot be exported.

    Raises:
        ConfigError: Names the operator and the module it comes from.
    """
    task, rng = setup.task, np.random.default_rng(setup.config.seed)
    for _ in range(_N_TRIED):
        try:
            parametrization = setup.space.repair({}, rng)
            with memory_guard("building the network"), reproducible("cpu", setup.config.seed):
                train = opened(task, "train", parametrization)
                graph = lowered(task, build(task, parametrization, train, "cpu"), train)
                check_exportable(graph)
        except UnsupportedOperatorError as error:
            raise ConfigError(
                f"export = true: {error.reason.removeprefix('export: ')}; change Net, or set export = false"
            ) from None
        except CandidateError:
            continue  # the search records what is wrong with a network, arm by arm
        return


def export_missing(task: Task, store: Store, front: Sequence[Arm], note: Callable[[str], None]) -> None:
    """Write the files of arms that came to the front while nothing was exported."""
    for arm in front:
        if store.tflite(arm.name) is not None:
            continue
        weights, wrong = stored_weights(store, arm.name)
        if weights is None:
            note(f"arm {arm.name}: its weights are {wrong}, so there is no .tflite of it")
            continue
        try:
            quantized = stored_integers(task, arm.candidate, weights, arm.seed)
        except (CandidateError, StoreError) as error:
            note(f"arm {arm.name}: there is no .tflite of it: {error}")
            continue
        store.put_tflite(arm.name, tflite_file(task, quantized))


def export_arms(
    setup: Setup,
    arms: str | Sequence[str],
    folder: str | Path,
    formats: str | Sequence[str],
    mean: Sequence[float],
    std: Sequence[float],
) -> tuple[Written, ...]:
    """Write arms on the front into a folder; see `Sparse.export`."""
    wanted = _formats(formats)
    description = _description(setup.task, mean, std)
    if {"onnx", "onnx-qdq"} & set(wanted):
        package()  # said before anything is written
    stored = stored_arms(setup, arms)
    if not stored:
        raise StoreError(f"{setup.config.root}: there is no arm to export")
    written: list[Written] = []
    for arm, weights in stored:
        for kind, files in _contents(setup.task, arm, weights, wanted, description):
            for name, content in files.items():
                path = Path(folder, name)
                _write(path, content)
                written.append(Written(arm.name, kind, path, len(content)))
    return tuple(written)


def _description(task: Task, mean: Sequence[float], std: Sequence[float]) -> Description:
    for name, values in (("mean", mean), ("std", std)):
        if not all(math.isfinite(value) for value in values) or (name == "std" and 0.0 in values):
            raise ConfigError(
                f"{name}: expected finite numbers{' other than 0' * (name == 'std')}, got {values}"
            )
    if std and len(mean) != len(std):
        raise ConfigError(f"std: expected as many numbers as mean has, {len(mean)}, got {len(std)}")
    return Description(task.classes, tuple(float(v) for v in mean), tuple(float(v) for v in std))


def _formats(formats: str | Sequence[str]) -> tuple[Format, ...]:
    given = [formats] if isinstance(formats, str) else list(dict.fromkeys(formats))
    for kind in given:
        if kind not in FORMATS:
            raise ConfigError(
                f"format: expected {', '.join(FORMATS)}, got {kind!r}{nearest(str(kind), FORMATS)}"
            )
    if not given:
        raise ConfigError(f"format: expected some of {', '.join(FORMATS)}, got none")
    return tuple(kind for kind in FORMATS if kind in given)


def _contents(
    task: Task, arm: Arm, weights: bytes, formats: Sequence[Format], description: Description
) -> Iterator[tuple[Format, Mapping[str, bytes]]]:
    """Yield the files of each format by their names within the folder."""
    name = arm.name
    quantized: QuantizedGraph | None = None
    if set(formats) != {"onnx"}:
        quantized = stored_integers(task, arm.candidate, weights, arm.seed)
    for kind in formats:
        if kind == "onnx":
            from sparsemod.export.onnx_file import write_onnx

            yield kind, {f"{name}.onnx": write_onnx(_float_graph(task, arm, weights), description)}
        elif quantized is None:
            raise RuntimeError(f"{kind} without integers")
        elif kind == "tflite":
            yield kind, {f"{name}.tflite": tflite_file(task, quantized, description)}
        elif kind == "onnx-qdq":
            from sparsemod.export.onnx_file import write_onnx_qdq

            yield kind, {f"{name}.qdq.onnx": write_onnx_qdq(quantized, description)}
        else:
            yield kind, _bundle(quantized, name, description)


def _bundle(quantized: QuantizedGraph, arm: str, description: Description) -> dict[str, bytes]:
    from sparsemod.export.c_bundle import write_c

    files = write_c(quantized, "model", description)
    return {f"{arm}/{file}": text.encode() for file, text in files.items()}


def _float_graph(task: Task, arm: Arm, weights: bytes) -> OperatorGraph:
    parametrization = arm.candidate.parametrization
    net = rebuild(task, parametrization, weights, arm.seed).cpu()
    unquantized = replace(task, quant_scheme="none", quant_params=())
    return lowered(unquantized, net, opened(task, "train", parametrization))


def _write(path: Path, content: bytes) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"{path}: cannot be written: {error.strerror or error}") from error
    write_whole(path, content)
