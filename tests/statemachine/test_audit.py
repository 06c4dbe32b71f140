"""An audit proves that the ledger has one outcome for each scheduled time, and shows where not."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from raftsched.proto.v1 import calendar_pb2, job_pb2, namespace_pb2, run_pb2, schedule_pb2
from raftsched.statemachine.core import limits
from raftsched.statemachine.core.instants import duration, timestamp, to_ms
from raftsched.statemachine.core.rejection import Reason
from raftsched.statemachine.core.store import MemoryStore
from raftsched.statemachine.model import keys
from raftsched.statemachine.model.record import encode
from raftsched.statemachine.occurrences.ledger import ALONE

from .asking import ask, refuse
from .driver import DAY_MS, HOUR_MS, MINUTE_MS, Machine, instant, job_of
from .world import ALLOW, build

Edit = schedule_pb2.OccurrenceEdit


def audit(machine: Machine, name: str = "a", **range_: int) -> job_pb2.AuditJobResponse:
    request = job_pb2.AuditJobRequest(job=name)
    if "first" in range_:
        request.from_time.CopyFrom(timestamp(range_["first"]))
    if "end" in range_:
        request.to_time.CopyFrom(timestamp(range_["end"]))
    return ask(machine, request, job_pb2.AuditJobResponse)


def counts(answer: job_pb2.AuditJobResponse) -> dict[str, int]:
    return {
        run_pb2.Outcome.Name(item.outcome).removeprefix("OUTCOME_"): item.count
        for item in answer.outcomes
    }


def ring_hourly(machine: Machine, hours: int) -> None:
    for _ in range(hours):
        machine.advance(HOUR_MS)
        machine.fire()


def test_each_scheduled_time_has_its_outcome(machine: Machine) -> None:
    machine.create("a", cron="0 * * * *", overlap=ALLOW)
    machine.create("b", cron="0 * * * *")
    ring_hourly(machine, 5)

    ran, skipped = audit(machine, "a"), audit(machine, "b")

    assert ran.sound
    assert skipped.sound
    assert (ran.expected, ran.recorded, counts(ran)) == (5, 5, {"RAN": 5})
    assert counts(skipped) == {"RAN": 1, "SKIPPED_OVERLAP": 4}


def test_every_job_of_a_long_history_is_sound() -> None:
    machine = Machine(MemoryStore())
    build(machine)
    names = [
        key[5:].decode()
        for key, _ in machine.store.scan(keys.in_namespace(keys.NAME, 0), keys.job_name(1, ""))
    ]

    answers = {name: audit(machine, name) for name in names}

    assert len(answers) > 10
    assert [name for name, answer in answers.items() if not answer.sound] == []


def test_a_lost_outcome_is_a_gap(machine: Machine) -> None:
    machine.create("a", cron="0 * * * *")
    ring_hourly(machine, 1)
    [lease] = machine.grant()
    machine.succeed(lease)
    ring_hourly(machine, 4)
    lost = instant("2026-01-01T04:00")
    entry = keys.ledger(machine.jid("a"), lost)
    kept = machine.store.get(entry)
    assert kept is not None
    machine.store.write([], [entry])

    answer = audit(machine)

    assert not answer.sound
    assert [to_ms(gap) for gap in answer.missing] == [lost]
    assert (answer.expected, answer.recorded) == (5, 4)
    machine.store.write([(entry, kept)], [])


def test_an_entry_that_no_schedule_names_is_a_surprise(machine: Machine) -> None:
    machine.create("a", cron="0 * * * *", overlap=ALLOW)
    ring_hourly(machine, 3)
    entry = keys.ledger(machine.jid("a"), instant("2026-01-01T01:30"))
    machine.store.write([(entry, ALONE[run_pb2.OUTCOME_RAN])], [])

    answer = audit(machine)

    assert not answer.sound
    [unexpected] = answer.unexpected
    assert unexpected.scheduled_time == timestamp(instant("2026-01-01T01:30"))


def test_what_was_added_moved_or_skipped_by_hand_is_no_surprise_and_no_gap(
    machine: Machine,
) -> None:
    machine.create("a", cron="0 * * * *", overlap=ALLOW)
    for kind, scheduled, moved in (
        (Edit.KIND_ADD, "2026-01-01T00:30", None),
        (Edit.KIND_MOVE, "2026-01-01T02:00", "2026-01-01T00:10"),
        (Edit.KIND_MOVE, "2026-01-01T03:00", "2026-01-01T09:10"),
        (Edit.KIND_SKIP, "2026-01-01T04:00", None),
    ):
        edit = Edit(scheduled_time=timestamp(instant(scheduled)), kind=kind)
        if moved:
            edit.moved_to.CopyFrom(timestamp(instant(moved)))
        machine.do(job_pb2.EditOccurrenceRequest(job="a", edit=edit))
    for _ in range(30):
        machine.advance(10 * MINUTE_MS)
        machine.fire()

    before = audit(machine)
    for _ in range(36):
        machine.advance(10 * MINUTE_MS)
        machine.fire()
    after = audit(machine)

    assert before.sound
    assert (before.expected, before.recorded) == (4, 4)
    assert after.sound
    assert (after.expected, after.recorded) == (11, 11)
    assert counts(after)["SKIPPED_MANUALLY"] == 1


@pytest.mark.parametrize("rule", job_pb2.MisfirePolicy.Rule.values())
def test_after_an_outage_every_policy_accounts_for_each_scheduled_time(
    machine: Machine, rule: job_pb2.MisfirePolicy.Rule.ValueType
) -> None:
    misfire = job_pb2.MisfirePolicy(rule=rule, maximum=3)
    machine.create("a", cron="*/10 * * * *", misfire=misfire, overlap=ALLOW)
    machine.advance(DAY_MS)
    machine.fire()

    during = audit(machine)
    for _ in range(5):
        machine.advance(5 * MINUTE_MS)
        machine.fire()
    after = audit(machine)

    assert during.sound
    assert after.sound
    assert after.expected == after.recorded == 24 * 6 + 2
    assert sum(counts(after).values()) == after.expected


def test_a_stretch_that_counts_wrong_is_a_surprise(machine: Machine) -> None:
    misfire = job_pb2.MisfirePolicy(rule=job_pb2.MisfirePolicy.RULE_SKIP)
    machine.create("a", cron="*/10 * * * *", misfire=misfire)
    machine.advance(DAY_MS)
    machine.fire()
    key, _ = next(machine.store.scan(keys.LEDGER, keys.after(keys.LEDGER)))
    entry = machine.ledger("a")[keys.scheduled_at(key)]
    entry.count += 1
    machine.store.write([(key, encode(entry))], [])

    answer = audit(machine)

    assert not answer.sound
    assert answer.unexpected[0].count == entry.count


def test_a_backfill_takes_its_times_out_of_the_stretch(machine: Machine) -> None:
    misfire = job_pb2.MisfirePolicy(rule=job_pb2.MisfirePolicy.RULE_SKIP)
    machine.create("a", cron="0 * * * *", misfire=misfire, overlap=ALLOW)
    machine.advance(DAY_MS + 30 * MINUTE_MS)
    machine.fire()
    machine.do(job_pb2.BackfillJobRequest(
        job="a", from_time=timestamp(instant("2026-01-01T05:00")),
        to_time=timestamp(instant("2026-01-01T08:00")), runs_per_minute=60_000,
    ))  # fmt: skip
    for _ in range(5):
        machine.advance(10)
        machine.fire()

    answer = audit(machine)

    assert answer.sound
    assert counts(answer) == {"MISSED": 21, "LATE": 3}


def missed(machine: Machine, until: str = "2026-01-01T06:30") -> None:
    """An outage of some hours, of which nothing runs."""
    misfire = job_pb2.MisfirePolicy(rule=job_pb2.MisfirePolicy.RULE_SKIP)
    machine.create("a", cron="0 * * * *", misfire=misfire, overlap=ALLOW)
    machine.at(until)
    machine.fire()


def backfill(machine: Machine, first: str, end: str) -> None:
    machine.do(job_pb2.BackfillJobRequest(
        job="a", from_time=timestamp(instant(first)), to_time=timestamp(instant(end)),
        runs_per_minute=60_000,
    ))  # fmt: skip
    for _ in range(10):
        machine.advance(10)
        machine.fire()


@pytest.mark.parametrize("hours", [[1], [1, 2], [2, 1], [3, 2, 1], [6, 1], [6, 5, 4, 3, 2, 1]])
def test_a_backfill_of_the_first_time_of_a_stretch_leaves_the_others(
    machine: Machine, hours: list[int]
) -> None:
    missed(machine)

    for hour in hours:
        backfill(machine, f"2026-01-01T0{hour}:00", f"2026-01-01T0{hour}:30")

    answer = audit(machine)
    assert answer.sound
    assert (answer.expected, answer.recorded) == (6, 6)
    assert counts(answer).get("MISSED", 0) == 6 - len(hours)
    status = machine.job("a").status
    assert (status.fired, status.skipped) == (6, 6)


def test_the_first_time_of_a_stretch_is_taken_out_though_the_schedules_are_others(
    machine: Machine,
) -> None:
    missed(machine)
    machine.do(job_pb2.UpdateJobRequest(job=job_of("a", cron="0 1 * * *", overlap=ALLOW)))

    backfill(machine, "2026-01-01T01:00", "2026-01-01T01:30")

    entries = sorted(machine.ledger("a").items())
    assert [entry.outcome for _, entry in entries] == [run_pb2.OUTCOME_LATE, run_pb2.OUTCOME_MISSED]
    assert entries[1][1].count == 5
    assert entries[1][1].last_at_ms == instant("2026-01-01T06:00")


@pytest.mark.parametrize("hour", [1, 3])
def test_a_backfill_that_waits_for_a_quota_takes_its_times_out_of_the_stretch(
    machine: Machine, hour: int
) -> None:
    missed(machine)
    quota = namespace_pb2.Quota(live_runs=1)
    wanted = namespace_pb2.Namespace(name="default", quota=quota)
    machine.do(namespace_pb2.UpdateNamespaceRequest(namespace=wanted))
    machine.trigger("a")

    backfill(machine, f"2026-01-01T0{hour}:00", f"2026-01-01T0{hour + 1}:30")

    answer = audit(machine)
    assert answer.sound
    assert counts(answer) == {"MISSED": 6}
    for _ in range(3):
        for lease in machine.grant():
            machine.succeed(lease)
        machine.advance(MINUTE_MS)
        machine.fire_all()
    answer = audit(machine)
    assert answer.sound
    assert counts(answer) == {"MISSED": 4, "LATE": 2}


@pytest.mark.parametrize("scheduled", ["2026-01-01T01:00", "2026-01-01T03:00", "2026-01-01T06:00"])
def test_a_time_that_was_moved_within_an_outage_has_one_outcome(
    machine: Machine, scheduled: str
) -> None:
    misfire = job_pb2.MisfirePolicy(rule=job_pb2.MisfirePolicy.RULE_SKIP)
    machine.create("a", cron="0 * * * *", misfire=misfire, overlap=ALLOW)
    moved_to = timestamp(instant(scheduled) + 20 * MINUTE_MS)
    edit = Edit(
        scheduled_time=timestamp(instant(scheduled)), kind=Edit.KIND_MOVE, moved_to=moved_to
    )
    machine.do(job_pb2.EditOccurrenceRequest(job="a", edit=edit))

    machine.at("2026-01-01T06:30")
    machine.fire()

    answer = audit(machine)
    assert answer.sound
    assert counts(answer) == {"MISSED": 6}
    assert machine.job("a").status.fired == 6


def test_a_calendar_leaves_an_outcome(machine: Machine) -> None:
    rule = calendar_pb2.CalendarRule(date="2026-01-01")
    machine.do(calendar_pb2.CreateCalendarRequest(
        calendar=calendar_pb2.Calendar(name="off", rules=[rule])
    ))  # fmt: skip
    machine.create("a", cron="0 */6 * * *", overlap=ALLOW,
                   timing=schedule_pb2.Timing(exclude_calendars=["off"]))  # fmt: skip
    ring_hourly(machine, 30)

    answer = audit(machine)

    assert answer.sound
    assert counts(answer) == {"SKIPPED_CALENDAR": 3, "RAN": 2}


def test_before_the_present_schedules_nothing_is_compared(machine: Machine) -> None:
    machine.create("a", cron="0 * * * *", overlap=ALLOW)
    ring_hourly(machine, 3)
    machine.advance(MINUTE_MS)
    machine.do(job_pb2.UpdateJobRequest(job=job_of("a", cron="30 * * * *")))
    ring_hourly(machine, 2)

    answer = audit(machine, first=instant("2026-01-01T00:00"))

    assert answer.sound
    assert to_ms(answer.comparable_since) == instant("2026-01-01T03:01")
    assert answer.expected == 2
    assert counts(answer) == {"RAN": 3, "LATE": 2}


def test_what_was_decided_on_as_the_schedules_changed_is_no_surprise(machine: Machine) -> None:
    machine.create("a", cron="20 * * * *", overlap=ALLOW)
    machine.at("2026-01-01T00:20")
    machine.fire()

    machine.do(job_pb2.UpdateJobRequest(job=job_of("a", cron="0 * * * *", overlap=ALLOW)))

    assert audit(machine).sound


def test_what_was_changed_by_hand_under_other_schedules_is_no_surprise(machine: Machine) -> None:
    misfire = job_pb2.MisfirePolicy(rule=job_pb2.MisfirePolicy.RULE_ALL)
    machine.create("a", cron="*/20 * * * *", overlap=ALLOW, misfire=misfire)
    for kind, scheduled in ((Edit.KIND_SKIP, "01:20"), (Edit.KIND_MOVE, "01:40")):
        edit = Edit(scheduled_time=timestamp(instant(f"2026-01-01T{scheduled}")), kind=kind)
        if kind == Edit.KIND_MOVE:
            edit.moved_to.CopyFrom(timestamp(instant("2026-01-01T02:10")))
        machine.do(job_pb2.EditOccurrenceRequest(job="a", edit=edit))

    machine.do(job_pb2.UpdateJobRequest(job=job_of(
        "a", cron="0 * * * *", overlap=ALLOW, misfire=misfire
    )))  # fmt: skip
    machine.at("2026-01-01T03:30")
    machine.fire()

    answer = audit(machine)
    assert answer.sound
    assert counts(answer) == {"LATE": 3, "MISSED": 1}


def test_times_that_follow_from_an_end_are_no_surprise(machine: Machine) -> None:
    machine.create("a", after_end_ms=10 * MINUTE_MS)
    for _ in range(6):
        machine.advance(10 * MINUTE_MS)
        machine.fire()
        for lease in machine.grant():
            machine.succeed(lease)

    answer = audit(machine)

    assert answer.sound
    assert answer.expected == 0
    assert counts(answer) == {"RAN": 6}


def test_a_single_time_in_the_past_is_accounted_for(machine: Machine) -> None:
    machine.create("a", once="2025-12-31T00:00")
    machine.fire()

    answer = audit(machine)

    assert answer.sound
    assert (answer.expected, answer.recorded) == (1, 1)


def test_of_single_times_in_the_past_a_job_has_no_more_than_its_maximum(machine: Machine) -> None:
    job = job_of("a", once="2025-12-31T00:00", timing=schedule_pb2.Timing(max_runs=1))
    job.spec.schedules.add().once.time.FromMilliseconds(instant("2025-12-31T00:10"))
    machine.do(job_pb2.CreateJobRequest(job=job))
    machine.fire()

    answer = audit(machine)

    assert answer.sound
    assert (answer.expected, answer.recorded) == (1, 1)


def test_a_job_that_reached_its_maximum_expects_no_more(machine: Machine) -> None:
    machine.create("a", cron="0 * * * *", overlap=ALLOW, timing=schedule_pb2.Timing(max_runs=2))
    ring_hourly(machine, 5)

    answer = audit(machine)

    assert answer.sound
    assert answer.expected == 2


@pytest.mark.parametrize(
    "request_",
    [
        lambda: job_pb2.AuditJobRequest(job="a", from_time=timestamp(2), to_time=timestamp(1)),
        lambda: job_pb2.AuditJobRequest(job="a", from_time=timestamp(-1)),
    ],
)
def test_a_range_that_is_none_is_refused(
    machine: Machine, request_: Callable[[], job_pb2.AuditJobRequest]
) -> None:
    machine.create("a", cron="0 * * * *")

    assert refuse(machine, request_()) == Reason.ERROR_REASON_FIELD_INVALID


def test_a_range_with_too_many_scheduled_times_is_refused(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "AUDIT_TIMES", 3)
    machine.create("a", cron="0 * * * *")
    ring_hourly(machine, 4)

    assert refuse(machine, job_pb2.AuditJobRequest(job="a")) == Reason.ERROR_REASON_LIMIT_EXCEEDED
    assert audit(machine, end=instant("2026-01-01T03:30")).expected == 3


def listed(machine: Machine, *range_: int, size: int = 100) -> list[run_pb2.LedgerEntry]:
    request = job_pb2.ListJobLedgerRequest(job="a", page_size=size)
    request.from_time.CopyFrom(timestamp(range_[0]))
    request.to_time.CopyFrom(timestamp(range_[1]))
    found: list[run_pb2.LedgerEntry] = []
    while True:
        page = ask(machine, request, job_pb2.ListJobLedgerResponse)
        found += page.entries
        if not page.next_page_token:
            return found
        request.page_token = page.next_page_token


def test_a_range_shows_and_counts_the_stretch_that_begins_before_it(machine: Machine) -> None:
    """With a backfill inside the stretch, each time of the range counts once."""
    misfire = job_pb2.MisfirePolicy(rule=job_pb2.MisfirePolicy.RULE_SKIP)
    machine.create("a", cron="*/30 * * * *", misfire=misfire, overlap=ALLOW)
    machine.at("2026-01-01T09:10")
    machine.fire_all()
    four, five, seven = (instant(f"2026-01-01T0{hour}:00") for hour in (4, 5, 7))
    machine.do(job_pb2.BackfillJobRequest(
        job="a", from_time=timestamp(four), to_time=timestamp(five), runs_per_minute=60_000
    ))  # fmt: skip
    for _ in range(4):
        machine.advance(1_000)
        machine.fire_all()

    for first, expected in (
        (five, {"MISSED": 4}),
        (four, {"LATE": 2, "MISSED": 4}),
        (four - HOUR_MS, {"LATE": 2, "MISSED": 6}),
    ):
        answer = audit(machine, first=first, end=seven)
        assert answer.sound
        assert (counts(answer), answer.recorded) == (expected, sum(expected.values()))
    nothing = audit(machine, first=four + MINUTE_MS, end=four + 2 * MINUTE_MS)
    assert (nothing.sound, counts(nothing)) == (True, {})
    for size in (1, 2, 100):
        *alone, stretch = listed(machine, four, seven, size=size)
        assert [entry.count for entry in alone] == [1, 1]
        assert (stretch.count, stretch.outcome) == (16, run_pb2.OUTCOME_MISSED)
        assert stretch.last_scheduled_time == timestamp(instant("2026-01-01T09:00"))
    assert listed(machine, instant("2026-01-01T09:00") + 1, machine.now_ms) == []


def test_a_single_time_in_the_past_is_missed_by_nobody_before_its_jitter_is_over(
    machine: Machine,
) -> None:
    """It was called wrong until it was due, and so was one of a job that was paused at once."""
    timing = schedule_pb2.Timing(jitter=duration(HOUR_MS))
    machine.create("a", once=machine.now_ms - 1, timing=timing)
    machine.create("b", once=machine.now_ms - 1)
    machine.do(job_pb2.PauseJobRequest(job="b"))
    machine.fire_all()

    for name in ("a", "b"):
        before = audit(machine, name)
        assert (before.sound, before.expected) == (True, 0)
    machine.advance(HOUR_MS)
    machine.do(job_pb2.ResumeJobRequest(job="b"))
    machine.fire_all()

    for name in ("a", "b"):
        behind = audit(machine, name)
        assert (behind.sound, behind.expected, behind.recorded) == (True, 1, 1)
