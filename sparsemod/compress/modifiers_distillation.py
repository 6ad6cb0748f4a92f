"""Learning from a teacher (Hinton et al. 2015, arXiv:1503.02531)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module, functional
from torch.nn.utils.rnn import PackedSequence
from torch.optim import Optimizer

from sparsemod.compress.checks import in_range
from sparsemod.compress.lifecycle import TOLERANCE, PyTorchModifierYAML, ScheduledUpdateModifier
from sparsemod.compress.modifier import SparsificationTypes
from sparsemod.compress.props import Argument
from sparsemod.compress.recipe_errors import RecipeError

__all__ = ["DistillationModifier", "distillation_loss"]

DISABLE = "disable"
SELF = "self"


def distillation_loss(student: Tensor, teacher: Tensor, temperature: float) -> Tensor:
    """Return ``T^2 KL(softmax(teacher / T) || softmax(student / T))``, the mean over all rows.

    Args:
        student: Logits, classes last.
        teacher: Logits of the same shape.
        temperature: T.

    Example:
        >>> loss = distillation_loss(torch.tensor([[1.0, 2.0, 3.0]]), torch.tensor([[3.0, 2.0, 1.0]]), 2.0)
        >>> round(float(loss), 5)
        1.28063
    """
    divergence = functional.kl_div(
        functional.log_softmax(student / temperature, dim=-1),
        functional.log_softmax(teacher / temperature, dim=-1),
        reduction="sum",
        log_target=True,
    )
    return divergence * temperature**2 / (student.numel() // student.shape[-1])


@PyTorchModifierYAML()
class DistillationModifier(ScheduledUpdateModifier):
    """Mixes the loss of the task with a teacher's: ``(1 - hardness) loss + hardness distillation``.

    The teacher comes with `initialize` (or `modify`) as `distillation_teacher`: a module; "self" for a copy
    of the network as it is at the start; "disable" (the default) for none. The loss is mixed by
    `loss_update`, which needs `student_inputs` and `student_outputs`.

    Args:
        start_epoch: When it starts.
        end_epoch: When it ends; -1 never.
        hardness: The share of the teacher's loss, in [0, 1].
        temperature: Of both softmaxes, above 0.
        distill_output_keys: Which outputs count where there are several; all by default.
        teacher_input_keys: Which inputs the teacher gets where there are several; all by default.
        update_frequency: Not used.
    """

    changes = (SparsificationTypes.distillation,)
    hardness = Argument(in_range("hardness", 0.0, 1.0), "The share of the teacher's loss.")
    temperature = Argument(in_range("temperature", 0.0, 1e6, low_open=True), "Of both softmaxes.")
    distill_output_keys = Argument(doc="Which outputs count.")
    teacher_input_keys = Argument(doc="Which inputs the teacher gets.")

    def __init__(
        self,
        start_epoch: float = -1.0,
        end_epoch: float = -1.0,
        hardness: float = 0.5,
        temperature: float = 2.0,
        distill_output_keys: Sequence[Any] | None = None,
        teacher_input_keys: Sequence[Any] | None = None,
        update_frequency: float = -1.0,
    ) -> None:
        super().__init__(start_epoch=start_epoch, end_epoch=end_epoch, end_comparator=-1)
        self.keep(
            hardness=hardness,
            temperature=temperature,
            distill_output_keys=distill_output_keys,
            teacher_input_keys=teacher_input_keys,
        )
        self._source: Module | str = DISABLE
        self._teacher: Module | None = None

    def initialize(
        self,
        module: Module,
        epoch: float = 0.0,
        *,
        distillation_teacher: Module | str = DISABLE,
        **kwargs: Any,
    ) -> None:
        """Take the teacher.

        Raises:
            RecipeError: It is none.
        """
        super().initialize(module, epoch, **kwargs)
        if not isinstance(distillation_teacher, Module) and distillation_teacher not in (DISABLE, SELF):
            raise RecipeError(f"distillation_teacher must be a module, '{SELF}' or '{DISABLE}'")
        self._source = distillation_teacher
        self._teacher = distillation_teacher if isinstance(distillation_teacher, Module) else None

    def finalize(self, module: Module | None = None, **kwargs: Any) -> None:
        """Let go of the teacher."""
        super().finalize(module, **kwargs)
        self._source, self._teacher = DISABLE, None

    def active(self, epoch: float) -> bool:
        """Say whether it mixes the loss at a moment."""
        begun = epoch >= self.start_epoch - TOLERANCE
        ended = 0 <= self.end_epoch <= epoch + TOLERANCE
        return self._source != DISABLE and begun and not ended

    def loss_update(
        self,
        loss: Tensor,
        module: Module,
        optimizer: Optimizer | None,
        epoch: float,
        steps_per_epoch: int,
        *,
        student_outputs: Any = None,
        student_inputs: Any = None,
        teacher_inputs: Any = None,
        **kwargs: Any,
    ) -> Tensor:
        """Return the mixed loss.

        Args:
            loss: The loss of the task.
            module: The network.
            optimizer: Its optimizer.
            epoch: The time.
            steps_per_epoch: Optimizer steps of an epoch.
            student_outputs: What the network returned: logits, or several by key or position.
            student_inputs: What it was given: one tensor, or several by key or position.
            teacher_inputs: What the teacher is given, where that is something else.
            kwargs: What other modifiers need.

        Raises:
            RecipeError: The inputs or outputs are missing, or the teacher returns another kind of output.
        """
        loss = super().loss_update(loss, module, optimizer, epoch, steps_per_epoch, **kwargs)
        if not self.active(epoch):
            return loss
        if student_outputs is None or (student_inputs is None and teacher_inputs is None):
            raise RecipeError("distillation: loss_update needs student_inputs and student_outputs")
        if self._teacher is None:
            self._teacher = _frozen_copy(module)
        outputs = self._ask(self._teacher, student_inputs if teacher_inputs is None else teacher_inputs)
        pairs = self._pairs(student_outputs, outputs)
        distilled = torch.stack([distillation_loss(one, two, self.temperature) for one, two in pairs]).mean()
        return self.mixed(loss, distilled)

    def mixed(self, loss: Tensor, distilled: Tensor) -> Tensor:
        """Return ``(1 - hardness) loss + hardness distilled``."""
        mixed: Tensor = (1.0 - self.hardness) * loss + self.hardness * distilled
        return mixed

    def _ask(self, teacher: Module, inputs: Any) -> Any:
        keys = self.teacher_input_keys
        if keys:
            inputs = (
                {key: inputs[key] for key in keys}
                if isinstance(inputs, Mapping)
                else [inputs[k] for k in keys]
            )
        training = teacher.training
        teacher.eval()
        try:
            with torch.no_grad():
                if isinstance(inputs, Mapping):
                    return teacher(**inputs)
                several = isinstance(inputs, list | tuple) and not isinstance(inputs, PackedSequence)
                return teacher(*inputs) if several else teacher(inputs)
        finally:
            teacher.train(training)

    def _pairs(self, student: Any, teacher: Any) -> list[tuple[Tensor, Tensor]]:
        if isinstance(student, Tensor) and isinstance(teacher, Tensor):
            return [(student, teacher)]
        if isinstance(student, Mapping) and isinstance(teacher, Mapping):
            return [(student[key], teacher[key]) for key in self.distill_output_keys or student]
        if isinstance(student, list | tuple) and isinstance(teacher, list | tuple):
            return [(student[key], teacher[key]) for key in self.distill_output_keys or range(len(student))]
        kinds = f"{type(teacher).__name__}, the network {type(student).__name__}"
        raise RecipeError(f"distillation: the teacher returned {kinds}")


def _frozen_copy(module: Module) -> Module:
    return deepcopy(module).requires_grad_(False)
