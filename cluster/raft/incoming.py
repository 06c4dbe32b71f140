"""A snapshot on its way in: what was asked for, what came, what is written."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from .manifest import FOLDER, Manifest, folder_of
from .message import Chunk
from .port import RaftSettings
from .snapshot import Snapshots, digest_of, publish


@dataclass
class Incoming:
    """See the head of this file."""

    manifest: Manifest
    snapshots: Snapshots
    settings: RaftSettings
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
        publish(disk, self.FOLDER, self.manifest)
        return folder_of(self.manifest.index)
