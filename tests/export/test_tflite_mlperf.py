"""The reference models of MLPerf Tiny, as TensorFlow's converter wrote them, against what was measured.

They lie beside the project (github.com/mlcommons/tiny, trained_models); without them the tests are skipped.
"""

import importlib.util
from pathlib import Path

import pytest

from sparsemod.export.analysis import analyze_file
from sparsemod.export.tflite_reader import read_tflite
from sparsemod.measure.latency import instructions
from sparsemod.measure.operators import lower
from sparsemod.measure.resources import measure, planned
from sparsemod.measure.targets import find_target, generic

ROOT = Path(__file__).parents[2]
FOLDER = ROOT.parent / "shared" / "data" / "mcu"
pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason=f"no reference models in {FOLDER}")

FILES = {
    "kws": "kws_ref_model.tflite",
    "ic": "pretrainedResnet_quant.tflite",
    "vww": "vww_96_int8.tflite",
    "ad": "ad01_int8.tflite",
    "sww": "str_ww_ref_model.tflite",
}
# parameters, multiply-accumulates, bytes of the file and of its constants, arena in the interpreter
TABLE = {
    "kws": (22604, 2656768, 53936, 24376, 16000),
    "ic": (77706, 12501632, 98496, 78752, 49152),
    "vww": (210850, 7489664, 333288, 219072, 73728),
    "ad": (265864, 264192, 276976, 270880, 768),
    "sww": (46883, 826368, 74520, 49420, 6656),
}
CORTEX_M4 = {  # arena, the interpreter's own structures, million instructions in the interpreter
    "kws": (16000, 6916, 7.847),
    "ic": (49728, 5364, 29.875),
    "vww": (73728, 27076, 24.722),
    "ad": (768, 1908, 0.583),
    "sww": (7936, 8756, 2.227),
}
CORES = ("cortex-m0+", "cortex-m3", "cortex-m4", "cortex-m55")
ALONE = {  # million instructions on these cores, operators called one after another
    "kws": (29.00, 10.54, 7.84, 1.78),
    "ic": (97.6, 41.8, 29.87, 4.81),
    "vww": (86.9, 32.1, 24.71, 6.43),
}


@pytest.mark.parametrize("name", FILES)
def test_counts_and_arena_are_exact(name):
    analysis = analyze_file(FOLDER / FILES[name], generic(1e6))
    sizes = analysis.sizes
    found = (
        analysis.n_parameters,
        analysis.n_macs,
        sizes.file_bytes,
        sizes.tensors_bytes,
        analysis.arena_bytes,
    )
    assert found == TABLE[name]
    assert analysis.latency_seconds == pytest.approx(analysis.n_macs / 1e6)


@pytest.mark.parametrize("name", FILES)
def test_a_cortex_m4_is_predicted(name):
    analysis = analyze_file(FOLDER / FILES[name], find_target("STM32F446"))
    arena, tail, millions = CORTEX_M4[name]
    assert analysis.target_arena_bytes == arena
    assert analysis.tail_bytes == pytest.approx(tail, rel=0.01)
    assert analysis.instructions == pytest.approx(millions * 1e6, rel=0.10)


@pytest.mark.parametrize("name", ALONE)
def test_every_core_is_predicted_within_four_percent(name):
    graph = read_tflite(FOLDER / FILES[name]).graph
    for core, millions in zip(CORES, ALONE[name], strict=True):
        total = sum(instructions(graph, operator, core, "cmsis-nn") for operator in graph.operators)
        assert total == pytest.approx(millions * 1e6, rel=0.04)


def lowered(name):
    """Lower the same architecture as a PyTorch module."""
    path = ROOT / "tests" / "measure" / "mlperf_nets.py"
    spec = importlib.util.spec_from_file_location("mlperf_nets_of_measure", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    import torch

    build, shape = module.INPUTS[name]
    return lower(build(), torch.zeros(shape))


@pytest.mark.parametrize("name", FILES)
def test_the_file_and_the_pytorch_module_agree(name):
    read, board = read_tflite(FOLDER / FILES[name]), find_target("STM32F446")
    module = lowered(name)
    kinds = [op.kind for op in read.graph.operators if op.kind != "reshape"]  # flatten costs a module nothing
    assert kinds == [op.kind for op in module.operators]
    resources = measure(module, board, "tflite-micro")
    analysis = analyze_file(FOLDER / FILES[name], board)
    assert analysis.n_macs == resources.n_macs
    assert analysis.n_parameters == resources.n_parameters
    assert analysis.target_arena_bytes == resources.working_memory_bytes
    assert (
        planned(read.graph, "tflite-micro").n_bytes
        == measure(module, generic(1), "tflite-micro").working_memory_bytes
    )
    assert analysis.latency_seconds == pytest.approx(resources.latency_seconds, rel=1e-3)
    got, want = (
        sorted(
            (op.kind, op.n_macs, round(instructions(graph, op, "cortex-m4", "cmsis-nn")))
            for op in graph.operators
            if op.kind != "reshape"
        )
        for graph in (read.graph, module)
    )
    assert got == want
