"""MNIST and a CIFAR-10 of two classes: from a path, from torchvision, or stand-ins that say so."""

import gzip
import os
import sys
from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch.utils.data import TensorDataset

from sparsemod import DataError

SHAPES = {"mnist": (28, 28), "cifar10_binary": (32, 32, 3)}
ANIMALS = (2, 3, 4, 5, 6, 7)  # bird, cat, deer, dog, frog, horse; the others are vehicles
ARRAYS = ("x_train", "y_train", "x_test", "y_test")
IDX = ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1")
CIFAR = ([f"data_batch_{i}.bin" for i in range(1, 6)], ["test_batch.bin"])


def load_image_sets(name, seed=0):
    """Return [training, validation, test] and the number of classes of `mnist` or `cifar10_binary`.

    The environment says where the images are and how many are used: IMAGE_DATA is an .npz file or a folder,
    IMAGE_COUNT the number of training images (all by default), a sixth of which is for validation.
    """
    if name not in SHAPES:
        raise DataError(f"name: expected one of {', '.join(SHAPES)}, got {name!r}")
    x_train, y_train, x_test, y_test = _arrays(name)
    if name == "cifar10_binary":
        y_train, y_test = (np.isin(y, ANIMALS).astype(np.int64) for y in (y_train, y_test))
    count = _count(len(x_train))
    kept = np.arange(len(x_train))
    if count < len(kept):
        kept, _ = train_test_split(kept, train_size=count, stratify=y_train, random_state=seed)
    train, validation = train_test_split(kept, test_size=1 / 6, stratify=y_train[kept], random_state=seed)
    datasets = [_dataset(x_train[part], y_train[part]) for part in (train, validation)]
    return [*datasets, _dataset(x_test, y_test)], 10 if name == "mnist" else 2


def _count(n):
    text = os.environ.get("IMAGE_COUNT", str(n))
    if not text.isdecimal() or int(text) < 120:
        raise DataError(f"IMAGE_COUNT: expected a number of training images from 120, got {text!r}")
    return min(n, int(text))


def _dataset(x, y):
    """Images as float32 (n, channels, height, width) from 0 to 1."""
    x = torch.from_numpy(np.array(x)).float() / 255
    x = x.unsqueeze(1) if x.dim() == 3 else x.permute(0, 3, 1, 2).contiguous()
    return TensorDataset(x, torch.from_numpy(np.asarray(y, dtype=np.int64)))


def _arrays(name):
    path = os.environ.get("IMAGE_DATA")
    if path:
        read = _folder if Path(path).is_dir() else _npz
        try:
            arrays = read(name, Path(path))
        except (OSError, ValueError, KeyError, EOFError) as error:
            raise DataError(f"IMAGE_DATA: {path} cannot be read as {name}: {_line(error)}") from None
        return _checked(name, path, arrays)
    try:
        import torchvision
    except ImportError:
        print(
            f"data: no {name}: set IMAGE_DATA or install torchvision. SYNTHETIC STAND-IN: the 8x8 digits of "
            "scikit-learn, enlarged; figures say nothing about the real data",
            file=sys.stderr,
        )
        return _stand_in(name)
    kind = torchvision.datasets.MNIST if name == "mnist" else torchvision.datasets.CIFAR10
    try:
        sets = [kind("downloads", train=train, download=True) for train in (True, False)]
    except (OSError, RuntimeError) as error:
        raise DataError(f"torchvision has no {name}: {_line(error)}; set IMAGE_DATA") from None
    return _checked(name, "torchvision", [np.asarray(a) for s in sets for a in (s.data, s.targets)])


def _line(error):
    return " ".join(str(error).split())


def _npz(name, path):
    with np.load(path, allow_pickle=False) as file:
        return [file[array] for array in ARRAYS]


def _folder(name, path):
    if name == "mnist":
        return [_idx(path, stem) for stem in IDX]
    arrays = []
    for files in CIFAR:
        records = np.concatenate([np.fromfile(path / file, np.uint8).reshape(-1, 3073) for file in files])
        arrays += [records[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1), records[:, 0]]
    return arrays


def _idx(path, stem):
    """Read a file of MNIST's own format, packed or not: a magic number, the sizes, the bytes."""
    plain = path / f"{stem}-ubyte"
    content = plain.read_bytes() if plain.exists() else gzip.decompress(Path(f"{plain}.gz").read_bytes())
    n_dimensions = int(stem[-1])
    if content[:4] != bytes([0, 0, 8, n_dimensions]):
        raise ValueError(f"{stem}-ubyte is no idx file of bytes with {n_dimensions} dimensions")
    shape = np.frombuffer(content, ">u4", n_dimensions, 4)
    return np.frombuffer(content, np.uint8, offset=4 + 4 * n_dimensions).reshape(shape)


def _checked(name, where, arrays):
    x_train, y_train, x_test, y_test = arrays
    for x, y in ((x_train, y_train), (x_test, y_test)):
        if x.shape[1:] != SHAPES[name] or x.dtype != np.uint8:
            raise DataError(f"{where}: expected uint8 images {SHAPES[name]}, got {x.dtype} {x.shape[1:]}")
        if len(x) < 120 or y.size != len(x) or not np.isin(y, range(10)).all():
            raise DataError(f"{where}: expected 120 images or more and a label 0 to 9 for each")
    return x_train, y_train.reshape(-1), x_test, y_test.reshape(-1)


def _stand_in(name):
    """Enlarge the 8x8 digits to the shape of the data set."""
    images, labels = load_digits(return_X_y=True)
    x = torch.from_numpy(images).float().view(-1, 1, 8, 8) * (255 / 16)
    x = torch.nn.functional.interpolate(x, SHAPES[name][:2], mode="bilinear").clamp(0, 255).byte().squeeze(1)
    if name != "mnist":
        x = x.unsqueeze(3).expand(-1, -1, -1, 3)
    split = train_test_split(x.numpy(), labels, test_size=0.25, stratify=labels, random_state=0)
    x_train, x_test, y_train, y_test = split
    return x_train, y_train, x_test, y_test
