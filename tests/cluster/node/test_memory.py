"""What was freed goes back to the system, without a try a second."""

from __future__ import annotations

import gc
import random
import subprocess
import sys

import pytest

from raftsched.cluster.node import memory
from raftsched.cluster.node.memory import (
    FIRST_S,
    GROWN_BYTES,
    HEAPS,
    LAST_S,
    Keeper,
    Resident,
    trimmer,
)

MIB = 1 << 20


class Process:
    """One whose size a test sets."""

    def __init__(self) -> None:
        self.used, self.free = 80 * MIB, 0
        self.tries = 0
        self.now = 100.0
        self.keeper = Keeper(lambda: self.used + self.free, self.trim)

    def trim(self) -> None:
        self.tries += 1
        self.free = 0

    def wait(self, seconds: float) -> int:
        """What was given back meanwhile."""
        freed = 0
        for _ in range(int(seconds)):
            self.now += 1
            freed += self.keeper.look(self.now)
        return freed


def test_what_a_flood_left_is_given_back() -> None:
    process = Process()
    process.used += 100 * MIB
    assert process.wait(5) == 0
    process.used, process.free = 80 * MIB, 100 * MIB
    assert process.wait(FIRST_S) == 100 * MIB


def test_a_flood_that_goes_on_is_given_back_when_it_is_over() -> None:
    process = Process()
    process.used += 100 * MIB
    process.wait(60)
    process.used, process.free = 80 * MIB, 100 * MIB
    # The longer it went on, the longer it takes, though never more than twice as long.
    assert process.wait(60) == 100 * MIB


def test_a_process_that_is_as_large_as_it_has_to_be_is_left_alone() -> None:
    process = Process()
    assert (process.wait(3_600), process.tries) == (0, 0)
    process.used += GROWN_BYTES - 1
    assert (process.wait(3_600), process.tries) == (0, 0)
    process.used += 200 * MIB
    process.wait(2 * LAST_S)
    tries = process.tries
    assert 5 <= tries <= 8
    assert (process.wait(7_200), process.tries) == (0, tries)


def test_one_that_grows_all_the_time_is_not_held_up_all_the_time() -> None:
    process = Process()
    for _ in range(60):
        process.used += GROWN_BYTES
        process.wait(1)
    assert process.tries <= 60 / FIRST_S


GLIBC = pytest.mark.skipif(trimmer() is None, reason="only glibc keeps what is freed")
THREADS = """
import ctypes, os, threading
from raftsched.cluster.node.memory import limit_heaps

assert limit_heaps()
all_there = threading.Barrier(8)

def allocate():
    kept = bytes(100_000)
    all_there.wait()

threads = [threading.Thread(target=allocate) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
libc = ctypes.CDLL(None)
libc.fdopen.restype = ctypes.c_void_p
out = ctypes.c_void_p(libc.fdopen(1, b"w"))
libc.malloc_info(0, out)
libc.fflush(out)
"""


@GLIBC
def test_threads_share_heaps() -> None:
    told = subprocess.check_output([sys.executable, "-c", THREADS], text=True)
    assert 1 <= told.count("<heap nr=") <= HEAPS


LARGE = """
from raftsched.cluster.node.memory import LARGE_BYTES, Resident, limit_heaps

assert limit_heaps()
resident, count = Resident(), 40
# As glibc learns it: something of 16 MiB was freed.
del (first := [bytes(16 << 20)])[:]
size = resident.bytes()
large, small = [], []
for number in range(count):
    large.append(b"x" * LARGE_BYTES * 2)
    small.append(b"x" * 10_000)  # So that what is freed lies below what is in use.
full = resident.bytes() - size
large.clear()
print(full >> 20, (resident.bytes() - size) >> 20)
"""


@GLIBC
def test_what_is_large_goes_back_as_soon_as_it_is_freed() -> None:
    full, left = map(int, subprocess.check_output([sys.executable, "-c", LARGE]).split())
    assert full >= 38
    assert left <= 3


@GLIBC
def test_the_library_gives_back_what_lies_between_what_is_in_use() -> None:
    resident, trim = Resident(), trimmer()
    assert trim is not None
    trim()  # What earlier tests have left free would be taken first.
    size = resident.bytes()
    pieces = [random.randbytes(16_000) for _ in range(6_000)]
    assert resident.bytes() - size > 80 * MIB
    kept = pieces[::50]
    pieces.clear()
    gc.collect()
    trim()
    assert resident.bytes() - size < 30 * MIB
    assert len(kept) == 120


def test_the_thread_ends_when_it_is_told() -> None:
    looking = memory.MemoryReturn()
    looking.start()
    looking.stop()
    assert looking._thread is None or not looking._thread.is_alive()
