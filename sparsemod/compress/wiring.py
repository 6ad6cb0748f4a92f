"""Which layer feeds which, as seen while a network runs."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from sparsemod.compress.masks import Masks

__all__ = ["Wiring"]


class Wiring:
    """Watches the forward passes of a network from its making until `close`.

    What reads what is told by the identity of the tensors, so only modules are seen, not functional calls.

    Attributes:
        layers: The linear and (not transposed) convolution layers that ran, in the order in which they ran
            last.
    """

    def __init__(self, net: nn.Module) -> None:
        self.layers: list[nn.Module] = []
        self._sources: dict[nn.Module, set[nn.Module | None]] = {}
        # The outputs are held until `close`, so that no other tensor takes over an identity.
        self._outputs: dict[int, tuple[Tensor, nn.Module]] = {}
        self._handles: list[RemovableHandle] = []
        for module in net.modules():
            if isinstance(module, nn.Linear | nn.Conv1d | nn.Conv2d | nn.Conv3d):
                self._handles.append(module.register_forward_hook(self._saw_layer))
            elif isinstance(module, nn.modules.batchnorm._BatchNorm):
                self._handles.append(module.register_forward_hook(self._saw_norm))

    def close(self) -> None:
        """Stop observing."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self._outputs.clear()

    def dead_channels(
        self, masks: Masks, parameters: dict[str, nn.Parameter]
    ) -> list[tuple[nn.Parameter, Tensor]]:
        """Return biases, scales and shifts with the masks that take the wholly pruned channels out.

        A channel of a batch norm is taken out when all that it reads are layers in which the channel is
        pruned. The layer that ran last makes the network's output and is left alone.
        """
        names = {id(parameter): name for name, parameter in parameters.items()}
        alive: dict[nn.Module, Tensor] = {}
        for layer in self.layers[:-1]:
            mask = masks.get(names.get(id(layer.weight), ""))
            if mask is not None:
                alive[layer] = mask.flatten(1).any(dim=1)
        found = {
            id(layer.bias): (layer.bias, mask)
            for layer, mask in alive.items()
            if isinstance(layer.bias, nn.Parameter)
        }
        for norm, sources in self._sources.items():
            known = [alive[source] for source in sources if source in alive]
            if len(known) < len(sources):
                continue
            mask = torch.stack(known).any(dim=0)
            for parameter in (norm.weight, norm.bias):
                if isinstance(parameter, nn.Parameter):
                    found[id(parameter)] = (parameter, mask)
        return [(parameter, mask) for parameter, mask in found.values() if not bool(mask.all())]

    def _saw_layer(self, module: nn.Module, inputs: object, output: Tensor) -> None:
        if module in self.layers:
            self.layers.remove(module)
        self.layers.append(module)
        self._outputs[id(output)] = (output, module)

    def _saw_norm(self, module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        _, source = self._outputs.get(id(inputs[0]), (None, None))
        self._sources.setdefault(module, set()).add(source)
