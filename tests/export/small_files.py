"""Small files as the project writes them: a CNN, an LSTM and a GRU."""

import torch
from torch import nn

from sparsemod.compress.graph_quantization import quantize_graph
from sparsemod.export.tflite import Description, write_tflite
from sparsemod.measure.operators import lower


class Recurrent(nn.Module):
    """A recurrent layer, of whose states the mean or the last is read, and a dense one."""

    def __init__(self, kind, mean=False):
        super().__init__()
        self.layer, self.head, self.mean = kind(3, 6, batch_first=True), nn.Linear(6, 4), mean

    def forward(self, x):
        y, _ = self.layer(x)
        return self.head(y.mean(1) if self.mean else y[:, -1])


def cnn():
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, 2, 1), nn.ReLU(),
        nn.Conv2d(4, 4, 3, padding=1, groups=4), nn.BatchNorm2d(4), nn.ReLU6(),
        nn.Conv2d(4, 6, 1), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(54, 3), nn.Softmax(1),
    )  # fmt: skip


NETS = {
    "cnn": (cnn, (1, 12, 12)),
    "lstm": (lambda: Recurrent(nn.LSTM), (9, 3)),
    "gru": (lambda: Recurrent(nn.GRU), (9, 3)),
    "gru of all states": (lambda: Recurrent(nn.GRU, mean=True), (9, 3)),
}


def written(net, samples):
    """Return the quantized graph and the file of a network."""
    quantized = quantize_graph(lower(net.eval(), samples[:1]), [samples])
    return quantized, write_tflite(quantized, Description(3, (0.5,), (0.25,)))


def small_files():
    """Return the content of each file by its name."""
    files = {}
    for name, (build, shape) in NETS.items():
        with torch.random.fork_rng():
            torch.manual_seed(0)
            files[name] = written(build(), torch.randn(32, *shape))[1]
    return files
