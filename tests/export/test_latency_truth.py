"""Predicted instructions of whole networks beside what their bundles execute on emulated cores."""

import numpy as np
import pytest
from random_nets import SPACES, random_net

from sparsemod.compress.graph_quantization import quantize_graph
from sparsemod.compress.masks import apply_masks, magnitude_masks, prunable_parameters
from sparsemod.export.c_bundle import write_c
from sparsemod.export.emulation import Machine, missing
from sparsemod.export.toolchain import build
from sparsemod.measure.latency import instructions
from sparsemod.measure.operators import lower

NAMES = {"cortex-m0+": "cortex-m0plus", "cortex-m3": "cortex-m3", "cortex-m4": "cortex-m4"}

COUNTED = {  # by `benchmarks/latency_truth.py`: `model_run` on the M0+, M3 and M4, -O2
    ("images", 7008, 0.0): (60939502, 24370603, 17432371),
    ("images", 7012, 0.5): (4467599, 2235304, 2007837),
    ("signals", 7009, 0.0): (1461841, 578467, 415331),
    ("signals", 7005, 0.9): (13034, 6796, 6240),
    ("sequences", 7010, 0.0): (3058470, 1566304, 1259972),
    ("sequences", 7022, 0.9): (5073759, 2570209, 2495579),
    ("mixed", 7003, 0.8): (119568, 63760, 59432),
}


def network(space, seed, sparsity):
    net, samples = random_net(space, seed)
    if sparsity:
        apply_masks(net, magnitude_masks(prunable_parameters(net), sparsity))
    return net, samples


def predicted(graph, core):
    return sum(instructions(graph, operator, core, "c") for operator in graph.operators)


@pytest.mark.parametrize("case", COUNTED, ids=lambda case: f"{case[0]}-{case[1]}")
def test_a_network_that_was_not_fitted_is_predicted(case):
    net, samples = network(*case)
    graph = lower(net, samples[:1])
    for core, counted in zip(NAMES, COUNTED[case], strict=True):
        assert predicted(graph, core) == pytest.approx(counted, rel=0.15)


@pytest.mark.skipif(bool(missing()), reason="; ".join(missing()))
@pytest.mark.parametrize(
    ("core", "space"), [("cortex-m0+", "mixed"), ("cortex-m3", "signals"), ("cortex-m4", "sequences")]
)
def test_a_prediction_is_what_the_core_executes(core, space):
    net, samples = network(space, 7100 + list(SPACES).index(space), 0.8)
    graph = lower(net, samples[:1])
    files = write_c(quantize_graph(graph, [samples]))
    files = {name: text for name, text in files.items() if name.endswith((".c", ".h")) and name != "main.c"}
    n_bytes = graph.tensors[graph.inputs[0]].n_bytes
    files["input.c"] = (
        '#include "model.h"\n#include <string.h>\nint8_t given[MODEL_INPUT_BYTES];\n'
        "void load(void) { memcpy(model_input(), given, MODEL_INPUT_BYTES); }\n"
    )
    machine = Machine(build(files, NAMES[core], keep=["given", "load", "model_run"]))
    given = np.random.default_rng(0).integers(-128, 128, n_bytes).astype(np.int8)
    machine.call("load", writes={"given": given.tobytes()})
    assert predicted(graph, core) == pytest.approx(machine.call("model_run").n_instructions, rel=0.30)
