"""What a self-check finds: an entry that is not as the records say it must be."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..core.store import Reading
from . import keys
from .record import AnyRecord, parse


@dataclass(frozen=True, slots=True)
class Difference:
    """One derived entry or record that is wrong, and what it should be."""

    key: bytes
    # None: it is not there.
    found: bytes | None
    # None: it should not be there.
    wanted: bytes | None
    # What is wrong, for people.
    message: str

    def __str__(self) -> str:
        return f"{self.key!r}: {self.message}"


@dataclass(frozen=True, slots=True)
class Breach:
    """A rule of the state that does not hold, and that no other entry can mend."""

    key: bytes
    message: str

    def __str__(self) -> str:
        return f"{self.key!r}: {self.message}"


def records(
    store: Reading, table: bytes, kind: type[AnyRecord]
) -> Iterator[tuple[bytes, bytes, AnyRecord]]:
    """Yield key, value and record of a whole table, in order."""
    for key, value in store.scan(table, keys.after(table)):
        yield key, value, parse(key, value, kind)


def record(store: Reading, key: bytes, kind: type[AnyRecord]) -> AnyRecord | None:
    value = store.get(key)
    return None if value is None else parse(key, value, kind)


def namespace_in(key: bytes) -> int:
    """The namespace's number in a key that begins with it."""
    return int.from_bytes(key[1:5], "big")


def jid_in(key: bytes) -> int:
    """The jid in a key that begins with it."""
    return int.from_bytes(key[1:9], "big")
