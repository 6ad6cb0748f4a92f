import numpy as np
import pytest
import torch
from random_nets import SPACES, random_net
from small_files import NETS, small_files, written
from torch import nn
from torch.nn import functional as F

from sparsemod.export.tflite_reader import parse_tflite
from sparsemod.measure.resources import arena, planned
from sparsemod.measure.sizes import n_parameters, tflite_parts
from sparsemod.measure.tail import n_file_tensors, tail_bytes

LISTS = {"condition", "body"}


def held_weights(quantized):
    """Yield the stored weights of a network, then those of its loops."""
    for held in quantized.operators:
        yield from held.weights
    for held in quantized.operators:
        for part in (held.condition, held.body):
            if part is not None:
                yield from held_weights(part)


def as_stored(value):
    """Round a number of the network to what a file holds."""
    return float(np.float32(value)) if isinstance(value, float) else value


def same(read, graph):
    """Compare two lists of operators word by word."""
    assert [t.shape for t in read.tensors] == [t.shape for t in graph.tensors]
    assert [t.dtype for t in read.tensors] == [t.dtype for t in graph.tensors]
    assert (read.inputs, read.outputs) == (graph.inputs, graph.outputs)
    for got, want in zip(read.operators, graph.operators, strict=True):
        assert (got.kind, got.inputs, got.outputs) == (want.kind, want.inputs, want.outputs)
        assert got.n_macs == want.n_macs
        attributes = {k: as_stored(v) for k, v in want.attributes.items() if k not in LISTS}
        assert {k: v for k, v in got.attributes.items() if k in attributes} == attributes
        for part in LISTS & set(want.attributes):
            same(got.attributes[part], want.attributes[part])


def check_round_trip(quantized, content):
    read = parse_tflite(content)
    same(read.graph, quantized.graph)
    assert read.grids == tuple(
        None if grid is None else (np.float32(grid.scale), grid.zero_point) for grid in quantized.grids
    )
    stored = list(held_weights(quantized))
    got = [read.weights[w.name] for part in read.graph.lists() for op in part.operators for w in op.weights]
    assert len(got) == len(stored)
    for mine, theirs in zip(got, stored, strict=True):
        np.testing.assert_array_equal(mine.values.values(), theirs.values)
        np.testing.assert_array_equal(mine.values.scales, theirs.scales)
        if theirs.bias is not None:
            np.testing.assert_array_equal(mine.bias.values(), theirs.bias)
    assert planned(read.graph, "tflite-micro").n_bytes == arena(quantized.graph, "tflite-micro").n_bytes
    assert read.n_tensors == n_file_tensors(quantized.graph)
    assert tail_bytes(read.graph, read.n_tensors) == tail_bytes(quantized.graph)
    assert read.sizes.file_bytes == len(content)


@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize("seed", range(6))
def test_a_file_of_ours_reads_back_as_what_was_written(space, seed):
    net, samples = random_net(space, seed)
    check_round_trip(*written(net, samples))


@pytest.mark.parametrize("name", NETS)
def test_a_small_file_reads_back_as_what_was_written(name):
    build, shape = NETS[name]
    torch.manual_seed(0)
    check_round_trip(*written(build(), torch.randn(32, *shape)))


class Pieces(nn.Module):
    """Every operator that the random networks leave out."""

    def __init__(self):
        super().__init__()
        self.c = nn.Conv2d(4, 8, 3, padding=1, groups=2)

    def forward(self, x):
        y = self.c(x)
        y = torch.cat([F.elu(y), torch.tanh(y), F.relu6(y)], 1)
        y = F.interpolate(F.pad(y, (1, 0, 0, 1)), scale_factor=2, mode="nearest")
        y = torch.maximum(y, y * 0.5) - y.sigmoid()
        z = y.permute(0, 2, 1, 3)[:, 1:7:2]
        return F.log_softmax(z.amax(3).sum(2), 1), y.amin((2, 3)), F.leaky_relu(y[:, :, 0], 0.25)


def test_operators_of_all_sorts_read_back():
    torch.manual_seed(0)
    check_round_trip(*written(Pieces(), torch.randn(32, 4, 6, 6)))


def test_the_value_of_a_pad_reads_back_as_what_the_grid_has():
    class Net(nn.Module):
        def forward(self, x):
            return F.pad(x, (1, 1), value=0.5) * 2

    quantized, content = written(Net(), torch.randn(32, 4, 6))
    got = parse_tflite(content).graph.operators[0]
    assert got.kind == "pad"
    assert got.attributes["value"] == pytest.approx(0.5, abs=quantized.grid(1).scale)


@pytest.mark.parametrize("name", NETS)
def test_the_parts_of_a_file_are_those_of_the_network(name):
    read = parse_tflite(small_files()[name])
    values, biases, _ = tflite_parts(read.graph)
    sizes = read.sizes
    assert sizes.tensors_bytes - sizes.constants_bytes == values + biases
    assert n_parameters(read.graph) == values + biases // 4
    assert 0 < sizes.overhead_bytes < sizes.file_bytes
