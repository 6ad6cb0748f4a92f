"""`Sparse`: the documented main call."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from torch import nn

from sparsemod.config import RunConfig
from sparsemod.evaluate.worker import refuse_reimport
from sparsemod.sparse.progress import Reporter
from sparsemod.sparse.run import RunResult, run
from sparsemod.sparse.setup import prepare, split_arguments

if TYPE_CHECKING:
    from sparsemod.sparse.exporting import Format, Written
    from sparsemod.sparse.sensitivity import Analysis, Kind

__all__ = ["Sparse"]


class SparseObjects(TypedDict, total=False):
    """The arguments of `Sparse` that are Python objects."""

    datasets: Sequence[Any]
    classes: int
    search_space: Any
    net: Callable[..., nn.Module]
    quant_params: Sequence[type[nn.Module]] | None
    collate_fn: Callable[..., Any] | None
    morpher_ops: Mapping[str, Callable[[dict[str, Any]], dict[str, Any]]] | None
    trainer: Any


class SparseArguments(SparseObjects, total=False):
    """Every argument of `Sparse`."""

    r1: int
    r2: int
    r3: int
    epochs1: int
    epochs2: int
    epochs3: int
    name: str
    root: str | Path
    objectives: int | Sequence[str]
    batch_size: int
    morphisms: bool
    pruning: bool | str
    debug: bool
    flops: int | None
    quant_scheme: str
    splitter: bool
    recipe: Any
    runtime: str
    target: str | None
    constraints: Any
    workers: int | None
    executor: str | None
    asynchronous: bool
    seed: int
    arc: bool
    resume: bool
    export: bool


class Sparse:
    """A search for networks that fit a microcontroller.

    Everything is checked when the object is made; nothing is written before `run_sparse`.

    Args:
        **arguments: All by keyword. Python objects:

            - ``datasets``: the list [training, validation, test] of `torch.utils.data.Dataset`.
            - ``classes``: number of classes.
            - ``search_space``: `ax.SearchSpace` with the mandatory parameters ``learning_rate``,
              ``learning_gamma``, ``learning_step``, ``prune_threshold`` and ``batch_size``.
            - ``net``: builder called as ``net(parametrization, classes, input_shape)`` with the shape of one
              input without the batch dimension.
            - ``morpher_ops``: dict of name: function(dict) -> dict, for stage 3.
            - ``collate_fn``: function of a list of samples (and of ``max_len`` with ``splitter``), returning
              inputs and labels.
            - ``quant_params``: module types for the schemes ``dynamic`` and ``both``.
            - ``trainer``: a class with the `sparsemod.train.trainer.Trainer` methods.

            Everything else is a key of the configuration file and means the same: ``r1 r2 r3 epochs1 epochs2
            epochs3 name root objectives batch_size morphisms pruning debug flops quant_scheme splitter recipe
            runtime target constraints workers executor asynchronous seed arc resume export``. The
            ``recipe`` may be a path, the text, or a `ScheduledModifierManager`.

    Raises:
        ConfigError: An argument is unknown, missing, ill-typed or contradictory.
        SpaceError: The search space cannot be used.
        DataError: The datasets are not three, or one is empty.

    Example:
        >>> from sparsemod import Sparse
        >>> try:
        ...     Sparse(r1=1, epoch1=3)
        ... except ValueError as error:
        ...     print(error)
        Sparse(...): unknown argument 'epoch1' (did you mean 'epochs1'?)
    """

    def __init__(self, **arguments: Unpack[SparseArguments]) -> None:
        settings, objects = split_arguments(arguments, "Sparse(...)")
        config = RunConfig.from_mapping(settings, where="Sparse(...)")
        self._setup = prepare(config, objects, "Sparse(...)")

    @classmethod
    def from_config(cls, path: str | Path = "config.cfg", **objects: Unpack[SparseObjects]) -> Sparse:
        """Make a search from the [TRAIN] section of a configuration file and the Python objects.

        Raises:
            ConfigError: As above, or the file cannot be read.
        """
        settings, checked = split_arguments(objects, "Sparse.from_config(...)")
        config = RunConfig.from_file(path, **settings)
        sparse = cls.__new__(cls)
        sparse._setup = prepare(config, checked, "Sparse.from_config(...)")
        return sparse

    @property
    def config(self) -> RunConfig:
        """The checked configuration, limits of the target included."""
        return self._setup.config

    def run_sparse(self) -> RunResult:
        """Run the three stages, or what is left of them, and show the front.

        Returns:
            The arms, the front and the paths of the files.

        Raises:
            StoreError: The results folder cannot be used, or holds another search.
            InfeasibleError: The limits exclude every configuration that was tried.
            ExecutorError: Work cannot be handed to the workers.
            SystemExit: Ctrl-C was pressed; the state is saved.
        """
        refuse_reimport()
        reporter = Reporter(debug=self.config.debug)
        result = run(self._setup, reporter)
        reporter.result(result.table(), self._next_steps(result))
        return result

    def load_net(self, arm: str) -> nn.Module:
        """Rebuild the trained and pruned float network of an arm on the front.

        Args:
            arm: Its name, for example ``"12_0"``.

        Raises:
            StoreError: There is no such arm, or it is not on the front and so has no weights.
        """
        from sparsemod.sparse.experiment import load_net

        return load_net(self._setup, arm)

    def sensitivity(
        self,
        arm: str,
        kind: Kind = "one-shot",
        target: str | None = None,
        root: str | Path | None = None,
    ) -> Analysis:
        """Analyse how sensitive an arm on the front is to pruning, layer by layer.

        Args:
            arm: Its name, for example ``"12_0"``.
            kind: ``magnitude``: the mean magnitude of what pruning would take, without data; ``one-shot``:
                the cross entropy on up to 2048 samples of the validation set, each layer pruned by itself;
                ``perf``: the seconds of an inference on the microcontroller.
            target: For ``perf``, a microcontroller of the catalogue in place of the search's.
            root: The results folder, if it is not where the search writes.

        Returns:
            An analysis to print, plot and save, see docs/recipes.md.

        Raises:
            StoreError: There is no such arm, or it is not on the front and so has no weights.
            ConfigError: There is no such kind or target.
        """
        from sparsemod.sparse.sensitivity import sensitivity_of

        config = self.config if root is None else self.config.model_copy(update={"root": Path(root)})
        return sensitivity_of(replace(self._setup, config=config), arm, kind, target)

    def export(
        self,
        arm: str | Sequence[str],
        folder: str | Path,
        formats: Format | Sequence[Format] = "tflite",
        root: str | Path | None = None,
    ) -> tuple[Written, ...]:
        """Write the trained networks of arms on the front as files for their chips, see docs/export.md.

        Args:
            arm: Its name, for example ``"12_0"``; several names; or ``"front"`` for the whole front.
            folder: Where to write; it is made if it is not there.
            formats: One or some of ``tflite`` (int8, for TensorFlow Lite Micro), ``onnx`` (float32),
                ``onnx-qdq`` (int8, the same grids as the `.tflite`) and ``c`` (C99 without a runtime, in a
                folder of the arm's own).
            root: The results folder, if it is not where the search writes.

        Returns:
            Each file that was written, with its bytes.

        Raises:
            StoreError: There is no such arm, it is not on the front and so has no weights, or a file cannot
                be written.
            ConfigError: There is no such format, or a package that it needs is not installed.
            UnsupportedOperatorError: The network has an operator that cannot be exported; it is named.
        """
        from sparsemod.sparse.exporting import export_arms

        config = self.config if root is None else self.config.model_copy(update={"root": Path(root)})
        return export_arms(replace(self._setup, config=config), arm, folder, formats)

    def _next_steps(self, result: RunResult) -> list[str]:
        failed = sum(a.status == "failed" for a in result.arms)
        return [
            f"{len(result.arms)} arms, {failed} failed.",
            f"results   {result.csv}  (read it with pandas; `value` is in real units)",
            f"arms      {result.json}  (SparseExperiment(...).create_load_experiment())",
            f"weights   {result.models}  (of the front; sparse.load_net(arm) rebuilds the network)",
            f"report    sparsemod report {shlex.quote(str(result.csv.parent))}  (one page to look at)",
            f"export    sparsemod export {shlex.quote(str(result.csv.parent))} --front -o exported"
            "  (files for the chip)",
            "next      raise r2 or r3 and run again to go on from here",
        ]
