"""Snapshots on a real disk, which share what did not change."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from raftsched.cluster.consensus.disk import RealDisk
from raftsched.cluster.consensus.snapshot import Manifest, Snapshots

MEMBERS = [(1, '{"n1":[1,"n1:1",true]}')]


class Counting(RealDisk):
    """A disk that knows what was read."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.seen: set[str] = set()

    def read(self, path: str, offset: int, size: int) -> bytes:
        self.seen.add(path.rsplit("/", 1)[-1])
        return super().read(path, offset, size)


def linking(root: Path, *tables: str) -> Callable[[str], int]:
    """A checkpoint as the state makes it: links to its own files, and one that is new."""

    def checkpoint(folder: str) -> int:
        for name in tables:
            os.link(root / name, root / folder / name)
        (root / folder / "list").write_text(" ".join(tables))
        return 1

    return checkpoint


def made(snapshots: Snapshots, index: int, checkpoint: Callable[[str], int]) -> Manifest:
    _, files = snapshots.write(checkpoint)()
    manifest = Manifest(index, 1, 1, MEMBERS, files)
    snapshots.publish(manifest)()
    snapshots.add(manifest)
    return manifest


def test_only_what_is_new_in_a_snapshot_is_read(tmp_path: Path) -> None:
    disk = Counting(tmp_path)
    snapshots = Snapshots(disk)
    for name in ("a", "b", "c"):
        (tmp_path / name).write_text(name * 1000)
    made(snapshots, 10, linking(tmp_path, "a", "b"))
    disk.seen.clear()

    second = made(snapshots, 20, linking(tmp_path, "a", "b", "c"))

    assert disk.seen == {"c", "list"}
    assert [file.name for file in second.files] == ["a", "b", "c", "list"]
    snapshots.verify(second)
    disk.close()


def test_another_file_of_the_same_name_and_length_is_read(tmp_path: Path) -> None:
    """A state that was fetched has tables under the names that another node gave them."""
    disk = Counting(tmp_path)
    snapshots = Snapshots(disk)
    (tmp_path / "a").write_text("a" * 1000)
    first = made(snapshots, 10, linking(tmp_path, "a"))
    (tmp_path / "a").unlink()
    (tmp_path / "a").write_text("b" * 1000)

    second = made(snapshots, 20, linking(tmp_path, "a"))

    assert first.files[0].sha256 != second.files[0].sha256
    snapshots.verify(second)
    disk.close()
