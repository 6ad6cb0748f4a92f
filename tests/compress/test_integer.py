import pytest
import torch
from function_net import FunctionNet
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_sequence

from sparsemod.compress.fakequant import QParams
from sparsemod.compress.graph_quantization import quantize_graph
from sparsemod.compress.integer import dequantize, quantize, run_integer, run_stored
from sparsemod.compress.quantization import quantize as fake_quantized
from sparsemod.measure.operators import lower


def residual():
    def forward(m, x):
        x = F.relu(m.n(m.a(x)))
        x = F.relu(x + m.c(F.relu6(m.b(x))))
        return m.d(F.max_pool2d(x, 2).mean((2, 3)))

    return FunctionNet(
        forward,
        a=nn.Conv2d(3, 8, 3, 2, 1, bias=False),
        n=nn.BatchNorm2d(8),
        b=nn.Conv2d(8, 8, 3, padding=1, groups=8),
        c=nn.Conv2d(8, 8, 1),
        d=nn.Linear(8, 5),
    )


def prepared(net, *shape):
    torch.manual_seed(0)
    samples = torch.randn(256, *shape)
    return net.eval(), samples, quantize_graph(lower(net, samples[:1]), [samples])


def test_a_dense_layer_by_hand():
    net = nn.Linear(2, 1)
    with torch.no_grad():
        net.weight.copy_(torch.tensor([[1.27, -0.5]]))
        net.bias.fill_(0.03)
    samples = torch.tensor([[2.55, 0.0], [0.0, 1.0]])
    result = quantize_graph(lower(net, samples[:1]), [samples])
    assert result.grids[0] == QParams(0.009999999776482582, -128)
    stored = result.operators[0].weights[0]
    assert stored.values.tolist() == [[127, -50]]
    assert stored.bias.tolist() == [300]  # 0.03 / (0.01 * 0.01)
    # outputs 3.2685 and -0.47: range 3.7385, a step of 0.0146608, zero at -128 + 32.06
    out = result.grids[1]
    assert out.zero_point == -96
    # 100 * 127 - 40 * 50 + 300 = 11000, times 0.0001 / 0.0146608 = 75.03
    inputs = torch.tensor([[[100 - 128, 40 - 128]]], dtype=torch.int8)
    assert run_stored(result, [inputs])[0].tolist() == [[[75 - 96]]]
    real = dequantize(inputs, result.grids[0])[:, 0]
    assert run_integer(result, real)[0].item() == pytest.approx(75 * out.scale)


def test_stored_integers_and_back():
    grid = QParams(0.5, 3)
    x = torch.tensor([-100.0, 0.0, 0.25, 0.75, 100.0])
    assert quantize(x, grid).tolist() == [-128, 3, 4, 5, 127]
    assert dequantize(quantize(x, grid), grid).tolist() == [-65.5, 0.0, 0.5, 1.0, 62.0]


def test_the_result_of_a_sample_does_not_depend_on_its_batch():
    _, samples, result = prepared(residual(), 3, 12, 12)
    together = run_integer(result, samples)[0]
    assert together.shape == (256, 5)
    for i in (0, 17, 255):
        torch.testing.assert_close(run_integer(result, samples[i : i + 1])[0][0], together[i], rtol=0, atol=0)


def test_the_simulation_is_close_to_the_float_network():
    for net, shape in ((residual(), (3, 12, 12)), (nn.Sequential(nn.Flatten(), nn.Linear(12, 4)), (3, 4))):
        net, samples, result = prepared(net, *shape)
        with torch.no_grad():
            expected = net(samples)
        span = float(expected.max() - expected.min())
        assert float((run_integer(result, samples)[0] - expected).abs().mean()) < 0.01 * span


def agreement(net, *shape):
    net, samples, result = prepared(net, *shape)
    simulated, engine = run_integer(result, samples)[0], fake_quantized(net, "post", [samples])(samples)
    steps = ((simulated - engine) / result.grids[result.graph.outputs[0]].scale).abs().round()
    same_class = (simulated.argmax(1) == engine.argmax(1)).float().mean()
    return float((steps == 0).float().mean()), int(steps.max()), float(same_class)


def test_the_fake_quant_engine_agrees_within_a_step_on_convolutional_networks():
    equal, largest, _ = agreement(residual(), 3, 12, 12)
    assert equal > 0.98
    assert largest <= 1


def test_the_fake_quant_engine_agrees_within_a_step_on_lstms():
    for arguments in ({}, {"num_layers": 2}, {"bidirectional": True}):
        layer = nn.LSTM(4, 12, batch_first=True, **arguments)
        width = 24 if arguments.get("bidirectional") else 12
        net = FunctionNet(lambda m, x: m.f(m.r(x)[0][:, -1]), r=layer, f=nn.Linear(width, 5))
        equal, largest, _ = agreement(net, 20, 4)
        assert equal > 0.85
        assert largest <= 1


def test_the_fake_quant_engine_takes_the_same_decisions_on_grus():
    # a dozen roundings a step, fed back: some steps of difference on either side of the float network
    net = FunctionNet(
        lambda m, x: m.f(m.r(x)[0][:, -1]), r=nn.GRU(4, 12, batch_first=True), f=nn.Linear(12, 5)
    )
    _, largest, same_class = agreement(net, 20, 4)
    assert largest <= 5
    assert same_class > 0.95


def test_packed_sequences_are_brought_to_the_length_of_the_list():
    torch.manual_seed(0)
    net = FunctionNet(
        lambda m, x: m.f(m.r(x)[1][0][-1]), r=nn.LSTM(2, 4, batch_first=True), f=nn.Linear(4, 2)
    ).eval()
    sequences = [torch.randn(n, 2) for n in (9, 6, 6, 4)]
    graph = lower(net, pack_sequence(sequences[1:2]))
    result = quantize_graph(graph, [pack_sequence(sequences)])
    simulated = run_integer(result, pack_sequence(sequences))[0]
    with torch.no_grad():
        expected = net(pack_sequence(sequences[1:3]))
    span = float(expected.max() - expected.min())
    assert simulated.shape == (4, 2)
    assert float((simulated[1:3] - expected).abs().max()) < 0.1 * span
