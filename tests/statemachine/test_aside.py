"""What fails is set aside with its job, and nothing else suffers from it."""

from __future__ import annotations

import pytest

from raftsched.proto.v1 import (
    alert_pb2,
    event_pb2,
    job_pb2,
    run_pb2,
    schedule_pb2,
    worker_pb2,
)
from raftsched.statemachine import rules
from raftsched.statemachine.calls import alerts, jobs
from raftsched.statemachine.core.field_fault import FieldFault
from raftsched.statemachine.core.rejection import Reason, Refused, Rejection
from raftsched.statemachine.firing import scheduled_time
from raftsched.statemachine.flows import waves
from raftsched.statemachine.machine import decide
from raftsched.statemachine.model import answers, keys
from raftsched.statemachine.model.entities import Job, Run
from raftsched.statemachine.model.record import NamespaceRecord
from raftsched.statemachine.model.request import (
    FireTimers,
    Lapse,
    MakeAlerts,
    Note,
    Observe,
    Report,
    Request,
    Resume,
    Resumed,
    WorkDone,
)
from raftsched.statemachine.model.view import View
from raftsched.statemachine.model.workers import WorkerCounts
from raftsched.statemachine.occurrences import next_time
from raftsched.statemachine.reads import events, explain, reads
from raftsched.statemachine.runs import move, reports, runs
from raftsched.statemachine.schedule import compiler
from raftsched.statemachine.tenants import namespaces, own_alerts

from .driver import MINUTE_MS, Machine

PENDING, RUNNING = run_pb2.RUN_STATE_PENDING, run_pb2.RUN_STATE_RUNNING

Status = job_pb2.JobStatus


def plant(monkeypatch: pytest.MonkeyPatch, where: object, name: str, job: str) -> None:
    """Let a function of the rules raise for one job, wherever that or a run of it is given."""
    genuine = getattr(where, name)

    def planted(view: View, *args: object, **more: object) -> object:
        given = [one.job if isinstance(one, Run) else one for one in args]
        if job in [one.definition.name for one in given if isinstance(one, Job)]:
            raise RuntimeError("planted")
        return genuine(view, *args, **more)

    monkeypatch.setattr(where, name, planted)


@pytest.fixture
def failing(machine: Machine) -> Machine:
    machine.failing = True
    return machine


def state_of(machine: Machine, name: str) -> int:
    return machine.state(name).state


def told(machine: Machine) -> list[event_pb2.Event]:
    return events.events(machine.log[-1], len(machine.log), machine.store)


def test_a_job_that_cannot_fire_is_set_aside_and_all_others_fire(
    failing: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = failing
    for name in ("a", "bad", "c"):
        machine.create(name, cron="* * * * *")
    plant(monkeypatch, scheduled_time, "fire", "bad")
    machine.advance(MINUTE_MS)

    assert machine.fire() == 3
    assert [failure.fate for failure in machine.failures] == ["set aside"]
    assert [len(machine.live(name)) for name in ("a", "bad", "c")] == [1, 0, 1]
    assert state_of(machine, "bad") == Status.STATE_BROKEN
    [broken] = [e for e in told(machine) if e.kind == event_pb2.EVENT_KIND_JOB_BROKEN]
    assert (broken.job, broken.message) == ("bad", "firing failed: RuntimeError: planted")
    # It costs nothing from then on.
    machine.advance(MINUTE_MS)
    assert machine.fire() == 2
    assert not machine.failures


def test_a_job_comes_back_and_its_misfire_policy_says_what_becomes_of_what_came_due(
    failing: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = failing
    machine.create("bad", cron="* * * * *")
    with monkeypatch.context() as planted:
        plant(planted, scheduled_time, "fire", "bad")
        machine.advance(MINUTE_MS)
        machine.fire()
    machine.advance(10 * MINUTE_MS)
    assert machine.fire() == 0

    repaired = machine.ask(job_pb2.RepairJobRequest(job="bad"), job_pb2.Job)

    assert repaired.status.state == Status.STATE_ACTIVE
    assert event_pb2.EVENT_KIND_JOB_REPAIRED in [event.kind for event in told(machine)]
    machine.fire()
    assert len(machine.live("bad")) == 1
    outcomes_of = {entry.outcome for entry in machine.ledger("bad").values()}
    assert outcomes_of == {run_pb2.OUTCOME_COALESCED, run_pb2.OUTCOME_RAN}


def forget_zone(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if this build's time zone data had no Berlin."""
    genuine = compiler.restore_plan

    def restored(shape: compiler.ScheduleShape, **more: object) -> object:
        if shape.rules.zone.name == "Europe/Berlin":
            reason = Reason.ERROR_REASON_ZONE_UNKNOWN
            return [FieldFault("timing.zone", reason, "Europe/Berlin", "there is no such zone")]
        return genuine(shape, **more)  # type: ignore[arg-type]  # As they came.

    monkeypatch.setattr(next_time, "restore_plan", restored)


def berlin(machine: Machine, name: str = "bad") -> None:
    timing = schedule_pb2.Timing(zone="Europe/Berlin")
    machine.create(name, cron="* * * * *", timing=timing)


def test_a_job_whose_zone_is_unknown_here_is_set_aside_with_a_reason_for_people(
    failing: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = failing
    berlin(machine)
    machine.create("good", cron="* * * * *")
    forget_zone(monkeypatch)
    machine.advance(MINUTE_MS)

    machine.fire()

    assert len(machine.live("good")) == 1
    view = machine.view()
    job = reads.read(view, job_pb2.GetJobRequest(job="bad"))
    assert isinstance(job, job_pb2.Job)
    assert job.status.broken_reason.startswith(
        "its schedule cannot be read here: zone Europe/Berlin is not in the time zone data 20"
    )
    # All reads answer.
    for request in (
        job_pb2.GetJobStatusRequest(job="bad"), job_pb2.ListJobsRequest(filter="state=BROKEN"),
        job_pb2.ForecastFiringsRequest(), job_pb2.ExplainJobRequest(job="bad"),
        job_pb2.ListJobLedgerRequest(job="bad"),
    ):  # fmt: skip
        assert not isinstance(reads.read(machine.view(), request), Rejection), request
    listed = reads.read(machine.view(), job_pb2.ListJobsRequest(filter="state=BROKEN"))
    assert isinstance(listed, job_pb2.ListJobsResponse)
    assert [one.name for one in listed.jobs] == ["bad"]
    explained = explain.explain_job(machine.view(), job_pb2.ExplainJobRequest(job="bad"), ())
    assert "was set aside at 2026-01-01 00:01:00 UTC: its schedule" in explained.summary
    for asked in (
        job_pb2.AuditJobRequest(job="bad"), job_pb2.PreviewScheduleRequest(job="bad"),
    ):  # fmt: skip
        refused = reads.read(machine.view(), asked)
        assert isinstance(refused, Rejection)
        assert refused.word == "JOB_BROKEN"
    # It cannot come back as it is, and says why; with another zone it can.
    assert machine.refused(job_pb2.RepairJobRequest(job="bad")).word == "JOB_BROKEN"
    assert machine.refused(job_pb2.TriggerJobRequest(job="bad")).word == "JOB_BROKEN"
    assert machine.refused(job_pb2.PauseJobRequest(job="bad")).word == "JOB_BROKEN"
    update = job_pb2.UpdateJobRequest(job=job_pb2.Job(name="bad"))
    update.job.spec.timing.zone = "Asia/Tokyo"
    machine.do(update)
    assert state_of(machine, "bad") == Status.STATE_ACTIVE
    machine.advance(MINUTE_MS)
    machine.fire()
    assert len(machine.live("bad")) == 1


def test_runs_of_a_broken_job_leave_their_lane_and_come_back_with_it(
    failing: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = failing
    machine.create("bad", cron="* * * * *", overlap={"rule": job_pb2.OverlapPolicy.RULE_ALLOW})
    machine.create("good")
    for _ in range(3):
        machine.advance(MINUTE_MS)
        machine.fire()
    with monkeypatch.context() as planted:
        plant(planted, scheduled_time, "fire", "bad")
        machine.advance(MINUTE_MS)
        machine.fire()
    machine.trigger("good")

    assert [lease.job for lease in machine.grant()] == ["good"]
    run = machine.live("bad")[0]
    explained = explain.explain_run(machine.view(), run_pb2.ExplainRunRequest(run=run.id), ())
    assert explained.obstacles[0].kind == run_pb2.Obstacle.KIND_JOB_BROKEN
    assert machine.grant() == []
    machine.do(job_pb2.RepairJobRequest(job="bad"))
    machine.fire()
    assert [lease.job for lease in machine.grant()] == ["bad"] * 4


def test_a_broken_job_can_be_deleted(failing: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = failing
    berlin(machine)
    forget_zone(monkeypatch)
    machine.advance(MINUTE_MS)
    machine.fire()

    machine.do(job_pb2.DeleteJobRequest(job="bad"))
    machine.fire()

    assert machine.refused(job_pb2.DeleteJobRequest(job="bad")).word == "JOB_NOT_FOUND"
    assert not list(machine.store.scan(keys.BROKEN, keys.after(keys.BROKEN)))


def test_a_result_that_cannot_be_taken_is_refused_and_the_others_are_taken(
    failing: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = failing
    for name in ("a", "bad", "c"):
        machine.create(name)
        machine.trigger(name)
    leases_ = machine.grant()
    plant(monkeypatch, runs, "end_as", "bad")
    results = tuple(
        worker_pb2.Result(run=lease.run, token=lease.token, success=worker_pb2.Success())
        for lease in leases_
    )

    acks = machine.do(Report("w1", results))

    assert isinstance(acks, list)
    assert [ack.reason for ack in acks] == ["", "RULE_FAILED", ""]
    assert state_of(machine, "bad") == Status.STATE_BROKEN
    assert [len(machine.live(name)) for name in ("a", "bad", "c")] == [0, 1, 0]


def test_a_progress_report_that_cannot_be_taken_is_refused(
    failing: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = failing
    for name in ("a", "bad"):
        machine.create(name)
        machine.trigger(name)
    held = machine.grant()
    genuine = reports._note_one

    def note(view: View, said: worker_pb2.ProgressReport) -> object:
        if said.run.startswith("bad"):
            raise RuntimeError("planted")
        return genuine(view, said)

    monkeypatch.setattr(reports, "_note_one", note)
    words = tuple(worker_pb2.ProgressReport(run=one.run, token=one.token) for one in held)

    acks = machine.do(Note("w1", words))

    assert isinstance(acks, list)
    assert [ack.reason for ack in acks] == ["", "RULE_FAILED"]


def test_a_downstream_job_that_cannot_begin_is_set_aside_and_its_upstream_ends(
    failing: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = failing
    machine.create("up")
    machine.create("bad", after=["up"])
    machine.create("good", after=["up"])
    machine.trigger("up")
    [lease] = machine.grant()
    genuine = move.move

    def begin(view: View, run: Run, to: int) -> None:
        if run.job.definition.name == "bad" and run.job.state.state != next_time.BROKEN:
            raise RuntimeError("planted")
        genuine(view, run, to)

    monkeypatch.setattr(waves, "move", begin)

    assert not machine.succeed(lease).reason
    assert state_of(machine, "bad") == Status.STATE_BROKEN
    assert state_of(machine, "up") == Status.STATE_ACTIVE
    assert len(machine.live("good")) == 1


@pytest.mark.parametrize("how", ["lapse", "resume"])
def test_a_lease_that_cannot_be_ended_keeps_no_other_from_its_end(
    failing: Machine, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    machine = failing
    for name in ("a", "bad", "c"):
        machine.create(name)
        machine.trigger(name)
    assert len(machine.grant()) == 3
    name = "attempt_failed" if how == "lapse" else "put_back"
    plant(monkeypatch, reports, name, "bad")

    if how == "lapse":
        replies = [machine.do(Lapse("w1", 100)) for _ in range(2)]
        assert replies[-1] == WorkDone(0, more=False)
    else:
        reply = machine.do(Resume("w1", {}, 100))
        assert isinstance(reply, Resumed)
        assert reply.rest is None
    states = [machine.live(name)[0].state for name in ("a", "bad", "c")]
    assert states == [PENDING, RUNNING, PENDING]
    assert state_of(machine, "bad") == Status.STATE_BROKEN


def test_a_run_that_cannot_be_leased_keeps_no_other_from_it(
    failing: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = failing
    for name in ("a", "bad", "c"):
        machine.create(name)
        machine.trigger(name)
    plant(monkeypatch, answers, "lease", "bad")

    assert [lease.job for lease in machine.grant()] == ["a", "c"]
    assert state_of(machine, "bad") == Status.STATE_BROKEN
    assert machine.grant() == []


def test_an_alert_that_cannot_be_looked_at_is_left_out(
    failing: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = failing
    for name in ("a", "bad", "c"):
        condition = alert_pb2.AlertCondition(no_margin=True)
        machine.do(alert_pb2.PutAlertRequest(alert=alert_pb2.Alert(name=name, condition=condition)))
    genuine = alerts._is_true

    def is_true(inputs: alerts.AlertInputs, number: int, settings: alert_pb2.Alert) -> bool:
        if settings.name == "bad":
            raise RuntimeError("planted")
        return genuine(inputs, number, settings)

    monkeypatch.setattr(alerts, "_is_true", is_true)

    machine.do(Observe(WorkerCounts(), margin=False, skew_ms=0, most=10))

    raised = {e.alert for e in told(machine) if e.kind == event_pb2.EVENT_KIND_ALERT_RAISED}
    assert raised == {"a", "c"}
    assert [failure.fate for failure in machine.failures] == ["left out"]


def test_a_call_that_fails_is_refused_with_a_story_and_its_neighbours_are_done(
    failing: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = failing

    def broken(view: View, request: object, actor: str) -> object:
        raise RuntimeError("planted")

    monkeypatch.setitem(rules.RULES, job_pb2.PauseJobRequest, broken)
    create = job_pb2.CreateJobRequest(job=job_pb2.Job(name="a"))
    create.job.spec.action.handler = "work"
    other = job_pb2.CreateJobRequest()
    other.CopyFrom(create)
    other.job.name = "b"

    first, refused, last = machine.do_all(create, job_pb2.PauseJobRequest(job="a"), other)

    assert isinstance(first, job_pb2.Job)
    assert isinstance(last, job_pb2.Job)
    assert isinstance(refused, Rejection)
    assert refused.word == "RULE_FAILED"
    assert "PauseJobRequest failed: RuntimeError: planted" in refused.message
    assert state_of(machine, "a") == state_of(machine, "b") == Status.STATE_ACTIVE


def test_a_refusal_after_a_touch_of_memory_leaves_nothing_behind(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.create("a")

    def touching(view: View, request: job_pb2.PauseJobRequest, actor: str) -> object:
        job = jobs.find(view, "", request.job)
        job.definition.name, job.state.live = "somebody else", 17
        namespace = namespaces.need(view, "")
        namespace.version = 99
        raise Refused.because(Reason.ERROR_REASON_JOB_PAUSED, "no")

    monkeypatch.setitem(rules.RULES, job_pb2.PauseJobRequest, touching)
    machine.refused(job_pb2.PauseJobRequest(job="a"))
    assert machine.trigger("a").job == "a"

    # Beside others in one decision, before and behind it.
    trigger = job_pb2.TriggerJobRequest(job="a")
    replies = machine.do_all(trigger, job_pb2.PauseJobRequest(job="a"), FireTimers(100))
    assert isinstance(replies[1], Rejection)
    assert machine.state("a").live <= 2
    assert machine.job("a").name == "a"
    record = machine.view().get(keys.NAMESPACE + b"default", NamespaceRecord)
    assert record is None or record.version != 99


def test_a_job_that_would_make_a_change_too_large_is_set_aside(
    failing: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = failing
    for name in ("a", "bad", "c"):
        machine.create(name, cron="* * * * *")
    genuine = scheduled_time.fire

    def fire(view: View, job: Job, *args: object) -> None:
        genuine(view, job, *args)  # type: ignore[arg-type]  # As they came.
        if job.definition.name == "bad":
            for run in view.runs.values():
                run.record.log_tail = bytes(7 << 20)

    monkeypatch.setattr(scheduled_time, "fire", fire)
    machine.advance(MINUTE_MS)

    machine.fire()

    assert [len(machine.live(name)) for name in ("a", "bad", "c")] == [1, 0, 1]
    assert state_of(machine, "bad") == Status.STATE_BROKEN


def test_many_broken_jobs_at_once_are_set_aside_in_bounded_changes(
    failing: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = failing
    for number in range(100):
        berlin(machine, f"bad{number}")
    machine.create("good", cron="* * * * *")
    forget_zone(monkeypatch)
    machine.advance(MINUTE_MS)
    changes = len(machine.log)

    machine.fire()

    assert len(machine.live("good")) == 1
    assert len(machine.log) - changes == 1
    assert {state_of(machine, f"bad{number}") for number in range(100)} == {Status.STATE_BROKEN}


def test_a_zone_that_a_member_lacks_is_refused_naming_it(machine: Machine) -> None:
    berlin(machine, "old")
    wanted = job_pb2.Job(name="new")
    wanted.spec.action.handler = "work"
    wanted.spec.timing.zone = "Europe/Berlin"
    other = job_pb2.Job(name="other")
    other.spec.action.handler = "work"
    view = machine.view()
    view.lacking = {"Europe/Berlin": "n2"}
    update = job_pb2.UpdateJobRequest(job=job_pb2.Job(name="old"))
    update.job.spec.description = "changed"
    requests = [
        Request(job_pb2.CreateJobRequest(job=wanted)),
        Request(job_pb2.CreateJobRequest(job=wanted, validate_only=True)),
        Request(update),
        Request(job_pb2.ImportJobsRequest(jobs=[wanted, other])),
    ]

    *refused, imported = decide(view, requests).replies

    for rejection in refused:
        assert isinstance(rejection, Rejection)
        assert rejection.word == "MEMBER_LACKS"
        assert rejection.values["member"] == "n2"
        assert rejection.values["lacks"] == "Europe/Berlin"
    assert isinstance(imported, job_pb2.ImportJobsResponse)
    assert [result.reason for result in imported.results] == ["MEMBER_LACKS", ""]


def test_what_comes_with_a_later_edition_is_made_beside_what_was_deleted(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def names() -> list[str]:
        listed = reads.read(machine.view(), alert_pb2.ListAlertsRequest())
        assert isinstance(listed, alert_pb2.ListAlertsResponse)
        return [alert.name for alert in listed.alerts]

    with monkeypatch.context() as former:
        first = {name: one for name, one in own_alerts.OWN_ALERTS.items()
                 if name not in own_alerts.SINCE}  # fmt: skip
        former.setattr(own_alerts, "OWN_ALERTS", first)
        former.setattr(own_alerts, "EDITION", 1)
        machine.do(MakeAlerts())
        assert names() == sorted(first)
    for name in first:
        machine.do(alert_pb2.DeleteAlertRequest(alert=name))

    machine.do(MakeAlerts())

    assert names() == ["dead-letters", "runs-wait"]
    machine.create("nobody-takes-it", handler="gone")
    machine.trigger("nobody-takes-it")
    quiet = Observe(WorkerCounts(), margin=True, skew_ms=0, most=10)
    machine.do(quiet)
    assert [one.alert for one in told(machine) if one.alert] == []
    machine.advance(own_alerts.LATENESS_MS + 1)
    machine.do(quiet)
    assert [one.alert for one in told(machine)] == ["runs-wait"]


def test_a_cluster_has_alerts_of_its_own_from_the_start_once(
    failing: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = failing
    mine = alert_pb2.Alert(name="long-steps", webhook="https://example.org/hook")
    mine.condition.no_margin = True
    machine.do(alert_pb2.PutAlertRequest(alert=mine))

    machine.do(MakeAlerts())

    listed = reads.read(machine.view(), alert_pb2.ListAlertsRequest())
    assert isinstance(listed, alert_pb2.ListAlertsResponse)
    assert [alert.name for alert in listed.alerts] == sorted(own_alerts.OWN_ALERTS)
    assert listed.alerts[3].condition.no_margin
    machine.do(alert_pb2.DeleteAlertRequest(alert="members-differ"))
    assert not machine.decide(MakeAlerts()).change
    # They are raised by what they are for.
    machine.create("bad", cron="* * * * *")
    plant(monkeypatch, scheduled_time, "fire", "bad")
    machine.advance(MINUTE_MS)
    machine.fire()
    seen = Observe(
        WorkerCounts(), margin=True, skew_ms=0, most=10, step_ms=1_001, leader_changes=6,
        set_aside=1, differ=True,
    )  # fmt: skip
    machine.do(seen)
    raised = {e.alert for e in told(machine) if e.kind == event_pb2.EVENT_KIND_ALERT_RAISED}
    assert raised == {"jobs-broken", "leader-changes", "work-set-aside"}
    machine.do(job_pb2.DeleteJobRequest(job="bad"))
    machine.do(Observe(WorkerCounts(), margin=True, skew_ms=0, most=10))
    cleared = {e.alert for e in told(machine) if e.kind == event_pb2.EVENT_KIND_ALERT_CLEARED}
    assert cleared == raised
