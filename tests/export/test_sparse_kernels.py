import ctypes
import shutil
import subprocess

import numpy as np
import pytest
from hypothesis import given
from hypothesis.extra import numpy as arrays
from sparse_cases import HEADERS, PREFIX, conv, dense, gate, random_conv, sparse_values

from sparsemod.export import emulation
from sparsemod.export.emulation import Machine
from sparsemod.export.sparse_weights import bitmap, encode
from sparsemod.export.toolchain import build
from sparsemod.measure.sparse import can_be_sparse, sparse_bytes

SPARSITIES = (0.0, 0.5, 0.8, 0.9, 1.0)
needs_compiler = pytest.mark.skipif(shutil.which("gcc") is None, reason="no C compiler: apt install gcc")
needs_emulator = pytest.mark.skipif(bool(emulation.missing()), reason="; ".join(emulation.missing()))


def random_cases(n, seed, full=False):
    rng = np.random.default_rng(seed)
    cases = [random_conv(f"conv{i}", rng, full) for i in range(n)]
    for i in range(n // 2):
        rows, columns = (int(v) for v in rng.integers(1, 140, 2))
        sparsity = float(rng.choice(SPARSITIES))
        cases.append(
            dense(
                f"dense{i}",
                rng,
                rows=rows,
                columns=columns,
                sparsity=sparsity,
                per_row=bool(i % 2),
                full=full,
            )
        )
        cases.append(
            gate(f"gate{i}", rng, inputs=columns, size=int(rng.integers(1, 60)), sparsity=sparsity, full=full)
        )
    return cases


def depthwise(name, rng, *, channels, multiplier=1, kernel=(3, 3), **kinds):
    return conv(
        name,
        rng,
        channels=channels,
        out_channels=channels * multiplier,
        kernel=kernel,
        groups=channels,
        depthwise=True,
        **kinds,
    )


def special_cases():
    rng = np.random.default_rng(7)
    empty_rows = sparse_values(rng, (6, 3, 3, 5), 0.5)
    empty_rows[[0, 2, 5]] = 0
    lines = sparse_values(rng, (7, 45), 0.5)
    lines[[0, 3, 6]] = 0
    same = (1, 1, 1, 1)
    extremes = np.full((2, 3, 3, 30), -128, np.int8)
    return [
        conv(
            "empty", rng, size=(6, 7), channels=5, out_channels=6, kernel=(3, 3), pads=same, values=empty_rows
        ),
        conv("extreme", rng, size=(5, 6), channels=30, out_channels=2, kernel=(3, 3), values=extremes),
        conv("narrow", rng, size=(25, 5), channels=8, out_channels=8, kernel=(3, 3), groups=8, pads=same),
        depthwise("thin", rng, size=(25, 5), channels=8, pads=same),
        depthwise("stride", rng, size=(12, 13), channels=6, stride=(2, 2), pads=(0, 1, 0, 1)),
        depthwise("pace", rng, size=(13, 12), channels=3, stride=(4, 3), pads=(1, 0, 1, 0)),
        depthwise("spread", rng, size=(11, 9), channels=4, dilation=(2, 1), pads=(2, 2, 1, 1)),
        depthwise("double", rng, size=(7, 8), channels=5, multiplier=2, pads=same, sparsity=0.0),
        depthwise("point_by_point", rng, size=(4, 4), channels=5, kernel=(1, 1), sparsity=0.5),
        depthwise("beside", rng, size=(1, 1), channels=3, pads=(2, 2, 2, 2)),
        conv("low", rng, size=(3, 30), channels=2, out_channels=4, kernel=(3, 3), pads=same),
        conv("tiny", rng, size=(1, 1), channels=3, out_channels=4, kernel=(3, 3), pads=same),
        conv(
            "stem",
            rng,
            size=(17, 19),
            channels=1,
            out_channels=8,
            kernel=(5, 5),
            stride=(2, 2),
            pads=(2, 2, 2, 2),
        ),
        conv("point", rng, size=(9, 11), channels=33, out_channels=7, kernel=(1, 1), sparsity=0.9),
        conv(
            "line",
            rng,
            size=(1, 40),
            channels=5,
            out_channels=6,
            kernel=(1, 7),
            dilation=(1, 2),
            pads=(0, 0, 6, 6),
        ),
        conv(
            "wide", rng, size=(8, 8), channels=4, out_channels=12, kernel=(3, 3), groups=4, pads=(0, 1, 0, 1)
        ),
        conv("full", rng, size=(6, 6), channels=4, out_channels=4, kernel=(3, 3), pads=same, sparsity=0.0),
        conv(
            "far",
            rng,
            size=(4, 9),
            channels=2,
            out_channels=2,
            kernel=(5, 3),
            dilation=(3, 3),
            pads=(8, 8, 3, 3),
        ),
        conv("reach", rng, size=(2, 200), channels=200, out_channels=2, kernel=(2, 1), sparsity=0.5),
        dense("lines", rng, rows=7, columns=45, values=lines),
        dense("one", rng, rows=1, columns=1, sparsity=0.0),
        dense("words", rng, rows=9, columns=64),
        dense("nothing", rng, rows=3, columns=11, sparsity=1.0),
    ]


def differing(cases, run):
    return [c.name for c in cases if run(c.name, c.expected.nbytes) != c.expected.tobytes()]


def write(folder, cases, main=""):
    for name, text in HEADERS.items():
        (folder / name).write_text(text)
    (folder / "cases.c").write_text(PREFIX + "".join(c.text for c in cases) + main)


@needs_compiler
def test_host_equals_the_integer_simulation_on_every_value(tmp_path):
    cases = [*special_cases(), *random_cases(80, 1)]
    write(tmp_path, cases)
    library = tmp_path / "cases.so"
    strict = ["-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror"]
    command = ["gcc", *strict, "-O1", "-shared", "-fPIC", "-o", str(library), str(tmp_path / "cases.c")]
    subprocess.run(command, check=True)
    loaded = ctypes.CDLL(str(library))

    def run(name, n_bytes):
        getattr(loaded, f"run_{name}")()
        return bytes((ctypes.c_char * n_bytes).in_dll(loaded, f"output_{name}"))

    assert differing(cases, run) == []
    assert len({value for c in cases for value in np.unique(c.expected)}) > 200  # not all saturated


@needs_compiler
def test_no_byte_beside_an_array_is_touched(tmp_path):
    """The sanitizers end the program at the first stray access, overflow or undefined shift."""
    cases = [*special_cases(), *random_cases(30, 2)]
    calls = "".join(f"run_{c.name}();" for c in cases)
    write(tmp_path, cases, f"int main(void) {{ {calls} return 0; }}\n")
    program = tmp_path / "cases"
    command = ["gcc", "-std=c99", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover"]
    compiled = subprocess.run(
        [*command, "-o", str(program), str(tmp_path / "cases.c")], capture_output=True, text=True, check=False
    )
    if compiled.returncode != 0:
        pytest.skip("this compiler has no sanitizers")
    done = subprocess.run([str(program)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[:2000]


@needs_emulator
@pytest.mark.parametrize("core", ["cortex-m0", "cortex-m3", "cortex-m4"])
@pytest.mark.parametrize("full", [False, True])
def test_cores_equal_the_integer_simulation_on_every_value(core, full):
    cases = random_cases(24, 5, full) if full else [*special_cases(), *random_cases(12, 3)]
    keep = [f"{kind}_{c.name}" for c in cases for kind in ("run", "output")]
    sources = {**HEADERS, "cases.c": PREFIX + "".join(c.text for c in cases)}
    machine = Machine(build(sources, core, keep=keep))
    depths = []

    def run(name, n_bytes):
        done = machine.call(f"run_{name}", reads={f"output_{name}": n_bytes})
        depths.append(done.stack_bytes)
        return done.outputs[f"output_{name}"]

    assert differing(cases, run) == []
    assert max(depths) < 1024


@needs_emulator
def test_a_layer_of_few_weights_takes_fewer_instructions_than_a_full_one():
    """Of 0.8 zeros in 16 channels of 3 x 3 x 16: 0.325 of the flash, under half of the instructions."""
    counts, sizes = [], []
    for sparsity in (0.0, 0.8):
        case = conv(
            "layer",
            np.random.default_rng(0),
            size=(16, 16),
            channels=16,
            out_channels=16,
            kernel=(3, 3),
            pads=(1, 1, 1, 1),
            sparsity=sparsity,
        )
        sources = {**HEADERS, "layer.c": PREFIX + case.text}
        image = build(sources, "cortex-m4", keep=["run_layer", "weights_layer"])
        counts.append(Machine(image).call("run_layer").n_instructions)
        sizes.append(image.symbol("weights_layer").n_bytes)
    n = 16 * 9 * 16
    assert sizes == [n // 8 + n, n // 8 + n - round(0.8 * n)]
    assert counts[1] < 0.5 * counts[0]
    assert counts[1] < 1_373_120  # of CMSIS-NN's dense kernel on the same layer


@given(arrays.arrays(np.int8, arrays.array_shapes(min_dims=1, max_dims=4, min_side=1, max_side=9)))
def test_bitmap_holds_everything(values):
    bits, nonzeros = bitmap(values)
    unpacked = np.unpackbits(np.frombuffer(bits, np.uint8), bitorder="little")
    assert not unpacked[values.size :].any()
    restored = np.zeros(values.size, np.int8)
    restored[unpacked[: values.size].astype(bool)] = np.frombuffer(nonzeros, np.int8)
    assert np.array_equal(restored.reshape(values.shape), values)
    assert encode(values) == bits + nonzeros
    assert len(encode(values)) == sparse_bytes(values.size, int(np.count_nonzero(values)))


def test_offsets_of_the_widest_layer_have_16_bits():
    assert can_be_sparse((2, 1), (1, 1), 255, 256)  # the last offset is 256 * 255 + 255 = 65535
    assert not can_be_sparse((2, 1), (1, 1), 256, 256)
    assert not can_be_sparse((2, 2), (1, 1), 255, 256, groups=256)
    assert can_be_sparse((2, 2), (1, 1), 254, 256, groups=256)
    assert can_be_sparse((1, 1), (1, 1), 1, 2**16)


SAME = {"kernel": (3, 3), "pads": (1, 1, 1, 1)}
LAYERS = {
    "convolution": lambda rng, **kinds: conv(
        "it", rng, size=(14, 14), channels=8, out_channels=16, **SAME, **kinds
    ),
    "depthwise": lambda rng, **kinds: depthwise(
        "it", rng, size=(25, 5), channels=64, pads=(1, 1, 1, 1), **kinds
    ),
    "matrix": lambda rng, **kinds: dense("it", rng, rows=10, columns=64, **kinds),
    "gate": lambda rng, **kinds: gate("it", rng, inputs=32, size=32, **kinds),
}


@needs_emulator
@pytest.mark.parametrize("kind", LAYERS)
def test_four_fifths_of_zeros_cost_few_instructions(kind):
    """At most 1.3 times those of our dense kernels, for 0.33 of their weights' flash."""
    counts = []
    for kinds in ({"full": True, "sparsity": 0.0}, {"sparsity": 0.8}):
        case = LAYERS[kind](np.random.default_rng(0), **kinds)
        image = build({**HEADERS, "it.c": PREFIX + case.text}, "cortex-m4", keep=["run_it", "output_it"])
        counts.append(Machine(image).call("run_it").n_instructions)
    assert counts[1] <= 1.3 * counts[0]
