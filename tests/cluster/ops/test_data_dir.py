"""A node's folder: who gets it, and what the others are told."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

import pytest

from raftsched.cluster.node.peer_info import FEATURE_LEVEL
from raftsched.cluster.node.removal import note_removal
from raftsched.cluster.ops.data_dir import FORMAT, Folder
from raftsched.cluster.ops.exits import NodeCannotStart, NodeExit


def refused(path: Path, cluster: str = "c", node: str = "n1") -> NodeCannotStart:
    with pytest.raises(NodeCannotStart) as caught:
        Folder(path, cluster, node)
    assert "\n" not in str(caught.value)
    return caught.value


def taken_before(path: Path) -> Path:
    Folder(path, "c", "n1").close()
    return path


def test_a_fresh_folder_is_made_and_says_whose_it_is(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "below"

    taken = Folder(path, "c", "n1")

    said = json.loads((path / "node.json").read_text())
    assert (said["format"], said["cluster"], said["node"]) == (FORMAT, "c", "n1")
    assert sorted(os.listdir(path)) == ["lock", "node.json"]
    assert path.stat().st_mode & 0o077 == 0
    taken.close()


def test_the_same_node_gets_its_folder_again(tmp_path: Path) -> None:
    path = taken_before(tmp_path / "n1")
    (path / "journal").mkdir()

    Folder(path, "c", "n1").close()

    assert sorted(os.listdir(path)) == ["journal", "lock", "node.json"]


@pytest.mark.parametrize("left", ["lock", "node.json.new", "probe", "lost+found"])
def test_what_a_crash_in_the_first_start_leaves_is_no_hindrance(tmp_path: Path, left: str) -> None:
    (tmp_path / left).touch()

    Folder(tmp_path, "c", "n1").close()

    assert (tmp_path / "node.json").exists()


def test_a_node_that_was_removed_says_so_at_each_start(tmp_path: Path) -> None:
    """Seen before: it asked the others for ever, which let it in no more."""
    path = taken_before(tmp_path / "n1")
    note_removal(path, "2026-11-19T10:00:00+00:00")
    for text in ("", "{", "[]"):
        taken = Folder(path, "c", "n1")
        with pytest.raises(NodeCannotStart) as caught:
            taken.check_not_removed()
        taken.close()
        assert caught.value.code == NodeExit.REMOVED
        for word in ("'c'", "'n1'", "empty its folder", "raftsched cluster add n1"):
            assert word in str(caught.value)
        (path / "removed.json").write_text(text)


def test_a_folder_with_other_things_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "treasure").touch()

    error = refused(tmp_path)

    assert error.code == NodeExit.FOLDER_FOREIGN
    assert "'treasure'" in str(error)
    assert os.listdir(tmp_path) == ["treasure"]


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    errors = refused(tmp_path / "file"), refused(tmp_path / "file" / "below")

    assert [error.code for error in errors] == [NodeExit.FOLDER_FOREIGN] * 2
    assert "is a file; name a folder" in str(errors[0])


def test_a_second_process_is_told_who_has_it(tmp_path: Path) -> None:
    taken = Folder(tmp_path, "c", "n1")

    error = refused(tmp_path)
    taken.close()

    assert error.code == NodeExit.FOLDER_LOCKED
    assert f"({os.getpid()})" in str(error)
    Folder(tmp_path, "c", "n1").close()


@pytest.mark.parametrize(
    ("cluster", "node", "code", "words"),
    [
        ("d", "n1", NodeExit.OTHER_CLUSTER, ["'c'", "'d'"]),
        ("c", "n2", NodeExit.OTHER_NODE, ["'n1'", "'n2'"]),
    ],
)
def test_a_folder_of_another_is_refused(
    tmp_path: Path, cluster: str, node: str, code: NodeExit, words: list[str]
) -> None:
    taken_before(tmp_path)

    error = refused(tmp_path, cluster, node)

    assert error.code == code
    assert all(word in str(error) for word in words)
    Folder(tmp_path, "c", "n1").close()


def test_a_newer_format_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    taken_before(tmp_path)
    said = {"format": FORMAT + 1, "cluster": "c", "node": "n1", "version": "9.9"}
    (tmp_path / "node.json").write_text(json.dumps(said))

    error = refused(tmp_path)

    assert error.code == NodeExit.NEWER_FORMAT
    assert "9.9" in str(error)
    assert json.loads((tmp_path / "node.json").read_text()) == said


def identity(folder: Path, **changed: object) -> dict[str, object]:
    path = folder / "node.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changed))
    return dict(json.loads(path.read_text()))


def test_a_version_one_level_newer_may_have_been_here_and_its_level_stays(tmp_path: Path) -> None:
    """A step of an upgrade can be taken back."""
    taken_before(tmp_path)
    said = identity(tmp_path, level=FEATURE_LEVEL + 1, version="9.9")

    Folder(tmp_path, "c", "n1").close()

    assert json.loads((tmp_path / "node.json").read_text()) == said


def test_a_version_two_levels_newer_was_here_and_this_one_is_refused(tmp_path: Path) -> None:
    taken_before(tmp_path)
    identity(tmp_path, level=FEATURE_LEVEL + 2, version="9.9")

    error = refused(tmp_path)

    assert error.code == NodeExit.NEWER_FORMAT
    assert f"level {FEATURE_LEVEL + 2}" in str(error)
    assert "9.9" in str(error)


@pytest.mark.parametrize("former", [{"level": FEATURE_LEVEL - 1}, {}])
def test_a_folder_of_an_older_version_gets_the_level_of_this_one(
    tmp_path: Path, former: dict[str, object]
) -> None:
    taken_before(tmp_path)
    said = {"format": 1, "cluster": "c", "node": "n1", "version": "0.0.1", **former}
    (tmp_path / "node.json").write_text(json.dumps(said))

    Folder(tmp_path, "c", "n1").close()

    assert json.loads((tmp_path / "node.json").read_text()) == said | {
        "level": FEATURE_LEVEL, "version": metadata.version("raftsched")
    }  # fmt: skip


@pytest.mark.parametrize("said", ["", "[]", "{}", '{"format": "x", "cluster": "c", "node": "n1"}'])
def test_an_identity_that_cannot_be_read_is_not_replaced(tmp_path: Path, said: str) -> None:
    (tmp_path / "node.json").write_text(said)

    error = refused(tmp_path)

    assert error.code == NodeExit.FOLDER_FOREIGN
    assert (tmp_path / "node.json").read_text() == said


def failing(code: int) -> Callable[..., None]:
    def fail(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    return fail


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errno.ENOSPC, NodeExit.DISK_FULL),
        (errno.EDQUOT, NodeExit.DISK_FULL),
        (errno.EROFS, NodeExit.FOLDER_UNWRITABLE),
        (errno.EIO, NodeExit.FOLDER_UNWRITABLE),
    ],
)
def test_a_disk_that_takes_nothing_is_met_at_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: int, code: NodeExit
) -> None:
    taken_before(tmp_path)
    monkeypatch.setattr(os, "posix_fallocate", failing(error))

    said = refused(tmp_path)
    monkeypatch.undo()

    assert said.code == code
    assert os.strerror(error) in str(said)
    Folder(tmp_path, "c", "n1").close()
