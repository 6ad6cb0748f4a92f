"""What the watch examples do with recordings: cut, pack, turn; and where their data come from."""

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn.utils.rnn import pad_packed_sequence

EXAMPLES = Path(__file__).parents[2] / "examples"


def module(path):
    """Import a file under a name of its own, since every example has a data.py and a net.py."""
    name = "_".join(path.with_suffix("").parts[-2:])
    spec = importlib.util.spec_from_file_location(name, path)
    made = importlib.util.module_from_spec(spec)
    sys.modules[name] = made
    spec.loader.exec_module(made)
    return made


def ramp(n_steps):
    """A signal whose values tell its steps: (n_steps, 6), all channels alike."""
    return torch.arange(float(n_steps)).view(-1, 1).expand(-1, 6)


@pytest.mark.parametrize("name", ["watch_cnn", "watch_cnn_rnn"])
def test_windows_overlap_by_half_and_short_recordings_are_filled_up(name):
    windows = module(EXAMPLES / name / "data.py").windows
    x, y = windows([(ramp(10), 3), (ramp(3), 5)], max_len=4)
    assert x.shape == (5, 6, 4)
    assert x[:, 0, 0].tolist() == [0, 2, 4, 6, 0]
    assert x[4, 0].tolist() == [0, 1, 2, 0]
    assert y.tolist() == [3, 3, 3, 3, 5]


def test_packed_pieces_overlap_by_half_and_the_last_is_as_long_as_it_is():
    packed_windows = module(EXAMPLES / "watch_rnn" / "data.py").packed_windows
    packed, y = packed_windows([(ramp(3), 5), (ramp(9), 3)], max_len=4)
    x, lengths = pad_packed_sequence(packed, batch_first=True)
    assert lengths.tolist() == [3, 4, 4, 4, 3]
    assert x[:, 0, 0].tolist() == [0, 0, 2, 4, 6]
    assert x[4, :3, 5].tolist() == [6, 7, 8]
    assert y.tolist() == [5, 3, 3, 3, 3]


@pytest.mark.parametrize("name", ["watch_cnn", "watch_cnn_rnn"])
def test_a_worn_watch_is_turned_in_training_only(name):
    torch.manual_seed(0)
    worn = module(EXAMPLES / name / "net.py").Worn(0.3)
    x = torch.randn(5, 6, 20)
    torch.testing.assert_close(worn.eval()(x), x, rtol=0, atol=0)
    turned = worn.train()(x)
    assert not torch.allclose(turned, x, atol=0.01)
    for part in (slice(0, 3), slice(3, 6)):  # a rotation keeps lengths
        torch.testing.assert_close(turned[:, part].norm(dim=1), x[:, part].norm(dim=1))


def test_packed_pieces_are_turned_as_one_each():
    torch.manual_seed(0)
    worn = module(EXAMPLES / "watch_rnn" / "net.py").Worn(0.3).train()
    still = [torch.ones(n, 6) for n in (2, 5, 3)]
    packed = torch.nn.utils.rnn.pack_sequence(still, enforce_sorted=False)
    turned, lengths = pad_packed_sequence(worn(packed), batch_first=True)
    assert lengths.tolist() == [2, 5, 3]
    for piece, n in zip(turned, lengths, strict=True):  # what does not move stays so
        torch.testing.assert_close(piece[:n], piece[:1].expand(int(n), -1))
        torch.testing.assert_close(piece[0, :3], piece[0, 3:])
    assert not torch.allclose(turned[0, 0], turned[1, 0], atol=0.01)
    torch.testing.assert_close(worn.eval()(packed).data, packed.data, rtol=0, atol=0)


def test_the_data_are_converted_as_they_say(tmp_path):
    source = {
        "X": [np.full((5, 6), 1.0), np.arange(24.0).reshape(4, 6)],
        "y": np.array([2.0, 0.0]),
        "subject": np.array([7.0, 10.0]),
        "side": np.array([1.0, 0.0]),
        "X_labels": ["ax", "ay", "az", "wx", "wy", "wz"],
        "y_labels": ["PEN", "ABD", "TRAP"],
    }
    np.save(tmp_path / "watch_dataset.npy", np.array(source), allow_pickle=True)
    convert = module(EXAMPLES / "watch_data" / "convert.py").convert
    convert(tmp_path / "watch_dataset.npy", tmp_path / "watch.npz")
    with np.load(tmp_path / "watch.npz") as made, np.load(EXAMPLES / "watch_data" / "watch.npz") as shipped:
        values = made["signal"] * made["scale"]
        # 5 steps at 50 Hz are 2 at 25 Hz; the mean of the rows 0-5 and 6-11 is 3-8.
        assert made["offsets"].tolist() == [0, 2, 4]
        assert values[:2].tolist() == [[1.0] * 6] * 2
        assert values[2].tolist() == [3, 4, 5, 6, 7, 8]
        assert made["exercise"].tolist() == [2, 0]
        assert {k: v.dtype for k, v in made.items()} == {k: v.dtype for k, v in shipped.items()}
        assert shipped["offsets"][-1] == len(shipped["signal"])
        assert len(shipped["offsets"]) == 141
