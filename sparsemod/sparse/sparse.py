"""`Sparse`: the documented main call."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from torch import nn

from sparsemod.config import RunConfig, TestConfig
from sparsemod.config.models import trains
from sparsemod.errors import ConfigError, nearest
from sparsemod.evaluate.worker import refuse_reimport
from sparsemod.sparse.progress import Reporter
from sparsemod.sparse.run import RunResult, run
from sparsemod.sparse.setup import Setup, prepare, split_arguments

if TYPE_CHECKING:
    from sparsemod.export.verification import Verification
    from sparsemod.sparse.exporting import Format, Written
    from sparsemod.sparse.sensitivity import Analysis, Kind
    from sparsemod.sparse.tested import CrossTestResult, FrontRanking
    from sparsemod.sparse.testing import CrossTest

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
    groups: Any


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
            - ``groups``: the subject of each sample, integers or texts, as (training, validation, test) like
              the data sets or one behind the other. Only tests by cross splits look at it.

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

    _test: CrossTest | None = None

    def __init__(self, **arguments: Unpack[SparseArguments]) -> None:
        settings, objects = split_arguments(arguments, "Sparse(...)")
        config = RunConfig.from_mapping(settings, where="Sparse(...)")
        self._setup = prepare(config, objects, "Sparse(...)")

    @classmethod
    def from_config(cls, path: str | Path = "config.cfg", **objects: Unpack[SparseObjects]) -> Sparse:
        """Make a search from the [TRAIN] section of a configuration file and the Python objects.

        Where the file says ``train = false``, `run_sparse` runs the test of [TEST] instead.

        Raises:
            ConfigError: As above, or the file cannot be read.
        """
        if not trains(path):
            from sparsemod.sparse.testing import CrossTest

            tested = cls.__new__(cls)
            tested._test = CrossTest.from_config(path, **objects)
            tested._setup = tested._test.setup
            return tested
        settings, checked = split_arguments(objects, "Sparse.from_config(...)")
        config = RunConfig.from_file(path, **settings)
        sparse = cls.__new__(cls)
        sparse._setup = prepare(config, checked, "Sparse.from_config(...)")
        return sparse

    @property
    def config(self) -> RunConfig:
        """The checked configuration, limits of the target included."""
        return self._setup.config

    def run_sparse(self) -> RunResult | CrossTestResult:
        """Run the three stages, or what is left of them, and show the front.

        With ``train = false`` in the configuration file: run the test of [TEST], see `CrossTest.run`.

        Returns:
            The arms, the front and the paths of the files; of a test its scores and the paths of its files.

        Raises:
            StoreError: The results folder cannot be used, or holds another search.
            InfeasibleError: The limits exclude every configuration that was tried.
            ExecutorError: Work cannot be handed to the workers.
            SystemExit: Ctrl-C was pressed; the state is saved.
        """
        if self._test is not None:
            return self._test.run()
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

        return sensitivity_of(self._rooted(root), arm, kind, target)

    def cross_test(
        self, arm: str | None = None, *, root: str | Path | None = None, **settings: Any
    ) -> CrossTestResult:
        """Train an arm anew over cross splits of all the data, and score it; see docs/test-mode.md.

        Args:
            arm: Its name, for example ``"12_0"``; with ``train = false`` that of [TEST] by default.
            root: The results folder, if it is not where the search writes.
            **settings: ``split``, ``n_splits``, ``seeds``, ``validation``, ``epochs``, ``workers``,
                ``executor`` and ``seed`` as in [TEST]. A search trains for the most epochs of its stages by
                default.

        Raises:
            ConfigError: A setting is unknown or wrong, or there is no arm.
            StoreError, DataError, CandidateError, ExecutorError, SystemExit: As `CrossTest.run`.
        """
        from sparsemod.sparse.testing import run_cross_test

        known = ("split", "n_splits", "seeds", "validation", "epochs", "workers", "executor", "seed")
        if unknown := [key for key in settings if key not in known]:
            raise ConfigError(f"cross_test(...): unknown argument '{unknown[0]}'{nearest(unknown[0], known)}")
        if arm is not None:
            settings["arm"] = arm
        if self._test is not None:
            values = self._test.config.model_dump() | settings
        elif arm is None:
            raise ConfigError("cross_test(...): missing argument arm, for example '12_0'")
        else:
            keys = ("pruning", "splitter", "quant_scheme", "objectives", "name", "root", "recipe", "seed")
            values = {
                **{key: getattr(self.config, key) for key in keys},
                "epochs": max(stage.epochs for stage in self.config.stages),
                **settings,
            }
        return run_cross_test(self._rooted(root), TestConfig.from_mapping(values, where="cross_test(...)"))

    def rank_front(
        self,
        seeds: int = 5,
        *,
        root: str | Path | None = None,
        epochs: int | None = None,
        workers: int | None = None,
        executor: str | None = None,
    ) -> FrontRanking:
        """Train every arm of the front anew with several seeds, and rank them by their mean test error.

        The training, validation and test set are those of the search.

        Args:
            seeds: How often each is trained, 1 or more.
            root: The results folder, if it is not where the search writes.
            epochs: Of each training; by default the most of the search's stages.
            workers: Processes that train; by default it happens in this one.
            executor: ``inline`` or ``processes``; by default what `workers` says.

        Raises:
            ConfigError: An argument is wrong.
            StoreError, CandidateError, ExecutorError, SystemExit: As `CrossTest.run`.
        """
        from sparsemod.sparse.ranking import ranking_arguments, run_ranking

        how = ranking_arguments(seeds, epochs, workers, executor)
        return run_ranking(self._rooted(root), *how)

    def _rooted(self, root: str | Path | None) -> Setup:
        if root is None:
            return self._setup
        return replace(self._setup, config=self.config.model_copy(update={"root": Path(root)}))

    def export(
        self,
        arm: str | Sequence[str],
        folder: str | Path,
        formats: Format | Sequence[Format] = "tflite",
        root: str | Path | None = None,
        *,
        mean: Sequence[float] = (),
        std: Sequence[float] = (),
    ) -> tuple[Written, ...]:
        """Write the trained networks of arms on the front as files for their chips, see docs/export.md.

        Args:
            arm: Its name, for example ``"12_0"``; several names; or ``"front"`` for the whole front.
            folder: Where to write; it is made if it is not there.
            formats: One or some of ``tflite`` (int8, for TensorFlow Lite Micro), ``onnx`` (float32),
                ``onnx-qdq`` (int8, the same grids as the `.tflite`) and ``c`` (C99 without a runtime, in a
                folder of the arm's own).
            root: The results folder, if it is not where the search writes.
            mean: What the data sets subtract from each channel of the raw input, for the firmware: it is put
                into the metadata and the C header.
            std: By what they divide then.

        Returns:
            Each file that was written, with its bytes.

        Raises:
            StoreError: There is no such arm, it is not on the front and so has no weights, or a file cannot
                be written.
            ConfigError: There is no such format, a package that it needs is not installed, or mean and std do
                not go together.
            UnsupportedOperatorError: The network has an operator that cannot be exported; it is named.
        """
        from sparsemod.sparse.exporting import export_arms

        return export_arms(self._rooted(root), arm, folder, formats, mean, std)

    def verify(
        self,
        arm: str | Sequence[str],
        n_samples: int | None = None,
        core: str | None = None,
        root: str | Path | None = None,
    ) -> dict[str, Verification]:
        """Compare what was promised of arms on the front with the real runtimes, see docs/verify.md.

        Args:
            arm: Its name, for example ``"12_0"``; several names; or ``"front"`` for the whole front.
            n_samples: How many validation samples are run; all of them by default.
            core: The core that is emulated, ``cortex-m0+``, ``cortex-m3``, ``cortex-m4``, ``cortex-m7`` or
                ``cortex-m33``; that of the search's target by default, or the M4 where it is none of these.
            root: The results folder, if it is not where the search writes.

        Returns:
            For each arm what was found, and what was skipped for want of a tool.

        Raises:
            StoreError: There is no such arm, or it is not on the front and so has no weights.
            ConfigError: There is no such core.
            UnsupportedOperatorError: The network has an operator that cannot be exported; it is named.
        """
        from sparsemod.sparse.verifying import verify_arms

        return verify_arms(self._rooted(root), arm, n_samples, core)

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
