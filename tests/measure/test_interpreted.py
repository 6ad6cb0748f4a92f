import itertools

import numpy as np
import pytest
import torch
from net_zoo import ZOO, Lambda, built
from torch import nn

from sparsemod.measure.graph_interpreter import run
from sparsemod.measure.interpreted import interpreted
from sparsemod.measure.memory import buffers
from sparsemod.measure.operators import lower
from sparsemod.measure.resources import arena


def kinds(graph):
    return [operator.kind for operator in graph.operators]


def lowered(net, *shape):
    torch.manual_seed(0)
    return lower(net.eval(), torch.zeros(1, *shape))


@pytest.mark.parametrize("name", [name for name, (_, _, exact) in ZOO.items() if exact])
def test_the_function_stays_the_same(name):
    net, x = built(name)
    graph = lower(net, x)
    for got, want in zip(run(interpreted(graph), x), run(graph, x), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["residual", "cnn_lstm", "gru_all_states", "inception", "squeeze_excite"])
def test_a_batch_gives_what_its_samples_give(name):
    net, x = built(name)
    graph = interpreted(lower(net, x))
    samples = [torch.randn_like(x) for _ in range(3)]
    together = run(graph, torch.cat(samples))
    for i, sample in enumerate(samples):
        for got, want in zip(together, run(graph, sample), strict=True):
            torch.testing.assert_close(got[i : i + 1], want, rtol=1e-4, atol=1e-5)


def test_every_value_is_shown_to_an_observer():
    net = nn.Sequential(nn.Conv2d(1, 2, 1), nn.ReLU(), nn.Flatten(), nn.Linear(8, 1))
    seen = {}
    graph = lowered(net, 1, 2, 2)
    run(graph, torch.randn(5, 1, 2, 2), lambda name, x: seen.update({name: x}))
    assert list(seen) == [tensor.name for tensor in graph.tensors]
    assert seen["0:conv_2d"].shape == (5, 1, 2, 2, 2)
    assert float(seen["0:conv_2d"].min()) >= 0  # behind the activation


class TestLstm:
    def test_forward_ones_stay(self):
        net = Lambda(lambda m, x: m.r(x)[0], r=nn.LSTM(3, 4, batch_first=True))
        graph = lowered(net, 6, 3)
        assert kinds(interpreted(graph)) == kinds(graph) == ["unidirectional_sequence_lstm"]

    def test_one_in_reverse_reads_a_reversed_sequence_and_reverses_its_states(self):
        net = Lambda(lambda m, x: m.r(x)[0], r=nn.LSTM(3, 4, batch_first=True, bidirectional=True))
        assert kinds(interpreted(lowered(net, 6, 3))) == [
            "unidirectional_sequence_lstm",
            "reverse",
            "unidirectional_sequence_lstm",
            "reverse",
            "concatenation",
        ]

    def test_where_only_its_last_state_is_read_nothing_is_reversed_back(self):
        net = Lambda(lambda m, x: m.r(x)[1][0][-1], r=nn.LSTM(3, 4, batch_first=True, bidirectional=True))
        graph = interpreted(lowered(net, 6, 3))
        assert kinds(graph) == ["reverse", "unidirectional_sequence_lstm", "strided_slice"]
        assert graph.operators[2].attributes["begin"] == 5


class TestLoops:
    NET = Lambda(lambda m, x: m.r(x)[0][:, -1], r=nn.GRU(3, 4, batch_first=True))

    def test_a_gru_is_a_loop_that_carries_counter_input_and_state(self):
        graph = interpreted(lowered(self.NET, 6, 3))
        assert kinds(graph) == ["while"]
        body = graph.operators[0].attributes["body"]
        shapes = [body.tensors[i].shape for i in body.inputs]
        assert shapes == [(2,), (6, 3), (1, 4)]
        assert [body.tensors[i].shape for i in body.outputs] == shapes

    def test_all_states_are_carried_where_they_are_read(self):
        net = Lambda(lambda m, x: m.r(x)[0].mean(1), r=nn.GRU(3, 4, batch_first=True))
        body = interpreted(lowered(net, 6, 3)).operators[0].attributes["body"]
        assert body.tensors[body.inputs[3]].shape == (6, 4)

    def test_the_loop_costs_as_many_products_as_the_layer(self):
        graph = lowered(self.NET, 6, 3)
        loop = interpreted(graph).operators[0]
        assert loop.n_macs == graph.operators[0].n_macs == 6 * 3 * 4 * (3 + 4)
        assert sum(op.n_macs for op in loop.attributes["body"].operators) == 3 * 4 * (3 + 4)

    def test_what_is_inside_a_loop_lives_while_it_runs(self):
        graph = interpreted(lowered(self.NET, 6, 3))
        pieces = buffers(graph, alias=False)
        condition, body = (graph.operators[0].attributes[part] for part in ("condition", "body"))
        assert len(pieces) == len(graph.tensors) + len(condition.tensors) + len(body.tensors)
        outputs = pieces[1:4]
        inner = pieces[4:]
        # the loop's outputs are copied to its lists and back, so they live from before to behind them
        assert max(b.first for b in outputs) < min(b.first for b in inner)
        assert min(b.last for b in outputs) >= max(b.last for b in inner)

    def test_kernels_inside_a_loop_get_their_scratch_memory(self):
        graph = interpreted(lowered(self.NET, 6, 3))
        n_tensors = len(buffers(graph, alias=False))
        sizes = [(48 * (op.kind == "fully_connected"),) for part in graph.lists() for op in part.operators]
        pieces = buffers(graph, alias=False, scratch=sizes)[n_tensors:]
        assert [piece.n_bytes for piece in pieces] == [48] * 6  # three gates, from the input and the state
        assert all(a.last < b.first for a, b in itertools.pairwise(pieces))

    def test_three_copies_of_a_long_input_are_in_ram(self):
        graph = lowered(self.NET, 1000, 3)
        # input, output of the loop, input of its body, 3008 bytes each; little beside
        assert 3 * 3008 < arena(graph, "tflite-micro").n_bytes < 3 * 3008 + 250


class TestJoins:
    def test_values_on_a_grid_that_can_be_chosen_are_joined_as_they_are(self):
        graph = lowered(Lambda(lambda m, x: torch.cat([x, m.c(x)], 1), c=nn.Conv2d(2, 3, 1)), 2, 4, 4)
        assert kinds(interpreted(graph)) == ["conv_2d", "concatenation"]

    def test_values_on_a_prescribed_grid_are_requantized_for_others(self):
        graph = lowered(Lambda(lambda m, x: torch.cat([x, x.sigmoid()], 1)), 2, 4, 4)
        assert kinds(interpreted(graph)) == ["logistic", "quantize", "concatenation"]

    def test_values_on_the_same_prescribed_grid_are_not(self):
        graph = lowered(Lambda(lambda m, x: torch.cat([x.sigmoid(), (x * 2).sigmoid()], 1)), 2, 4, 4)
        assert "quantize" not in kinds(interpreted(graph))

    def test_a_tanh_behind_a_reshape_is_still_prescribed(self):
        graph = lowered(
            Lambda(lambda m, x: torch.cat([x.tanh().flatten(1), m.f(x)], 1), f=nn.Flatten()), 2, 4, 4
        )
        assert kinds(interpreted(graph)).count("quantize") == 1

    def test_at_most_ten_values_are_joined_at_once(self):
        graph = lowered(Lambda(lambda m, x: torch.cat([x * k for k in range(2, 27)], 1)), 2, 4, 4)
        joins = [op for op in interpreted(graph).operators if op.kind == "concatenation"]
        assert [len(op.inputs) for op in joins] == [10, 10, 7]


def test_a_clamp_of_its_own_is_a_product_with_one():
    graph = interpreted(lowered(nn.Sequential(nn.ReLU6()), 2, 4, 4))
    assert kinds(graph) == ["mul"]
    assert graph.operators[0].attributes["activation"] == "relu6"
    np.testing.assert_array_equal(graph.operators[0].weights[0].values, [1.0])
