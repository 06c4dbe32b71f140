"""Snapshots on disk: folders of files, each with a manifest that names every byte.

A folder counts from the moment it has its final name, and it gets that name when its files and
its manifest are durable. Everything else in `snapshots/` is left over from a crash and removed.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Set

from .faults import Damaged
from .manifest import FOLDER, MANIFEST, FileOf, Manifest, folder_of
from .port import Disk

logger = logging.getLogger(__name__)

DAMAGED = f"{FOLDER}/damaged"  # The last one that was not what was written, for whoever asks why.
BLOCK = 1 << 20
ADVICE = "At its next start this node does without it, and fetches another from its peers."


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
            try:
                index = checkpoint(folder)
                return index, [described(name) for name in disk.list(folder)]
            except OSError:
                disk.remove(folder)  # Without room for all of it, a part takes room for nothing.
                raise

        return work

    def publish(self, manifest: Manifest) -> Callable[[], None]:
        return lambda: publish(self.disk, f"{FOLDER}/making", manifest)

    def add(self, manifest: Manifest, on_offer: Set[int] = frozenset()) -> list[int]:
        """Take note of a snapshot that has its final name; return old ones nobody fetches, which
        are to be removed."""
        self.by_index[manifest.index] = manifest
        return self.forget_old(2, on_offer)

    def forget_old(self, keep: int, on_offer: Set[int]) -> list[int]:
        """Return what is to be removed: all but the newest ones and those that somebody fetches.

        If the one on its way to a follower went with each new one, a cluster that writes faster
        than the follower reads would never get it back.
        """
        old = [index for index in sorted(self.by_index)[:-keep] if index not in on_offer]
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


def publish(disk: Disk, folder: str, manifest: Manifest) -> None:
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
