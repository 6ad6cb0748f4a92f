"""Touches of an 8x8 pressure grid: the Corpus of Social Touch from CoST.csv, or a stand-in that says so."""

import os
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch.utils.data import Dataset

from sparsemod import DataError

LABELS = ("gesture", "subject", "variant", "frame")
HIGHEST = 1023  # of a channel, 10 bits
STAND_IN = ("press", "tap", "stroke", "rub", "pat", "poke")


class Touches(Dataset):
    """Touches of different lengths: items are (frames (steps, 8, 8) from 0 to 1, gesture)."""

    def __init__(self, frames, labels):
        self.frames, self.labels = frames, labels

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return self.frames[index], self.labels[index]


def load_touch_sets():
    """Return [training, validation, test], the number of classes, the person of each set's touches.

    The environment variable COST_CSV says where the file is, if it is not beside this one. Nobody is in two
    sets.
    """
    path = Path(os.environ.get("COST_CSV") or Path(__file__).resolve().parent / "CoST.csv")
    if path.exists() or "COST_CSV" in os.environ:
        touches = read_cost(path)
    else:
        print(
            "data: no CoST.csv here and no COST_CSV in the environment. SYNTHETIC STAND-IN: invented "
            "touches; figures say nothing about the real data",
            file=sys.stderr,
        )
        touches = stand_in()
    names = sorted({gesture for _, gesture, _ in touches})
    persons = sorted({person for _, _, person in touches}, key=lambda p: (len(p), p))
    if len(names) < 2 or len(persons) < 3:
        raise DataError(
            f"{path}: expected 2 gestures or more by 3 persons or more, got {len(names)} by {len(persons)}"
        )
    turn = {person: i % 5 for i, person in enumerate(persons)}  # of five persons, one validates, one tests
    datasets, groups = [], []
    for chosen in ({0, 3, 4}, {1}, {2}):
        part = [touch for touch in touches if turn[touch[2]] in chosen]
        datasets.append(Touches([frames for frames, _, _ in part], [names.index(g) for _, g, _ in part]))
        groups.append([person for _, _, person in part])
    return datasets, len(names), groups


def read_cost(path):
    """Return (frames (steps, 8, 8), gesture, subject) for each touch of the file.

    Raises:
        DataError: It is not a table of the columns that README.md lists.
    """
    try:
        table = pd.read_csv(path, skipinitialspace=True)
    except FileNotFoundError:
        raise DataError(f"{path}: no such file") from None
    except (OSError, ValueError) as error:  # pandas' own errors are ValueErrors
        raise DataError(f"{path}: cannot be read as CSV: {' '.join(str(error).split())}") from None
    table.columns = [str(column).strip().lower() for column in table.columns]
    for label in LABELS:
        if list(table.columns).count(label) != 1:
            raise DataError(f"{path}: expected one column '{label}', got {', '.join(table.columns[:6])}, ...")
    if not isinstance(table.index, pd.RangeIndex):
        raise DataError(f"{path}: expected as many names in the first line as values in the others")
    values = table.drop(columns=list(LABELS))
    if values.shape[1] != 64 or not len(values):
        raise DataError(
            f"{path}: expected 64 channels and a frame or more, got {values.shape[1]} and {len(values)}"
        )
    numbers = pd.concat([values, table[["frame"]]], axis=1).apply(pd.to_numeric, errors="coerce")
    ill = numbers.isna() | (numbers < 0)
    ill[values.columns] |= numbers[values.columns] > HIGHEST
    if ill.to_numpy().any():
        row, column = np.argwhere(ill.to_numpy())[0]
        wanted = "a number from 0" if ill.columns[column] == "frame" else f"a number from 0 to {HIGHEST}"
        got = table[ill.columns[column]].iloc[row]
        raise DataError(
            f"{path} line {row + 2}, column '{ill.columns[column]}': expected {wanted}, got {got}"
        )
    of_touch = table[["gesture", "subject", "variant"]].astype(str).apply(lambda column: column.str.strip())
    # The file has no number of the repetition: a touch ends where the frames do not count on.
    begins = (numbers["frame"].diff() != 1) | (of_touch != of_touch.shift()).any(axis=1)
    starts = np.flatnonzero(begins)
    frames = torch.from_numpy(numbers[values.columns].to_numpy(np.float32) / HIGHEST).view(-1, 8, 8)
    frames = frames.flip(1)  # the grid's first row is the last one that is read
    pieces = torch.tensor_split(frames, torch.from_numpy(starts[1:]))
    rows = of_touch.iloc[starts]
    return list(zip(pieces, rows["gesture"], rows["subject"], strict=True))


def pieces(items, max_len):
    """Collate function: pieces of max_len frames one after the other, the frames as channels.

    Args:
        items: A list of (frames (steps, 8, 8), gesture).
        max_len: Frames of a piece. A shorter touch is filled up with zeros; what is left over at the end of a
            longer one is left out.

    Returns:
        Pieces (n, max_len, 8, 8) and the gesture of each.
    """
    cut, labels = [], []
    for frames, label in items:
        missing = max(0, max_len - len(frames))
        frames = torch.nn.functional.pad(frames, (0, 0, 0, 0, 0, missing))
        n = len(frames) // max_len
        cut.append(frames[: n * max_len].view(n, max_len, 8, 8))
        labels += [label] * n
    return torch.cat(cut), torch.tensor(labels)


def stand_in(n_persons=10, n_touches=5, seed=0):
    """Invent touches: a soft spot whose place, size and pressure change as the gesture has it."""
    rng = np.random.default_rng(seed)
    touches = []
    for person in range(1, n_persons + 1):
        strength, speed = rng.uniform(0.5, 1.0), rng.uniform(0.7, 1.4)
        for gesture in STAND_IN:
            for _ in range(n_touches):
                steps = int(rng.integers(30, 90))
                frames = _invented(gesture, np.arange(steps) * speed / 12, strength, rng)
                touches.append((torch.from_numpy(frames.astype(np.float32)), gesture, str(person)))
    return touches


def _invented(gesture, time, strength, rng):
    """Return frames (steps, 8, 8) from 0 to 1; time is in beats of the hand."""
    x, y = (np.full(len(time), at) for at in rng.uniform(2.5, 4.5, 2))
    size, pressure = (2.0 if gesture in {"press", "pat"} else 1.0), np.ones(len(time))
    if gesture in {"tap", "pat"}:
        pressure = np.clip(np.sin(2 * np.pi * time), 0, 1)
    elif gesture == "poke":
        pressure = (time < 0.5) * 1.0
    elif gesture == "stroke":
        x = 7 * (time % 1)
    elif gesture == "rub":
        x = x + 2 * np.sin(2 * np.pi * time)
    rows, columns = np.mgrid[0:8, 0:8]
    away = (columns - x[:, None, None]) ** 2 + (rows - y[:, None, None]) ** 2
    frames = strength * pressure[:, None, None] * np.exp(-away / (2 * size**2))
    return np.clip(frames + 0.08 * rng.standard_normal(frames.shape), 0, 1)
