"""A state with some writes over it that are not in the store yet.

A view on a layer sees what others of the same decision have written, as if it were stored; so each
of them can be dropped alone. But it finds none of the timers that they have set: what a change
begins goes on in the next one. So a job that it deletes still has the runs that it ends, and
everybody sees how they ended.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator

from ..core.store import Reading
from . import keys
from .record import Change, MetaRecord, encode
from .view import View


class Layer:
    """A Reading, and what is to be written over it."""

    def __init__(self, below: Reading) -> None:
        self.below = below
        self.meta: MetaRecord | None = None
        # What was written; None: deleted.
        self._written: dict[bytes, bytes | None] = {}
        self._keys: list[bytes] = []
        # Bytes of what it holds, about.
        self.size = 0

    def get(self, key: bytes) -> bytes | None:
        if key == keys.META and self.meta is not None:
            return encode(self.meta)
        return self._written[key] if key in self._written else self.below.get(key)

    def get_many(self, keys: list[bytes]) -> list[bytes | None]:
        return [self.get(key) for key in keys]

    def scan(
        self, first: bytes, end: bytes, *, backwards: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        mine = self._keys[bisect_left(self._keys, first) : bisect_left(self._keys, end)]
        if backwards:
            mine.reverse()
        # Those that come later are at the end of the list.
        mine.reverse()
        for key, value in self.below.scan(first, end, backwards=backwards):
            while mine and (mine[-1] > key if backwards else mine[-1] < key):
                yield from self._own(mine.pop())
            if mine and mine[-1] == key:
                own = self._written[mine.pop()]
                if own is not None:
                    yield key, own
            else:
                yield key, value
        while mine:
            yield from self._own(mine.pop())

    def _own(self, key: bytes) -> Iterator[tuple[bytes, bytes]]:
        """What is not stored yet."""
        value = self._written.get(key)
        if value is not None and key[:1] != keys.TIMER:
            yield key, value

    def absorb(self, view: View) -> None:
        """Take over what a view on this layer, which was sealed, has written."""
        sealed = view.sealed
        if sealed is None:
            return
        self.meta = sealed.meta
        for key, value in zip(sealed.keys, sealed.values, strict=True):
            self._put(key, value)
        for key in sealed.deletes:
            self._put(key, None)

    def _put(self, key: bytes, value: bytes | None) -> None:
        if key in self._written:
            if value is None and self.below.get(key) is None:
                # It was made and deleted again, so nothing of it goes into the log.
                del self._written[key]
                del self._keys[bisect_left(self._keys, key)]
                return
        else:
            insort(self._keys, key)
        self._written[key] = value
        self.size += len(key) + len(value or b"")

    def seal(self, base: int, now_ms: int) -> Change | None:
        """All of it as one change; None when there is nothing."""
        if not self._written or self.meta is None:
            return None
        change = Change(base=base, now_ms=now_ms, meta=self.meta)
        for key in self._keys:
            value = self._written[key]
            if value is None:
                change.deletes.append(key)
            else:
                change.keys.append(key)
                change.values.append(value)
        return change
