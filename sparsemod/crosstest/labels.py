"""The class of each sample, which stratified splits look at."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import TensorDataset

from sparsemod.errors import DataError, user_code

__all__ = ["read_labels"]


def read_labels(dataset: Any, collate_fn: Any = None) -> NDArray[np.int64]:
    """Return the class of each sample.

    Args:
        dataset: Its samples are ``(input, label)``, or whatever the collate function takes.
        collate_fn: Makes ``(inputs, labels)`` of a list of samples. A sample that it cuts to pieces has the
            label of the first.

    Raises:
        CandidateError: Reading a sample or the collate function raised.
        DataError: A sample has no label.
    """
    if collate_fn is None and isinstance(dataset, TensorDataset):
        return np.asarray(dataset.tensors[1].reshape(len(dataset), -1)[:, 0].numpy(), dtype=np.int64)
    return np.array([_label(dataset, k, collate_fn) for k in range(len(dataset))], dtype=np.int64)


def _label(dataset: Any, index: int, collate_fn: Any) -> int:
    with user_code("dataset"):
        item = dataset[index]
    try:
        if collate_fn is not None:
            with user_code("collate_fn"):
                # Twice, since collate functions that squeeze their labels fail on a single sample.
                _, labels = collate_fn([item, item])
            return int(torch.as_tensor(labels).reshape(-1)[0])
        return int(torch.as_tensor(item[1]).reshape(-1)[0])
    except (TypeError, ValueError, LookupError, RuntimeError) as error:
        raise DataError(f"sample {index} has no label to stratify by; take split = kfold") from error
