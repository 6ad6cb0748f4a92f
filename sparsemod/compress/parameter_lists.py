"""Which parameters a pruning callback works on: lists of (module, parameter name)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from torch import nn
from torch.nn.parameter import UninitializedParameter

from sparsemod.compress.masked import parameter_of
from sparsemod.errors import ConfigError, nearest

__all__ = [
    "CONTAINERS",
    "PARAMETER_NAMES",
    "ParameterList",
    "ParameterListError",
    "check_form",
    "checked_names",
    "grouped",
    "sanitized",
]

PARAMETER_NAMES = ("weight", "bias")
CONTAINERS: tuple[type[nn.Module], ...] = (nn.Sequential, nn.ModuleList, nn.ModuleDict)

ParameterList = Sequence[tuple[nn.Module, str]]


class ParameterListError(ConfigError, TypeError):
    """What should be a list of (module, parameter name) is something else, or names what does not exist."""


def checked_names(names: Any) -> tuple[str, ...]:
    """Return the parameter names to look for; none given are all of `PARAMETER_NAMES`.

    Raises:
        ConfigError: It is not a list of names out of `PARAMETER_NAMES`.
    """
    if names is not None and not isinstance(names, list | tuple):
        raise ConfigError(f"parameter_names must be a list of names in {PARAMETER_NAMES}, got {names!r}")
    for name in names or ():
        if name not in PARAMETER_NAMES:
            raise ConfigError(f"parameter_names: {name!r} isn't in {PARAMETER_NAMES}")
    return tuple(names or PARAMETER_NAMES)


def check_form(parameters: Any) -> None:
    """Check that it is None or a list or tuple of (module, parameter name).

    Raises:
        ParameterListError: It is something else.
    """
    if parameters is None:
        return
    form = "parameters_to_prune must be a list of (module, parameter name) pairs"
    if not isinstance(parameters, list | tuple):
        raise ParameterListError(f"{form}, got {type(parameters).__name__}")
    for index, pair in enumerate(parameters):
        if not (
            isinstance(pair, list | tuple)
            and len(pair) == 2
            and isinstance(pair[0], nn.Module)
            and isinstance(pair[1], str)
        ):
            what = type(pair).__name__
            if isinstance(pair, list | tuple):
                what = f"({', '.join(type(part).__name__ for part in pair)})"
            raise ParameterListError(f"{form}, got {what} at position {index}")


def sanitized(
    net: nn.Module,
    parameters: Any,
    names: Sequence[str],
    containers: tuple[type[nn.Module], ...] = CONTAINERS,
) -> list[tuple[nn.Module, str]]:
    """Return the parameters to prune, checked; all of the network with one of the names where none are given.

    Args:
        net: The network.
        parameters: A list of (module, parameter name), or empty or None.
        names: Names to look for where `parameters` is empty: first all of the first name, in the order of the
            modules. Attributes that are no parameters do not count.
        containers: Classes of modules that are passed over, their children not.

    Raises:
        ParameterListError: The list is malformed, or a module or parameter is not in the network.
    """
    check_form(parameters)
    modules = [module for module in net.modules() if not isinstance(module, containers)]
    if not parameters:
        return [(m, name) for name in names for m in modules if parameter_of(m, name) is not None]
    check_members(modules, parameters)
    return [(module, name) for module, name in parameters]


def check_members(modules: Iterable[nn.Module], parameters: ParameterList) -> None:
    """Check that every module is one of the network's and has the parameter.

    Raises:
        ParameterListError: One is not or has not.
    """
    own = {id(module) for module in modules}
    for index, (module, name) in enumerate(parameters):
        where = f"parameters_to_prune: position {index}"
        if id(module) not in own:
            raise ParameterListError(f"{where}: module {module} is not a layer of the model")
        if parameter_of(module, name) is None:
            present = list(module._parameters)
            raise ParameterListError(f"{where}: {module} has no parameter {name!r}{nearest(name, present)}")


def grouped(
    net: nn.Module, parameters: ParameterList, dim: int | None, *, skip_flat: bool
) -> dict[str, list[tuple[nn.Module, str]]]:
    """Bring together what is one parameter: entries given twice, and layers that share their weights.

    Args:
        net: The network.
        parameters: (module, parameter name) of the network.
        dim: The dimension along which slices are pruned; None where single weights are.
        skip_flat: Leave out parameters of less than two dimensions, of which slices cannot be pruned, instead
            of raising.

    Returns:
        The modules and names of each parameter, by its qualified name.

    Raises:
        ConfigError: A parameter has no slices along the dimension, or no shape yet.
    """
    paths = {id(module): path for path, module in net.named_modules()}
    groups: dict[int, list[tuple[nn.Module, str]]] = {}
    for module, name in parameters:
        parameter = parameter_of(module, name)
        path = f"{paths[id(module)]}.{name}".removeprefix(".")
        if isinstance(parameter, UninitializedParameter):
            raise ConfigError(f"{path} has no shape yet: run the model once before it is pruned")
        n_dims = parameter.dim() if parameter is not None else 0
        if dim is not None and n_dims < 2:
            if skip_flat:
                continue
            raise ConfigError(f"structured pruning needs two or more dimensions, {path} has {n_dims}")
        if dim is not None and not -n_dims <= dim < n_dims:
            raise ConfigError(f"pruning_dim {dim} is out of range for {path}, which has {n_dims} dimensions")
        group = groups.setdefault(id(parameter), [])
        if not any(module is other and name == its for other, its in group):
            group.append((module, name))
    return {f"{paths[id(group[0][0])]}.{group[0][1]}".removeprefix("."): group for group in groups.values()}
