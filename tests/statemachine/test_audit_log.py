"""The audit log is bounded in number and in time."""

from __future__ import annotations

import pytest

from raftsched.proto.v1 import namespace_pb2
from raftsched.statemachine.core import limits
from raftsched.statemachine.core.instants import duration
from raftsched.statemachine.model import keys
from raftsched.statemachine.model.record import AuditEntryRecord, parse

from .driver import DAY_MS, Machine, with_mask


def subjects(machine: Machine) -> list[str]:
    found = machine.store.scan(keys.AUDIT, keys.after(keys.AUDIT))
    return [parse(key, value, AuditEntryRecord).subject for key, value in found]


def test_the_oldest_notes_go_when_there_are_too_many(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "AUDIT_ENTRIES", 3)

    for number in range(6):
        machine.create(f"job-{number}")

    assert subjects(machine) == ["job/job-5", "job/job-4", "job/job-3"]


def test_a_note_goes_when_its_namespace_keeps_it_no_longer(machine: Machine) -> None:
    short = namespace_pb2.Namespace(name="short", keep_audit=duration(DAY_MS))
    machine.do(namespace_pb2.CreateNamespaceRequest(namespace=short))
    machine.create("a", namespace="short")
    machine.create("b")
    machine.advance(DAY_MS)

    machine.create("c")

    assert subjects(machine) == ["job/c", "job/b"]


def test_without_a_word_notes_are_kept_for_a_year(machine: Machine) -> None:
    machine.create("a")
    machine.advance(364 * DAY_MS)
    machine.create("b")
    machine.advance(2 * DAY_MS)
    machine.create("c")

    assert subjects(machine) == ["job/c", "job/b"]


def test_no_text_reads_as_another_note(machine: Machine) -> None:
    """Signs that turn the direction of text, or end a line, stand as their numbers."""
    machine.create("a")
    evil = "ok\n\u202e2026-01-01 root DeleteJob\x1b[2K\u2067"
    machine.do(with_mask("spec.owner", name="a", owner=evil), "https://issuer#\u202enimda")

    found = machine.store.scan(keys.AUDIT, keys.after(keys.AUDIT))
    note = next(parse(key, value, AuditEntryRecord) for key, value in found)
    assert note.actor == "https://issuer#\\u202enimda"
    assert "\\u000a\\u202e2026-01-01" in note.change
    for text in (note.actor, note.subject, note.change):
        assert text.isprintable(), text
