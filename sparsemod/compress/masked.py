"""Parameters under a live mask: ``weight`` is computed as ``weight_orig * weight_mask`` before each forward.

Names and forward pre-hook are those of `torch.nn.utils.prune`, so its ``is_pruned`` and ``remove`` see such
masks, and masks that were set with it are treated like our own. What is done otherwise:

- A mask is replaced by the next one instead of being chained to it.
- The parameter keeps its place among the parameters of its module, so that an optimizer that is made anew
  finds its state by position.
- A masked module can be copied, pickled and quantized at any time.
- The output projection of an attention layer, which is read without being called, follows its mask, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import prune

from sparsemod.compress.masks import apply_masks

__all__ = [
    "follow_state",
    "live_masks",
    "mask_of",
    "parameter_of",
    "permanent_state",
    "refresh",
    "remove_masks",
    "restore_masks",
    "set_masks",
]

ORIGINAL, MASK = "_orig", "_mask"


class _MaskedWeight(Tensor):
    """The product of a parameter and its mask. Unlike other results of an operation, it can be copied."""

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        copy = self.detach().clone().as_subclass(_MaskedWeight)
        memo[id(self)] = copy
        return copy


class _MaskHook(prune.BasePruningMethod):
    """Computes the masked weight of a module before its forward; `prune.is_pruned` looks for this class."""

    PRUNING_TYPE = "unstructured"

    def __init__(self, name: str) -> None:
        self._tensor_name = name

    def __call__(self, module: nn.Module, inputs: object) -> None:
        # What replaces a module, as dynamic quantization does, may take its hooks without its parameters.
        if is_masked(module, self._tensor_name):
            _compute(module, self._tensor_name)

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        return default_mask

    def remove(self, module: nn.Module) -> None:
        _unmask(module, self._tensor_name)


def is_masked(module: nn.Module, name: str) -> bool:
    """Say whether a parameter of a module is under a mask."""
    return name + ORIGINAL in module._parameters and name + MASK in module._buffers


def parameter_of(module: nn.Module, name: str) -> nn.Parameter | None:
    """Return the parameter of that name, the original one where it is masked, or None."""
    return module._parameters.get(name + ORIGINAL if is_masked(module, name) else name)


def mask_of(module: nn.Module, name: str) -> Tensor | None:
    """Return the live mask of a parameter, bool, True where the weight stays, or None."""
    return module._buffers[name + MASK] != 0 if is_masked(module, name) else None  # type: ignore[return-value]


def live_masks(net: nn.Module) -> dict[str, Tensor]:
    """Return the live masks of a network by qualified parameter name, bool, True where the weight stays."""
    found = {}
    for path, module, name in _masked(net):
        mask = mask_of(module, name)
        if mask is not None:
            found[f"{path}.{name}" if path else name] = mask
    return found


def set_masks(net: nn.Module, masks: Iterable[tuple[nn.Module, str, Tensor]]) -> None:
    """Put parameters under masks, in place of those they have; values that were masked out come back.

    Args:
        net: The network that all the modules belong to.
        masks: Module, parameter name and mask (True or not 0 where the weight stays, shape of the parameter).

    Raises:
        ValueError: A module has no such parameter, or the shapes differ.
    """
    for module, name, mask in masks:
        parameter = parameter_of(module, name)
        if parameter is None or parameter.shape != mask.shape:
            found = "no parameter" if parameter is None else f"shape {tuple(parameter.shape)}"
            raise ValueError(
                f"mask of shape {tuple(mask.shape)} for {name!r} of {module}, which has {found} there"
            )
        if not is_masked(module, name):
            _rename(module, name, name + ORIGINAL)
            module.register_forward_pre_hook(_MaskHook(name))
        module.register_buffer(name + MASK, (mask != 0).to(parameter))
        _compute(module, name)
    for module in net.modules():
        if isinstance(module, nn.MultiheadAttention) and any(_masked(module.out_proj)):
            _unhook_attention(module)
            module.register_forward_pre_hook(_refresh_projection)


def refresh(net: nn.Module) -> None:
    """Compute the masked weights of a network anew, which its next forward would do otherwise."""
    for _, module, name in _masked(net):
        _compute(module, name)


def remove_masks(net: nn.Module) -> None:
    """Make all live masks of a network, a container or a layer permanent: masked weights become zero.

    The parameters get their names back and stay the same objects, so that an optimizer goes on with them.
    Without masks nothing happens.
    """
    for _, module, name in list(_masked(net)):
        _unmask(module, name)
        for key, hook in list(module._forward_pre_hooks.items()):
            if isinstance(hook, prune.BasePruningMethod) and hook._tensor_name == name:
                del module._forward_pre_hooks[key]
    for module in net.modules():
        _unhook_attention(module)


def permanent_state(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return a state dict in which each ``_orig`` and ``_mask`` pair is the masked parameter under its name.

    Example:
        >>> pair = {"a.weight_orig": torch.tensor([1.0, 2.0]), "a.weight_mask": torch.tensor([0.0, 1.0])}
        >>> permanent_state(pair)
        {'a.weight': tensor([0., 2.])}
    """
    paired = set(_pairs(state))
    result = {}
    for key, value in state.items():
        name = key.removesuffix(ORIGINAL)
        if key.endswith(ORIGINAL) and name in paired:
            result[name] = value * state[name + MASK].to(value.dtype)
        elif not (key.endswith(MASK) and key.removesuffix(MASK) in paired):
            result[key] = value
    return result


def restore_masks(net: nn.Module, state: Mapping[str, Any]) -> None:
    """Prepare a network to load a state dict with live masks: put its parameters under those masks.

    Args:
        net: The network; its own values are left for ``net.load_state_dict(state)`` to replace.
        state: A state dict with ``_orig`` and ``_mask`` entries. Without any, nothing happens.

    Raises:
        ValueError: The network has no such parameter, or the shapes differ.
    """
    masks = []
    for key in _pairs(state):
        path, _, name = key.rpartition(".")
        try:
            masks.append((net.get_submodule(path), name, state[key + MASK]))
        except AttributeError as error:
            raise ValueError(f"mask for {key!r}, which the network does not have") from error
    set_masks(net, masks)


def follow_state(net: nn.Module) -> list[torch.utils.hooks.RemovableHandle]:
    """Let ``net.load_state_dict`` take states with and without live masks until the handles are removed.

    A state with masks puts the parameters under them. A state without, loaded where a parameter is masked,
    leaves nothing masked out.
    """
    before = net.register_load_state_dict_pre_hook(_match)  # type: ignore[no-untyped-call]
    behind = net.register_load_state_dict_post_hook(_matched)  # type: ignore[no-untyped-call]
    return [before, behind]


def _match(module: nn.Module, state: MutableMapping[str, Any], prefix: str, *_: object) -> None:
    own = {key[len(prefix) :]: value for key, value in state.items() if key.startswith(prefix)}
    restore_masks(module, {key: value for key, value in own.items() if _fits(module, key)})
    for path, owner in module.named_modules(remove_duplicate=False):
        for name in _names(owner):
            key = f"{prefix}{path}.{name}" if path else prefix + name
            if key in state and key + ORIGINAL not in state:
                state[key + ORIGINAL] = state.pop(key)
                state.setdefault(key + MASK, torch.ones_like(state[key + ORIGINAL]))


def _matched(module: nn.Module, _: object) -> None:
    refresh(module)


def _fits(net: nn.Module, key: str) -> bool:
    """Say whether an entry of a state is for a parameter of the network; loading reports the others."""
    path, _, name = key.removesuffix(ORIGINAL).removesuffix(MASK).rpartition(".")
    try:
        return parameter_of(net.get_submodule(path), name) is not None
    except AttributeError:
        return False


def _pairs(state: Mapping[str, Any]) -> Iterator[str]:
    for key, value in state.items():
        name = key.removesuffix(ORIGINAL)
        mask = state.get(name + MASK)
        if not key.endswith(ORIGINAL) or not isinstance(mask, Tensor) or not isinstance(value, Tensor):
            continue
        if mask.shape == value.shape:
            yield name


def _masked(net: nn.Module) -> Iterator[tuple[str, nn.Module, str]]:
    for path, module in net.named_modules():
        for name in _names(module):
            yield path, module, name


def _names(module: nn.Module) -> list[str]:
    names = [key.removesuffix(ORIGINAL) for key in module._parameters if key.endswith(ORIGINAL)]
    return [name for name in names if is_masked(module, name)]


def _compute(module: nn.Module, name: str) -> None:
    original, mask = module._parameters[name + ORIGINAL], module._buffers[name + MASK]
    setattr(module, name, (original * mask).as_subclass(_MaskedWeight))  # type: ignore[operator]


def _unmask(module: nn.Module, name: str) -> None:
    mask = mask_of(module, name)
    parameter = parameter_of(module, name)
    if mask is None or parameter is None:
        return
    apply_masks({name: parameter}, {name: mask})
    del module._buffers[name + MASK]
    module.__dict__.pop(name, None)
    _rename(module, name + ORIGINAL, name)
    setattr(module, name, parameter)  # tells recurrent layers, which keep a list of their weights


def _rename(module: nn.Module, old: str, new: str) -> None:
    entries = [(new if key == old else key, value) for key, value in module._parameters.items()]
    module._parameters.clear()
    module._parameters.update(entries)


def _refresh_projection(module: nn.MultiheadAttention, inputs: object) -> None:
    refresh(module.out_proj)


def _unhook_attention(module: nn.Module) -> None:
    for key, hook in list(module._forward_pre_hooks.items()):
        if hook is _refresh_projection:
            del module._forward_pre_hooks[key]
