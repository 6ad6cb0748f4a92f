"""Files that our own export would not write: what is in them is read, or refused in one line."""

import numpy as np
import pytest
from crafted_files import G, Op, T, crafted, dense, ints, one
from mutations import mutated
from small_files import small_files

from sparsemod.errors import ModelFileError
from sparsemod.export.analysis import analyze
from sparsemod.export.tflite_reader import parse_tflite, read_tflite
from sparsemod.measure.resources import planned
from sparsemod.measure.targets import find_target

M4 = find_target("STM32F446")


def operator(graph):
    """Read a file of one operator and have it analysed."""
    read = parse_tflite(crafted(graph))
    (cost,) = analyze(read, M4).operators
    assert cost.instructions >= 0
    return read.graph.operators[0]


IMAGE = (1, 6, 6, 4)
CONV = {"StrideH": 1, "StrideW": 1, "DilationHFactor": 1, "DilationWFactor": 1, "Padding": 0}
STEPS = dict.fromkeys(("BeginMask", "EndMask", "ShrinkAxisMask"), 0)


@pytest.mark.parametrize(
    ("graph", "kind", "attributes", "n_macs"),
    [
        (one("EXPAND_DIMS", (1, 4), (1, 1, 4), ints(1)), "reshape", {}, 0),
        (one("SQUEEZE", (1, 1, 4), (1, 4)), "reshape", {}, 0),
        (one("MEAN", IMAGE, (1, 1, 1, 4), ints(-2, 1), options="ReducerOptions", KeepDims=True), "mean",
         {"axes": (1, 2), "keep_dims": True}, 0),
        (one("STRIDED_SLICE", IMAGE, (1, 6, 4), ints(0, 0, -1, 0), ints(0, 0, 0, 0), ints(1, 1, 1, 1),
             options="StridedSliceOptions", **STEPS | {"BeginMask": 11, "EndMask": 11, "ShrinkAxisMask": 4}),
         "strided_slice", {"axis": 2, "begin": 5, "end": 6, "stride": 1}, 0),
        (one("STRIDED_SLICE", IMAGE, (1, 3, 3, 4), ints(0, 0, 0, 0), ints(1, 6, 6, 4), ints(1, 2, 2, 1),
             options="StridedSliceOptions", **STEPS), "other:STRIDED_SLICE", {}, 0),
        (one("SLICE", IMAGE, (1, 2, 6, 4), ints(0, 3, 0, 0), ints(-1, 2, 6, 4)), "strided_slice",
         {"axis": 1, "begin": 3, "end": 5}, 0),
        (one("TRANSPOSE", IMAGE, (1, 4, 6, 6), ints(0, 3, 1, 2)), "transpose",
         {"permutation": (0, 3, 1, 2)}, 0),
        (one("PRELU", IMAGE, IMAGE, T((1, 1, 4), values=np.ones((1, 1, 4)))), "prelu", {}, 0),
        (one("BATCH_MATMUL", (1, 5, 4), (1, 5, 3), T((3, 4), values=np.ones((3, 4))),
             options="BatchMatMulOptions", AdjX=False, AdjY=True), "batch_matmul",
         {"adj_y": True, "constant": "y"}, 60),
        (one("GELU", IMAGE, IMAGE, options="GeluOptions", Approximate=True), "gelu",
         {"approximate": True}, 0),
        (one("CONV_2D", IMAGE, (1, 6, 6, 8), T((8, 3, 3, 2), values=np.ones((8, 3, 3, 2))),
             options="Conv2DOptions", **CONV), "conv_2d", {"groups": 2, "padding": "same"}, 36 * 8 * 18),
        (one("DEPTHWISE_CONV_2D", IMAGE, (1, 4, 4, 8), T((1, 3, 3, 8), values=np.ones((1, 3, 3, 8))),
             options="DepthwiseConv2DOptions", **CONV | {"Padding": 1}), "depthwise_conv_2d",
         {"depth_multiplier": 2, "padding": "valid"}, 16 * 8 * 9),
        (one("MIRROR_PAD", IMAGE, (1, 8, 8, 4), ints(0, 0, 1, 1, 1, 1, 0, 0)), "other:MIRROR_PAD", {}, 0),
        (one("Sparkle", IMAGE, IMAGE), "other:Sparkle", {}, 0),
        (one(9999, IMAGE, IMAGE), "other:BUILTIN_9999", {}, 0),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)  # fmt: skip
def test_an_operator_of_a_converter_is_read(graph, kind, attributes, n_macs):
    read = operator(graph)
    assert read.kind == kind
    assert {k: read.attributes[k] for k in attributes} == attributes
    assert read.n_macs == n_macs


def test_a_transposed_convolution_is_cut_as_its_padding_says():
    weight = T((2, 3, 3, 4), values=np.ones((2, 3, 3, 4)))
    fields = {"StrideH": 2, "StrideW": 2, "Padding": 0}
    convolution = Op("TRANSPOSE_CONV", (2, 3, 0), (1,), "TransposeConvOptions", fields)
    graph = G([T(IMAGE), T((1, 12, 12, 2)), ints(1, 12, 12, 2), weight], [convolution])
    read = operator(graph)
    assert (read.kind, read.n_macs) == ("transpose_conv", 144 * 3 * 3 * 2)
    assert read.attributes["crop"] == (0, 0)  # a row of padding below, none above
    assert read.inputs == (0,)


def test_an_embedding_is_a_gather_of_its_table():
    options = {"Axis": 0, "BatchDims": 0}
    graph = G(
        [T((1, 5), "int32", scales=()), T((1, 5, 3)), T((10, 3), values=np.ones((10, 3)))],
        [Op("GATHER", (2, 0), (1,), "GatherOptions", options)],
    )
    read = operator(graph)
    assert (read.kind, read.inputs, read.weights[0].values.shape) == ("gather", (0,), (10, 3))


def test_weights_of_four_bits_are_unpacked():
    low, high = np.array([1, -8, 7, 0]), np.array([-1, 3, -4, 5])
    packed = ((low & 15) | (high << 4)).astype(np.uint8).view(np.int8)
    graph = dense(n=2)
    graph.tensors[2] = T((2, 4), "int4", packed)
    read = parse_tflite(crafted(graph))
    (stored,) = read.weights.values()
    np.testing.assert_array_equal(stored.values.values().reshape(-1), np.stack([low, high], 1).reshape(-1))
    assert read.sizes.weights_bytes == 4


def test_floats_at_the_ends_of_an_int8_network_are_fine():
    inner = dense()
    inner.tensors += [T((1, 4), "float32", scales=()), T((1, 4), "float32", scales=())]
    inner.operators = [Op("QUANTIZE", (3,), (0,)), *inner.operators, Op("DEQUANTIZE", (1,), (4,))]
    inner.inputs, inner.outputs = (3,), (4,)
    read = parse_tflite(crafted(inner))
    assert [op.kind for op in read.graph.operators] == ["quantize", "fully_connected", "dequantize"]
    assert analyze(read, M4).inputs == (((1, 4), "float32"),)


def test_the_order_of_tensors_decides_where_equal_ones_lie():
    # the same operators; only the numbers of the tensors differ, and so what the planner takes first
    def chain(order):
        shapes = [(1, 64), (1, 48), (1, 16), (1, 48)]
        tensors = [None] * 4
        for shape, place in zip(shapes, order, strict=True):
            tensors[place] = T(shape)
        a, b, c, d = order
        operators = [Op("X", (a,), (b,)), Op("X", (b,), (c,)), Op("X", (b, c), (d,))]
        return parse_tflite(crafted(G(tensors, operators, (a,), (d,))))

    for order in ((0, 1, 2, 3), (3, 2, 1, 0), (1, 3, 0, 2)):
        read = chain(order)
        assert [read.graph.tensors[i].n_bytes for i in order] == [64, 48, 16, 48]
        assert planned(read.graph, "tflite-micro").n_bytes == 112


def test_memory_is_given_to_tensors_that_nothing_touches():
    # 5008 and 15024 bytes in the real interpreter, where the network itself needs 512 at most
    for n, expected in ((0, 32), (1, 5008), (3, 15024)):
        graph = dense()
        graph.tensors += [T((1, 5000 + k)) for k in range(n)]
        assert planned(parse_tflite(crafted(graph)).graph, "tflite-micro").n_bytes == expected


def loop(limit=7, start=1, by=2):
    counter = T((1,), "int32", scales=())
    outer = G(
        [T(), T(), ints(start), counter],
        [Op("WHILE", (2, 0), (3, 1), "WhileOptions", {"CondSubgraphIndex": 1, "BodySubgraphIndex": 2})],
    )
    condition = G(
        [counter, T(), ints(limit), T((1,), "bool", scales=())], [Op("LESS", (0, 2), (3,))], (0, 1), (3,)
    )
    body = dense()
    body.tensors += [counter, ints(by), counter]
    body.operators.append(Op("ADD", (4, 3), (5,), "AddOptions", {"FusedActivationFunction": 0}))
    body.inputs, body.outputs = (3, 0), (5, 1)
    return outer, condition, body


def test_a_loop_costs_its_body_as_often_as_it_runs():
    read = parse_tflite(crafted(*loop()))
    (once,) = read.graph.operators
    assert (once.kind, once.attributes["n_steps"], once.n_macs) == ("while", 3, 3 * 16)  # at 1, 3 and 5
    analysis = analyze(read, M4)
    assert (analysis.n_macs, analysis.n_parameters) == (48, 16)
    longer = analyze(parse_tflite(crafted(*loop(limit=13))), M4)
    assert longer.instructions == pytest.approx(2 * analysis.instructions)


def test_a_loop_that_never_ends_is_counted_once():
    assert parse_tflite(crafted(*loop(by=0))).graph.operators[0].attributes["n_steps"] == 1


def huge(*shape):
    return crafted(G([T(shape), T()], [Op("RELU")]))


def two_writers():
    return crafted(G([T(), T()], [Op("RELU"), Op("TANH")]))


def endless():
    outer, condition, body = loop()
    body.operators[0] = Op(
        "WHILE", (0,), (1,), "WhileOptions", {"CondSubgraphIndex": 1, "BodySubgraphIndex": 2}
    )
    return crafted(outer, condition, body)


WRONG = {
    "float": (crafted(dense("float32", "float32")), "expected an int8 network, got float32 at operator 0"),
    "hybrid": (crafted(dense("float32", "int8")), "dynamic-range quantization"),
    "float without weights": (
        crafted(G([T(dtype="float32", scales=()), T(dtype="float32", scales=())], [Op("RELU")])),
        "expected an int8 network, got float32",
    ),
    "uint8": (crafted(dense("uint8", "int8")), "expected an int8 network, got uint8 at operator 0"),
    "int16": (crafted(dense("int16", "int8")), "got int16"),
    "newer schema": (crafted(dense(), version=4), "expected version 3 of the schema, got 4"),
    "another identifier": (crafted(dense(), identifier="TFL9"), "TFL3 at byte 4"),
    "empty": (b"", "got an empty one"),
    "text": (b"this is no network at all, just text", "expected a .tflite file"),
    "header only": (crafted(dense())[:8], "damaged or truncated"),
    "no list": (crafted(), "there is no network in it"),
    "no tensors": (crafted(G([], [], (), ())), "got no tensors"),
    "2^62 elements": (huge(2**31 - 1, 2**31 - 1), "beyond 2 GiB"),
    "2^93 elements": (huge(2**31 - 1, 2**31 - 1, 2**31 - 1), "beyond 2 GiB"),
    "unknown shape": (huge(-1, 4), "expected a shape known in advance"),
    "wrong tensor": (crafted(G([T(), T()], [Op("RELU", (7,))])), "names tensor 7 of 2"),
    "very wrong tensor": (crafted(G([T(), T()], [Op("RELU", (-(2**31),))])), "names tensor -2147483648"),
    "no input": (crafted(G([T(), T()], [Op("CONV_2D", (), (1,))])), "has no input 0"),
    "no output": (crafted(G([T(), T()], [Op("CONV_2D", (0, 0), ())], outputs=(0,))), "has no output"),
    "wrong buffer": (crafted(G([T(buffer=99), T()], [Op("RELU")])), "buffer 99 of 1"),
    "short buffer": (crafted(G([T(), T(), T((4, 4), values=[1])], [Op("RELU")])), "a buffer of 1 bytes"),
    "cycle": (
        crafted(G([T(), T(), T()], [Op("ADD", (0, 2)), Op("RELU", (1,), (2,))])),
        "before it is written",
    ),
    "two writers": (two_writers(), "writes tensor 1, which is taken"),
    "never written": (crafted(G([T(), T()], [])), "output 1 of the network is never written"),
    "stride 0": (
        crafted(one("MAX_POOL_2D", IMAGE, IMAGE, options="Pool2DOptions", FilterHeight=2, FilterWidth=2)),
        "expected StrideH of at least 1, got 0",
    ),
    "impossible output": (
        crafted(one("CONV_2D", IMAGE, (1, 9, 9, 8), T((8, 3, 3, 4), values=np.ones((8, 3, 3, 4))),
                    options="Conv2DOptions", **CONV)),
        "expected same windows",
    ),
    "options of another operator": (
        crafted(one("SOFTMAX", (1, 4), (1, 4), options="Pool2DOptions", StrideH=1)),
        "expected SoftmaxOptions, got Pool2DOptions",
    ),
    "wrong axis": (
        crafted(one("CONCATENATION", (1, 4), (1, 4), options="ConcatenationOptions", Axis=5)),
        "expected a dimension, got 5",
    ),
    "scales": (
        crafted(G([T(), T(scales=(1.0, 2.0, 3.0), axis=1)], [Op("RELU")])),
        "3 scales along dimension 1",
    ),
    "a loop that runs itself": (endless(), "is run by an operator"),
    "a loop without lists": (crafted(*loop()[:1]), "list 1 of 1"),
    "words": (crafted(G([T(dtype="string", scales=()), T()], [Op("RELU")])), "expected numbers, got string"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_said_in_one_line(name):
    content, words = WRONG[name]
    with pytest.raises(ModelFileError) as caught:
        parse_tflite(content)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_name_cannot_write_to_the_terminal():
    read = parse_tflite(crafted(one("\x1b[2J\nSparkle", (1, 4), (1, 4))))
    assert read.graph.operators[0].kind == "other:?[2J?Sparkle"


def test_lists_that_overlap_cannot_blow_up():
    # an operator of 4000 inputs, 4000 times: its vector is in the file once
    many = G([T(), *(T() for _ in range(4000))], [Op("X", (0,) * 4000, (i + 1,)) for i in range(4000)])
    with pytest.raises(ModelFileError, match="overlap to more than 8 times its size"):
        parse_tflite(crafted(many))
    with pytest.raises(ModelFileError, match="expected at most 4096"):
        parse_tflite(crafted(G([T()] * 5000, [])))


def test_a_path_that_is_no_file_is_said(tmp_path):
    for path, words in (
        (tmp_path, "expected a file, got a folder"),
        (tmp_path / "nowhere.tflite", "no such file"),
        (tmp_path / ("long" * 100), "cannot be read: File name too long"),
    ):
        with pytest.raises(ModelFileError, match=words) as caught:
            read_tflite(path)
        assert str(path) in str(caught.value)
    (tmp_path / "cut.tflite").write_bytes(crafted(dense())[:100])
    with pytest.raises(ModelFileError, match=r"cut\.tflite: damaged or truncated"):
        read_tflite(tmp_path / "cut.tflite")


@pytest.mark.parametrize("name", ["cnn", "lstm", "gru", "gru of all states"])
def test_a_damaged_file_is_analysed_or_refused(name):
    content = small_files()[name]
    refused = 0
    for i in range(250):
        damaged = mutated(content, [1, i])
        try:
            analysis = analyze(parse_tflite(damaged), M4)
        except ModelFileError as error:
            refused += 1
            assert "\n" not in str(error)
        else:
            assert analysis.ram_bytes > 0
    assert 100 < refused < 250  # neither is everything let through nor everything refused


def test_every_truncation_is_refused():
    content = small_files()["cnn"]
    for n in range(0, len(content), 7):
        with pytest.raises(ModelFileError):
            parse_tflite(content[:n])
