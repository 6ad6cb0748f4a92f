"""Compiles a C bundle for this computer and runs it there.

ran = run_on_host(write_c(quantized), "model", rows, n_output)
ran.outputs, ran.constant_bytes, ran.arena_bytes
"""

from __future__ import annotations

import importlib.util
import io
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from numpy.typing import NDArray

from sparsemod.errors import CandidateError, ConfigError
from sparsemod.export.toolchain import reason, write_sources

__all__ = ["HostRun", "missing", "run_on_host"]

_COMPILERS = ("cc", "gcc", "clang")


@dataclass(frozen=True, slots=True, eq=False)
class HostRun:
    """What a bundle did on this computer.

    Attributes:
        outputs: (samples, bytes) stored integers, all outputs in a row.
        constant_bytes: Size of the constants in the linked program.
        arena_bytes: Size of the arena in it.
    """

    outputs: NDArray[np.int8]
    constant_bytes: int
    arena_bytes: int


def missing() -> tuple[str, ...]:
    """Return what running lacks, one line each with the way to install it; empty if it can be done."""
    lines = []
    if _compiler() is None:
        lines.append("a C compiler is not installed: apt install gcc")
    if importlib.util.find_spec("elftools") is None:
        lines.append("pyelftools is not installed: pip install 'sparsemod[verify]'")
    return tuple(lines)


def run_on_host(files: Mapping[str, str], name: str, rows: NDArray[np.int8], n_output_bytes: int) -> HostRun:
    """Compile a bundle with its example program and run every sample.

    Args:
        files: From `sparsemod.export.c_bundle.write_c`.
        name: The bundle's.
        rows: (samples, bytes) stored integers, all inputs in a row.
        n_output_bytes: Bytes of all outputs.

    Raises:
        ConfigError: A tool is not installed.
        CandidateError: The compiler refused, or the program failed.
    """
    lacking = missing()
    if lacking:
        raise ConfigError(lacking[0])
    with TemporaryDirectory(prefix="sparsemod") as folder:
        write_sources(folder, files)
        program = Path(folder, "program")
        command = [str(_compiler()), "-std=c99", "-O2", "-o", str(program), "main.c", f"{name}.c"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise CandidateError(f"{command[0]} refused the bundle: {reason(done.stderr)}", done.stderr)
        ran = subprocess.run([str(program), "-"], input=rows.tobytes(), capture_output=True, check=False)
        if ran.returncode != 0 or len(ran.stdout) != len(rows) * n_output_bytes:
            raise CandidateError(f"the bundle's program ended early, with code {ran.returncode}")
        sizes = _object_sizes(program.read_bytes())
    outputs = np.frombuffer(ran.stdout, np.int8).reshape(len(rows), n_output_bytes)
    return HostRun(outputs, sizes.get(f"{name}_constants", 0), sizes.get(f"{name}_arena", 0))


def _compiler() -> str | None:
    return next((path for name in _COMPILERS if (path := shutil.which(name))), None)


def _object_sizes(program: bytes) -> dict[str, int]:
    from elftools.common.exceptions import ELFError
    from elftools.elf.elffile import ELFFile

    try:
        table = ELFFile(io.BytesIO(program)).get_section_by_name(".symtab")
    except ELFError:  # the program is not in this format on macOS and Windows
        return {}
    return {} if table is None else {symbol.name: int(symbol["st_size"]) for symbol in table.iter_symbols()}
