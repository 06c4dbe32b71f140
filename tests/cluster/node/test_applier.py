"""The state's folder: a checkpoint is whole, a restore leaves one state or the other."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from raftsched.cluster.node.applier import Replica
from raftsched.cluster.raft.faults import DiskFull
from raftsched.proto.v1 import job_pb2
from raftsched.statemachine import machine
from raftsched.statemachine.core.store import Store
from raftsched.statemachine.machine import Decision, Request, decide
from raftsched.statemachine.model import keys
from raftsched.statemachine.model.view import View

CACHE = 1 << 20


def replica(folder: Path, root: Path) -> Replica:
    return Replica(folder, root, cache_bytes=CACHE)


def change(store: Store, name: str) -> bytes:
    return decision(store, name).change


def decision(store: Store, name: str) -> Decision:
    request = job_pb2.CreateJobRequest(job=job_pb2.Job(name=name))
    request.job.spec.action.handler = "build"
    return decide(View(store, 1_000), [Request(request)])


def image(replica: Replica) -> dict[bytes, bytes]:
    return dict(replica.store.scan(b"\0", b"\xff" * 64))


def checkpoint(replica: Replica, root: Path, name: str) -> int:
    """As the helper of consensus does it: an empty folder first."""
    (root / name).mkdir(parents=True)
    return replica.checkpoint()(name)


def test_a_checkpoint_holds_the_state_and_says_up_to_where(tmp_path: Path) -> None:
    one = replica(tmp_path / "one", tmp_path)
    one.apply(7, change(one.store, "a"))
    work = one.checkpoint()
    one.apply(8, change(one.store, "b"))
    (tmp_path / "snapshot").mkdir()

    # It is made later than it was asked for, so it may hold more, and says so.
    assert work("snapshot") == 8
    assert all(path.is_file() for path in (tmp_path / "snapshot").iterdir())

    other = replica(tmp_path / "two", tmp_path)
    other.restore("snapshot")
    assert other.applied() == 8
    assert image(other) == image(one)
    other.apply(9, change(other.store, "c"))
    one.apply(9, change(one.store, "c"))
    assert other.meta.fingerprint == one.meta.fingerprint
    one.close()
    other.close()


def test_the_snapshot_is_not_changed_by_who_restored_it(tmp_path: Path) -> None:
    one = replica(tmp_path / "one", tmp_path)
    one.apply(1, change(one.store, "a"))
    checkpoint(one, tmp_path, "snapshot")
    before = {path.name: path.read_bytes() for path in (tmp_path / "snapshot").iterdir()}

    other = replica(tmp_path / "two", tmp_path)
    other.restore("snapshot")
    for index in range(2, 50):
        other.apply(index, change(other.store, f"job-{index}"))
    other.store.flush()
    other.close()
    one.close()

    after = {path.name: path.read_bytes() for path in (tmp_path / "snapshot").iterdir()}
    assert after == before


def test_a_restart_goes_on_with_the_restored_state(tmp_path: Path) -> None:
    one = replica(tmp_path / "one", tmp_path)
    one.apply(1, change(one.store, "a"))
    checkpoint(one, tmp_path, "snapshot")
    one.close()
    other = replica(tmp_path / "two", tmp_path)
    other.apply(1, change(other.store, "z"))
    other.restore("snapshot")
    wanted = image(other)
    other.close()

    again = replica(tmp_path / "two", tmp_path)

    assert image(again) == wanted
    assert [path.name for path in (tmp_path / "two").iterdir()] == ["state-2"]
    again.close()


def test_a_crash_before_the_new_state_has_its_name_leaves_the_old_one(tmp_path: Path) -> None:
    one = replica(tmp_path / "one", tmp_path)
    one.apply(1, change(one.store, "a"))
    one.store.flush()
    wanted = image(one)
    one.close()
    (tmp_path / "one" / "building").mkdir()
    (tmp_path / "one" / "building" / "CURRENT").write_text("half")

    again = replica(tmp_path / "one", tmp_path)

    assert image(again) == wanted
    assert not (tmp_path / "one" / "building").exists()
    again.close()


def test_reads_that_are_under_way_survive_a_restore(tmp_path: Path) -> None:
    one = replica(tmp_path / "one", tmp_path)
    one.apply(1, change(one.store, "a"))
    checkpoint(one, tmp_path, "snapshot")
    old, snapshot = one.store, one.store.snapshot()
    wanted = image(one)

    one.restore("snapshot")

    assert dict(snapshot.scan(b"\0", b"\xff" * 64)) == wanted
    assert old.get(b"M") is not None
    one.apply(2, change(one.store, "b"))
    assert dict(snapshot.scan(b"\0", b"\xff" * 64)) == wanted
    del snapshot
    one.close()


def test_what_was_decided_on_another_state_is_passed_over(tmp_path: Path) -> None:
    one = replica(tmp_path / "one", tmp_path)
    heard: list[int] = []
    one.on_change(lambda index, data, meta: heard.append(index))
    first, second = change(one.store, "a"), change(one.store, "b")

    one.apply(1, first)
    one.apply(2, second)

    assert (one.applied(), one.changed_at, one.meta.revision) == (2, 1, 1)
    assert heard == [1]
    one.close()


@pytest.mark.parametrize("prepare", [True, False])
def test_what_was_decided_here_is_written_without_being_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prepare: bool
) -> None:
    one, other = replica(tmp_path / "one", tmp_path), replica(tmp_path / "other", tmp_path)
    decided = decision(one.store, "a")
    other.apply(3, decided.change)

    with monkeypatch.context() as patch:
        patch.delattr(machine, "parse_change")
        one.expect(decided.change, decided.sealed)
        if prepare:
            one.prepare()
            one.prepare()
        assert one.store.get(keys.META) is None
        one.apply(3, decided.change)

    assert image(one) == image(other)
    assert one.meta == other.meta
    one.close()
    other.close()


def test_what_comes_instead_of_what_was_expected_is_read(tmp_path: Path) -> None:
    one = replica(tmp_path / "one", tmp_path)
    mine, came = decision(one.store, "mine"), decision(one.store, "came")
    one.expect(mine.change, mine.sealed)
    one.prepare()

    one.apply(1, came.change)
    one.apply(2, mine.change)

    assert (one.changed_at, one.meta.revision, one.applied()) == (1, 1, 2)
    assert one.store.get(keys.job_name(0, "came")) is not None
    assert one.store.get(keys.job_name(0, "mine")) is None
    one.close()


def test_what_was_prepared_on_a_state_that_is_gone_is_not_written(tmp_path: Path) -> None:
    one = replica(tmp_path / "one", tmp_path)
    one.apply(1, change(one.store, "a"))
    checkpoint(one, tmp_path, "snapshot")
    mine = decision(one.store, "mine")
    one.expect(mine.change, mine.sealed)
    one.prepare()

    one.restore("snapshot")
    one.apply(2, mine.change)

    assert one.store.get(keys.job_name(0, "mine")) is not None
    assert one.meta.revision == 2
    one.close()


def test_a_restore_without_space_says_so_and_can_be_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = replica(tmp_path / "one", tmp_path)
    one.apply(7, change(one.store, "a"))
    checkpoint(one, tmp_path, "snapshot")
    other = replica(tmp_path / "two", tmp_path)

    def full(*how: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as short:
        short.setattr("raftsched.cluster.node.applier.shutil.copyfile", full)
        with pytest.raises(OSError, match="No space") as told:
            other.restore("snapshot")
    other.restore("snapshot")

    assert told.value.errno == errno.ENOSPC
    assert image(other) == image(one)


@pytest.mark.parametrize("expected", [True, False])
def test_a_change_without_space_is_taken_whole_when_there_is_some(
    tmp_path: Path, expected: bool
) -> None:
    one, other = replica(tmp_path / "one", tmp_path), replica(tmp_path / "two", tmp_path)
    heard: list[int] = []
    one.on_change(lambda index, data, meta: heard.append(index))
    first = decision(one.store, "a")
    if expected:
        one.expect(first.change, first.sealed)
        one.prepare()
    writer = one.store._db  # type: ignore[attr-defined]

    class Full:
        """The engine after a flush that found no room."""

        def __getattr__(self, name: str) -> object:
            return getattr(writer, name)

        def write(self, *what: object) -> None:
            raise Exception("IO error: No space left on device: While appending to file: 9.sst")

    one.store._db = Full()  # type: ignore[attr-defined]
    for _ in range(2):
        with pytest.raises(DiskFull, match="No space"):
            one.apply(1, first.change)
    assert (one.applied(), heard) == (0, [])

    one.store._db = writer  # type: ignore[attr-defined]
    one.apply(1, first.change)
    second = change(one.store, "b")
    one.apply(2, second)
    other.apply(1, first.change)
    other.apply(2, second)
    assert heard == [1, 2]
    assert image(one) == image(other)
    one.close()
    other.close()


def test_a_checkpoint_without_space_says_so_and_can_be_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = replica(tmp_path / "one", tmp_path)
    one.apply(7, change(one.store, "a"))
    (tmp_path / "snapshot").mkdir()

    def full(database: object) -> None:
        raise Exception("IO error: No space left on device: While appending to file")

    with monkeypatch.context() as short:
        short.setattr("raftsched.statemachine.core.rocks_store.rocksdict.Checkpoint", full)
        with pytest.raises(OSError, match="No space") as told:
            one.checkpoint()("snapshot")

    assert told.value.errno == errno.ENOSPC
    assert one.checkpoint()("snapshot") == 7
