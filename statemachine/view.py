"""What a decision sees: the store, and over it everything this decision has written so far.

Records are parsed once for a decision and handed out as they are; a rule changes one and then
calls `put`. Scans see the writes too, for the tables in which rules scan. When the decision is
done, `seal` turns the writes into a change. The store is never written here.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..proto.v1 import namespace_pb2, worker_pb2
from . import keys, limits
from .record import (
    AnyRecord,
    Change,
    MetaRecord,
    NamespaceRecord,
    QueueRecord,
    Record,
    UsageRecord,
    encode,
    parse,
)
from .store import Reading

# Tables in which a rule must find what its own decision has written, with the length of the prefix
# that each scan gives. `scan` sees those; `scan_stored` is for all others.
_SCANNED = {
    keys.RUN: 9,
    keys.READY: 5,
    keys.PARKED: 2,
    keys.LANE_OF: 5,
    keys.EDGE: 9,
    keys.STEP: 17,
    keys.UNIQUE: 9,
    keys.NAMESPACE: 1,
    keys.JOB: 4,
    keys.CALENDAR: 5,
}
_PREFIX = {table[0]: length for table, length in _SCANNED.items()}


# Tables whose records the leader meets again soon: a run is fired, leased and completed in three
# changes, each time with its job.
_RECALLED = frozenset(
    table[0]
    for table in (
        keys.RUN, keys.STATE, keys.JOB, keys.LANE, keys.QUEUE, keys.SESSION, keys.USAGE,
        keys.NAMESPACE,
    )
)  # fmt: skip
RECALL_MAX = 65_536
# Tables of records that can be large, and what an entry weighs beside that.
_HEAVY = frozenset(table[0] for table in (keys.RUN, keys.ENDED, keys.JOB, keys.REMEMBERED))
_LIGHT_BYTES = 100
NO_TIMER = b"\xff"  # Behind every timer.


class Recall:
    """Parsed records that outlive a decision, so that the next one need not read them again.

    A view takes a record out when it looks at it, and may change it. Only when that view's change
    was applied are the records put back (`keep`); whatever became of a view that was dropped, the
    store is asked anew. Any other change applied in between makes it forget everything.

    There are two generations. When the young one is full it becomes the old one, and what nobody
    took from the old one is forgotten whole. (Dropping the oldest of one dictionary one by one
    looks simpler, and walks over the holes of all that was dropped before, each time.)
    """

    def __init__(self, most: int = RECALL_MAX) -> None:
        self._half = most // 2
        self._young: dict[bytes, Record] = {}
        self._old: dict[bytes, Record] = {}
        self._revision = -1

    def __len__(self) -> int:
        return len(self._young) + len(self._old)

    def at(self, revision: int) -> Recall:
        """This, for a view on the state with this revision."""
        if revision != self._revision:
            self._young.clear()
            self._old.clear()
        return self

    def take(self, key: bytes) -> Record | None:
        record = self._young.pop(key, None)
        return self._old.pop(key, None) if record is None else record

    def keep(self, view: View) -> None:
        """The view's change, if it had one, is the change that was applied last."""
        young, old = self._young, self._old
        for key, record in view.records.items():
            if key[0] in _RECALLED:
                if record is not None:
                    young[key] = record
                else:
                    young.pop(key, None)
                old.pop(key, None)
        if len(young) > self._half:
            self._old, self._young = young, {}
            if len(young) > 2 * self._half:
                # One decision looked at more than there is room for.
                self._old = {}
        self._revision = view.base + (1 if view.writes else 0)


class View:
    """State as one decision sees and changes it."""

    def __init__(self, store: Reading, now_ms: int, recall: Recall | None = None) -> None:
        self._store = store
        self._read = store.get
        # Parsed records by key; None is known to be absent.
        self.records: dict[bytes, Record | None] = {}
        self._recall = Recall(0)
        # What was written: None for a record means that its value is made when sealing.
        self._written: dict[bytes, bytes | None] = {}
        self._edited: dict[bytes, Record] = {}
        self._new: set[bytes] = set()
        # How much was weighed so far, and what is to be weighed still.
        self._weight = 0
        self._unweighed: list[Record] = []
        self._scanned: dict[bytes, dict[bytes, None]] = {}
        self.meta = self.get(keys.META, MetaRecord) or MetaRecord()
        self.base = self.meta.revision
        if recall is not None:
            self._recall = recall.at(self.base)
        # The clock never runs backwards, whatever a new leader's clock says.
        self.now_ms = max(now_ms, self.meta.now_ms)
        self.meta.now_ms = self.now_ms
        # The first of the timers that this decision has set.
        self.first_timer = NO_TIMER
        # What workers are to stop, by worker: the leader tells them once the change is applied.
        self.stops: list[tuple[str, worker_pb2.Stop]] = []
        # Jobs whose ledger got an entry among the old ones.
        self.backfilled: set[int] = set()
        # Usage by namespace: every run counts there, so it is worth a place of its own.
        self.usages: dict[int, UsageRecord] = {}
        self.namespaces: dict[str, NamespaceRecord | None] = {}
        self.quotas: dict[str, namespace_pb2.Quota] = {}
        # How long runs that ended well, and failed ones, stay, by namespace.
        self.keeps: dict[int, tuple[int, int]] = {}
        # Queues by the lanes of the runs that leave them.
        self.queues: dict[int, QueueRecord] = {}
        self.lanes: dict[bytes, int] = {}

    def get(self, key: bytes, kind: type[AnyRecord]) -> AnyRecord | None:
        """The record at a key. Change it only together with a `put`."""
        records = self.records
        if key in records:
            return records[key]  # type: ignore[return-value]  # A table has one kind of record.
        record = self._recall.take(key)
        if record is None:
            value = self._written.get(key) or self._read(key)
            if value is not None:
                record = parse(key, value, kind)
        records[key] = record
        return record  # type: ignore[return-value]

    def need(self, key: bytes, kind: type[AnyRecord]) -> AnyRecord:
        """A record that must be there; its absence is a bug that stops the node."""
        record = self.records.get(key)
        if record is None:
            record = self.get(key, kind)
            assert record is not None, f"no {kind.__name__} at {key!r}"
        return record  # type: ignore[return-value]

    def edit(self, key: bytes, kind: type[AnyRecord]) -> AnyRecord:
        """A record that must be there and is changed now: `need` and `put` in one."""
        record = self._edited.get(key)
        if record is None:
            record = self.need(key, kind)
            self.put(key, record)
            self._edited[key] = record
        return record  # type: ignore[return-value]

    def put(self, key: bytes, record: Record) -> None:
        self.records[key] = record
        written = self._written
        if key not in written:
            if key[0] in _PREFIX:
                self._note(key)
            if key[0] in _HEAVY:
                self._unweighed.append(record)
        written[key] = None

    def get_raw(self, key: bytes) -> bytes | None:
        """The value of a derived entry, which is no record."""
        if key in self._written:
            return self._written[key]
        return self._read(key)

    def put_raw(self, key: bytes, value: bytes = b"") -> None:
        written = self._written
        if key not in written and key[0] in _PREFIX:
            self._note(key)
        written[key] = value

    def put_encoded(self, key: bytes, value: bytes) -> None:
        """Put a record that is encoded already."""
        self.records.pop(key, None)
        self._weight += len(value)
        self.put_raw(key, value)

    def put_new(self, key: bytes) -> None:
        """As `put_raw`, for an entry that is known not to be stored: should this decision delete
        it again, no trace of it goes into the log, and no tombstone into the store."""
        if key not in self._written:
            self._new.add(key)
            self._note(key)
        self._written[key] = b""

    def delete(self, key: bytes) -> None:
        if key in self._new:
            self._new.remove(key)
            del self._written[key]
            del self._scanned[key[: _PREFIX[key[0]]]][key]
            return
        self.records[key] = None
        self._edited.pop(key, None)
        written = self._written
        if key not in written and key[0] in _PREFIX:
            self._note(key)
        written[key] = None

    def _note(self, key: bytes) -> None:
        prefix = key[: _PREFIX[key[0]]]
        found = self._scanned.get(prefix)
        if found is None:
            self._scanned[prefix] = {key: None}
        else:
            found[key] = None

    def scan_stored(self, first: bytes, end: bytes, *, backwards: bool = False) -> Iterator[bytes]:
        """Yield the keys that were there before this decision, less those it has deleted.

        For work in small steps, which finds the rest in the next step.
        """
        for key, _ in self._store.scan(first, end, backwards=backwards):
            if not self.deleted(key):
                yield key

    def scan(self, first: bytes, end: bytes, *, backwards: bool = False) -> Iterator[bytes]:
        """Yield the keys in a range as this decision left them. Do not write ahead of it."""
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

    def deleted(self, key: bytes) -> bool:
        """Whether this decision has deleted a key."""
        return key in self._written and not self._alive(key)

    def _alive(self, key: bytes) -> bool:
        return self._written[key] is not None or self.records.get(key) is not None

    def fresh(self) -> View:
        """Another view of what is stored, without what this decision has written."""
        return View(self._store, self.now_ms)

    @property
    def stored(self) -> Reading:
        """The state without what this decision has written."""
        return self._store

    @property
    def writes(self) -> int:
        """How much was written so far: a refusal must leave it as it was."""
        return len(self._written)

    @property
    def size(self) -> int:
        """About how many bytes the change has by now; work in steps ends at `CHANGE_BYTES`."""
        if self._unweighed:
            self._weight += sum(record.weight() for record in self._unweighed)
            self._unweighed.clear()
        return self._weight + _LIGHT_BYTES * len(self._written)

    @property
    def is_full(self) -> bool:
        return self.size >= limits.CHANGE_BYTES

    def seal(self) -> bytes:
        """The change that this decision is, as bytes for the log; b"" when nothing changed."""
        if not self._written:
            return b""
        names: list[bytes] = []
        values: list[bytes] = []
        deletes: list[bytes] = []
        records = self.records
        for key, value in self._written.items():
            if value is None:
                record = records[key]
                if record is None:
                    deletes.append(key)
                    continue
                value = encode(record)
            names.append(key)
            values.append(value)
        return encode(
            Change(
                base=self.base, now_ms=self.now_ms, keys=names, values=values, deletes=deletes,
                meta=self.meta,
            )
        )  # fmt: skip
