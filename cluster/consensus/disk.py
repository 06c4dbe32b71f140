"""The disk as consensus sees it: twelve calls on paths below one folder.

The simulator has another one, which loses what was not synced. Whatever consensus keeps goes
through here, so a crash is tried on the same code that runs in production.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import threading
from pathlib import Path
from typing import Protocol

from .faults import Refused

FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


class Disk(Protocol):
    """Paths are relative and use `/`. Errors are OSError; a failed sync is final."""

    def read(self, path: str, offset: int, size: int) -> bytes:
        """Return up to `size` bytes; fewer at the end of the file."""

    def write(self, path: str, offset: int, data: bytes) -> None:
        """Write all of `data`, creating the file; durable only after `sync`."""

    def allocate(self, path: str, size: int) -> None:
        """Create the file if need be and reserve `size` bytes, or raise ENOSPC."""

    def size(self, path: str) -> int: ...

    def sync(self, path: str) -> None: ...

    def sync_folder(self, path: str) -> None:
        """Make creations, renames and removals in the folder durable."""

    def rename(self, old: str, new: str) -> None: ...

    def remove(self, path: str) -> None:
        """Remove a file, or a folder with all that is in it; a missing one is fine."""

    def list(self, path: str) -> list[str]:
        """Return the names in the folder, sorted; none if there is no such folder."""

    def is_one(self, path: str, other: str) -> bool:
        """Tell whether both names are there and lead to one file."""

    def make_folder(self, path: str) -> None:
        """Create a folder, durably: what is synced in it later must be found."""

    def lock(self, path: str) -> None:
        """Take the folder for this process, or raise Refused."""


class RealDisk:
    """A folder of the operating system. The loop reads and one helper thread writes."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._open: dict[str, int] = {}
        self._mutex = threading.Lock()
        self._lock_fd = -1
        self.make_folder("")

    def read(self, path: str, offset: int, size: int) -> bytes:
        return os.pread(self._fd(path), size, offset)

    def write(self, path: str, offset: int, data: bytes) -> None:
        view = memoryview(data)
        fd = self._fd(path)
        while view:
            written = os.pwrite(fd, view, offset)
            view, offset = view[written:], offset + written

    def allocate(self, path: str, size: int) -> None:
        os.posix_fallocate(self._fd(path), 0, size)

    def size(self, path: str) -> int:
        return os.fstat(self._fd(path)).st_size

    def sync(self, path: str) -> None:
        os.fdatasync(self._fd(path))

    def sync_folder(self, path: str) -> None:
        sync_entries(self.root / path)

    def rename(self, old: str, new: str) -> None:
        self._forget(old)
        self._forget(new)
        os.rename(self.root / old, self.root / new)

    def remove(self, path: str) -> None:
        self._forget(path)
        target = self.root / path
        if target.is_dir():
            shutil.rmtree(target)
        else:
            target.unlink(missing_ok=True)

    def list(self, path: str) -> list[str]:
        folder = self.root / path
        return sorted(os.listdir(folder)) if folder.is_dir() else []

    def is_one(self, path: str, other: str) -> bool:
        try:
            return os.path.samefile(self.root / path, self.root / other)
        except FileNotFoundError:
            return False

    def make_folder(self, path: str) -> None:
        folder = self.root / path
        missing = [f for f in (folder, *folder.parents) if not f.exists()]
        folder.mkdir(parents=True, exist_ok=True)
        for new in missing:
            sync_entries(new.parent)

    def lock(self, path: str) -> None:
        fd = os.open(self.root / path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            raise Refused(
                f"{self.root} is in use by another process; two nodes cannot share a folder. "
                "Stop the other one, or name another folder."
            ) from None
        self._lock_fd = fd

    def close(self) -> None:
        """Give back every descriptor, and with them the lock."""
        with self._mutex:
            for fd in self._open.values():
                os.close(fd)
            self._open.clear()
        if self._lock_fd >= 0:
            os.close(self._lock_fd)
            self._lock_fd = -1

    def _fd(self, path: str) -> int:
        with self._mutex:
            fd = self._open.get(path)
            if fd is None:
                flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
                fd = self._open[path] = os.open(self.root / path, flags, 0o600)
            return fd

    def _forget(self, path: str) -> None:
        """Close what is open at or below `path`."""
        with self._mutex:
            below = path + "/"
            for name in [n for n in self._open if n == path or n.startswith(below)]:
                os.close(self._open.pop(name))


def sync_entries(folder: Path) -> None:
    """Make the names in a folder durable."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
