"""What is searched: the parameters, the network they describe, and the morphisms that change it."""

import random

from ax.core.parameter import ChoiceParameter, ParameterType, RangeParameter
from ax.core.search_space import SearchSpace
from torch import nn

MAX_BLOCKS = 3


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
    """Return 22 parameters; the first five are mandatory."""
    parameters = [
        real("learning_rate", 1e-3, 3e-2, log=True),
        real("learning_gamma", 0.3, 0.9),
        real("learning_step", 0.1, 0.4),  # thousands of optimizer steps
        real("prune_threshold", 0.3, 0.9),  # share of the weights that end as zero
        choice("batch_size", [16, 32, 64]),
        integer("num_blocks", 1, MAX_BLOCKS),
        integer("num_fc_layers", 0, 1),
        integer("fc_units", 8, 64, log=True),
        real("dropout", 0.0, 0.4),
    ]
    for i in range(1, MAX_BLOCKS + 1):
        parameters += [
            integer(f"block_{i}_filters", 4, 48, log=True),
            choice(f"block_{i}_kernel", [1, 3, 5]),
            choice(f"block_{i}_type", ["conv", "separable"]),
            integer(f"block_{i}_pool", 0, 1),
        ]
    return SearchSpace(parameters=parameters)


class Net(nn.Module):
    """Blocks of convolution, batch norm and ReLU, then global average pooling and dense layers."""

    def __init__(self, parametrization, classes=10, input_shape=(1, 8, 8)):
        super().__init__()
        channels, side = input_shape[0], input_shape[-1]
        blocks = []
        for i in range(1, parametrization["num_blocks"] + 1):
            filters = parametrization[f"block_{i}_filters"]
            kernel = parametrization[f"block_{i}_kernel"]
            if parametrization[f"block_{i}_type"] == "separable" and i > 1:
                blocks += [
                    nn.Conv2d(channels, channels, kernel, padding=kernel // 2, groups=channels, bias=False)
                ]
                blocks += [nn.BatchNorm2d(channels), nn.ReLU(), nn.Conv2d(channels, filters, 1, bias=False)]
            else:
                blocks += [nn.Conv2d(channels, filters, kernel, padding=kernel // 2, bias=False)]
            blocks += [nn.BatchNorm2d(filters), nn.ReLU()]
            if parametrization[f"block_{i}_pool"] and side >= 4:
                blocks += [nn.MaxPool2d(2)]
                side //= 2
            channels = filters
        self.features = nn.Sequential(*blocks, nn.AvgPool2d(2), nn.Flatten())
        units = channels * (side // 2) ** 2
        dense = []
        for _ in range(parametrization["num_fc_layers"]):
            dense += [nn.Linear(units, parametrization["fc_units"]), nn.ReLU()]
            units = parametrization["fc_units"]
        self.classifier = nn.Sequential(
            *dense, nn.Dropout(parametrization["dropout"]), nn.Linear(units, classes)
        )

    def forward(self, x):
        return self.classifier(self.features(x))


def _block(config):
    return random.randint(1, config["num_blocks"])


def num_blocks(config):
    """One block more or less."""
    config["num_blocks"] += random.choice([-1, 1])
    return config


def num_filters(config):
    """More or fewer filters in a block."""
    name = f"block_{_block(config)}_filters"
    config[name] = round(config[name] * random.choice([0.5, 0.75, 1.33, 2]))
    return config


def kernel_size(config):
    """Another kernel in a block."""
    config[f"block_{_block(config)}_kernel"] = random.choice([1, 3, 5])
    return config


def block_type(config):
    """Plain convolution or depthwise separable."""
    config[f"block_{_block(config)}_type"] = random.choice(["conv", "separable"])
    return config


def pooling(config):
    """Pooling behind a block, or none."""
    name = f"block_{_block(config)}_pool"
    config[name] = 1 - config[name]
    return config


def dense(config):
    """A hidden dense layer more or less, or another size of it."""
    if random.random() < 0.5:
        config["num_fc_layers"] = 1 - config["num_fc_layers"]
    else:
        config["fc_units"] = round(config["fc_units"] * random.choice([0.5, 2]))
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
    "pooling": pooling,
    "dense": dense,
    "sparsity": sparsity,
}
