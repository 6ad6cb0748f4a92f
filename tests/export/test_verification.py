"""Promises beside what the real runtimes show: true ones, rigged ones, and tools that are missing."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from random_nets import random_net

from sparsemod.compress.graph_quantization import quantize_graph
from sparsemod.compress.integer import quantize, run_stored
from sparsemod.export import emulation, host, verification
from sparsemod.export.tflite import write_tflite
from sparsemod.export.verification import Finding, Promise, Samples, verify
from sparsemod.export.verify import can_compare
from sparsemod.measure.batches import to_memory
from sparsemod.measure.bundle import constants
from sparsemod.measure.operators import lower
from sparsemod.measure.resources import arena

everything = pytest.mark.skipif(
    not can_compare() or bool(host.missing()) or bool(emulation.missing()),
    reason=f"needs tflite-micro, {'; '.join((*host.missing(), *emulation.missing()))}",
)


@pytest.fixture(scope="module")
def promised():
    net, samples = random_net("signals", 1)
    quantized = quantize_graph(lower(net, samples[:1]), [samples])
    graph = quantized.graph
    stored = [
        quantize(x, quantized.grid(i)) for i, x in zip(graph.inputs, to_memory(graph, samples), strict=True)
    ]
    expected = [x.numpy() for x in run_stored(quantized, stored)]
    classes = expected[0].reshape(len(samples), -1).argmax(1)
    labels = np.where(np.arange(len(samples)) % 4 == 0, classes + 1, classes)  # a quarter is wrong
    content = write_tflite(quantized)
    promise = Promise(
        quantized=quantized,
        content=content,
        error=0.25,
        file_bytes=len(content),
        tflite_arena_bytes=arena(graph, "tflite-micro").n_bytes,
        constant_bytes=constants(graph).n_bytes,
        arena_bytes=arena(graph, "c").n_bytes,
        instructions=1.0,
        cycles_per_instruction=1.5,
        clock_hz=80e6,
    )
    return promise, Samples(tuple(x.numpy() for x in stored), tuple(expected), labels)


def named(found):
    return {(f.runtime, f.figure): f for f in found.findings}


@everything
def test_what_is_promised_is_what_the_runtimes_show(promised):
    promise, samples = promised
    found = named(verify(promise, samples, "cortex-m4"))
    wrong = {name for name, finding in found.items() if not finding.agrees}
    assert wrong == {("C on cortex-m4", "instructions"), ("C on cortex-m4", "latency")}  # rigged
    n_values = samples.expected_rows.size
    for runtime in ("tflite-micro", "C on this computer"):
        assert found[runtime, "equal outputs"].real == n_values
        assert found[runtime, "accuracy"].real == 0.75
    real = found["C on cortex-m4", "instructions"].real
    assert found["C on cortex-m4", "latency"].real == pytest.approx(real * 1.5 / 80e6 * 1000)
    assert 0 < found["C on cortex-m4", "stack"].real < 1024
    right = verify(replace(promise, instructions=real * 1.2), samples, "cortex-m4")
    assert right.agrees
    assert right.skipped == ()
    assert right.as_dict()["agrees"] is True


@pytest.mark.skipif(bool(host.missing()), reason="; ".join(host.missing()))
def test_a_promise_that_is_not_kept_is_found(promised, monkeypatch):
    promise, samples = promised
    monkeypatch.setattr(verification, "can_compare", lambda: False)
    monkeypatch.setattr(verification.emulation, "missing", lambda: ("unicorn is not installed: pip",))
    small = replace(promise, constant_bytes=promise.constant_bytes - 1, error=0.252)
    found = verify(small, samples, "cortex-m4")
    wrong = {f.figure: f.difference for f in found.findings if not f.agrees}
    assert wrong == {"constants": -1, "accuracy": pytest.approx(-0.002)}
    assert not found.agrees
    assert found.skipped == (
        "tflite-micro: tflite-micro is not installed: pip install 'sparsemod[verify]'",
        "C on cortex-m4: unicorn is not installed: pip",
    )
    other = replace(samples, expected=(samples.expected[0] ^ 1,))
    equal = next(f for f in verify(promise, other, "cortex-m4").findings if f.figure == "equal outputs")
    assert (equal.real, equal.agrees) == (0, False)


def test_without_any_tool_nothing_is_found_and_all_is_said(promised, monkeypatch):
    monkeypatch.setattr(verification, "can_compare", lambda: False)
    for module in (verification.emulation, verification.host):
        monkeypatch.setattr(module, "missing", lambda: ("gcc is not installed: apt install gcc",))
    found = verify(*promised, "cortex-m3")
    assert found.findings == ()
    assert len(found.skipped) == 3


@pytest.mark.parametrize(
    ("predicted", "real", "tolerance", "relative", "agrees"),
    [
        (100, 100, 0.0, False, True),
        (101, 100, 0.0, False, False),
        (0.901, 0.9, 0.001, False, True),
        (0.9, 0.9021, 0.001, False, False),
        (130, 100, 0.3, True, True),
        (69, 100, 0.3, True, False),
        (None, 5, 0.0, False, True),
    ],
)
def test_tolerances(predicted, real, tolerance, relative, agrees):
    assert Finding("r", "f", "", predicted, real, tolerance, relative).agrees is agrees


@pytest.mark.skipif(bool(host.missing()), reason="; ".join(host.missing()))
def test_a_bundle_that_does_not_compile_is_one_line():
    from sparsemod.errors import CandidateError

    with pytest.raises(CandidateError, match=r"refused the bundle: .*error"):
        host.run_on_host({"main.c": "int main(", "model.c": ""}, "model", np.zeros((1, 1), np.int8), 1)
    with pytest.raises(CandidateError, match="ended early, with code 3"):
        files = {"main.c": "int main(void) { return 3; }", "model.c": "typedef int unused;"}
        host.run_on_host(files, "model", np.zeros((1, 1), np.int8), 1)


def test_samples_lie_in_rows():
    x = np.arange(12, dtype=np.int8).reshape(2, 2, 3)
    samples = Samples((x, x[:, :1, 0]), (x,), np.zeros(2, np.int64))
    assert samples.rows.tolist() == [[0, 1, 2, 3, 4, 5, 0], [6, 7, 8, 9, 10, 11, 6]]
    assert torch.from_numpy(samples.expected_rows).shape == (2, 6)
