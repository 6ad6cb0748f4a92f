"""What is searched: the parameters, the network they describe, and the morphisms that change it."""

import random

from ax.core.parameter import ChoiceParameter, ParameterType, RangeParameter
from ax.core.search_space import SearchSpace
from torch import nn

MAX_LAYERS = 3
LENGTHS = [8, 16, 32]  # frames, 135 a second


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
    """Return 21 parameters; the first five are mandatory, max_len is handed to the collate function."""
    parameters = [
        real("learning_rate", 1e-3, 2e-2, log=True),
        real("learning_gamma", 0.3, 0.8),
        real("learning_step", 0.1, 0.5),  # thousands of optimizer steps
        real("prune_threshold", 0.2, 0.9),  # share of the weights that end as zero
        choice("batch_size", [16, 32]),  # touches, each of which is cut into pieces
        choice("max_len", LENGTHS),
        integer("num_layers", 1, MAX_LAYERS),
        integer("num_fc_layers", 0, 1),
        integer("fc_units", 16, 64, log=True),
    ]
    for i in range(1, MAX_LAYERS + 1):
        parameters += [
            integer(f"layer_{i}_filters", 8, 64, log=True),
            choice(f"layer_{i}_kernel", [1, 3, 5]),
            choice(f"layer_{i}_type", ["conv", "separable"]),
            real(f"layer_{i}_drop", 0.0, 0.4),
        ]
    return SearchSpace(parameters=parameters)


class Net(nn.Module):
    """Convolutions over the grid, whose channels are the frames of a piece; halved at most twice."""

    def __init__(self, parametrization, classes=14, input_shape=(16, 8, 8)):
        super().__init__()
        channels, side, layers = input_shape[0], input_shape[-1], []
        for i in range(1, parametrization["num_layers"] + 1):
            filters, kernel = parametrization[f"layer_{i}_filters"], parametrization[f"layer_{i}_kernel"]
            if parametrization[f"layer_{i}_type"] == "separable":
                layers += [
                    nn.Conv2d(channels, channels, kernel, padding=kernel // 2, groups=channels, bias=False)
                ]
                layers += [nn.BatchNorm2d(channels), nn.ReLU(), nn.Conv2d(channels, filters, 1, bias=False)]
            else:
                layers += [nn.Conv2d(channels, filters, kernel, padding=kernel // 2, bias=False)]
            layers += [nn.BatchNorm2d(filters), nn.ReLU(), nn.Dropout(parametrization[f"layer_{i}_drop"])]
            if side > 2:
                layers += [nn.MaxPool2d(2)]
                side //= 2
            channels = filters
        self.features = nn.Sequential(*layers, nn.Flatten())
        units, dense = channels * side * side, []
        if parametrization["num_fc_layers"]:
            dense = [nn.Linear(units, parametrization["fc_units"]), nn.ReLU()]
            units = parametrization["fc_units"]
        self.classifier = nn.Sequential(*dense, nn.Linear(units, classes))

    def forward(self, x):
        return self.classifier(self.features(x))


def _layer(config):
    return random.randint(1, config["num_layers"])


def num_layers(config):
    """One layer more or less."""
    config["num_layers"] += random.choice([-1, 1])
    return config


def num_filters(config):
    """More or fewer filters in a layer."""
    name = f"layer_{_layer(config)}_filters"
    config[name] = round(config[name] * random.choice([0.5, 0.75, 1.33, 2]))
    return config


def kernel_size(config):
    """Another kernel in a layer."""
    config[f"layer_{_layer(config)}_kernel"] = random.choice([1, 3, 5])
    return config


def layer_type(config):
    """Plain convolution or depthwise separable."""
    config[f"layer_{_layer(config)}_type"] = random.choice(["conv", "separable"])
    return config


def length(config):
    """Another length of the pieces."""
    config["max_len"] = random.choice(LENGTHS)
    return config


def num_fc_layers(config):
    """A hidden dense layer, or none."""
    config["num_fc_layers"] = 1 - config["num_fc_layers"]
    return config


def num_fc_weights(config):
    """Another size of the dense layer."""
    config["fc_units"] = round(config["fc_units"] * random.choice([0.5, 2]))
    return config


def sparsity(config):
    """Prune harder or softer."""
    config["prune_threshold"] += random.choice([-0.1, 0.05, 0.1])
    return config


operations = {
    "num_layers": num_layers,
    "num_filters": num_filters,
    "kernel_size": kernel_size,
    "layer_type": layer_type,
    "length": length,
    "num_fc_layers": num_fc_layers,
    "num_fc_weights": num_fc_weights,
    "sparsity": sparsity,
}
