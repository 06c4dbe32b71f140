"""Every node tells the same events from the same change."""

from __future__ import annotations

import pytest

from raftsched.proto.v1 import (
    calendar_pb2,
    common_pb2,
    dead_letter_pb2,
    event_pb2,
    job_pb2,
    namespace_pb2,
    queue_pb2,
    run_pb2,
    schedule_pb2,
    worker_pb2,
)
from raftsched.statemachine.core.instants import duration, timestamp
from raftsched.statemachine.core.rejection import Reason, Refused
from raftsched.statemachine.core.store import MemoryStore, Reading
from raftsched.statemachine.model.record import Change, UnknownFormat, encode
from raftsched.statemachine.model.request import FireTimers, Grant, Offer, Report
from raftsched.statemachine.reads import events as module
from raftsched.statemachine.reads.events import events, fits, parse_filter

from .driver import DAY_MS, HOUR_MS, MINUTE_MS, START_MS, Machine, cut_off, instant, job_of
from .world import build

Overlap = job_pb2.OverlapPolicy
NO_RETRY = job_pb2.RetryPolicy(max_attempts=1)
AT_ONCE = job_pb2.RetryPolicy(first=duration(0))


def told(machine: Machine) -> list[str]:
    """The kinds of the events of the last change, in order."""
    found = events(machine.log[-1], machine.index, machine.store)
    return [event_pb2.EventKind.Name(event.kind).removeprefix("EVENT_KIND_") for event in found]


def last(machine: Machine) -> event_pb2.Event:
    return events(machine.log[-1], machine.index, machine.store)[-1]


def test_the_life_of_a_job_is_told(machine: Machine) -> None:
    machine.create("a", cron="0 * * * *")
    assert told(machine) == ["JOB_CREATED"]
    assert last(machine).job_after == machine.job("a")

    machine.do(job_pb2.UpdateJobRequest(job=job_of("a", cron="30 * * * *")))
    assert told(machine) == ["JOB_UPDATED"]
    assert last(machine).job_after.version == 2

    machine.do(job_pb2.PauseJobRequest(job="a", reason="repair"))
    assert told(machine) == ["JOB_PAUSED"]
    assert last(machine).message == "repair"

    machine.do(job_pb2.ResumeJobRequest(job="a"))
    assert told(machine) == ["JOB_RESUMED"]

    machine.do(job_pb2.DeleteJobRequest(job="a"))
    assert told(machine) == ["JOB_DELETED"]
    assert (last(machine).namespace, last(machine).job) == ("default", "a")
    machine.fire()
    assert told(machine) == []


def test_a_pause_that_ends_by_itself_is_told(machine: Machine) -> None:
    machine.create("a", cron="0 12 * * *")
    machine.do(job_pb2.PauseJobRequest(job="a", until=timestamp(machine.now_ms + HOUR_MS)))

    machine.advance(HOUR_MS)
    machine.fire()

    assert told(machine) == ["JOB_RESUMED"]
    assert machine.job("a").version == 3


def test_an_import_tells_of_each_job(machine: Machine) -> None:
    machine.create("a", cron="0 * * * *")
    upsert = job_pb2.ImportJobsRequest.MODE_UPSERT
    jobs = [job_of("a", cron="1 * * * *"), job_of("b"), job_of("c")]

    machine.do(job_pb2.ImportJobsRequest(jobs=jobs, mode=upsert))

    found = events(machine.log[-1], machine.index, machine.store)
    assert sorted((event.job, event.kind) for event in found) == [
        ("a", event_pb2.EVENT_KIND_JOB_UPDATED),
        ("b", event_pb2.EVENT_KIND_JOB_CREATED),
        ("c", event_pb2.EVENT_KIND_JOB_CREATED),
    ]


def test_the_life_of_a_run_is_told(machine: Machine) -> None:
    machine.create("a", cron="0 * * * *")
    machine.at("2026-01-01T01:00")
    machine.fire()
    assert told(machine) == ["RUN_FIRED"]
    assert last(machine).time == timestamp(instant("2026-01-01T01:00"))

    [lease] = machine.grant()
    assert told(machine) == ["RUN_LEASED"]
    assert last(machine).run.worker == "w1"

    machine.note(lease, 1, 2)
    assert told(machine) == []

    machine.release(lease)
    assert told(machine) == ["RUN_RELEASED"]

    [lease] = machine.grant()
    machine.fail(lease)
    assert told(machine) == ["RUN_RETRYING"]
    assert last(machine).run.error.kind == "Error"

    machine.advance(10_000)
    machine.fire()
    assert told(machine) == []
    [lease] = machine.grant()
    machine.lapse("w1")
    assert told(machine) == ["RUN_RETRYING"]

    [lease] = machine.grant("w2")
    machine.succeed(lease, b"done")
    assert told(machine) == ["RUN_SUCCEEDED"]
    assert last(machine).run.result.data == b"done"


def test_an_attempt_that_ends_and_one_that_begins_in_one_change_are_told_in_order(
    machine: Machine,
) -> None:
    machine.create("a", retry=AT_ONCE)
    machine.trigger("a")
    [lease] = machine.grant()
    failed = worker_pb2.Result(run=lease.run, token=lease.token, failure=worker_pb2.Failure())

    machine.do_all(Report("w1", (failed,)), Grant((Offer("w2", 1),), 1))

    assert told(machine) == ["RUN_RETRYING", "RUN_LEASED"]


def test_a_dead_letter_and_its_requeuing_are_told_and_its_editing_is_not(
    machine: Machine,
) -> None:
    machine.create("a", retry=NO_RETRY)
    run = machine.trigger("a").id
    assert told(machine) == ["RUN_FIRED"]
    machine.fail(machine.grant()[0])
    assert told(machine) == ["RUN_FAILED"]

    payload = common_pb2.Payload(data=b"better")
    machine.do(dead_letter_pb2.EditDeadLetterRequest(run=run, payload=payload))
    assert told(machine) == []
    machine.do(dead_letter_pb2.RequeueDeadLetterRequest(run=run))
    assert told(machine) == ["RUN_REQUEUED"]
    machine.do(run_pb2.CancelRunRequest(run=run))
    assert told(machine) == ["RUN_CANCELLED"]


def test_a_scheduled_time_that_became_no_run_is_told_with_its_outcome(machine: Machine) -> None:
    machine.create("a", cron="0 * * * *")
    machine.at("2026-01-01T01:00")
    machine.fire()
    machine.at("2026-01-01T02:00")
    machine.fire()

    assert told(machine) == ["FIRED_NOT"]
    assert last(machine).ledger.outcome == run_pb2.OUTCOME_SKIPPED_OVERLAP
    assert last(machine).ledger.scheduled_time == timestamp(instant("2026-01-01T02:00"))


@pytest.mark.parametrize(("hour", "begins"), [(1, 2), (12, 1)])
def test_a_stretch_is_told_once_though_a_backfill_takes_from_it(
    machine: Machine, hour: int, begins: int
) -> None:
    misfire = job_pb2.MisfirePolicy(rule=job_pb2.MisfirePolicy.RULE_SKIP)
    machine.create("a", cron="0 * * * *", misfire=misfire)
    machine.at("2026-01-02T00:30")
    machine.fire()
    assert told(machine) == ["FIRED_NOT"]
    assert last(machine).ledger.count == 24
    backfill = job_pb2.BackfillJobRequest(
        job="a",
        from_time=timestamp(START_MS + hour * HOUR_MS),
        to_time=timestamp(START_MS + (hour + 1) * HOUR_MS),
    )
    machine.do(backfill)

    machine.advance(1)
    machine.fire()

    assert told(machine) == ["RUN_FIRED"]
    assert machine.ledger("a")[START_MS + begins * HOUR_MS].count == 23


def test_a_run_that_a_policy_ends_is_told_as_skipped_alone(machine: Machine) -> None:
    misfire = job_pb2.MisfirePolicy(start_deadline=duration(MINUTE_MS))
    machine.create("a", cron="0 * * * *", misfire=misfire)
    machine.at("2026-01-01T01:00")
    machine.fire()
    machine.advance(MINUTE_MS)
    machine.fire()

    assert told(machine) == ["RUN_SKIPPED"]


def test_a_job_that_is_finished_is_told_once(machine: Machine) -> None:
    machine.create("a", once="2026-01-01T01:00")
    machine.at("2026-01-01T01:00")
    machine.fire()
    assert told(machine) == ["RUN_FIRED", "JOB_FINISHED"]

    [lease] = machine.grant()
    assert told(machine) == ["RUN_LEASED"]
    machine.succeed(lease)
    assert told(machine) == ["RUN_SUCCEEDED"]


def test_a_queue_is_told_when_its_settings_change_and_not_when_it_is_used(
    machine: Machine,
) -> None:
    other = namespace_pb2.Namespace(name="other")
    machine.do(namespace_pb2.CreateNamespaceRequest(namespace=other))
    machine.create("a", namespace="other")
    queue = queue_pb2.Queue(namespace="other", name="default", concurrency=3)

    machine.do(queue_pb2.UpdateQueueRequest(queue=queue))

    assert told(machine) == ["QUEUE_CHANGED"]
    assert (last(machine).namespace, last(machine).queue.concurrency) == ("other", 3)
    machine.do(job_pb2.TriggerJobRequest(namespace="other", job="a"))
    machine.grant(namespaces=("other",))
    assert told(machine) == ["RUN_LEASED"]


def test_a_wave_tells_of_its_runs(machine: Machine) -> None:
    machine.create("a")
    machine.create("b", after=["a"])
    machine.trigger("a")
    [lease] = machine.grant()

    machine.succeed(lease)

    assert sorted(told(machine)) == ["RUN_FIRED", "RUN_SUCCEEDED"]
    [lease] = machine.grant()
    machine.succeed(lease)
    assert told(machine) == ["RUN_SUCCEEDED", "FLOW_ENDED"]
    assert last(machine).flow == lease.flow


def test_a_wave_that_is_stuck_is_told_when_it_is_so(machine: Machine) -> None:
    machine.create("a")
    machine.create("never", after=["a"])
    machine.create("b", after=["a", "never"])
    machine.do(cut_off("never"))
    flow = machine.trigger("a").flow
    machine.succeed(machine.grant()[0])
    machine.advance(DAY_MS)

    machine.fire()

    assert told(machine) == ["FLOW_STUCK"]
    assert last(machine).flow == flow


def test_a_calendar_that_changes_is_told(machine: Machine) -> None:
    calendar = calendar_pb2.Calendar(name="off", rules=[calendar_pb2.CalendarRule(weekday=7)])
    machine.do(calendar_pb2.CreateCalendarRequest(calendar=calendar))
    assert told(machine) == ["CALENDAR_CHANGED"]
    machine.do(calendar_pb2.UpdateCalendarRequest(calendar=calendar))
    assert told(machine) == ["CALENDAR_CHANGED"]
    machine.do(calendar_pb2.DeleteCalendarRequest(calendar="off"))
    assert told(machine) == ["CALENDAR_CHANGED"]
    assert (last(machine).namespace, last(machine).calendar) == ("default", "off")


def test_an_added_occurrence_is_told_as_fired(machine: Machine) -> None:
    machine.create("a", cron="0 12 * * *")
    edit = schedule_pb2.OccurrenceEdit(
        scheduled_time=timestamp(instant("2026-01-01T03:00")),
        kind=schedule_pb2.OccurrenceEdit.KIND_ADD,
    )
    machine.do(job_pb2.EditOccurrenceRequest(job="a", edit=edit))
    machine.at("2026-01-01T03:00")

    machine.fire()

    assert told(machine) == ["RUN_FIRED"]


def test_events_count_their_place_in_the_change(machine: Machine) -> None:
    for name in ("a", "b", "c"):
        machine.create(name, cron="0 * * * *")
    machine.at("2026-01-01T01:00")
    machine.do(FireTimers(10))

    found = events(machine.log[-1], machine.index, machine.store)

    assert [event.revision.change for event in found] == [4, 4, 4]
    assert [event.revision.position for event in found] == [0, 1, 2]


def test_a_job_that_is_gone_is_called_deleted(machine: Machine) -> None:
    machine.create("a", cron="0 * * * *")
    machine.at("2026-01-01T01:00")
    machine.fire()
    fired, index = machine.log[-1], machine.index
    machine.do(job_pb2.DeleteJobRequest(job="a"))
    for _ in range(5):
        machine.advance(1)
        machine.fire()

    [event] = events(fired, index, machine.store)

    assert event.kind == event_pb2.EVENT_KIND_RUN_FIRED
    assert (event.namespace, event.job) == ("default", "deleted")


def test_two_nodes_tell_a_long_history_alike() -> None:
    first, second = Machine(MemoryStore()), Machine(MemoryStore())
    build(first)
    build(second)

    stories = [
        [event.SerializeToString() for event in events(change, place + 1, machine.store)]
        for machine in (first, second)
        for place, change in enumerate(machine.log)
    ]

    assert stories[: len(first.log)] == stories[len(first.log) :]
    kinds = {
        event.kind
        for place, change in enumerate(first.log)
        for event in events(change, place + 1, first.store)
    }
    assert len(kinds) >= 10


def test_every_run_of_a_long_history_is_fired_once_and_ends_at_most_once() -> None:
    machine = Machine(MemoryStore())
    build(machine)
    fired: list[str] = []
    ended: list[str] = []
    leased = 0
    for place, change in enumerate(machine.log):
        for event in events(change, place + 1, machine.store):
            fired += [event.run.id] * (event.kind == event_pb2.EVENT_KIND_RUN_FIRED)
            ended += [event.run.id] * (event.kind in module.ENDS.values())
            leased += event.kind == event_pb2.EVENT_KIND_RUN_LEASED

    assert len(fired) == len(set(fired))
    assert len(ended) == len(set(ended))
    assert set(ended) <= set(fired)
    assert leased == machine.view().meta.token


def test_a_watcher_is_told_what_it_asked_for(machine: Machine) -> None:
    machine.create("report-a", cron="0 * * * *")
    machine.at("2026-01-01T01:00")
    machine.fire()
    event = last(machine)

    assert fits(event, "", parse_filter(""))
    assert fits(event, "default", parse_filter("job=report-* AND kind=RUN_FIRED"))
    assert fits(event, "default", parse_filter(f"run={event.run.id} AND queue=default"))
    assert not fits(event, "other", parse_filter(""))
    assert not fits(event, "", parse_filter("kind=RUN_LEASED"))


def test_a_filter_with_an_unknown_kind_is_refused() -> None:
    with pytest.raises(Refused, match="'NONSENSE' is no kind; there are JOB_CREATED, "):
        parse_filter("kind=NONSENSE")

    assert parse_filter("kind=RUN_*")


def test_a_filter_with_an_unknown_field_is_refused() -> None:
    with pytest.raises(Refused) as refused:
        parse_filter("color=red")

    assert refused.value.rejection.reason == Reason.ERROR_REASON_FILTER_INVALID


def test_a_change_of_an_unknown_format_is_refused_loudly(machine: Machine) -> None:
    change = Change(format=2)

    with pytest.raises(UnknownFormat, match="format 2"):
        events(encode(change), 1, machine.store)


def test_a_run_of_a_namespace_that_was_made_again_is_told_without_names(machine: Machine) -> None:
    green = namespace_pb2.CreateNamespaceRequest(namespace=namespace_pb2.Namespace(name="green"))
    machine.do(green)
    machine.create("a", namespace="green", queue="secret")
    machine.trigger("a", namespace="green")
    [lease] = machine.grant(namespaces=("green",), queues=("secret",))
    machine.do(job_pb2.DeleteJobRequest(namespace="green", job="a"))
    machine.fire()
    machine.lapse("w1")
    machine.advance(HOUR_MS)
    while machine.fire():
        pass
    machine.do(namespace_pb2.DeleteNamespaceRequest(namespace="green"))
    while machine.fire():
        pass
    past = len(machine.log)
    machine.do(green)
    machine.create("b", namespace="green", queue="other")
    machine.trigger("b", namespace="green")

    found = story(machine, machine.store)
    before = [event for event in found if event.revision.change <= past]
    runs = [event for event in before if event.run.id]
    assert {event.run.token for event in runs} >= {lease.token}
    assert {(event.job, event.namespace, event.run.queue) for event in runs} == {
        ("deleted", "", "")
    }
    assert [event.run.queue for event in found if event.job == "b" and event.run.id] == ["other"]


def test_a_queue_that_was_changed_is_told_when_its_namespace_is_gone(machine: Machine) -> None:
    green = namespace_pb2.CreateNamespaceRequest(namespace=namespace_pb2.Namespace(name="green"))
    machine.do(green)
    queue = queue_pb2.Queue(namespace="green", name="mail", concurrency=7)
    machine.do(queue_pb2.UpdateQueueRequest(queue=queue))
    machine.do(namespace_pb2.DeleteNamespaceRequest(namespace="green"))
    machine.do(green)

    [event] = story(machine, machine.store)
    assert event.kind == event_pb2.EVENT_KIND_QUEUE_CHANGED
    assert event.queue == queue_pb2.Queue(namespace="green", name="mail")


def test_every_change_is_told_when_all_that_it_names_is_gone(machine: Machine) -> None:
    """Whatever is looked up for an event, a watcher may begin so far back that it is gone."""
    build(machine)

    whole, bare = story(machine, machine.store), story(machine, MemoryStore())

    assert len({event.kind for event in bare}) >= 10
    assert steps(bare) == steps(whole)


def story(machine: Machine, lookup: Reading) -> list[event_pb2.Event]:
    """The events of all changes, looked up in one state."""
    return [
        event
        for place, change in enumerate(machine.log)
        for event in events(change, place + 1, lookup)
    ]


def steps(found: list[event_pb2.Event]) -> list[tuple[int, int, int]]:
    return [(event.revision.change, event.kind, event.run.token) for event in found]


def test_a_job_that_has_nothing_ahead_after_a_revert_is_finished(machine: Machine) -> None:
    machine.create("a", once="2026-01-01T00:10")
    at = timestamp(machine.now_ms + 2 * HOUR_MS)
    edit = schedule_pb2.OccurrenceEdit(kind=schedule_pb2.OccurrenceEdit.KIND_ADD, scheduled_time=at)
    machine.do(job_pb2.EditOccurrenceRequest(job="a", edit=edit))
    machine.at("2026-01-01T00:10")
    machine.fire()

    machine.do(job_pb2.RevertOccurrenceRequest(job="a", scheduled_time=at))

    assert [event.kind for event in events(machine.log[-1], machine.index, machine.store)] == [
        event_pb2.EVENT_KIND_JOB_FINISHED
    ]
    assert machine.job("a").status.state == job_pb2.JobStatus.STATE_FINISHED


def test_a_run_that_is_made_and_gives_way_within_a_change_is_told_twice(machine: Machine) -> None:
    machine.create("a", overlap=Overlap(rule=Overlap.RULE_REPLACE))
    machine.do_all(*(job_pb2.TriggerJobRequest(job="a") for _ in range(15)))

    kinds = told(machine)
    found = events(machine.log[-1], machine.index, machine.store)
    fired = [event.run.id for event in found if event.kind == event_pb2.EVENT_KIND_RUN_FIRED]

    assert len(fired) == len(set(fired)) == 15
    assert kinds.count("RUN_FIRED") + kinds.count("RUN_CANCELLED") == 29
