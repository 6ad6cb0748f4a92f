"""What is searched: the parameters, the network they describe, and the morphisms that change it."""

import random

import torch
from ax.core.parameter import ChoiceParameter, ParameterType, RangeParameter
from ax.core.search_space import SearchSpace
from torch import nn
from torch.nn.utils.rnn import PackedSequence

MAX_LAYERS = 2
WINDOWS = [24, 36, 48]  # steps, 12.5 a second


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
    """Return 12 parameters; the first five are mandatory, max_len is handed to the collate function."""
    return SearchSpace(
        parameters=[
            real("learning_rate", 3e-3, 2e-2, log=True),
            real("learning_gamma", 0.3, 0.7),
            real("learning_step", 0.1, 0.3),  # thousands of optimizer steps
            real("prune_threshold", 0.2, 0.8),  # share of the weights that end as zero
            choice("batch_size", [4, 8]),  # recordings, each of which is cut into two dozen pieces or more
            choice("max_len", WINDOWS),
            real("rotation", 0.0, 0.4),  # radians, how loosely the watch is worn
            real("dropout", 0.0, 0.4),
            choice("cell", ["lstm", "gru"]),
            integer("num_layers", 1, MAX_LAYERS),
            integer("layer_1_units", 12, 48, log=True),
            integer("layer_2_units", 12, 48, log=True),
        ]
    )


class Worn(nn.Module):
    """Turn the watch on its wrist, in training only, as dropout is: each piece by an angle of its own."""

    def __init__(self, angle):
        super().__init__()
        self.angle = angle

    def forward(self, packed):
        if not self.training or self.angle == 0:
            return packed
        steps, sizes = packed.data, packed.batch_sizes
        turned = rotations(self.angle, int(sizes[0])).to(steps)
        # The steps lie one after another: the first of every piece, then the second of every piece, ...
        piece = torch.cat([torch.arange(int(n)) for n in sizes]).to(steps.device)
        both = torch.einsum("nij,nkj->nki", turned[piece], steps.view(-1, 2, 3))
        return packed._replace(data=both.reshape(-1, 6))


def rotations(angle, n):
    """Return n rotations (n, 3, 3) about random axes, by angles of this standard deviation."""
    axis = nn.functional.normalize(torch.randn(n, 3))
    x, y, z = (axis * angle * torch.randn(n, 1)).unbind(1)
    zero = torch.zeros_like(x)
    generators = torch.stack([zero, -z, y, z, zero, -x, -y, x, zero], dim=1)
    return torch.linalg.matrix_exp(generators.view(n, 3, 3))


class Net(nn.Module):
    """One or two recurrent layers over a packed sequence; the last state is classified by a dense layer."""

    def __init__(self, parametrization, classes=7, input_shape=(48, 6)):
        super().__init__()
        kind = {"lstm": nn.LSTM, "gru": nn.GRU}[parametrization["cell"]]
        units = input_shape[-1]
        layers = []
        for i in range(1, parametrization["num_layers"] + 1):
            layers.append(kind(units, parametrization[f"layer_{i}_units"]))
            units = parametrization[f"layer_{i}_units"]
        self.worn = Worn(parametrization["rotation"])
        self.layers = nn.ModuleList(layers)
        self.dropout = nn.Dropout(parametrization["dropout"])
        self.classifier = nn.Linear(units, classes)

    def forward(self, x: PackedSequence):
        x = self.worn(x)
        for layer in self.layers:
            x, state = layer(x)
        last = state[0] if isinstance(state, tuple) else state
        return self.classifier(self.dropout(last[-1]))


def cell(config):
    """LSTM or GRU."""
    config["cell"] = random.choice(["lstm", "gru"])
    return config


def num_layers(config):
    """The other number of layers."""
    config["num_layers"] = 3 - config["num_layers"]
    return config


def num_units(config):
    """More or fewer units in a layer."""
    name = f"layer_{random.randint(1, config['num_layers'])}_units"
    config[name] = round(config[name] * random.choice([0.5, 0.75, 1.33, 2]))
    return config


def window(config):
    """Another length of the pieces."""
    config["max_len"] = random.choice(WINDOWS)
    return config


def sparsity(config):
    """Prune harder or softer."""
    config["prune_threshold"] += random.choice([-0.1, 0.05, 0.1])
    return config


operations = {
    "cell": cell,
    "num_layers": num_layers,
    "num_units": num_units,
    "window": window,
    "sparsity": sparsity,
}
