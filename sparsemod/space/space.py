"""The search space: an Ax `SearchSpace`, read once and checked, that decodes, checks, repairs and mutates."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from ax.core.search_space import SearchSpace

from sparsemod.candidate import Parametrization, ParamValue
from sparsemod.errors import SpaceError, nearest
from sparsemod.space import encoding
from sparsemod.space.cardinality import count, every_value
from sparsemod.space.constraints import Constraint, project
from sparsemod.space.mandatory import MANDATORY, check_mandatory
from sparsemod.space.parameters import Choice, Derived, Fixed, Parameter, Range, Tunable, from_ax_parameter

__all__ = ["Space"]

_MAX_ENUMERATED = 100_000
_MUTATION_TRIES = 32
_REPAIR_TRIES = 64
_LOCAL_STEP = 0.2  # of the parameter's range, as SMAC's neighbourhood has it


@dataclass(frozen=True, eq=False)
class Space:
    """A checked search space. Make one with `from_ax`; only dicts of plain Python values leave it.

    Attributes:
        ax: The `ax.core.SearchSpace` it was read from.
        parameters: All parameters by name, in the order of the space.
        constraints: Linear constraints; one holds back nothing while a parameter in it is inactive.
        children: Parameter -> value -> names that are active only while it has this value.
    """

    ax: Any = field(repr=False)
    parameters: Mapping[str, Parameter]
    constraints: tuple[Constraint, ...] = ()
    children: Mapping[str, Mapping[ParamValue, tuple[str, ...]]] = field(default_factory=dict)

    @classmethod
    def from_ax(cls, search_space: object) -> Space:
        """Read and check an Ax search space.

        Raises:
            SpaceError: If it is none, lacks a mandatory parameter, holds a parameter that cannot be searched,
                or has constraints that nothing satisfies.
        """
        if not isinstance(search_space, SearchSpace):
            raise SpaceError(f"search space: expected an Ax SearchSpace, got {type(search_space).__name__}")
        parameters = {name: from_ax_parameter(p) for name, p in search_space.parameters.items()}
        children = {
            name: {value: tuple(names) for value, names in p.dependents.items()}
            for name, p in search_space.parameters.items()
            if p.is_hierarchical
        }
        constraints = tuple(
            Constraint(tuple(c.constraint_dict.items()), float(c.bound), c.is_equality)
            for c in search_space.parameter_constraints
        )
        space = cls(search_space, parameters, constraints, children)
        check_mandatory(parameters, space.active(space._fixed))
        space.repair({}, np.random.default_rng(0))
        return space

    @property
    def names(self) -> tuple[str, ...]:
        """All names, in the order of the space."""
        return tuple(self.parameters)

    @property
    def mandatory(self) -> tuple[str, ...]:
        """The names that training reads."""
        return MANDATORY

    @cached_property
    def tunable(self) -> dict[str, Tunable]:
        """The parameters that are searched."""
        return {name: p for name, p in self.parameters.items() if isinstance(p, (Range, Choice))}

    @property
    def n_unit(self) -> int:
        """Number of tunable parameters, the dimension of `from_unit`."""
        return len(self.tunable)

    @cached_property
    def _fixed(self) -> dict[str, ParamValue]:
        return {name: p.value for name, p in self.parameters.items() if isinstance(p, Fixed)}

    @cached_property
    def _derived(self) -> dict[str, Derived]:
        return {name: p for name, p in self.parameters.items() if isinstance(p, Derived)}

    @cached_property
    def _roots(self) -> tuple[str, ...]:
        """The parameters that no other one switches on."""
        dependent = {name for by in self.children.values() for names in by.values() for name in names}
        return tuple(name for name in self.parameters if name not in dependent)

    @cached_property
    def constrained(self) -> frozenset[str]:
        """The parameters that constraints tie together."""
        return frozenset(name for c in self.constraints for name, _ in c.weights)

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """The parameter that each of the d columns of `encode` belongs to."""
        return encoding.columns(self.tunable)

    @cached_property
    def n_configurations(self) -> int | None:
        """How many different configurations there are; None when a parameter is continuous.

        With linear constraints and more than 100 000 configurations before them it is an upper bound.
        """
        total = count(self.parameters, self.children, self._roots)
        if total is not None and self.constraints and total <= _MAX_ENUMERATED:
            return sum(1 for _ in self.configurations())
        return total

    def configurations(self) -> Iterator[dict[str, ParamValue]]:
        """Yield every valid configuration once, in the order of the values.

        Raises:
            ValueError: If a parameter is continuous.
        """
        seen: set[tuple[ParamValue, ...]] = set()
        for values in itertools.product(*(every_value(p) for p in self.tunable.values())):
            params = self._finish(dict(zip(self.tunable, values, strict=True)))
            identity = self.key(params)
            if identity not in seen and self.check(params) is None:
                seen.add(identity)
                yield params

    def active(self, params: Mapping[str, Any]) -> frozenset[str]:
        """Return the names that are active under the values of `params`."""
        found: list[str] = list(self._roots)
        for name in found if self.children else ():  # grows while it is walked
            value = params.get(name)
            if isinstance(value, (bool, int, float, str)):
                found.extend(self.children.get(name, {}).get(value, ()))
        active = frozenset(found)
        return active - {n for n, p in self._derived.items() if not active.issuperset(dict(p.weights))}

    def from_unit(self, u: Sequence[float] | np.ndarray) -> dict[str, ParamValue]:
        """Decode a point of [0, 1)^p into the active and the fixed parameters; constraints are not enforced.

        Raises:
            ValueError: If `u` does not have `n_unit` coordinates.
        """
        if len(u) != self.n_unit:
            raise ValueError(f"from_unit: expected {self.n_unit} coordinates, got {len(u)}")
        points = zip(self.tunable.items(), u, strict=True)
        return self._finish({name: p.from_unit(float(x)) for (name, p), x in points})

    def check(self, params: Parametrization) -> str | None:
        """Say in one line why a parametrization is outside the space, or None when it is inside."""
        unknown = next((name for name in params if name not in self.parameters), None)
        if unknown is not None:
            return f"{unknown}: no parameter of the space{nearest(str(unknown), self.names)}"
        active = self.active(params)
        for name, p in self.parameters.items():
            if name not in active:
                if name in params:
                    return f"{name}: inactive under these values, but present"
            elif name not in params:
                return f"{name}: missing"
            elif not isinstance(p, Derived) and (problem := p.problem(params[name])):
                return problem
        for name, derived in self._derived.items():
            if name in active and params[name] != (expected := derived.compute(params)):
                return f"{name}: {params[name]!r} is not the derived value {expected!r}"
        return next((text for c in self._applying(active) if (text := c.problem(params))), None)

    def repair(self, params: Mapping[str, object], rng: np.random.Generator) -> dict[str, ParamValue]:
        """Return the nearest valid parametrization; a valid one comes back as it is.

        Values are cast, clamped and rounded, unusable and missing ones drawn, inactive and unknown ones
        dropped, and the constrained ones moved as little as the constraints need.

        Raises:
            SpaceError: If no values satisfy the constraints.
        """
        values = self._complete(params, rng)
        repaired = self._satisfy(values)
        movable = [name for name in self.tunable if name in self.constrained or name in self.children]
        for _ in range(_REPAIR_TRIES if repaired is None else 0):
            elsewhere = {name: self.tunable[name].from_unit(rng.random()) for name in movable}
            repaired = self._satisfy(values | elsewhere)
            if repaired is not None:
                break
        if repaired is None:
            raise SpaceError(f"search space: nothing satisfies {'; '.join(map(str, self.constraints))}")
        return repaired

    def mutate(self, params: Parametrization, rng: np.random.Generator, n: int = 1) -> dict[str, ParamValue]:
        """Return a valid parametrization with `n` of the active tunable parameters changed to other values.

        Numbers and ordered choices take a step near by or any other value, evenly. Parameters that become
        active are drawn; where constraints tie parameters together, others than the `n` move too.

        Raises:
            SpaceError: If the space holds no other configuration.
            ValueError: If `n` is below 1.
        """
        if n < 1:
            raise ValueError(f"mutate: expected n of 1 or more, got {n}")
        active = self.active(params)
        names = [name for name in self.tunable if name in active]
        identity = self.key(params)
        given = {name: params[name] for name in names}
        for _ in range(_MUTATION_TRIES if names else 0):
            drawn = {name: p.from_unit(rng.random()) for name, p in self.tunable.items() if name not in given}
            values = drawn | given
            chosen = [names[i] for i in rng.permutation(len(names))[:n]]
            values |= {name: _other(self.tunable[name], values[name], rng) for name in chosen}
            child = self._satisfy(values, pinned=chosen)
            if child is not None and self.key(child) != identity:
                return child
        raise SpaceError(f"search space: found no other configuration than {dict(params)}")

    def encode(self, configurations: Sequence[Parametrization]) -> np.ndarray:
        """Encode n configurations as (n, d) float64 in [0, 1]; see `encoding.encode`."""
        if self.children:
            configurations = [self._only_active(c) for c in configurations]
        return encoding.encode(self.tunable, configurations)

    def activity(self, configurations: Sequence[Parametrization]) -> np.ndarray:
        """Return (n, d) booleans, False where the column's parameter is inactive."""
        return encoding.activity_columns(self.tunable, [self.active(c) for c in configurations])

    def key(self, params: Parametrization) -> tuple[ParamValue, ...]:
        """Return a configuration's identity: its active tunable values, floats to 12 digits, else None."""
        active = self.active(params) if self.children else self.tunable
        return tuple(
            [
                None if name not in active else _canonical(params.get(name)) if is_float else params.get(name)
                for name, is_float in self._identified
            ]
        )

    @cached_property
    def _identified(self) -> tuple[tuple[str, bool], ...]:
        """What makes up a configuration's identity, and whether it is a float."""
        return tuple((name, p.type is float) for name, p in self.tunable.items())

    def _applying(self, active: frozenset[str]) -> list[Constraint]:
        return [c for c in self.constraints if c.applies(active)]

    def _only_active(self, params: Parametrization) -> dict[str, ParamValue]:
        active = self.active(params)
        return {name: value for name, value in params.items() if name in active}

    def _complete(self, params: Mapping[str, object], rng: np.random.Generator) -> dict[str, ParamValue]:
        """Allowed values for all tunable parameters, active or not, constraints aside."""
        values: dict[str, ParamValue] = {}
        for name, p in self.tunable.items():
            value = p.nearest(params[name]) if name in params else None
            values[name] = p.from_unit(rng.random()) if value is None else value
        return values

    def _finish(self, values: Mapping[str, ParamValue]) -> dict[str, ParamValue]:
        """Add fixed and derived parameters, drop what is inactive, and put all in the order of the space."""
        full = dict(values) | self._fixed
        active = self.active(full)
        full |= {name: p.compute(full) for name, p in self._derived.items() if name in active}
        return {name: full[name] for name in self.parameters if name in active}

    def _satisfy(
        self, values: Mapping[str, ParamValue], pinned: Sequence[str] = ()
    ) -> dict[str, ParamValue] | None:
        """Move the constrained parameters until the constraints hold, and finish; pinned ones stay."""
        for _ in range(len(self.constraints) + 1):  # a moved switch may bring further constraints into force
            params = self._finish(values)
            applying = self._applying(frozenset(params))
            if not any(c.problem(params) for c in applying):
                return params
            moved = project(applying, self.tunable, values, pinned)
            if moved is None:
                return None
            values = {**values, **moved}
        return None


def _other(parameter: Tunable, value: ParamValue, rng: np.random.Generator) -> ParamValue:
    """A value other than the present one: half of the time a step of a scale, half of the time any."""
    number: Any = parameter.nearest(value)
    scale = isinstance(parameter, Range) or parameter.ordered
    while True:
        if scale and rng.random() < 0.5:
            u = parameter.to_unit(number) + _LOCAL_STEP * rng.standard_normal()
            u = min(max(u, 0.0), math.nextafter(1.0, 0.0))
        else:
            u = rng.random()
        if (other := parameter.from_unit(u)) != number:
            return other


def _canonical(value: ParamValue) -> ParamValue:
    return float(f"{value:.12g}") if isinstance(value, (int, float)) else value
