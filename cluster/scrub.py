"""Reads again what does not change any more, slowly, to find damage before somebody needs the file.

Tables of the state and segments of the journal that are full are compared with what they were when
they were read first; tables are then read through by the engine as well, which has checksums of its
own. Snapshots have their digests. A start after a stop that was not in order reads all tables at
full speed, since who ended the node may have damaged more.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

from ..statemachine.rocks_store import RocksStore
from ..statemachine.store import Corrupt
from .consensus import segment, snapshot
from .consensus.disk import sync_entries

logger = logging.getLogger(__name__)

KNOWN = "checksums.json"
STOPPED = "stopped"  # There, if the node was stopped in order and all of its state was written.
RATE = 8 << 20  # Bytes a second in the background.
PIECE = 256 << 10
AT_START = 8 << 20  # Bytes of a state that is read through at a start though it is not known.
# What the engine reads through at a time takes half a millisecond of the interpreter, and the rest
# behind it, for which each entry counts so much more than its bytes, twenty times as long.
ENTRIES = 200
ENTRY_COST = 200
FIRST_S = 5.0  # From the start to the first pass,
PAUSE_S = 3_600.0  # and from one to the next.

Pace = Callable[[int], None]


class Stopped(Exception):
    """The node stops, and with it the pass."""


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
        # Path below the folder -> size, inode and CRC when it was read first.
        self._known: dict[str, tuple[int, int, int]] = {}
        with contextlib.suppress(FileNotFoundError, ValueError, TypeError):
            said = json.loads((folder / KNOWN).read_text())
            self._known = {str(path): (int(a), int(b), int(c)) for path, (a, b, c) in said.items()}

    def check_at_start(self, store: RocksStore) -> None:
        """As `check_state`, but a table that was never read before waits for the first pass where
        the state is large: to have the engine read it through takes a second for each 20 MB."""
        size = sum((store.path / name.lstrip("/")).stat().st_size for name, *_ in store.tables())
        self.check_state(store, unknown=size <= AT_START)

    def check_state(self, store: RocksStore, pace: Pace = at_once, *, unknown: bool = True) -> None:
        """Raise Corrupt if a table is not what it was, or cannot be read through; with `unknown`,
        also one that was not read before."""
        seen, new = set(), list[tuple[bytes, bytes]]()
        for name, first, last in store.tables():
            path = store.path / name.lstrip("/")
            seen.add(self._name(path))
            if unknown or self._name(path) in self._known:
                # One that was merged meanwhile is gone; one that is missing, the engine tells.
                with contextlib.suppress(FileNotFoundError):
                    if self._check(path, pace):
                        new.append((first, last))
        if new:
            # Tables overlap, so all that are new are read in one go.
            read_through(store, min(f for f, _ in new), max(last for _, last in new), pace)
        self._forget(self._name(store.path.parent), seen)

    def check_journal(self, numbers: list[int], pace: Pace) -> None:
        """Raise Corrupt if a segment that is full is not what it was."""
        seen = set()
        for number in numbers:
            path = self.folder / "consensus" / segment.path_of("journal", number)
            seen.add(self._name(path))
            with contextlib.suppress(FileNotFoundError):
                self._check(path, pace)
        self._forget("consensus/journal", seen)

    def check_snapshot(self, manifest: snapshot.Manifest, pace: Pace) -> str:
        """The name of a file that is not what was written; empty if there is none."""
        folder = self.folder / "consensus" / snapshot.folder_of(manifest.index)
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

    def _check(self, path: Path, pace: Pace) -> bool:
        """Whether the file was not known yet."""
        crc = size = 0
        inode = path.stat().st_ino
        for piece in self._pieces(path, pace):
            crc = zlib.crc32(piece, crc)
            size += len(piece)
        name, found = self._name(path), (size, inode, crc)
        known = self._known.get(name)
        if known is None or known[1] != inode:
            self._known[name] = found
            return True
        if known != found:
            raise Corrupt(f"{path} is damaged: it is not what it was when it was read first")
        return False

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


def read_through(store: RocksStore, first: bytes, last: bytes, pace: Pace) -> None:
    """Have the engine read what lies between two keys and compare it with its checksums."""
    read = 0
    for count, size in enumerate(store.sizes(first, last), 1):
        read += size + ENTRY_COST
        if not count % ENTRIES:
            pace(read)
            read = 0


class Background:
    """A thread that makes one pass after the other, at its own pace."""

    def __init__(
        self, one_pass: Callable[[Pace], None], failed: Callable[[Exception], None], rate: int
    ) -> None:
        self.one_pass, self.failed, self.rate = one_pass, failed, rate
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="scrub", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        wait = FIRST_S
        while not self._stop.wait(wait):
            began = time.monotonic()
            try:
                self.one_pass(self._pace)
            except Stopped:
                return
            except Exception as error:
                self.failed(error)
                return
            logger.debug("all files were read again in %.0f s", time.monotonic() - began)
            wait = PAUSE_S

    def _pace(self, size: int) -> None:
        if self._stop.wait(size / self.rate):
            raise Stopped
