"""What is searched: the family of the SpArSe paper (arXiv 1905.12107), its networks, and the morphisms.

Blocks of plain, depthwise separable or downsampled convolutions, each with pooling behind it or not, on an
image that may be made smaller first; dense layers. Parameters of a layer exist only where the layer does.
"""

import random

from ax.core.parameter import ChoiceParameter, ParameterType, RangeParameter
from ax.core.search_space import SearchSpace
from torch import nn

MAX_BLOCKS = MAX_LAYERS = 2
KERNELS = [1, 3, 5]
TYPES = ["conv", "separable", "downsampled"]


def integer(name, lower, upper, log=False):
    return RangeParameter(
        name=name, parameter_type=ParameterType.INT, lower=lower, upper=upper, log_scale=log
    )


def real(name, lower, upper, log=False):
    return RangeParameter(
        name=name, parameter_type=ParameterType.FLOAT, lower=lower, upper=upper, log_scale=log
    )


def choice(name, values, dependents=None):
    ordered = not isinstance(values[0], str)
    kind = ParameterType.INT if ordered else ParameterType.STRING
    return ChoiceParameter(
        name=name,
        parameter_type=kind,
        values=values,
        is_ordered=ordered,
        sort_values=ordered,
        dependents=dependents,
    )


def layer_names(block, layer):
    return [f"block_{block}_layer_{layer}_{what}" for what in ("type", "filters", "kernel")]


def search_space():
    """Return 32 parameters, of which 14 to 32 are active; the first five are mandatory."""
    parameters = [
        real("learning_rate", 1e-3, 2e-2, log=True),
        real("learning_gamma", 0.3, 0.9),
        real("learning_step", 0.1, 0.8),  # thousands of optimizer steps
        real("prune_threshold", 0.2, 0.8),  # share of the weights that end as zero
        choice("batch_size", [32, 64, 128]),
        choice("input_shrink", [1, 2, 4]),
        real("dropout", 0.0, 0.4),
        choice("num_blocks", [1, 2], {2: ["block_2_layers", "block_2_pool", *layer_names(2, 1)]}),
        # Ax wants a tree, each name below one value: hence a switch for each dense layer, not their number
        choice("dense_1", [0, 1], {1: ["dense_1_units", "dense_2"]}),
        integer("dense_1_units", 8, 64, log=True),
        choice("dense_2", [0, 1], {1: ["dense_2_units"]}),
        integer("dense_2_units", 8, 64, log=True),
    ]
    for i in range(1, MAX_BLOCKS + 1):
        parameters += [
            choice(f"block_{i}_layers", [1, 2], {2: layer_names(i, 2)}),
            choice(f"block_{i}_pool", [1, 2, 3]),
        ]
        for j in range(1, MAX_LAYERS + 1):
            of_type, filters, kernel = layer_names(i, j)
            reduction = f"block_{i}_layer_{j}_downsample"
            parameters += [
                choice(of_type, TYPES, {"downsampled": [reduction]}),
                integer(filters, 4, 64, log=True),
                choice(kernel, KERNELS),
                real(reduction, 0.25, 0.75),  # share of the input channels that is left out
            ]
    return SearchSpace(parameters=parameters)


def convolution(inputs, filters, kernel, groups=1):
    return [
        nn.Conv2d(inputs, filters, kernel, padding=kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(filters),
        nn.ReLU(),
    ]


def num_dense(p):
    """Return the number of dense layers before the last."""
    return p["dense_1"] and 1 + p["dense_2"]


class Net(nn.Module):
    """The network of a parametrization."""

    def __init__(self, parametrization, classes=10, input_shape=(1, 28, 28)):
        super().__init__()
        p, channels, side = parametrization, input_shape[0], input_shape[-1]
        layers = []
        if p["input_shrink"] > 1:
            layers += [nn.AvgPool2d(p["input_shrink"])]
            side //= p["input_shrink"]
        for i in range(1, p["num_blocks"] + 1):
            for j in range(1, p[f"block_{i}_layers"] + 1):
                of_type, filters, kernel = (p[name] for name in layer_names(i, j))
                if of_type == "separable":
                    layers += convolution(channels, channels, kernel, groups=channels)
                    layers += convolution(channels, filters, 1)
                elif of_type == "downsampled":
                    kept = max(1, round(channels * (1 - p[f"block_{i}_layer_{j}_downsample"])))
                    layers += convolution(channels, kept, 1)
                    layers += convolution(kept, filters, kernel)
                else:
                    layers += convolution(channels, filters, kernel)
                channels = filters
            pool = p[f"block_{i}_pool"]
            if pool > 1 and side >= 2 * pool:
                layers += [nn.MaxPool2d(pool)]
                side //= pool
        if side > 7:  # what is still large is not for a dense layer
            layers += [nn.AvgPool2d(side // 4)]
            side //= side // 4
        units, dense = channels * side * side, []
        for i in range(1, num_dense(p) + 1):
            dense += [nn.Linear(units, p[f"dense_{i}_units"]), nn.ReLU()]
            units = p[f"dense_{i}_units"]
        self.features = nn.Sequential(*layers, nn.Flatten())
        self.classifier = nn.Sequential(*dense, nn.Dropout(p["dropout"]), nn.Linear(units, classes))

    def forward(self, x):
        return self.classifier(self.features(x))


def _layer(config):
    block = random.randint(1, config["num_blocks"])
    return layer_names(block, random.randint(1, config[f"block_{block}_layers"]))


def num_blocks(config):
    """One block more or less; what the new one lacks is filled in."""
    config["num_blocks"] = 3 - config["num_blocks"]
    return config


def num_layers(config):
    """One layer more or less in a block."""
    name = f"block_{random.randint(1, config['num_blocks'])}_layers"
    config[name] = 3 - config[name]
    return config


def layer_type(config):
    """Another type of convolution."""
    config[_layer(config)[0]] = random.choice(TYPES)
    return config


def num_filters(config):
    """More or fewer filters in a layer."""
    name = _layer(config)[1]
    config[name] = round(config[name] * random.choice([0.5, 0.75, 1.33, 2]))
    return config


def kernel_size(config):
    """Another kernel in a layer."""
    config[_layer(config)[2]] = random.choice(KERNELS)
    return config


def downsampling(config):
    """Another size of the image, or pooling behind a block."""
    if random.random() < 0.5:
        config["input_shrink"] = random.choice([1, 2, 4])
    else:
        config[f"block_{random.randint(1, config['num_blocks'])}_pool"] = random.choice([1, 2, 3])
    return config


def dense_layers(config):
    """One dense layer more or less."""
    name = random.choice(["dense_1", "dense_2"]) if config["dense_1"] else "dense_1"
    config[name] = 1 - config[name]
    return config


def dense_units(config):
    """Another size of a dense layer."""
    if config["dense_1"]:
        name = f"dense_{random.randint(1, num_dense(config))}_units"
        config[name] = round(config[name] * random.choice([0.5, 2]))
    return config


def sparsity(config):
    """Prune harder or softer."""
    config["prune_threshold"] += random.choice([-0.1, 0.05, 0.1])
    return config


operations = {
    "num_blocks": num_blocks,
    "num_layers": num_layers,
    "layer_type": layer_type,
    "num_filters": num_filters,
    "kernel_size": kernel_size,
    "downsampling": downsampling,
    "dense_layers": dense_layers,
    "dense_units": dense_units,
    "sparsity": sparsity,
}
