"""Static int8 quantization as a user sees it."""

import torch
from torch import nn

from sparsemod.compress.quantization import quantize


def test_a_dense_layer_lands_on_its_grid():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 3), nn.ReLU())
    inputs = torch.randn(256, 4)
    quantized = quantize(net, "post", [inputs])
    outputs = quantized(inputs)
    last = quantized.activations[-1]
    steps = outputs / last.scale
    assert torch.allclose(steps, steps.round(), atol=1e-4)
    assert (outputs - net(inputs)).abs().max() < 3 * last.scale
