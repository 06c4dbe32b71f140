"""A backup on its way into a state: taken in order, one at a time, thrown away if given up."""

from __future__ import annotations

import pytest

from raftsched.statemachine import recovery
from raftsched.statemachine.calls import staging
from raftsched.statemachine.core.store import MemoryStore
from raftsched.statemachine.machine import read_meta
from raftsched.statemachine.model import keys
from raftsched.statemachine.model.record import AuditEntryRecord, StagedRecord, parse
from raftsched.statemachine.model.request import DropStage, SealStage, StagePiece
from raftsched.statemachine.selfcheck import verify

from .driver import MINUTE_MS, Machine, image


def piece(offset: int, data: bytes, size: int = 6, stage: str = "one") -> StagePiece:
    return StagePiece(stage, size, offset, data)


def test_pieces_are_taken_in_order_and_once(machine: Machine) -> None:
    assert machine.ask(piece(0, b"abc"), int) == 3
    assert machine.ask(piece(0, b"abc"), int) == 3
    assert machine.ask(piece(3, b"def"), int) == 6
    staged = staging.staged_in(machine.store)
    assert staged is not None
    assert b"".join(staging.pieces(machine.store, staged.serial)) == b"abcdef"
    assert verify.verify(machine.store) == []


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        (piece(1, b"x"), "FIELD_INVALID"),  # Nothing has begun.
        (piece(0, b"", 6), "FIELD_INVALID"),
        (piece(0, b"x" * 7, 6), "FIELD_INVALID"),
        (piece(0, b"x", staging.BYTES_MAX + 1), "FIELD_INVALID"),
        (piece(0, b"x" * (staging.PIECE_BYTES + 1), 1 << 20), "FIELD_INVALID"),
    ],
)
def test_what_is_no_piece_is_refused(machine: Machine, request_: StagePiece, reason: str) -> None:
    assert machine.refused(request_).word == reason


def test_a_gap_another_size_and_a_second_backup_are_refused(machine: Machine) -> None:
    machine.ask(piece(0, b"abc"), int)
    assert machine.refused(piece(4, b"e")).word == "FIELD_INVALID"
    assert machine.refused(piece(3, b"d", 7)).word == "FIELD_INVALID"
    assert machine.refused(piece(0, b"x", stage="two")).word == "BACKLOG_FULL"
    assert machine.refused(SealStage("one", "o")).word == "FIELD_INVALID"
    assert machine.refused(SealStage("two", "o")).word == "FIELD_INVALID"


def test_a_stage_is_sealed_once(machine: Machine) -> None:
    machine.ask(piece(0, b"abcdef"), int)
    first = machine.ask(SealStage("one", "first"), StagedRecord)
    assert (first.origin, first.sealed_at_ms) == ("first", machine.now_ms)
    machine.advance(1_000)
    again = machine.ask(SealStage("one", "second"), StagedRecord)
    assert (again.origin, again.touched_at_ms) == ("first", machine.now_ms)


def test_what_was_given_up_goes_in_steps_and_makes_room(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staging, "REMOVED", 2)
    for offset in range(5):
        machine.ask(piece(offset, b"x"), int)
    since = machine.now_ms
    assert not machine.ask(DropStage(silent_since_ms=since), bool)
    assert staging.staged_in(machine.store) is not None
    machine.advance(MINUTE_MS)
    assert machine.ask(DropStage(silent_since_ms=since + 1), bool)
    assert staging.staged_in(machine.store) is None
    # Another one need not wait for the rest of it to go.
    machine.ask(piece(0, b"y", 1, "two"), int)
    assert staging.has_orphans(machine.store)
    while machine.ask(DropStage(), bool):
        pass
    assert not staging.has_orphans(machine.store)
    staged = staging.staged_in(machine.store)
    assert staged is not None
    assert list(staging.pieces(machine.store, staged.serial)) == [b"y"]


def test_a_backup_becomes_the_same_on_every_node_with_a_note_of_who_did_it() -> None:
    made = []
    staged = StagedRecord(
        id="one", serial=4, actor="ann", origin="o", sealed_at_ms=99_000_000_000_000
    )
    for _ in range(2):
        machine = Machine(MemoryStore())
        machine.create("a")
        machine.trigger("a")
        machine.grant("w1", credits=1)
        machine.ask(piece(0, b"abc"), int)
        recovery.replace(machine.store, staged, "revision 7")
        made.append(image(machine.store))
        assert verify.verify(machine.store) == []
        assert next(machine.store.scan(keys.PIECE, keys.after(keys.PIECE)), None) is None
        assert machine.store.get(keys.STAGED) is None
    assert made[0] == made[1]
    newest, value = next(machine.store.scan(keys.AUDIT, keys.after(keys.AUDIT)))
    note = parse(newest, value, AuditEntryRecord)
    assert (note.actor, note.method, note.change) == ("ann", "RestoreBackup", "revision 7")


def test_history_goes_on_above_both_and_time_never_back(machine: Machine) -> None:
    machine.create("a")
    made = recovery.recover(machine.store, 0, "o")
    present = read_meta(MemoryStore())
    present.revision, present.token, present.job_serial = 1 << 44, 1 << 45, 1 << 30
    present.now_ms = made.now_ms + 5
    meta = recovery.beyond(made, present)
    assert meta.revision == (1 << 44) + recovery.SKIP
    assert meta.token == (1 << 45) + recovery.SKIP
    assert meta.job_serial == (1 << 30) + recovery.SKIP_JOBS
    assert meta.now_ms == present.now_ms
    assert (meta.fingerprint, meta.applied_index) == (made.fingerprint, made.applied_index)
    assert recovery.beyond(made, read_meta(MemoryStore())).revision == made.revision
