"""Gives back to the system what was freed, and what the C library keeps for later.

A flood of calls leaves its memory in many free pieces below a few that are in use, and glibc gives
back only what lies above all of those: a node that was 100 MiB larger for a second would stay so
for good. `malloc_trim` gives back every whole page. It holds the heap for some milliseconds per
100 MiB, so it is called only when the process has grown, and more and more seldom while that
brings nothing. And it has two heaps, not eight for each processor: what is free in one is of no use
to the threads of another. What is large lies in none of them and goes back at once: the pieces of
the engine's tables in memory, answers, changes.
"""

from __future__ import annotations

import ctypes
import logging
import os
import resource
import sys
import threading
import time
from collections.abc import Callable
from typing import cast

logger = logging.getLogger(__name__)

HEAPS = 2  # That of the loop, and one for most other threads.
LARGE_BYTES = 512 << 10  # The engine's pieces have 1 MiB.
M_MMAP_THRESHOLD, M_ARENA_MAX = -3, -8  # As glibc numbers its options.
LOOK_S = 1.0
GROWN_BYTES = 32 << 20  # So much more than it was makes it worth a try.
# From that to the try, and from each try that brought less to the next one, which comes after twice
# as long, up to the last.
FIRST_S, LAST_S = 10.0, 640.0


class Keeper:
    """When to give back, by the size of the process."""

    def __init__(self, size: Callable[[], int], trim: Callable[[], object]) -> None:
        self.size, self.trim = size, trim
        self._known = size()
        self._wait_s, self._due = FIRST_S, float("inf")

    def look(self, now: float) -> int:
        """Bytes that were given back just now."""
        before = self.size()
        if before >= self._known + GROWN_BYTES:
            self._known, self._wait_s = before, FIRST_S
            self._due = min(self._due, now + FIRST_S)
        if now < self._due:
            return 0
        self.trim()
        self._known = self.size()
        freed = before - self._known
        self._wait_s = FIRST_S if freed >= GROWN_BYTES else 2 * self._wait_s
        self._due = now + self._wait_s if self._wait_s <= LAST_S else float("inf")
        return freed


class MemoryReturn:
    """A thread that looks, where there is something to call."""

    def __init__(self) -> None:
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        trim = trimmer()
        if trim is not None:
            keeper = Keeper(Resident().bytes, trim)
            self._thread = threading.Thread(
                target=self._run, args=(keeper,), name="memory", daemon=True
            )
            self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self, keeper: Keeper) -> None:
        while not self._stop.wait(LOOK_S):
            began = time.monotonic()
            freed = keeper.look(began)
            if freed >= GROWN_BYTES:
                took_ms = 1000 * (time.monotonic() - began)
                logger.info("gave %d MiB back to the system in %.0f ms", freed >> 20, took_ms)


class Resident:
    """What of this process is in memory. One descriptor is kept, so none has to be free."""

    def __init__(self) -> None:
        self._file = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)

    def bytes(self) -> int:
        return int(os.pread(self._file, 256, 0).split()[1]) * resource.getpagesize()

    def __del__(self) -> None:
        os.close(self._file)


def limit_heaps() -> bool:
    """Whether this process has no more heaps than it should from now on, and nothing large in them.
    (glibc would have what is large in a heap as soon as something of that size was freed.)"""
    option = _glibc("mallopt")
    if option is None:
        return False
    return bool(option(M_ARENA_MAX, HEAPS) and option(M_MMAP_THRESHOLD, LARGE_BYTES))


def trimmer() -> Callable[[], object] | None:
    """glibc's `malloc_trim`; None elsewhere. The interpreter goes on beside it."""
    trim = _glibc("malloc_trim")
    return None if trim is None else lambda: trim(ctypes.c_size_t(0))


def _glibc(name: str) -> Callable[..., int] | None:
    """A function that only this C library has."""
    if sys.platform != "linux" or not hasattr(ctypes.CDLL(None), "gnu_get_libc_version"):
        return None
    return cast("Callable[..., int]", getattr(ctypes.CDLL(None), name))
