"""An audit says what waits for its outcome, since when and for what; and calls wrong what waits
though nothing keeps it."""

from __future__ import annotations

import pytest

from raftsched.proto.v1 import job_pb2, namespace_pb2, schedule_pb2
from raftsched.statemachine.core.instants import duration, iso_text, timestamp
from raftsched.statemachine.core.store import MemoryStore
from raftsched.statemachine.model import keys
from raftsched.statemachine.model.record import CatchUpRecord, StateRecord, encode, parse

from .asking import ask
from .driver import HOUR_MS, MINUTE_MS, START_MS, Machine

Misfire = job_pb2.MisfirePolicy
Edit = schedule_pb2.OccurrenceEdit
ALL = Misfire(rule=Misfire.RULE_ALL)


def audit(machine: Machine, **range_: int) -> job_pb2.AuditJobResponse:
    request = job_pb2.AuditJobRequest(job="a")
    for name, at_ms in range_.items():
        getattr(request, name).CopyFrom(timestamp(at_ms))
    return ask(machine, request, job_pb2.AuditJobResponse)


def waits(answer: job_pb2.AuditJobResponse) -> list[tuple[str, int, str, str]]:
    assert answer.waiting_times == sum(one.count for one in answer.waiting)
    return [
        (
            one.scheduled_time.ToJsonString()[11:16], one.count,
            one.since_time.ToJsonString()[11:16] if one.HasField("since_time") else "",
            one.awaits,
        )
        for one in answer.waiting
    ]  # fmt: skip


def hourly(machine: Machine, **spec: object) -> None:
    machine.create("a", cron="0 * * * *", **spec)  # type: ignore[arg-type]


def at(machine: Machine, hour: int, minute: int = 30) -> None:
    machine.at(START_MS + hour * HOUR_MS + minute * MINUTE_MS)
    machine.fire_all()


def test_what_was_missed_waits_for_the_run_that_is_under_way(machine: Machine) -> None:
    hourly(machine, misfire=ALL)
    machine.trigger("a")
    [lease] = machine.grant()
    at(machine, 4)

    found = audit(machine)

    assert waits(found) == [("01:00", 4, "04:30", "the end of a run of the job")]
    assert (found.sound, found.expected) == (True, 0)
    assert audit(machine, from_time=START_MS + 2 * HOUR_MS).waiting_times == 0
    machine.succeed(lease)
    machine.fire_all()
    assert waits(audit(machine)) == [("02:00", 3, "04:30", "the end of a run of the job")]


def test_what_was_missed_waits_for_the_quota(machine: Machine) -> None:
    quota = namespace_pb2.Quota(live_runs=1)
    namespace = namespace_pb2.Namespace(name="default", quota=quota)
    machine.do(namespace_pb2.UpdateNamespaceRequest(namespace=namespace))
    machine.create("b")
    machine.trigger("b")
    hourly(machine)
    at(machine, 4)

    why = "the quota: 1 runs of the namespace are under way, of 1"
    assert waits(audit(machine)) == [("04:00", 1, "04:30", why)]


def test_what_is_not_decided_on_waits_for_the_resume_or_its_jitter(machine: Machine) -> None:
    timing = schedule_pb2.Timing(jitter=duration(50 * MINUTE_MS))
    hourly(machine, timing=timing)
    due_ms = machine.state("a").next_due_at_ms
    at(machine, 1, 1)
    assert waits(audit(machine)) == [("01:00", 1, "01:00", f"its jitter, until {iso_text(due_ms)}")]

    edit = Edit(kind=Edit.KIND_MOVE, scheduled_time=timestamp(START_MS + 3 * HOUR_MS),
                moved_to=timestamp(START_MS + 4 * HOUR_MS))  # fmt: skip
    machine.do(job_pb2.EditOccurrenceRequest(job="a", edit=edit))
    machine.do(job_pb2.PauseJobRequest(job="a"))
    at(machine, 5, 1)
    resume = "the resume of the job"
    due = timestamp(due_ms).ToJsonString()[11:16]
    assert waits(audit(machine)) == [
        ("01:00", 3, due, resume), ("05:00", 1, "05:00", resume), ("03:00", 1, "04:00", resume),
    ]  # fmt: skip
    assert audit(machine).sound


def test_a_backfill_waits_for_its_pace(machine: Machine) -> None:
    hourly(machine, overlap=job_pb2.OverlapPolicy(rule=job_pb2.OverlapPolicy.RULE_ALLOW))
    machine.do(job_pb2.BackfillJobRequest(
        job="a", from_time=timestamp(START_MS - 5 * HOUR_MS), to_time=timestamp(START_MS),
        runs_per_minute=1,
    ))  # fmt: skip
    machine.fire_all()

    assert waits(audit(machine)) == [
        ("20:00", 4, "", "the pace of the backfill, at 2026-01-01T00:01:00Z")
    ]


@pytest.mark.parametrize("how", ["end", "turn", "timer"])
def test_what_waits_though_nothing_keeps_it_is_wrong(how: str) -> None:
    """As if a rule had forgotten to wake it."""
    machine = Machine(MemoryStore())
    hourly(machine, misfire=ALL)
    machine.trigger("a")
    machine.grant()
    at(machine, 4)
    jid = machine.jid("a")
    key = keys.state(jid)
    state = parse(key, machine.store.get(key) or b"", StateRecord)
    if how == "timer":
        state.backlog, state.timer_at_ms = (), 0
        state.next_scheduled_at_ms = state.next_due_at_ms = START_MS + HOUR_MS
    else:
        state.backlog[0].release_at_ms = machine.now_ms if how == "turn" else 0
    gone = [key for key, _ in machine.store.scan(keys.RUN, keys.after(keys.RUN))]
    assert machine.store.get(keys.catch_up(jid)) is None
    machine.store.write([(key, encode(state))], gone)

    found = audit(machine)

    assert waits(found)[0][3] == "nothing"
    [finding] = [one for one in found.findings if "though nothing keeps it" in one.reason]
    assert (found.sound, finding.count) == (False, 4)
    if how == "turn":
        machine.store.write([(keys.catch_up(jid), encode(CatchUpRecord(timer_at_ms=1)))], [])
        assert not any("nothing keeps" in one.reason for one in audit(machine).findings)
