"""Reads again what does not change any more, slowly, to find damage before somebody needs the file.

Tables of the state and segments of the journal that are full are compared with what they were when
they were read first; tables are then read through by the engine as well, which has checksums of its
own. Snapshots have their digests. A start after a stop that was not in order reads what it can in a
second before anybody believes it, and the first pass follows at once; so long as that lasts the
engine still compares each block that somebody asks for with its checksum.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import logging
import os
import random
import re
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

from ...statemachine.core.rocks_store import RocksStore, Table, meaning
from ...statemachine.core.store import Corrupt
from ..raft import segment
from ..raft.disk import sync_entries
from ..raft.manifest import Manifest, folder_of
from .table_reader import NotRead, TableFault, read_beside

logger = logging.getLogger(__name__)

KNOWN = "checksums.json"
TABLE = re.compile(r"\d+\.sst")  # As the engine names one in what it says.
STOPPED = "stopped"  # There, if the node was stopped in order and all of its state was written.
PIECE = 256 << 10
AT_START_S = 1.0  # What a start after a bad end gives to reading tables.
HASTE = 4  # How many times faster than others the first pass is, if the start read not all.
# What the engine reads through at a time. Beside its bytes an entry costs a fifth of a microsecond,
# which counts as so many more.
ENTRIES = 5_000
ENTRY_COST = 200
TRIES = 3  # Of a reading that failed by the way, as when tables were merged under it.
FIRST_S = 60.0  # From the start to the first pass,
PAUSE_S = 3_600.0  # and from one to the next;
SPREAD_S = 240.0  # up to so much later by chance: nodes that start together do not read together.

Pace = Callable[[int], None]
Known = tuple[int, int, int]  # Size, inode and CRC of a file when it was read first.


class ScrubStopped(Exception):
    """The node stops, and with it the pass."""


def is_disk_error(error: Exception) -> bool:
    return isinstance(error, OSError) and error.errno == errno.EIO


def at_once(size: int) -> None:
    """No rest between two pieces."""


def take_stop_mark(folder: Path) -> bool:
    """Whether the node was stopped in order. From now on it is not."""
    mark = folder / STOPPED
    there = mark.exists()
    if there:
        mark.unlink()
        sync_entries(folder)
    return there


def set_stop_mark(folder: Path) -> None:
    (folder / STOPPED).touch(mode=0o600)
    sync_entries(folder)


class Scrub:
    """What is known of the files of one node, and how far it has read them again."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.verified_bytes = 0
        self.pass_ended = 0.0  # By the wall clock; 0 before the first has ended.
        # The start has not read all that it should have: the first pass must not wait.
        self.behind = False
        # By path below the folder.
        self._known: dict[str, Known] = {}
        # What cannot be read counts as none: all is read through again.
        with contextlib.suppress(OSError, ValueError, TypeError, AttributeError):
            saved = json.loads((folder / KNOWN).read_text())
            self._known = {str(path): (int(a), int(b), int(c)) for path, (a, b, c) in saved.items()}

    def check_at_start(
        self, store: RocksStore, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """As `check_state`, for as long as a start may take; the first pass reads all of it."""
        until = clock() + AT_START_S

        def in_time(size: int) -> None:
            if clock() > until:
                raise ScrubStopped

        self.behind = True
        try:
            self.check_state(store, in_time)
        except ScrubStopped:
            story = "%s was not stopped in order; %d MB of it were read in %.1f s, all else is next"
            logger.info(story, self.folder, self.verified_bytes >> 20, AT_START_S)
        else:
            self.behind = False

    def check_state(self, store: RocksStore, pace: Pace = at_once) -> None:
        """Raise Corrupt if a table is not what it was, or cannot be read through."""
        seen, new = set(), dict[str, Known]()
        tables, unread = store.tables(), list[Table]()
        for table in tables:
            path = store.path / table.name
            seen.add(self._name(path))
            # One that was merged meanwhile is gone; one that is missing, the engine reports.
            with contextlib.suppress(FileNotFoundError):
                if found := self._check(path, pace):
                    new[self._name(path)] = found
                    unread.append(table)
        if unread:
            # Tables overlap, so all are read in one go.
            size = sum(size for size, *_ in new.values()) // sum(t.entries or 1 for t in unread)
            if self._read_through(store, size + ENTRY_COST, pace):
                self._known |= new
        self._forget(self._name(store.path.parent), seen)

    def _read_through(self, store: RocksStore, cost: int, pace: Pace) -> bool:
        """Whether the engine has read all tables; raise Corrupt if one of them is damaged."""
        for _ in range(TRIES):
            try:
                for read in read_beside(store.path, ENTRIES, lambda: pace(0)):
                    pace(read * cost)
                return True
            except TableFault as fault:
                error, named = meaning(fault, store.path), set(TABLE.findall(str(fault)))
                is_ours = bool(named & {table.name for table in store.tables()})
                if is_ours if isinstance(error, Corrupt) else is_disk_error(error):
                    raise store.fault(fault) from fault
                # A table that was merged and removed just then is no damage.
                logger.info("the tables are read through once more: %s", fault)
            except NotRead as reason:
                logger.warning("%s; the next pass reads its tables", reason)
                return False
        logger.warning("%s could not be read through; the next pass tries again", store.path)
        return False

    def check_journal(self, numbers: list[int], pace: Pace) -> None:
        """Raise Corrupt if a segment that is full is not what it was."""
        seen = set()
        for number in numbers:
            path = self.folder / "consensus" / segment.path_of("journal", number)
            seen.add(self._name(path))
            with contextlib.suppress(FileNotFoundError):
                if found := self._check(path, pace):
                    self._known[self._name(path)] = found
        self._forget("consensus/journal", seen)

    def check_snapshot(self, manifest: Manifest, pace: Pace) -> str:
        """The name of a file that is not what was written; empty if there is none."""
        folder = self.folder / "consensus" / folder_of(manifest.index)
        for file in manifest.files:
            digest, size = hashlib.sha256(), 0
            try:
                for piece in self._pieces(folder / file.name, pace):
                    digest.update(piece)
                    size += len(piece)
            except FileNotFoundError:
                if folder.is_dir():
                    return file.name
                return ""  # Another has taken its place.
            if (size, digest.hexdigest()) != (file.size, file.sha256):
                return file.name
        return ""

    def save(self) -> None:
        """Keep what is known for the next start; half of it is as good as none."""
        new = self.folder / f"{KNOWN}.new"
        with new.open("w") as out:
            json.dump(self._known, out)
            out.flush()
            os.fsync(out.fileno())
        new.rename(self.folder / KNOWN)

    def _check(self, path: Path, pace: Pace) -> Known | None:
        """Compare a file with what it was; what it is, if nobody knew it yet."""
        crc = size = 0
        inode = path.stat().st_ino
        for piece in self._pieces(path, pace):
            crc = zlib.crc32(piece, crc)
            size += len(piece)
        found, known = (size, inode, crc), self._known.get(self._name(path))
        if known is None or known[1] != inode:
            return found
        if known != found:
            raise Corrupt(f"{path} is damaged: it is not what it was when it was read first")
        return None

    def _pieces(self, path: Path, pace: Pace) -> Iterator[bytes]:
        with path.open("rb", buffering=0) as file:
            while piece := file.read(PIECE):
                self.verified_bytes += len(piece)
                pace(len(piece))
                yield piece

    def _name(self, path: Path) -> str:
        return str(path.relative_to(self.folder))

    def _forget(self, below: str, seen: set[str]) -> None:
        """Files that are gone need not be known."""
        gone = [name for name in self._known if name.startswith(f"{below}/") and name not in seen]
        for name in gone:
            del self._known[name]


class Background:
    """A thread that makes one pass after the other, at its own pace: bytes a second."""

    def __init__(
        self, one_pass: Callable[[Pace], None], failed: Callable[[Exception], None], rate: int
    ) -> None:
        self.one_pass, self.failed, self.rate = one_pass, failed, rate
        self._factor = 1
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="scrub", daemon=True)

    def start(self, *, hastes: bool = False) -> None:
        """With `hastes`, the first pass begins now and is faster than others."""
        self._factor = HASTE if hastes else 1
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        wait = 0.0 if self._factor > 1 else FIRST_S + random.uniform(0, SPREAD_S)
        while not self._stop.wait(wait):
            began = time.monotonic()
            try:
                self.one_pass(self._min_interval)
            except ScrubStopped:
                return
            except Exception as error:
                self.failed(error)
                return
            logger.info("all files were read again in %.0f s", time.monotonic() - began)
            wait, self._factor = PAUSE_S + random.uniform(0, SPREAD_S), 1

    def _min_interval(self, size: int) -> None:
        if self._stop.wait(size / (self._factor * self.rate)):
            raise ScrubStopped
