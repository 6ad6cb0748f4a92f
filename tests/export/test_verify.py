import sys

import numpy as np
import pytest
import torch
from torch import nn

from sparsemod.compress.graph_quantization import quantize_graph
from sparsemod.errors import ConfigError, UnsupportedOperatorError
from sparsemod.export import verify
from sparsemod.export.tflite import write_tflite
from sparsemod.measure.operators import lower


@pytest.fixture(scope="module")
def small():
    torch.manual_seed(0)
    samples = torch.randn(64, 5)
    quantized = quantize_graph(lower(nn.Linear(5, 3), samples[:1]), [samples])
    return quantized, write_tflite(quantized), samples


def test_a_missing_interpreter_is_said_in_one_line(small, monkeypatch):
    monkeypatch.setitem(sys.modules, "tflite_micro", None)
    monkeypatch.setattr(verify.importlib.util, "find_spec", lambda name: None)
    assert not verify.can_compare()
    with pytest.raises(ConfigError, match=r"needs tflite-micro: pip install 'sparsemod\[verify\]'$"):
        verify.compare(*small)


class TestWithTheInterpreter:
    @pytest.fixture(autouse=True)
    def installed(self):
        pytest.importorskip("tflite_micro")

    def test_the_comparison_counts_what_it_compared(self, small):
        comparison = verify.compare(*small)
        assert comparison.agrees
        assert comparison.equal_share == 1.0
        assert (comparison.n_samples, comparison.n_values, comparison.n_same_class) == (64, 192, 64)
        assert comparison.arena_bytes == comparison.predicted_arena_bytes == 32  # 5 and 3 bytes in 16 each
        assert comparison.file_bytes == len(small[1])
        assert comparison.tail_bytes > 0

    def test_a_difference_is_found(self, small):
        quantized, content, samples = small
        weight = quantized.operators[0].weights[0].values.tobytes()
        changed = bytearray(weight)
        changed[0] = (changed[0] + 64) % 256
        comparison = verify.compare(quantized, content.replace(weight, bytes(changed)), samples)
        assert not comparison.agrees
        assert comparison.largest_difference > 1
        assert comparison.n_equal < comparison.n_values

    def test_a_file_that_the_interpreter_refuses_is_an_error_of_one_line(self, small):
        quantized, content, _ = small
        broken = content.replace(b"TFL3", b"TFL9")[: len(content) // 2]
        with pytest.raises(UnsupportedOperatorError, match="the interpreter refused the file") as caught:
            verify.run_interpreter(quantized, broken, [np.zeros((1, 1, 5), np.int8)], 32)
        assert "\n" not in str(caught.value)

    def test_a_state_does_not_leak_from_one_sequence_into_the_next(self):
        torch.manual_seed(0)

        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.r = nn.LSTM(2, 4, batch_first=True)

            def forward(self, x):
                return self.r(x)[0][:, -1]

        samples = torch.randn(32, 6, 2)
        quantized = quantize_graph(lower(Net(), samples[:1]), [samples])
        content = write_tflite(quantized)
        same = samples[:1].expand(4, 6, 2)
        assert verify.compare(quantized, content, same).agrees
