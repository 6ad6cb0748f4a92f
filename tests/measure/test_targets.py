from dataclasses import dataclass

import pytest

from sparsemod.candidate import Constraints
from sparsemod.errors import ConfigError
from sparsemod.measure.targets import CORES, TARGETS, Target, find_target, generic, limits, resolve_target


@dataclass
class Fields:
    name: str = "mine"
    core: str = "cortex-m4"
    clock_hz: float = 80_000_000
    flash_bytes: int | None = 256 * 1024
    ram_bytes: int | None = 64 * 1024
    cycles_per_instruction: float | None = None


def test_the_catalogue_is_complete_and_consistent():
    assert {"nRF52840", "STM32F446", "STM32L4R5", "STM32F746", "STM32H743", "RP2040", "generic"} <= set(
        TARGETS
    )
    assert {target.core for target in TARGETS.values()} == set(CORES)
    for name, target in TARGETS.items():
        assert target.name == name
        assert target.clock_hz > 0
        if name != "generic":
            assert 16 * 1024 <= target.ram_bytes <= target.flash_bytes


def test_a_board_is_found_in_any_case():
    board = find_target("NRF52840")
    assert (board.name, board.core, board.clock_hz) == ("nRF52840", "cortex-m4", 64e6)
    assert (board.flash_bytes, board.ram_bytes) == (1024 * 1024, 256 * 1024)


def test_a_misspelt_board_is_named_with_the_nearest():
    with pytest.raises(
        ConfigError, match=r"target 'STM32F44' is not in the catalogue \(did you mean 'STM32F446'\?\)"
    ):
        find_target("STM32F44")


def test_only_a_clock_means_the_generic_target():
    assert resolve_target(None, 48_000_000) == generic(48_000_000)
    assert generic(48_000_000) == Target("generic", "generic", 48e6, None, None, 1.0)


def test_nothing_at_all_means_the_generic_target():
    assert resolve_target() == TARGETS["generic"]


def test_flops_override_the_clock_of_a_board():
    target = resolve_target("STM32F446", 90_000_000)
    assert target.clock_hz == 90e6
    assert target.flash_bytes == find_target("STM32F446").flash_bytes


def test_a_target_of_ones_own():
    target = resolve_target(None, None, Fields())
    assert target == Target("mine", "cortex-m4", 80e6, 262144, 65536, CORES["cortex-m4"])
    assert resolve_target("mine", 40_000_000, Fields(cycles_per_instruction=2)).cycles_per_instruction == 2
    assert resolve_target("RP2040", None, Fields()).core == "cortex-m0+"


def test_an_unknown_core_is_named_with_the_nearest():
    with pytest.raises(
        ConfigError, match=r"\[TARGET\] core: expected one of .*'cortex-m44' \(did you mean 'cortex-m4'\?\)"
    ):
        resolve_target(None, None, Fields(core="cortex-m44"))


def test_limits_leave_room_for_the_runtime():
    target = Target("mine", "cortex-m4", 1e6, 256_000, 64_000)
    assert limits(target, "c") == Constraints(248_000, 63_000, None)
    assert limits(target, "tflite-micro") == Constraints(156_000, 54_000, None)


def test_the_generic_target_has_no_limits():
    assert limits(TARGETS["generic"], "c") == Constraints()


def test_a_chip_too_small_for_the_interpreter_has_no_room():
    assert limits(find_target("STM32F103"), "tflite-micro").model_size == 0
