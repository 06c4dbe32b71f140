"""A small world with some of everything in it: jobs of all kinds, and runs in every state."""

from __future__ import annotations

from raftsched.proto.v1 import (
    access_pb2,
    alert_pb2,
    calendar_pb2,
    common_pb2,
    job_pb2,
    namespace_pb2,
    options_pb2,
    queue_pb2,
    run_pb2,
    schedule_pb2,
)
from raftsched.statemachine.core.instants import duration, timestamp
from raftsched.statemachine.model.request import CreateToken, Offer

from .driver import HOUR_MS, MINUTE_MS, Machine, job_of, with_mask

OTHER = "other"
TIGHT = "tight"
QUEUE_ONE = job_pb2.OverlapPolicy(rule=job_pb2.OverlapPolicy.RULE_QUEUE, limit=5)
ALLOW = job_pb2.OverlapPolicy(rule=job_pb2.OverlapPolicy.RULE_ALLOW)


def build(machine: Machine) -> None:
    """Two hours of a cluster's life; when it ends, something is under way everywhere."""
    _settings(machine)
    _jobs(machine)
    _first_hour(machine)
    _by_hand(machine)
    _second_hour(machine)


def _settings(machine: Machine) -> None:
    other = namespace_pb2.Namespace(name=OTHER, quota=namespace_pb2.Quota(leases=3, jobs=10))
    machine.do(namespace_pb2.CreateNamespaceRequest(namespace=other), actor="anna")
    tight = namespace_pb2.Namespace(name=TIGHT, quota=namespace_pb2.Quota(live_runs=1))
    machine.do(namespace_pb2.CreateNamespaceRequest(namespace=tight), actor="anna")
    holidays = calendar_pb2.Calendar(
        name="holidays", rules=[calendar_pb2.CalendarRule(date="2026-01-01")]
    )
    machine.do(calendar_pb2.CreateCalendarRequest(calendar=holidays))
    mail = queue_pb2.Queue(name="mail", concurrency=4, rate=10)
    machine.do(queue_pb2.UpdateQueueRequest(queue=mail))
    dead = alert_pb2.Alert(
        name="dead", namespace=OTHER, condition=alert_pb2.AlertCondition(dead_letters_above=1)
    )
    machine.do(alert_pb2.PutAlertRequest(alert=dead))
    for name in ("anna", "bert"):
        token = access_pb2.AccessToken(name=name, role=options_pb2.ROLE_EDITOR)
        asked = access_pb2.CreateAccessTokenRequest(access_token=token)
        machine.do(CreateToken(asked, name.encode().ljust(32)))


def _jobs(machine: Machine) -> None:
    create = machine.create
    create("minutely", cron="* * * * *", overlap=ALLOW, labels={"team": "a"}, owner="anna")
    create("hourly", cron="0 * * * *", queue="mail", priority=common_pb2.PRIORITY_HIGH)
    create("held", cron="*/20 * * * *", overlap=QUEUE_ONE)
    create("one-slot", cron="*/10 * * * *", overlap=ALLOW,
           concurrency=job_pb2.ConcurrencyLimit(job=1))  # fmt: skip
    for name in ("key-a", "key-b"):
        limit = job_pb2.ConcurrencyLimit(key="database", key_limit=1)
        create(name, cron="*/15 * * * *", overlap=ALLOW, concurrency=limit)
    create("holiday", cron="30 * * * *",
           timing=schedule_pb2.Timing(exclude_calendars=["holidays"]))  # fmt: skip
    create("after", after_end_ms=10 * MINUTE_MS)
    create("once", once="2026-01-01T00:30", payload=common_pb2.Payload(data=b"hello"))
    create("brief", once="2026-01-01T00:10", delete_after=duration(24 * HOUR_MS))
    create("picky", cron="0 * * * *", worker_labels={"gpu": "yes"},
           timeouts=job_pb2.Timeouts(run=duration(5 * HOUR_MS)))  # fmt: skip
    create("by-hand", queue="hands", overlap=ALLOW)
    create("root", cron="*/30 * * * *", queue="flow")
    create("left", after=["root"], queue="flow")
    create("right", after=["root"], queue="flow")
    create("join", after=["left", "right"], queue="flow")
    create("tenant", namespace=OTHER, cron="*/5 * * * *", overlap=ALLOW,
           payload=common_pb2.Payload(data=b"x" * 100))  # fmt: skip
    create("squeezed", namespace=TIGHT)
    create("doomed", cron="*/5 * * * *", retry=job_pb2.RetryPolicy(max_attempts=1))
    create("paused", cron="*/5 * * * *")
    machine.do(job_pb2.PauseJobRequest(job="paused", reason="repair",
                                       until=timestamp(machine.now_ms + 9 * HOUR_MS)))  # fmt: skip
    call = job_of("call")
    call.spec.action.http.url = "https://example.com/hook"
    call.spec.action.http.headers["authorization"] = "Bearer secret://api-key"
    machine.do(job_pb2.CreateJobRequest(job=call))


def _first_hour(machine: Machine) -> None:
    """Work as it should be, but for what fails."""
    for _ in range(12):
        machine.advance(5 * MINUTE_MS)
        machine.fire()
        for lease in machine.grant("w1", 20, queues=("default", "mail", "flow")):
            if lease.job == "doomed":
                machine.fail(lease, "Broken")
            elif lease.job == "hourly":
                machine.fail(lease, "Flaky")
            else:
                machine.succeed(lease, b"result")


def _by_hand(machine: Machine) -> None:
    machine.trigger("by-hand", unique=run_pb2.UniqueKey(key="k1", hold=duration(HOUR_MS)))
    [lease] = machine.grant("w1", 1, queues=("hands",))
    machine.succeed(lease)
    machine.trigger("by-hand", unique=run_pb2.UniqueKey(key="k2"))
    later = timestamp(machine.now_ms + 3 * HOUR_MS)
    machine.trigger("by-hand", due_time=later, request_id="r1", queue="mail")
    soon = timestamp(machine.now_ms + 10 * MINUTE_MS)
    for _ in range(2):
        machine.trigger("squeezed", namespace=TIGHT, due_time=soon)
    edit = schedule_pb2.OccurrenceEdit(
        scheduled_time=timestamp(machine.now_ms + 3 * HOUR_MS),
        kind=schedule_pb2.OccurrenceEdit.KIND_SKIP,
    )
    machine.do(job_pb2.EditOccurrenceRequest(job="hourly", edit=edit, request_id="r2"))
    machine.do(job_pb2.BackfillJobRequest(
        job="minutely", from_time=timestamp(machine.now_ms - 5 * HOUR_MS),
        to_time=timestamp(machine.now_ms - 4 * HOUR_MS), request_id="r3",
    ))  # fmt: skip


def _second_hour(machine: Machine) -> None:
    """Workers that take runs and keep them."""
    machine.advance(20 * MINUTE_MS)
    machine.fire()
    machine.offer(
        Offer("w1", 8, ("default", OTHER), ("default", "mail")),
        Offer("w2", 8, ("default", OTHER), ("default", "mail")),
    )
    machine.advance(40 * MINUTE_MS)
    machine.fire()
    for lease in machine.grant("w3", 6, queues=("default", "mail")):
        machine.note(lease, 1, 3, b"so far")
    for _ in range(2):
        for lease in machine.grant("w4", 20, queues=("flow",)):
            if lease.job != "right":
                machine.succeed(lease, b"wave")
    machine.advance(20 * MINUTE_MS)
    machine.fire()
    for data in (b"new", b"newer"):
        machine.do(with_mask("spec.payload", name="minutely",
                             payload=common_pb2.Payload(data=data)))  # fmt: skip
        machine.trigger("minutely")
    machine.grant("w2", 3, namespaces=(OTHER,))
