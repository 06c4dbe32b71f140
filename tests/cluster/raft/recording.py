"""Disks that remember what was done to them, so that a crash can be tried at each point."""

from __future__ import annotations

import random
from collections.abc import Iterator

from raftsched.chaos.sim.disk import SimDisk

Step = tuple[str, tuple[object, ...]]


class RecordingDisk(SimDisk):
    """Keeps every change, so that any beginning of them can be done again."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[Step] = []

    def write(self, path: str, offset: int, data: bytes) -> None:
        self.steps.append(("write", (path, offset, data)))
        super().write(path, offset, data)

    def allocate(self, path: str, size: int) -> None:
        self.steps.append(("allocate", (path, size)))
        super().allocate(path, size)

    def sync(self, path: str) -> None:
        self.steps.append(("sync", (path,)))
        super().sync(path)

    def sync_folder(self, path: str) -> None:
        self.steps.append(("sync_folder", (path,)))
        super().sync_folder(path)

    def rename(self, old: str, new: str) -> None:
        self.steps.append(("rename", (old, new)))
        super().rename(old, new)

    def remove(self, path: str) -> None:
        self.steps.append(("remove", (path,)))
        super().remove(path)


class FailingDisk(RecordingDisk):
    """Says no to one sync, after which its pages count as clean, as on Linux."""

    def __init__(self, fails: int) -> None:
        super().__init__()
        self.left = fails

    def _count(self) -> None:
        self.left -= 1
        self.sync_error = self.left == 0

    def sync(self, path: str) -> None:
        self._count()
        super().sync(path)

    def sync_folder(self, path: str) -> None:
        self._count()
        super().sync_folder(path)


def redone(steps: list[Step]) -> SimDisk:
    disk = SimDisk()
    for name, arguments in steps:
        getattr(disk, name)(*arguments)
    return disk


def images(steps: list[Step], dice: random.Random) -> Iterator[SimDisk]:
    """What may be left: nothing unsynced, all of it, all but one sector, and some of it."""
    yield redone(steps).image()
    disk = redone(steps)
    dirty = [(n, s) for n, f in sorted(disk.files.items()) for s in sorted(f.dirty)]
    for missing in [None, *dirty]:
        disk = redone(steps)
        for name, file in disk.files.items():
            file.keep({s for n, s in dirty if n == name and (n, s) != missing})
            disk.kept[name] = file
        disk.restart_from_kept()
        yield disk
    for _ in range(6):
        disk = redone(steps)
        disk.crash(dice)
        yield disk
