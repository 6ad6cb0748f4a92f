"""Damaged copies of files: what a disk, a transfer or somebody's malice makes of them."""

import struct

import numpy as np

EXTREMES = [0, 1, 2, 3, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0xFFFFFFF0]


def bits(content, rng):
    """Flip some bits."""
    for _ in range(int(rng.integers(1, 9))):
        content[int(rng.integers(len(content)))] ^= 1 << int(rng.integers(8))
    return content


def extreme(content, rng):
    """Set aligned integers of 32 bits to values at the ends of their range, or near the file's length."""
    for _ in range(int(rng.integers(1, 4))):
        at = 4 * int(rng.integers(len(content) // 4))
        near = (len(content) + int(rng.integers(-16, 17))) % 2**32
        value = near if rng.random() < 0.2 else EXTREMES[int(rng.integers(len(EXTREMES)))]
        content[at : at + 4] = struct.pack("<I", value)
    return content


def offset(content, rng):
    """Let an aligned offset point to somewhere else in the file, backwards, too."""
    at = 4 * int(rng.integers(len(content) // 4))
    to = int(rng.integers(len(content)))
    content[at : at + 4] = struct.pack("<I", (to - at) % 2**32)
    return content


def cut(content, rng):
    """Lose the end."""
    return content[: int(rng.integers(len(content)))]


def spliced(content, rng):
    """Copy a piece over another one."""
    n = int(rng.integers(1, max(2, len(content) // 4)))
    start, to = (int(rng.integers(len(content) - n + 1)) for _ in range(2))
    content[to : to + n] = content[start : start + n]
    return content


def moved(content, rng):
    """Take a piece out, or put a copy of it in between."""
    n = int(rng.integers(1, 65))
    start = int(rng.integers(len(content)))
    piece = content[start : start + n]
    return content[:start] + (b"" if rng.random() < 0.5 else piece + piece) + content[start + n :]


KINDS = (bits, extreme, extreme, offset, offset, cut, spliced, moved)


def mutated(content, seed):
    """Return a damaged copy; half of the damage is near the end of the file, where its tables lie."""
    rng = np.random.default_rng(seed)
    change = KINDS[int(rng.integers(len(KINDS)))]
    split = int(len(content) * rng.random()) // 16 * 16 if rng.random() < 0.5 and change is not cut else 0
    tail = bytearray(content[split:])
    if len(tail) < 128:
        return bytes(change(bytearray(content), rng))
    return content[:split] + bytes(change(tail, rng))
