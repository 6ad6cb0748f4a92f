"""Linear constraints between parameters: whether they hold, and the nearest values for which they do."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import linprog

from sparsemod.candidate import ParamValue
from sparsemod.space.parameters import Choice, Range, Tunable

__all__ = ["TOLERANCE", "Constraint", "project"]

TOLERANCE = 1e-8  # Ax's own, so that what passes here passes there
_SOLVER_TOLERANCE = 1e-10


@dataclass(frozen=True, slots=True)
class Constraint:
    """``sum(weight * parameter) <= bound``, or ``==`` when `equality` is set."""

    weights: tuple[tuple[str, float], ...]
    bound: float
    equality: bool = False

    def applies(self, active: Collection[str]) -> bool:
        """Whether all its parameters are active; a constraint on an absent value says nothing."""
        return all(name in active for name, _ in self.weights)

    def problem(self, params: Mapping[str, Any]) -> str | None:
        """Say how the values break the constraint, or None.

        Example:
            >>> Constraint((("x", 1.0), ("y", -1.0)), 0.0).problem({"x": 3, "y": 2})
            'constraint x - y <= 0 is broken: the left side is 1'
        """
        total = math.fsum(weight * float(params[name]) for name, weight in self.weights)
        broken = abs(total - self.bound) > TOLERANCE if self.equality else total > self.bound + TOLERANCE
        return f"constraint {self} is broken: the left side is {total:g}" if broken else None

    def __str__(self) -> str:
        terms = "".join(
            f" {'-' if weight < 0 else '+'} {'' if abs(weight) == 1 else f'{abs(weight):g}*'}{name}"
            for name, weight in self.weights
        )
        return f"{terms.removeprefix(' + ').lstrip()} {'==' if self.equality else '<='} {self.bound:g}"


@dataclass(frozen=True, slots=True)
class _Variable:
    """A parameter's place among the unknowns: its number of steps, its value, or one binary a choice."""

    parameter: Tunable
    start: int

    @property
    def width(self) -> int:
        return self.parameter.n_values if isinstance(self.parameter, Choice) else 1

    def coefficients(self) -> np.ndarray:
        """Value of the parameter = offset + coefficients @ unknowns."""
        if isinstance(self.parameter, Choice):
            return np.array(self.parameter.values, dtype=float)
        return np.array([float(self.parameter.step) or 1.0])

    @property
    def offset(self) -> float:
        """The value at unknowns of zero."""
        return float(self.parameter.lower) if isinstance(self.parameter, Range) else 0.0

    @property
    def discrete(self) -> bool:
        return self.parameter.n_values is not None

    def decode(self, unknowns: np.ndarray) -> ParamValue:
        """Turn the solved unknowns back into an allowed value."""
        own = unknowns[self.start : self.start + self.width]
        if isinstance(self.parameter, Choice):
            return self.parameter.values[int(np.argmax(own))]
        steps = round(float(own[0])) if self.discrete else float(own[0])
        return self.parameter.nearest(self.offset + steps * float(self.coefficients()[0]))


def project(
    constraints: Sequence[Constraint],
    parameters: Mapping[str, Tunable],
    values: Mapping[str, ParamValue],
    pinned: Collection[str] = (),
) -> dict[str, ParamValue] | None:
    """Return the allowed values nearest to `values` that satisfy all constraints, or None if there are none.

    Nearest in the sum of distances relative to each parameter's range. It is a small mixed-integer linear
    program (HiGHS, deterministic); with the discrete parts found, the continuous ones are solved again to a
    finer tolerance.

    Args:
        constraints: Those that apply.
        parameters: Descriptors of every parameter in them.
        values: Allowed values of these parameters.
        pinned: Names whose values must stay.
    """
    names = list(dict.fromkeys(name for c in constraints for name, _ in c.weights))
    variables: dict[str, _Variable] = {}
    n = 0
    for name in names:
        variables[name] = _Variable(parameters[name], n)
        n += variables[name].width
    known = {name: values[name] for name in pinned if name in variables}
    solved = _solve(constraints, variables, n, values, known)
    if solved is None or not any(c.problem(solved) for c in constraints):
        return solved
    if any(not v.discrete for v in variables.values()):
        known |= {name: solved[name] for name, v in variables.items() if v.discrete}
        solved = _solve(constraints, variables, n, values, known)
    if solved is None or any(c.problem(solved) for c in constraints):
        return None
    return solved


def _solve(
    constraints: Sequence[Constraint],
    variables: Mapping[str, _Variable],
    n: int,
    values: Mapping[str, ParamValue],
    known: Mapping[str, ParamValue],
) -> dict[str, ParamValue] | None:
    """Solve one program over the unknowns x and, in the other half of the columns, distances |x - x0|."""
    free = {name: v for name, v in variables.items() if name not in known}
    cost, low, high, integer = np.zeros(2 * n), np.zeros(2 * n), np.zeros(2 * n), np.zeros(2 * n)
    upper_rows: list[np.ndarray] = []
    upper_bounds: list[float] = []
    equal_rows: list[np.ndarray] = []
    equal_bounds: list[float] = []
    for name, v in free.items():
        columns = slice(v.start, v.start + v.width)
        integer[columns] = v.discrete
        wish = float(values[name])  # type: ignore[arg-type]
        if isinstance(v.parameter, Choice):
            numbers = v.coefficients()
            cost[columns], high[columns] = np.abs(numbers - wish) / (numbers.max() - numbers.min()), 1.0
            equal_rows.append(_row(2 * n, dict.fromkeys(range(v.start, v.start + v.width), 1.0)))
            equal_bounds.append(1.0)
            continue
        step = float(v.coefficients()[0])
        width = (float(v.parameter.upper) - float(v.parameter.lower)) / step
        at = (wish - v.offset) / step
        high[v.start], high[n + v.start], cost[n + v.start] = width, width, 1.0 / width
        for sign in (1.0, -1.0):
            upper_rows.append(_row(2 * n, {v.start: sign, n + v.start: -1.0}))
            upper_bounds.append(sign * at)
    for c in constraints:
        row, bound = np.zeros(2 * n), c.bound
        for name, weight in c.weights:
            if name in known:
                bound -= weight * float(known[name])  # type: ignore[arg-type]
            else:
                v = free[name]
                row[v.start : v.start + v.width] += weight * v.coefficients()
                bound -= weight * v.offset
        (equal_rows if c.equality else upper_rows).append(row)
        (equal_bounds if c.equality else upper_bounds).append(bound)
    result = linprog(
        cost,
        A_ub=np.array(upper_rows) if upper_rows else None,
        b_ub=upper_bounds or None,
        A_eq=np.array(equal_rows) if equal_rows else None,
        b_eq=equal_bounds or None,
        bounds=np.stack([low, high], axis=1),
        integrality=integer,
        options={"primal_feasibility_tolerance": _SOLVER_TOLERANCE},
    )
    if result.status != 0:
        return None
    return {name: known[name] if name in known else v.decode(result.x) for name, v in variables.items()}


def _row(n: int, entries: Mapping[int, float]) -> np.ndarray:
    row = np.zeros(n)
    row[list(entries)] = list(entries.values())
    return row
