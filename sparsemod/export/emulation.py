"""Runs compiled C on an emulated Cortex-M and counts what it takes: instructions and stack.

machine = Machine(build(sources, "cortex-m4", keep=["add", "numbers", "total"]))
done = machine.call("add", [7], writes={"numbers": bytes(7)}, reads={"total": 4})
done.outputs["total"], done.n_instructions, done.stack_bytes

Needs the Python package `unicorn` (extra ``verify``) and what `sparsemod.export.toolchain` needs.
"""

from __future__ import annotations

import importlib.util
import io
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sparsemod.errors import CandidateError, ConfigError
from sparsemod.export import toolchain
from sparsemod.export.toolchain import Image

__all__ = ["Call", "Machine", "missing"]

# As in the linker script.
_FLASH, _RAM, _LENGTH = 0x0000_0000, 0x2000_0000, 4 << 20
_STACK_BYTES = 64 << 10
_PAINT = b"\xa5"
_LIMIT_MICROSECONDS = 600 * 1_000_000  # of this computer's time for one call
_MODELS = {  # no model of its own for M0+, which has the same instructions as M0
    "cortex-m0": "UC_CPU_ARM_CORTEX_M0",
    "cortex-m0plus": "UC_CPU_ARM_CORTEX_M0",
    "cortex-m3": "UC_CPU_ARM_CORTEX_M3",
    "cortex-m4": "UC_CPU_ARM_CORTEX_M4",
    "cortex-m7": "UC_CPU_ARM_CORTEX_M7",
    "cortex-m33": "UC_CPU_ARM_CORTEX_M33",
}


@dataclass(frozen=True, slots=True)
class Call:
    """What a function did.

    Attributes:
        outputs: The bytes of each symbol that was to be read.
        result: The register of the return value, as a signed number.
        n_instructions: Executed from the function's first instruction to its return.
        stack_bytes: Deepest byte of stack that was written, from the stack's top.
    """

    outputs: Mapping[str, bytes]
    result: int
    n_instructions: int
    stack_bytes: int


def missing() -> tuple[str, ...]:
    """Return what compiling and running lack, one line each with the way to install it."""
    lines = toolchain.missing()
    if importlib.util.find_spec("unicorn") is None:
        lines = (*lines, "unicorn is not installed: pip install 'sparsemod[verify]'")
    return lines


class Machine:
    """A Cortex-M that has started: its memory keeps what calls leave there.

    Args:
        image: What it runs.

    Raises:
        ConfigError: The emulator is not installed.
        CandidateError: The image's own `main`, if it has one, failed.
    """

    def __init__(self, image: Image) -> None:
        if importlib.util.find_spec("unicorn") is None:
            raise ConfigError(missing()[-1])
        import unicorn
        from elftools.elf.elffile import ELFFile
        from unicorn import arm_const

        self.image = image
        self._emulator = unicorn.Uc(unicorn.UC_ARCH_ARM, unicorn.UC_MODE_THUMB | unicorn.UC_MODE_MCLASS)
        self._emulator.ctl_set_cpu_model(getattr(arm_const, _MODELS[image.core]))
        self._arm, self._unicorn = arm_const, unicorn
        self._emulator.mem_map(_FLASH, _LENGTH, unicorn.UC_PROT_READ | unicorn.UC_PROT_EXEC)
        self._emulator.mem_map(_RAM, _LENGTH, unicorn.UC_PROT_READ | unicorn.UC_PROT_WRITE)
        for segment in ELFFile(io.BytesIO(image.elf)).iter_segments("PT_LOAD"):
            self._emulator.mem_write(segment["p_paddr"], segment.data())
        self._stop = image.symbol("sm_stop").address
        self._run("sm_reset")

    def call(
        self,
        function: str,
        arguments: Sequence[int | str] = (),
        *,
        writes: Mapping[str, bytes] | None = None,
        reads: Mapping[str, int] | None = None,
    ) -> Call:
        """Call a function.

        Args:
            function: Its name.
            arguments: Up to four numbers, or names of variables whose addresses are meant.
            writes: Bytes to place at variables before.
            reads: How many bytes to take from variables afterwards.

        Raises:
            ConfigError: A name is unknown, more bytes than a variable holds, or too many arguments.
            CandidateError: The code left its memory, met an unknown instruction, or never returned.
        """
        if len(arguments) > 4:
            raise ConfigError(f"a call takes up to 4 arguments in registers, got {len(arguments)}")
        for name, content in (writes or {}).items():
            self._emulator.mem_write(self._place(name, len(content)), bytes(content))
        self._emulator.mem_write(_RAM, _PAINT * _STACK_BYTES)
        for i, argument in enumerate(arguments):
            value = self.image.symbol(argument).address if isinstance(argument, str) else argument
            self._emulator.reg_write(self._arm.UC_ARM_REG_R0 + i, value & 0xFFFF_FFFF)
        blocks: Counter[tuple[int, int]] = Counter()

        def on_block(_: Any, address: int, size: int, __: Any) -> None:
            blocks[address, size] += 1

        hook = self._emulator.hook_add(self._unicorn.UC_HOOK_BLOCK, on_block)
        try:
            self._run(function)
        finally:
            self._emulator.hook_del(hook)
        executed = sum(
            n * self._n_instructions(*block) for block, n in blocks.items() if block[0] != self._stop
        )
        unused = self._emulator.mem_read(_RAM, _STACK_BYTES)
        depth = len(unused.lstrip(_PAINT))
        result = self._emulator.reg_read(self._arm.UC_ARM_REG_R0)
        outputs = {
            name: bytes(self._emulator.mem_read(self._place(name, n), n)) for name, n in (reads or {}).items()
        }
        return Call(outputs, (result ^ 1 << 31) - (1 << 31), executed, depth)

    def _place(self, name: str, n_bytes: int) -> int:
        symbol = self.image.symbol(name)
        if n_bytes > symbol.n_bytes:
            raise ConfigError(f"'{name}' holds {symbol.n_bytes} bytes, not {n_bytes}")
        return symbol.address

    def _run(self, function: str) -> None:
        start = self.image.symbol(function).address
        self._emulator.reg_write(self._arm.UC_ARM_REG_SP, _RAM + _STACK_BYTES)
        self._emulator.reg_write(self._arm.UC_ARM_REG_LR, self._stop | 1)
        try:
            self._emulator.emu_start(start | 1, self._stop, timeout=_LIMIT_MICROSECONDS)
        except self._unicorn.UcError as error:
            at = self._emulator.reg_read(self._arm.UC_ARM_REG_PC)
            raise CandidateError(
                f"{function} failed on the emulated {self.image.core} at {at:#x}: {error}"
            ) from error
        if self._emulator.reg_read(self._arm.UC_ARM_REG_PC) & ~1 != self._stop:
            raise CandidateError(f"{function} did not return on the emulated {self.image.core}")

    def _n_instructions(self, address: int, size: int) -> int:
        """Count the instructions of a block: those of 32 bits have the highest five bits 11101 or more."""
        code = self._emulator.mem_read(address, size)
        n, at = 0, 1
        while at < size:
            at += 4 if code[at] >> 3 >= 0b11101 else 2
            n += 1
        return n
