"""Snapshots on disk: folders of files, each with a manifest that names every byte.

A folder counts from the moment it has its final name, and it gets that name when its files and
its manifest are durable. Everything else in `snapshots/` is left over from a crash and removed.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
import zlib
from collections import deque
from collections.abc import Callable, Set
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from .disk import Disk
from .faults import Damaged
from .membership import Configuration
from .message import INDEX_MAX, TERM_MAX, Chunk
from .port import Settings

logger = logging.getLogger(__name__)

FOLDER = "snapshots"
DAMAGED = f"{FOLDER}/damaged"  # The last one that was not what was written, for whoever asks why.
MANIFEST = "manifest.json"
FILES_MAX = 20_000  # Their manifest fits into a frame.
BLOCK = 1 << 20


class FileOf(NamedTuple):
    """A file of a snapshot."""

    name: str
    size: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """What a snapshot holds, and where in the log it stands."""

    index: int
    term: int
    state: int  # What the machine says it holds: less than `index` where no-ops follow.
    configs: list[tuple[int, str]]
    files: list[FileOf]

    @cached_property
    def id(self) -> int:
        """A name for exactly these bytes."""
        digest = hashlib.sha256(self._body()).digest()
        return int.from_bytes(digest[:7], "big")

    def _body(self) -> bytes:
        fields = [self.index, self.term, self.state, self.configs, self.files]
        return json.dumps(fields, separators=(",", ":")).encode()

    def encode(self) -> bytes:
        body = self._body()
        return b"%08x" % zlib.crc32(body) + body

    @classmethod
    def decode(cls, data: bytes) -> Manifest:
        """Raise ValueError if these bytes are no manifest: a disk or a peer may have them."""
        try:
            if data[:8] != b"%08x" % zlib.crc32(data[8:]):
                raise ValueError("its checksum differs")
            index, term, state, configs, files = json.loads(data[8:])
            manifest = cls(
                index,
                term,
                state,
                [(at, text) for at, text in configs],
                [FileOf(name, size, digest) for name, size, digest in files],
            )
            manifest.check()
        except (ValueError, TypeError, RecursionError) as error:
            raise ValueError(f"this is no manifest of a snapshot: {error}") from error
        return manifest

    def check(self) -> None:
        """Raise ValueError for what no node that works would write."""
        places = (self.index, self.term, self.state, *(at for at, _ in self.configs))
        if any(type(place) is not int for place in places):
            raise ValueError("a place in the log is a number")
        if not (0 < self.index < INDEX_MAX and 0 <= self.term <= TERM_MAX):
            raise ValueError(f"it stands at {self.index} in term {self.term}")
        if not 0 <= self.state <= self.index or len(self.configs) != 1:
            raise ValueError("its state is beyond it, or its members are not said once")
        [(at, text)] = self.configs
        if not 0 < at <= self.index or not isinstance(text, str):
            raise ValueError(f"its members are those of index {at}")
        Configuration.decode(text)
        if len(self.files) > FILES_MAX:
            raise ValueError(f"{len(self.files)} files are over {FILES_MAX}")
        if len({file.name for file in self.files}) < len(self.files):
            raise ValueError("a file is named twice")
        for file in self.files:
            _check_file(file)


_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}", re.ASCII)
_DIGEST = re.compile(r"[0-9a-f]{64}", re.ASCII)


def _check_file(file: FileOf) -> None:
    if not isinstance(file.name, str) or file.name == MANIFEST or not _NAME.fullmatch(file.name):
        raise ValueError(f"{file.name!r} is no file of a snapshot")
    if type(file.size) is not int or not 0 <= file.size < INDEX_MAX:
        raise ValueError(f"{file.name} has {file.size!r} bytes")
    if not isinstance(file.sha256, str) or not _DIGEST.fullmatch(file.sha256):
        raise ValueError(f"{file.name} has no digest")


def folder_of(index: int) -> str:
    return f"{FOLDER}/{index:020d}"


class Snapshots:
    """The snapshots of this node: the two newest, and those on their way to a follower."""

    def __init__(self, disk: Disk) -> None:
        self.disk = disk
        self.by_index: dict[int, Manifest] = {}
        disk.make_folder(FOLDER)
        # A name that the sync before failed to keep is seen here all the same, and relied on.
        disk.sync_folder(FOLDER)
        for name in disk.list(FOLDER):
            folder = f"{FOLDER}/{name}"
            if name.isdecimal():
                try:
                    manifest = self._load(folder)
                except Damaged as damaged:
                    self._put_aside(folder, damaged)
                else:
                    self.by_index[manifest.index] = manifest
            elif folder != DAMAGED:
                disk.remove(folder)

    def _load(self, folder: str) -> Manifest:
        path = f"{folder}/{MANIFEST}"
        try:
            manifest = Manifest.decode(self.disk.read(path, 0, self.disk.size(path)))
        except ValueError as error:
            raise Damaged(f"{path}: {error}. {ADVICE}") from error
        if folder_of(manifest.index) != folder:
            raise Damaged(f"{path}: it is that of snapshot {manifest.index}. {ADVICE}")
        return manifest

    @property
    def latest(self) -> Manifest | None:
        return self.by_index[max(self.by_index)] if self.by_index else None

    @property
    def last_index(self) -> int:
        return max(self.by_index, default=0)

    @property
    def lost(self) -> bool:
        """Whether a damaged one was set aside, now or at a start before."""
        return DAMAGED.removeprefix(f"{FOLDER}/") in self.disk.list(FOLDER)

    def set_aside(self, index: int, damaged: Damaged) -> None:
        """Do without one that is not what was written: nobody may have a state from it."""
        del self.by_index[index]
        self._put_aside(folder_of(index), damaged)

    def set_aside_damaged(self) -> None:
        """Read them all again, and do without those that are not what was written."""
        for manifest in list(self.by_index.values()):
            try:
                self.verify(manifest)
            except Damaged as damaged:
                self.set_aside(manifest.index, damaged)

    def _put_aside(self, folder: str, damaged: Damaged) -> None:
        logger.error("%s is set aside as %s: %s", folder, DAMAGED, damaged)
        self.disk.remove(DAMAGED)
        self.disk.rename(folder, DAMAGED)
        self.disk.sync_folder(FOLDER)

    def verify(self, manifest: Manifest) -> None:
        """Compare every file with its digest, or raise Damaged."""
        folder = folder_of(manifest.index)
        there = set(self.disk.list(folder))
        for file in manifest.files:
            path = f"{folder}/{file.name}"
            if file.name not in there or digest_of(self.disk, path) != (file.size, file.sha256):
                raise Damaged(f"{path} is not what was written. {ADVICE}")

    def verification(self, manifest: Manifest, check: Callable[[str], None]) -> Callable[[], None]:
        """Return the work of reading a snapshot again; it may be removed meanwhile."""

        def work() -> None:
            try:
                self.verify(manifest)
                check(folder_of(manifest.index))
            except Exception:  # Whatever it is that a machine makes of files that go.
                if manifest.index in self.by_index:
                    raise

        return work

    # Making one; all of it on the helper.

    def write(self, checkpoint: Callable[[str], int]) -> Callable[[], tuple[int, list[FileOf]]]:
        """Tables of the state never change, and most of them were in the last snapshot: with
        millions of jobs, to read all of them each time would keep the processor busy for seconds.
        """
        disk, folder, latest = self.disk, f"{FOLDER}/making", self.latest
        known = {file.name: file for file in latest.files} if latest else {}
        before = folder_of(latest.index) if latest else ""

        def described(name: str) -> FileOf:
            if name in known and disk.is_one(f"{before}/{name}", f"{folder}/{name}"):
                return known[name]
            return FileOf(name, *digest_of(disk, f"{folder}/{name}"))

        def work() -> tuple[int, list[FileOf]]:
            disk.remove(folder)
            disk.make_folder(folder)
            index = checkpoint(folder)
            return index, [described(name) for name in disk.list(folder)]

        return work

    def publish(self, manifest: Manifest) -> Callable[[], None]:
        return lambda: _publish(self.disk, f"{FOLDER}/making", manifest)

    def add(self, manifest: Manifest, on_offer: Set[int] = frozenset()) -> list[int]:
        """Take note of a snapshot that has its final name; return old ones nobody fetches, which
        are to be removed.

        If the one on its way to a follower went with each new one, a cluster that writes faster
        than the follower reads would never get it back.
        """
        self.by_index[manifest.index] = manifest
        old = [index for index in sorted(self.by_index)[:-2] if index not in on_offer]
        for index in old:
            del self.by_index[index]
        return old

    def drop(self, folder: str) -> None:
        """Remove one that has its final name and cannot be used; on the helper."""
        _remove(self.disk, folder)

    def removal(self, old: list[int]) -> Callable[[], None]:
        """Return the work of removing these, on the helper."""

        def work() -> None:
            for index in old:
                _remove(self.disk, folder_of(index))

        return work

    # Sending one.

    def read(self, snapshot: int, file: int, offset: int, size: int) -> bytes | None:
        """Return a piece of a file, or None if the snapshot is not here."""
        for manifest in self.by_index.values():
            if manifest.id == snapshot and file < len(manifest.files):
                path = f"{folder_of(manifest.index)}/{manifest.files[file].name}"
                return self.disk.read(path, offset, size)
        return None


def _publish(disk: Disk, folder: str, manifest: Manifest) -> None:
    path, final = f"{folder}/{MANIFEST}", folder_of(manifest.index)
    disk.write(path, 0, manifest.encode())
    disk.sync(path)
    disk.sync_folder(folder)
    # Only ever one that a crash left without anybody relying on it.
    _remove(disk, final)
    disk.rename(folder, final)
    disk.sync_folder(FOLDER)


def _remove(disk: Disk, folder: str) -> None:
    """Take the final name away first: a start relies on all that bears one, and a crash in the
    middle leaves some of the files."""
    if folder.removeprefix(f"{FOLDER}/") not in disk.list(FOLDER):
        return
    going = f"{FOLDER}/going"
    disk.remove(going)
    disk.rename(folder, going)
    disk.sync_folder(FOLDER)
    disk.remove(going)


def digest_of(disk: Disk, path: str) -> tuple[int, str]:
    """Return size and SHA-256 of a file."""
    digest, size = hashlib.sha256(), 0
    while block := disk.read(path, size, BLOCK):
        digest.update(block)
        size += len(block)
    return size, digest.hexdigest()


@dataclass
class Incoming:
    """A snapshot on its way in: what was asked for, what came, what is written."""

    manifest: Manifest
    snapshots: Snapshots
    settings: Settings
    source: str = ""
    busy: bool = False  # The helper writes; nothing may put another snapshot in its place.
    asked_at: float = 0.0
    asked: tuple[int, int] = (0, 0)  # The next file and offset to ask for.
    got: tuple[int, int] = (0, 0)  # The next file and offset to take.
    pieces: deque[tuple[int, int, bytes]] = field(default_factory=deque)
    early: dict[tuple[int, int], bytes] = field(default_factory=dict)
    _begun: bool = False

    FOLDER = f"{FOLDER}/incoming"

    def wanted(self) -> list[tuple[int, int, int]]:
        """Return what to ask for now: a few chunks ahead of what is written."""
        wanted = []
        size = self.settings.chunk_bytes
        room = self.settings.chunk_window - self._under_way()
        while room > 0 and self.asked[0] < len(self.manifest.files):
            file, offset = self.asked
            left = self.manifest.files[file].size - offset
            if left > 0:
                wanted.append((file, offset, min(size, left)))
                room -= 1
            self.asked = (file, offset + size) if left > size else (file + 1, 0)
        return wanted

    def _under_way(self) -> int:
        """Chunks asked for and not yet handed to the helper; empty files count for none."""
        file, offset = self.got
        count = len(self.pieces)
        size = self.settings.chunk_bytes
        while (file, offset) < self.asked and count <= self.settings.chunk_window:
            left = self.manifest.files[file].size - offset
            count += left > 0
            file, offset = (file, offset + size) if left > size else (file + 1, 0)
        return count

    def ask_again(self) -> None:
        self.asked = self.got
        self.early.clear()

    def take(self, chunk: Chunk) -> None:
        """Take what was asked for; chunks may come in another order, late or twice."""
        at = (chunk.file, chunk.offset)
        fits = len(chunk.data) <= self.settings.chunk_bytes
        if self.got <= at < self.asked and fits and len(self.early) < self.settings.chunk_window:
            self.early[at] = chunk.data
        self._skip_empty()
        while (data := self.early.pop(self.got, None)) is not None:
            file, offset = self.got
            left = self.manifest.files[file].size - offset
            size = min(self.settings.chunk_bytes, left)
            if len(data) != size:
                return  # Not what was asked for; it is asked for again.
            self.pieces.append((file, offset, data))
            self.got = (file, offset + size) if left > size else (file + 1, 0)
            self._skip_empty()

    def _skip_empty(self) -> None:
        files = self.manifest.files
        while self.got[0] < len(files) and not files[self.got[0]].size:
            self.got = (self.got[0] + 1, 0)

    @property
    def complete(self) -> bool:
        self._skip_empty()
        return self.got[0] >= len(self.manifest.files) and not self.pieces

    def work(self) -> Callable[[], None] | None:
        """Return the writing of what has come, for the helper."""
        if self.busy or not self.pieces:
            return None
        pieces, self.pieces = list(self.pieces), deque()
        return lambda: self._write(pieces)

    def _write(self, pieces: list[tuple[int, int, bytes]]) -> None:
        disk = self.snapshots.disk
        if not self._begun:
            self._begun = True
            disk.remove(self.FOLDER)
            disk.make_folder(self.FOLDER)
        for file, offset, data in pieces:
            path = f"{self.FOLDER}/{self.manifest.files[file].name}"
            disk.write(path, offset, data)
            if (offset // len(data)) % 32 == 31:
                disk.sync(path)  # A little at a time, instead of gigabytes at the end.

    def finish(self) -> str | None:
        """Verify, make durable, give the final name; on the helper.

        Return the folder, or None if what came is not what the manifest says.
        """
        disk = self.snapshots.disk
        if not self._begun:
            disk.remove(self.FOLDER)
            disk.make_folder(self.FOLDER)
        for file in self.manifest.files:
            path = f"{self.FOLDER}/{file.name}"
            if not file.size:
                disk.write(path, 0, b"")
            disk.sync(path)
            if digest_of(disk, path) != (file.size, file.sha256):
                return None
        _publish(disk, self.FOLDER, self.manifest)
        return folder_of(self.manifest.index)


ADVICE = "At its next start this node does without it, and fetches another from its peers."
