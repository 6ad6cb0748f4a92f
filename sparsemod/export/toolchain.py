"""Compiles C for a Cortex-M as firmware is, and says what it takes in flash and RAM.

image = build({"model.c": text, "model.h": header}, "cortex-m4", keep=["model_run", "model_input"])
image.sizes.text_bytes

Needs the cross compiler of Debian's package `gcc-arm-none-eabi` and the Python package `pyelftools` (extra
``verify``).
"""

from __future__ import annotations

import importlib.util
import io
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from sparsemod.errors import CandidateError, ConfigError, nearest

__all__ = ["CORES", "Image", "Sizes", "Symbol", "build", "missing", "reason", "write_sources"]

CORES = ("cortex-m0", "cortex-m0plus", "cortex-m3", "cortex-m4", "cortex-m7", "cortex-m33")
"""Cores that code can be compiled for and run on in emulation, by the compiler's names."""

_COMPILER = "arm-none-eabi-gcc"
_FIRMWARE = Path(__file__).with_name("firmware")
# Without floating-point registers: the same counts on a core with a floating-point unit and one without.
_FLAGS = (
    "-mthumb",
    "-mfloat-abi=soft",
    "-std=c99",
    "-ffunction-sections",
    "-fdata-sections",
    "-nostartfiles",
    "-Wl,--gc-sections",
)


@dataclass(frozen=True, slots=True)
class Symbol:
    """A function or a variable of an image.

    Attributes:
        address: Where it lies, without the bit that marks Thumb code.
        n_bytes: Its size.
        section: The section it lies in, such as ``.text``.
    """

    address: int
    n_bytes: int
    section: str


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes of an image without its startup code and its stack.

    Attributes:
        text_bytes: Code, with what was linked from the compiler's libraries.
        rodata_bytes: Constants.
        data_bytes: Variables with an initial value: in RAM, and the value in flash.
        bss_bytes: Variables that start as zero.
    """

    text_bytes: int
    rodata_bytes: int
    data_bytes: int
    bss_bytes: int

    @property
    def flash_bytes(self) -> int:
        """Code, constants and initial values."""
        return self.text_bytes + self.rodata_bytes + self.data_bytes

    @property
    def ram_bytes(self) -> int:
        """Variables, without the stack."""
        return self.data_bytes + self.bss_bytes


@dataclass(frozen=True, slots=True, eq=False)
class Image:
    """Linked firmware.

    Attributes:
        core: What it was compiled for, of `CORES`.
        elf: The file.
        symbols: Its functions and variables by name.
        sizes: Sizes of its sections.
    """

    core: str
    elf: bytes
    symbols: Mapping[str, Symbol]
    sizes: Sizes

    def symbol(self, name: str) -> Symbol:
        """Return a symbol.

        Raises:
            ConfigError: The image has none of this name.
        """
        if name not in self.symbols:
            raise ConfigError(f"the image has no symbol '{name}'{nearest(name, self.symbols)}")
        return self.symbols[name]


def missing() -> tuple[str, ...]:
    """Return what compiling lacks, one line each with the way to install it; empty if it can be done."""
    lines = []
    if shutil.which(_COMPILER) is None:
        lines.append(f"{_COMPILER} is not installed: apt install gcc-arm-none-eabi libnewlib-arm-none-eabi")
    elif not Path(_asked("-print-file-name=libc.a")).is_absolute():
        lines.append("the C library of arm-none-eabi-gcc is missing: apt install libnewlib-arm-none-eabi")
    if importlib.util.find_spec("elftools") is None:
        lines.append("pyelftools is not installed: pip install 'sparsemod[verify]'")
    return tuple(lines)


def build(sources: Mapping[str, str], core: str, *, keep: Sequence[str], optimize: str = "-O2") -> Image:
    """Compile and link C files.

    Args:
        sources: Text by file name, headers included; a name may hold folders, from which the files include
            each other.
        core: One of `CORES`.
        keep: Functions and variables that must not be dropped as unused; all others that nothing reaches
            from them are.
        optimize: The compiler's level of optimization.

    Raises:
        ConfigError: The core is unknown, or a tool is missing.
        CandidateError: The compiler or the linker refused, for instance because the RAM is exceeded.
    """
    if core not in CORES:
        raise ConfigError(f"unknown core '{core}'{nearest(core, CORES)}; known are {', '.join(CORES)}")
    lacking = missing()
    if lacking:
        raise ConfigError(lacking[0])
    with TemporaryDirectory(prefix="sparsemod") as folder:
        write_sources(folder, sources)
        elf = Path(folder, "image.elf")
        command = [_COMPILER, f"-mcpu={core}", optimize, *_FLAGS, f"-I{folder}"]
        command += [f"-Wl,--require-defined={name}" for name in keep]
        command += ["-T", str(_FIRMWARE / "cortex_m.ld"), "-o", str(elf)]
        command += [str(Path(folder, name)) for name in sources if name.endswith(".c")]
        # The startup must not call memset: it would be counted with the code under test.
        command += ["-fno-tree-loop-distribute-patterns", str(_FIRMWARE / "startup.c")]
        process = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
        if process.returncode != 0:
            raise CandidateError(f"{_COMPILER} refused: {reason(process.stderr)}", process.stderr)
        return _image(core, elf.read_bytes())


def _asked(option: str) -> str:
    return subprocess.run([_COMPILER, option], capture_output=True, text=True, check=True).stdout.strip()


def write_sources(folder: str, sources: Mapping[str, str]) -> None:
    """Write files into a folder; their names may hold folders."""
    for name, text in sources.items():
        path = Path(folder, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def reason(printed: str) -> str:
    """Return the line of a compiler's output that says what is wrong."""
    lines = [line.strip() for line in printed.splitlines() if line.strip()]
    marks = ("error:", "overflowed", "undefined reference", "required symbol")
    own = [line for line in lines if any(mark in line for mark in marks)]
    return (own or lines or ["it said nothing"])[0]


def _image(core: str, elf: bytes) -> Image:
    from elftools.elf.elffile import ELFFile

    file = ELFFile(io.BytesIO(elf))
    names = [section.name for section in file.iter_sections()]
    symbols = {}
    for entry in file.get_section_by_name(".symtab").iter_symbols():
        if entry.name and isinstance(entry["st_shndx"], int):
            is_code = entry["st_info"]["type"] == "STT_FUNC"
            address = entry["st_value"] & ~1 if is_code else entry["st_value"]
            symbols[entry.name] = Symbol(address, entry["st_size"], names[entry["st_shndx"]])

    def size(name: str) -> int:
        return int(file.get_section_by_name(name)["sh_size"]) if name in names else 0

    sizes = Sizes(size(".text"), size(".rodata") + size(".ARM.exidx"), size(".data"), size(".bss"))
    return Image(core, elf, symbols, sizes)
