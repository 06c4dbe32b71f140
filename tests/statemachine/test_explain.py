"""An explanation names what stands in the way, with its values, the strongest first."""

from __future__ import annotations

import pytest

from raftsched.proto.v1 import (
    calendar_pb2,
    job_pb2,
    namespace_pb2,
    queue_pb2,
    run_pb2,
    schedule_pb2,
)
from raftsched.statemachine.core.instants import duration, timestamp
from raftsched.statemachine.model.request import Offer
from raftsched.statemachine.model.workers import Worker

from .asking import ask
from .driver import HOUR_MS, MINUTE_MS, SECOND_MS, Machine, cut_off, instant
from .world import ALLOW

Obstacle = run_pb2.Obstacle
IDLE = Worker(Offer("w1", 2), 2)
BUSY = Worker(Offer("w1", 0), 2)
ELSEWHERE = Worker(Offer("w1", 2, queues=("mail",)), 2)
PLAIN = Worker(Offer("w1", 2, handlers=frozenset({"other"})), 2)


def of_run(machine: Machine, run: str, *workers: Worker) -> run_pb2.Explanation:
    request = run_pb2.ExplainRunRequest(run=run)
    return ask(machine, request, run_pb2.Explanation, workers)


def of_job(machine: Machine, name: str, *workers: Worker) -> run_pb2.Explanation:
    request = job_pb2.ExplainJobRequest(job=name)
    return ask(machine, request, run_pb2.Explanation, workers or (IDLE,))


def kinds(said: run_pb2.Explanation) -> list[str]:
    return [Obstacle.Kind.Name(item.kind).removeprefix("KIND_") for item in said.obstacles]


# Runs.


def test_a_run_that_a_free_worker_fits_has_nothing_in_its_way(machine: Machine) -> None:
    machine.create("a")
    run = machine.trigger("a").id

    said = of_run(machine, run, IDLE)

    assert kinds(said) == []
    assert "nothing stands in its way" in said.summary


@pytest.mark.parametrize(
    ("workers", "kind"),
    [
        ([], "NO_WORKER"),
        ([ELSEWHERE], "NO_WORKER"),
        ([PLAIN], "NO_FITTING_WORKER"),
        ([BUSY], "NO_FREE_SLOT"),
        ([BUSY, PLAIN], "NO_FREE_SLOT"),
    ],
)
def test_a_run_says_what_is_wrong_with_the_workers(
    machine: Machine, workers: list[Worker], kind: str
) -> None:
    machine.create("a")
    run = machine.trigger("a").id

    assert kinds(of_run(machine, run, *workers)) == [kind]


def test_a_run_and_its_job_name_the_handler_that_is_missing(machine: Machine) -> None:
    machine.create("a", handler="resize")
    run = machine.trigger("a").id
    other = Worker(Offer("w2", 2, handlers=frozenset({"mail", "other"})), 2)

    for said in (of_run(machine, run, PLAIN, other), of_job(machine, "a", PLAIN, other)):
        assert "NO_FITTING_WORKER" in kinds(said)
        assert [item.message for item in said.obstacles if "resize" in item.message] == [
            "no worker connected to the queue 'default' has the handler 'resize'; "
            "workers here have: mail, other"
        ]
    assert (
        "start one that has the handler 'resize'; workers that are connected pull from: mail"
        in (of_run(machine, run, ELSEWHERE).summary)
    )


def test_a_long_list_of_handlers_is_cut(machine: Machine) -> None:
    machine.create("a", handler="resize")
    run = machine.trigger("a").id
    many = Worker(Offer("w2", 2, handlers=frozenset(f"h{n:02}" for n in range(40))), 2)

    assert "h09 and 30 more" in of_run(machine, run, many).summary


def test_a_run_names_the_labels_that_no_worker_has(machine: Machine) -> None:
    machine.create("a", worker_labels={"gpu": "yes"})
    run = machine.trigger("a").id

    said = of_run(machine, run, IDLE)

    assert kinds(said) == ["NO_FITTING_WORKER"]
    assert "gpu=yes" in said.summary


def test_a_run_behind_others_says_how_many_go_first(machine: Machine) -> None:
    machine.create("a", overlap=ALLOW)
    for _ in range(3):
        run = machine.trigger("a").id

    said = of_run(machine, run, IDLE)

    assert kinds(said) == ["OTHERS_FIRST"]
    assert said.obstacles[0].message.startswith("2 runs")


def test_a_paused_queue_is_named_with_its_reason(machine: Machine) -> None:
    machine.create("a")
    run = machine.trigger("a").id
    machine.do(queue_pb2.PauseQueueRequest(queue="default", reason="repair"))

    said = of_run(machine, run, IDLE)

    assert kinds(said) == ["QUEUE_PAUSED"]
    assert "repair" in said.summary


def test_limits_of_job_key_queue_and_namespace_are_named(machine: Machine) -> None:
    limit = job_pb2.ConcurrencyLimit(job=1, key="db", key_limit=1)
    machine.create("a", overlap=ALLOW, concurrency=limit)
    machine.do(queue_pb2.UpdateQueueRequest(queue=queue_pb2.Queue(name="default", concurrency=1)))
    quota = namespace_pb2.Namespace(name="default", quota=namespace_pb2.Quota(leases=1))
    machine.do(namespace_pb2.UpdateNamespaceRequest(namespace=quota))
    machine.trigger("a")
    run = machine.trigger("a").id
    machine.grant("w1", 1)

    found = of_run(machine, run, IDLE)

    assert kinds(found) == ["JOB_LIMIT", "KEY_LIMIT", "QUEUE_LIMIT", "NAMESPACE_LIMIT"]
    assert all(one.message.startswith("1 run ") for one in found.obstacles)


def test_a_run_that_was_parked_says_for_which_slot_it_waits(machine: Machine) -> None:
    machine.create("a", overlap=ALLOW, concurrency=job_pb2.ConcurrencyLimit(job=1))
    machine.create("b", concurrency=job_pb2.ConcurrencyLimit(key="db", key_limit=1))
    machine.create("c", concurrency=job_pb2.ConcurrencyLimit(key="db", key_limit=1))
    machine.trigger("a")
    one = machine.trigger("a").id
    machine.trigger("b")
    other = machine.trigger("c").id
    machine.grant("w1", 10)

    assert machine.record(one).parking
    assert machine.record(other).parking
    assert kinds(of_run(machine, one, IDLE)) == ["JOB_LIMIT"]
    assert kinds(of_run(machine, other, IDLE)) == ["KEY_LIMIT"]


def test_a_used_up_rate_says_when_the_next_lease_may_be_granted(machine: Machine) -> None:
    machine.create("a", overlap=ALLOW)
    machine.do(queue_pb2.UpdateQueueRequest(queue=queue_pb2.Queue(name="default", rate=2)))
    for _ in range(3):
        run = machine.trigger("a").id
    assert len(machine.grant()) == 2

    said = of_run(machine, run, IDLE)

    assert kinds(said) == ["QUEUE_RATE"]
    assert said.obstacles[0].until == timestamp(machine.now_ms + 500)
    machine.advance(500)
    assert kinds(of_run(machine, run, IDLE)) == []
    assert len(machine.grant()) == 1


def test_runs_that_wait_for_a_time_say_until_when(machine: Machine) -> None:
    retry = job_pb2.RetryPolicy(first=duration(MINUTE_MS), jitter_percent=0)
    machine.create("a", overlap=ALLOW, retry=retry)
    later = machine.trigger("a", due_time=timestamp(machine.now_ms + HOUR_MS)).id
    failed = machine.trigger("a").id
    machine.fail(machine.grant()[0])
    back = machine.trigger("a").id
    machine.release(machine.grant()[0], delay_ms=SECOND_MS)

    due, again, soon = (of_run(machine, run, IDLE) for run in (later, failed, back))

    assert (kinds(due), kinds(again), kinds(soon)) == (["NOT_DUE"], ["RETRY_WAIT"], ["RETRY_WAIT"])
    assert due.obstacles[0].until == timestamp(machine.now_ms + HOUR_MS)
    assert again.obstacles[0].until == timestamp(machine.now_ms + MINUTE_MS)
    assert soon.obstacles[0].until == timestamp(machine.now_ms + SECOND_MS)
    assert "given back" in soon.summary


def test_a_run_that_is_held_back_running_or_ended_says_so(machine: Machine) -> None:
    rule = job_pb2.OverlapPolicy(rule=job_pb2.OverlapPolicy.RULE_QUEUE)
    machine.create("a", overlap=rule)
    first = machine.trigger("a").id
    held = machine.trigger("a").id
    [lease] = machine.grant()

    assert kinds(of_run(machine, held, IDLE)) == ["OVERLAP"]
    assert kinds(of_run(machine, first, IDLE)) == ["RUNNING"]
    assert "w1 has it" in of_run(machine, first).summary
    machine.succeed(lease)
    assert kinds(of_run(machine, first)) == ["ENDED"]
    assert "SUCCEEDED" in of_run(machine, first).summary


# Jobs.


def test_an_active_job_says_when_it_is_due_next(machine: Machine) -> None:
    machine.create("a", cron="0 * * * *")

    said = of_job(machine, "a")

    assert kinds(said) == ["NOT_DUE"]
    assert said.obstacles[0].until == timestamp(instant("2026-01-01T01:00"))
    assert "2026-01-01 01:00:00 UTC" in said.summary


def test_a_paused_job_says_why_and_until_when(machine: Machine) -> None:
    machine.create("a", cron="0 * * * *")
    until = timestamp(machine.now_ms + HOUR_MS)
    machine.do(job_pb2.PauseJobRequest(job="a", reason="repair", until=until))

    said = of_job(machine, "a")

    assert kinds(said) == ["JOB_PAUSED", "NOT_DUE"]
    assert "repair" in said.summary
    assert said.obstacles[0].until == until


def test_a_job_without_anything_ahead_says_so(machine: Machine) -> None:
    machine.create("by-hand")
    machine.create("once", once=machine.now_ms)
    machine.fire()
    machine.succeed(machine.grant()[0])

    assert kinds(of_job(machine, "by-hand")) == ["MANUAL"]
    assert kinds(of_job(machine, "once")) == ["FINISHED"]


def test_a_job_whose_runs_overlap_says_what_becomes_of_the_next(machine: Machine) -> None:
    hold = job_pb2.OverlapPolicy(rule=job_pb2.OverlapPolicy.RULE_QUEUE_ONE)
    machine.create("a", cron="0 * * * *")
    machine.create("b", cron="0 * * * *", overlap=hold)
    machine.at("2026-01-01T01:00")
    machine.fire()

    first, second = of_job(machine, "a"), of_job(machine, "b")

    assert kinds(first) == kinds(second) == ["OVERLAP", "NOT_DUE"]
    assert "skipped" in first.summary
    assert "held back" in second.summary


def test_a_used_up_quota_is_named(machine: Machine) -> None:
    machine.create("a", cron="0 * * * *", overlap=ALLOW)
    quota = namespace_pb2.Namespace(name="default", quota=namespace_pb2.Quota(live_runs=1))
    machine.do(namespace_pb2.UpdateNamespaceRequest(namespace=quota))
    machine.trigger("a")

    assert kinds(of_job(machine, "a")) == ["QUOTA", "NOT_DUE"]


def test_an_occurrence_that_will_be_left_out_is_named(machine: Machine) -> None:
    rule = calendar_pb2.CalendarRule(date="2026-01-01")
    calendar = calendar_pb2.Calendar(name="holidays", rules=[rule])
    machine.do(calendar_pb2.CreateCalendarRequest(calendar=calendar))
    machine.create("a", cron="0 * * * *",
                   timing=schedule_pb2.Timing(exclude_calendars=["holidays"]))  # fmt: skip
    machine.create("b", cron="0 * * * *")
    skip = schedule_pb2.OccurrenceEdit(
        scheduled_time=timestamp(instant("2026-01-01T01:00")),
        kind=schedule_pb2.OccurrenceEdit.KIND_SKIP,
    )
    machine.do(job_pb2.EditOccurrenceRequest(job="b", edit=skip))

    assert kinds(of_job(machine, "a")) == ["NOT_DUE", "EXCLUDED"]
    assert kinds(of_job(machine, "b")) == ["NOT_DUE", "EXCLUDED"]


def test_a_backlog_says_how_much_of_it_is_left(machine: Machine) -> None:
    misfire = job_pb2.MisfirePolicy(rule=job_pb2.MisfirePolicy.RULE_ALL)
    machine.create("a", cron="*/10 * * * *", misfire=misfire)
    machine.advance(2 * HOUR_MS)
    machine.fire()

    said = of_job(machine, "a")

    assert "OUTAGE_GUARD" in kinds(said)
    assert any("11 past scheduled times" in item.message for item in said.obstacles)


def test_a_job_after_others_names_the_wave_and_what_it_waits_for(machine: Machine) -> None:
    machine.create("a")
    machine.create("b", after=["a"])
    machine.create("c", after=["a", "b"])
    machine.do(cut_off("b"))
    assert kinds(of_job(machine, "c")) == ["UPSTREAM"]
    assert "no flow run waits" in of_job(machine, "c").summary
    flow = machine.trigger("a").flow
    machine.succeed(machine.grant()[0])

    said = of_job(machine, "c")

    assert kinds(said) == ["UPSTREAM"]
    assert f"the flow run {flow} waits for b" in said.summary


def test_a_job_that_counts_from_the_end_of_its_run_says_so(machine: Machine) -> None:
    machine.create("a", after_end_ms=MINUTE_MS)
    machine.advance(MINUTE_MS)
    machine.fire()

    assert "RUNNING" in kinds(of_job(machine, "a"))
