import pytest
import torch
from graph_interpreter import run
from net_zoo import ZOO, Packed, built
from torch.nn.utils.rnn import pack_sequence
from torch.utils import _pytree as pytree

from sparsemod.measure.operators import lower


def assert_same_function(net, *inputs, **arguments):
    graph = lower(net, *inputs, **arguments)
    with torch.no_grad():
        expected = pytree.tree_leaves(net.eval()(*inputs))
    for got, want in zip(run(graph, *inputs), expected, strict=True):
        assert got.shape == want.shape
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)
    return graph


@pytest.mark.parametrize("name", [name for name, (_, _, exact) in ZOO.items() if exact])
def test_the_operators_compute_what_the_network_does(name):
    graph = assert_same_function(*built(name))
    assert not graph.unexportable()
