import json

import numpy as np
import pytest
import tflite
import torch
from random_nets import SmallCNN
from torch import nn
from torch.nn import functional as F

from sparsemod.compress.graph_quantization import check_exportable, quantize_graph
from sparsemod.errors import UnsupportedOperatorError
from sparsemod.export.tflite import Description, write_tflite
from sparsemod.measure.operators import lower


def exported(net, *shape, description=None, seed=0):
    torch.manual_seed(seed)
    samples = torch.randn(64, *shape)
    quantized = quantize_graph(lower(net.eval(), samples[:1]), [samples])
    return quantized, write_tflite(quantized, description)


def read(content):
    return tflite.Model.GetRootAsModel(content, 0)


def codes(model, subgraph=0):
    names = {v: k for k, v in vars(tflite.BuiltinOperator).items() if isinstance(v, int)}
    graph = model.Subgraphs(subgraph)
    operators = [graph.Operators(i) for i in range(graph.OperatorsLength())]
    return [names[model.OperatorCodes(op.OpcodeIndex()).BuiltinCode()] for op in operators]


SMALL = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(16, 3))


def test_the_file_has_the_identifier_and_int8_at_both_ends():
    quantized, content = exported(SMALL, 1, 4, 4)
    assert tflite.Model.ModelBufferHasIdentifier(content, 0)
    model = read(content)
    assert model.Version() == 3
    graph = model.Subgraphs(0)
    for i, grid in ((graph.Inputs(0), quantized.grids[0]), (graph.Outputs(0), quantized.grids[-1])):
        tensor = graph.Tensors(i)
        assert tensor.Type() == tflite.TensorType.INT8
        assert tensor.Quantization().Scale(0) == np.float32(grid.scale)
        assert tensor.Quantization().ZeroPoint(0) == grid.zero_point
    assert graph.Tensors(graph.Inputs(0)).ShapeAsNumpy().tolist() == [1, 4, 4, 1]


def test_weights_have_a_scale_a_channel_and_biases_the_product_of_scales():
    quantized, content = exported(SMALL, 1, 4, 4)
    graph = read(content).Subgraphs(0)
    weight, bias = (graph.Tensors(graph.Operators(0).Inputs(k)) for k in (1, 2))
    stored = quantized.operators[0].weights[0]
    assert weight.ShapeAsNumpy().tolist() == [4, 3, 3, 1]
    np.testing.assert_array_equal(weight.Quantization().ScaleAsNumpy(), stored.scales)
    assert weight.Quantization().ZeroPointAsNumpy().tolist() == [0] * 4
    assert bias.Type() == tflite.TensorType.INT32
    expected = np.float32(quantized.grids[0].scale) * stored.scales
    np.testing.assert_array_equal(bias.Quantization().ScaleAsNumpy(), expected)


def test_buffers_lie_on_addresses_that_any_core_can_read_from():
    _, content = exported(SMALL, 1, 4, 4)
    model = read(content)
    stored = [model.Buffers(i).DataAsNumpy() for i in range(1, model.BuffersLength())]
    start = np.frombuffer(content, np.uint8).__array_interface__["data"][0]
    assert len(stored) == 4
    assert all((x.__array_interface__["data"][0] - start) % 16 == 0 for x in stored)


def test_weights_that_are_used_twice_are_stored_once():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Conv2d(8, 8, 3, padding=1, bias=False)

        def forward(self, x):
            return self.a(F.relu(self.a(x)))

    _, once = exported(nn.Sequential(nn.Conv2d(8, 8, 3, padding=1, bias=False)), 8, 6, 6)
    _, twice = exported(Twice(), 8, 6, 6)
    assert read(twice).BuffersLength() == read(once).BuffersLength() == 2
    assert len(twice) - len(once) < 200


def test_the_overhead_of_a_file_is_small():
    quantized, content = exported(SMALL, 1, 4, 4)
    weights = sum(w.values.size + w.bias.nbytes for held in quantized.operators for w in held.weights)
    assert weights == 4 * 9 + 16 + 16 * 3 + 12
    assert len(content) < weights + 1100


def test_stride_2_on_an_even_size_is_a_pad_and_valid():
    _, content = exported(nn.Sequential(nn.Conv2d(1, 2, 3, stride=2, padding=1)), 1, 8, 8)
    model = read(content)
    assert codes(model) == ["PAD", "CONV_2D"]
    options = tflite.Conv2DOptions()
    table = model.Subgraphs(0).Operators(1).BuiltinOptions()
    options.Init(table.Bytes, table.Pos)
    assert options.Padding() == tflite.Padding.VALID
    assert (options.StrideW(), options.StrideH()) == (2, 2)


def test_a_small_cnn_is_smaller_than_what_converters_write():
    # 5,642 parameters: 13.9 kB by TensorFlow's converter from an ONNX file
    _, content = exported(SmallCNN(), 1, 28, 28)
    assert sum(p.numel() for p in SmallCNN().parameters()) == 5642
    assert len(content) < 9500


class Recurrent(nn.Module):
    def __init__(self, kind, all_steps=False, **arguments):
        super().__init__()
        self.r = kind(3, 5, batch_first=True, **arguments)
        self.all_steps = all_steps

    def forward(self, x):
        y, _ = self.r(x)
        return y.mean(1) if self.all_steps else y[:, -1]


def test_an_lstm_is_one_operator_with_variable_states():
    quantized, content = exported(Recurrent(nn.LSTM), 20, 3)
    model = read(content)
    assert codes(model) == ["UNIDIRECTIONAL_SEQUENCE_LSTM", "STRIDED_SLICE"]
    graph = model.Subgraphs(0)
    operator = graph.Operators(0)
    assert operator.InputsLength() == 24
    states = [graph.Tensors(operator.Inputs(k)) for k in (18, 19)]
    assert [s.Type() for s in states] == [tflite.TensorType.INT8, tflite.TensorType.INT16]
    assert all(s.IsVariable() for s in states)
    scale = states[1].Quantization().Scale(0)
    assert scale == quantized.operators[0].cell.scale
    assert np.log2(scale) == round(np.log2(scale))
    assert {operator.Inputs(k) for k in (9, 10, 11, 16, 17, 20, 21, 22, 23)} == {-1}


def test_the_file_of_a_recurrent_network_does_not_grow_with_its_steps():
    for kind in (nn.LSTM, nn.GRU):
        short, long = (len(exported(Recurrent(kind), n, 3)[1]) for n in (10, 100))
        assert abs(long - short) < 100


def test_a_gru_is_a_loop_of_its_own_list():
    _, content = exported(Recurrent(nn.GRU), 20, 3)
    model = read(content)
    assert codes(model) == ["WHILE"]
    assert model.SubgraphsLength() == 3
    assert codes(model, 1) == ["LESS"]
    body = codes(model, 2)
    assert body.count("FULLY_CONNECTED") == 6
    assert "DYNAMIC_UPDATE_SLICE" not in body
    _, content = exported(Recurrent(nn.GRU, all_steps=True), 20, 3)
    assert "DYNAMIC_UPDATE_SLICE" in codes(read(content), 2)


def test_the_description_is_stored_as_json():
    description = Description(3, (0.5,), (0.25,))
    model = read(exported(SMALL, 1, 4, 4, description=description)[1])
    entry = model.Metadata(0)
    assert entry.Name() == b"sparsemod"
    stored = json.loads(model.Buffers(entry.Buffer()).DataAsNumpy().tobytes())
    assert stored == {"classes": 3, "mean": [0.5], "std": [0.25]}
    assert Description(2).to_json() == '{"classes":2}'
    assert read(exported(SMALL, 1, 4, 4)[1]).MetadataLength() == 0


def test_the_same_network_gives_the_same_bytes():
    assert exported(SMALL, 1, 4, 4)[1] == exported(SMALL, 1, 4, 4)[1]


def test_what_cannot_be_exported_is_named_with_its_module():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Sequential(nn.Linear(4, 4), nn.GELU())

        def forward(self, x):
            return self.body(x)

    graph = lower(Net(), torch.zeros(1, 4))
    with pytest.raises(UnsupportedOperatorError, match=r"operator gelu of module body\.1 cannot be exported"):
        check_exportable(graph)
    with pytest.raises(UnsupportedOperatorError, match="gelu"):
        quantize_graph(graph, [torch.randn(8, 4)])
    check_exportable(lower(SMALL, torch.zeros(1, 1, 4, 4)))


def test_floats_cannot_be_exported():
    graph = lower(SMALL, torch.zeros(1, 1, 4, 4), scheme="dynamic", quant_params=[nn.Linear])
    with pytest.raises(UnsupportedOperatorError, match="conv_2d of module 0 computes in float32"):
        check_exportable(graph)
