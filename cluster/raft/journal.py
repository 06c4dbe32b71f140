"""The log of one node on its disk, with its term and vote: the truth everything else follows.

The journal only ever appends. An entry at an index that exists takes the place of it and of all
behind it, so that a crash while a conflicting tail is replaced leaves the old tail whole.

Appending changes memory; nothing touches the disk until `take` hands out a Batch, which a helper
thread runs: all writes of the round, then one sync. `end_round` then moves `synced`. What must not
be sent before it is durable waits for the `end` that was reached when it was decided.

One batch is under way at a time. Its first record is a seal: it says that everything before it
is durable, which is true when it is written, since the batch before has been synced. At start a
record that is not intact is a torn tail if no seal vouches for it, and is cut; otherwise it is
damage, and the node refuses to start.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

from . import segment
from .faults import require
from .journal_recovery import Recovered
from .log_index import EntryCache
from .port import Disk
from .record import (
    COMMAND,
    CONFIG,
    HEADER_BYTES,
    IDENTITY,
    NOOP,
    RECORD,
    SEAL,
    SWITCH,
    VOTE,
    Entry,
    Header,
    encode,
    seal_payload,
)

__all__ = ["COMMAND", "CONFIG", "NOOP", "SWITCH", "Batch", "Entry", "Journal", "JournalLimits"]

Op = Callable[[], None]
FOLDER = "journal"


@dataclass(frozen=True, kw_only=True)
class JournalLimits:
    """Sizes of the journal, in bytes."""

    segment: int = 64 << 20  # Old entries go by whole segments, so this is the grain of a cut.
    cache: int = 16 << 20  # Entries kept in memory for followers that are nearly up to date.
    entry: int = 6 << 20  # One entry; a frame and a segment hold at least one.

    def __post_init__(self) -> None:
        if self.segment < HEADER_BYTES + 2 * RECORD.size + self.entry:
            raise ValueError(f"a segment of {self.segment} bytes cannot hold an entry")


@dataclass(slots=True)
class Batch:
    """One round of writes and its sync. Run it on any thread, once or, if it failed for want
    of space, again: every operation may be repeated."""

    ops: list[Op]
    end: int
    newest: int  # The number of the segment that it writes to last.

    def run(self) -> None:
        for op in self.ops:
            op()


class Journal:
    """See the head of this file. Not for threads: only a Batch may leave the loop."""

    def __init__(self, disk: Disk, limits: JournalLimits, journal_id: str) -> None:
        self.disk, self.limits = disk, limits
        disk.make_folder(FOLDER)
        disk.lock("lock")
        found = Recovered(disk, FOLDER, journal_id)
        self.journal_id = found.journal_id  # 16 hex digits; those on disk win over these.
        self.term, self.vote, self.identity = found.term, found.vote, found.identity
        self.configs: list[tuple[int, str]] = found.configs
        self.base_index, self.base_term = found.base_index, found.base_term
        self.last_index, self.last_term = found.last_index, found.last_term
        self.end = self.synced = 0  # In bytes ever appended.
        self.spoken_for = 0  # Where the last vote or identity ended,
        self.spoken_index = 0  # and the last entry before it.
        self.synced_index = 0
        self._unsynced: deque[tuple[int, int]] = deque()
        self._index, self._cache = found.index, EntryCache()
        self._segments, self._number = found.segments, found.number
        self._offset = self._start = found.offset
        self._crc = found.crc
        self._ops: list[Op] = found.ops
        self._chunks: list[bytes] = []
        self._removals: list[Op] = []
        self._durable = 0  # The newest segment whose beginning is on the disk for sure,
        self._stands_from = 0  # and the one that must be before those behind it may go.
        self._sealed = True
        self._in_flight = False
        self._begin_life()

    # What is asked of it.

    @property
    def newest(self) -> str:
        """The path of the segment that is being written."""
        return segment.path_of(FOLDER, self._number)

    def term_at(self, index: int) -> int:
        """Return the term of an entry from the base on."""
        if index == self.base_index:
            return self.base_term
        require(self.base_index < index <= self.last_index, f"no entry {index} in the journal")
        return self._index.term_at(index)

    def first_of_term(self, index: int) -> int:
        """Return the first index that has the same term as `index` without a gap."""
        return max(self._index.first_of_term(index), self.base_index + 1)

    def entries(self, first: int, last: int, size: int) -> list[Entry]:
        """Return entries from `first` to at most `last`, at least one, about `size` bytes."""
        require(self.base_index < first <= last <= self.last_index, f"no entries {first}..{last}")
        found: list[Entry] = []
        while first <= last and size > 0:
            if first >= self._cache.first:
                cached = self._cache.entries
                part: Iterable[Entry] = (cached[i] for i in range(first, last + 1))
            else:
                run = self._index.run_of(first)
                places = run.places(first, min(last, self._cache.first - 1))
                path = segment.path_of(FOLDER, run.number)
                part = segment.read_entries(self.disk, path, places, size, self.limits.entry)
            for entry in part:
                found.append(entry)
                size -= len(entry.data) + RECORD.size
                first += 1
                if size <= 0:
                    break
        return found

    def entry(self, index: int) -> Entry:
        return self.entries(index, index, 1)[0]

    def tail_before(self, index: int, entries: int, size: int) -> int:
        """Return where a tail begins that ends at `index`: it has so many entries, or it has the
        whole segments that make so many bytes and the one of `index`, if that is less."""
        return max(index - entries, self._index.last_before(index, size // self.limits.segment))

    def last_of_segment_before(self, index: int) -> int:
        """Return the last entry before the segment of `index`; 0 if there is none."""
        return self._index.last_before(index, 0)

    # What changes it.

    def append(self, entry: Entry) -> None:
        """Put an entry at its place; what is at or behind that place does not count."""
        index, term, kind, data = entry
        require(
            self.base_index < index <= self.last_index + 1,
            f"entry {index} does not follow {self.base_index}..{self.last_index}",
        )
        require(len(data) <= self.limits.entry, f"an entry of {len(data)} bytes is too large")
        prev_term = self.term_at(index - 1)
        require(term >= prev_term, f"entry {index} has term {term} after term {prev_term}")
        if index <= self.last_index:
            self._truncate(index)
        offset = self._write(kind, index, term, prev_term, data)
        self._place(entry, offset)
        self._unsynced.append((self.end, index))
        self._cache.put(entry)

    def set_term(self, term: int, vote: str | None) -> None:
        """Note term and vote; they count when `synced` has reached `spoken_for`."""
        require(term >= self.term, f"the term may not go from {self.term} to {term}")
        require(
            term > self.term or self.vote in (None, vote),
            f"in term {term} this node voted for {self.vote}, not for {vote}",
        )
        if (term, vote) != (self.term, self.vote):
            self.term, self.vote = term, vote
            self._write(VOTE, 0, term, 0, (vote or "").encode())
            self._spoke()

    def set_identity(self, identity: dict[str, Any]) -> None:
        """Note who this node is; kept in each segment's header from now on."""
        self.identity = identity
        self._roll(reset=False)
        self._write(IDENTITY, 0, 0, 0, b"")
        self._spoke()

    def _spoke(self) -> None:
        self.spoken_for, self.spoken_index = self.end, self.last_index

    def reset(self, index: int, term: int, configs: list[tuple[int, str]]) -> None:
        """Begin anew behind a snapshot: no entry on this disk counts."""
        beyond = index > self.last_index
        self._index.clear()
        self._cache.restart(index + 1)
        self._unsynced.clear()
        self.configs = list(configs)
        self.base_index = self.last_index = index
        self.base_term = self.last_term = term
        self.synced_index = index
        old = list(self._segments)
        self._roll(reset=True)
        self._write(IDENTITY, 0, 0, 0, b"")
        self._spoke()
        # What is left of an old log that goes on could begin behind the snapshot.
        self._stands_from = 0 if beyond else self._number
        self._drop(old)

    def cut(self, index: int) -> None:
        """Forget entries up to `index` as far as whole segments allow."""
        require(index <= self.synced_index, f"cut at {index} is beyond {self.synced_index}")
        keep = self._index.segment_behind(index) or self._number
        old = [n for n in self._segments if n < keep]
        if not old:
            return
        last = self._index.cut(keep)
        if last is not None:
            self.base_term = self._index.term_at(last)
            self.base_index = last
            below = [c for c in self.configs if c[0] <= last]
            self.configs = below[-1:] + [c for c in self.configs if c[0] > last]
            self._cache.evict(last)
        self._drop(old)

    def _drop(self, old: list[int]) -> None:
        # Only after the sync of the batch: until then they are all there is.
        self._segments = [n for n in self._segments if n not in old]
        self._removals += self._removing(old)

    def _removing(self, old: list[int]) -> list[Op]:
        paths = [segment.path_of(FOLDER, number) for number in old]
        return [
            *(partial(self.disk.remove, path) for path in paths),
            lambda: self.disk.sync_folder(FOLDER),
        ]

    def relieve(self, batch: Batch) -> None:
        """Let a round that found no room begin with the removal of what was cut: a snapshot stands
        for it, and a durable segment behind it knows the term and the vote."""
        if self._durable >= self._stands_from:
            first = min(self._durable, self._segments[0])
            old = [n for n in segment.numbers(self.disk, FOLDER) if n < first]
            batch.ops[:0] = self._removing(old) if old else []

    # Rounds.

    @property
    def bytes_kept(self) -> int:
        """How much disk the journal takes, counted in whole segments but for the last."""
        return (len(self._segments) - 1) * self.limits.segment + self._offset

    def full_segments(self) -> list[int]:
        """The numbers of those that are never written to again; from any thread."""
        return self._segments[:-2]

    @property
    def bytes_waiting(self) -> int:
        """How much was appended and is not durable yet."""
        return self.end - self.synced

    def take(self, *, idle: bool = False) -> Batch | None:
        """Return the next round, if there is anything to do and none is under way.

        With `idle`, seal what is durable: without that, damage to the last round could not
        be known from a torn tail.
        """
        if self._in_flight:
            return None
        if idle and not self._chunks and not self._sealed:
            self._add(SEAL, 0, 0, 0, seal_payload(self.journal_id, self._number, self._offset))
            self._sealed = True
        if not self._chunks and not self._ops and not self._removals:
            return None
        self._flush()
        path = segment.path_of(FOLDER, self._number)
        ops = [*self._ops, lambda: self.disk.sync(path), *self._removals]
        self._ops, self._removals, self._in_flight = [], [], True
        return Batch(ops, self.end, self._number)

    def end_round(self, batch: Batch) -> None:
        """A batch ran to its end: what it held is durable."""
        self._in_flight = False
        self.synced, self._durable = batch.end, batch.newest
        while self._unsynced and self._unsynced[0][0] <= self.synced:
            self.synced_index = self._unsynced.popleft()[1]
        self._trim_cache()

    def _trim_cache(self) -> None:
        cache = self._cache
        while cache.bytes > self.limits.cache and cache.first <= self.synced_index:
            cache.evict(cache.first)

    # Bytes.

    def _write(self, kind: int, index: int, term: int, prev_term: int, payload: bytes) -> int:
        """Add a record to the round; return where its segment has it."""
        if self._offset + 3 * RECORD.size + len(payload) > self.limits.segment:
            self._roll(reset=False)
        if not self._chunks:
            self._add(SEAL, 0, 0, 0, seal_payload(self.journal_id, self._number, self._offset))
        self._sealed = False
        offset = self._offset
        self._add(kind, index, term, prev_term, payload)
        return offset

    def _add(self, kind: int, index: int, term: int, prev_term: int, payload: bytes) -> None:
        data, self._crc = encode(kind, index, term, prev_term, payload, self._crc)
        self._chunks.append(data)
        self._offset += len(data)
        self.end += len(data)

    def _flush(self) -> None:
        if self._chunks:
            data, offset = b"".join(self._chunks), self._start
            path = segment.path_of(FOLDER, self._number)
            self._ops.append(lambda: self.disk.write(path, offset, data))
            self._chunks = []
        self._start = self._offset

    def _roll(self, *, reset: bool) -> None:
        """Begin a new segment. The old one is synced first, so that only the last can be torn."""
        if self._number:
            self._flush()
            old = segment.path_of(FOLDER, self._number)
            self._ops.append(lambda: self.disk.sync(old))
        header = Header(
            number=self._number + 1,
            journal_id=self.journal_id,
            reset=reset,
            chain=0 if reset else self._crc,
            last_index=self.last_index,
            last_term=self.last_term,
            term=self.term,
            vote=self.vote,
            identity=self.identity,
            # Each change waits until the one before is committed, so nothing older is needed.
            configs=self.configs[-2:],
        )
        self._begin(header)

    def _begin(self, header: Header) -> None:
        path = segment.path_of(FOLDER, header.number)
        size, data = self.limits.segment, header.encode()
        self._ops += [
            lambda: self.disk.allocate(path, size),
            lambda: self.disk.write(path, 0, data),
            lambda: self.disk.sync(path),
            lambda: self.disk.sync_folder(FOLDER),
        ]
        self._number = header.number
        self._segments.append(header.number)
        self._offset = self._start = HEADER_BYTES
        self._crc = header.seed()

    # Memory.

    def _place(self, entry: Entry, offset: int) -> None:
        """Note where an entry is."""
        index, term, kind, data = entry
        self._index.add(index, term, self._number, offset)
        if kind == CONFIG:
            self.configs.append((index, data.decode()))
        self.last_index, self.last_term = index, term

    def _truncate(self, index: int) -> None:
        """Forget the tail from `index` on; its bytes stay, but what is written after counts."""
        self._index.truncate(index)
        self.configs = [c for c in self.configs if c[0] < index]
        while self._unsynced and self._unsynced[-1][1] >= index:
            self._unsynced.pop()
        self._cache.truncate(index, self.last_index)
        self.synced_index = min(self.synced_index, index - 1)
        self.last_index, self.last_term = index - 1, self.term_at(index - 1)

    # Start.

    def _begin_life(self) -> None:
        """Make durable what was found, or begin the first segment."""
        if not self._number:
            self._roll(reset=False)
            self._write(IDENTITY, 0, 0, 0, b"")
            self._spoke()
        batch = self.take()
        if batch is not None:
            batch.run()
            self.end_round(batch)
        self.synced_index = self.last_index
        self._cache.first = self.last_index + 1
        self._durable = self._number
        self._sealed = False  # What was found is durable now, but nothing on the disk says so.
