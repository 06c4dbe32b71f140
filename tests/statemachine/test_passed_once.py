"""A job that gets a single time that has passed runs it at once, as one that is created with it."""

from __future__ import annotations

import pytest

from raftsched.proto.v1 import job_pb2, run_pb2, schedule_pb2
from raftsched.statemachine.core.instants import duration, timestamp

from .asking import ask
from .driver import HOUR_MS, MINUTE_MS, START_MS, Machine, job_of, with_mask

PASSED = START_MS + HOUR_MS
NOW = START_MS + 2 * HOUR_MS
SKIP = job_pb2.MisfirePolicy(rule=job_pb2.MisfirePolicy.RULE_SKIP)


def gets(machine: Machine, *onces: int, **more: object) -> list[str]:
    """Give the job single times; what the answer says of them, which a trial says before."""
    spec = job_of("a", **more).spec  # type: ignore[arg-type]
    for at_ms in onces:
        spec.schedules.add().once.time.CopyFrom(timestamp(at_ms))
    update = with_mask("spec.schedules", name="a", schedules=spec.schedules)
    update.validate_only = True
    trial = machine.ask(update, job_pb2.Job)
    update.validate_only = False
    answer = machine.ask(update, job_pb2.Job)
    assert trial.status.warnings == answer.status.warnings
    return [text for text in answer.status.warnings if "passed" in text]


def stands(machine: Machine) -> list[tuple[int, str]]:
    audit = ask(machine, job_pb2.AuditJobRequest(job="a"), job_pb2.AuditJobResponse)
    assert audit.sound, audit
    machine.check()
    return [
        ((at_ms - START_MS) // MINUTE_MS, run_pb2.Outcome.Name(entry.outcome)[8:])
        for at_ms, entry in sorted(machine.ledger("a").items())
    ]


@pytest.mark.parametrize("misfire", [None, SKIP])
def test_it_runs_at_once(machine: Machine, misfire: job_pb2.MisfirePolicy | None) -> None:
    """It was acknowledged, never ran, and stood in no ledger."""
    machine.create("a", once=NOW + HOUR_MS, misfire=misfire)
    machine.at(NOW)

    said = gets(machine, PASSED, PASSED + MINUTE_MS, NOW + MINUTE_MS)
    machine.fire_all()
    for lease in machine.grant():
        machine.succeed(lease)
    machine.advance(MINUTE_MS)
    machine.fire_all()

    assert said == [
        "2026-01-01T01:00:00Z has passed: it runs at once",
        "2026-01-01T01:01:00Z has passed: it runs at once",
    ]
    # The default overlap policy lets one of them begin, the later one.
    assert stands(machine) == [(60, "COALESCED"), (61, "RAN"), (121, "RAN")]
    assert machine.job("a").status.state == job_pb2.JobStatus.STATE_FINISHED


def test_what_ran_does_not_run_again(machine: Machine) -> None:
    machine.create("a", once=PASSED)
    machine.at(PASSED)
    machine.fire_all()
    machine.at(NOW)

    kept = gets(machine, PASSED, cron="0 0 * * *")
    gone = gets(machine, NOW + HOUR_MS)
    again = gets(machine, PASSED)
    machine.fire_all()

    assert (kept, gone) == ([], [])
    assert again == [
        "2026-01-01T01:00:00Z has passed, and the job has decided on it already: it does not run "
        "again"
    ]
    assert stands(machine) == [(60, "RAN")]


def test_it_waits_for_the_resume_and_its_jitter_and_needs_a_place(machine: Machine) -> None:
    machine.create("a", once=NOW + HOUR_MS, timing=schedule_pb2.Timing(jitter=duration(HOUR_MS)))
    machine.at(PASSED + 1)
    [said] = gets(machine, PASSED)
    assert said.startswith("2026-01-01T01:00:00Z has passed: it runs at 2026-01-01T01:")
    machine.do(job_pb2.PauseJobRequest(job="a"))
    machine.at(NOW + HOUR_MS)
    [said] = gets(machine, PASSED, PASSED + MINUTE_MS)
    assert said.endswith(
        "01:01:00Z has passed: it runs after the resume, as its misfire policy says"
    )
    machine.fire_all()
    assert stands(machine) == []
    machine.do(job_pb2.ResumeJobRequest(job="a"))
    machine.fire_all()
    assert stands(machine)[-1][1] in ("LATE", "RAN")

    machine.do(with_mask("spec.timing", name="a", timing=schedule_pb2.Timing(max_runs=1)))
    [said] = gets(machine, PASSED + 2 * MINUTE_MS)
    assert said.endswith("has passed, and max_runs leaves no run for it: it does not run")
