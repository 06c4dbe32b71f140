"""The disk of the operating system, behind the twelve calls that consensus makes (`port.Disk`).

The simulator has another one, which loses what was not synced. Whatever consensus keeps goes
through here, so a crash is tried on the same code that runs in production.
"""

from __future__ import annotations

import errno
import fcntl
import os
import resource
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .faults import CallRefused

FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
# The process, or the system, has no descriptor for one more file.
NO_FILES = frozenset({errno.EMFILE, errno.ENFILE})
# Nothing was done, nothing is lost, and the same may be tried again.
LACKS = FULL | NO_FILES
# The name, or the folder of it, is not there any more.
GONE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ESTALE})
# Files that are kept open: a snapshot has thousands, and descriptors are few.
OPEN_MAX = 32
# Descriptors that are kept back for the journal, whoever has taken all others.
SPARES = 4
# A segment is begun only if one more would fit behind it: what is in memory of the state, and the
# snapshot that would free old segments, want room just when the journal wants it. A fresh folder is
# asked for four, of which its first start takes three.
RESERVED_SEGMENTS = 1


def file_limit() -> str:
    """Why no file may grow any more, for people."""
    most, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    limit = "none now" if most == resource.RLIM_INFINITY else f"{most} bytes"
    return (
        f"a file would grow over the limit on file sizes of this process (RLIMIT_FSIZE, {limit}); "
        "raise it (ulimit -f unlimited, LimitFSIZE=infinity) and start again: nothing that was "
        "acknowledged is lost"
    )


class RealDisk:
    """A folder of the operating system. The loop reads and one helper thread writes."""

    def __init__(self, root: Path) -> None:
        self.root = root
        # Path -> descriptor, the one that was used last at the end.
        self._open: dict[str, int] = {}
        # Descriptor -> how many threads are using it.
        self._used: dict[int, int] = {}
        self._spares: list[int] = []
        self._mutex = threading.Lock()
        self._lock_fd, self._lock_path = -1, ""
        self.make_folder("")

    def read(self, path: str, offset: int, size: int) -> bytes:
        with self._file(path) as fd:
            return os.pread(fd, size, offset)

    def write(self, path: str, offset: int, data: bytes) -> None:
        view = memoryview(data)
        with self._file(path) as fd:
            while view:
                written = os.pwrite(fd, view, offset)
                view, offset = view[written:], offset + written

    def allocate(self, path: str, size: int) -> None:
        with self._file(path) as fd:
            if os.fstat(fd).st_size < size:
                there = os.fstatvfs(fd)
                free, wanted = there.f_bavail * there.f_frsize, (1 + RESERVED_SEGMENTS) * size
                if free < wanted:
                    story = f"{free >> 20} MB are left, and {wanted >> 20} MB are wanted"
                    raise OSError(errno.ENOSPC, f"{os.strerror(errno.ENOSPC)}: {story}")
            os.posix_fallocate(fd, 0, size)

    def size(self, path: str) -> int:
        with self._file(path) as fd:
            return os.fstat(fd).st_size

    def sync(self, path: str) -> None:
        with self._file(path) as fd:
            os.fdatasync(fd)

    def sync_folder(self, path: str) -> None:
        with self._mutex:
            fd = self._opened(self.root / path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

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
            raise CallRefused(
                f"{self.root} is in use by another process; two nodes cannot share a folder. "
                "Stop the other one, or name another folder."
            ) from None
        self._lock_fd, self._lock_path = fd, path

    def holds_its_lock(self) -> bool:
        """Return whether the folder is still the one that was locked: it is not removed, and no
        other one has taken its place."""
        return self._lock_fd < 0 or self._is_there(self._lock_path, os.fstat(self._lock_fd))

    def holds(self, path: str) -> bool:
        """Return whether a name still leads to the file that is open; true if none is."""
        with self._mutex:
            fd = self._open.get(path, -1)
            opened = os.fstat(fd) if fd >= 0 else None
        return opened is None or self._is_there(path, opened)

    def _is_there(self, path: str, opened: os.stat_result) -> bool:
        try:
            return os.path.samestat(os.stat(self.root / path), opened)
        except OSError as error:
            # Where it cannot be looked, nothing is known: the next write shows it.
            return error.errno not in GONE

    def close(self) -> None:
        """Give back every descriptor, and with them the lock."""
        with self._mutex:
            for fd in (*self._open.values(), *self._spares):
                os.close(fd)
            self._open.clear()
            self._spares.clear()
        if self._lock_fd >= 0:
            os.close(self._lock_fd)
            self._lock_fd = -1

    @contextmanager
    def _file(self, path: str) -> Iterator[int]:
        """The descriptor of a file; meanwhile nobody closes it to open another."""
        with self._mutex:
            fd = self._open.pop(path, -1)
            if fd < 0:
                self._make_room()
                fd = self._opened(self.root / path, os.O_RDWR | os.O_CREAT)
            self._open[path] = fd
            self._used[fd] = self._used.get(fd, 0) + 1
        try:
            yield fd
        finally:
            with self._mutex:
                self._used[fd] -= 1
                if not self._used[fd]:
                    del self._used[fd]

    def _make_room(self) -> None:
        """Close the file that was not used for longest, if there are many."""
        idle = [name for name, fd in self._open.items() if fd not in self._used]
        if len(self._open) >= OPEN_MAX and idle:
            os.close(self._open.pop(idle[0]))

    def _opened(self, path: Path, flags: int) -> int:
        """Open a file; where others have taken every descriptor, with one that was kept back."""
        flags |= os.O_CLOEXEC
        while True:
            try:
                fd = os.open(path, flags, 0o600)
            except OSError as error:
                if error.errno not in NO_FILES or not self._spares:
                    raise
                os.close(self._spares.pop())
            else:
                self._keep_spares()
                return fd

    def _keep_spares(self) -> None:
        """Take descriptors into reserve while there are any."""
        while len(self._spares) < SPARES:
            try:
                self._spares.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
            except OSError as error:
                if error.errno not in NO_FILES:
                    raise
                return

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
