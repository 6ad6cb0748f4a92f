import shutil
import subprocess

import pytest

from sparsemod.errors import CandidateError, ConfigError
from sparsemod.export import emulation, toolchain
from sparsemod.export.emulation import Machine
from sparsemod.export.toolchain import CORES, build

needs_tools = pytest.mark.skipif(bool(emulation.missing()), reason="; ".join(emulation.missing()))

COUNTDOWN = """
__attribute__((naked)) int countdown(int n) {
    __asm__("1: sub r0, #1\\n cmp r0, #0\\n bne 1b\\n bx lr");
}
"""
VARIABLES = """
#include <stdint.h>
#include "lib/scale.h"
int32_t numbers[4] = {1, 2, 3, 4};
int32_t total;
const int8_t unused_table[100] = {1};
const int8_t table[10] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
int32_t add(int n) {
    int32_t sum = 0;
    for (int i = 0; i < n; ++i) sum += numbers[i];
    total += sum;
    return -SCALE * sum;
}
int look_up(const int8_t *from, int i) { return from[i]; }
int deep(int n) {
    volatile char buffer[200];
    for (int i = 0; i < 200; ++i) buffer[i] = i;
    return buffer[n];
}
int astray(int address) { return *(volatile int *)address; }
void write_flash(void) { *(volatile int *)&table[0] = 1; }
"""
HEADER = "#define SCALE 10\n"
KEEP = ["add", "look_up", "deep", "astray", "write_flash", "numbers", "total", "table"]


@pytest.fixture(scope="module")
def image():
    return build({"a.c": VARIABLES, "lib/scale.h": HEADER}, "cortex-m4", keep=KEEP)


@needs_tools
@pytest.mark.parametrize("core", CORES)
def test_instructions_equal_a_hand_count(core):
    machine = Machine(build({"a.c": COUNTDOWN}, core, keep=["countdown"]))
    for n in (1, 2, 1000):
        assert machine.call("countdown", [n]).n_instructions == 3 * n + 1  # the loop, and the return


# A call, a conditional block, divisions and long multiplications: blocks of all kinds.
MIXED = """
#include <stdint.h>
volatile uint32_t sink;
__attribute__((noinline)) uint32_t mixed(uint32_t n) {
    uint32_t a = 1;
    uint64_t b = 12345678901ull;
    for (uint32_t i = 1; i < n; ++i) {
        a = a * 1664525u + 1013904223u;
        if (a & 0x40000) a ^= i; else if (a & 1) a += 3;
        b += (uint64_t)a * i;
        if ((i & 31) == 0) b /= (a | 1);
    }
    return a ^ (uint32_t)b ^ (uint32_t)(b >> 32);
}
"""
TIMED = """
#include <stdint.h>
uint32_t mixed(uint32_t n);
static void print(const char *text) {
    register int operation __asm__("r0") = 4;
    register const char *argument __asm__("r1") = text;
    __asm__ volatile("bkpt 0xab" : "+r"(operation) : "r"(argument) : "memory");
}
#define TICK (*(volatile uint32_t *)0xE000E018)
static uint32_t elapsed(uint32_t n) {
    uint32_t before = TICK;
    mixed(n);
    return before - TICK;
}
int main(void) {
    *(volatile uint32_t *)0xE000E014 = 0xFFFFFF;
    *(volatile uint32_t *)0xE000E018 = 0;
    *(volatile uint32_t *)0xE000E010 = 5;
    while (TICK == 0) {}
    uint32_t ticks = elapsed(100000) - elapsed(0);
    char text[12];
    int at = 11;
    text[at] = 0;
    text[--at] = '\\n';
    do { text[--at] = '0' + ticks % 10; ticks /= 10; } while (ticks);
    print(text + at);
    register int operation __asm__("r0") = 0x18;
    register int reason __asm__("r1") = 0x20026;
    __asm__ volatile("bkpt 0xab" : : "r"(operation), "r"(reason));
    return 0;
}
"""


@needs_tools
@pytest.mark.skipif(shutil.which("qemu-system-arm") is None, reason="apt install qemu-system-arm")
@pytest.mark.parametrize(("core", "board"), [("cortex-m4", "mps2-an386"), ("cortex-m0", "mps2-an385")])
def test_instructions_equal_those_of_another_emulator(core, board, tmp_path):
    image = build({"mixed.c": MIXED, "main.c": TIMED}, core, keep=["main", "mixed"])
    path = tmp_path / "image.elf"
    path.write_bytes(image.elf)
    command = ["qemu-system-arm", "-M", board, "-nographic", "-monitor", "none", "-serial", "none"]
    command += ["-semihosting-config", "enable=on,target=native", "-icount", "shift=0", "-kernel", str(path)]
    process = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    ticks = int(process.stdout + process.stderr)

    machine = Machine(build({"mixed.c": MIXED}, core, keep=["mixed"]))
    counted = [machine.call("mixed", [n]).n_instructions for n in (100000, 0)]
    # The board's tick is 25 MHz and an instruction takes 1 ns: 40 instructions a tick, two ticks of rounding.
    assert abs(counted[0] - counted[1] - 40 * ticks) <= 80
    assert ticks > 30000


@needs_tools
def test_calls_pass_values_and_keep_memory(image):
    machine = Machine(image)
    done = machine.call("add", [4], reads={"total": 4})
    assert (done.result, done.outputs["total"]) == (-100, (10).to_bytes(4, "little"))
    done = machine.call("add", [2], writes={"numbers": bytes([7, 0, 0, 0])}, reads={"total": 4})
    assert (done.result, done.outputs["total"]) == (-90, (19).to_bytes(4, "little"))
    assert machine.call("look_up", ["table", 6]).result == 6
    assert Machine(image).call("add", [4]).result == -100  # another machine starts afresh


@needs_tools
def test_stack_is_the_deepest_byte(image):
    machine = Machine(image)
    assert 200 <= machine.call("deep", [3]).stack_bytes <= 216
    assert machine.call("look_up", ["table", 6]).stack_bytes == 0  # nothing is left of the call before


@needs_tools
def test_sizes_are_those_of_what_is_kept(image):
    assert image.sizes.data_bytes == 16
    assert image.sizes.bss_bytes == 4
    assert 10 <= image.sizes.rodata_bytes <= 12
    assert "unused_table" not in image.symbols
    assert image.symbol("numbers").n_bytes == 16
    functions = [image.symbol(name) for name in KEEP[:5]]
    assert {f.section for f in functions} == {".text"}
    assert sum(f.n_bytes for f in functions) <= image.sizes.text_bytes < 200
    assert image.sizes.flash_bytes == image.sizes.text_bytes + image.sizes.rodata_bytes + 16


@needs_tools
def test_errors_are_one_line(image):
    machine = Machine(image)
    cases = [
        (ConfigError, "no symbol 'ad' .did you mean 'add'", lambda: machine.call("ad")),
        (ConfigError, "holds 16 bytes, not 17", lambda: machine.call("add", writes={"numbers": bytes(17)})),
        (ConfigError, "up to 4 arguments", lambda: machine.call("add", [0] * 5)),
        (
            CandidateError,
            "astray failed on the emulated cortex-m4",
            lambda: machine.call("astray", [0x50000000]),
        ),
        (CandidateError, "write_flash failed", lambda: machine.call("write_flash")),
        (ConfigError, "unknown core 'cortex-m44' .did you mean", lambda: build({}, "cortex-m44", keep=[])),
        (CandidateError, "unknown type name", lambda: build({"a.c": "in x;"}, "cortex-m4", keep=["x"])),
        (
            CandidateError,
            "required symbol .absent",
            lambda: build({"a.c": ""}, "cortex-m4", keep=["absent"]),
        ),
        (CandidateError, "overflowed", lambda: build({"a.c": "int x[9000000];"}, "cortex-m4", keep=["x"])),
    ]
    for kind, message, act in cases:
        with pytest.raises(kind, match=message) as raised:
            act()
        assert "\n" not in str(raised.value)


def test_without_a_compiler_it_says_how_to_get_one(monkeypatch):
    monkeypatch.setattr(toolchain, "_COMPILER", "no-such-gcc")
    assert "apt install gcc-arm-none-eabi" in emulation.missing()[0]
    with pytest.raises(ConfigError, match="no-such-gcc is not installed: apt install gcc-arm-none-eabi"):
        build({"a.c": ""}, "cortex-m4", keep=[])
