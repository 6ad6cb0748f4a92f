"""Counting the parameters and floating-point operations of a network's modules while it runs."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from typing import Any

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd
from torch.nn.utils.rnn import PackedSequence
from torch.utils.hooks import RemovableHandle

from sparsemod.errors import ConfigError, SparsemodError, nearest
from sparsemod.measure.analyzed import AnalyzedLayerDesc, Shape

__all__ = ["ModuleAnalyzer", "NotAnalyzedError"]

_NORMS = (_NormBase, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm, nn.LocalResponseNorm)
_MOVES = (nn.Identity, nn.Dropout, nn.Flatten, nn.Unflatten, nn.Embedding, nn.modules.dropout._DropoutNd)
_ACTIVATIONS = tuple(
    kind
    for name in nn.modules.activation.__all__
    if isinstance(kind := getattr(nn, name), type) and kind is not nn.MultiheadAttention
)
_POOLS = ("MaxPool", "AvgPool", "LPPool")


class NotAnalyzedError(SparsemodError, RuntimeError):
    """A network was not run while its analyzer was enabled."""


class ModuleAnalyzer:
    """Describes the modules of a network by what they do in its forward passes.

    Operations by kind, with N the batch and zeros not counted unless told:

    - convolution: ``(2 non-zero weights + bias) positions of the output N``;
    - linear: ``N (2 non-zero weights + bias)``; recurrent: the same at each step;
    - activation: one for each value; normalisation: two; pooling: one for each value of each window.

    What a network does outside its modules (``x + y``, ``F.relu``) is not seen; `describe_operators` sees it.

    Args:
        module: The network.
        enabled: Whether to watch from now on.
        ignore_zero: Whether to leave out weights that are zero.

    Example:
        >>> import torch
        >>> net = nn.Sequential(nn.Linear(16, 32), nn.ReLU())
        >>> analyzer = ModuleAnalyzer(net, enabled=True)
        >>> _ = net(torch.zeros(1, 16))
        >>> analyzer.layer_desc("0").flops, analyzer.layer_desc().flops
        (1056, 1088)
    """

    def __init__(self, module: nn.Module, enabled: bool = False, ignore_zero: bool = True) -> None:
        self._module = module
        self._ignore_zero = ignore_zero
        self._names = {id(layer): name for name, layer in module.named_modules()}
        self._handles: list[RemovableHandle] = []
        self._seen: dict[str, AnalyzedLayerDesc] = {}
        self.enabled = enabled

    @property
    def module(self) -> nn.Module:
        """The network."""
        return self._module

    @property
    def ignore_zero(self) -> bool:
        """Whether weights that are zero are left out."""
        return self._ignore_zero

    @property
    def enabled(self) -> bool:
        """Whether it watches; switching it on starts anew."""
        return bool(self._handles)

    @enabled.setter
    def enabled(self, value: bool) -> None:
        if value == bool(self._handles):
            return
        for handle in self._handles:
            handle.remove()
        self._handles = []
        if value:
            self._seen = {}
            for layer in self._module.modules():
                self._handles.append(layer.register_forward_pre_hook(self._entered))
                self._handles.append(layer.register_forward_hook(self._left, with_kwargs=False))

    def layer_desc(self, name: str | None = None) -> AnalyzedLayerDesc:
        """Describe a module.

        Args:
            name: Its qualified name; None for the whole network. What it contains is added up.

        Raises:
            NotAnalyzedError: It has not run while the analyzer was enabled.
            ConfigError: There is no module of that name.
        """
        path = name or ""
        if path not in self._names.values():
            raise ConfigError(f"the network has no module {path!r}{nearest(path, self._names.values())}")
        if path not in self._seen:
            raise NotAnalyzedError(
                f"{path or 'the network'} has not run: enable the analyzer, then call the network"
            )
        desc = self._seen[path]
        if desc.terminal:
            return desc
        prefix = f"{path}." if path else ""
        inner = [d for key, d in self._seen.items() if d.terminal and key.startswith(prefix)]
        merged = AnalyzedLayerDesc.merge_descs(desc, inner)
        layer = self._module.get_submodule(path)
        return _with_parameters(merged, layer.named_parameters(), _prunable(layer))

    def layer_descs(self) -> list[AnalyzedLayerDesc]:
        """Describe all modules that compute, in the order in which they ran first.

        Raises:
            NotAnalyzedError: The network has not run.
        """
        if not self._seen:
            raise NotAnalyzedError("the network has not run: enable the analyzer, then call the network")
        return sorted((d for d in self._seen.values() if d.terminal), key=lambda desc: desc.execution_order)

    def ks_layer_descs(self) -> list[AnalyzedLayerDesc]:
        """Describe the modules with prunable parameters, in the order in which they ran first."""
        return [desc for desc in self.layer_descs() if desc.prunable]

    def _entered(self, layer: nn.Module, inputs: Any) -> None:
        name = self._names[id(layer)]
        if name not in self._seen:
            desc = AnalyzedLayerDesc(name, type(layer).__name__, execution_order=len(self._seen))
            if not any(layer.children()):
                own = list(layer.named_parameters(recurse=False))
                desc.params_dims = {key: tuple(parameter.shape) for key, parameter in own}
                desc.stride = _stride(layer)
            self._seen[name] = desc

    def _left(self, layer: nn.Module, inputs: Any, outputs: Any) -> None:
        desc = self._seen[self._names[id(layer)]]
        desc.input_shape, desc.output_shape = _shapes(inputs), _shapes(outputs)
        if not desc.terminal:
            return
        prunable = _prunable(layer)
        _with_parameters(desc, layer.named_parameters(recurse=False), prunable)
        desc.prunable_params_dims = {name: tuple(parameter.shape) for name, parameter in prunable.items()}
        desc.flops = self._flops(layer, list(_tensors(inputs)), list(_tensors(outputs)))
        desc.total_flops += desc.flops

    def _flops(self, layer: nn.Module, inputs: list[Tensor], outputs: list[Tensor]) -> int:
        if not inputs or not outputs or isinstance(layer, _MOVES):
            return 0
        x, y = inputs[0], outputs[0]
        weights, biases = self._n_operations(layer)
        if isinstance(layer, _ConvTransposeNd):
            return (x.numel() // layer.in_channels) * weights + (y.numel() // layer.out_channels) * biases
        if isinstance(layer, _ConvNd):
            return (y.numel() // layer.out_channels) * (weights + biases)
        if isinstance(layer, nn.Linear):
            return (y.numel() // layer.out_features) * (weights + biases)
        if isinstance(layer, nn.RNNBase | nn.RNNCellBase):
            return (x.numel() // layer.input_size) * (weights + biases)
        if isinstance(layer, _NORMS):
            return 2 * y.numel()
        if isinstance(layer, _ACTIVATIONS):
            return y.numel()
        kind = type(layer).__name__
        if kind.startswith(("AdaptiveMaxPool", "AdaptiveAvgPool")):
            return x.numel()
        if kind.startswith(_POOLS):
            size: Any = layer.kernel_size
            n_dims = int(kind[-2])
            return y.numel() * int(size**n_dims if isinstance(size, int) else prod(size))
        return 0

    def _n_operations(self, layer: nn.Module) -> tuple[int, int]:
        """Count those of one application: two a weight, one a bias."""
        weights = biases = 0
        for name, parameter in layer.named_parameters(recurse=False):
            if "bias" in name:
                biases += parameter.numel()
            else:
                weights += 2 * (int(parameter.count_nonzero()) if self._ignore_zero else parameter.numel())
        return weights, biases


def _prunable(layer: nn.Module) -> dict[str, Tensor]:
    """Return the weights of two or more dimensions, recurrent ones included, outside normalisations."""
    return {
        name: parameter
        for name, parameter in layer.named_parameters()
        if parameter.dim() > 1
        and "weight" in name.rpartition(".")[2]
        and not isinstance(layer.get_submodule(name.rpartition(".")[0]), _NORMS)
    }


def _with_parameters(
    desc: AnalyzedLayerDesc, parameters: Iterable[tuple[str, Tensor]], prunable: dict[str, Tensor]
) -> AnalyzedLayerDesc:
    desc.params = sum(parameter.numel() for _, parameter in parameters)
    desc.prunable_params = sum(parameter.numel() for parameter in prunable.values())
    desc.zeroed_params = sum(int((parameter == 0).sum()) for parameter in prunable.values())
    return desc


def _tensors(tree: Any) -> Iterable[Tensor]:
    if isinstance(tree, Tensor):
        yield tree
    elif isinstance(tree, PackedSequence):
        yield tree.data
    elif isinstance(tree, dict):
        for item in tree.values():
            yield from _tensors(item)
    elif isinstance(tree, list | tuple):
        for item in tree:
            yield from _tensors(item)


def _shapes(tree: Any) -> tuple[Shape, ...]:
    return tuple(tuple(tensor.shape) for tensor in _tensors(tree))


def _stride(layer: nn.Module) -> Shape | None:
    stride = getattr(layer, "stride", None)
    if isinstance(stride, int):
        return (stride,)
    return tuple(stride) if isinstance(stride, tuple) else None
