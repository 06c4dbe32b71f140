"""An audit names what should have run and did not: the known mistakes of before (B1 to B6), each
played by the rules as they were, and entries that were written by hand."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from raftsched.proto.v1 import (
    calendar_pb2,
    dead_letter_pb2,
    job_pb2,
    namespace_pb2,
    run_pb2,
    schedule_pb2,
)
from raftsched.statemachine.core.instants import duration, timestamp, to_ms
from raftsched.statemachine.core.store import MemoryStore
from raftsched.statemachine.firing import catch_up, dispatch
from raftsched.statemachine.model import keys
from raftsched.statemachine.model.record import LedgerRecord, ProofRecord, RunRecord, encode, parse
from raftsched.statemachine.occurrences import misfire
from raftsched.statemachine.tenants import quota

from . import old_rules
from .asking import ask
from .driver import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS, Machine, instant, job_of
from .world import ALLOW

Misfire = job_pb2.MisfirePolicy
Edit = schedule_pb2.OccurrenceEdit
WRONG = job_pb2.AuditFinding.VERDICT_WRONG
UNJUDGED = job_pb2.AuditFinding.VERDICT_UNJUDGED
Found = list[tuple[str, str, str]]


@pytest.fixture
def machine() -> Machine:
    """One that may be broken."""
    return Machine(MemoryStore())


def audit(machine: Machine, **range_: int) -> job_pb2.AuditJobResponse:
    request = job_pb2.AuditJobRequest(job="a")
    if "first" in range_:
        request.from_time.CopyFrom(timestamp(range_["first"]))
    if "end" in range_:
        request.to_time.CopyFrom(timestamp(range_["end"]))
    return ask(machine, request, job_pb2.AuditJobResponse)


def name(outcome: run_pb2.Outcome.ValueType) -> str:
    return run_pb2.Outcome.Name(outcome).removeprefix("OUTCOME_")


def wrong(answer: job_pb2.AuditJobResponse) -> Found:
    """The first time, what stands there and what should, of each that is wrong."""
    assert answer.sound == (not answer.findings)
    assert all(one.reason for one in answer.findings)
    return [
        (one.scheduled_time.ToJsonString()[5:16], name(one.outcome), name(one.should))
        for one in answer.findings
        if one.verdict == WRONG
    ]


def missed(rule: Misfire.Rule.ValueType, maximum: int = 0, grace_ms: int | None = None) -> Misfire:
    grace = None if grace_ms is None else duration(grace_ms)
    return Misfire(rule=rule, maximum=maximum, grace=grace)


def weekdays(machine: Machine, policy: Misfire) -> None:
    """B1: at nine on working days; 2026-01-02 is a Friday."""
    rules = [calendar_pb2.CalendarRule(date=f"2026-01-0{day}") for day in (3, 4)]
    off = calendar_pb2.Calendar(name="off", rules=rules)
    machine.do(calendar_pb2.CreateCalendarRequest(calendar=off))
    machine.at("2026-01-01T12:00")
    machine.create("a", cron="0 9 * * *", misfire=policy, overlap=ALLOW,
                   timing=schedule_pb2.Timing(exclude_calendars=["off"]))  # fmt: skip


def play(machine: Machine, until: str, take: int = 100) -> None:
    """The outage ends; what catches up has all the time that it needs."""
    machine.at(until)
    for _ in range(5):
        machine.fire_all()
        for lease in machine.grant("w1", take):
            machine.succeed(lease)
        machine.advance(SECOND_MS)


B1 = [
    (missed(Misfire.RULE_LATEST), "2026-01-04T12:00", [("01-02T09:00", "COALESCED", "LATE")]),
    (missed(Misfire.RULE_ALL, 2), "2026-01-04T12:00", [("01-02T09:00", "MISSED", "LATE")]),
]


@pytest.mark.parametrize(("policy", "until", "named"), B1)
def test_a_day_off_stands_for_nobody(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, policy: Misfire, until: str, named: Found
) -> None:
    monkeypatch.setattr(misfire, "choose", old_rules.choose)
    weekdays(machine, policy)

    play(machine, until)

    assert [one for one in wrong(audit(machine)) if one[0] == "01-02T09:00"] == named


def test_the_earliest_is_one_that_may_run(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(misfire, "choose", old_rules.choose)
    weekdays(machine, missed(Misfire.RULE_EARLIEST))
    machine.at("2026-01-02T09:00")
    play(machine, "2026-01-02T10:00")

    play(machine, "2026-01-06T12:00")

    assert ("01-05T09:00", "COALESCED", "LATE") in wrong(audit(machine))


@pytest.mark.parametrize("until", ["2026-01-04T12:00", "2026-01-06T12:00"])
@pytest.mark.parametrize("rule", Misfire.Rule.values())
def test_what_the_rules_do_about_days_off_is_sound(
    machine: Machine, until: str, rule: Misfire.Rule.ValueType
) -> None:
    weekdays(machine, missed(rule, 2))

    play(machine, until)

    assert audit(machine).sound


def skip(machine: Machine, at: str) -> None:
    edit = Edit(scheduled_time=timestamp(instant(at)), kind=Edit.KIND_SKIP)
    machine.do(job_pb2.EditOccurrenceRequest(job="a", edit=edit))


@pytest.mark.parametrize("old", [True, False])
def test_one_that_was_skipped_by_hand_stands_for_nobody(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, old: bool
) -> None:
    """B2."""
    if old:
        monkeypatch.setattr(misfire, "choose", old_rules.choose)
    machine.create("a", cron="0 * * * *", misfire=missed(Misfire.RULE_LATEST), overlap=ALLOW)
    machine.at("2026-01-01T00:30")
    skip(machine, "2026-01-01T05:00")

    play(machine, "2026-01-01T05:30")

    named = [("01-01T04:00", "COALESCED", "LATE")] if old else []
    assert wrong(audit(machine)) == named


@pytest.mark.parametrize("old", [True, False])
def test_what_catches_up_waits_for_overlap(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, old: bool
) -> None:
    """B3."""
    if old:
        monkeypatch.setattr(catch_up, "_wait", old_rules.fire_at_once)
    machine.create("a", cron="* * * * *", misfire=missed(Misfire.RULE_LATEST, 0, 0))
    machine.at("2026-01-01T00:01")
    machine.fire()
    [lease] = machine.grant("w1")
    machine.do(job_pb2.PauseJobRequest(job="a"))
    machine.at("2026-01-01T01:00:30")
    machine.do(job_pb2.ResumeJobRequest(job="a"))
    machine.fire_all()

    found = wrong(audit(machine))

    machine.succeed(lease)
    assert found == ([("01-01T01:00", "SKIPPED_OVERLAP", "LATE")] if old else [])


def limited(machine: Machine, most: int) -> None:
    wanted = namespace_pb2.Namespace(name="default", quota=namespace_pb2.Quota(live_runs=most))
    machine.do(namespace_pb2.UpdateNamespaceRequest(namespace=wanted))
    machine.advance(1)


@pytest.mark.parametrize("old", [True, False])
def test_what_catches_up_waits_for_the_quota(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, old: bool
) -> None:
    """B4."""
    if old:
        monkeypatch.setattr(catch_up, "_wait", old_rules.fire_at_once)
    limited(machine, 10)
    machine.create("a", cron="* * * * *", misfire=missed(Misfire.RULE_ALL, 1_000), overlap=ALLOW)
    machine.at("2026-01-01T02:00:30")
    machine.fire_all()

    found = audit(machine)

    late = [one for one in found.findings if one.should == run_pb2.OUTCOME_LATE]
    assert sum(one.count for one in late) == (109 if old else 0)
    assert found.sound is not old


@pytest.mark.parametrize("old", [True, False])
def test_a_run_for_later_does_not_count_for_the_quota(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, old: bool
) -> None:
    """B5."""
    if old:
        monkeypatch.setattr(quota, "used", old_rules.used)
    limited(machine, 3)
    machine.create("a", cron="0 * * * *", overlap=ALLOW)
    for _ in range(3):
        later = timestamp(machine.now_ms + 30 * DAY_MS)
        machine.do_all(job_pb2.TriggerJobRequest(job="a", due_time=later))
    for hour in (1, 2):
        play(machine, f"2026-01-01T0{hour}:00")

    found = audit(machine)

    both = [("01-01T01:00", "SKIPPED_QUOTA", "RAN"), ("01-01T02:00", "SKIPPED_QUOTA", "RAN")]
    assert [one[1:] for one in wrong(found)] == ([both[0][1:]] if old else []) or (
        wrong(found) == both
    )
    assert found.wrong == (2 if old else 0)
    assert (found.requested, found.requested_under_way) == (3, 3)


@pytest.mark.parametrize("rule", [Misfire.RULE_LATEST, Misfire.RULE_EARLIEST])
@pytest.mark.parametrize("old", [True, False])
def test_what_is_late_by_no_more_than_the_grace_runs(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, old: bool, rule: Misfire.Rule.ValueType
) -> None:
    """B6."""
    if old:
        monkeypatch.setattr(misfire, "choose", old_rules.choose)
    machine.create("a", every_ms=SECOND_MS, misfire=missed(rule), overlap=ALLOW)
    machine.advance(62 * SECOND_MS)
    machine.fire_all()

    found = audit(machine)

    in_time = [one for one in found.findings if one.should == run_pb2.OUTCOME_RAN]
    # All but the one that ran.
    latest = rule == Misfire.RULE_LATEST
    assert sum(one.count for one in in_time) == ((60 if latest else 61) if old else 0)
    assert found.sound is not old


# Entries that were written by hand.


def entry(machine: Machine, at: str) -> LedgerRecord:
    return machine.ledger("a")[instant(at)]


def write(machine: Machine, at: str, record: LedgerRecord) -> None:
    key = keys.ledger(machine.jid("a"), instant(at))
    machine.store.write([(key, encode(record))], [])
    machine.forget()


def as_of(record: LedgerRecord, at: str) -> LedgerRecord:
    """The same of another time."""
    assert record.proof is not None
    return replace(record, proof=replace(record.proof, due_at_ms=instant(at)))


def hourly(machine: Machine, timing: schedule_pb2.Timing | None = None) -> None:
    """A job that ran at each hour."""
    machine.create("a", cron="0 * * * *", overlap=ALLOW, timing=timing)
    while machine.now_ms < instant("2026-01-01T06:00"):
        machine.advance(HOUR_MS)
        machine.fire_all()
        for lease in machine.grant("w1"):
            machine.succeed(lease)


def proved(machine: Machine, at: str, late_ms: int, outcome: str) -> None:
    """An entry that says that it was decided on so long after its time."""
    decided_ms = instant(at) + late_ms
    proof = ProofRecord(decided_ms, 7, instant(at))
    record = LedgerRecord(outcome=run_pb2.Outcome.Value(f"OUTCOME_{outcome}"), proof=proof)
    write(machine, at, record)


AT = "2026-01-01T03:00"
LIES = [
    ("MISSED", 10 * SECOND_MS, "RAN"),
    ("COALESCED", 10 * SECOND_MS, "RAN"),
    ("MISSED", HOUR_MS // 2, "COALESCED"),
    ("COALESCED", HOUR_MS // 2, "LATE"),
    ("SKIPPED_OVERLAP", 5, "RAN"),
    ("SKIPPED_OVERLAP", HOUR_MS // 2, "LATE"),
    ("SKIPPED_QUOTA", 5, "RAN"),
    ("SKIPPED_CALENDAR", 5, "RAN"),
    ("SKIPPED_MANUALLY", 5, "RAN"),
    ("SKIPPED_DEADLINE", 5, "RAN"),
]


@pytest.mark.parametrize(("outcome", "late_ms", "should"), LIES)
def test_an_outcome_that_is_not_true_is_named(
    machine: Machine, outcome: str, late_ms: int, should: str
) -> None:
    hourly(machine)
    assert audit(machine).sound

    proved(machine, AT, late_ms, outcome)

    assert ("01-01T03:00", outcome, should) in wrong(audit(machine))


def test_one_past_its_start_deadline_stands_nowhere_else(machine: Machine) -> None:
    policy = job_pb2.MisfirePolicy(start_deadline=duration(HOUR_MS))
    machine.create("a", cron="0 * * * *", overlap=ALLOW, misfire=policy)
    machine.advance(3 * HOUR_MS + HOUR_MS // 2)
    machine.fire_all()
    assert audit(machine).sound

    proved(machine, "2026-01-01T02:00", 3 * HOUR_MS // 2, "COALESCED")

    assert ("01-01T02:00", "COALESCED", "SKIPPED_DEADLINE") in wrong(audit(machine))


def test_one_that_ran_on_a_day_off_is_named(machine: Machine) -> None:
    off = calendar_pb2.Calendar(name="off", rules=[calendar_pb2.CalendarRule(date="2026-01-01")])
    machine.do(calendar_pb2.CreateCalendarRequest(calendar=off))
    hourly(machine, timing=schedule_pb2.Timing(exclude_calendars=["off"]))
    assert audit(machine).sound

    write(machine, AT, LedgerRecord(outcome=run_pb2.OUTCOME_RAN))

    assert wrong(audit(machine)) == [("01-01T03:00", "RAN", "SKIPPED_CALENDAR")]


def test_a_run_that_is_nowhere_is_named(machine: Machine) -> None:
    hourly(machine)
    occurrence = keys.occurrence_of(instant(AT))
    machine.store.write([], [keys.ended(machine.jid("a"), occurrence)])
    machine.forget()

    assert wrong(audit(machine)) == [("01-01T03:00", "RAN", "RAN")]


def test_under_all_the_newest_run(machine: Machine) -> None:
    policy = missed(Misfire.RULE_ALL, 2)
    machine.create("a", cron="0 * * * *", misfire=policy, overlap=ALLOW)
    play(machine, "2026-01-01T06:30")
    assert audit(machine).sound

    # 05:00 and 06:00 ran; had it been 01:00 in place of 05:00, that would be another two.
    stretch, ran = entry(machine, "2026-01-01T01:00"), entry(machine, "2026-01-01T05:00")
    alone = replace(stretch, last_at_ms=0, count=0)
    for hour in (2, 3, 4, 5):
        at = f"2026-01-01T0{hour}:00"
        write(machine, at, as_of(alone, at))
    write(machine, "2026-01-01T01:00", as_of(ran, "2026-01-01T01:00"))

    named = wrong(audit(machine))
    assert ("01-01T05:00", "MISSED", "LATE") in named


def test_under_all_not_more_than_the_maximum_run(machine: Machine) -> None:
    policy = missed(Misfire.RULE_ALL, 2)
    machine.create("a", cron="0 * * * *", misfire=policy, overlap=ALLOW)
    play(machine, "2026-01-01T06:30")

    stretch, ran = entry(machine, "2026-01-01T01:00"), entry(machine, "2026-01-01T05:00")
    write(
        machine,
        "2026-01-01T01:00",
        replace(stretch, count=3, last_at_ms=instant("2026-01-01T03:00")),
    )
    write(machine, "2026-01-01T04:00", ran)

    assert ("01-01T04:00", "LATE", "MISSED") in wrong(audit(machine))


def test_a_skip_beside_a_run_that_had_reached_its_start_deadline_is_wrong(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the rules of before: the run ended in the very instant in which it stood in the way."""
    monkeypatch.setattr(dispatch, "_end_overdue", lambda *_: None)
    monkeypatch.setattr(dispatch, "_ends_first", lambda due: due)
    deadline = Misfire(start_deadline=duration(MINUTE_MS))
    machine.create("a", cron="* * * * *", misfire=deadline)
    for _ in range(3):
        machine.advance(MINUTE_MS)
        machine.fire_all()

    assert wrong(audit(machine)) == [("01-01T00:02", "SKIPPED_OVERLAP", "RAN")]


@pytest.mark.parametrize("outcome", ["MISSED", "COALESCED", "SKIPPED_OVERLAP", "SKIPPED_QUOTA"])
def test_an_entry_that_does_not_say_when_cannot_be_judged(machine: Machine, outcome: str) -> None:
    hourly(machine)

    write(machine, AT, LedgerRecord(outcome=run_pb2.Outcome.Value(f"OUTCOME_{outcome}")))

    answer = audit(machine)
    assert not answer.sound
    assert (answer.wrong, answer.unjudged) == (0, 1)
    [one] = answer.findings
    assert one.verdict == UNJUDGED
    assert one.reason == "the ledger does not say when it was decided on"


def test_what_other_policies_decided_cannot_be_judged(machine: Machine) -> None:
    machine.create("a", cron="0 * * * *", overlap=ALLOW)
    play(machine, "2026-01-01T06:30")
    machine.do(job_pb2.UpdateJobRequest(
        job=job_pb2.Job(name="a", spec=job_pb2.JobSpec(misfire=missed(Misfire.RULE_SKIP)))
    ))  # fmt: skip

    answer = audit(machine)

    assert not answer.sound
    assert (answer.wrong, answer.unjudged) == (0, 5)
    assert "policies of the job were changed at 2026-01-01T06:30:05" in answer.findings[0].reason


def test_a_skip_that_the_audit_log_has_forgotten_cannot_be_judged(
    machine: Machine,
) -> None:
    short = namespace_pb2.Namespace(name="default", keep_audit=duration(HOUR_MS))
    machine.do(namespace_pb2.UpdateNamespaceRequest(namespace=short))
    machine.create("a", cron="0 * * * *", overlap=ALLOW)
    skip(machine, "2026-01-01T01:00")
    play(machine, "2026-01-01T01:00")
    assert audit(machine).sound
    machine.at("2026-01-01T04:00")
    for number in range(3):
        machine.create(f"other-{number}")

    answer = audit(machine)

    assert answer.wrong == 0
    assert [one.verdict for one in answer.findings] == [UNJUDGED]
    assert "the audit log does not say who skipped it" in answer.findings[0].reason


def test_a_part_of_an_outage_is_judged_with_the_rest(machine: Machine) -> None:
    """What stands for a time may lie outside the range that is audited."""
    machine.create("a", cron="* * * * *", overlap=ALLOW, misfire=missed(Misfire.RULE_LATEST))
    play(machine, "2026-01-01T02:00:30")
    machine.advance(HOUR_MS)

    answer = audit(machine, first=instant("2026-01-01T00:10"), end=instant("2026-01-01T01:00"))

    assert answer.sound
    assert answer.expected == 50


# What somebody asked for.


def triggered(machine: Machine) -> None:
    machine.create("a", retry=job_pb2.RetryPolicy(max_attempts=1))
    for _ in range(3):
        machine.trigger("a")
        machine.advance(MINUTE_MS)
    machine.trigger("a", due_time=timestamp(machine.now_ms + DAY_MS))


def test_triggered_runs_are_counted(machine: Machine) -> None:
    triggered(machine)
    one, two, _ = machine.grant("w1")
    machine.succeed(one)
    machine.fail(two)

    answer = audit(machine)

    assert answer.sound
    assert (answer.requested, answer.requested_ended, answer.requested_under_way) == (4, 2, 2)


@pytest.mark.parametrize("ended", [True, False])
def test_a_triggered_run_that_is_nowhere_is_named(machine: Machine, ended: bool) -> None:
    triggered(machine)
    [lease] = machine.grant("w1", 1)
    if ended:
        machine.succeed(lease)
    prefix = keys.of_job(keys.ENDED if ended else keys.RUN, machine.jid("a"))
    [(key, value), *_] = machine.store.scan(prefix, keys.after(prefix))
    assert parse(key, value, RunRecord).cause == run_pb2.CAUSE_TRIGGER
    machine.store.write([], [key])
    machine.forget()

    answer = audit(machine)

    assert answer.wrong == 1
    assert "there is no run of that" in answer.findings[0].reason
    assert answer.requested == answer.requested_ended + answer.requested_under_way + 1


def test_what_left_the_history_in_its_time_is_not_missed(machine: Machine) -> None:
    triggered(machine)
    for lease in machine.grant("w1"):
        machine.succeed(lease)
    machine.advance(8 * DAY_MS)
    machine.fire_all()

    assert audit(machine).sound


def test_a_letter_that_was_requeued_is_counted(machine: Machine) -> None:
    triggered(machine)
    for lease in machine.grant("w1"):
        machine.fail(lease)
    for run in machine.ended("a"):
        machine.do(dead_letter_pb2.RequeueDeadLetterRequest(run=run.id))

    answer = audit(machine)

    assert answer.sound
    assert (answer.requested, answer.requested_ended, answer.requested_under_way) == (7, 0, 7)


def test_letters_that_were_requeued_by_a_filter_are_counted(machine: Machine) -> None:
    machine.create("a", retry=job_pb2.RetryPolicy(max_attempts=1), overlap=ALLOW)
    for _ in range(3):
        machine.trigger("a")
    for lease in machine.grant("w1"):
        machine.fail(lease)
    machine.advance(1)
    one = machine.ended("a")[0].id
    machine.do(dead_letter_pb2.RequeueDeadLetterRequest(run=one))
    machine.do(dead_letter_pb2.RequeueDeadLettersRequest())
    machine.succeed(machine.grant("w1")[0])

    answer = audit(machine)

    assert answer.sound
    assert (answer.requested, answer.requested_ended, answer.requested_under_way) == (6, 2, 4)


def test_a_letter_that_did_not_begin_again_is_named(machine: Machine) -> None:
    triggered(machine)
    [lease] = machine.grant("w1", 1)
    machine.fail(lease)
    [dead] = machine.ended("a")
    before = dict(machine.store.scan(b"\0", b"\xff" * 64))
    machine.advance(1)
    machine.do(dead_letter_pb2.RequeueDeadLetterRequest(run=dead.id))
    place = keys.run_key(dead.id)
    assert place is not None
    key = keys.ended(*place)
    machine.store.write([(key, before[key])], [keys.run(*place)])
    machine.forget()

    answer = audit(machine)

    assert answer.wrong == 1
    assert "did not begin again" in answer.findings[0].reason


def backfilled(machine: Machine) -> None:
    """Ten times of the day before the job was created."""
    machine.create("a", cron="0 * * * *", overlap=ALLOW)
    machine.advance(1)
    machine.do(job_pb2.BackfillJobRequest(
        job="a", from_time=timestamp(instant("2025-12-31T01:00")),
        to_time=timestamp(instant("2025-12-31T10:30")), runs_per_minute=60,
    ))  # fmt: skip
    for _ in range(4):
        machine.advance(SECOND_MS)
        machine.fire_all()
    for lease in machine.grant("w1"):
        machine.succeed(lease)


def test_what_is_backfilled_is_counted(machine: Machine) -> None:
    backfilled(machine)

    answer = audit(machine)

    assert answer.sound
    assert (answer.requested, answer.requested_ended, answer.requested_under_way) == (10, 5, 5)


def test_a_backfilled_time_that_is_nowhere_is_named(machine: Machine) -> None:
    backfilled(machine)
    jid, at_ms = machine.jid("a"), instant("2025-12-31T02:00")
    machine.store.write([], [keys.ledger(jid, at_ms), keys.ended(jid, keys.occurrence_of(at_ms))])
    machine.forget()

    answer = audit(machine)

    assert answer.wrong == 1
    assert "planned it, and it has neither run nor outcome" in answer.findings[0].reason
    assert to_ms(answer.findings[0].scheduled_time) == instant("2026-01-01T00:00:00.001")


def test_a_backfilled_time_with_the_outcome_of_before_is_named(machine: Machine) -> None:
    backfilled(machine)
    jid, at_ms = machine.jid("a"), instant("2025-12-31T02:00")
    of_before = LedgerRecord(outcome=run_pb2.OUTCOME_MISSED, proof=ProofRecord(at_ms + 1, 1))
    machine.store.write(
        [(keys.ledger(jid, at_ms), encode(of_before))],
        [keys.ended(jid, keys.occurrence_of(at_ms))],
    )
    machine.forget()

    answer = audit(machine)

    assert any("still has the outcome of before" in one.reason for one in answer.findings)


def test_what_was_given_up_in_the_instant_of_a_backfill_was_not_planned(machine: Machine) -> None:
    machine.create("a", cron="0 * * * *", misfire=missed(Misfire.RULE_SKIP), overlap=ALLOW)
    moved = Edit(kind=Edit.KIND_MOVE, scheduled_time=timestamp(instant("2026-01-01T02:00")),
                 moved_to=timestamp(instant("2026-01-01T09:00")))  # fmt: skip
    machine.do(job_pb2.EditOccurrenceRequest(job="a", edit=moved))
    machine.at("2026-01-01T06:30")
    machine.fire_all()
    # What the first planned stands between the times of the second, and so does the moved one.
    for first, end, planned in (("02:30", "04:30", 2), ("00:30", "06:30", 3)):
        reply = machine.ask(job_pb2.BackfillJobRequest(
            job="a", from_time=timestamp(instant(f"2026-01-01T{first}")),
            to_time=timestamp(instant(f"2026-01-01T{end}")),
        ), job_pb2.BackfillJobResponse)  # fmt: skip
        assert reply.planned == planned

    machine.do(job_pb2.RevertOccurrenceRequest(job="a", scheduled_time=moved.scheduled_time))

    answer = audit(machine)
    assert answer.sound
    assert answer.requested_under_way == 5


def test_what_an_update_kept_is_judged_with_what_came_behind_it(machine: Machine) -> None:
    """The earliest of those that were missed is one of before the update."""
    machine.create("a", cron="*/30 * * * *", misfire=missed(Misfire.RULE_EARLIEST))
    machine.do(job_pb2.PauseJobRequest(job="a"))
    machine.at("2026-01-01T03:10")
    moved = Edit(kind=Edit.KIND_MOVE, scheduled_time=timestamp(instant("2026-01-01T03:30")),
                 moved_to=timestamp(instant("2026-01-01T04:30")))  # fmt: skip
    machine.do(job_pb2.EditOccurrenceRequest(job="a", edit=moved))
    hourly = job_of("a", cron="0 * * * *", misfire=missed(Misfire.RULE_EARLIEST))
    machine.do(job_pb2.UpdateJobRequest(job=hourly))
    machine.at("2026-01-01T08:10")

    machine.do(job_pb2.ResumeJobRequest(job="a"))
    machine.fire_all()

    ledger = machine.ledger("a")
    assert ledger[instant("2026-01-01T01:00")].outcome == run_pb2.OUTCOME_LATE
    assert audit(machine).sound


def test_an_audit_asks_no_rule() -> None:
    """It knows the schedules; what should be it computes by itself."""
    from raftsched.statemachine import reads
    from raftsched.statemachine.reads import audit_batches, audit_evidence, audit_times

    assert reads
    for module in (audit_batches, audit_evidence, audit_times):
        for shared in ("misfire", "timeline", "overlap", "catch_up", "backlog", "occurrence"):
            assert not hasattr(module, shared), f"{module.__name__} knows {shared}"
