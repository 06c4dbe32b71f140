"""Old ledger entries go in small steps, whatever becomes of their job."""

from __future__ import annotations

from raftsched.proto.v1 import calendar_pb2, job_pb2, namespace_pb2, run_pb2, schedule_pb2
from raftsched.statemachine.core.instants import duration, timestamp
from raftsched.statemachine.model import keys
from raftsched.statemachine.occurrences import ledger

from .asking import ask
from .driver import DAY_MS, HOUR_MS, START_MS, Machine, instant

KEEP = namespace_pb2.Namespace(
    name="short", keep_succeeded=duration(DAY_MS), keep_ledger=duration(3 * DAY_MS)
)


def entries(machine: Machine) -> list[int]:
    found = machine.store.scan(keys.LEDGER, keys.after(keys.LEDGER))
    return [keys.scheduled_at(key) for key, _ in found]


def live_on(machine: Machine, days: int) -> None:
    """Hours pass, and each run ends well."""
    for _ in range(24 * days):
        machine.advance(HOUR_MS)
        machine.fire()
        for lease in machine.grant(namespaces=("short",)):
            machine.succeed(lease)


def test_a_job_that_fires_keeps_its_ledger_as_long_as_its_namespace_says(machine: Machine) -> None:
    machine.do(namespace_pb2.CreateNamespaceRequest(namespace=KEEP))
    machine.create("a", namespace="short", cron="0 * * * *")

    live_on(machine, 6)

    found = entries(machine)
    assert found[-1] == instant("2026-01-07T00:00")
    assert min(found) >= instant("2026-01-03T20:00")
    assert 72 <= len(found) <= 78


def test_a_finished_job_loses_its_ledger_too(machine: Machine) -> None:
    machine.do(namespace_pb2.CreateNamespaceRequest(namespace=KEEP))
    machine.create("a", namespace="short", once="2026-01-01T01:00")

    live_on(machine, 2)
    assert entries(machine) == [instant("2026-01-01T01:00")]
    live_on(machine, 2)

    assert entries(machine) == []
    assert machine.job("a", "short").status.fired == 1


def test_a_paused_job_loses_its_ledger_too(machine: Machine) -> None:
    machine.do(namespace_pb2.CreateNamespaceRequest(namespace=KEEP))
    machine.create("a", namespace="short", cron="0 * * * *")
    live_on(machine, 1)
    machine.do(job_pb2.PauseJobRequest(namespace="short", job="a"))

    live_on(machine, 5)

    assert entries(machine) == []


def test_a_job_that_is_resumed_fires_when_its_ledger_was_to_go(machine: Machine) -> None:
    machine.do(namespace_pb2.CreateNamespaceRequest(namespace=KEEP))
    machine.create("a", namespace="short", cron="0 * * * *")
    live_on(machine, 1)
    machine.do(job_pb2.PauseJobRequest(namespace="short", job="a"))
    live_on(machine, 2)
    machine.do(job_pb2.ResumeJobRequest(namespace="short", job="a"))

    live_on(machine, 3)

    assert len(entries(machine)) >= 70
    assert machine.state("a", "short").next_scheduled_at_ms == machine.now_ms + HOUR_MS


def test_a_job_that_never_ran_loses_its_ledger_too(machine: Machine) -> None:
    machine.do(namespace_pb2.CreateNamespaceRequest(namespace=KEEP))
    january = calendar_pb2.CalendarRule(
        range=calendar_pb2.DateRange(first="2026-01-01", last="2026-01-31")
    )
    calendar = calendar_pb2.Calendar(namespace="short", name="off", rules=[january])
    machine.do(calendar_pb2.CreateCalendarRequest(calendar=calendar))
    timing = schedule_pb2.Timing(
        exclude_calendars=["off"], end_time=timestamp(instant("2026-01-06T12:00"))
    )
    machine.create("a", namespace="short", cron="0 * * * *", timing=timing)

    live_on(machine, 5)
    busy = len(entries(machine))
    live_on(machine, 6)

    assert 72 <= busy <= 78
    assert entries(machine) == []


def test_a_ledger_that_is_to_be_kept_for_longer_has_no_false_gaps(machine: Machine) -> None:
    machine.do(namespace_pb2.CreateNamespaceRequest(namespace=KEEP))
    machine.create("a", namespace="short", cron="0 * * * *")
    live_on(machine, 6)
    oldest = min(entries(machine))

    longer = namespace_pb2.Namespace(name="short", keep_ledger=duration(30 * DAY_MS))
    machine.do(namespace_pb2.UpdateNamespaceRequest(namespace=longer))
    answer = ask(
        machine, job_pb2.AuditJobRequest(namespace="short", job="a"), job_pb2.AuditJobResponse
    )

    assert answer.sound, answer
    assert answer.comparable_since.ToMilliseconds() == oldest - HOUR_MS + 1
    assert answer.recorded == answer.expected == len(entries(machine))
    live_on(machine, 1)
    assert min(entries(machine)) == oldest


def test_a_backfill_of_old_times_does_not_reach_back_for_an_audit(machine: Machine) -> None:
    machine.do(namespace_pb2.CreateNamespaceRequest(namespace=KEEP))
    machine.create("a", namespace="short", cron="0 * * * *")
    live_on(machine, 6)
    first = START_MS - DAY_MS
    purged_ms = machine.state("a", "short").ledger_purged_ms
    machine.do(job_pb2.BackfillJobRequest(
        namespace="short", job="a", from_time=timestamp(first),
        to_time=timestamp(first + 6 * HOUR_MS),
    ))  # fmt: skip

    seen = [purged_ms]
    for _ in range(24):
        machine.advance(HOUR_MS)
        machine.fire()
        for lease in machine.grant(namespaces=("short",)):
            machine.succeed(lease)
            seen.append(machine.state("a", "short").ledger_purged_ms)

    assert seen == sorted(seen)
    assert purged_ms > first
    request = job_pb2.AuditJobRequest(namespace="short", job="a")
    assert ask(machine, request, job_pb2.AuditJobResponse).sound


def test_a_backfill_leaves_alone_what_nobody_knows_of_any_more(machine: Machine) -> None:
    """A time that had run and was purged from history and ledger ran once more."""
    machine.do(namespace_pb2.CreateNamespaceRequest(namespace=KEEP))
    machine.create("a", namespace="short", cron="0 * * * *")
    live_on(machine, 6)
    purged_ms = machine.state("a", "short").ledger_purged_ms
    request = job_pb2.BackfillJobRequest(
        namespace="short", job="a", from_time=timestamp(START_MS - HOUR_MS),
        to_time=timestamp(purged_ms + 1),
    )  # fmt: skip

    answer = machine.ask(request, job_pb2.BackfillJobResponse)

    # One lies before the job was there.
    assert (answer.planned, answer.left_alone) == (1, (purged_ms - START_MS) // HOUR_MS + 1)


def test_the_mark_of_what_was_purged_never_goes_back(machine: Machine) -> None:
    """An entry from before the job was there, which a backfill made, goes in a step of its own."""
    machine.do(namespace_pb2.CreateNamespaceRequest(namespace=KEEP))
    machine.create("a", namespace="short", cron="0 * * * *")
    live_on(machine, 6)
    jid = machine.jid("a", "short")
    old = keys.ledger(jid, START_MS - DAY_MS)
    machine.store.write([(old, ledger.ALONE[run_pb2.OUTCOME_RAN])], [])
    view = machine.view()
    job = view.job(jid)
    state = view.change_state(job)
    state.ledger_from_ms = START_MS - DAY_MS
    purged_ms = state.ledger_purged_ms

    ledger.purge(view, job, most=1)

    assert not list(view.scan_stored(old, old + b"\0"))
    assert state.ledger_purged_ms == purged_ms
    machine.store.write([], [old])
