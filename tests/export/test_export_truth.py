"""Random networks of four kinds: what is promised is what the real interpreter does."""

import pytest
import torch
from random_nets import SPACES, random_net

from sparsemod.compress.graph_quantization import quantize_graph
from sparsemod.export.tflite import write_tflite
from sparsemod.export.verify import compare
from sparsemod.measure.operators import lower
from sparsemod.measure.resources import arena, measure
from sparsemod.measure.targets import generic

pytest.importorskip("tflite_micro")


@pytest.mark.parametrize("seed", range(100, 104))
@pytest.mark.parametrize("space", SPACES)
def test_the_interpreter_agrees_with_arena_and_simulation(space, seed):
    net, samples = random_net(space, seed)
    graph = lower(net, samples[:1])
    quantized = quantize_graph(graph, [samples])
    comparison = compare(quantized, write_tflite(quantized), samples[:12])
    assert comparison.arena_bytes == arena(graph, "tflite-micro", core="generic").n_bytes
    assert comparison.arena_bytes == measure(graph, generic(1e6), "tflite-micro").working_memory_bytes
    assert comparison.equal_share >= 0.999
    assert comparison.largest_difference <= 1


def test_a_dead_channel_is_neither_in_the_file_nor_in_the_arena():
    net = torch.nn.Sequential(
        torch.nn.Conv2d(1, 8, 3, padding=1), torch.nn.ReLU(), torch.nn.Conv2d(8, 2, 3, padding=1)
    )
    samples = torch.randn(32, 1, 10, 10)
    sizes = []
    for n_dead in (0, 4):
        with torch.no_grad():
            net[0].weight[:n_dead] = 0
            net[0].bias[:n_dead] = -1
        quantized = quantize_graph(lower(net, samples[:1]), [samples])
        sizes.append(compare(quantized, content := write_tflite(quantized), samples[:2]))
        assert sizes[-1].agrees
        assert sizes[-1].file_bytes == len(content)
    # while the second layer runs: 100 pixels of 8, then of 4 values, and of 2, in steps of 16 bytes
    assert [c.arena_bytes for c in sizes] == [800 + 208, 400 + 208]
    assert sizes[1].file_bytes < sizes[0].file_bytes
