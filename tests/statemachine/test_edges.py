"""Limits and odd cases that no other test is about: what is refused or clipped, and what is not."""

from __future__ import annotations

from typing import cast

import pytest

from raftsched.proto.v1 import (
    calendar_pb2,
    common_pb2,
    dead_letter_pb2,
    error_pb2,
    flow_pb2,
    job_pb2,
    namespace_pb2,
    run_pb2,
    schedule_pb2,
    worker_pb2,
)
from raftsched.statemachine.core import limits
from raftsched.statemachine.core.instants import duration, timestamp
from raftsched.statemachine.machine import read_meta
from raftsched.statemachine.model import timers
from raftsched.statemachine.model.request import Note, Report
from raftsched.statemachine.reads import audit_book

from .asking import ask, refuse
from .driver import DAY_MS, HOUR_MS, MINUTE_MS, START_MS, Machine, cut_off, job_of, with_mask
from .world import ALLOW

ONCE = job_pb2.RetryPolicy(max_attempts=1)


def dead(machine: Machine, count: int = 1) -> list[str]:
    machine.create("d", retry=ONCE, overlap=ALLOW)
    ids = [machine.trigger("d").id for _ in range(count)]
    for lease in machine.grant():
        machine.fail(lease)
    return ids


def test_a_checkpoint_of_progress_has_its_limit(machine: Machine) -> None:
    machine.create("a")
    machine.trigger("a")
    [lease] = machine.grant()

    assert machine.note(lease, checkpoint=b"x" * 16_385).reason == "LIMIT_EXCEEDED"
    assert not machine.note(lease, checkpoint=b"x" * 16_384).reason
    assert len(machine.run(lease.run).checkpoint) == 16_384


def test_progress_on_no_run_is_lost(machine: Machine) -> None:
    said = worker_pb2.ProgressReport(run="nonsense", token=3)

    [ack] = cast("list[worker_pb2.ResultAck]", machine.do(Note("w1", (said,))))

    assert (ack.token, ack.reason) == (3, "LEASE_LOST")


@pytest.mark.parametrize(
    ("ms", "taken"), [(999, False), (1_000, True), (DAY_MS, True), (DAY_MS + 1, False)]
)
def test_an_attempt_is_extended_by_a_second_to_a_day(
    machine: Machine, ms: int, taken: bool
) -> None:
    machine.create("a", timeouts=job_pb2.Timeouts(attempt=duration(1)))
    machine.trigger("a")
    [lease] = machine.grant()
    request = worker_pb2.ExtendRequest(run=lease.run, token=lease.token, by=duration(ms))

    if taken:
        answer = machine.ask(request, worker_pb2.ExtendResponse)
        assert answer.deadline.ToMilliseconds() == machine.now_ms + ms
    else:
        assert machine.refused(request).word == "FIELD_INVALID"
    lost = worker_pb2.ExtendRequest(run="nonsense", token=1, by=duration(1_000))
    assert machine.refused(lost).word == "RUN_NOT_FOUND"


def test_of_a_long_trace_both_ends_are_kept(machine: Machine) -> None:
    machine.create("a", retry=ONCE)
    machine.trigger("a")
    [lease] = machine.grant()
    error = run_pb2.RunError(kind="k" * 200, message="m" * 5_000, trace="a" * 9_000 + "z" * 9_000)
    result = worker_pb2.Result(
        run=lease.run, token=lease.token, failure=worker_pb2.Failure(error=error)
    )

    machine.do(Report("w1", (result,)))

    kept = machine.run(lease.run).error
    assert (len(kept.kind), len(kept.message)) == (limits.KIND_CHARS, limits.MESSAGE_CHARS)
    assert len(kept.trace) <= limits.TRACE_CHARS
    assert kept.trace[0] + kept.trace[-1] == "az"
    assert "…" in kept.trace


def test_a_raised_limit_lets_those_in_that_wait(machine: Machine) -> None:
    machine.create("a", overlap=ALLOW, concurrency=job_pb2.ConcurrencyLimit(job=1))
    for _ in range(4):
        machine.trigger("a")
    assert len(machine.grant()) == 1

    machine.do(with_mask(
        "spec.concurrency", name="a", concurrency=job_pb2.ConcurrencyLimit(job=3)
    ))  # fmt: skip

    assert len(machine.grant()) == 2


def test_times_that_were_due_under_the_old_schedules_get_their_outcome(machine: Machine) -> None:
    for name in ("active", "paused"):
        machine.create(name, every_ms=MINUTE_MS, overlap=ALLOW)
    machine.do(job_pb2.PauseJobRequest(job="paused"))
    machine.advance(3 * MINUTE_MS)
    hourly = schedule_pb2.Schedule(interval=schedule_pb2.Interval(every=duration(HOUR_MS)))

    for name in ("active", "paused"):
        machine.do(with_mask("spec.schedules", name=name, schedules=[hourly]))

    assert machine.job("active").status.fired == machine.job("paused").status.fired == 3
    [entry] = machine.ledger("paused").values()
    assert (entry.outcome, entry.count) == (run_pb2.OUTCOME_MISSED, 3)


def test_an_import_has_its_limit_in_bytes(machine: Machine) -> None:
    large = common_pb2.Payload(data=b"x" * 65_000)
    jobs = [job_of(f"j{number}", payload=large) for number in range(49)]

    refusal = machine.refused(job_pb2.ImportJobsRequest(jobs=jobs))
    assert (refusal.word, refusal.values["field"]) == ("LIMIT_EXCEEDED", "jobs")
    assert machine.do(job_pb2.ImportJobsRequest(jobs=jobs[:48]))


def test_names_and_numbers_of_things_have_their_limits(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = machine.refused(job_pb2.CreateJobRequest(job=job_of("x" * 129)))
    assert long.word == "LIMIT_EXCEEDED"
    machine.create("x" * 128)
    monkeypatch.setattr(limits, "CALENDARS", 1)
    monkeypatch.setattr(limits, "NAMESPACES", 1)
    for name, taken in (("one", True), ("two", False)):
        off = calendar_pb2.Calendar(name=name, rules=[calendar_pb2.CalendarRule(date="2026-01-01")])
        calendar = calendar_pb2.CreateCalendarRequest(calendar=off)
        tenant = namespace_pb2.CreateNamespaceRequest(namespace=namespace_pb2.Namespace(name=name))
        if taken:
            machine.do(calendar)
            machine.do(tenant)
        else:
            assert machine.refused(calendar).values["limit"] == "calendars"
            assert machine.refused(tenant).values["limit"] == "namespaces"


def test_edits_of_one_job_have_their_limit(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "EDITS", 2)
    machine.create("a", every_ms=HOUR_MS)
    edits = [
        schedule_pb2.OccurrenceEdit(
            kind=schedule_pb2.OccurrenceEdit.KIND_SKIP,
            scheduled_time=timestamp(START_MS + hour * HOUR_MS),
        )
        for hour in (1, 2, 3)
    ]
    for edit in edits[:2]:
        machine.do(job_pb2.EditOccurrenceRequest(job="a", edit=edit))

    third = job_pb2.EditOccurrenceRequest(job="a", edit=edits[2])
    assert machine.refused(third).values["limit"] == "edits"
    machine.do(job_pb2.EditOccurrenceRequest(job="a", edit=edits[1]))


def test_dead_letters_are_taken_up_to_the_size_of_a_change(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead(machine, 4)
    monkeypatch.setattr(limits, "CHANGE_ITEMS", 3)
    request = dead_letter_pb2.RequeueDeadLettersRequest()

    first = machine.ask(request, dead_letter_pb2.RequeueDeadLettersResponse)
    second = machine.ask(request, dead_letter_pb2.RequeueDeadLettersResponse)

    assert ((first.requeued, first.more), (second.requeued, second.more)) == ((3, True), (1, False))


def test_dead_letters_that_few_fit_are_not_all_looked_at(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead(machine, 4)
    monkeypatch.setattr(limits, "LETTERS_LOOKED_AT", 3)

    request = dead_letter_pb2.PurgeDeadLettersRequest(filter="job=other")

    assert machine.refused(request).values["limit"] == "looked_at"


def test_a_dead_letter_is_edited_within_the_limits(machine: Machine) -> None:
    [letter] = dead(machine)
    large = common_pb2.Payload(data=b"x" * 65_537)

    request = dead_letter_pb2.EditDeadLetterRequest(run=letter, payload=large)
    assert machine.refused(request).word == "PAYLOAD_TOO_LARGE"
    elsewhere = dead_letter_pb2.GetDeadLetterRequest(namespace="no", run=letter)
    assert refuse(machine, elsewhere) == error_pb2.ERROR_REASON_NAMESPACE_NOT_FOUND


def test_a_run_triggered_for_later_is_judged_when_it_is_due(machine: Machine) -> None:
    machine.create("a", cron="0 0 1 1 *")
    later = machine.trigger("a", due_time=timestamp(machine.now_ms + MINUTE_MS))
    machine.trigger("a")
    machine.advance(MINUTE_MS)
    machine.fire()

    run = machine.run(later.id)
    assert (run.state, run.held) == (run_pb2.RUN_STATE_PENDING, True)


def test_any_of_several_that_all_failed_can_no_longer_run(machine: Machine) -> None:
    machine.create("root")
    for name in ("left", "right"):
        machine.create(name, after=["root"], retry=ONCE)
    job = job_of("any", after=["left", "right"])
    job.spec.upstream.join = job_pb2.Upstream.JOIN_ANY
    machine.do(job_pb2.CreateJobRequest(job=job))
    run = machine.trigger("root")
    machine.succeed(machine.grant()[0])
    for lease in machine.grant():
        machine.fail(lease)

    flow = ask(machine, flow_pb2.GetFlowRequest(flow=run.id), flow_pb2.Flow)

    states = {step.job: step.state for step in flow.steps}
    assert states["any"] == flow_pb2.FlowStep.STATE_CANNOT_RUN


def test_a_wave_ends_when_the_job_it_waits_with_was_deleted(machine: Machine) -> None:
    machine.create("a")
    machine.create("never", after=["a"])
    machine.create("b", after=["a", "never"])
    machine.do(cut_off("never"))
    run = machine.trigger("a")
    machine.succeed(machine.grant()[0])
    machine.do(job_pb2.DeleteJobRequest(job="b"))
    machine.fire()

    machine.advance(limits.STUCK_AFTER_MS)
    machine.fire()

    flow = ask(machine, flow_pb2.GetFlowRequest(flow=run.id), flow_pb2.Flow)
    assert flow.HasField("end_time")


def test_a_key_that_is_held_longer_than_its_run_is_kept_names_it(machine: Machine) -> None:
    machine.create("a", keep_history=duration(MINUTE_MS))
    unique = run_pb2.UniqueKey(key="k", hold=duration(HOUR_MS))
    first = machine.trigger("a", unique=unique)
    machine.succeed(machine.grant()[0])
    machine.advance(2 * MINUTE_MS)
    machine.fire()

    assert machine.trigger("a", unique=unique) == run_pb2.Run(
        namespace="default", job="a", id=first.id
    )


def test_reads_of_nothing(machine: Machine) -> None:
    machine.create("a", every_ms=MINUTE_MS)
    backwards = job_pb2.ListJobLedgerRequest(
        job="a", from_time=timestamp(2_000), to_time=timestamp(1_000)
    )
    assert refuse(machine, backwards) == error_pb2.ERROR_REASON_FIELD_INVALID
    none = run_pb2.ListRunsRequest(filter="job=none")
    assert not ask(machine, none, run_pb2.ListRunsResponse).runs
    past = job_pb2.ListJobHistoryRequest(
        job="a", filter="scheduled_time<1000 AND scheduled_time>2000"
    )
    assert not ask(machine, past, job_pb2.ListJobHistoryResponse).runs
    # Texts have no order.
    words = job_pb2.ListJobsRequest(filter="owner<b")
    assert refuse(machine, words) == error_pb2.ERROR_REASON_FILTER_INVALID


def test_a_worker_of_a_namespace_that_is_gone_gets_nothing(machine: Machine) -> None:
    machine.create("a")
    machine.trigger("a")

    assert machine.grant(namespaces=("gone",)) == []
    assert len(machine.grant(namespaces=("gone", "default"))) == 1


def test_an_audit_counts_the_part_of_a_stretch_that_lies_in_its_range(machine: Machine) -> None:
    misfire = job_pb2.MisfirePolicy(rule=job_pb2.MisfirePolicy.RULE_SKIP)
    machine.create("a", every_ms=MINUTE_MS, misfire=misfire)
    machine.advance(10 * MINUTE_MS + 1)
    machine.fire()
    request = job_pb2.AuditJobRequest(
        job="a", from_time=timestamp(START_MS + 3 * MINUTE_MS),
        to_time=timestamp(START_MS + 6 * MINUTE_MS),
    )  # fmt: skip

    answer = ask(machine, request, job_pb2.AuditJobResponse)

    assert answer.sound
    assert [(item.outcome, item.count) for item in answer.outcomes] == [(run_pb2.OUTCOME_MISSED, 3)]


def test_an_audit_of_too_many_entries_is_refused(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.create("a", every_ms=MINUTE_MS, overlap=ALLOW)
    for _ in range(4):
        machine.advance(MINUTE_MS)
        machine.fire()
    monkeypatch.setattr(limits, "LOOKED_AT", 3)

    assert refuse(machine, job_pb2.AuditJobRequest(job="a")) == (
        error_pb2.ERROR_REASON_LIMIT_EXCEEDED
    )
    assert audit_book.SHOWN == 1_000


def test_when_the_next_timer_rings(machine: Machine) -> None:
    assert timers.next_ms(machine.store, read_meta(machine.store)) is None
    machine.create("a", every_ms=HOUR_MS)

    assert timers.next_ms(machine.store, read_meta(machine.store)) == START_MS + HOUR_MS
