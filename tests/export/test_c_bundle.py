"""C bundles: every output value is that of the integer simulation, every byte is where it was predicted."""

import shutil
import subprocess

import numpy as np
import pytest
import torch
from c_programs import STRICT, bundle, compiled, differing, image_of, on_machine, run
from function_net import FunctionNet
from random_nets import SPACES, SmallCNN, random_net
from torch import nn
from torch.nn import functional as F

from sparsemod.compress.graph_quantization import quantize_graph
from sparsemod.errors import ConfigError, UnsupportedOperatorError
from sparsemod.export import emulation, toolchain
from sparsemod.export.c_bundle import write_c
from sparsemod.export.emulation import Machine
from sparsemod.export.tflite import Description
from sparsemod.measure.bundle import constants
from sparsemod.measure.operators import lower
from sparsemod.measure.resources import measure
from sparsemod.measure.targets import generic

needs_compiler = pytest.mark.skipif(shutil.which("gcc") is None, reason="no C compiler: apt install gcc")
needs_toolchain = pytest.mark.skipif(bool(toolchain.missing()), reason="; ".join(toolchain.missing()))
needs_emulator = pytest.mark.skipif(bool(emulation.missing()), reason="; ".join(emulation.missing()))
SPARSITIES = (0.0, 0.3, 0.0, 0.6, 0.0, 0.8, 0.0, 0.9)


def random_bundles(space, seeds, n=8):
    return [
        bundle(*random_net(space, seed), f"net{k}", n, SPARSITIES[seed % len(SPARSITIES)])
        for k, seed in enumerate(seeds)
    ]


class Net(FunctionNet):
    """Without layers the function needs the input alone."""

    def forward(self, *inputs):
        return self.function(self, *inputs) if list(self.children()) else self.function(*inputs)


@needs_compiler
@pytest.mark.parametrize("space", SPACES)
def test_random_networks_compute_the_same_integers_on_a_computer(space, tmp_path):
    bundles = random_bundles(space, range(6))
    assert differing(compiled(tmp_path, bundles, "-O2"), bundles) == []
    assert all(len(np.unique(one.expected)) > 1 for one in bundles)
    kernels = {file for one in bundles for file in one.files if file.startswith("kernels/")}
    assert any("sparse" in file for file in kernels)


@needs_compiler
def test_another_compiler_computes_the_same(tmp_path):
    if shutil.which("clang") is None:
        pytest.skip("clang is not installed: apt install clang")
    bundles = [
        bundle(*random_net(space, seed), f"{space}{seed}", 4, SPARSITIES[seed])
        for space in SPACES
        for seed in (2, 3)
    ]
    assert differing(compiled(tmp_path, bundles, "-O2", compiler="clang"), bundles) == []


@needs_compiler
@pytest.mark.parametrize(("space", "seed"), [("images", 13), ("mixed", 15)])
def test_no_byte_beside_an_array_is_touched(space, seed, tmp_path):
    """The sanitizers end the program at the first stray access, overflow or undefined shift."""
    flags = ("-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover")
    (tmp_path / "empty.c").write_text("int main(void) { return 0; }\n")
    probe = ["gcc", *flags, "-o", str(tmp_path / "empty"), str(tmp_path / "empty.c")]
    if subprocess.run(probe, capture_output=True, check=False).returncode != 0:
        pytest.skip("this compiler has no sanitizers")
    dense, sparse = (
        bundle(*random_net(space, seed), name, 4, sparsity)
        for name, sparsity in (("dense", 0.0), ("sparse", 0.7))
    )
    assert differing(compiled(tmp_path, [dense, sparse], *flags), [dense, sparse]) == []


@needs_compiler
def test_the_example_builds_with_its_makefile(tmp_path):
    if shutil.which("make") is None:
        pytest.skip("make is not installed: apt install make")
    one = bundle(*random_net("signals", 4), "keyword")
    for file, text in one.files.items():
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_text(text)
    done = subprocess.run(["make"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "warning" not in done.stderr
    np.testing.assert_array_equal(run(tmp_path / "example", one), one.expected)
    printed = subprocess.run([tmp_path / "example"], capture_output=True, text=True, check=True).stdout
    assert len(printed.split()) == one.expected.shape[1]


@needs_compiler
@needs_toolchain
def test_the_makefile_keeps_objects_of_different_cores_apart(tmp_path):
    if shutil.which("make") is None:
        pytest.skip("make is not installed: apt install make")
    one = bundle(*random_net("signals", 4), "keyword")
    for file, text in one.files.items():
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_text(text)
    for core, architecture in (("", ""), ("cortex-m4", "v7E-M"), ("cortex-m0", "v6S-M")):
        command = ["make"] if not core else ["make", "libkeyword.a", "CROSS=arm-none-eabi-", f"CPU={core}"]
        subprocess.run(command, cwd=tmp_path, capture_output=True, check=True)
        if core:
            attributes = ["arm-none-eabi-readelf", "-A", "libkeyword.a"]
            shown = subprocess.run(
                attributes, cwd=tmp_path, capture_output=True, text=True, check=True
            ).stdout
            assert f"Tag_CPU_arch: {architecture}\n" in shown


CONVOLUTIONS = {
    "same": nn.Conv2d(6, 5, 3, padding=1),
    "valid": nn.Conv2d(6, 7, (3, 2)),
    "stride": nn.Conv2d(6, 5, 3, (2, 3), 1),
    "same of a stride": nn.Sequential(nn.ZeroPad2d((0, 1, 0, 1)), nn.Conv2d(6, 4, 3, 2)),
    "dilation": nn.Conv2d(6, 5, (2, 3), dilation=(3, 2), padding=(0, 2)),
    "groups": nn.Conv2d(6, 9, 3, groups=3, padding=1),
    "two groups of points": nn.Conv2d(6, 4, 1, groups=2),
    "point": nn.Conv2d(6, 3, 1),
    "point of a stride": nn.Conv2d(6, 3, 1, 2),
    "row": nn.Conv2d(6, 3, (1, 4)),
    "column": nn.Conv2d(6, 3, (5, 1)),
    "one output channel": nn.Conv2d(6, 1, 3),
    "one input": nn.Conv2d(6, 4, (7, 9)),
    "no bias": nn.Conv2d(6, 5, 3, bias=False),
    "rectified": nn.Sequential(nn.Conv2d(6, 5, 3), nn.ReLU6()),
    "depthwise": nn.Conv2d(6, 6, 3, groups=6, padding=1),
    "depthwise stride": nn.Conv2d(6, 6, (5, 3), (2, 1), (2, 0), groups=6),
    "depthwise dilation": nn.Conv2d(6, 6, 3, groups=6, padding=2, dilation=2),
    "depth multiplier": nn.Conv2d(6, 18, 3, 2, 1, groups=6),
}


@needs_compiler
def test_convolutions_of_all_kinds(tmp_path):
    """A row of odd sizes each: dense, with half of the weights, with hardly any."""
    torch.manual_seed(0)
    x = torch.randn(32, 6, 7, 9)
    bundles = [
        bundle(net, x, f"net{3 * k + i}", 4, sparsity)
        for k, net in enumerate(CONVOLUTIONS.values())
        for i, sparsity in enumerate((0.0, 0.5, 0.9))
    ]
    wrong = differing(compiled(tmp_path, bundles, "-O1"), bundles)
    assert [list(CONVOLUTIONS)[int(name[3:]) // 3] for name in wrong] == []


CHANNEL, ROW = torch.linspace(-1, 2, 6)[:, None, None], torch.linspace(-3, 1, 9)
FUNCTIONS = {
    "logistic": torch.sigmoid,
    "tanh": torch.tanh,
    "hard swish": F.hardswish,
    "hard sigmoid": F.hardsigmoid,
    "silu": F.silu,
    "elu": F.elu,
    "leaky relu": lambda x: F.leaky_relu(x, 0.13),
    "relu": F.relu,
    "relu6": F.relu6,
    "hardtanh": F.hardtanh,
    "softmax": lambda x: x.softmax(-1),
    "softmax of channels": lambda x: x.softmax(1),
    "log softmax": lambda x: x.log_softmax(-1),
    "square": lambda x: x * x,
    "add": lambda x: x + x.sigmoid(),
    "sub": lambda x: x - x.tanh(),
    "add a number": lambda x: x + 1.3,
    "add to channels": lambda x: x + CHANNEL,
    "add to a row": lambda x: x + ROW,
    "subtract from channels": lambda x: CHANNEL - x,
    "times channels": lambda x: x * CHANNEL,
    "times a row": lambda x: x * ROW,
    "add means": lambda x: x + x.mean((2, 3), keepdim=True),
    "times means": lambda x: x.mean((2, 3), keepdim=True) * x,
    "times means of channels": lambda x: x * x.mean(1, keepdim=True),
    "rectified sum": lambda x: F.relu(x + x.sigmoid()),
    "by a number": lambda x: x / 3.3,
    "minimum": lambda x: torch.minimum(x, x * x),
    "maximum": lambda x: torch.maximum(x, -x),
    "maximum over images": lambda x: torch.maximum(x, x.mean((2, 3), keepdim=True)),
    "mean of channels": lambda x: x.mean(1),
    "mean of rows": lambda x: x.mean(2),
    "mean of an image": lambda x: x.mean((2, 3)),
    "mean of columns and channels": lambda x: x.mean((1, 3)),
    "mean of all": lambda x: x.mean((1, 2, 3)),
    "sum of rows": lambda x: x.sum(2),
    "sum of two": lambda x: x.sum((1, 2)),
    "largest": lambda x: x.amax((2, 3)),
    "largest channel": lambda x: x.amax(1),
    "smallest": lambda x: x.amin((1, 3)),
    "join channels": lambda x: torch.cat([x, x.sigmoid(), x * 3], 1),
    "join rows": lambda x: torch.cat([x, x.sigmoid()], 2),
    "join columns": lambda x: torch.cat([x, x.sigmoid()], 3),
    "stack first": lambda x: torch.stack([x.mean(1), x.amax(1)], 1),
    "stack last": lambda x: torch.stack([x.mean(1), x.amax(1)], 3),
    "transpose": lambda x: x.permute(0, 2, 3, 1) + 1,
    "transpose of rows": lambda x: x.transpose(2, 3).flatten(1) + 1,
    "every second": lambda x: x[:, :, 1::2],
    "some channels": lambda x: x[:, 1:4],
    "last columns": lambda x: x[..., -3:],
    "one row": lambda x: x[:, :, 2],
    "pad": lambda x: F.pad(x, (1, 2, 0, 1), value=0.7),
    "pad channels": lambda x: F.pad(x, (0, 0, 0, 0, 2, 1)),
    "nearest": lambda x: F.interpolate(x, scale_factor=2),
    "nearest to a size": lambda x: F.interpolate(x, size=(10, 13)),
    "max pool": lambda x: F.max_pool2d(x, 3, 2, 1),
    "max pool of rows": lambda x: F.max_pool2d(x, (2, 1)),
    "average pool": lambda x: F.avg_pool2d(x, (3, 2), 2),
    "same average pool": lambda x: F.avg_pool2d(x, 3, 1, 1, count_include_pad=False),
    "padded average pool": lambda x: F.avg_pool2d(x, 3, 2, 1),
}


@needs_compiler
def test_every_operator_alone(tmp_path):
    torch.manual_seed(0)
    x = torch.randn(32, 6, 7, 9) * 2 + 0.3
    bundles = [bundle(Net(function), x, f"net{k}", 4) for k, function in enumerate(FUNCTIONS.values())]
    kinds = {held.operator.kind for one in bundles for held in one.quantized.operators}
    wrong = differing(compiled(tmp_path, bundles, "-O1"), bundles)
    assert [list(FUNCTIONS)[int(name[3:])] for name in wrong] == []
    assert kinds >= {
        "add", "average_pool_2d", "concatenation", "elu", "hard_swish", "leaky_relu", "log_softmax",
        "logistic", "max_pool_2d", "maximum", "mean", "minimum", "mul", "pack", "pad", "reduce_max",
        "reduce_min", "relu", "reshape", "resize_nearest_neighbor", "softmax", "strided_slice", "sub",
        "sum", "tanh", "transpose",
    }  # fmt: skip


RECURRENT = {
    "lstm": nn.LSTM(4, 7, batch_first=True),
    "lstm without biases": nn.LSTM(4, 6, batch_first=True, bias=False),
    "two layers in two directions": nn.LSTM(4, 5, 2, batch_first=True, bidirectional=True),
    "gru": nn.GRU(4, 6, 2, batch_first=True, bidirectional=True),
    "rnn": nn.RNN(4, 6, batch_first=True),
    "rectified rnn": nn.RNN(4, 6, batch_first=True, nonlinearity="relu"),
}


@needs_compiler
def test_recurrent_layers_and_matrices(tmp_path):
    torch.manual_seed(0)
    nets = [(Net(lambda m, x: m.r(x)[0], r=layer), torch.randn(32, 9, 4) * 3) for layer in RECURRENT.values()]
    nets += [(nn.Linear(n, rows), torch.randn(32, n)) for n, rows in ((1, 1), (33, 7), (64, 10))]
    nets += [(nn.Linear(13, 6), torch.randn(32, steps, 13)) for steps in (4, 5)]
    bundles = [
        bundle(net, x, f"net{2 * k + i}", 4, sparsity)
        for k, (net, x) in enumerate(nets)
        for i, sparsity in enumerate((0.0, 0.7))
        if not (sparsity and x.numel() == 32)
    ]
    assert differing(compiled(tmp_path, bundles, "-O1"), bundles) == []
    kinds = {held.operator.kind for one in bundles for held in one.quantized.operators}
    assert kinds >= {"fully_connected", "reverse", "unidirectional_sequence_lstm", "while"}


class Frames(nn.Module):
    """Folds the steps of a sequence of images into the batch."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Conv2d(2, 6, 3, padding=1), nn.Conv2d(6, 6, 3, groups=6)
        self.c, self.d = nn.Linear(6, 3), nn.Conv2d(6, 6, 1)

    def forward(self, x):
        n, steps = x.shape[:2]
        y = F.max_pool2d(self.a(x.flatten(0, 1)).relu(), 2)
        return self.c(self.b(self.d(y)).mean((2, 3)).reshape(n, steps, 6).mean(1))


class Two(nn.Module):
    """Two inputs of different shapes, two outputs, one of which is made early."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Conv1d(3, 5, 3), nn.Linear(4, 5), nn.Linear(5, 2)

    def forward(self, pair):
        x, z = pair
        y = self.a(x).mean(2)
        return self.c(y), (y + self.b(z)).relu()


@needs_compiler
@pytest.mark.parametrize("sparsity", [0.0, 0.6])
def test_several_steps_in_one_batch_and_several_ports(sparsity, tmp_path):
    torch.manual_seed(0)
    frames = bundle(Frames(), torch.randn(32, 3, 2, 8, 8), "frames", 6, sparsity)
    two = bundle(Two(), [torch.randn(32, 3, 11), torch.randn(32, 4)], "two", 6, sparsity)
    (tmp_path / "all").mkdir()
    assert differing(compiled(tmp_path / "all", [frames, two], "-O2"), [frames, two]) == []
    header = two.files["two.h"]
    assert "#define TWO_INPUT_0_BYTES 33 " in header
    assert "#define TWO_OUTPUT_1_BYTES 5 " in header
    assert "int8_t *two_input_1(void);" in header
    for file, text in two.files.items():
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_text(text)
    command = ["gcc", *STRICT, "-o", "example", "main.c", "two.c"]
    subprocess.run(command, cwd=tmp_path, check=True)
    np.testing.assert_array_equal(run(tmp_path / "example", two), two.expected)


@needs_toolchain
@pytest.mark.parametrize("space", SPACES)
def test_constants_and_arena_are_as_predicted_to_the_byte(space):
    for seed in (20, 21, 23):
        net, samples = random_net(space, seed)
        one = bundle(net, samples, "net", 1, SPARSITIES[seed % len(SPARSITIES)])
        predicted = measure(lower(net, samples[:1]), generic(1e6), "c")  # before quantization, as in a search
        image = image_of(one)
        assert image.symbol("net_constants").n_bytes == predicted.model_size_bytes
        assert image.symbol("net_constants").section == ".rodata"
        assert image.symbol("net_arena").n_bytes == predicted.working_memory_bytes
        assert image.sizes.data_bytes == 0
        ends = one.inputs.shape[1] + one.expected.shape[1]
        assert image.sizes.bss_bytes - predicted.working_memory_bytes - ends in range(
            8
        )  # nothing but the arena


@needs_emulator
@pytest.mark.parametrize(
    ("core", "spaces"), [("cortex-m4", list(SPACES)), ("cortex-m0", ["images"]), ("cortex-m3", ["mixed"])]
)
def test_random_networks_compute_the_same_integers_on_a_core(core, spaces):
    for k, space in enumerate(spaces):
        net, samples = random_net(space, 30 + k)
        one = bundle(net, samples, "net", 2, 0.7 if k % 2 else 0.0)
        machine = Machine(image_of(one, core))
        for sample in range(2):
            done, outputs = on_machine(machine, one, sample)
            np.testing.assert_array_equal(outputs, one.expected[sample])
            assert done.stack_bytes < 1024


@needs_emulator
def test_a_small_network_is_small_and_fast():
    """CMSIS-NN's kernels, called one after another, take 2.54 M instructions and 24 kB of code."""
    torch.manual_seed(0)
    one = bundle(SmallCNN(), torch.randn(64, 1, 28, 28), "small", 1)
    image = image_of(one)
    done, outputs = on_machine(Machine(image), one)
    np.testing.assert_array_equal(outputs, one.expected[0])
    assert image.sizes.text_bytes < 6000
    assert done.stack_bytes < 1024
    assert done.n_instructions < 2_540_000


@needs_emulator
def test_the_same_input_gives_the_same_output_again():
    """The arena keeps nothing from one run to the next."""
    one = bundle(*random_net("sequences", 31), "net", 2, 0.6)
    machine = Machine(image_of(one))
    outputs = [on_machine(machine, one, sample)[1] for sample in (0, 1, 0)]
    np.testing.assert_array_equal(outputs[0], outputs[2])
    np.testing.assert_array_equal(outputs, one.expected[[0, 1, 0]])


class Refused(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.odd = layer

    def forward(self, x):
        return self.odd(x)


@pytest.mark.parametrize(
    ("layer", "shape", "kind"),
    [
        (nn.PReLU(), (6,), "prelu"),
        (nn.GELU(), (6,), "gelu"),
        (nn.ConvTranspose2d(2, 3, 2), (2, 4, 4), "transpose_conv"),
    ],
)
def test_what_cannot_be_exported_is_named(layer, shape, kind):
    samples = torch.randn(8, *shape)
    with pytest.raises(UnsupportedOperatorError, match=rf"{kind}.*odd") as error:
        write_c(quantize_graph(lower(Refused(layer), samples[:1]), [samples]))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["", "1st", "my net", "a-b", "ünder", "x" * 33, "a\n"])
def test_a_name_that_is_none_in_c_is_refused(name):
    samples = torch.randn(8, 3)
    with pytest.raises(ConfigError, match="name: expected letters"):
        write_c(quantize_graph(lower(nn.Linear(3, 2), samples[:1]), [samples]), name)


def test_the_header_says_what_the_values_mean():
    samples = torch.randn(16, 3, 4, 4)
    quantized = quantize_graph(lower(nn.Conv2d(3, 2, 1), samples[:1]), [samples])
    header = write_c(quantized, "eye", Description(2, (0.5, 0.4, 0.25), (1.0, 2.0, 4.0)))["eye.h"]
    assert "#define EYE_CLASSES 2\n" in header
    assert "#define EYE_MEAN {0.5f, 0.4f, 0.25f}\n" in header
    assert "#define EYE_STD {1.0f, 2.0f, 4.0f}\n" in header
    grid = quantized.grid(quantized.graph.inputs[0])
    assert f"#define EYE_INPUT_SCALE {grid.scale:.9g}f\n" in header
    assert f"#define EYE_INPUT_ZERO_POINT ({grid.zero_point})\n" in header
    assert "#define EYE_INPUT_BYTES 48 /* 1 x 4 x 4 x 3, the last dimension innermost */" in header
    assert f"#define EYE_CONSTANT_BYTES {constants(quantized.graph).n_bytes}\n" in header


def test_the_same_network_gives_the_same_text():
    assert bundle(*random_net("mixed", 1)).files == bundle(*random_net("mixed", 1)).files
