"""What is searched: the parameters, the network they describe, and the morphisms that change it."""

import random

import torch
from ax.core.parameter import ChoiceParameter, ParameterType, RangeParameter
from ax.core.search_space import SearchSpace
from torch import nn

MAX_BLOCKS = 3
KERNELS = [3, 5, 7, 9]
WINDOWS = [64, 96, 128]  # steps, 25 a second


def integer(name, lower, upper, log=False):
    return RangeParameter(
        name=name, parameter_type=ParameterType.INT, lower=lower, upper=upper, log_scale=log
    )


def real(name, lower, upper, log=False):
    return RangeParameter(
        name=name, parameter_type=ParameterType.FLOAT, lower=lower, upper=upper, log_scale=log
    )


def choice(name, values):
    ordered = not isinstance(values[0], str)
    kind = ParameterType.INT if ordered else ParameterType.STRING
    return ChoiceParameter(
        name=name, parameter_type=kind, values=values, is_ordered=ordered, sort_values=ordered
    )


def search_space():
    """Return 23 parameters; the first five are mandatory, max_len is handed to the collate function."""
    parameters = [
        real("learning_rate", 2e-3, 2e-2, log=True),
        real("learning_gamma", 0.3, 0.7),
        real("learning_step", 0.05, 0.2),  # thousands of optimizer steps
        real("prune_threshold", 0.2, 0.8),  # share of the weights that end as zero
        choice("batch_size", [8, 16]),  # recordings, each of which is cut into a dozen windows or more
        choice("max_len", WINDOWS),
        real("rotation", 0.0, 0.4),  # radians, how loosely the watch is worn
        real("dropout", 0.0, 0.4),
        integer("stem_filters", 8, 32, log=True),
        choice("stem_kernel", KERNELS),
        integer("num_blocks", 1, MAX_BLOCKS),
    ]
    for i in range(1, MAX_BLOCKS + 1):
        parameters += [
            integer(f"block_{i}_filters", 8, 64, log=True),
            choice(f"block_{i}_kernel", KERNELS),
            choice(f"block_{i}_type", ["conv", "separable"]),
            choice(f"block_{i}_stride", [1, 2]),
        ]
    return SearchSpace(parameters=parameters)


class Worn(nn.Module):
    """Turn the watch on its wrist, in training only, as dropout is: each window by an angle of its own."""

    def __init__(self, angle):
        super().__init__()
        self.angle = angle

    def forward(self, x):
        if not self.training or self.angle == 0:
            return x
        turned = rotations(self.angle, len(x)).to(x)
        return torch.cat([turned @ x[:, :3], turned @ x[:, 3:]], dim=1)


def rotations(angle, n):
    """Return n rotations (n, 3, 3) about random axes, by angles of this standard deviation."""
    axis = nn.functional.normalize(torch.randn(n, 3))
    x, y, z = (axis * angle * torch.randn(n, 1)).unbind(1)
    zero = torch.zeros_like(x)
    generators = torch.stack([zero, -z, y, z, zero, -x, -y, x, zero], dim=1)
    return torch.linalg.matrix_exp(generators.view(n, 3, 3))


def layer(inputs, filters, kernel, stride=1, groups=1):
    """Return a convolution with batch norm and ReLU."""
    return [
        nn.Conv1d(inputs, filters, kernel, stride, padding=kernel // 2, groups=groups, bias=False),
        nn.BatchNorm1d(filters),
        nn.ReLU(),
    ]


class Net(nn.Module):
    """A convolution at half the rate, blocks of plain or separable ones, the mean over time, a dense one."""

    def __init__(self, parametrization, classes=7, input_shape=(6, 96)):
        super().__init__()
        channels = parametrization["stem_filters"]
        layers = layer(input_shape[0], channels, parametrization["stem_kernel"], stride=2)
        for i in range(1, parametrization["num_blocks"] + 1):
            filters = parametrization[f"block_{i}_filters"]
            kernel, stride = parametrization[f"block_{i}_kernel"], parametrization[f"block_{i}_stride"]
            if parametrization[f"block_{i}_type"] == "separable":
                layers += layer(channels, channels, kernel, stride, groups=channels)
                layers += layer(channels, filters, 1)
            else:
                layers += layer(channels, filters, kernel, stride)
            channels = filters
        self.worn = Worn(parametrization["rotation"])
        self.features = nn.Sequential(*layers)
        self.dropout = nn.Dropout(parametrization["dropout"])
        self.classifier = nn.Linear(channels, classes)

    def forward(self, x):
        return self.classifier(self.dropout(self.features(self.worn(x)).mean(2)))


def _block(config):
    return random.randint(1, config["num_blocks"])


def num_blocks(config):
    """One block more or less."""
    config["num_blocks"] += random.choice([-1, 1])
    return config


def num_filters(config):
    """More or fewer filters in a block, or in the first layer."""
    name = random.choice(["stem_filters", f"block_{_block(config)}_filters"])
    config[name] = round(config[name] * random.choice([0.5, 0.75, 1.33, 2]))
    return config


def kernel_size(config):
    """Another kernel in a block, or in the first layer."""
    name = random.choice(["stem_kernel", f"block_{_block(config)}_kernel"])
    config[name] = random.choice(KERNELS)
    return config


def block_type(config):
    """Plain convolution or depthwise separable."""
    config[f"block_{_block(config)}_type"] = random.choice(["conv", "separable"])
    return config


def stride(config):
    """Half the rate behind a block, or not."""
    name = f"block_{_block(config)}_stride"
    config[name] = 3 - config[name]
    return config


def window(config):
    """Another length of the windows."""
    config["max_len"] = random.choice(WINDOWS)
    return config


def sparsity(config):
    """Prune harder or softer."""
    config["prune_threshold"] += random.choice([-0.1, 0.05, 0.1])
    return config


operations = {
    "num_blocks": num_blocks,
    "num_filters": num_filters,
    "kernel_size": kernel_size,
    "block_type": block_type,
    "stride": stride,
    "window": window,
    "sparsity": sparsity,
}
