"""Jobs that go on from the ends of their runs, and what an audit says of runs that were requeued or
cancelled: stories that the simulator of days has found."""

from __future__ import annotations

from raftsched.proto.v1 import (
    dead_letter_pb2,
    job_pb2,
    namespace_pb2,
    run_pb2,
    schedule_pb2,
)
from raftsched.statemachine.core.instants import duration, timestamp

from .asking import ask
from .driver import DAY_MS, HOUR_MS, MINUTE_MS, START_MS, Machine, job_of

Edit = schedule_pb2.OccurrenceEdit
Overlap = job_pb2.OverlapPolicy


def audit(machine: Machine, name: str = "a") -> job_pb2.AuditJobResponse:
    return ask(machine, job_pb2.AuditJobRequest(job=name), job_pb2.AuditJobResponse)


def work(machine: Machine) -> int:
    """All that is ready is done; how many runs."""
    leases = machine.grant()
    for lease in leases:
        machine.succeed(lease)
    return len(leases)


def live_runs(machine: Machine, most: int) -> None:
    settings = namespace_pb2.Namespace(name="default")
    settings.quota.live_runs = most
    machine.do(namespace_pb2.UpdateNamespaceRequest(namespace=settings))


def test_a_run_that_ended_before_the_start_moves_no_time(machine: Machine) -> None:
    """The first time was set a millisecond before start and delay, and what waited there had the
    same job fire twice at the resume."""
    start_ms = START_MS + HOUR_MS
    timing = schedule_pb2.Timing(start_time=timestamp(start_ms))
    machine.create("a", after_end_ms=10 * MINUTE_MS, timing=timing)
    machine.trigger("a")
    work(machine)

    assert machine.state("a").next_scheduled_at_ms == start_ms + 10 * MINUTE_MS

    machine.do(job_pb2.PauseJobRequest(job="a"))
    machine.advance(3 * HOUR_MS)
    machine.fire()
    machine.do(job_pb2.ResumeJobRequest(job="a"))
    machine.fire()

    assert list(machine.ledger("a")) == [start_ms + 10 * MINUTE_MS]
    assert not machine.state("a").backlog
    assert audit(machine).sound
    machine.check()


def test_a_rest_waits_for_what_was_missed_under_another_rest(machine: Machine) -> None:
    """Of two rests the longer one counted as the first time of all, while the other was missed."""
    machine.create("a", after_end_ms=0)
    machine.fire()
    machine.do(job_pb2.PauseJobRequest(job="a"))
    work(machine)
    wanted = job_of("a", after_end_ms=0)
    wanted.spec.schedules.add().after_end.delay.CopyFrom(duration(30 * MINUTE_MS))
    update = job_pb2.UpdateJobRequest(job=wanted)
    update.update_mask.paths.append("spec.schedules")
    machine.advance(MINUTE_MS)
    machine.do(update)
    machine.advance(5 * HOUR_MS)
    machine.fire()
    machine.do(job_pb2.ResumeJobRequest(job="a"))
    machine.fire()

    assert len(machine.live("a")) == 1
    assert not machine.state("a").backlog
    assert not audit(machine).wrong
    machine.check()


def test_a_rest_waits_for_what_was_added_and_missed(machine: Machine) -> None:
    machine.create("a", after_end_ms=0, overlap=Overlap(rule=Overlap.RULE_REPLACE))
    machine.fire()
    work(machine)
    add = Edit(kind=Edit.KIND_ADD, scheduled_time=timestamp(START_MS + HOUR_MS))
    machine.do(job_pb2.EditOccurrenceRequest(job="a", edit=add))
    machine.advance(DAY_MS)
    machine.fire()

    state = machine.state("a")
    assert [run.scheduled_time.ToMilliseconds() for run in machine.live("a")] == [
        START_MS + HOUR_MS
    ]
    assert (state.next_scheduled_at_ms, state.backlog) == (0, ())

    machine.advance(MINUTE_MS)
    work(machine)
    assert machine.state("a").next_scheduled_at_ms == machine.now_ms
    assert audit(machine).sound
    machine.check()


def test_a_time_that_ran_before_it_came_hides_no_other(machine: Machine) -> None:
    """The end of its run went on behind it, and the times before it had no outcome."""
    machine.create("a", after_end_ms=DAY_MS, every_ms=30 * MINUTE_MS)
    far = timestamp(START_MS + 4 * HOUR_MS)
    soon = timestamp(START_MS + 10 * MINUTE_MS)
    move = Edit(kind=Edit.KIND_MOVE, scheduled_time=far, moved_to=soon)
    machine.do(job_pb2.EditOccurrenceRequest(job="a", edit=move))
    machine.advance(10 * MINUTE_MS)
    machine.fire()
    assert work(machine) == 1

    for _ in range(10):
        machine.advance(30 * MINUTE_MS)
        machine.fire()
        work(machine)

    times = [START_MS + number * 30 * MINUTE_MS for number in range(1, 11)]
    assert [at_ms for at_ms in times if at_ms not in machine.ledger("a")] == []
    assert audit(machine).sound
    machine.check()


def test_who_may_have_more_goes_on_at_the_end_of_a_run(machine: Machine) -> None:
    timing = schedule_pb2.Timing(max_runs=1)
    machine.create("a", after_end_ms=HOUR_MS, timing=timing)
    machine.advance(HOUR_MS)
    machine.fire()
    update = job_pb2.UpdateJobRequest(job=job_pb2.Job(name="a"))
    update.update_mask.paths.append("spec.timing.max_runs")
    machine.do(update)
    machine.advance(MINUTE_MS)
    work(machine)

    assert machine.state("a").next_scheduled_at_ms == machine.now_ms + HOUR_MS
    machine.check()


def test_a_single_time_that_was_moved_is_passed_once(machine: Machine) -> None:
    """With max_runs it came again at once, in one change after the other without end."""
    at_ms = START_MS + HOUR_MS
    machine.create("a", once=at_ms, timing=schedule_pb2.Timing(max_runs=2))
    later = timestamp(at_ms + HOUR_MS)
    move = Edit(kind=Edit.KIND_MOVE, scheduled_time=timestamp(at_ms), moved_to=later)
    machine.do(job_pb2.EditOccurrenceRequest(job="a", edit=move))
    machine.at(at_ms)
    machine.fire()
    assert not machine.ledger("a")
    machine.check()

    machine.at(at_ms + HOUR_MS)
    machine.fire()
    assert work(machine) == 1
    assert machine.ledger("a")[at_ms].outcome == run_pb2.OUTCOME_RAN
    assert machine.job("a").status.state == job_pb2.JobStatus.STATE_FINISHED
    assert audit(machine).sound
    machine.check()


def test_who_has_had_all_runs_decides_on_no_more_times(machine: Machine) -> None:
    """Each end of a run that was triggered moved on up to when it had decided, and an audit missed
    the times before."""
    timing = schedule_pb2.Timing(max_runs=1)
    machine.create("a", after_end_ms=0, cron="*/10 * * * *", timing=timing)
    machine.fire()
    work(machine)
    machine.advance(HOUR_MS)
    for is_added in (False, True):
        at = timestamp(machine.now_ms + MINUTE_MS + 1)
        add = Edit(kind=Edit.KIND_ADD, scheduled_time=at)
        if is_added:
            machine.do(job_pb2.EditOccurrenceRequest(job="a", edit=add))
        machine.trigger("a")
        work(machine)
        machine.advance(HOUR_MS)
        machine.fire()

        assert len(machine.ledger("a")) == 1
        assert audit(machine).sound, audit(machine)
    machine.check()


def test_an_audit_counts_no_run_that_was_cancelled_before_it_was_due(machine: Machine) -> None:
    machine.create("a", every_ms=10 * MINUTE_MS)
    later = machine.trigger("a", due_time=timestamp(START_MS + HOUR_MS))
    machine.do(run_pb2.CancelRunRequest(run=later.id))
    for _ in range(2):
        machine.advance(10 * MINUTE_MS)
        machine.fire()

    outcomes = [entry.outcome for _, entry in sorted(machine.ledger("a").items())]
    assert outcomes == [run_pb2.OUTCOME_RAN, run_pb2.OUTCOME_SKIPPED_OVERLAP]
    assert audit(machine).sound, audit(machine)


def test_what_was_forced_waits_for_the_quota_when_it_is_requeued(machine: Machine) -> None:
    """It began above the quota, which holds for what is forced as well."""
    machine.create("a", retry=job_pb2.RetryPolicy(max_attempts=1))
    machine.create("b")
    forced = machine.trigger("a", force=True)
    [lease] = machine.grant()
    machine.fail(lease)
    live_runs(machine, 1)
    machine.trigger("b")
    machine.do(dead_letter_pb2.RequeueDeadLetterRequest(run=forced.id))
    machine.fire()

    assert machine.run(forced.id).held
    assert work(machine) == 1
    machine.fire()
    assert not machine.run(forced.id).held
    machine.check()


def test_an_audit_knows_when_a_requeued_run_counted_before(machine: Machine) -> None:
    """One that no worker took has no attempt to say so."""
    live_runs(machine, 1)
    machine.create("a", every_ms=10 * MINUTE_MS)
    machine.create("b", timeouts=job_pb2.Timeouts(queue=duration(15 * MINUTE_MS)))
    blocking = machine.trigger("b")
    for _ in range(2):
        machine.advance(10 * MINUTE_MS)
        machine.fire()
    machine.do(dead_letter_pb2.RequeueDeadLetterRequest(run=blocking.id))
    machine.fire()

    first = machine.ledger("a")[START_MS + 10 * MINUTE_MS]
    assert first.outcome == run_pb2.OUTCOME_SKIPPED_QUOTA
    assert not audit(machine).wrong, audit(machine)
    machine.check()
