"""A job is paused when so many of its runs in a row have failed."""

from __future__ import annotations

import pytest

from raftsched.proto.v1 import dead_letter_pb2, event_pb2, job_pb2, run_pb2
from raftsched.statemachine.core.rejection import Reason
from raftsched.statemachine.model import keys
from raftsched.statemachine.reads import events

from .asking import ask
from .driver import DAY_MS, Machine, with_mask
from .world import ALLOW

NO_RETRY = job_pb2.RetryPolicy(max_attempts=1)
PAUSED = job_pb2.JobStatus.STATE_PAUSED
ACTIVE = job_pb2.JobStatus.STATE_ACTIVE


@pytest.fixture
def job(machine: Machine) -> Machine:
    machine.create("a", pause_on_failure=3, retry=NO_RETRY, overlap=ALLOW)
    return machine


def end(machine: Machine, word: str) -> None:
    """One run of the job that ends so: f(ailed), s(ucceeded), c(ancelled)."""
    run = machine.trigger("a", force=True)
    if word == "c":
        machine.do(run_pb2.CancelRunRequest(run=run.id))
        return
    [lease] = machine.grant()
    if word == "f":
        machine.fail(lease, kind="Broken")
    else:
        machine.succeed(lease)
    machine.check()


def state(machine: Machine) -> job_pb2.JobStatus.State.ValueType:
    return machine.job("a").status.state


def streaks(machine: Machine) -> list[bytes]:
    return [key for key, _ in machine.store.scan(keys.STREAK, keys.after(keys.STREAK))]


@pytest.mark.parametrize(
    ("ends", "paused"),
    [
        ("ff", False), ("fff", True), ("ffsff", False), ("ffcf", True), ("sfff", True),
        ("ffsfff", True), ("cccc", False), ("ssss", False),
    ],
)  # fmt: skip
def test_so_many_in_a_row_pause_the_job(job: Machine, ends: str, paused: bool) -> None:
    for word in ends:
        end(job, word)
    assert state(job) == (PAUSED if paused else ACTIVE)


def test_status_explain_audit_and_events_say_why(job: Machine) -> None:
    before = job.job("a")
    for _ in range(3):
        end(job, "f")

    after = job.job("a")
    assert after.status.pause_reason == (
        "3 runs in a row failed, the last one with Broken (pause_on_failure)"
    )
    assert after.version == before.version + 1
    why = ask(job, job_pb2.ExplainJobRequest(job="a"), run_pb2.Explanation)
    assert "by raftsched because of: 3 runs in a row failed" in why.obstacles[0].message
    found = list(events.events(job.log[-1], job.index, job.store))
    assert [event.kind for event in found] == [
        event_pb2.EVENT_KIND_JOB_PAUSED, event_pb2.EVENT_KIND_RUN_FAILED,
    ]  # fmt: skip
    assert found[0].message == after.status.pause_reason
    refused = job.refused(job_pb2.TriggerJobRequest(job="a"))
    assert refused.reason == Reason.ERROR_REASON_JOB_PAUSED


def test_a_resume_begins_again_and_failures_meanwhile_count_for_nothing(job: Machine) -> None:
    for _ in range(5):
        end(job, "f")
    job.do(job_pb2.ResumeJobRequest(job="a"))

    for _ in range(2):
        end(job, "f")
        assert state(job) == ACTIVE
    end(job, "f")
    assert state(job) == PAUSED


def test_retries_are_no_runs_and_a_requeued_run_counts_again(machine: Machine) -> None:
    retry = job_pb2.RetryPolicy(max_attempts=3)
    machine.create("a", pause_on_failure=2, retry=retry)
    run = machine.trigger("a")
    for _ in range(3):
        assert state(machine) == ACTIVE
        [lease] = machine.grant()
        machine.fail(lease)
        machine.advance(DAY_MS)
        machine.fire()
    assert state(machine) == ACTIVE
    machine.do(dead_letter_pb2.RequeueDeadLetterRequest(run=run.id))
    [lease] = machine.grant()
    machine.fail(lease, fatal=True)

    assert state(machine) == PAUSED


def test_scheduled_times_stop_and_the_misfire_policy_treats_them(machine: Machine) -> None:
    machine.create("a", cron="0 * * * *", pause_on_failure=1, retry=NO_RETRY)
    machine.at("2026-01-01T01:00")
    machine.fire()
    [lease] = machine.grant()
    machine.fail(lease)
    machine.at("2026-01-01T05:30")
    machine.fire()
    assert state(machine) == PAUSED
    assert not machine.live("a")

    machine.do(job_pb2.ResumeJobRequest(job="a"))
    machine.fire_all()
    assert len(machine.live("a")) == 1
    machine.check()


def test_nothing_is_kept_for_others_nor_longer_than_it_is_asked_for(job: Machine) -> None:
    job.create("b", retry=NO_RETRY)
    job.trigger("b")
    [lease] = job.grant()
    job.fail(lease)
    assert not streaks(job)

    end(job, "f")
    assert len(streaks(job)) == 1
    job.do(with_mask("spec.pause_on_failure", name="a"))
    assert not streaks(job)

    job.do(with_mask("spec.pause_on_failure", name="a", pause_on_failure=5))
    end(job, "f")
    job.do(job_pb2.DeleteJobRequest(job="a"))
    for _ in range(3):
        job.advance(1)
        job.fire_all()
    assert not streaks(job)
