"""What was changed by hand, when it ran before its time or the schedules change; and what a
backfill takes out of a stretch."""

from __future__ import annotations

import pytest

from raftsched.proto.v1 import job_pb2, run_pb2, schedule_pb2
from raftsched.statemachine.core.instants import timestamp

from .asking import ask
from .driver import Machine, instant, job_of, with_mask
from .world import ALLOW

Edit = schedule_pb2.OccurrenceEdit
MOVE, SKIP, ADD = Edit.KIND_MOVE, Edit.KIND_SKIP, Edit.KIND_ADD
DAY = "2026-01-01T"


def request(
    kind: Edit.Kind.ValueType, scheduled: str, moved: str = ""
) -> job_pb2.EditOccurrenceRequest:
    edit = Edit(kind=kind, scheduled_time=timestamp(instant(DAY + scheduled)))
    if moved:
        edit.moved_to.CopyFrom(timestamp(instant(DAY + moved)))
    return job_pb2.EditOccurrenceRequest(job="a", edit=edit)


def reschedule(cron: str, *, trial: bool = False) -> job_pb2.UpdateJobRequest:
    update = with_mask("spec.schedules", name="a", schedules=job_of("a", cron=cron).spec.schedules)
    update.validate_only = trial
    return update


def outcomes(machine: Machine) -> dict[str, str]:
    found = {}
    for at_ms, entry in sorted(machine.ledger("a").items()):
        at = timestamp(at_ms).ToDatetime().strftime("%H:%M")
        found[at] = run_pb2.Outcome.Name(entry.outcome)[8:]
    return found


def audit(machine: Machine) -> job_pb2.AuditJobResponse:
    return ask(machine, job_pb2.AuditJobRequest(job="a"), job_pb2.AuditJobResponse)


@pytest.mark.parametrize("kind", [SKIP, MOVE])
def test_what_ran_before_its_time_cannot_be_changed(
    machine: Machine, kind: Edit.Kind.ValueType
) -> None:
    machine.create("a", cron="0 15 * * *", overlap=ALLOW)
    machine.do(request(MOVE, "15:00", "00:10"))
    machine.at(DAY + "00:10")
    machine.fire()
    [run] = machine.live("a")

    refusal = machine.refused(request(kind, "15:00", "16:00" if kind == MOVE else ""))

    assert (refusal.word, refusal.values["field"]) == ("FIELD_INVALID", "edit.scheduled_time")
    assert run.id in refusal.message


def test_a_move_of_a_time_that_the_new_schedules_do_not_name_is_missed(machine: Machine) -> None:
    machine.create("a", cron="0 15 * * *")
    machine.do(request(MOVE, "15:00", "16:00"))

    shown = machine.ask(reschedule("0 18 * * *", trial=True), job_pb2.Job).status.warnings
    done = machine.ask(reschedule("0 18 * * *"), job_pb2.Job).status

    assert list(shown) == list(done.warnings)
    [warning] = shown
    assert "15:00" in warning
    assert "MISSED" in warning
    assert not done.edits
    machine.at(DAY + "18:00")
    machine.fire()
    assert outcomes(machine) == {"15:00": "MISSED", "18:00": "RAN"}
    assert audit(machine).sound
    machine.check()


def test_a_time_that_the_schedules_name_again_runs(machine: Machine) -> None:
    machine.create("a", cron="0 15 * * *")
    machine.do(request(MOVE, "15:00", "16:00"))
    machine.do(reschedule("0 18 * * *"))

    machine.do(reschedule("0 15 * * *"))
    machine.at(DAY + "15:00")
    machine.fire()

    assert outcomes(machine) == {"15:00": "RAN"}
    assert (machine.state("a").fired, machine.state("a").skipped) == (1, 0)
    assert audit(machine).sound
    machine.check()


def test_a_time_that_is_named_again_and_missed_has_one_outcome(machine: Machine) -> None:
    misfire = job_pb2.MisfirePolicy(rule=job_pb2.MisfirePolicy.RULE_SKIP)
    machine.create("a", cron="0 * * * *", misfire=misfire)
    machine.do(request(MOVE, "04:00", "04:20"))
    machine.do(reschedule("30 * * * *"))
    machine.do(reschedule("0 * * * *"))
    machine.do(job_pb2.PauseJobRequest(job="a"))
    machine.at(DAY + "06:10")

    machine.do(job_pb2.ResumeJobRequest(job="a"))
    machine.fire_all()

    assert outcomes(machine) == {"01:00": "MISSED"}
    [missed] = audit(machine).outcomes
    assert missed.count == machine.state("a").fired == machine.state("a").skipped == 6
    machine.check()


def test_what_was_changed_and_is_named_still_and_what_was_added_stays(machine: Machine) -> None:
    machine.create("a", cron="0 9,15 * * *")
    machine.do(request(MOVE, "15:00", "16:00"))
    machine.do(request(SKIP, "09:00"))
    machine.do(request(ADD, "10:30"))

    shown = machine.ask(reschedule("0 12,15 * * *"), job_pb2.Job).status

    assert len(shown.edits) == 2
    assert ["09:00" in warning for warning in shown.warnings] == [True]


def test_a_backfill_takes_no_foreign_times_out_of_a_stretch(machine: Machine) -> None:
    """Those that other schedules would have had were no part of what was missed."""
    misfire = job_pb2.MisfirePolicy(rule=job_pb2.MisfirePolicy.RULE_SKIP)
    machine.create("a", cron="0 1-4 * * *", overlap=ALLOW, misfire=misfire)
    machine.at(DAY + "05:30")
    machine.fire()
    machine.do(reschedule("*/30 * * * *"))
    end = timestamp(instant(DAY + "05:30"))
    machine.do(job_pb2.BackfillJobRequest(
        job="a", from_time=timestamp(instant(DAY + "01:00")), to_time=end, runs_per_minute=60_000,
    ))  # fmt: skip

    machine.at(DAY + "05:35")
    machine.fire_all()

    found = machine.ledger("a")
    [(first, count)] = [(at, one.count) for at, one in found.items() if one.last_at_ms]
    # Of the four the first and the last are known to be among them.
    assert count == 2
    assert first <= instant(DAY + "02:00")
    machine.check()
    assert sum(one.outcome == run_pb2.OUTCOME_LATE for one in found.values()) == 9
