"""The store on disk: the only door to RocksDB.

One column family, raw bytes, no log of its own: the Raft journal is the log, and the applied index
is written in the same batch as the data, so that after a crash the store holds a prefix of history
and says which one. Flushing several column families without RocksDB's log loses data silently;
a synced write would stop the whole interpreter. Neither happens here.

No answer is made of damaged files. rocksdict has one type of exception, and its `items` ends at a
damaged block as if there were no more entries (0 of 12,000 were seen). So every error goes through
`meaning`, by its words: `Corrupt`, `StoreLocked` or an error of the system. Scans use the iterator
that has a status, and look at it when they end; a long one takes `items` after its first entries, a
third less for each, and has that iterator look behind the last of them. Whoever was handed in as
`damaged` hears of it at once, on whatever thread, so nobody who catches exceptions can keep it to
himself. A damaged filter goes unseen: the engine then reads the block itself.

The iterator of rocksdict keeps pointers into its options and no hold on them: a scan whose options
were collected ends anywhere. `_scan` is a generator for that reason alone.

Who merges tables stands back (`_env`), and who flushes does so a little, since writers may have to
wait for it. Nodes write the same, and so do both at the same moment. Indexes and filters are in
parts: whole, a filter can be larger than a shard of the cache, and is read and hashed at each miss.
"""

from __future__ import annotations

import errno
import logging
import os
import resource
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, cast

import rocksdict

from .store import Corrupt, Write

logger = logging.getLogger(__name__)

CACHE_BYTES = 256 * 1024 * 1024
MEMTABLE_BYTES = 32 * 1024 * 1024
MEMTABLES = 4  # One that is written, and those that are on their way to the disk.
OPEN_FILES = 512
FILES_SHARE = 4  # At most one in so many of the descriptors that the process may have.
FIGURES = (
    "estimate-num-keys", "cur-size-all-mem-tables", "num-immutable-mem-table", "block-cache-usage",
    "estimate-table-readers-mem", "live-sst-files-size", "total-sst-files-size",
    "estimate-pending-compaction-bytes", "num-running-compactions", "num-running-flushes",
    "is-write-stopped", "actual-delayed-write-rate", "background-errors", "num-snapshots",
)  # fmt: skip
# How nice they are who merge tables: a tenth of a processor is left to them when all are busy, and
# under the largest load they need a fortieth.
MERGE_NICENESS = 10
# And they who flush: a third of what a loop gets, where three nodes share two processors.
FLUSH_NICENESS = 5
# As long as a table is open its file takes room, merged or not: whoever reads slowly opens the
# store anew after so many turns.
TURNS = 100
READ_CACHE_BYTES = 8 << 20  # Of who only reads.
WHOLE = 10_000  # Entries at a time, where nobody rests between.
CHUNK = 64  # Entries that a scan of a snapshot reads at a time.
SHORT = 6  # Entries after which a scan is long.


# What the library says by words only, and what it means; the first that fits counts. A table that
# is gone is damage too: the engine removes none that it needs.
IN_USE = ("lock hold by current process", "While lock file")
DAMAGE = ("Corruption:", ".sst: No such file")
BY_THE_SYSTEM = {
    "No space left": errno.ENOSPC, "Disk quota exceeded": errno.EDQUOT,
    "Too many open files in system": errno.ENFILE, "Too many open files": errno.EMFILE,
    "Input/output error": errno.EIO, "File too large": errno.EFBIG,
}  # fmt: skip
NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


class StoreLocked(Exception):
    """Another process, or an unclosed store of this one, has the folder open."""


def meaning(error: Exception, path: Path) -> Exception:
    """An error of the library as one that says by its type what it is."""
    text = str(error)
    if any(word in text for word in DAMAGE):
        return Corrupt(f"{path} is damaged: {text}")
    if any(word in text for word in IN_USE):
        return StoreLocked(f"{path} is in use by another process: {text}")
    for word, number in BY_THE_SYSTEM.items():
        if word in text:
            return OSError(number, text)
    return error


def nobody(error: Corrupt) -> None:
    """Nobody else hears of it than who asked."""


class Table(NamedTuple):
    """A file of the store: its name, and how many entries it has."""

    name: str
    entries: int


class RocksStore:
    """State in a folder."""

    def __init__(
        self,
        path: Path,
        *,
        cache_bytes: int = CACHE_BYTES,
        damaged: Callable[[Corrupt], None] = nobody,
    ) -> None:
        """`damaged` hears of the first and of every other report of corruption, on the thread that
        met it and before whoever asked: what he makes of it must not matter."""
        self.path, self.damaged = path, damaged
        self._lacked_room = False  # The engine may stand on an error.
        try:
            self._db = rocksdict.Rdict(str(path), _options(cache_bytes))
        except Exception as error:
            raise meaning(error, path) from error
        engine, fault = self._db.get, self.fault

        def get(key: bytes) -> bytes | None:
            try:
                return engine(key)
            except Exception as error:
                raise fault(error) from error

        # Reads are hot: a function costs less than a method.
        self.get: Callable[[bytes], bytes | None] = get
        self._no_log = rocksdict.WriteOptions()
        # The shipped stub calls this a method; it is a property.
        self._no_log.disable_wal = True  # type: ignore[method-assign,assignment]

    def fault(self, error: Exception) -> Exception:
        """What to raise in the place of an error of the library."""
        meant = meaning(error, self.path)
        if isinstance(meant, Corrupt):
            self.damaged(meant)
        elif isinstance(meant, OSError) and meant.errno in NO_ROOM:
            self._lacked_room = True
        return meant

    def get_many(self, keys: list[bytes]) -> list[bytes | None]:
        try:
            # The shipped stub wants a list of any kind of key.
            return cast("list[bytes | None]", self._db.get(keys))  # type: ignore[arg-type]
        except Exception as error:
            raise self.fault(error) from error

    def scan(
        self, first: bytes, end: bytes, *, backwards: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        return _scan(self._db, first, end, backwards, self.fault)

    def write(self, puts: Iterable[tuple[bytes, bytes]], deletes: Iterable[bytes]) -> None:
        self.prepare(puts, deletes)(())

    def prepare(self, puts: Iterable[tuple[bytes, bytes]], deletes: Iterable[bytes]) -> Write:
        batch = rocksdict.WriteBatch(raw_mode=True)
        put, delete = batch.put, batch.delete
        for key, value in puts:
            put(key, value)
        for key in deletes:
            delete(key)

        def write(last: Iterable[tuple[bytes, bytes]]) -> None:
            for key, value in last:
                put(key, value)
            try:
                self._db.write(batch, self._no_log)
            except Exception as error:
                raise self.fault(error) from error

        return write

    def snapshot(self) -> RocksReading:
        return RocksReading(self._db, self.fault)

    def flush(self) -> None:
        """Write what is in memory to the disk. OSError if there is no room for it: the engine looks
        whether there is room again, every 5 s, and never while a flush is asked of it."""
        if self._lacked_room:
            self.write((), ())
            self._lacked_room = False
        try:
            self._db.flush(True)
        except Exception as error:
            raise self.fault(error) from error

    def checkpoint(self, path: Path) -> None:
        """Write a copy of the state into a new folder; files are shared by hard links.

        The engine would flush what is in memory by itself, but holds the interpreter meanwhile: 70
        to 100 ms in which a node hears nobody. A flush of its own does not.
        """
        self.flush()
        try:
            rocksdict.Checkpoint(self._db).create_checkpoint(str(path))
        except Exception as error:
            raise self.fault(error) from error

    def tables(self) -> list[Table]:
        """The files that hold the state now."""
        try:
            files = self._db.live_files()
        except Exception as error:
            raise self.fault(error) from error
        return [Table(str(f["name"]).lstrip("/"), f["num_entries"]) for f in files]

    def figures(self) -> dict[str, int]:
        """What the engine says of itself; cheap enough to be asked every few seconds."""
        found = {name: self._db.property_int_value(f"rocksdb.{name}") for name in FIGURES}
        return {name.replace("-", "_"): value for name, value in found.items() if value is not None}

    def close(self) -> bool:
        """Whether all of it is on the disk now. If not, nothing is lost: the journal has it."""
        try:
            self._db.close()
        except Exception as error:
            logger.warning("%s could not be closed in order: %s", self.path, self.fault(error))
            return False
        return True


class RocksReading:
    """State as it was at one instant. It keeps old data from being dropped, so let it go soon.

    The library's snapshot answers `get` from its instant, but iterates over the present. An
    iterator is of the instant at which it was made, wherever it is sent; so one is made with the
    snapshot, and scans read from it by chunks, since several of them may be under way.
    """

    def __init__(self, db: rocksdict.Rdict, fault: Callable[[Exception], Exception]) -> None:
        self._snapshot = db.snapshot()
        self._pinned = db.iter(rocksdict.ReadOptions())
        self._fault = fault

    def get(self, key: bytes) -> bytes | None:
        try:
            return cast("bytes", self._snapshot[key])
        except Exception as error:
            # The library's snapshot has no `get`, and says a miss with a bare exception.
            if str(error) == "key not found":
                return None
            raise self._fault(error) from error

    def get_many(self, keys: list[bytes]) -> list[bytes | None]:
        return [self.get(key) for key in keys]

    def scan(
        self, first: bytes, end: bytes, *, backwards: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        chunk = self._back(first, end) if backwards else self._forth(first, end)
        while chunk:
            yield from chunk
            last = chunk[-1][0]
            if len(chunk) < CHUNK:
                return
            chunk = self._back(first, last) if backwards else self._forth(last + b"\0", end)

    def _forth(self, first: bytes, end: bytes) -> list[tuple[bytes, bytes]]:
        at, found = self._pinned, list[tuple[bytes, bytes]]()
        at.seek(first)
        while len(found) < CHUNK and at.valid():
            key = cast("bytes", at.key())
            if key >= end:
                break
            found.append((key, cast("bytes", at.value())))
            at.next()
        self._check()
        return found

    def _back(self, first: bytes, end: bytes) -> list[tuple[bytes, bytes]]:
        at, found = self._pinned, list[tuple[bytes, bytes]]()
        at.seek_for_prev(end)
        while len(found) < CHUNK and at.valid():
            key = cast("bytes", at.key())
            if key < first:
                break
            if key != end:
                found.append((key, cast("bytes", at.value())))
            at.prev()
        self._check()
        return found

    def _check(self) -> None:
        """An iterator ends at damage as it ends at the end; only its status shows it."""
        try:
            self._pinned.status()
        except Exception as error:
            raise self._fault(error) from error


def _scan(
    source: rocksdict.Rdict,
    first: bytes,
    end: bytes,
    backwards: bool,
    fault: Callable[[Exception], Exception],
) -> Iterator[tuple[bytes, bytes]]:
    """Entries, one by one. The library's own iteration is faster, and where it meets damage it ends
    without a word, as if there were no more. So it only helps with long scans, and the iterator
    that can see damage looks what is behind its end."""
    bounds = rocksdict.ReadOptions()
    bounds.set_iterate_upper_bound(end)
    try:
        # The engine keeps pointers into `bounds` and no hold on it. It must live as long as the
        # iteration, hence a generator: returning the iterator ends scans at random places.
        at = source.iter(bounds)
        # The shipped stubs know of no bytes.
        key: Callable[[], Any] = at.key
        value: Callable[[], Any] = at.value
        if not backwards:
            at.seek(first)
            step, left = at.next, SHORT
            # Behind the last entry there is no key.
            while (found := key()) is not None:
                yield found, value()
                left -= 1
                if left:
                    step()
                    continue
                fast = source.items(from_key=found + b"\0", read_opt=bounds)
                for entry in cast("Iterator[tuple[bytes, bytes]]", fast):
                    yield entry
                    found = entry[0]
                at.seek(found + b"\0")
                left = SHORT
        else:
            at.seek_for_prev(end)
            # The library's lower bound sets the upper one, so the way back is stopped here.
            while (found := key()) is not None and found >= first:
                yield found, value()
                at.prev()
        at.status()
    except GeneratorExit:
        raise
    except Exception as error:
        raise fault(error) from error


def _options(cache_bytes: int) -> rocksdict.Options:
    options = rocksdict.Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_write_buffer_size(MEMTABLE_BYTES)
    options.set_max_write_buffer_number(MEMTABLES)
    # Whatever may be open, a table must never be refused for want of a descriptor.
    may_open, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    options.set_max_open_files(min(OPEN_FILES, max(may_open // FILES_SHARE, 20)))
    options.set_keep_log_file_num(4)
    options.set_env(_env())
    options.set_block_based_table_factory(_blocks(cache_bytes))
    return options


def _blocks(cache_bytes: int) -> rocksdict.BlockBasedOptions:
    """How tables are written, and what of them is kept in memory."""
    table = rocksdict.BlockBasedOptions()
    table.set_block_cache(rocksdict.Cache(cache_bytes))
    table.set_block_size(16 * 1024)
    table.set_bloom_filter(10, False)
    # In the cache, a filter larger than a shard of it is read and hashed anew at every miss, which
    # made reads ten times as dear from some 400,000 jobs on. In parts, each fits.
    table.set_cache_index_and_filter_blocks(True)
    table.set_pin_l0_filter_and_index_blocks_in_cache(True)
    table.set_index_type(rocksdict.BlockBasedIndexType.two_level_index_search())
    table.set_partition_filters(True)
    return table


def _env() -> rocksdict.Env:
    """The engine's threads, which are those of the process; they stand back.

    All nodes write the same, so all merge their tables at the same moment; on the processors of one
    machine that stood in front of their loops for a second and more. Merging can wait for a gap.
    The engine knows only one lower priority, the last, and behind a busy machine that is never: the
    tables would pile up until reads are slow and writers stopped. But a thread is as nice as the
    one that starts it.
    """
    env = rocksdict.Env()

    def begin() -> None:
        if sys.platform == "linux":  # Elsewhere it would be that of the whole process.
            os.nice(FLUSH_NICENESS)
        env.set_high_priority_background_threads(1)
        if sys.platform == "linux":
            os.nice(MERGE_NICENESS - FLUSH_NICENESS)
        # More than one, the engine's own number: then it starts them at once.
        env.set_low_priority_background_threads(2)

    beginning = threading.Thread(target=begin)
    beginning.start()
    beginning.join()
    return env


def peek(path: Path, key: bytes) -> bytes | None:
    """A value of a store that nobody has open; no file of it is changed."""
    with _read_only(path) as db:
        return cast("bytes | None", db.get(key))


def peek_between(path: Path, first: bytes, end: bytes) -> list[tuple[bytes, bytes]]:
    """As `peek`, of what lies at or after `first` and before `end`."""
    with _read_only(path) as db:
        return list(_scan(db, first, end, False, lambda error: meaning(error, path)))


def read_whole(path: Path) -> None:
    """As `read_through`, in one go."""
    for _ in read_through(path, WHOLE):
        pass


def read_through(path: Path, count: int) -> Iterator[int]:
    """Have the engine read all tables of a store, `count` entries at a time, and compare them with
    its checksums; how many it has read. No file is changed, and another process may have it open:
    what that merges meanwhile is let go after so many turns."""
    first, past = b"", rocksdict.ReadOptions()
    past.fill_cache(False)  # type: ignore[call-arg]  # The stub lacks the argument.
    while True:
        with _read_only(path) as db:
            at = db.iter(past)
            valid, step = at.valid, at.next
            at.seek(first)
            for _ in range(TURNS):
                read = 0
                while read < count and valid():
                    step()
                    read += 1
                yield read
                if not valid():
                    # An iterator ends at damage as it ends at the end; only its status shows it.
                    at.status()
                    return
            first = cast("bytes", at.key())


@contextmanager
def _read_only(path: Path) -> Iterator[rocksdict.Rdict]:
    access, options = rocksdict.AccessType.read_only(), rocksdict.Options(raw_mode=True)
    options.set_block_based_table_factory(_blocks(READ_CACHE_BYTES))
    try:
        db = rocksdict.Rdict(str(path), options, access_type=access)
        try:
            yield db
        finally:
            db.close()
    except Exception as error:
        raise meaning(error, path) from error
