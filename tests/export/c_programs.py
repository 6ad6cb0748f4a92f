"""C bundles of networks, compiled for a computer or a microcontroller, and what they have to compute."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass

import numpy as np
from torch import nn

from sparsemod.compress.graph_quantization import quantize_graph
from sparsemod.compress.integer import quantize, run_stored
from sparsemod.compress.masks import apply_masks, magnitude_masks, prunable_parameters
from sparsemod.compress.quantized_graph import QuantizedGraph
from sparsemod.export.c_bundle import write_c
from sparsemod.export.toolchain import build
from sparsemod.measure.batches import to_memory
from sparsemod.measure.operators import lower

STRICT = ("-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Werror")


@dataclass(frozen=True)
class Bundle:
    """A network as C, and samples in stored integers: a row each, all inputs or all outputs in it."""

    name: str
    quantized: QuantizedGraph
    files: dict[str, str]
    inputs: np.ndarray
    expected: np.ndarray

    @property
    def sources(self) -> dict[str, str]:
        """What goes into a firmware."""
        return {
            file: text
            for file, text in self.files.items()
            if file.endswith((".c", ".h")) and file != "main.c"
        }


def bundle(net: nn.Module, samples, name: str = "model", n: int = 8, sparsity: float = 0.0) -> Bundle:
    """samples: (samples, ...), or a list of such for several inputs."""
    if sparsity:
        apply_masks(net, magnitude_masks(prunable_parameters(net), sparsity))
    several = isinstance(samples, list)
    graph = lower(net.eval(), [x[:1] for x in samples] if several else samples[:1])
    quantized = quantize_graph(graph, [samples])
    few = [x[:n] for x in samples] if several else samples[:n]
    own = quantized.graph
    stored = [quantize(x, quantized.grid(i)) for i, x in zip(own.inputs, to_memory(own, few), strict=True)]
    files = dict(write_c(quantized, name))
    return Bundle(name, quantized, files, _rows(stored), _rows(run_stored(quantized, stored)))


def _rows(values) -> np.ndarray:
    return np.concatenate([x.numpy().reshape(len(x), -1) for x in values], 1)


def ports(one: Bundle, what: str) -> list[tuple[str, str]]:
    """Return address and size of each input or output in C."""
    graph = one.quantized.graph
    n = len(graph.inputs if what == "input" else graph.outputs)
    marks = [""] if n == 1 else [f"_{k}" for k in range(n)]
    return [(f"{one.name}_{what}{k}()", f"{one.name.upper()}_{what.upper()}{k}_BYTES") for k in marks]


def compiled(folder, bundles: list[Bundle], *flags: str, compiler: str = "gcc"):
    """Compile one program of several bundles; its argument says which of them runs."""
    text = "#include <stdio.h>\n#include <stdlib.h>\n"
    cases = ""
    for k, one in enumerate(bundles):
        for file, content in one.sources.items():
            (folder / file).parent.mkdir(exist_ok=True)
            (folder / file).write_text(content)
        text += f'#include "{one.name}.h"\n'
        reads = " && ".join(f"fread({at}, 1, {n}, stdin) == {n}" for at, n in ports(one, "input"))
        writes = " ".join(f"fwrite({at}, 1, {n}, stdout);" for at, n in ports(one, "output"))
        cases += f"    case {k}: while ({reads}) {{ {one.name}_run(); {writes} }} break;\n"
    text += "int main(int argc, char **argv) {\n    switch (argc > 1 ? atoi(argv[1]) : -1) {\n" + cases
    (folder / "driver.c").write_text(text + "    }\n    return 0;\n}\n")
    program = folder / "program"
    files = ["driver.c", *(f"{one.name}.c" for one in bundles)]
    command = [compiler, *STRICT, *flags, "-o", str(program), *files]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(done.stderr[:3000])
    return program


def differing(program, bundles: list[Bundle]) -> list[str]:
    """Return the names of the bundles of which any output value is not as it has to be."""
    return [
        one.name for k, one in enumerate(bundles) if not np.array_equal(run(program, one, k), one.expected)
    ]


def run(program, one: Bundle, k: int = 0) -> np.ndarray:
    """Return the outputs of a bundle for all of its samples."""
    command = [str(program), str(k)]
    done = subprocess.run(command, input=one.inputs.tobytes(), capture_output=True, check=False)
    if done.returncode != 0 or done.stderr:
        raise RuntimeError(f"{one.name}: {done.stderr.decode()[:3000]}")
    return np.frombuffer(done.stdout, np.int8).reshape(one.expected.shape)


def image_of(one: Bundle, core: str = "cortex-m4", optimize: str = "-O2"):
    """Link a bundle as firmware, with functions that copy its inputs and outputs."""
    text = f'#include <string.h>\n#include "{one.name}.h"\n'
    text += f"int8_t fed[{one.inputs.shape[1]}], made[{one.expected.shape[1]}];\n"
    for function, what, array in (("feed", "input", "fed"), ("take", "output", "made")):
        text += f"void {function}(void);\nvoid {function}(void) {{\n    int8_t *p = {array};\n"
        for at, n in ports(one, what):
            target = f"{at}, p" if what == "input" else f"p, {at}"
            text += f"    memcpy({target}, {n});\n    p += {n};\n"
        text += "}\n"
    keep = ["fed", "made", "feed", "take", f"{one.name}_run"]
    return build({**one.sources, "ends.c": text}, core, keep=keep, optimize=optimize)


def on_machine(machine, one: Bundle, sample: int = 0):
    """Return what the network's call took, and its outputs."""
    machine.call("feed", writes={"fed": one.inputs[sample].tobytes()})
    done = machine.call(f"{one.name}_run")
    taken = machine.call("take", reads={"made": one.expected.shape[1]})
    return done, np.frombuffer(taken.outputs["made"], np.int8)
