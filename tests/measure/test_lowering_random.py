"""Networks that nobody wrote: random stacks of layers must compute the same after lowering."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from sparsemod.measure.graph_interpreter import run
from sparsemod.measure.operators import lower


class Stack(nn.Module):
    """A stack of random operations on images, chosen as it is run for the first time."""

    def __init__(self, draw, shape):
        super().__init__()
        self.layers = nn.ModuleList()
        self.steps = []
        x = torch.zeros(shape)
        for _ in range(draw(st.integers(1, 7))):
            x = self.add(draw, x)

    def add(self, draw, x):
        options = ["conv", "norm", "relu", "gate", "residual", "join", "permute", "arithmetic"]
        if min(x.shape[2:]) > 3:
            options += ["pool", "depthwise", "slice", "pad"]
        step = getattr(self, draw(st.sampled_from(options)))(draw, x.shape[1])
        self.steps.append(step)
        self.eval()
        with torch.no_grad():
            return step(x)

    def layer(self, layer):
        self.layers.append(layer)
        return layer

    def conv(self, draw, c, outputs=None, keep=False):
        kernel = draw(st.sampled_from([1, 3] if keep else [1, 2, 3]))
        stride = 1 if keep else draw(st.sampled_from([1, 2]))
        padding = kernel // 2 if keep else draw(st.integers(kernel // 2, 2))
        bias = draw(st.booleans())
        conv = self.layer(
            nn.Conv2d(c, outputs or draw(st.integers(1, 6)), kernel, stride, padding, bias=bias)
        )
        return lambda x: conv(x)

    def depthwise(self, draw, c):
        kernel, padding = draw(st.sampled_from([(3, 1), (3, 0), (2, 1), (4, 2)]))
        conv = self.layer(nn.Conv2d(c, c, kernel, draw(st.sampled_from([1, 2])), padding, groups=c))
        return lambda x: conv(x)

    def norm(self, draw, c):
        norm = self.layer(nn.BatchNorm2d(c))
        with torch.no_grad():
            norm.running_mean.normal_()
            norm.running_var.uniform_(0.5, 2)
        return lambda x: norm(x)

    def relu(self, draw, c):
        name = draw(st.sampled_from(["relu", "relu6", "hardtanh", "sigmoid", "tanh", "hardswish"]))
        function = getattr(F, name, None) or getattr(torch, name)
        return lambda x: function(x)

    def gate(self, draw, c):
        conv = self.layer(nn.Conv2d(c, c, 1))
        return lambda x: x * conv(x.mean((2, 3), keepdim=True)).sigmoid()

    def residual(self, draw, c):
        conv = self.conv(draw, c, c, keep=True)
        return lambda x: x + conv(x).relu()

    def join(self, draw, c):
        conv = self.conv(draw, c, keep=True)
        return lambda x: torch.cat([conv(x), x], 1)

    def permute(self, draw, c):
        order = draw(st.permutations([1, 2, 3]))
        return lambda x: x.permute(0, *order)

    def arithmetic(self, draw, c):
        number = draw(st.sampled_from([0.5, -2.0]))
        return lambda x: (x - number) * 0.5 + x / 3

    def pool(self, draw, c):
        kernel, stride, padding = draw(st.sampled_from([(2, 2, 0), (3, 2, 1), (3, 1, 1), (3, 3, 0)]))
        function = draw(st.sampled_from([F.max_pool2d, F.avg_pool2d]))
        return lambda x: function(x, kernel, stride, padding)

    def slice(self, draw, c):
        return lambda x: x[:, :, 1:, ::2]

    def pad(self, draw, c):
        pads = draw(st.lists(st.integers(0, 2), min_size=4, max_size=4))
        return lambda x: F.pad(x, pads)

    def forward(self, x):
        for step in self.steps:
            x = step(x)
        return x


@settings(max_examples=60, deadline=None)
@given(st.data(), st.integers(0, 2**16))
def test_random_stacks_of_layers_keep_their_function(data, seed):
    torch.manual_seed(seed)
    shape = (1, data.draw(st.integers(1, 4)), data.draw(st.integers(4, 9)), data.draw(st.integers(4, 9)))
    stack = Stack(data.draw, shape)
    width = data.draw(st.integers(1, 5))
    x = torch.randn(shape)
    with torch.no_grad():
        features = stack(x).flatten(1).shape[1]
    net = nn.Sequential(stack, nn.Flatten(), nn.Linear(features, width)).eval()
    with torch.no_grad():
        expected = net(x)
    torch.testing.assert_close(run(lower(net, x), x)[0], expected, rtol=1e-3, atol=1e-4)
