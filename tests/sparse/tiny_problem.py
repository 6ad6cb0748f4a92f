"""A problem that trains in milliseconds, importable by worker processes."""

import os
import random
import signal

import torch
from ax.core.parameter import ChoiceParameter, FixedParameter, ParameterType, RangeParameter
from ax.core.search_space import SearchSpace
from torch import nn
from torch.utils.data import TensorDataset

INT, FLOAT = ParameterType.INT, ParameterType.FLOAT


def datasets(n=96, seed=0):
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(n) % 3
    x = torch.randn(n, 1, 6, 6, generator=generator)
    x[:, 0, 0, 0] += 2.0 * y
    x[:, 0, 3, 3] -= 1.5 * y
    third = n // 3
    return [TensorDataset(x[k : k + third], y[k : k + third]) for k in (0, third, 2 * third)]


def search_space(extra=0, filters=12):
    return SearchSpace(
        parameters=[
            RangeParameter("learning_rate", FLOAT, 1e-3, 3e-2, log_scale=True),
            FixedParameter("learning_gamma", FLOAT, 0.5),
            FixedParameter("learning_step", FLOAT, 0.02),
            ChoiceParameter("batch_size", INT, [8, 16], is_ordered=True, sort_values=True),
            RangeParameter("prune_threshold", FLOAT, 0.2, 0.8),
            RangeParameter("filters", INT, 2, filters),
            RangeParameter("hidden", INT, 2, 40, log_scale=True),
            ChoiceParameter("kernel", INT, [1, 3], is_ordered=True, sort_values=True),
            *(RangeParameter(f"extra_{i}", FLOAT, 0.0, 1.0) for i in range(extra)),
        ]
    )


class Net(nn.Module):
    def __init__(self, parametrization, classes=3, input_shape=(1, 6, 6)):
        super().__init__()
        kernel, filters = parametrization["kernel"], parametrization["filters"]
        self.conv = nn.Conv2d(input_shape[0], filters, kernel, padding=kernel // 2, bias=False)
        self.norm = nn.BatchNorm2d(filters)
        self.hidden = nn.Linear(filters * 9, parametrization["hidden"])
        self.out = nn.Linear(parametrization["hidden"], classes)

    def forward(self, x):
        x = nn.functional.max_pool2d(torch.relu(self.norm(self.conv(x))), 2)
        return self.out(torch.relu(self.hidden(x.flatten(1))))


class FailingNet(Net):
    """A third of the widths raise in `forward`."""

    def forward(self, x):
        if self.conv.out_channels % 3 == 0:
            raise RuntimeError(f"{self.conv.out_channels} filters\nare too many")
        return super().forward(x)


class FateNet(Net):
    """What becomes of an arm depends on its number of filters."""

    def forward(self, x):
        width = self.conv.out_channels
        if self.training and width % 4 == 0:
            torch.empty(10**15)
        if self.training and width % 4 == 1 and os.environ.get("KILL_WORKERS"):
            os.kill(os.getpid(), signal.SIGKILL)
        return super().forward(x)


def filters(config):
    config["filters"] += random.choice([-2, -1, 1, 2])
    return config


def hidden(config):
    config["hidden"] *= random.choice([0.5, 2])
    return config


operations = {"filters": filters, "hidden": hidden}


def arguments(root, **changes):
    """The keyword arguments of a short search; `changes` override them."""
    return {
        "r1": 3,
        "r2": 2,
        "r3": 2,
        "epochs1": 1,
        "epochs2": 1,
        "epochs3": 1,
        "name": "tiny",
        "root": str(root),
        "objectives": 4,
        "batch_size": 1,
        "morphisms": True,
        "pruning": True,
        "datasets": datasets(),
        "classes": 3,
        "debug": False,
        "search_space": search_space(),
        "net": Net,
        "flops": 80_000_000,
        "quant_scheme": "post",
        "quant_params": None,
        "collate_fn": None,
        "splitter": False,
        "morpher_ops": operations,
        **changes,
    }


class DividingNet(Net):
    """Divides one tensor by another, which can be measured but not exported."""

    def __init__(self, parametrization, classes=3, input_shape=(1, 6, 6)):
        super().__init__(parametrization, classes, input_shape)
        self.scaled = Softsign()

    def forward(self, x):
        return self.scaled(super().forward(x))


class Softsign(nn.Module):
    def forward(self, x):
        return x / (1.0 + x * x)


class SometimesDividingNet(DividingNet):
    """Does so with an even number of filters only."""

    def forward(self, x):
        return super().forward(x) if self.conv.out_channels % 2 == 0 else Net.forward(self, x)
