"""What an evaluation is asked for: the task, which a whole run shares, and the jobs. No torch at run time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sparsemod.candidate import Candidate
from sparsemod.measure.targets import Target

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import nn

__all__ = ["Job", "Split", "Task"]


@dataclass(frozen=True, eq=False)
class Task:
    """What does not change in a run; picklable when its parts are defined at the top level of modules.

    Attributes:
        net: The user's builder, called as ``net(parametrization, classes, input_shape)``.
        classes: Number of classes, which is the number of outputs that a net must have.
        train: The training set; its samples also calibrate the quantization.
        validation: The validation set, whose error drives the search.
        test: The test set, used by `test_error` alone.
        target: The chip that resources are measured for.
        collate_fn: Makes ``(inputs, labels)`` of a list of samples; None stacks them.
        splitter: Pass the arm's ``max_len`` to `collate_fn`.
        pruning: ``none``, ``unstructured`` or ``structured``.
        quant_scheme: ``post``, ``dynamic``, ``both``, ``qat`` or ``none``.
        quant_params: The module types that are quantized dynamically under ``dynamic`` and ``both``.
        runtime: ``c`` or ``tflite-micro``.
        recipe: The text of a recipe that arms train by, or None. Its modifiers take the place of what
            `pruning`, the learning rate's parameters and `quant_scheme` would do in training (see
            docs/recipes.md).
        trainer: A class to train with instead of `TorchTrainer`, made as ``trainer(device=...)``.
        device: ``cpu``, ``cuda`` or ``cuda:<index>``.
        export: An evaluation hands back the `.tflite` file, too.
    """

    net: Callable[..., nn.Module]
    classes: int
    train: Any
    validation: Any
    test: Any
    target: Target
    collate_fn: Callable[..., Any] | None = None
    splitter: bool = False
    pruning: str = "none"
    quant_scheme: str = "post"
    quant_params: tuple[type[nn.Module], ...] = ()
    runtime: str = "c"
    recipe: str | None = None
    trainer: Callable[..., Any] | None = None
    device: str = "cpu"
    export: bool = False


@dataclass(frozen=True, eq=False)
class Split:
    """Which samples of a data set train, choose the best epoch, and test: the numbers of each, ascending."""

    train: NDArray[np.int64]
    validation: NDArray[np.int64]
    test: NDArray[np.int64]


@dataclass(frozen=True)
class Job:
    """One candidate to evaluate.

    Attributes:
        index: The caller's number for it; an evaluation does not depend on it.
        candidate: The parametrization and where it comes from.
        epochs: How many epochs to train.
        seed: Seeds everything that is random in the evaluation.
        parent_weights: Weights to inherit, as safetensors bytes, or None to train from scratch.
        split: For `evaluate_split`: how to part the task's training set, which holds all samples.
    """

    index: int
    candidate: Candidate
    epochs: int
    seed: int
    parent_weights: bytes | None = field(default=None, repr=False)
    split: Split | None = field(default=None, repr=False)
