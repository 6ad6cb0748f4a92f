"""A problem whose every result is known: the net takes all samples for class 0, whatever it learns."""

import time

import torch
from ax.core.parameter import FixedParameter, ParameterType
from ax.core.search_space import SearchSpace
from tiny_problem import Net, arguments
from torch import nn
from torch.utils.data import TensorDataset

LABELS = {1: (0, 1, 1, 1), 2: (0, 0, 1, 1), 3: (0, 0, 0, 1)}


class RiggedNet(nn.Module):
    def __init__(self, parametrization, classes=2, input_shape=(1,)):
        super().__init__()
        self.out = nn.Linear(input_shape[0], classes)
        self.out.weight.data.zero_()
        self.out.bias.data = torch.tensor([9.0, 0.0])
        self.out.weight.requires_grad = False

    def forward(self, x):
        return self.out(x)


class SlowNet(Net):
    """The tiny net, which takes its time."""

    def forward(self, x):
        if self.training:
            time.sleep(0.05)
        return super().forward(x)


def rigged_groups():
    return [subject for subject, labels in LABELS.items() for _ in labels]


def rigged_arguments(root):
    labels = torch.tensor([label for subject in LABELS.values() for label in subject])
    x = torch.linspace(-1, 1, 12).view(12, 1)
    fixed = {"learning_rate": 1e-4, "learning_gamma": 1.0, "learning_step": 1.0, "prune_threshold": 1.0}
    parameters = [FixedParameter(name, ParameterType.FLOAT, value) for name, value in fixed.items()]
    return arguments(
        root,
        r1=1,
        r2=0,
        r3=0,
        morphisms=False,
        pruning=False,
        classes=2,
        net=RiggedNet,
        datasets=[TensorDataset(x[k : k + 4], labels[k : k + 4]) for k in (0, 4, 8)],
        groups=rigged_groups(),
        search_space=SearchSpace([*parameters, FixedParameter("batch_size", ParameterType.INT, 4)]),
    )
