"""The examples of images and touches: what they read and refuse, and a search on given data."""

import gzip
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from sparsemod import DataError
from sparsemod.space.space import Space

EXAMPLES = Path(__file__).parents[2] / "examples"
CHANNELS = [f"ch{i}" for i in range(1, 65)]


def module(path):
    """Import a file under a name of its own, since every example has a data.py and a net.py."""
    name = "_".join(path.with_suffix("").parts[-2:])
    spec = importlib.util.spec_from_file_location(name, path)
    made = importlib.util.module_from_spec(spec)
    sys.modules[name] = made
    spec.loader.exec_module(made)
    return made


@pytest.fixture(scope="module")
def images():
    return module(EXAMPLES / "mnist" / "data.py")


@pytest.fixture(scope="module")
def touches():
    return module(EXAMPLES / "touch_cnn" / "data.py")


def arrays(shape=(28, 28), n=180):
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (2 * n, *shape), dtype=np.uint8)
    y = (np.arange(2 * n) % 10).astype(np.uint8)
    return {"x_train": x[:n], "y_train": y[:n], "x_test": x[n:], "y_test": y[n:]}


def searched(name, tmp_path, environment):
    """Run the short search of an example with an arm a stage, in a folder of its own."""
    for file in ("main.py", "data.py", "net.py"):
        (tmp_path / file).write_text((EXAMPLES / name / file).read_text())
    short = (EXAMPLES / name / "short.cfg").read_text()
    for key, value in {
        "batch_size": 1,
        "r1": 1,
        "epochs1": 1,
        "epochs2": 1,
        "epochs3": 1,
        **environment,
    }.items():
        lines = [f"{key} = {value}" if s.startswith(f"{key} =") else s for s in short.splitlines()]
        short = "\n".join(lines)
    (tmp_path / "config.cfg").write_text(short)
    done = subprocess.run(
        [sys.executable, "main.py"],
        cwd=tmp_path,
        env={
            **os.environ,
            "PYTHONPATH": str(EXAMPLES.parent),
            "OMP_NUM_THREADS": "1",
            **{key: str(value) for key, value in environment.items() if key.isupper()},
        },
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 arms, 0 failed." in done.stdout
    assert "STAND-IN" not in done.stderr
    return done


@pytest.mark.slow
def test_two_classes_of_cifar10_are_searched(tmp_path):
    np.savez(tmp_path / "cifar.npz", **arrays((32, 32, 3)))
    given = {"name": "cifar10_binary", "constraints": "working_memory=16384"}
    searched("mnist", tmp_path, {**given, "IMAGE_DATA": tmp_path / "cifar.npz"})
    rows = pd.read_csv(tmp_path / "results-short" / "cifar10_binary.csv")
    assert set(rows["stage"]) == {1, 2, 3}


@pytest.mark.slow
def test_a_given_cost_file_is_searched(tmp_path, touches):
    table = []
    for frames, gesture, person in touches.stand_in(n_persons=5, n_touches=1):
        raw = (frames.flip(1).reshape(len(frames), 64) * 1023).round().int().numpy()
        table += [[gesture, person, 1, i + 1, *row] for i, row in enumerate(raw)]
    names = ["gesture", " subject", " variant", " frame", *(f" {name}" for name in CHANNELS)]
    pd.DataFrame(table, columns=names).to_csv(tmp_path / "CoST.csv", index=False)
    searched("touch_cnn", tmp_path, {"COST_CSV": ""})
    read = touches.read_cost(tmp_path / "CoST.csv")
    assert len(read) == 5 * len(touches.STAND_IN)
    original = touches.stand_in(n_persons=5, n_touches=1)[7]
    torch.testing.assert_close(read[7][0], original[0], rtol=0, atol=0.5 / 1023)
    assert read[7][1:] == original[1:]


@pytest.mark.parametrize("packed", [False, True])
def test_mnist_is_read_from_its_own_files(images, tmp_path, packed, monkeypatch):
    given = arrays()
    for stem, array in zip(images.IDX, given.values(), strict=True):
        header = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">u4").tobytes()
        content = header + array.tobytes()
        name = f"{stem}-ubyte"
        (tmp_path / (f"{name}.gz" if packed else name)).write_bytes(
            gzip.compress(content) if packed else content
        )
    monkeypatch.setenv("IMAGE_DATA", str(tmp_path))
    (train, validation, test), classes = images.load_image_sets("mnist")
    assert (len(train), len(validation), len(test), classes) == (150, 30, 180, 10)
    x, y = test.tensors
    torch.testing.assert_close(x[:, 0], torch.from_numpy(given["x_test"]) / 255)
    assert y.tolist() == given["y_test"].tolist()


def test_cifar10_is_read_from_its_binary_files(images, tmp_path, monkeypatch):
    given = arrays((32, 32, 3), n=300)
    records = [
        np.concatenate([y[:, None], x.transpose(0, 3, 1, 2).reshape(len(x), -1)], axis=1)
        for x, y in ((given["x_train"], given["y_train"]), (given["x_test"], given["y_test"]))
    ]
    for i in range(5):
        (tmp_path / f"data_batch_{i + 1}.bin").write_bytes(records[0][60 * i : 60 * i + 60].tobytes())
    (tmp_path / "test_batch.bin").write_bytes(records[1].tobytes())
    monkeypatch.setenv("IMAGE_DATA", str(tmp_path))
    (_, _, test), classes = images.load_image_sets("cifar10_binary")
    assert classes == 2
    x, y = test.tensors
    torch.testing.assert_close(x, torch.from_numpy(given["x_test"]).permute(0, 3, 1, 2) / 255)
    assert y[:10].tolist() == [0, 0, 1, 1, 1, 1, 1, 1, 0, 0]  # airplane, car, six animals, ship, truck


def test_fewer_images_keep_the_shares_of_the_classes(images, tmp_path, monkeypatch):
    np.savez(tmp_path / "some.npz", **arrays())
    monkeypatch.setenv("IMAGE_DATA", str(tmp_path / "some.npz"))
    monkeypatch.setenv("IMAGE_COUNT", "120")
    (train, validation, _), _ = images.load_image_sets("mnist")
    assert (len(train), len(validation)) == (100, 20)
    assert torch.bincount(train.tensors[1]).tolist() == [10] * 10


@pytest.mark.parametrize("name", ["mnist", "cifar10_binary"])
def test_the_stand_in_says_so(images, name, monkeypatch, capsys):
    monkeypatch.delenv("IMAGE_DATA", raising=False)
    monkeypatch.setitem(sys.modules, "torchvision", None)
    (train, _, _), classes = images.load_image_sets(name)
    assert "SYNTHETIC STAND-IN" in capsys.readouterr().err
    assert train[0][0].shape == ((1, 28, 28) if name == "mnist" else (3, 32, 32))
    assert 0 <= train.tensors[0].min() < train.tensors[0].max() <= 1
    assert train.tensors[1].unique().tolist() == list(range(classes))


@pytest.mark.parametrize(
    ("name", "path", "count", "words"),
    [
        ("minst", "good.npz", "", "expected one of mnist, cifar10_binary, got 'minst'"),
        ("mnist", "nowhere.npz", "", "nowhere.npz cannot be read as mnist"),
        ("mnist", "text.npz", "", "text.npz cannot be read as mnist"),
        ("mnist", ".", "", "cannot be read as mnist"),
        ("cifar10_binary", "good.npz", "", "expected uint8 images (32, 32, 3), got uint8 (28, 28)"),
        ("mnist", "good.npz", "ten", "IMAGE_COUNT: expected a number of training images from 120, got 'ten'"),
    ],
)
def test_image_data_that_cannot_be_used_are_one_line(images, tmp_path, monkeypatch, name, path, count, words):
    np.savez(tmp_path / "good.npz", **arrays())
    (tmp_path / "text.npz").write_text("no zip file")
    monkeypatch.setenv("IMAGE_DATA", str(tmp_path / path))
    if count:
        monkeypatch.setenv("IMAGE_COUNT", count)
    with pytest.raises(DataError) as raised:
        images.load_image_sets(name)
    assert words in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("name", ["mnist", "touch_cnn"])
def test_every_configuration_and_every_child_makes_a_network(name):
    net = module(EXAMPLES / name / "net.py")
    space = Space.from_ax(net.search_space())
    rng = np.random.default_rng(0)
    for unit in rng.random((40, space.n_unit)):
        parametrization = space.from_unit(unit)
        for operation in net.operations.values():
            parametrization = space.repair(operation(dict(parametrization)), rng)
        shape = (parametrization["max_len"], 8, 8) if name == "touch_cnn" else (1, 28, 28)
        made = net.Net(parametrization, 10, shape).eval()
        assert made(torch.zeros(2, *shape)).shape == (2, 10)


def cost(rows, columns=None):
    """A small CoST.csv as text: rows of (gesture, subject, variant, frame), each with 64 channels."""
    lines = [",".join(columns or ["gesture", "subject", "variant", "frame", *CHANNELS])]
    lines += [",".join([*map(str, row), *["512"] * 63, "1023"]) for row in rows]
    return "\n".join(lines) + "\n"


def test_a_touch_ends_where_the_frames_do_not_count_on_or_a_label_changes(touches, tmp_path):
    rows = [
        *[(1, 1, 1, i) for i in (1, 2, 3)],
        *[(1, 1, 1, i) for i in (1, 2)],  # the same gesture again
        *[(1, 1, 1, i) for i in (7, 8)],  # a gap
        *[(1, 1, 2, i) for i in (9,)],  # another variant
        *[(2, 1, 2, i) for i in (10, 11)],  # another gesture
    ]
    (tmp_path / "CoST.csv").write_text(cost(rows))
    read = touches.read_cost(tmp_path / "CoST.csv")
    assert [len(frames) for frames, _, _ in read] == [3, 2, 2, 1, 2]
    assert [gesture for _, gesture, _ in read] == ["1", "1", "1", "1", "2"]
    grid = read[0][0][0]
    assert grid[0, 7] == 1  # channel 64 is the end of the last row read, which is the grid's first
    assert grid[1:].unique().tolist() == pytest.approx([512 / 1023])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "CoST.csv: no such file"),
        ("", "cannot be read as CSV"),
        (cost([]), "expected 64 channels and a frame or more, got 64 and 0"),
        (cost([(1, 1, 1, 1)]).replace("subject", "person"), "expected one column 'subject'"),
        (cost([(1, 1, 1, 1)]).replace(",ch7,", ","), "expected as many names in the first line as values"),
        (cost([(1, 1, 1, 1)]).replace(",ch64", ",ch64,x").replace("1023", "1023,0"), "got 65 and 1"),
        (
            cost([(1, 1, 1, 1)]).replace("1023", "1024"),
            "line 2, column 'ch64': expected a number from 0 to 1023",
        ),
        (cost([(1, 1, 1, 1), (1, 1, 1, "x")]), "line 3, column 'frame': expected a number from 0, got x"),
        (cost([(1, 1, 1, 1)]), "expected 2 gestures or more by 3 persons or more, got 1 by 1"),
    ],
)
def test_a_cost_file_that_cannot_be_used_is_one_line(touches, tmp_path, monkeypatch, text, words):
    path = tmp_path / "CoST.csv"
    if text is not None:
        path.write_text(text)
    monkeypatch.setenv("COST_CSV", str(path))
    with pytest.raises(DataError) as raised:
        touches.load_touch_sets()
    assert words in str(raised.value)
    assert "\n" not in str(raised.value)


def test_touches_are_cut_and_filled_up(touches):
    frames = torch.arange(1.0, 12.0).view(-1, 1, 1).expand(-1, 8, 8)
    x, y = touches.pieces([(frames, 3), (frames[:2], 5)], max_len=4)
    assert x.shape == (3, 4, 8, 8)
    assert x[:, :, 0, 0].tolist() == [[1, 2, 3, 4], [5, 6, 7, 8], [1, 2, 0, 0]]
    assert y.tolist() == [3, 3, 5]


def test_nobody_who_touches_is_in_two_sets(touches, monkeypatch, capsys):
    monkeypatch.delenv("COST_CSV", raising=False)
    datasets, classes, groups = touches.load_touch_sets()
    assert "SYNTHETIC STAND-IN" in capsys.readouterr().err
    assert classes == len(touches.STAND_IN)
    assert [len(set(group)) for group in groups] == [6, 2, 2]
    assert len({person for group in groups for person in set(group)}) == 10
    assert [len(dataset) for dataset in datasets] == [len(group) for group in groups]
