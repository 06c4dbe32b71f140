"""Where state lives: the port, and the store in memory.

Two stores keep to it, and one test suite holds both. A store is used from one thread. A batch is
written whole or not at all; after a crash the store holds a prefix of the batches written.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

# Writes a batch that was prepared, with these puts behind its own; to be called once.
Write = Callable[[Iterable[tuple[bytes, bytes]]], None]


class Corrupt(Exception):
    """What is stored is not what was written. No answer may be made of it: the node ends."""


class Reading(Protocol):
    """State at one instant."""

    @property
    def get(self) -> Callable[[bytes], bytes | None]:
        """The value at a key, or None."""
        ...

    def get_many(self, keys: list[bytes]) -> list[bytes | None]:
        """The values at some keys, in their order."""
        ...

    def scan(
        self, first: bytes, end: bytes, *, backwards: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        """Yield what lies at or after `first` and before `end`, in the order of the keys."""
        ...


class Store(Reading, Protocol):
    """State that can be written."""

    def write(self, puts: Iterable[tuple[bytes, bytes]], deletes: Iterable[bytes]) -> None: ...

    def prepare(self, puts: Iterable[tuple[bytes, bytes]], deletes: Iterable[bytes]) -> Write:
        """Make a batch ready, of which nothing is written before somebody says so."""
        ...

    def snapshot(self) -> Reading:
        """State as it is now, for readers; later writes do not show in it."""
        ...

    def flush(self) -> None:
        """Return when all that was written would survive the loss of power."""
        ...

    def close(self) -> bool:
        """Let go of it; whether all that was written would survive the loss of power."""
        ...


class MemoryStore:
    """Keys in a sorted list: for tests and the simulator. `dict(store.items)` is its image."""

    def __init__(self, items: dict[bytes, bytes] | None = None) -> None:
        self.items = dict(items or {})
        self._keys = sorted(self.items)

    def get(self, key: bytes) -> bytes | None:
        return self.items.get(key)

    def get_many(self, keys: list[bytes]) -> list[bytes | None]:
        return [self.get(key) for key in keys]

    def scan(
        self, first: bytes, end: bytes, *, backwards: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        keys = self._keys[bisect_left(self._keys, first) : bisect_left(self._keys, end)]
        for key in reversed(keys) if backwards else keys:
            yield key, self.items[key]

    def write(self, puts: Iterable[tuple[bytes, bytes]], deletes: Iterable[bytes]) -> None:
        for key, value in puts:
            if key not in self.items:
                insort(self._keys, key)
            self.items[key] = value
        for key in deletes:
            if self.items.pop(key, None) is not None:
                del self._keys[bisect_left(self._keys, key)]

    def prepare(self, puts: Iterable[tuple[bytes, bytes]], deletes: Iterable[bytes]) -> Write:
        first, gone = list(puts), list(deletes)
        return lambda last: self.write([*first, *last], gone)

    def snapshot(self) -> MemoryStore:
        return MemoryStore(self.items)

    def flush(self) -> None:
        """Memory has nothing to flush to."""

    def close(self) -> bool:
        """Memory needs no closing."""
        return True
