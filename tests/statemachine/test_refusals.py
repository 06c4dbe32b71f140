"""Every refusal: its reason, its field, and that nothing was changed (`refused` looks at that)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.field_mask_pb2 import FieldMask
from google.protobuf.timestamp_pb2 import Timestamp

from raftsched.proto.v1 import (
    calendar_pb2,
    common_pb2,
    dead_letter_pb2,
    job_pb2,
    namespace_pb2,
    queue_pb2,
    run_pb2,
    schedule_pb2,
    worker_pb2,
)
from raftsched.statemachine.core.instants import duration, timestamp

from .driver import HOUR_MS, START_MS, Machine, job_of

Spec = job_pb2.JobSpec
Action = job_pb2.Action
Edit = schedule_pb2.OccurrenceEdit
LONG = "x" * 5_000
TOO_LONG_MS = Duration(seconds=12 * 366 * 86_400)
BAD_TIME = Timestamp(seconds=-5)
FAR = Timestamp(seconds=7_258_118_400)  # The first instant of the year 2200.

# What is wrong with a spec, the field that is named, and the reason.
SPECS: list[tuple[Spec, str, str]] = [
    (Spec(labels={"Bad Name": "x"}), "spec.labels[Bad Name]", "FIELD_INVALID"),
    (Spec(labels={"a": LONG}), "spec.labels[a]", "LIMIT_EXCEEDED"),
    (Spec(labels={f"l{n}": "" for n in range(33)}), "spec.labels", "LIMIT_EXCEEDED"),
    (Spec(worker_labels={f"l{n}": "" for n in range(9)}), "spec.worker_labels", "LIMIT_EXCEEDED"),
    (Spec(owner=LONG), "spec.owner", "LIMIT_EXCEEDED"),
    (Spec(description=LONG), "spec.description", "LIMIT_EXCEEDED"),
    (Spec(payload=common_pb2.Payload(data=b"x" * 65_537)), "spec.payload.data",
     "PAYLOAD_TOO_LARGE"),
    (Spec(payload=common_pb2.Payload(content_type=LONG)), "spec.payload.content_type",
     "LIMIT_EXCEEDED"),
    (Spec(queue="No"), "spec.queue", "FIELD_INVALID"),
    (Spec(priority=7), "spec.priority", "FIELD_INVALID"),  # type: ignore[arg-type]
    (Spec(delivery=7), "spec.delivery", "FIELD_INVALID"),  # type: ignore[arg-type]
    (Spec(keep_history=Duration()), "spec.keep_history", "FIELD_INVALID"),
    (Spec(delete_after=TOO_LONG_MS), "spec.delete_after", "FIELD_INVALID"),
    (Spec(pause_on_failure=-1), "spec.pause_on_failure", "FIELD_INVALID"),
    (Spec(pause_on_failure=1_001), "spec.pause_on_failure", "FIELD_INVALID"),
    (Spec(on_failure=job_pb2.OnFailure(job="Oh no")), "spec.on_failure.job", "FIELD_INVALID"),
    (Spec(action=job_pb2.Action(shell=job_pb2.ShellAction(argv=["a"], warning_exit_codes=[0]))),
     "spec.action.shell.warning_exit_codes", "FIELD_INVALID"),
    (Spec(action=job_pb2.Action(shell=job_pb2.ShellAction(argv=["a"], warning_exit_codes=[256]))),
     "spec.action.shell.warning_exit_codes", "FIELD_INVALID"),
    (Spec(action=job_pb2.Action(shell=job_pb2.ShellAction(
        argv=["a"], warning_exit_codes=range(1, 18)))),
     "spec.action.shell.warning_exit_codes", "LIMIT_EXCEEDED"),
    (Spec(misfire=job_pb2.MisfirePolicy(rule=9)), "spec.misfire.rule", "FIELD_INVALID"),  # type: ignore[arg-type]
    (Spec(misfire=job_pb2.MisfirePolicy(maximum=10_001)), "spec.misfire.maximum", "FIELD_INVALID"),
    (Spec(misfire=job_pb2.MisfirePolicy(start_deadline=Duration())),
     "spec.misfire.start_deadline", "FIELD_INVALID"),
    (Spec(overlap=job_pb2.OverlapPolicy(limit=-1)), "spec.overlap.limit", "FIELD_INVALID"),
    (Spec(retry=job_pb2.RetryPolicy(max_attempts=1_001)), "spec.retry.max_attempts",
     "FIELD_INVALID"),
    (Spec(retry=job_pb2.RetryPolicy(factor_percent=99)), "spec.retry.factor_percent",
     "FIELD_INVALID"),
    (Spec(retry=job_pb2.RetryPolicy(jitter_percent=101)), "spec.retry.jitter_percent",
     "FIELD_INVALID"),
    (Spec(retry=job_pb2.RetryPolicy(first=TOO_LONG_MS)), "spec.retry.first", "FIELD_INVALID"),
    (Spec(retry=job_pb2.RetryPolicy(fatal_kinds=["k"] * 33)), "spec.retry.fatal_kinds",
     "LIMIT_EXCEEDED"),
    (Spec(timeouts=job_pb2.Timeouts(attempt=Duration())), "spec.timeouts.attempt",
     "FIELD_INVALID"),
    (Spec(concurrency=job_pb2.ConcurrencyLimit(job=-1)), "spec.concurrency.job", "FIELD_INVALID"),
    (Spec(concurrency=job_pb2.ConcurrencyLimit(key="k")), "spec.concurrency.key_limit",
     "FIELD_INVALID"),
    (Spec(concurrency=job_pb2.ConcurrencyLimit(key_limit=1)), "spec.concurrency.key",
     "FIELD_REQUIRED"),
    (Spec(concurrency=job_pb2.ConcurrencyLimit(key="a\0", key_limit=1)), "spec.concurrency.key",
     "FIELD_INVALID"),
    (Spec(action=Action(handler="http")), "spec.action.handler", "FIELD_INVALID"),
    (Spec(action=Action(handler="No No")), "spec.action.handler", "FIELD_INVALID"),
    (Spec(action=Action(handler="no\0")), "spec.action.handler", "FIELD_INVALID"),
    (Spec(action=Action(handler="h" * 129)), "spec.action.handler", "LIMIT_EXCEEDED"),
    (Spec(action=Action(handler="")), "spec.action.handler", "FIELD_REQUIRED"),
    (Spec(action=Action()), "spec.action", "FIELD_REQUIRED"),
    *((Spec(action=Action(http=job_pb2.HttpAction(url=url))), "spec.action.http.url",
       "FIELD_INVALID") for url in ("http://", "http://:80/", "http://x:99999/")),
    (Spec(action=Action(http=job_pb2.HttpAction(url="ftp://x"))), "spec.action.http.url",
     "FIELD_INVALID"),
    *((Spec(action=Action(http=job_pb2.HttpAction(url=url, headers={name: value}))),
       f"spec.action.http.headers{place}", "FIELD_INVALID") for url, name, value, place in (
           ("http://x", "no name", "a", ""), ("http://x", "", "a", ""),
           ("http://x", "A", "a\r\nHost: b", "[A]"),
           ("http://me:pw@x/", "authorization", "a", ""), ("https://me@x", "Authorization", "", ""),
       )),
    *((Spec(action=Action(grpc=job_pb2.GrpcAction(
           target="h:1", method="p.S/M", metadata={key: value}))),
       f"spec.action.grpc.metadata{place}", "FIELD_INVALID") for key, value, place in (
           ("", "a", ""), ("a b", "a", ""), ("grpc-x", "a", ""), ("X-Bin", "a", ""),
           ("a", "\n", "[a]"), ("a", "\u00e9", "[a]"),
       )),
    (Spec(action=Action(grpc=job_pb2.GrpcAction(
        target="h:1", method="p.S/M", metadata={f"k{n}": "" for n in range(33)}))),
     "spec.action.grpc.metadata", "LIMIT_EXCEEDED"),
    *((Spec(action=Action(shell=job_pb2.ShellAction(argv=argv, environment=names))),
       f"spec.action.shell.{place}", "FIELD_INVALID") for argv, names, place in (
           (["a", "b\0"], {}, "argv"), (["a"], {"A": "\0"}, "environment"),
           (["a"], {"A=B": "c"}, "environment"), (["a"], {"": "c"}, "environment"),
       )),
    (Spec(action=Action(http=job_pb2.HttpAction(url="http://x", method="BREW"))),
     "spec.action.http.method", "FIELD_INVALID"),
    (Spec(action=Action(http=job_pb2.HttpAction(url="http://x", expected_statuses=[42]))),
     "spec.action.http.expected_statuses", "FIELD_INVALID"),
    (Spec(action=Action(grpc=job_pb2.GrpcAction(method="a.B/C"))), "spec.action.grpc.target",
     "FIELD_REQUIRED"),
    (Spec(action=Action(grpc=job_pb2.GrpcAction(target="h:1", method="C"))),
     "spec.action.grpc.method", "FIELD_INVALID"),
    (Spec(action=Action(shell=job_pb2.ShellAction())), "spec.action.shell.argv",
     "FIELD_REQUIRED"),
    (Spec(action=Action(shell=job_pb2.ShellAction(argv=["a", "b"], use_shell=True))),
     "spec.action.shell.argv", "FIELD_INVALID"),
    (Spec(action=Action(shell=job_pb2.ShellAction(argv=["x" * 70_000]))), "spec.action.shell",
     "LIMIT_EXCEEDED"),
    (Spec(upstream=job_pb2.Upstream(jobs=[job_pb2.Dependency(job="Bad")])),
     "spec.upstream.jobs[0].job", "FIELD_INVALID"),
    (Spec(upstream=job_pb2.Upstream(jobs=[job_pb2.Dependency(job="a")] * 2)),
     "spec.upstream.jobs[1].job", "FIELD_INVALID"),
    (Spec(upstream=job_pb2.Upstream(stuck_after=Duration())), "spec.upstream.stuck_after",
     "FIELD_INVALID"),
    (Spec(timing=schedule_pb2.Timing(max_runs=-1)), "spec.timing.max_runs", "FIELD_INVALID"),
    (Spec(timing=schedule_pb2.Timing(exclude_calendars=["none"])),
     "spec.timing.exclude_calendars[0]", "CALENDAR_NOT_FOUND"),
]  # fmt: skip


@pytest.mark.parametrize("name", ["Send.Email", "SendMail", "_send", "mail/send:v2", "h" * 128])
def test_a_handler_has_the_name_that_its_program_gives_it(machine: Machine, name: str) -> None:
    machine.create("a", handler=name)
    machine.trigger("a")

    assert machine.grant("w1", handlers=[name])[0].action.handler == name


@pytest.mark.parametrize(("spec", "field", "reason"), SPECS, ids=lambda value: str(value)[:40])
def test_a_wrong_spec_is_refused_by_field_and_reason(
    machine: Machine, spec: Spec, field: str, reason: str
) -> None:
    wanted = job_pb2.Job(name="a", spec=spec)
    if not spec.HasField("action"):
        wanted.spec.action.handler = "work"

    refusal = machine.refused(job_pb2.CreateJobRequest(job=wanted))

    assert [fault.field for fault in refusal.faults] == [field]
    assert refusal.word == reason


@pytest.mark.parametrize(("spec", "field", "reason"), SPECS, ids=lambda value: str(value)[:40])
def test_a_wrong_change_of_a_spec_is_refused_likewise(
    machine: Machine, spec: Spec, field: str, reason: str
) -> None:
    machine.create("a")

    refusal = machine.refused(job_pb2.UpdateJobRequest(job=job_pb2.Job(name="a", spec=spec)))

    assert [fault.field for fault in refusal.faults] == [field]
    assert refusal.word == reason


def stage(machine: Machine) -> None:
    """Some things to be refused about."""
    machine.create("a", cron="0 * * * *", overlap=job_pb2.OverlapPolicy(limit=1))
    machine.create("b", after=["a"])
    machine.trigger("a", unique=run_pb2.UniqueKey(key="k"))
    days = calendar_pb2.Calendar(name="days", rules=[calendar_pb2.CalendarRule(weekday=7)])
    machine.do(calendar_pb2.CreateCalendarRequest(calendar=days))
    machine.create("c", timing=schedule_pb2.Timing(exclude_calendars=["days"]), cron="0 0 * * *")
    machine.do(namespace_pb2.CreateNamespaceRequest(namespace=namespace_pb2.Namespace(name="full")))
    machine.create("x", namespace="full")


def edit(**fields: object) -> job_pb2.EditOccurrenceRequest:
    return job_pb2.EditOccurrenceRequest(job="a", edit=Edit(**fields))  # type: ignore[arg-type]


def ends(machine: Machine) -> run_pb2.Run:
    """A run that has ended."""
    run = machine.trigger("c", force=True)
    machine.do(run_pb2.TerminateRunRequest(run=run.id))
    return run


Ask = Callable[[Machine], object]
Namespace = namespace_pb2.Namespace
ASKED: list[tuple[str, Ask]] = [
    ("NAMESPACE_NOT_FOUND", lambda m: job_pb2.PauseJobRequest(namespace="no", job="a")),
    ("JOB_NOT_FOUND", lambda m: job_pb2.ResumeJobRequest(job="no")),
    ("JOB_EXISTS", lambda m: job_pb2.CreateJobRequest(job=job_of("a"))),
    ("CYCLE", lambda m: job_pb2.UpdateJobRequest(job=job_of("a", after=["b"]))),
    ("HAS_DEPENDENTS", lambda m: job_pb2.DeleteJobRequest(job="a")),
    ("OVERLAP_REFUSED", lambda m: job_pb2.TriggerJobRequest(
        job="a", if_running=job_pb2.TriggerJobRequest.IF_RUNNING_REFUSE)),
    ("UNIQUE_KEY_TAKEN", lambda m: job_pb2.TriggerJobRequest(
        job="a", unique=run_pb2.UniqueKey(key="k", policy=run_pb2.UniqueKey.POLICY_REJECT))),
    ("PAYLOAD_TOO_LARGE", lambda m: job_pb2.TriggerJobRequest(
        job="a", payload=common_pb2.Payload(data=b"x" * 65_537))),
    ("FIELD_INVALID", lambda m: job_pb2.TriggerJobRequest(job="a", due_time=BAD_TIME)),
    ("FIELD_INVALID", lambda m: job_pb2.TriggerJobRequest(job="a", due_time=FAR)),
    ("FIELD_INVALID", lambda m: job_pb2.PauseJobRequest(job="a", until=FAR)),
    ("FIELD_INVALID", lambda m: job_pb2.EditOccurrenceRequest(
        job="a", edit=Edit(scheduled_time=FAR, kind=Edit.KIND_ADD))),
    ("FIELD_INVALID", lambda m: job_pb2.EditOccurrenceRequest(
        job="a", edit=Edit(scheduled_time=timestamp(START_MS + HOUR_MS), kind=Edit.KIND_MOVE,
                           moved_to=FAR))),
    ("FIELD_INVALID", lambda m: job_pb2.TriggerJobRequest(job="a", queue="NO")),
    ("FIELD_INVALID", lambda m: job_pb2.PauseJobRequest(job="a", until=timestamp(START_MS))),
    ("LIMIT_EXCEEDED", lambda m: job_pb2.PauseJobRequest(job="a", reason=LONG)),
    ("LIMIT_EXCEEDED", lambda m: job_pb2.ImportJobsRequest(jobs=[job_of("z")] * 1_001)),
    ("LIMIT_EXCEEDED", lambda m: job_pb2.PauseJobRequest(job="a", request_id=LONG)),
    ("FIELD_INVALID", lambda m: job_pb2.BackfillJobRequest(
        job="a", from_time=timestamp(5), to_time=timestamp(START_MS * 2))),
    ("LIMIT_EXCEEDED", lambda m: job_pb2.BackfillJobRequest(
        job="a", from_time=timestamp(0), to_time=timestamp(START_MS))),
    ("FIELD_REQUIRED", lambda m: edit(scheduled_time=timestamp(START_MS + HOUR_MS))),
    ("FIELD_INVALID", lambda m: edit(scheduled_time=timestamp(5), kind=Edit.KIND_SKIP)),
    ("FIELD_INVALID", lambda m: edit(
        scheduled_time=timestamp(START_MS + HOUR_MS), kind=Edit.KIND_MOVE)),
    ("OCCURRENCE_NOT_FOUND", lambda m: edit(
        scheduled_time=timestamp(START_MS + 5), kind=Edit.KIND_SKIP)),
    ("FIELD_INVALID", lambda m: edit(
        scheduled_time=timestamp(START_MS + HOUR_MS), kind=Edit.KIND_ADD)),
    ("OCCURRENCE_NOT_FOUND", lambda m: job_pb2.RevertOccurrenceRequest(
        job="a", scheduled_time=timestamp(START_MS + HOUR_MS))),
    ("RUN_NOT_FOUND", lambda m: run_pb2.CancelRunRequest(run="a.1.5")),
    ("RUN_NOT_FOUND", lambda m: run_pb2.CancelRunRequest(run="what")),
    ("RUN_NOT_FOUND", lambda m: run_pb2.CancelRunRequest(run="a.1.-5")),
    ("RUN_NOT_FOUND", lambda m: run_pb2.CancelRunRequest(
        namespace="full", run=m.live("a")[0].id)),
    ("RUN_NOT_FOUND", lambda m: worker_pb2.ExtendRequest(run="what", token=1)),
    ("RUN_ENDED", lambda m: run_pb2.CancelRunRequest(run=ends(m).id)),
    ("RUN_ENDED", lambda m: run_pb2.TerminateRunRequest(run=ends(m).id)),
    ("FIELD_INVALID", lambda m: run_pb2.CancelRunRequest(
        run=m.live("a")[0].id, grace=TOO_LONG_MS)),
    ("LIMIT_EXCEEDED", lambda m: run_pb2.TerminateRunRequest(
        run=m.live("a")[0].id, reason=LONG)),
    ("NOT_RETRYING", lambda m: run_pb2.RetryRunRequest(run=m.live("a")[0].id)),
    ("DEAD_LETTER_NOT_FOUND", lambda m: dead_letter_pb2.EditDeadLetterRequest(run="a.1.5")),
    ("FILTER_INVALID", lambda m: dead_letter_pb2.PurgeDeadLettersRequest(filter="colour=red")),
    ("FILTER_INVALID", lambda m: dead_letter_pb2.PurgeDeadLettersRequest(filter="job=a AND")),
    ("FILTER_INVALID", lambda m: dead_letter_pb2.PurgeDeadLettersRequest(filter="job a")),
    ("FILTER_INVALID", lambda m: dead_letter_pb2.PurgeDeadLettersRequest(filter=LONG)),
    ("QUEUE_NOT_FOUND", lambda m: queue_pb2.PauseQueueRequest(queue="no")),
    ("LIMIT_EXCEEDED", lambda m: queue_pb2.PauseQueueRequest(queue="default", reason=LONG)),
    ("FIELD_INVALID", lambda m: queue_pb2.UpdateQueueRequest(
        queue=queue_pb2.Queue(name="default", rate=-1))),
    ("ETAG_MISMATCH", lambda m: queue_pb2.UpdateQueueRequest(
        queue=queue_pb2.Queue(name="default", rate=1, etag="v9"))),
    ("NAME_EXISTS", lambda m: namespace_pb2.CreateNamespaceRequest(
        namespace=Namespace(name="full"))),
    ("FIELD_REQUIRED", lambda m: namespace_pb2.CreateNamespaceRequest()),
    ("FIELD_INVALID", lambda m: namespace_pb2.CreateNamespaceRequest(
        namespace=Namespace(name="n", weight=1_001))),
    ("FIELD_INVALID", lambda m: namespace_pb2.UpdateNamespaceRequest(
        namespace=Namespace(name="full", keep_ledger=duration(5)))),
    ("ETAG_MISMATCH", lambda m: namespace_pb2.UpdateNamespaceRequest(
        namespace=Namespace(name="full", etag="v7"))),
    ("IN_USE", lambda m: namespace_pb2.DeleteNamespaceRequest(namespace="full")),
    ("IN_USE", lambda m: namespace_pb2.DeleteNamespaceRequest(namespace="default")),
    ("CALENDAR_NOT_FOUND", lambda m: calendar_pb2.DeleteCalendarRequest(calendar="no")),
    ("IN_USE", lambda m: calendar_pb2.DeleteCalendarRequest(calendar="days")),
    ("NAME_EXISTS", lambda m: calendar_pb2.CreateCalendarRequest(calendar=calendar_pb2.Calendar(
        name="days", rules=[calendar_pb2.CalendarRule(weekday=1)]))),
    ("FIELD_INVALID", lambda m: calendar_pb2.CreateCalendarRequest(calendar=calendar_pb2.Calendar(
        name="other", rules=[calendar_pb2.CalendarRule(weekday=8)]))),
    ("ETAG_MISMATCH", lambda m: calendar_pb2.UpdateCalendarRequest(
        calendar=calendar_pb2.Calendar(name="days", etag="v7"))),
    ("ETAG_MISMATCH", lambda m: calendar_pb2.DeleteCalendarRequest(calendar="days", etag="v7")),
    ("MASK_INVALID", lambda m: calendar_pb2.UpdateCalendarRequest(
        calendar=calendar_pb2.Calendar(name="days"), update_mask=FieldMask(paths=["jobs"]))),
    ("FIELD_REQUIRED", lambda m: calendar_pb2.UpdateCalendarRequest(
        calendar=calendar_pb2.Calendar(name="days"), update_mask=FieldMask(paths=["rules"]))),
]  # fmt: skip


@pytest.mark.parametrize(
    ("reason", "ask"), ASKED, ids=[f"{n}-{row[0]}" for n, row in enumerate(ASKED)]
)
def test_what_cannot_be_done_is_refused_with_its_reason(
    machine: Machine, reason: str, ask: Ask
) -> None:
    stage(machine)

    refusal = machine.refused(ask(machine))

    assert refusal.word == reason
    assert len(refusal.message) > 20


def test_a_missing_upstream_job_is_named_beside_other_faults(machine: Machine) -> None:
    upstream = job_pb2.Upstream(jobs=[job_pb2.Dependency(job="zz")])
    refusal = machine.refused(
        job_pb2.CreateJobRequest(job=job_of("u", owner=LONG, upstream=upstream))
    )

    assert [fault.field for fault in refusal.faults] == ["spec.owner", "spec.upstream.jobs"]
    assert refusal.word == "LIMIT_EXCEEDED"


def test_all_missing_upstream_jobs_are_named(machine: Machine) -> None:
    machine.create("there")
    wanted = job_of("u", after=["x", "there", "y"])
    refusal = machine.refused(job_pb2.CreateJobRequest(job=wanted))

    assert refusal.word == "JOB_NOT_FOUND"
    assert "there are no jobs 'x', 'y'; create them first" in refusal.message


def test_an_update_that_changes_nothing_leaves_version_and_etag(machine: Machine) -> None:
    made = machine.create("a", owner="o", cron="0 * * * *")
    same = job_pb2.Job(name="a", spec=Spec(owner="o"))
    for update in (
        job_pb2.UpdateJobRequest(job=same),
        job_pb2.UpdateJobRequest(job=same, update_mask=FieldMask(paths=["spec.owner"])),
        job_pb2.UpdateJobRequest(job=job_pb2.Job(name="a", spec=made.spec)),
    ):
        answer = machine.ask(update, job_pb2.Job)
        assert (answer.version, answer.etag) == (made.version, made.etag)
    same.spec.owner = "p"
    answer = machine.ask(job_pb2.UpdateJobRequest(job=same), job_pb2.Job)
    assert answer.version == made.version + 1


def test_an_emptied_namespace_can_be_deleted(machine: Machine) -> None:
    stage(machine)
    machine.do(job_pb2.DeleteJobRequest(namespace="full", job="x"))
    machine.fire()

    machine.do(namespace_pb2.DeleteNamespaceRequest(namespace="full"))

    gone = namespace_pb2.DeleteNamespaceRequest(namespace="full")
    assert machine.refused(gone).word == "NAMESPACE_NOT_FOUND"


def test_settings_of_a_namespace_and_a_calendar_can_be_changed(machine: Machine) -> None:
    stage(machine)
    settings = Namespace(name="full", quota=namespace_pb2.Quota(jobs=1), weight=7)
    changed = machine.ask(
        namespace_pb2.UpdateNamespaceRequest(namespace=settings), namespace_pb2.Namespace
    )
    days = calendar_pb2.Calendar(name="days", rules=[calendar_pb2.CalendarRule(weekday=6)])
    calendar = machine.ask(calendar_pb2.UpdateCalendarRequest(calendar=days), calendar_pb2.Calendar)

    assert (changed.quota.jobs, changed.weight, changed.etag) == (1, 7, "v2")
    assert (calendar.rules[0].weekday, calendar.jobs, calendar.etag) == (6, 1, "v2")
    over = job_pb2.CreateJobRequest(job=job_of("y", namespace="full"))
    assert machine.refused(over).word == "QUOTA_EXCEEDED"


@pytest.mark.parametrize("mask", [["rules"], []])
def test_a_calendar_keeps_the_settings_that_an_update_does_not_mean(
    machine: Machine, mask: list[str]
) -> None:
    kept = calendar_pb2.Calendar(
        name="off", description="Of the office", zone="Europe/Berlin",
        rules=[calendar_pb2.CalendarRule(weekday=7)],
    )  # fmt: skip
    machine.do(calendar_pb2.CreateCalendarRequest(calendar=kept))
    sent = calendar_pb2.Calendar(name="off", rules=[calendar_pb2.CalendarRule(weekday=6)])

    changed = machine.ask(
        calendar_pb2.UpdateCalendarRequest(calendar=sent, update_mask=FieldMask(paths=mask)),
        calendar_pb2.Calendar,
    )

    assert [rule.weekday for rule in changed.rules] == [6]
    assert (changed.description, changed.zone) == ("Of the office", "Europe/Berlin")


def test_a_calendar_can_be_described_anew_without_naming_its_days(machine: Machine) -> None:
    stage(machine)
    days = calendar_pb2.Calendar(name="days", description="Of the office")
    update = calendar_pb2.UpdateCalendarRequest(
        calendar=days, update_mask=FieldMask(paths=["description", "zone"])
    )

    changed = machine.ask(update, calendar_pb2.Calendar)

    assert (changed.description, len(changed.rules), changed.etag) == ("Of the office", 1, "v2")
