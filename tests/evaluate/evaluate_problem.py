"""Networks and data that train in milliseconds, importable by worker processes."""

import os
import random
import signal

import numpy as np
import torch
from torch import nn
from torch.nn.utils.rnn import pack_sequence
from torch.utils.data import Dataset, TensorDataset

from sparsemod.evaluate.task import Task
from sparsemod.measure.targets import find_target

CLASSES = 3


def images(n, seed):
    """Images whose mean tells the class, not without noise."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(n) % CLASSES
    x = torch.randn(n, 1, 8, 8, generator=generator) + 0.5 * (y - 1.0).reshape(-1, 1, 1, 1)
    return TensorDataset(x, y)


class Sequences(Dataset):
    """Sequences of 5 to 12 steps of 4 features, as dicts; their sign tells the class."""

    def __init__(self, n, seed):
        self.n, self.seed = n, seed

    def __len__(self):
        return self.n

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(self.seed * 1000 + index)
        signal = torch.randn(5 + index % 8, 4, generator=generator) + (index % CLASSES - 1.0)
        return {"signal": signal, "label": index % CLASSES}


def split(items, max_len):
    """Cut every sequence into pieces of `max_len` steps, as the documented collate function does."""
    pieces, labels = [], []
    for item in items:
        padded = nn.functional.pad(item["signal"], (0, 0, 0, -len(item["signal"]) % max_len))
        for piece in padded.reshape(-1, max_len, 4):
            pieces.append(piece)
            labels.append(item["label"])
    return torch.stack(pieces), torch.tensor(labels)


def packed(items):
    """Pack sequences of unequal lengths."""
    order = sorted(items, key=lambda item: -len(item["signal"]))
    return pack_sequence([i["signal"] for i in order]), torch.tensor([i["label"] for i in order])


def broken_collate(items):
    raise OSError("the disk is gone")


class Net(nn.Module):
    """A small convolutional network with batch norm and dropout."""

    def __init__(self, parametrization, classes=10, input_shape=None):
        super().__init__()
        width = parametrization["width"]
        self.conv = nn.Conv2d(input_shape[0], width, 3)
        self.norm = nn.BatchNorm2d(width)
        self.drop = nn.Dropout(0.1)
        self.out = nn.Linear(width * 9, classes)

    def forward(self, x):
        x = nn.functional.max_pool2d(torch.relu(self.norm(self.conv(x))), 2)
        return self.out(self.drop(x.flatten(1)))


class Recurrent(nn.Module):
    def __init__(self, parametrization, classes, input_shape):
        super().__init__()
        self.lstm = nn.LSTM(input_shape[1], parametrization["width"], batch_first=True)
        self.out = nn.Linear(parametrization["width"], classes)

    def forward(self, x):
        return self.out(self.lstm(x)[1][0][-1])


class Lazy(nn.Module):
    def __init__(self, parametrization, classes, input_shape):
        super().__init__()
        width = parametrization["width"]
        self.layers = nn.Sequential(nn.Flatten(), nn.LazyLinear(width), nn.ReLU(), nn.LazyLinear(classes))

    def forward(self, x):
        return self.layers(x)


class Tied(nn.Module):
    """The same weight under two names."""

    def __init__(self, parametrization, classes, input_shape):
        super().__init__()
        self.first = nn.Linear(64, 64)
        self.second = nn.Linear(64, 64)
        self.second.weight = self.first.weight
        self.out = nn.Linear(64, classes)

    def forward(self, x):
        return self.out(torch.relu(self.second(torch.relu(self.first(x.flatten(1))))))


class Gambler(Net):
    """Draws from every global generator there is."""

    def __init__(self, parametrization, classes, input_shape):
        super().__init__(parametrization, classes, input_shape)
        with torch.no_grad():
            self.out.bias.add_(random.random() + float(np.random.rand()))  # noqa: NPY002

    def forward(self, x):
        if self.training:
            x = x + 0.1 * random.random() + 0.1 * float(np.random.rand())  # noqa: NPY002
        return super().forward(x)


def net_by_position(config, n_classes, shape):
    return Net(config, n_classes, shape)


def not_a_net(parametrization, classes, input_shape):
    return "a net"


class Fate(Net):
    """What becomes of an arm stands in its parametrization."""

    def __init__(self, parametrization, classes, input_shape):
        super().__init__(parametrization, classes, input_shape)
        self.fate = parametrization.get("fate", "")
        if self.fate == "init":
            raise KeyError("width_2")

    def forward(self, x):
        if self.fate == "forward":
            raise RuntimeError("mat1 and mat2\nshapes cannot be multiplied")
        if self.fate == "train" and self.training:
            raise ZeroDivisionError
        if self.fate == "memory" and self.training:
            torch.empty(10**15)
        if self.fate == "memory_python" and self.training:
            raise MemoryError
        if self.fate == "nan" and self.training:
            return super().forward(x) * float("nan")
        if self.fate == "shape":
            return super().forward(x)[:, :2]
        if self.fate == "tuple":
            return super().forward(x), x
        if self.fate == "kill" and self.training:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().forward(x)


PARAMETERS = {
    "learning_rate": 0.02,
    "learning_gamma": 0.5,
    "learning_step": 0.02,
    "prune_threshold": 0.5,
    "batch_size": 16,
    "width": 6,
}


def make_task(**changes):
    datasets = {"train": images(96, 1), "validation": images(60, 2), "test": images(63, 3)}
    return Task(**{"net": Net, "classes": CLASSES, "target": find_target("nRF52840"), **datasets, **changes})


def sequences(**changes):
    sets = {"train": Sequences(48, 1), "validation": Sequences(30, 2), "test": Sequences(30, 3)}
    return make_task(**{"net": Recurrent, **sets, **changes})
