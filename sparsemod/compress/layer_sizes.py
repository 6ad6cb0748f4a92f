"""The size attributes of layers, for code that changes the shapes of their parameters."""

from __future__ import annotations

from torch import nn

__all__ = ["take_sizes"]


def take_sizes(module: nn.Module) -> None:
    """Set a layer's size attributes to what its parameters say."""
    if isinstance(module, nn.Linear):
        module.out_features, module.in_features = module.weight.shape
    elif isinstance(module, nn.Conv1d | nn.Conv2d | nn.Conv3d):
        n_out, n_in = module.weight.shape[:2]
        if module.groups == module.in_channels > 1:
            module.groups = n_out * module.in_channels // module.out_channels
        module.out_channels, module.in_channels = n_out, n_in * module.groups
    elif isinstance(module, nn.ConvTranspose1d | nn.ConvTranspose2d | nn.ConvTranspose3d):
        module.in_channels, module.out_channels = (
            module.weight.shape[0],
            module.weight.shape[1] * module.groups,
        )
    elif isinstance(module, nn.modules.batchnorm._NormBase):
        reference = module.weight if module.affine else module.running_mean
        if reference is not None:
            module.num_features = len(reference)
    elif isinstance(module, nn.LayerNorm) and module.elementwise_affine:
        module.normalized_shape = tuple(module.weight.shape)
    elif isinstance(module, nn.GroupNorm) and module.affine:
        module.num_channels = len(module.weight)
    elif isinstance(module, nn.PReLU):
        module.num_parameters = len(module.weight)
