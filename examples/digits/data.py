"""The digits of scikit-learn: 1797 grey images of 8x8 pixels, ten classes."""

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch.utils.data import TensorDataset


def load_digits_sets(seed=0):
    """Return the list [training, validation, test] and the number of classes."""
    images, labels = load_digits(return_X_y=True)
    x = torch.tensor(images, dtype=torch.float32).view(-1, 1, 8, 8) / 16
    y = torch.tensor(labels, dtype=torch.long)
    rest, test = train_test_split(range(len(y)), test_size=0.2, stratify=y, random_state=seed)
    train, validation = train_test_split(rest, test_size=0.25, stratify=y[rest], random_state=seed)
    return [TensorDataset(x[part], y[part]) for part in (train, validation, test)], 10
