"""Writes a quantized network as C99: no runtime, no heap, no floats; equal to the `.tflite` file bit for bit.

    files = write_c(quantized)

The bundle holds `model.h` and `model.c`, the kernels that the network needs, an example `main.c`, a Makefile
and a page on how to use it. Everything but `main.c` goes into a firmware as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from string import Template

from sparsemod.compress.quantized_graph import QuantizedGraph, QuantizedOperator
from sparsemod.errors import ConfigError
from sparsemod.export.c_constants import ConstantPool
from sparsemod.export.c_draft import Draft
from sparsemod.export.c_loops import indented
from sparsemod.export.c_operators import statements
from sparsemod.export.tflite import Description
from sparsemod.measure.bundle_memory import layout

__all__ = ["write_c"]

_KERNELS = Path(__file__).with_name("kernels")
_TEMPLATES = Path(__file__).with_name("templates")
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,31}\Z")
_INCLUDE = re.compile(r'^#include "([a-z_]+\.h)"$', re.MULTILINE)


def write_c(
    quantized: QuantizedGraph, name: str = "model", description: Description | None = None
) -> Mapping[str, str]:
    """Return the files of a bundle, text by name.

    Args:
        quantized: From `sparsemod.compress.graph_quantization.quantize_graph`.
        name: What files and symbols begin with, so that several networks fit into one firmware.
        description: Class count and normalisation, for the header.

    Raises:
        ConfigError: The name is not one that C takes.
        UnsupportedOperatorError: Names operator and module of what there is no kernel for.
    """
    if not _NAME.match(name):
        raise ConfigError(f"name: expected letters, digits and underscores, a letter first, got '{name}'")
    plan = layout(quantized.graph)
    draft = Draft(quantized, plan, ConstantPool(f"{name}_constants"))
    body = "\n".join(_block(draft, held) for held in quantized.operators)
    needed = sorted(_with_included(draft.headers))
    values = {
        "name": name,
        "NAME": name.upper(),
        "arena_bytes": str(max(plan.arena.n_bytes, 16)),
        "constants": draft.constants.definition(),
        "includes": "\n".join(f'#include "kernels/{header}"' for header in sorted(draft.headers)),
        "body": indented(body),
        "ports": _ports(draft, name),
        "accessors": _accessors(draft, name),
        "declarations": _declarations(draft, name),
        "constant_bytes": str(draft.constants.n_bytes),
        "described": _described(name, description),
        "in": _marks(draft.graph.inputs)[0],
        "out": _marks(draft.graph.outputs)[0],
        **_example(draft, name),
    }
    files = {
        f"{name}.h": "model.h",
        f"{name}.c": "model.c",
        "main.c": "main.c",
        "Makefile": "Makefile",
        "README.md": "README.md",
    }
    written = {
        file: Template((_TEMPLATES / source).read_text()).substitute(values) for file, source in files.items()
    }
    return written | {f"kernels/{header}": (_KERNELS / header).read_text() for header in needed}


def _block(draft: Draft, held: QuantizedOperator) -> str:
    text = statements(draft, held)
    if not text:
        return ""
    where = f" {held.operator.module}" if held.operator.module else ""
    return f"{{ /* {held.operator.kind}{where} */\n{indented(text)}\n}}"


def _with_included(headers: Iterable[str]) -> set[str]:
    found: set[str] = set()
    waiting = list(headers)
    while waiting:
        header = waiting.pop()
        if header not in found:
            found.add(header)
            waiting += _INCLUDE.findall((_KERNELS / header).read_text())
    return found


def _marks(ids: tuple[int, ...]) -> list[str]:
    return [""] if len(ids) == 1 else [f"_{k}" for k in range(len(ids))]


def _declarations(draft: Draft, name: str) -> str:
    lines = []
    for what, ids, const in (("input", draft.graph.inputs, ""), ("output", draft.graph.outputs, "const ")):
        lines += [
            f"{const}int8_t *{name}_{what}{mark}(void);" for mark, _ in zip(_marks(ids), ids, strict=True)
        ]
    return "\n".join(lines)


def _example(draft: Draft, name: str) -> dict[str, str]:
    """Return what the example does with each input and output."""
    big = name.upper()
    ins = [(f"{name}_input{k}()", f"{big}_INPUT{k}") for k in _marks(draft.graph.inputs)]
    outs = [(f"{name}_output{k}()", f"{big}_OUTPUT{k}") for k in _marks(draft.graph.outputs)]
    reads = [f"fread({place}, 1, {port}_BYTES, stdin) == {port}_BYTES" for place, port in ins]
    return {
        "reads": " &&\n               ".join(reads),
        "writes": "\n".join(f"            fwrite({place}, 1, {port}_BYTES, stdout);" for place, port in outs),
        "zeros": "\n".join(f"    memset({place}, {port}_ZERO_POINT, {port}_BYTES);" for place, port in ins),
        "prints": "\n".join(
            f'    for (int i = 0; i < {port}_BYTES; ++i) {{\n        printf("%d\\n", {place}[i]);\n    }}'
            for place, port in outs
        ),
    }


def _accessors(draft: Draft, name: str) -> str:
    lines = []
    for what, ids, const in (("input", draft.graph.inputs, ""), ("output", draft.graph.outputs, "const ")):
        for mark, i in zip(_marks(ids), ids, strict=True):
            lines.append(f"{const}int8_t *{name}_{what}{mark}(void) {{\n    return {draft.tensor(i)};\n}}")
    return "\n\n".join(lines)


def _ports(draft: Draft, name: str) -> str:
    lines = []
    for what, ids in (("INPUT", draft.graph.inputs), ("OUTPUT", draft.graph.outputs)):
        for mark, i in zip(_marks(ids), ids, strict=True):
            tensor, grid = draft.graph.tensors[i], draft.quantized.grid(i)
            head = f"#define {name.upper()}_{what}{mark}"
            shape = " x ".join(str(n) for n in tensor.shape)
            lines += [
                f"{head}_BYTES {tensor.n_bytes} /* {shape}, the last dimension innermost */",
                f"{head}_SCALE {_float(grid.scale)}",
                f"{head}_ZERO_POINT ({grid.zero_point})",
            ]
    return "\n".join(lines)


def _float(value: float) -> str:
    text = f"{value:.9g}"
    return text + ("f" if "." in text or "e" in text else ".0f")


def _described(name: str, description: Description | None) -> str:
    if description is None:
        return ""
    lines = [f"#define {name.upper()}_CLASSES {description.classes}"]
    for what, values in (("MEAN", description.mean), ("STD", description.std)):
        if values:
            lines.append(f"#define {name.upper()}_{what} {{{', '.join(_float(v) for v in values)}}}")
    return "\n".join(lines) + "\n"
