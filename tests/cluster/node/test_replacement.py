"""A backup takes the place of the state of a node that runs: whole or not at all, and the same
everywhere."""

from __future__ import annotations

import errno
import re
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from raftsched.cluster.node import backup, replacement
from raftsched.cluster.node.applier import REPLACING, Replica
from raftsched.cluster.node.event_feed import EventFeed
from raftsched.cluster.node.replacement import CannotRestore, Preparing
from raftsched.cluster.raft.faults import Damaged, DiskFull
from raftsched.cluster.raft.journal import COMMAND, SWITCH, Entry
from raftsched.statemachine.calls import staging
from raftsched.statemachine.core.rejection import Refused
from raftsched.statemachine.core.store import Corrupt
from raftsched.statemachine.machine import Request, decide
from raftsched.statemachine.model import keys
from raftsched.statemachine.model.record import StagedRecord
from raftsched.statemachine.model.request import SealStage, StagePiece
from raftsched.statemachine.model.view import View
from raftsched.statemachine.selfcheck import verify

from .test_applier import change, checkpoint, image, replica

ABOUT: dict[str, object] = {
    "cluster": "c", "node": "n1", "term": 3, "feature_level": 4, "version": "1",
    "time": "2026-11-20T00:00:00Z",
}  # fmt: skip


class Logged:
    """A state, and the entries that made it."""

    def __init__(self, one: Replica) -> None:
        self.one, self.log = one, list[Entry]()

    def add(self, data: bytes, kind: int = COMMAND) -> None:
        self.log.append(Entry(len(self.log) + 1, 1, kind, data))
        self.one.apply(len(self.log), data)

    def ask(self, body: object) -> object:
        decision = decide(View(self.one.store, 2_000), [Request(body, "ann")])
        self.add(decision.change)
        return decision.replies[0]

    def stage(self, archive: bytes) -> StagedRecord:
        size = len(archive)
        for at in range(0, size, staging.PIECE_BYTES):
            piece = archive[at : at + staging.PIECE_BYTES]
            self.ask(StagePiece("one", size, at, piece))
        staged = self.ask(SealStage("one", "origin"))
        assert isinstance(staged, StagedRecord)
        return staged

    def order(self, staged: StagedRecord, folder: Path) -> bytes:
        made = replacement.make(self.one.store, staged, folder)
        return replacement.order(self.one.meta, staged, made)


def archive(folder: Path, *names: str, about: dict[str, object] = ABOUT) -> bytes:
    one = replica(folder / "of", folder)
    for index, name in enumerate(names, 1):
        one.apply(index, change(one.store, name))
    made = backup.take(one, folder / "checkpoints" / "1", about)
    data = b"".join(made.pieces())
    made.remove()
    one.close()
    return data


def jobs(one: Replica) -> set[bytes]:
    return {key[5:] for key, _ in one.store.scan(keys.NAME, keys.after(keys.NAME))}


def begun(tmp_path: Path) -> tuple[Logged, StagedRecord, bytes]:
    """A state with a job, and a backup with two others that is ready to take its place."""
    logged = Logged(replica(tmp_path / "one", tmp_path))
    logged.add(change(logged.one.store, "present"))
    staged = logged.stage(archive(tmp_path / "backup", "a", "b"))
    return logged, staged, logged.order(staged, tmp_path / "leader")


def test_the_same_state_is_everywhere_however_it_came_about(tmp_path: Path) -> None:
    logged, staged, order = begun(tmp_path)
    one = logged.one
    before = one.meta
    ready = replacement.make(one.store, staged, one.folder / REPLACING)
    one.made_ready = lambda serial: ready if serial == staged.serial else None
    heard: list[int] = []
    one.on_replace(lambda: heard.append(one.meta.revision))
    logged.add(order, SWITCH)

    assert jobs(one) == {b"a", b"b"}
    assert one.meta.applied_index == len(logged.log)
    assert one.meta.revision > before.revision + (1 << 39)
    assert one.meta.now_ms == before.now_ms
    assert one.restored is not None
    assert (one.restored.before, one.restored.jobs) == (before.revision, 2)
    assert heard == [one.meta.revision]
    assert staging.staged_in(one.store) is None
    assert verify.verify(one.store) == []

    # One that was away makes it when it meets the entry, and one has it from a snapshot.
    other = replica(tmp_path / "two", tmp_path)
    for entry in logged.log:
        other.apply(entry.index, entry.data)
    checkpoint(one, tmp_path, "snapshot")
    third = replica(tmp_path / "three", tmp_path)
    third.restore("snapshot")
    assert image(one) == image(other) == image(third)
    assert third.restored == one.restored
    for each in (one, other, third):
        each.apply(
            len(logged.log) + 1, change(one.store, "after") if each is one else logged.log[-1].data
        )
        each.close()
    assert sorted(path.name for path in (tmp_path / "two").iterdir()) == ["state-2"]


@pytest.mark.parametrize("step", ["make", "finish", "name"])
def test_a_crash_leaves_one_state_or_the_other_and_the_journal_goes_on_from_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    logged, _, order = begun(tmp_path)
    one, was = logged.one, image(logged.one)

    class Crash(BaseException):
        """The power goes."""

    def crash(*_: object, **__: object) -> None:
        raise Crash

    if step == "name":
        finish = replacement.finish

        def finished(*values: object) -> None:
            finish(*values)  # type: ignore[arg-type]
            raise Crash

        monkeypatch.setattr(replacement, "finish", finished)
    else:
        monkeypatch.setattr(replacement, step, crash)
    with pytest.raises(Crash):
        logged.add(order, SWITCH)
    one.close()
    monkeypatch.undo()

    again = replica(tmp_path / "one", tmp_path)
    assert jobs(again) == ({b"a", b"b"} if step == "name" else {b"present"})
    assert step == "name" or image(again) == was
    for entry in logged.log[again.applied() :]:
        again.apply(entry.index, entry.data)
    assert jobs(again) == {b"a", b"b"}
    other = replica(tmp_path / "two", tmp_path)
    for entry in logged.log:
        other.apply(entry.index, entry.data)
    assert image(again) == image(other)
    again.close()
    other.close()


def test_what_was_decided_on_another_state_does_nothing(tmp_path: Path) -> None:
    logged, staged, order = begun(tmp_path)
    logged.add(change(logged.one.store, "in-between"))
    logged.add(order, SWITCH)
    assert jobs(logged.one) == {b"present", b"in-between"}
    assert logged.one.applied() == len(logged.log)
    # Nor does the same entry twice.
    order = logged.order(staged, tmp_path / "leader")
    logged.add(order, SWITCH)
    after = image(logged.one)
    logged.add(order, SWITCH)
    assert image(logged.one).keys() == after.keys()
    assert jobs(logged.one) == {b"a", b"b"}
    logged.one.close()


@pytest.mark.parametrize("at", ["make", "finish", "open"])
def test_a_full_disk_has_done_nothing_and_it_comes_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    logged, _, order = begun(tmp_path)
    was = image(logged.one)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    where: dict[str, tuple[object, str]] = {
        "make": (backup, "_write"),
        "finish": (replacement, "finish"),
        "open": (logged.one, "_open"),
    }
    monkeypatch.setattr(*where[at], full)
    with pytest.raises(DiskFull):
        logged.add(order, SWITCH)
    assert image(logged.one) == was
    monkeypatch.undo()
    logged.one.apply(len(logged.log), order)
    assert jobs(logged.one) == {b"a", b"b"}
    logged.one.close()
    assert sorted(path.name for path in logged.one.folder.iterdir()) == ["state-2"]


def test_a_stage_that_is_not_what_was_sent_ends_the_node(tmp_path: Path) -> None:
    logged, staged, order = begun(tmp_path)
    met: list[Corrupt] = []
    logged.one.damaged = met.append
    logged.one.store.write([(keys.piece(staged.serial, 0), b"x" * 1024)], [])
    with pytest.raises(Damaged, match="it is damaged, or no archive"):
        logged.add(order, SWITCH)
    assert len(met) == 1
    logged.one.close()


def test_a_backup_that_becomes_another_state_here_ends_the_node(tmp_path: Path) -> None:
    logged, staged, _ = begun(tmp_path)
    made = replacement.make(logged.one.store, staged, tmp_path / "leader")
    made.meta.fingerprint = b"of another version"
    with pytest.raises(Damaged, match="may run another version"):
        logged.add(replacement.order(logged.one.meta, staged, made), SWITCH)
    logged.one.close()


def test_who_reads_or_copies_the_state_is_not_disturbed(tmp_path: Path) -> None:
    logged, _, order = begun(tmp_path)
    one = logged.one
    was, reading, work = image(one), one.store.snapshot(), one.checkpoint()
    logged.add(order, SWITCH)
    assert dict(reading.scan(b"\0", b"\xff" * 64)) == was
    # It was asked for before, and holds a later state, which is what it says.
    (tmp_path / "late").mkdir()
    assert work("late") == one.applied()
    one.close()
    assert sorted(path.name for path in one.folder.iterdir()) == ["state-2"]


def test_nothing_that_came_before_is_told_of_the_new_state(tmp_path: Path) -> None:
    logged, _, order = begun(tmp_path)

    class Log:
        base_index = 0

        def entries(self, first: int, last: int, size: int) -> list[Entry]:
            return logged.log[first - 1 : last]

    feed = EventFeed(logged.one, Log(), lambda what, error: None)
    before = feed.oldest()
    logged.add(order, SWITCH)
    assert feed.oldest() == logged.one.meta.revision + 1 > before
    logged.add(change(logged.one.store, "after"))
    assert feed.oldest() == logged.one.meta.revision
    with pytest.raises(Refused, match="are gone"):
        feed._change(before)
    feed.close()
    logged.one.close()


@pytest.mark.parametrize(
    ("about", "damage", "why"),
    [
        ({"cluster": "other"}, None, "of the cluster 'other'"),
        ({"feature_level": 5}, None, "made by version 1"),
        ({"format": 2}, None, "made by version 1"),
        ({"term": -1}, None, "its manifest says term: -1, which is no count; take another"),
        ({"time": "soon"}, None, "its manifest says time: 'soon', which is no time"),
        ({}, lambda data: data[:-4096], "cut off|damaged"),
        ({}, lambda data: bytes(len(data)), "its manifest is missing, and so is all else"),
        (
            {},
            lambda data: re.sub(rb'(?<="fingerprint": ").{4}', b"odd!", data),
            "holds revision 1 with the fingerprint [0-9a-f]{32}.*revision 1 with 'odd!",
        ),
        ({}, lambda data: data.replace(b"leveldb", b"levelDB"), "not as the manifest says"),
        ({}, lambda data: b"no archive" * 99, "no archive"),
    ],
)
def test_what_cannot_be_put_back_is_said_before_anything_is_done(
    tmp_path: Path, about: dict[str, object], damage: Callable[[bytes], bytes] | None, why: str
) -> None:
    logged = Logged(replica(tmp_path / "one", tmp_path))
    data = archive(tmp_path / "backup", "a", about=ABOUT | about)
    staged = logged.stage(damage(data) if damage is not None else data)
    ended = threading.Event()
    preparing = Preparing("c", 4, logged.one.folder / REPLACING, ended.set)
    preparing.look(logged.one.store.snapshot, staged)
    assert ended.wait(60)
    preparing.close()
    serial, _, said = preparing.progress.partition(" - ")
    assert serial == str(staged.serial)
    with pytest.raises(CannotRestore, match=why):
        raise CannotRestore(said)
    assert preparing.wait(staged.serial) is None
    assert not (logged.one.folder / REPLACING).exists()
    logged.one.close()


def test_a_node_that_stops_makes_nothing_ready_any_more(tmp_path: Path) -> None:
    logged = Logged(replica(tmp_path / "one", tmp_path))
    staged = logged.stage(archive(tmp_path / "backup", "a"))
    preparing = Preparing("c", 4, logged.one.folder / REPLACING, lambda: None)
    preparing._ends.set()
    preparing.look(logged.one.store.snapshot, staged)
    preparing.close()
    assert preparing.progress.endswith("- this node stops")
    logged.one.close()
