"""Stories that once went wrong."""

from __future__ import annotations

import pytest

from raftsched.proto.v1 import job_pb2, namespace_pb2, queue_pb2, run_pb2, schedule_pb2
from raftsched.statemachine.core.instants import duration, timestamp
from raftsched.statemachine.model.request import FireTimers

from .driver import HOUR_MS, MINUTE_MS, Machine, instant, job_of

Edit = schedule_pb2.OccurrenceEdit


def move(name: str, scheduled: str, to: str) -> job_pb2.EditOccurrenceRequest:
    edit = Edit(
        scheduled_time=timestamp(instant(scheduled)),
        kind=Edit.KIND_MOVE,
        moved_to=timestamp(instant(to)),
    )
    return job_pb2.EditOccurrenceRequest(job=name, edit=edit)


def test_an_occurrence_moved_to_an_earlier_time_runs_once(machine: Machine) -> None:
    """It ran at the new time and, with the edit gone, again at the old one, as the same run."""
    machine.create("a", cron="0 10 * * *")
    machine.do(move("a", "2026-01-01T10:00", "2026-01-01T09:00"))
    machine.at("2026-01-01T09:00")
    machine.fire()
    [lease] = machine.grant()
    machine.succeed(lease)

    machine.at("2026-01-01T10:00")
    machine.fire()

    assert machine.live("a") == []
    assert [run.id for run in machine.ended("a")] == [lease.run]
    assert machine.job("a").status.fired == 1
    assert machine.state("a").next_scheduled_at_ms == instant("2026-01-02T10:00")


def test_times_between_now_and_an_occurrence_that_ran_early_are_not_lost(
    machine: Machine,
) -> None:
    machine.create("a", cron="0 10 * * *")
    machine.do(move("a", "2026-01-01T10:00", "2026-01-01T09:00"))
    machine.at("2026-01-01T09:00")
    machine.fire()
    machine.at("2026-01-01T09:30")
    changed = job_of("a", cron="*/15 * * * *")

    machine.do(job_pb2.UpdateJobRequest(job=changed))

    assert machine.state("a").next_scheduled_at_ms == instant("2026-01-01T09:45")


def test_a_job_that_fired_before_can_be_given_a_single_time(machine: Machine) -> None:
    machine.create("a", cron="0 * * * *")
    machine.at("2026-01-01T01:00")
    machine.fire()

    machine.do(job_pb2.UpdateJobRequest(job=job_of("a", once="2026-01-01T05:00")))

    assert machine.state("a").next_scheduled_at_ms == instant("2026-01-01T05:00")
    machine.at("2026-01-01T05:00")
    machine.fire()
    assert machine.job("a").status.fired == 2


def test_a_finished_job_is_not_deleted_while_a_run_of_it_is_under_way(machine: Machine) -> None:
    machine.create("a", once="2026-01-01T01:00", delete_after=duration(HOUR_MS))
    machine.at("2026-01-01T01:00")
    machine.fire()
    machine.succeed(machine.grant()[0])
    machine.at("2026-01-01T01:50")
    machine.trigger("a")

    machine.at("2026-01-01T02:00")
    machine.fire()
    [lease] = machine.grant()
    machine.succeed(lease)

    assert machine.run(lease.run).state == run_pb2.RUN_STATE_SUCCEEDED
    machine.advance(HOUR_MS)
    for _ in range(5):
        machine.fire()
    assert not list(machine.store.scan(b"J", b"K"))


def test_a_key_that_is_taken_over_leaves_no_timer_behind(machine: Machine) -> None:
    machine.create("a")
    machine.trigger("a", unique=run_pb2.UniqueKey(key="k", hold=duration(HOUR_MS)))
    machine.succeed(machine.grant()[0])
    replace = run_pb2.UniqueKey(key="k", policy=run_pb2.UniqueKey.POLICY_REPLACE)

    machine.trigger("a", unique=replace)

    assert [key for key, _ in machine.store.scan(b"T", b"U") if key[9:10] == b"U"] == []


def test_a_deleted_job_leaves_nothing_behind(machine: Machine) -> None:
    machine.create("a", cron="* * * * *")
    machine.trigger("a", unique=run_pb2.UniqueKey(key="k", hold=duration(HOUR_MS)))
    machine.succeed(machine.grant()[0])
    machine.advance(5 * MINUTE_MS)
    machine.fire()
    machine.grant("w1", 1)

    machine.do(job_pb2.DeleteJobRequest(job="a"))
    for _ in range(5):
        machine.advance(1)
        machine.fire()

    left = {b"M", b"Q", b"Z", b"k", b"m", b"s", b"u"}
    assert {key[:1] for key, _ in machine.store.scan(b"B", b"z")} <= left


def test_a_step_behind_a_job_that_fails_for_good_does_not_wait(machine: Machine) -> None:
    machine.create("a", retry=job_pb2.RetryPolicy(max_attempts=1))
    machine.create("b", after=["a"])
    machine.create("c", after=["b"])
    machine.trigger("a")

    machine.fail(machine.grant()[0])

    machine.advance(40 * 24 * HOUR_MS)
    machine.fire()
    assert not list(machine.store.scan(b"F", b"G"))


def test_a_timer_that_is_set_in_the_change_of_a_ring_rings_in_the_next_one(
    machine: Machine,
) -> None:
    """The fire looked at what was stored, then moved its mark past the timer set just before."""
    machine.create("a", cron="0 * * * *")

    twice = (FireTimers(10), FireTimers(10, later=True)) * 2
    machine.do_all(job_pb2.DeleteJobRequest(job="a"), *twice)
    for _ in range(5):
        machine.fire()

    assert not list(machine.store.scan(b"J", b"K"))


@pytest.mark.parametrize("rule", job_pb2.MisfirePolicy.Rule.values())
def test_a_schedule_that_counts_from_an_end_goes_on_when_nothing_ran(
    machine: Machine, rule: job_pb2.MisfirePolicy.Rule.ValueType
) -> None:
    """Its time was past its start deadline; no run ended then, so nothing came after it."""
    misfire = job_pb2.MisfirePolicy(rule=rule, start_deadline=duration(MINUTE_MS))
    machine.create("a", after_end_ms=20_000, misfire=misfire)
    machine.advance(10 * MINUTE_MS)

    for _ in range(60):
        machine.advance(1_000)
        machine.fire()

    assert machine.job("a").status.skipped
    assert machine.live("a")


def test_a_held_run_that_is_let_go_by_making_room_for_it_is_counted_once(
    machine: Machine,
) -> None:
    rule = job_pb2.OverlapPolicy(rule=job_pb2.OverlapPolicy.RULE_REPLACE)
    machine.create("a", overlap=rule)
    machine.trigger("a")
    machine.trigger("a", due_time=timestamp(machine.now_ms + 1_000))
    machine.advance(1_000)

    machine.fire()

    assert [run.held for run in machine.live("a")] == [False]
    assert machine.job("a").status.held == 0


def test_a_job_that_others_depend_on_is_not_deleted_by_itself(machine: Machine) -> None:
    machine.create("a", once=machine.now_ms, delete_after=duration(HOUR_MS))
    machine.fire()
    machine.succeed(machine.grant()[0])
    machine.create("b", after=["a"])
    machine.advance(2 * HOUR_MS)
    machine.fire()
    kept = machine.job("a")

    machine.do(job_pb2.DeleteJobRequest(job="b"))
    for _ in range(5):
        machine.advance(HOUR_MS)
        machine.fire()

    assert kept.status.state == job_pb2.JobStatus.STATE_FINISHED
    assert not list(machine.store.scan(b"J", b"K"))


def test_a_queue_that_gave_nothing_is_the_same_for_a_leader_with_a_memory(
    machine: Machine,
) -> None:
    """Its allowance was refilled in memory, not written, and came along with the next change."""
    machine.create("a", worker_labels={"gpu": "yes"})
    machine.do(queue_pb2.UpdateQueueRequest(queue=queue_pb2.Queue(name="default", rate=2)))
    machine.trigger("a")
    machine.grant("w1", labels={"gpu": "yes"}, credits=0)
    quota = namespace_pb2.Namespace(name="default", quota=namespace_pb2.Quota(leases=1))
    machine.do(namespace_pb2.UpdateNamespaceRequest(namespace=quota))
    machine.create("b")
    machine.trigger("b")
    machine.grant("w1")
    machine.advance(5_000)
    machine.grant("w1", labels={"gpu": "yes"})

    machine.do(queue_pb2.PauseQueueRequest(queue="default"))

    machine.check()


def test_a_run_that_is_replaced_does_not_take_the_key_of_its_successor_along(
    machine: Machine,
) -> None:
    allow = job_pb2.OverlapPolicy(rule=job_pb2.OverlapPolicy.RULE_ALLOW)
    machine.create("a", overlap=allow)
    machine.trigger("a", unique=run_pb2.UniqueKey(key="k"))
    machine.grant()
    replace = run_pb2.UniqueKey(key="k", policy=run_pb2.UniqueKey.POLICY_REPLACE)
    second = machine.trigger("a", unique=replace).id

    machine.advance(1)
    machine.fire()

    assert [run.id for run in machine.live("a")] == [second]
    assert machine.trigger("a", unique=run_pb2.UniqueKey(key="k")).id == second


def test_an_occurrence_that_was_added_and_then_scheduled_runs_once(machine: Machine) -> None:
    allow = job_pb2.OverlapPolicy(rule=job_pb2.OverlapPolicy.RULE_ALLOW)
    machine.create("a", cron="0 12 * * *", overlap=allow)
    edit = Edit(scheduled_time=timestamp(instant("2026-01-01T03:00")), kind=Edit.KIND_ADD)
    machine.do(job_pb2.EditOccurrenceRequest(job="a", edit=edit))
    machine.do(job_pb2.UpdateJobRequest(job=job_of("a", cron="0 * * * *", overlap=allow)))

    for _ in range(4):
        machine.advance(HOUR_MS)
        machine.fire()

    assert len(machine.live("a")) == 4


def test_an_occurrence_that_was_moved_into_an_outage_runs_once(machine: Machine) -> None:
    """It was fired at its own instant, and again as a part of the backlog."""
    everything = job_pb2.MisfirePolicy(rule=job_pb2.MisfirePolicy.RULE_ALL)
    allow = job_pb2.OverlapPolicy(rule=job_pb2.OverlapPolicy.RULE_ALLOW)
    machine.create("a", cron="0 * * * *", misfire=everything, overlap=allow)
    machine.do(move("a", "2026-01-01T02:00", "2026-01-01T01:30"))
    machine.at("2026-01-01T03:30")

    for _ in range(5):
        machine.fire()
        machine.advance(1_000)

    assert len(machine.live("a")) == 3


def test_an_occurrence_that_was_moved_behind_an_outage_is_no_part_of_a_stretch(
    machine: Machine,
) -> None:
    allow = job_pb2.OverlapPolicy(rule=job_pb2.OverlapPolicy.RULE_ALLOW)
    machine.create("a", cron="0 * * * *", overlap=allow)
    machine.do(move("a", "2026-01-01T02:00", "2026-01-01T06:30"))
    machine.at("2026-01-01T05:30")
    machine.fire()

    machine.at("2026-01-01T06:30")
    machine.fire()

    ledger = machine.ledger("a")
    assert ledger[instant("2026-01-01T01:00")].count == 0
    assert ledger[instant("2026-01-01T03:00")].count == 2
    assert ledger[instant("2026-01-01T02:00")].outcome == run_pb2.OUTCOME_RAN


def test_a_wave_that_a_backfill_begins_anew_leaves_nothing_of_the_first(machine: Machine) -> None:
    misfire = job_pb2.MisfirePolicy(start_deadline=duration(MINUTE_MS))
    machine.create("a", cron="0 * * * *", misfire=misfire)
    machine.create("b", after=["a"])
    machine.at("2026-01-01T01:00")
    machine.fire()
    machine.advance(MINUTE_MS)
    machine.fire()
    backfill = job_pb2.BackfillJobRequest(
        job="a",
        from_time=timestamp(instant("2026-01-01T01:00")),
        to_time=timestamp(instant("2026-01-01T01:01")),
    )

    machine.do(backfill)
    machine.advance(1)
    machine.fire()

    assert len(machine.live("a")) == 1
    assert len(list(machine.store.scan(b"g", b"h"))) == 1


def test_a_backfill_leaves_a_run_alone_that_the_ledger_has_forgotten(machine: Machine) -> None:
    allow = job_pb2.OverlapPolicy(rule=job_pb2.OverlapPolicy.RULE_ALLOW)
    short = namespace_pb2.Namespace(name="default", keep_ledger=duration(HOUR_MS))
    machine.do(namespace_pb2.UpdateNamespaceRequest(namespace=short))
    machine.create("a", cron="0 * * * *", overlap=allow)
    machine.at("2026-01-01T01:00")
    machine.fire()
    machine.do(job_pb2.PauseJobRequest(job="a"))
    machine.at("2026-01-01T05:00")
    machine.fire()
    assert machine.ledger("a") == {}
    request = job_pb2.BackfillJobRequest(
        job="a",
        from_time=timestamp(instant("2026-01-01T01:00")),
        to_time=timestamp(instant("2026-01-01T01:01")),
    )

    answer = machine.ask(request, job_pb2.BackfillJobResponse)

    assert (answer.planned, answer.left_alone) == (0, 1)
    assert len(machine.live("a")) == 1
