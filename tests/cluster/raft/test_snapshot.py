"""Snapshots on a real disk, which share what did not change."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from raftsched.cluster.raft.disk import RealDisk
from raftsched.cluster.raft.manifest import Manifest
from raftsched.cluster.raft.snapshot import Snapshots

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
    snapshots.removal(snapshots.add(manifest))()
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


class Killed(BaseException):
    """The process ends here."""


@pytest.mark.parametrize("left", range(0, 12, 2))
def test_a_node_that_dies_as_it_removes_an_old_snapshot_starts_with_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left: int
) -> None:
    disk = RealDisk(tmp_path)
    snapshots = Snapshots(disk)
    for name in "abcdefgh":
        (tmp_path / name).write_text(name)
    for index in (10, 20):
        made(snapshots, index, linking(tmp_path, *"abcdefgh"))
    _, files = snapshots.write(linking(tmp_path, *"abcdefgh"))()
    third = Manifest(30, 1, 1, MEMBERS, files)
    snapshots.publish(third)()
    ends = itertools.count()

    def mortal(what: Callable[..., None]) -> Callable[..., None]:
        def done(*how: object, **more: object) -> None:
            if next(ends) == left:
                raise Killed
            what(*how, **more)

        return done

    with monkeypatch.context() as dying:
        dying.setattr(os, "unlink", mortal(os.unlink))
        dying.setattr(os, "rmdir", mortal(os.rmdir))
        with contextlib.suppress(Killed):
            snapshots.removal(snapshots.add(third))()
    disk.close()

    again = RealDisk(tmp_path)
    kept = Snapshots(again)
    # Before the first step there are three; behind it, nothing of what goes bears its name.
    assert sorted(kept.by_index)[-2:] == [20, 30]
    assert len(again.list("snapshots")) == len(kept.by_index)
    for manifest in kept.by_index.values():
        kept.verify(manifest)
    again.close()
