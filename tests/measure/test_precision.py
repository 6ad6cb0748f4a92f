import pytest
import torch
from net_zoo import Lambda
from torch import nn

from sparsemod.measure.operators import lower


def cnn_lstm():
    return Lambda(
        lambda m, x: m.f(m.r(m.c(x).relu().transpose(1, 2))[0][:, -1]),
        c=nn.Conv1d(3, 4, 3),
        r=nn.LSTM(4, 5, batch_first=True),
        f=nn.Linear(5, 2),
    )


def dtypes(scheme, quant_params=()):
    graph = lower(cnn_lstm(), torch.zeros(1, 3, 10), scheme=scheme, quant_params=quant_params)
    rows = [
        (op.kind, graph.tensors[op.outputs[0]].dtype, {w.dtype for w in op.weights})
        for op in graph.operators
        if op.weights or "quantize" in op.kind
    ]
    return graph.tensors[0].dtype, rows


@pytest.mark.parametrize("scheme", ["post", "qat"])
def test_static_schemes_are_int8_throughout(scheme):
    assert dtypes(scheme, [nn.LSTM]) == (
        "int8",
        [
            ("conv_2d", "int8", {"int8"}),
            ("unidirectional_sequence_lstm", "int8", {"int8"}),
            ("fully_connected", "int8", {"int8"}),
        ],
    )


def test_none_is_float_throughout():
    input_dtype, rows = dtypes("none")
    assert input_dtype == "float32"
    assert {dtype for _, dtype, _ in rows} == {"float32"}
    assert all(weights == {"float32"} for _, _, weights in rows)


@pytest.mark.parametrize("chosen", [nn.LSTM, "r"])
def test_dynamic_quantizes_the_weights_of_the_chosen_modules_alone(chosen):
    assert dtypes("dynamic", {chosen}) == (
        "float32",
        [
            ("conv_2d", "float32", {"float32"}),
            ("unidirectional_sequence_lstm", "float32", {"int8"}),
            ("fully_connected", "float32", {"float32"}),
        ],
    )


def test_both_converts_where_the_two_meet():
    assert dtypes("both", [nn.LSTM]) == (
        "int8",
        [
            ("conv_2d", "int8", {"int8"}),
            ("dequantize", "float32", set()),
            ("unidirectional_sequence_lstm", "float32", {"int8"}),
            ("quantize", "int8", set()),
            ("fully_connected", "int8", {"int8"}),
        ],
    )


def test_tensors_are_numbered_in_the_order_of_writing():
    graph = lower(cnn_lstm(), torch.zeros(1, 3, 10), scheme="both", quant_params=[nn.LSTM])
    written = [*graph.inputs, *(i for op in graph.operators for i in op.outputs)]
    assert written == [tensor.id for tensor in graph.tensors] == list(range(len(written)))
    assert len({tensor.name for tensor in graph.tensors}) == len(graph.tensors)


def test_no_modules_chosen_is_allowed():
    assert dtypes("dynamic", None)[0] == "float32"


def test_an_unknown_scheme_is_refused():
    with pytest.raises(ValueError, match="expected a scheme of post, qat, none, dynamic, both, got 'static'"):
        lower(nn.Linear(2, 2), torch.zeros(1, 2), scheme="static")
