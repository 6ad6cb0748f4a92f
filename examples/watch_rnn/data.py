"""Smartwatch recordings of seven shoulder exercises, ten persons, both arms; a person is in one set only."""

from pathlib import Path

import numpy as np
import torch
from torch.nn.utils.rnn import pack_sequence
from torch.utils.data import Dataset

RECORDINGS = Path(__file__).resolve().parent.parent / "watch_data" / "watch.npz"

VALIDATION = (3, 7)
TEST = (5, 9)

# A watch's sensor ends at about 4 g and 500 degrees a second; what ends there becomes 1.
SENSOR_RANGE = torch.tensor([4.0, 4.0, 4.0, 8.7, 8.7, 8.7])

# The left arm does what the right one does in a mirror. The watch knows on which wrist it is worn: a setting.
MIRROR = torch.tensor([-1.0, 1.0, 1.0, 1.0, -1.0, -1.0])


class Recordings(Dataset):
    """Recordings of different lengths: items are (signal (steps, 6), exercise)."""

    def __init__(self, signals, labels):
        self.signals, self.labels = signals, labels

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return self.signals[index], self.labels[index]


def load_watch_sets():
    """Return [training, validation, test], the number of classes, the person of each set's recordings."""
    with np.load(RECORDINGS) as file:
        stored = {name: file[name] for name in file.files}
    signals = torch.from_numpy(stored["signal"] * stored["scale"])
    signals = list(torch.tensor_split(signals, torch.from_numpy(stored["offsets"][1:-1]).long()))
    for i, right in enumerate(stored["right"]):
        worn = signals[i] if right else signals[i] * MIRROR
        signals[i] = halved((worn / SENSOR_RANGE).clamp(-1, 1))
    datasets, groups = [], []
    in_validation, in_test = np.isin(stored["subject"], VALIDATION), np.isin(stored["subject"], TEST)
    for chosen in (~in_validation & ~in_test, in_validation, in_test):
        members = np.flatnonzero(chosen)
        datasets.append(Recordings([signals[i] for i in members], stored["exercise"][members].tolist()))
        groups.append(stored["subject"][members].tolist())
    return datasets, len(stored["exercises"]), groups


def halved(signal):
    """Return a signal (steps, 6) at half its rate: a recurrent network takes 12.5 steps a second."""
    return signal[: len(signal) // 2 * 2].view(-1, 2, 6).mean(1)


def packed_windows(items, max_len):
    """Collate function: pieces of max_len steps, half overlapping, packed as a recurrent network takes them.

    The last piece of a recording is as long as it is: nothing is filled up with zeros.

    Args:
        items: A list of (signal (steps, 6), exercise).
        max_len: Steps of a piece, 12.5 a second.

    Returns:
        A `PackedSequence` of pieces (up to max_len steps, 6) and the exercise of each.
    """
    pieces, labels = [], []
    for signal, label in items:
        for start in range(0, max(1, len(signal) - max_len // 2), max_len // 2):
            pieces.append(signal[start : start + max_len])
            labels.append(label)
    return pack_sequence(pieces, enforce_sorted=False), torch.tensor(labels)
