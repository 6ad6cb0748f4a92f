"""The MLPerf Tiny reference architectures as PyTorch modules (TensorFlow's SAME padding written out)."""

import torch
from torch import nn


class Same(nn.Module):
    """A convolution with TensorFlow's SAME padding, batch norm and ReLU."""

    def __init__(self, size, inputs, outputs, kernel, stride=1, groups=1, relu=True):
        super().__init__()
        kernel = (kernel, kernel) if isinstance(kernel, int) else kernel
        pads = []
        for n, k in zip(reversed(size), reversed(kernel), strict=True):
            total = max((-(-n // stride) - 1) * stride + k - n, 0)
            pads += [total // 2, total - total // 2]
        self.pad = nn.ZeroPad2d(pads)
        self.conv = nn.Conv2d(inputs, outputs, kernel, stride, groups=groups, bias=False)
        self.norm = nn.BatchNorm2d(outputs)
        self.relu = relu

    def forward(self, x):
        x = self.norm(self.conv(self.pad(x)))
        return x.relu() if self.relu else x


def ds_cnn():
    """Keyword spotting: input (1, 1, 49, 10)."""
    layers = [Same((49, 10), 1, 64, (10, 4), 2), nn.Dropout(0.2)]
    for _ in range(4):
        layers += [Same((25, 5), 64, 64, 3, groups=64), Same((25, 5), 64, 64, 1)]
    return nn.Sequential(*layers, nn.AvgPool2d((25, 5)), nn.Flatten(), nn.Linear(64, 12), nn.Softmax(1))


class ResNet8(nn.Module):
    """Image classification: input (1, 3, 32, 32)."""

    def __init__(self):
        super().__init__()
        self.stem = Same((32, 32), 3, 16, 3)
        self.blocks = nn.ModuleList()
        for size, inputs, outputs, stride in ((32, 16, 16, 1), (32, 16, 32, 2), (16, 32, 64, 2)):
            small = size // stride
            self.blocks.append(
                nn.ModuleList(
                    [
                        Same((size, size), inputs, outputs, 3, stride),
                        Same((small, small), outputs, outputs, 3, relu=False),
                        nn.Identity() if stride == 1 else nn.Conv2d(inputs, outputs, 1, stride),
                    ]
                )
            )
        self.head = nn.Linear(64, 10)

    def forward(self, x):
        x = self.stem(x)
        for first, second, shortcut in self.blocks:
            x = (shortcut(x) + second(first(x))).relu()
        return self.head(nn.functional.avg_pool2d(x, 8).flatten(1)).softmax(1)


def mobilenet():
    """Visual wake words, MobileNetV1 of width 0.25: input (1, 3, 96, 96)."""
    size, channels = 48, 8
    layers = [Same((96, 96), 3, 8, 3, 2)]
    plan = [(16, 1), (32, 2), (32, 1), (64, 2), (64, 1), (128, 2), *[(128, 1)] * 5, (256, 2), (256, 1)]
    for outputs, stride in plan:
        layers += [Same((size, size), channels, channels, 3, stride, channels)]
        size //= stride
        layers += [Same((size, size), channels, outputs, 1)]
        channels = outputs
    return nn.Sequential(*layers, nn.AvgPool2d(3), nn.Flatten(), nn.Linear(256, 2), nn.Softmax(1))


def autoencoder():
    """Anomaly detection: input (1, 640)."""
    layers, inputs = [], 640
    for outputs in (128, 128, 128, 128, 8, 128, 128, 128, 128):
        layers += [nn.Linear(inputs, outputs), nn.BatchNorm1d(outputs), nn.ReLU()]
        inputs = outputs
    return nn.Sequential(*layers, nn.Linear(inputs, 640))


def streaming_wakeword():
    """Streaming wake word: input (1, 40, 30, 1)."""
    layers, inputs = [], 40
    for kernel, outputs in ((3, 128), (5, 128), (10, 128), (15, 32)):
        layers += [
            nn.Conv2d(inputs, inputs, (kernel, 1), groups=inputs),
            nn.Conv2d(inputs, outputs, 1),
            nn.ReLU(),
        ]
        inputs = outputs
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(32, 3), nn.Softmax(1))


INPUTS = {
    "kws": (ds_cnn, (1, 1, 49, 10)),
    "ic": (ResNet8, (1, 3, 32, 32)),
    "vww": (mobilenet, (1, 3, 96, 96)),
    "ad": (autoencoder, (1, 640)),
    "sww": (streaming_wakeword, (1, 40, 30, 1)),
}


def lowered(name, **arguments):
    """Lower one of the models."""
    from sparsemod.measure.operators import lower

    build, shape = INPUTS[name]
    torch.manual_seed(0)
    return lower(build(), torch.zeros(shape), **arguments)
