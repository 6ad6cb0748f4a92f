"""Random networks of the four kinds that people search over, with batch norms away from the identity."""

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F


class Images(nn.Module):
    """2-D convolutions with residual connections and depthwise layers, max or average pools, a dense head."""

    def __init__(self, rng):
        super().__init__()
        self.stem = nn.Conv2d(
            channels := int(rng.integers(1, 4)), width := int(rng.integers(4, 17)), 3, padding=1
        )
        self.shape = (channels, *(int(n) for n in rng.integers(12, 29, 2)))
        self.norm = nn.BatchNorm2d(width)
        self.stages, self.shrinks = nn.ModuleList(), []
        for _ in range(int(rng.integers(1, 4))):
            kernel = int(rng.choice([3, 5]))
            self.stages.append(
                nn.ModuleDict(
                    {
                        "depthwise": nn.Conv2d(
                            width, width, kernel, padding=kernel // 2, groups=width, bias=False
                        ),
                        "inner": nn.BatchNorm2d(width),
                        "pointwise": nn.Conv2d(width, width, 1),
                        "outer": nn.BatchNorm2d(width),
                        "next": nn.Conv2d(
                            width, wider := int(rng.integers(4, 25)), 3, int(rng.integers(1, 3)), 1
                        ),
                    }
                )
            )
            self.shrinks.append(str(rng.choice(["none", "max", "average"])))
            width = wider
        self.clamp = F.relu6 if rng.random() < 0.5 else F.relu
        self.joins = bool(rng.random() < 0.3)
        self.softmax = bool(rng.random() < 0.3)
        self.head = nn.Linear(2 * width if self.joins else width, int(rng.integers(2, 11)))

    def forward(self, x):
        x = F.relu(self.norm(self.stem(x)))
        for stage, shrink in zip(self.stages, self.shrinks, strict=True):
            y = self.clamp(stage["inner"](stage["depthwise"](x)))
            x = F.relu(x + stage["outer"](stage["pointwise"](y)))
            x = self.clamp(stage["next"](x))
            if shrink != "none" and min(x.shape[2:]) > 3:
                x = F.max_pool2d(x, 2) if shrink == "max" else F.avg_pool2d(x, 2)
        y = x.mean((2, 3))
        y = self.head(torch.cat([y, x.amax((2, 3))], 1) if self.joins else y)
        return y.softmax(1) if self.softmax else y


class Signals(nn.Module):
    """1-D convolutions with strides, dilation and pools."""

    def __init__(self, rng):
        super().__init__()
        width = int(rng.integers(1, 7))
        self.shape = (width, length := int(rng.integers(32, 129)))
        layers = []
        for _ in range(int(rng.integers(1, 4))):
            kernel, dilation = int(rng.choice([3, 5, 7])), int(rng.integers(1, 3))
            padding = dilation * (kernel // 2)
            wider, stride = int(rng.integers(4, 25)), int(rng.integers(1, 3))
            layers += [
                nn.Conv1d(width, wider, kernel, stride, padding, dilation),
                nn.BatchNorm1d(wider),
                [nn.ReLU, nn.ReLU6, nn.Hardswish, nn.LeakyReLU][int(rng.integers(4))](),
            ]
            if rng.random() < 0.5:
                layers.append(nn.MaxPool1d(2) if rng.random() < 0.5 else nn.AvgPool1d(2))
            width = wider
        self.body = nn.Sequential(*layers)
        self.flat = bool(rng.random() < 0.5)
        n_features = self.body.eval()(torch.zeros(1, *self.shape)).flatten(1).shape[1] if self.flat else width
        self.head = nn.Linear(n_features, int(rng.integers(2, 7)))
        self.length = length

    def forward(self, x):
        x = self.body(x)
        return self.head(x.flatten(1) if self.flat else x.mean(2))


class Sequences(nn.Module):
    """LSTM or GRU, one or two layers, one or two directions, the last or the mean state."""

    def __init__(self, rng):
        super().__init__()
        size, layers, both = int(rng.integers(4, 33)), int(rng.integers(1, 3)), bool(rng.random() < 0.3)
        self.shape = (int(rng.integers(8, 41)), int(rng.integers(1, 9)))
        kind = nn.LSTM if rng.random() < 0.5 else nn.GRU
        self.layer = kind(self.shape[1], size, layers, batch_first=True, bidirectional=both)
        self.mean = bool(rng.random() < 0.3)
        self.head = nn.Linear(2 * size if both else size, int(rng.integers(2, 7)))

    def forward(self, x):
        y, _ = self.layer(x)
        return self.head(y.mean(1) if self.mean else y[:, -1])


class Mixed(nn.Module):
    """1-D convolutions whose features an LSTM reads."""

    def __init__(self, rng):
        super().__init__()
        self.shape = (int(rng.integers(1, 7)), int(rng.integers(24, 65)))
        width, size = int(rng.integers(4, 17)), int(rng.integers(4, 25))
        self.conv = nn.Conv1d(self.shape[0], width, 5, int(rng.integers(1, 3)), 2)
        self.norm = nn.BatchNorm1d(width)
        self.pool = bool(rng.random() < 0.5)
        self.layer = nn.LSTM(width, size, batch_first=True)
        self.head = nn.Sequential(nn.Linear(size, 16), nn.ReLU(), nn.Linear(16, int(rng.integers(2, 7))))

    def forward(self, x):
        x = F.relu(self.norm(self.conv(x)))
        x = F.max_pool1d(x, 2) if self.pool else x
        return self.head(self.layer(x.transpose(1, 2))[1][0][-1])


class SmallCNN(nn.Module):
    """5,642 parameters: convolution and max pool, a depthwise residual block, a strided convolution."""

    def __init__(self):
        super().__init__()
        self.a = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU())
        self.b = nn.Sequential(nn.Conv2d(16, 16, 3, padding=1, groups=16, bias=False), nn.BatchNorm2d(16))
        self.c = nn.Sequential(nn.Conv2d(16, 16, 1, bias=False), nn.BatchNorm2d(16))
        self.d = nn.Sequential(nn.Conv2d(16, 32, 3, 2, 1, bias=False), nn.BatchNorm2d(32), nn.ReLU())
        self.e = nn.Linear(32, 10)

    def forward(self, x):
        x = F.max_pool2d(self.a(x), 2)
        x = F.relu(x + self.c(F.relu(self.b(x))))
        return self.e(self.d(x).mean((2, 3)))


SPACES = {"images": Images, "signals": Signals, "sequences": Sequences, "mixed": Mixed}


def random_net(space, seed, n_samples=64):
    """Return a network in eval mode and samples for it."""
    rng = np.random.default_rng([seed, sorted(SPACES).index(space)])
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        net = SPACES[space](rng)
        with torch.no_grad():
            for module in net.modules():
                if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d):
                    module.weight.uniform_(0.5, 1.5)
                    module.bias.normal_(0, 0.3)
                    module.running_mean.normal_(0, 0.3)
                    module.running_var.uniform_(0.5, 2)
        return net.eval(), torch.randn(n_samples, *net.shape)
