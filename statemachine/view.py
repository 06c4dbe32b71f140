"""What a decision sees: the store, and over it everything this decision has written so far.

Records are parsed once for a decision and handed out as they are; a rule changes one and then
calls `put`. Scans see the writes too, for the tables in which rules scan. When the decision is
done, `seal` turns the writes into a change. The store is never written here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar, cast

from google.protobuf.message import Message

from ..proto.v1 import change_pb2, record_pb2
from . import keys
from .store import Reading

FORMAT = 1
Record = TypeVar("Record", bound=Message)

# Tables that rules scan within a decision, with the length of the prefix that every scan gives:
# what a decision has written there is found by that prefix.
SCANNED = {
    keys.RUN[0]: 9,
    keys.READY[0]: 5,
    keys.LEASE[0]: 9,
    keys.LEDGER[0]: 9,
    keys.EDGE[0]: 9,
    keys.STEP[0]: 17,
    keys.TIMER[0]: 1,
    keys.PARKED[0]: 2,
    keys.LANE_OF[0]: 5,
    keys.NAME[0]: 5,
    keys.DEAD[0]: 5,
    keys.REMEMBERED_LINE[0]: 1,
    keys.AUDIT[0]: 1,
    keys.ENDED[0]: 9,
    keys.NAMESPACE[0]: 1,
    keys.JOB[0]: 4,
    keys.UNIQUE[0]: 9,
    keys.CALENDAR[0]: 5,
}
_PREFIX = [SCANNED.get(table, 0) for table in range(256)]


class UnknownFormat(Exception):
    """A record or change was written by a newer version. The node must stop."""


class _Absent:
    """Says that a record was not looked for yet."""


_ABSENT = _Absent()


class View:
    """State as one decision sees and changes it."""

    def __init__(self, store: Reading, now_ms: int) -> None:
        self._store = store
        self._read = store.get
        # Parsed records by key; None is known to be absent.
        self._records: dict[bytes, Message | _Absent | None] = {}
        # What was written: None for a record means that its value is made when sealing.
        self._written: dict[bytes, bytes | None] = {}
        self._scanned: dict[bytes, dict[bytes, None]] = {}
        self.meta = self.get(keys.META, record_pb2.MetaRecord) or record_pb2.MetaRecord(
            format=FORMAT
        )
        self.base = self.meta.revision
        # The clock never runs backwards, whatever a new leader's clock says.
        self.now_ms = max(now_ms, self.meta.now_ms)
        self.meta.now_ms = self.now_ms

    def get(self, key: bytes, kind: type[Record]) -> Record | None:
        """The record at a key. Change it only together with a `put`."""
        record = self._records.get(key, _ABSENT)
        if record is not _ABSENT:
            return cast("Record | None", record)
        value = self._read(key)
        parsed = None if value is None else parse(key, value, kind)
        self._records[key] = parsed
        return parsed

    def need(self, key: bytes, kind: type[Record]) -> Record:
        """A record that must be there; its absence is a bug that stops the node."""
        record = self.get(key, kind)
        assert record is not None, f"no {kind.__name__} at {key!r}"
        return record

    def put(self, key: bytes, record: Message) -> None:
        self._records[key] = record
        if key not in self._written:
            self._note(key)
        self._written[key] = None

    def get_raw(self, key: bytes) -> bytes | None:
        """The value of a derived entry, which is no record."""
        if key in self._written:
            return self._written[key]
        return self._read(key)

    def put_raw(self, key: bytes, value: bytes = b"") -> None:
        if key not in self._written:
            self._note(key)
        self._written[key] = value

    def delete(self, key: bytes) -> None:
        if key not in self._written:
            self._note(key)
        self._records[key] = None
        self._written[key] = None

    def _note(self, key: bytes) -> None:
        length = _PREFIX[key[0]]
        if length:
            prefix = key[:length]
            found = self._scanned.get(prefix)
            if found is None:
                self._scanned[prefix] = {key: None}
            else:
                found[key] = None

    def scan(self, first: bytes, end: bytes, *, backwards: bool = False) -> Iterator[bytes]:
        """Yield the keys in a range as this decision left them. Do not write while it runs."""
        stored = self._store.scan(first, end, backwards=backwards)
        mine = self._scanned.get(first[: _PREFIX[first[0]]])
        if not mine:
            return (key for key, _ in stored)
        inside = sorted((k for k in mine if first <= k < end), reverse=backwards)
        return self._merged(iter(inside), stored, backwards)

    def _merged(
        self, mine: Iterator[bytes], stored: Iterator[tuple[bytes, bytes]], backwards: bool
    ) -> Iterator[bytes]:
        written = next(mine, None)
        for key, _ in stored:
            while written is not None and (written > key if backwards else written < key):
                if self._alive(written):
                    yield written
                written = next(mine, None)
            if written == key:
                written = next(mine, None)
                if not self._alive(key):
                    continue
            yield key
        while written is not None:
            if self._alive(written):
                yield written
            written = next(mine, None)

    def _alive(self, key: bytes) -> bool:
        return self._written[key] is not None or self._records.get(key) is not None

    @property
    def writes(self) -> int:
        """How much was written so far: a refusal must leave it as it was."""
        return len(self._written)

    def seal(self) -> bytes:
        """The change that this decision is, as bytes for the log; b"" when nothing changed."""
        if not self._written:
            return b""
        change = change_pb2.Change(format=FORMAT, base=self.base, now_ms=self.now_ms)
        put_key, put_value = change.keys.append, change.values.append
        put_delete = change.deletes.append
        records = self._records
        for key, value in self._written.items():
            if value is None:
                record = records.get(key)
                if record is None:
                    put_delete(key)
                    continue
                # Maps are only in what users order; sorted, equal records are equal bytes.
                value = cast(Message, record).SerializeToString(deterministic=key[0] in _MAPPED)
            put_key(key)
            put_value(value)
        change.meta = self.meta.SerializeToString()
        return change.SerializeToString()


_MAPPED = {keys.JOB[0], keys.NAMESPACE[0]}


def parse(key: bytes, value: bytes, kind: type[Record]) -> Record:
    record = kind.FromString(value)
    if record.format != FORMAT:  # type: ignore[attr-defined]
        raise UnknownFormat(
            f"{kind.__name__} at {key!r} has format {record.format}; this version knows "  # type: ignore[attr-defined]
            f"{FORMAT}. Run the version that wrote it, or a newer one."
        )
    return record
