"""Recurrent layers, static and at run time, whole and packed sequences."""

import integer_reference as reference
import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from sparsemod.compress.calls import Call
from sparsemod.compress.quantization import quantize
from sparsemod.compress.recurrent import observe
from sparsemod.errors import UnsupportedOperatorError

KINDS = [nn.LSTM, nn.GRU, nn.RNN]


class Classifier(nn.Module):
    def __init__(self, kind, **options):
        super().__init__()
        self.rnn = kind(4, 8, **options)
        self.head = nn.Linear(8 * (1 + self.rnn.bidirectional), 3)

    def forward(self, x):
        output, _ = self.rnn(x)
        if isinstance(output, PackedSequence):
            output = pad_packed_sequence(output)[0]
        return self.head(output[0])


class Whole(nn.Module):
    """Returns everything that the layer returns."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        return self.layer(x)


def packed(sequences, batch_first=False):
    lengths = torch.randint(1, 8, (64,), generator=torch.Generator().manual_seed(1))
    return pack_padded_sequence(sequences, lengths, batch_first, enforce_sorted=False)


def sequences(steps=7, n=64):
    return torch.randn(steps, n, 4, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("form", ["whole", "packed"])
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_the_unrolled_layers_compute_what_torch_computes(kind, bidirectional, form):
    torch.manual_seed(0)
    net = Whole(kind(4, 5, num_layers=2, bidirectional=bidirectional))
    inputs = sequences() if form == "whole" else packed(sequences())
    outputs = quantize(net, "dynamic", [inputs], [nn.Bilinear])(inputs)  # torch's own kernel
    states = (torch.zeros(4 if bidirectional else 2, 64, 5),) * 2
    hidden = states if kind is nn.LSTM else states[0]
    data = (inputs,) if form == "whole" else (inputs.data, inputs.batch_sizes)
    flat = [*net.layer._flat_weights]
    tail = (False,) if form == "whole" else ()
    op = {nn.LSTM: "lstm", nn.GRU: "gru", nn.RNN: "rnn_tanh"}[kind]
    call = Call(
        op, getattr(torch, op), (*data, hidden, flat, True, 2, 0.0, False, bidirectional, *tail), {}, ()
    )
    with torch.no_grad():
        result, _ = observe(call)
    expected = outputs[0] if form == "whole" else outputs[0].data
    assert torch.allclose(result[0], expected, atol=1e-6)
    if form == "whole":
        last = outputs[1][1] if kind is nn.LSTM else outputs[1]
        assert torch.allclose(result[-1], last, atol=1e-6)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("bias", [True, False])
def test_a_static_lstm_follows_the_integer_kernel(seed, bias):
    torch.manual_seed(seed)
    net = Whole(nn.LSTM(6, 16, batch_first=True, bias=bias))
    for parameter in net.parameters():
        nn.init.uniform_(parameter, -0.8, 0.8)
    inputs = torch.randn(200, 20, 6)
    quantized = quantize(net, "post", [inputs])
    output, (hidden, cell) = quantized(inputs)
    source, made, _, state = quantized.activations
    assert state.bits == 16
    assert np.log2(state.scale) % 1 == 0
    stored = np.rint(output.numpy() / made.scale).astype(int) + made.zero_point
    q = reference.quantize_input(inputs.numpy(), source.scale, source.zero_point)
    difference = np.abs(stored - reference.lstm(q, source, quantized.weights, made, state.scale))
    share = (difference == 0).mean()
    print(
        f"seed {seed}: {100 * share:.2f} % of {difference.size} states equal, at most {difference.max()} off"
    )
    assert share > 0.999
    assert difference.max() <= 1
    assert torch.equal(hidden[0], output[:, -1])
    assert torch.equal((cell / state.scale).round() * state.scale, cell)


def test_each_gate_of_a_static_lstm_has_one_scale_and_other_layers_one_for_each_row():
    weights = quantize(Whole(nn.LSTM(4, 8)), "post", [sequences()]).weights
    assert [w.name for w in weights] == ["weight_ih_l0", "weight_hh_l0"]
    for weight in weights:
        gates = weight.scales.reshape(4, 8)
        assert torch.equal(gates, gates[:, :1].expand(4, 8))
        assert len(gates[:, 0].unique()) == 4
    rows = quantize(Whole(nn.GRU(4, 8)), "post", [sequences()]).weights[0].scales
    assert len(rows.unique()) == 24


@pytest.mark.parametrize("scheme", ["post", "dynamic", "both"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_packed_sequence_gives_what_its_sequences_give_alone(kind, scheme):
    torch.manual_seed(0)
    net = Classifier(kind, bidirectional=True)
    inputs = packed(sequences())
    quantized = quantize(net, scheme, [inputs], [kind])
    together = quantized(inputs)
    whole, lengths = pad_packed_sequence(inputs)
    for n in range(0, 64, 9):
        alone = pack_padded_sequence(whole[:, n : n + 1], lengths[n : n + 1])
        assert torch.allclose(quantized(alone)[0], together[n], atol=1e-6)


@pytest.mark.parametrize("scheme", ["post", "dynamic", "both"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_packed_sequence_comes_out_as_one(kind, scheme):
    net = Whole(kind(4, 8, num_layers=2))
    inputs = packed(sequences())
    output, _ = quantize(net, scheme, [inputs], [kind])(inputs)
    assert isinstance(output, PackedSequence)
    expected = net(inputs)[0]
    assert torch.equal(output.batch_sizes, expected.batch_sizes)
    assert (output.data - expected.data).abs().max() < 0.06


def test_static_sequences_may_have_any_length():
    net = Classifier(nn.LSTM)
    quantized = quantize(net, "post", [sequences(9), sequences(4)])
    assert quantized(sequences(15)).shape == (64, 3)


def test_loops_at_run_time_may_have_any_length():
    class Loop(nn.Module):
        def __init__(self):
            super().__init__()
            self.cell, self.head = nn.GRUCell(4, 8), nn.Linear(8, 3)

        def forward(self, x):
            state = torch.zeros(x.shape[1], 8)
            for step in x:
                state = self.cell(step, state)
            return self.head(state)

    net = Loop()
    quantized = quantize(net, "dynamic", [sequences(3)], [nn.GRUCell, nn.Linear])
    assert (quantized(sequences(11)) - net(sequences(11))).abs().max() < 0.05
    assert sorted((w.module, w.name) for w in quantized.weights) == [
        ("cell", "weight_hh_l0"), ("cell", "weight_ih_l0"), ("head", "weight"),
    ]  # fmt: skip


def test_projections_are_refused():
    with pytest.raises(UnsupportedOperatorError, match="proj_size"):
        quantize(Whole(nn.LSTM(4, 8, proj_size=3)), "post", [sequences()])


def test_a_given_initial_state_is_used():
    class Started(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn = nn.GRU(4, 8)
            self.start = nn.Parameter(torch.linspace(-1, 1, 8))

        def forward(self, x):
            return self.rnn(x, self.start.expand(1, x.shape[1], 8).contiguous())[0]

    net = Started()
    outputs = quantize(net, "post", [sequences(2)])(sequences(2))
    assert (outputs - net(sequences(2))).abs().max() < 0.06
