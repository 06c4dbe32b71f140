"""A disk that keeps what was synced, and of the rest whatever chance leaves.

Each file has what a reader sees and what the platter holds. A write changes the first; a sync
copies it to the second, sector by sector. When the power goes, any subset of the sectors that
were not synced has reached the platter, and any beginning of the changes to a folder.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Callable

SECTOR = 512


class File:
    """One file: `seen` by readers, `kept` on the platter, `dirty` where they may differ."""

    __slots__ = ("dirty", "kept", "seen")

    def __init__(self) -> None:
        self.seen = bytearray()
        self.kept = bytearray()
        self.dirty: set[int] = set()

    def write(self, offset: int, data: bytes) -> None:
        end = offset + len(data)
        if len(self.seen) < end:
            self.seen.extend(bytes(end - len(self.seen)))
        self.seen[offset:end] = data
        self.dirty.update(range(offset // SECTOR, (end + SECTOR - 1) // SECTOR))

    def keep(self, sectors: set[int]) -> None:
        """Let sectors reach the platter."""
        for sector in sorted(sectors):
            start, end = sector * SECTOR, min((sector + 1) * SECTOR, len(self.seen))
            if len(self.kept) < end:
                self.kept.extend(bytes(end - len(self.kept)))
            self.kept[start:end] = self.seen[start:end]

    def sync(self) -> None:
        self.keep(self.dirty)
        if len(self.kept) < len(self.seen):
            self.kept.extend(bytes(len(self.seen) - len(self.kept)))
        self.dirty.clear()


Change = tuple[str, str, str, File | None]  # What, old name, new name, the file if created.


class SimDisk:
    """See the head of this file. Implements the disk port of consensus."""

    def __init__(self, trace: Callable[[str], None] | None = None) -> None:
        self.files: dict[str, File] = {}
        self.kept: dict[str, File] = {}  # The names as the platter has them.
        self.folders: list[Change] = []  # Changes to names, not yet durable.
        self.full = False
        self.sync_error = False
        self.trace = trace

    # The port.

    def read(self, path: str, offset: int, size: int) -> bytes:
        file = self.files.get(path)
        return bytes(file.seen[offset : offset + size]) if file else b""

    def size(self, path: str) -> int:
        file = self.files.get(path)
        return len(file.seen) if file else 0

    def write(self, path: str, offset: int, data: bytes) -> None:
        self._note(f"write {path} {offset} {len(data)}")
        file = self._create(path)
        if self.full and offset + len(data) > len(file.seen):
            raise OSError(errno.ENOSPC, "simulated: no space left", path)
        file.write(offset, data)

    def allocate(self, path: str, size: int) -> None:
        self._note(f"allocate {path} {size}")
        file = self._create(path)
        if len(file.seen) < size:
            if self.full:
                raise OSError(errno.ENOSPC, "simulated: no space left", path)
            file.seen.extend(bytes(size - len(file.seen)))

    def sync(self, path: str) -> None:
        self._note(f"sync {path}")
        file = self._create(path)
        if self.sync_error:
            # As Linux does it: the error is reported once and the pages count as clean.
            file.dirty.clear()
            raise OSError(errno.EIO, "simulated: input/output error", path)
        file.sync()

    def sync_folder(self, path: str) -> None:
        self._note(f"sync_folder {path}")
        if self.sync_error:
            raise OSError(errno.EIO, "simulated: input/output error", path)
        # With what happened to the folder itself: it came before what is in it now.
        mine = [c for c in self.folders if path in (c[1], c[2], parent(c[1]), parent(c[2]))]
        self.folders = [c for c in self.folders if c not in mine]
        for change in mine:
            self._carry_out(self.kept, change)

    def rename(self, old: str, new: str) -> None:
        self._change(("rename", old, new, None))

    def remove(self, path: str) -> None:
        if path in self.files or any(n.startswith(path + "/") for n in self.files):
            self._change(("remove", path, "", None))

    def list(self, path: str) -> list[str]:
        prefix = path + "/"
        return sorted({n[len(prefix) :].split("/")[0] for n in self.files if n.startswith(prefix)})

    def is_one(self, path: str, other: str) -> bool:
        return path in self.files and self.files.get(other) is self.files[path]

    def make_folder(self, path: str) -> None:
        """Folders are there when something is in them."""

    def lock(self, path: str) -> None:
        """One process per disk, by construction."""

    # What happens to it.

    def crash(self, dice: random.Random) -> None:
        """Cut the power."""
        style = dice.choice(("none", "all", "some", "some", "some"))
        for _, file in sorted(self.files.items()):
            if style != "none":
                chosen = {s for s in sorted(file.dirty) if style == "all" or dice.random() < 0.5}
                file.keep(chosen)
        reached = {"none": 0, "all": len(self.folders)}.get(
            style, dice.randint(0, len(self.folders))
        )
        for change in self.folders[:reached]:
            self._carry_out(self.kept, change)
        self.restart_from_kept()

    def restart_from_kept(self) -> None:
        self.folders = []
        self.files = dict(self.kept)
        for file in self.files.values():
            file.seen = bytearray(file.kept)
            file.dirty = set()
        self.sync_error = False

    def image(self) -> SimDisk:
        """Return a disk that holds what would surely be left if the power went now."""
        other = SimDisk()
        for name, file in self.kept.items():
            copy = File()
            copy.kept, copy.seen = bytearray(file.kept), bytearray(file.kept)
            other.kept[name] = other.files[name] = copy
        return other

    def flip(self, path: str, offset: int, bit: int) -> None:
        """Turn one bit, for readers and on the platter."""
        file = self.files[path]
        for content in (file.seen, file.kept):
            if offset < len(content):
                content[offset] ^= 1 << bit

    # Names.

    def _create(self, path: str) -> File:
        file = self.files.get(path)
        if file is None:
            file = self.files[path] = File()
            self.folders.append(("create", path, "", file))
        return file

    def _change(self, change: Change) -> None:
        self._note(" ".join(change[:3]).strip())
        self.folders.append(change)
        self._carry_out(self.files, change)

    def _carry_out(self, names: dict[str, File], change: Change) -> None:
        what, old, new, file = change
        if file is not None:
            names[old] = file
            return
        for name in [n for n in names if n == old or n.startswith(old + "/")]:
            found = names.pop(name)
            if what == "rename":
                names[new + name[len(old) :]] = found

    def _note(self, what: str) -> None:
        if self.trace is not None:
            self.trace(what)


def parent(path: str) -> str:
    return path.rsplit("/", 1)[0] if "/" in path else ""
