"""The engine against an integer reference with 32-bit accumulators and gemmlowp's double rounding."""

import integer_reference as reference
import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from sparsemod.compress.quantization import quantize


class ResidualNet(nn.Module):
    """conv-bn-relu, depthwise residual, max pool, pointwise, global average pool, dense."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(2, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU())
        self.depthwise = nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.norm = nn.BatchNorm2d(8)
        self.pointwise = nn.Conv2d(8, 16, 1)
        self.norm2 = nn.BatchNorm2d(16)
        self.strided = nn.Conv2d(16, 24, 3, stride=2, padding=1)
        self.head = nn.Linear(24, 10)

    def forward(self, x):
        x = self.stem(x)
        x = F.relu(x + self.norm(self.depthwise(x)))
        x = F.max_pool2d(x, 2)
        x = F.relu(self.norm2(self.pointwise(x)))
        x = F.relu(self.strided(x))
        return self.head(x.mean([2, 3]))


def trained(seed):
    """Random weights with batch-norm statistics and parameters that are not trivial."""
    torch.manual_seed(seed)
    net = ResidualNet()
    for _ in range(20):
        net(torch.randn(32, 2, 12, 12) * 1.5 + 0.3)
    for module in net.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.weight, 0.4, 1.6)
            nn.init.normal_(module.bias, 0.0, 0.3)
    return net


def in_integers(quantized, inputs):
    """Return the logits as stored integers, computed by the reference from the engine's grids and weights."""
    grid = {a.index: a for a in quantized.activations}
    weight = {w.index: w for w in quantized.weights}
    q = reference.quantize_input(inputs.numpy(), grid[-1].scale, grid[-1].zero_point)
    stem = reference.convolution(q, grid[-1], weight[0], grid[0], padding=1, relu=True)
    deep = reference.convolution(stem, grid[0], weight[3], grid[3], padding=1, groups=8)
    q = reference.add(stem, grid[0], deep, grid[3], grid[5], relu=True)
    q = reference.max_pool(q, 2)
    q = reference.convolution(q, grid[5], weight[8], grid[8], relu=True)
    q = reference.convolution(q, grid[8], weight[11], grid[11], stride=2, padding=1, relu=True)
    q = reference.global_average(q)
    return reference.dense(q, grid[13], weight[14], grid[14])


@pytest.mark.parametrize("seed", range(6))
def test_logits_of_a_residual_net_equal_the_integer_reference(seed):
    net = trained(seed)
    inputs = torch.randn(300, 2, 12, 12) * 1.5 + 0.3
    quantized = quantize(net, "post", [inputs])
    last = quantized.activations[-1]
    logits = np.rint(quantized(inputs).numpy() / last.scale).astype(int) + last.zero_point
    expected = in_integers(quantized, inputs)
    difference = np.abs(logits - expected)
    share = (difference == 0).mean()
    print(
        f"seed {seed}: {100 * share:.3f} % of {difference.size} logits equal, at most {difference.max()} off"
    )
    assert share >= 0.999
    assert difference.max() <= 1


def test_accumulators_do_not_saturate():
    """211 * 71 + 171 * 107 = 33278 is beyond the 16 bits that some x86 kernels accumulate in."""
    net = nn.Linear(2, 1, bias=False)
    with torch.no_grad():
        net.weight.copy_(torch.tensor([[71.0, 107.0]]))
    inputs = torch.tensor([[211.0, 171.0], [0.0, 0.0], [255.0, 255.0]])
    quantized = quantize(net, "post", [inputs])
    step = quantized.activations[-1].scale
    assert abs(float(quantized(inputs)[0]) - 33278.0) <= step
    assert abs(float(quantized(inputs)[0]) - 33278.0) < 33278 - 32767
