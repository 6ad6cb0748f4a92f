"""Make watch.npz of the data in seglearn 1.2.5: pip install seglearn==1.2.5; python convert.py."""

from importlib.util import find_spec
from pathlib import Path

import numpy as np

STEPS_PER_UNIT = 256  # 1/256 g is 4 mg, below what an int8 input of a network tells apart


def package_file():
    spec = find_spec("seglearn")
    if spec is None or spec.origin is None:
        raise SystemExit("seglearn is not installed: pip install seglearn==1.2.5")
    return Path(spec.origin).parent / "data" / "watch_dataset.npy"


def convert(source, target):
    """Halve the rate to 25 Hz by the mean of two samples, round to 1/256 g and 1/256 rad/s, compress."""
    data = np.load(source, allow_pickle=True).item()
    halves = [x[: len(x) // 2 * 2].reshape(-1, 2, 6).mean(axis=1) for x in data["X"]]
    np.savez_compressed(
        target,
        signal=np.round(np.concatenate(halves) * STEPS_PER_UNIT).astype(np.int16),
        scale=np.float32(1 / STEPS_PER_UNIT),
        offsets=np.cumsum([0] + [len(x) for x in halves]).astype(np.int32),
        exercise=data["y"].astype(np.uint8),
        subject=data["subject"].astype(np.uint8),
        right=data["side"].astype(np.uint8),
        exercises=np.array(data["y_labels"]),
        channels=np.array(data["X_labels"]),
        rate_hz=np.int32(25),
    )


if __name__ == "__main__":
    convert(package_file(), Path(__file__).with_name("watch.npz"))
