"""Many jobs audited in one call: each as if alone, and what they share is right."""

from __future__ import annotations

from random import Random, randrange

import pytest

from raftsched.proto.v1 import job_pb2
from raftsched.statemachine.core import limits
from raftsched.statemachine.core.instants import timestamp
from raftsched.statemachine.core.rejection import Reason, Rejection
from raftsched.statemachine.core.store import MemoryStore
from raftsched.statemachine.model import keys
from raftsched.statemachine.model.record import AuditEntryRecord, MetaRecord, encode
from raftsched.statemachine.model.view import View
from raftsched.statemachine.reads import audit_many
from raftsched.statemachine.reads.audit_notes import SHORTENS, NotesLog
from raftsched.statemachine.reads.reads import read

from .asking import ask, refuse
from .driver import HOUR_MS, MINUTE_MS, Machine
from .world import ALLOW, OTHER, TIGHT, build

Request, Answer = job_pb2.AuditJobsRequest, job_pb2.AuditJobsResponse


def names_in(machine: Machine, number: int) -> list[str]:
    found = machine.store.scan(keys.job_name(number, ""), keys.job_name(number + 1, ""))
    return [key[5:].decode() for key, _ in found]


def alone(machine: Machine, namespace: str, name: str, **range_: object) -> job_pb2.JobAudit:
    """What a call for this job only says, as one of many."""
    request = job_pb2.AuditJobRequest(namespace=namespace, job=name, **range_)  # type: ignore[arg-type]
    answer = read(View(machine.store.snapshot(), machine.now_ms), request)
    if isinstance(answer, Rejection):
        field = answer.values.get("field", "")
        return job_pb2.JobAudit(job=name, reason=answer.word, field=field, message=answer.message)
    assert isinstance(answer, job_pb2.AuditJobResponse)
    return job_pb2.JobAudit(job=name, audit=answer)


@pytest.mark.parametrize("shrunk", [{}, {"AUDIT_NOTES": 7}, {"AUDIT_NOTES": 2, "AUDIT_TIMES": 9}])
def test_each_of_many_is_audited_as_if_it_were_alone(
    shrunk: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine(MemoryStore())
    build(machine)
    for name, value in shrunk.items():
        monkeypatch.setattr(limits, name, value)
    middle = timestamp(machine.now_ms - HOUR_MS)
    audited = 0
    for number, namespace in enumerate(("default", OTHER, TIGHT)):
        names = [*names_in(machine, number), "not there"]
        for range_ in ({}, {"from_time": middle}, {"to_time": middle}):
            request = Request(namespace=namespace, jobs=names, **range_)  # type: ignore[arg-type]

            found = ask(machine, request, Answer)

            assert not found.partial
            assert list(found.audits) == [alone(machine, namespace, n, **range_) for n in names]
            audited += len(found.audits)
    assert audited > 60


def test_a_call_ends_behind_much_and_is_gone_on_with(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b", "c"):
        machine.create(name, cron="* * * * *", overlap=ALLOW)
    for _ in range(30):
        machine.advance(MINUTE_MS)
        machine.fire()
    monkeypatch.setattr(audit_many, "LOOKED_AT", 60)
    left, calls = ["a", "b", "c", "b"], 0

    while left:
        answer = ask(machine, Request(jobs=left), Answer)
        done = [one.job for one in answer.audits]
        assert all(one.audit.sound for one in answer.audits)
        left = [name for name in left if name not in done]
        assert answer.partial == bool(left)
        calls += 1

    assert calls == 3
    monkeypatch.setattr(limits, "PAGE_BYTES", 0)
    assert len(ask(machine, Request(jobs=["a", "b"]), Answer).audits) == 1


def test_a_call_without_jobs_or_with_too_many_is_refused(machine: Machine) -> None:
    many = [f"j{at}" for at in range(audit_many.JOBS_MAX + 1)]
    for wrong, reason in (
        (Request(), Reason.ERROR_REASON_FIELD_REQUIRED),
        (Request(jobs=many), Reason.ERROR_REASON_LIMIT_EXCEEDED),
        (Request(jobs=["a"], namespace="none"), Reason.ERROR_REASON_NAMESPACE_NOT_FOUND),
    ):
        assert refuse(machine, wrong) == reason


# The audit log, against a walk through it for each job.


def log_of(random: Random, count: int) -> tuple[MemoryStore, list[AuditEntryRecord]]:
    """An audit log, newest first; the clock is set back now and then."""
    at_ms, notes, store = 1_000, list[AuditEntryRecord](), MemoryStore()
    first = random.choice((0, 0, 5))
    for place in range(first, first + count):
        at_ms = max(1, at_ms + random.choice((0, 1, 1, 7, 30, -40)))
        method = random.choice((
            "UpdateJob", "TriggerJob", "CreateJob", "RequeueDeadLetter", "RequeueDeadLetters",
            "PauseQueue", *sorted(SHORTENS),
        ))  # fmt: skip
        subject = random.choice(("job/a", "job/b", "run/a.1.7", "run/a.1.8.3", "run/a.11.7", ""))
        note = AuditEntryRecord(
            at_ms=at_ms, method=method, subject=subject, revision=place,
            namespace=random.choice(("default", "default", "other")),
            change=random.choice(("", "keep_history: 1 to 2")),
        )  # fmt: skip
        notes.insert(0, note)
        store.write([(keys.audit(place), encode(note))], [])
    meta = MetaRecord(now_ms=at_ms + 10, audit_from=first, audit_next=first + count)
    store.write([(keys.META, encode(meta))], [])
    return store, notes


def walked(
    notes: list[AuditEntryRecord], created_ms: int, now_ms: int, *, purged: bool
) -> tuple[list[AuditEntryRecord], int]:
    """What a job sees of a log, and since when nothing is missing."""
    found, since_ms = list[AuditEntryRecord](), now_ms + 1 if purged else 0
    for looked, note in enumerate(notes):
        if note.at_ms < created_ms:
            return found, created_ms
        if looked == limits.AUDIT_NOTES:
            return found, note.at_ms + 1
        if purged:
            since_ms = note.at_ms + 1
        if note.namespace == "default":
            found.append(note)
    return found, since_ms


def test_jobs_see_of_a_shared_log_what_a_walk_of_their_own_would_find(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "AUDIT_NOTES", 12)
    seed = randrange(1 << 32)
    print(f"seed {seed}")  # noqa: T201  # Shown where the test fails.
    random = Random(seed)
    for _ in range(300):
        store, notes = log_of(random, random.choice((0, 1, 9, 12, 13, 14, 20)))
        view = View(store, 0)
        log = NotesLog(view, "default")
        for created_ms in random.choices(range(900, 1_200), k=6):
            found, since_ms = walked(
                notes, created_ms, view.now_ms, purged=view.meta.audit_from > 0
            )

            seen = log.back_to(created_ms)

            assert seen.since_ms == since_ms
            for subject in ("job/a", "job/b", "job/c"):
                own = [note for note in found if note.subject == subject]
                assert [note for _, note in seen.about(subject)] == own
            runs = [note for note in found if note.subject.startswith("run/a.1.")]
            assert list(seen.about_runs("a", 1)) == runs
            for method in ("CreateJob", "ImportJobs", "RequeueDeadLetters"):
                of_method = [note for note in found if note.method == method]
                assert [note for _, note in seen.of(method)] == of_method
                assert seen.number_of(method) == len(of_method)
            shortening = [note.at_ms for note in found if note.method in SHORTENS]
            assert seen.newest_ms(log.shortening) == next(iter(shortening), 0)
            keeping = [
                note.at_ms for note in found
                if note.method == "UpdateJob" and "keep_history" in note.change
            ]  # fmt: skip
            assert seen.newest_ms(log.keeping) == next(iter(keeping), 0)
