"""When modifiers act: from a start to an end, and how often in between."""

from __future__ import annotations

from typing import Any

from sparsemod.compress.checks import number
from sparsemod.compress.modifier import BaseObject
from sparsemod.compress.props import ModifierProp
from sparsemod.compress.recipe_errors import RecipeError

__all__ = ["BaseScheduled", "BaseUpdate"]


class BaseScheduled(BaseObject):
    """A modifier that starts and ends.

    Args:
        start_epoch: When it starts; -1 starts at once.
        min_start: The smallest start allowed.
        end_epoch: When it ends; -1 never ends.
        min_end: The smallest end allowed.
        end_comparator: None: the end cannot be changed; -1: it is -1 or not before the start; 0: not before
            the start; 1: after the start.

    Raises:
        RecipeError: The schedule breaks one of these rules.
    """

    never_ends = False
    """Whether the end must stay -1."""

    def __init__(
        self,
        start_epoch: float = -1.0,
        min_start: float = -1.0,
        end_epoch: float = -1.0,
        min_end: float = -1.0,
        end_comparator: int | None = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self._start_epoch = number(start_epoch, "start_epoch")
        self._min_start = number(min_start, "min_start")
        self._end_epoch = number(end_epoch, "end_epoch")
        self._init_end = self._end_epoch
        self._min_end = number(min_end, "min_end")
        self._end_comparator = end_comparator
        self.validate_schedule()

    def validate_schedule(self) -> None:
        """Check the rules of the schedule.

        Raises:
            RecipeError: One of them is broken.
        """
        name, start, end = type(self).__name__, self._start_epoch, self._end_epoch
        if start < self._min_start:
            raise RecipeError(f"{name}: start_epoch must be at least {self._min_start:g}, not {start:g}")
        if end < self._min_end:
            raise RecipeError(f"{name}: end_epoch must be at least {self._min_end:g}, not {end:g}")
        if self._end_comparator is None and end != self._init_end:
            raise RecipeError(f"{name}: end_epoch stays {self._init_end:g}, it cannot become {end:g}")
        if self._end_comparator == -1 and end != -1 and end < start:
            raise RecipeError(f"{name}: end_epoch must be -1 or at least {start:g}, not {end:g}")
        if self._end_comparator == 0 and end < start:
            raise RecipeError(f"{name}: end_epoch must be at least {start:g}, not {end:g}")
        if self._end_comparator == 1 and end <= start:
            raise RecipeError(f"{name}: end_epoch must be above {start:g}, not {end:g}")

    def advance_epochs(self, ref_start_epoch: float | None = None) -> None:
        """Move the schedule behind an epoch; a start of -1 becomes that epoch, an end of -1 stays.

        Args:
            ref_start_epoch: The epoch; None moves nothing.
        """
        if ref_start_epoch is None:
            return
        end = self._end_epoch if self._end_epoch == -1 else self._end_epoch + ref_start_epoch
        self.reschedule(max(0.0, self._start_epoch) + ref_start_epoch, end)

    def reschedule(self, start_epoch: float, end_epoch: float) -> None:
        """Set both ends at once, also where the end is otherwise fixed.

        Raises:
            RecipeError: They break a rule of the schedule.
        """
        before, self._init_end = self._init_end, number(end_epoch, "end_epoch")
        try:
            self._set_schedule(start_epoch, end_epoch)
        except RecipeError:
            self._init_end = before
            raise

    def start_at_once(self, start_epoch: float) -> None:
        """Let it act by epoch 0 and never end.

        Args:
            start_epoch: Below 0; it sets the order among several.
        """
        self.reschedule(start_epoch, -1.0)

    def _get_start(self) -> float:
        return self._start_epoch

    def _set_start(self, value: float) -> None:
        self._set_schedule(value, self._end_epoch)

    def _get_end(self) -> float:
        return self._end_epoch

    def _set_end(self, value: float) -> None:
        self._set_schedule(self._start_epoch, value)

    start_epoch = ModifierProp(func_get=_get_start, func_set=_set_start, doc="When it starts; -1 at once.")
    end_epoch = ModifierProp(func_get=_get_end, func_set=_set_end, doc="When it ends; -1 never.")

    def _set_schedule(self, start: float, end: float) -> None:
        before = self._start_epoch, self._end_epoch
        self._start_epoch, self._end_epoch = number(start, "start_epoch"), number(end, "end_epoch")
        try:
            self.validate_schedule()
        except RecipeError:
            self._start_epoch, self._end_epoch = before
            raise


class BaseUpdate(BaseObject):
    """A modifier that acts again and again between its start and its end.

    Args:
        update_frequency: Epochs, or a fraction of one, from one update to the next; -1 updates at every step.
        min_frequency: The smallest frequency allowed.

    Raises:
        RecipeError: The frequency is below it.
    """

    def __init__(self, update_frequency: float, min_frequency: float, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._update_frequency = number(update_frequency, "update_frequency")
        self._min_frequency = number(min_frequency, "min_frequency")
        self.validate_update()

    def validate_update(self) -> None:
        """Check the frequency.

        Raises:
            RecipeError: It is below the smallest one allowed.
        """
        if self._update_frequency < self._min_frequency:
            raise RecipeError(
                f"{type(self).__name__}: update_frequency must be at least {self._min_frequency:g}, "
                f"not {self._update_frequency:g}"
            )

    def _get_frequency(self) -> float:
        return self._update_frequency

    def _set_frequency(self, value: float) -> None:
        before, self._update_frequency = self._update_frequency, number(value, "update_frequency")
        try:
            self.validate_update()
        except RecipeError:
            self._update_frequency = before
            raise

    update_frequency = ModifierProp(
        func_get=_get_frequency,
        func_set=_set_frequency,
        doc="Epochs from one update to the next; -1 every step.",
    )
