"""Microcontrollers: a small catalogue, a user's own, and the generic one that only has a clock."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

from sparsemod.candidate import Constraints
from sparsemod.errors import ConfigError, nearest

__all__ = [
    "CORES",
    "GENERIC_CLOCK_HZ",
    "TARGETS",
    "Target",
    "TargetFields",
    "find_target",
    "limits",
    "resolve_target",
]

CORES = {
    # Published MLPerf Tiny times of a board over counted instructions of the same models: kws, ic, vww, ad.
    "cortex-m0+": 1.4,  # 1.50 1.10 1.38 1.69, STM32G0B1 64 MHz; another vendor's kernels; the mean
    "cortex-m3": 1.5,  # not measured: taken as the M4's, whose pipeline it shares
    "cortex-m4": 1.53,  # 1.53 1.57 1.46 1.78, STM32L4R5 120 MHz; the median of the three convolutional ones
    "cortex-m7": 0.5,  # 0.51 0.45 0.50 0.64, STM32F746 216 MHz; another vendor's kernels, indicative
    "cortex-m33": 1.3,  # 1.24 1.35 1.20 1.39, nRF5340 128 MHz; the mean
    "cortex-m55": 1.5,  # not measured: a vector instruction takes two beats, some of which overlap
    "generic": 1.0,
}
"""Cycles an instruction of each core; `generic` counts one multiply-accumulate a cycle instead."""

GENERIC_CLOCK_HZ = 100_000_000

_CODE_BYTES = {
    # Code of the runtime: measured 3.3 to 7.6 kB in C, 10.3 kB for a network with every kind of sparse layer;
    # 60-135 kB for interpreter and kernels.
    "c": 8_000,
    "tflite-micro": 100_000,
}
_RAM_BYTES = {
    # Beside the arena. Stack: measured 250 B in plain C, 1.5 kB in the interpreter. The interpreter's own
    # structures took 1.9 to 8.8 kB on 4 of 5 models (73 bytes a tensor and more; 27 kB on one of 89 tensors).
    "c": 1_000,
    "tflite-micro": 10_000,
}


@dataclass(frozen=True, slots=True)
class Target:
    """A microcontroller.

    Attributes:
        name: As in the catalogue or in the configuration.
        core: A key of `CORES`.
        clock_hz: Clock of the core.
        flash_bytes: Flash, None for no limit.
        ram_bytes: RAM that one buffer can lie in, None for no limit.
        cycles_per_instruction: Of the core with this memory, caches and wait states.
    """

    name: str
    core: str
    clock_hz: float
    flash_bytes: int | None = None
    ram_bytes: int | None = None
    cycles_per_instruction: float = 1.0


class TargetFields(Protocol):
    """What a `[TARGET]` section says; a missing number of cycles is that of the core."""

    @property
    def name(self) -> str: ...  # noqa: D102
    @property
    def core(self) -> str: ...  # noqa: D102
    @property
    def clock_hz(self) -> float: ...  # noqa: D102
    @property
    def flash_bytes(self) -> int | None: ...  # noqa: D102
    @property
    def ram_bytes(self) -> int | None: ...  # noqa: D102
    @property
    def cycles_per_instruction(self) -> float | None: ...  # noqa: D102


def _board(name: str, core: str, mhz: float, flash_kib: int, ram_kib: int) -> Target:
    return Target(name, core, mhz * 1e6, flash_kib * 1024, ram_kib * 1024, CORES[core])


TARGETS: dict[str, Target] = {
    target.name: target
    for target in (
        Target("generic", "generic", GENERIC_CLOCK_HZ),
        _board("AlifE7", "cortex-m55", 400, 5632, 4096),  # high-performance core, MRAM, SRAM0
        _board("nRF52832", "cortex-m4", 64, 512, 64),
        _board("nRF52840", "cortex-m4", 64, 1024, 256),  # Arduino Nano 33 BLE Sense
        _board("nRF5340", "cortex-m33", 128, 1024, 512),
        _board("RP2040", "cortex-m0+", 133, 2048, 256),  # Raspberry Pi Pico; its two 4 KiB banks left out
        _board("RP2350", "cortex-m33", 150, 4096, 512),  # Raspberry Pi Pico 2; its two 4 KiB banks left out
        _board("SAMD21", "cortex-m0+", 48, 256, 32),  # Arduino Zero, MKR
        _board("STM32F103", "cortex-m3", 72, 64, 20),  # Blue Pill
        _board("STM32F401", "cortex-m4", 84, 512, 96),  # xE: NUCLEO-F401RE
        _board("STM32F411", "cortex-m4", 100, 512, 128),  # xE: Black Pill
        _board("STM32F446", "cortex-m4", 180, 512, 128),  # xE: NUCLEO-F446RE
        _board("STM32F746", "cortex-m7", 216, 1024, 320),  # xG: the discovery kit
        _board("STM32G0B1", "cortex-m0+", 64, 512, 144),  # xE
        _board("STM32H743", "cortex-m7", 480, 2048, 512),  # xI: the AXI SRAM of its 1 MiB
        _board(
            "STM32L4R5", "cortex-m4", 120, 2048, 640
        ),  # xI: NUCLEO-L4R5ZI, the reference board of MLPerf Tiny
        _board("STM32L476", "cortex-m4", 80, 1024, 96),  # xG: SRAM1 of its 128 KiB
        _board("STM32U575", "cortex-m33", 160, 2048, 768),  # xI: SRAM1-3, which are contiguous
    )
}
"""The catalogue: flash and contiguous RAM of the largest common variant, from the vendors' data sheets."""


def find_target(name: str) -> Target:
    """Return a target of the catalogue; case does not matter.

    Raises:
        ConfigError: There is none of that name.

    Example:
        >>> find_target("stm32f446").clock_hz
        180000000.0
    """
    by_name = {key.lower(): target for key, target in TARGETS.items()}
    if name.lower() in by_name:
        return by_name[name.lower()]
    hint = nearest(name, by_name)
    for key, target in by_name.items():
        hint = hint.replace(f"'{key}'", f"'{target.name}'")
    raise ConfigError(f"target {name!r} is not in the catalogue{hint}; `sparsemod targets` lists it")


def generic(flops: float) -> Target:
    """Return the target that does one multiply-accumulate a cycle at this clock, without limits."""
    return replace(TARGETS["generic"], clock_hz=float(flops))


def resolve_target(
    name: str | None = None, flops: float | None = None, fields: TargetFields | None = None
) -> Target:
    """Return the target that a configuration asks for.

    Args:
        name: Of the catalogue, or that of `fields`.
        flops: Clock in Hz; overrides the target's. Alone it means the generic target.
        fields: The user's own target, which is taken when no name, or its own, is given.

    Raises:
        ConfigError: The name or the core is unknown.
    """
    if fields is not None and name in {None, fields.name}:
        if fields.core not in CORES:
            known = ", ".join(CORES)
            raise ConfigError(
                f"[TARGET] core: expected one of {known}, got {fields.core!r}{nearest(fields.core, CORES)}"
            )
        cycles = fields.cycles_per_instruction
        target = Target(
            fields.name,
            fields.core,
            float(fields.clock_hz),
            fields.flash_bytes,
            fields.ram_bytes,
            CORES[fields.core] if cycles is None else float(cycles),
        )
    elif name is not None:
        target = find_target(name)
    else:
        target = TARGETS["generic"]
    return target if flops is None else replace(target, clock_hz=float(flops))


def limits(target: Target, runtime: str) -> Constraints:
    """Return what a target leaves for a network: flash without the runtime's code, RAM without the stack.

    Allowances: `c` 6 kB of code and 1 kB of RAM, `tflite-micro` 100 kB of code and 10 kB of RAM (stack and
        the
    interpreter's own structures). There is no limit of latency.

    Example:
        >>> limits(find_target("STM32F103"), "c")
        Constraints(model_size=57536, working_memory=19480, latency=None)
        >>> limits(find_target("generic"), "c")
        Constraints(model_size=None, working_memory=None, latency=None)
    """
    flash, ram = target.flash_bytes, target.ram_bytes
    return Constraints(
        model_size=None if flash is None else max(0, flash - _CODE_BYTES[runtime]),
        working_memory=None if ram is None else max(0, ram - _RAM_BYTES[runtime]),
    )
