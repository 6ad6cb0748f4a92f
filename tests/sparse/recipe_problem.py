"""The digits of scikit-learn and a small network for them, importable by worker processes."""

import torch
from ax.core.parameter import FixedParameter, ParameterType, RangeParameter
from ax.core.search_space import SearchSpace
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import TensorDataset

INT, FLOAT = ParameterType.INT, ParameterType.FLOAT

THREE_STAGES = """
epochs: 12
prune_threshold: 0.8

dense_stage:
  dense_modifiers:
    - !EpochRangeModifier
        start_epoch: 0
        end_epoch: eval(epochs / 4)
    - !SetLearningRateModifier
        start_epoch: 0
        learning_rate: 0.01

prune_stage:
  prune_modifiers:
    - !LearningRateFunctionModifier
        lr_func: cosine
        init_lr: 0.01
        final_lr: 0.001
        start_epoch: eval(epochs / 4)
        end_epoch: eval(epochs)
    - !GlobalMagnitudePruningModifier
        init_sparsity: 0.05
        final_sparsity: eval(prune_threshold)
        start_epoch: eval(epochs / 4)
        end_epoch: eval(epochs * 2 / 3)
        update_frequency: 0.25

qat_stage:
  qat_modifiers:
    - !QuantizationModifier
        start_epoch: eval(epochs * 3 / 4)
"""


def digits():
    """Return [training, validation, test]."""
    images, labels = load_digits(return_X_y=True)
    x = torch.tensor(images, dtype=torch.float32).view(-1, 1, 8, 8) / 16
    y = torch.tensor(labels)
    order = torch.randperm(len(y), generator=torch.Generator().manual_seed(0))
    return [TensorDataset(x[part], y[part]) for part in (order[:997], order[997:1397], order[1397:])]


class Net(nn.Sequential):
    def __init__(self, parametrization, classes=10, input_shape=(1, 8, 8)):
        width = parametrization["width"]
        super().__init__(
            nn.Conv2d(1, width, 3, padding=1),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(width, 2 * width, 3, padding=1),
            nn.BatchNorm2d(2 * width),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(32 * width, classes),
        )


def space(*more):
    return SearchSpace(
        parameters=[
            FixedParameter("learning_rate", FLOAT, 0.01),
            FixedParameter("learning_gamma", FLOAT, 0.5),
            FixedParameter("learning_step", FLOAT, 0.2),
            FixedParameter("batch_size", INT, 32),
            RangeParameter("prune_threshold", FLOAT, 0.7999, 0.8001),
            FixedParameter("width", INT, 12),
            *more,
        ]
    )


def arguments(root, **changes):
    """The keyword arguments of a search of one arm."""
    return {
        "r1": 1,
        "r2": 0,
        "r3": 0,
        "epochs1": 12,
        "epochs2": 12,
        "epochs3": 12,
        "name": "digits",
        "root": str(root),
        "objectives": 2,
        "morphisms": False,
        "pruning": True,
        "quant_scheme": "post",
        "target": "nRF52840",
        "datasets": digits(),
        "classes": 10,
        "search_space": space(),
        "net": Net,
        **changes,
    }
