"""Previews promise what the rules will do, and forecasts count it."""

from __future__ import annotations

import random
from typing import Any

import pytest

from raftsched.proto.v1 import calendar_pb2, cluster_pb2, job_pb2, schedule_pb2
from raftsched.statemachine.calls import job_warnings
from raftsched.statemachine.core.budget import Steps
from raftsched.statemachine.core.instants import duration, timestamp, to_ms
from raftsched.statemachine.core.rejection import Reason
from raftsched.statemachine.model import keys
from raftsched.statemachine.model.request import Offer, SetAside, SetTime
from raftsched.statemachine.model.view import View
from raftsched.statemachine.model.workers import Worker
from raftsched.statemachine.reads import firings_ahead
from raftsched.statemachine.reads.firings_ahead import FiringsAhead

from .asking import ask, refuse
from .driver import HOUR_MS, MINUTE_MS, START_MS, Machine, instant, job_of
from .world import ALLOW

Edit = schedule_pb2.OccurrenceEdit
Answer = job_pb2.PreviewScheduleResponse


def cron(expression: str) -> schedule_pb2.Schedule:
    return schedule_pb2.Schedule(cron=schedule_pb2.Cron(expression=expression))


def times(answer: Answer) -> list[int]:
    return [to_ms(item.scheduled_time) for item in answer.occurrences if not item.excluded]


def off(machine: Machine) -> schedule_pb2.Timing:
    rule = calendar_pb2.CalendarRule(date="2026-01-02")
    calendar = calendar_pb2.Calendar(name="off", rules=[rule])
    machine.do(calendar_pb2.CreateCalendarRequest(calendar=calendar))
    return schedule_pb2.Timing(exclude_calendars=["off"])


def test_a_preview_of_a_job_is_what_fires(machine: Machine) -> None:
    machine.create("a", cron="17 */7 * * *", overlap=ALLOW, timing=off(machine))
    for kind, scheduled in ((Edit.KIND_SKIP, "01T07:17"), (Edit.KIND_ADD, "01T08:00")):
        edit = Edit(scheduled_time=timestamp(instant(f"2026-01-{scheduled}")), kind=kind)
        machine.do(job_pb2.EditOccurrenceRequest(job="a", edit=edit))
    answer = ask(machine, job_pb2.PreviewScheduleRequest(job="a", count=20), Answer)

    for _ in range(4 * 72):
        machine.advance(15 * MINUTE_MS)
        machine.fire()

    fired = sorted(to_ms(run.scheduled_time) for run in machine.live("a"))
    assert [at for at in times(answer) if at <= machine.now_ms] == fired
    assert len(answer.occurrences) == 20
    assert any("left out manually" in item.note for item in answer.occurrences)
    assert any("calendar off" in item.note for item in answer.occurrences)
    assert answer.descriptions


def test_a_preview_says_that_a_job_does_not_fire_now(machine: Machine) -> None:
    for name in ("a", "paused", "broken"):
        machine.create(name, cron="* * * * *")
    machine.do(job_pb2.PauseJobRequest(job="paused"))
    machine.do(SetAside(machine.jid("broken"), "planted"))

    said = {
        name: list(ask(machine, job_pb2.PreviewScheduleRequest(job=name), Answer).warnings)
        for name in ("a", "paused", "broken")
    }

    assert said == {
        "a": [],
        "paused": ["the job is paused: none of these happens at its time until it is resumed"],
        "broken": ["the job is BROKEN: none of these happens at its time until it is repaired"],
    }


def test_a_preview_says_that_a_job_stands_still(machine: Machine) -> None:
    """A clock was ahead, and the job decided on these times."""
    machine.create("a", cron="0 * * * *")
    machine.advance(6 * HOUR_MS + MINUTE_MS)
    machine.fire()
    ahead_ms = machine.now_ms
    machine.at(START_MS + HOUR_MS + MINUTE_MS)
    machine.do(SetTime(cluster_pb2.SetStateTimeRequest(), ahead_ms, machine.now_ms))

    request = job_pb2.PreviewScheduleRequest(job="a")
    [said] = ask(machine, request, Answer).warnings

    assert said.startswith("the job stands still until 2026-01-01T06:00:00Z")
    machine.do(job_pb2.ResumeJobRequest(job="a"))
    assert not ask(machine, request, Answer).warnings


def test_a_preview_shows_five_times_and_no_more_than_a_job_has_left(machine: Machine) -> None:
    machine.create("a", cron="0 * * * *")
    machine.create("b", cron="0 * * * *", timing=schedule_pb2.Timing(max_runs=2))

    first = ask(machine, job_pb2.PreviewScheduleRequest(job="a"), Answer)
    second = ask(machine, job_pb2.PreviewScheduleRequest(job="b"), Answer)

    assert len(first.occurrences) == 5
    assert len(second.occurrences) == 2


def test_schedules_that_are_not_stored_are_previewed(machine: Machine) -> None:
    request = job_pb2.PreviewScheduleRequest(
        schedules=[cron("0 9 * * *")], timing=schedule_pb2.Timing(zone="Europe/Berlin"), count=1
    )
    request.from_time.CopyFrom(timestamp(instant("2026-07-01T00:00")))

    answer = ask(machine, request, Answer)

    assert times(answer) == [instant("2026-07-01T07:00")]
    assert answer.occurrences[0].local_time.startswith("2026-07-01T09:00:00+02:00")
    assert list(answer.descriptions) == ["at 09:00 every day, Europe/Berlin"]


def test_a_preview_says_that_nothing_is_before_the_schedule(machine: Machine) -> None:
    machine.create("a", cron="0 * * * *")
    request = job_pb2.PreviewScheduleRequest(job="a", from_time=timestamp(START_MS - HOUR_MS))

    warnings = list(ask(machine, request, Answer).warnings)
    request.from_time.CopyFrom(timestamp(START_MS))

    assert warnings == ["the schedule counts from 2026-01-01T00:00:00Z; nothing is before"]
    assert not ask(machine, request, Answer).warnings


def test_a_preview_names_what_has_passed_whatever_became_of_it(machine: Machine) -> None:
    machine.create("a", cron="0 * * * *")
    edit = Edit(scheduled_time=timestamp(START_MS + HOUR_MS), kind=Edit.KIND_SKIP)
    machine.do(job_pb2.EditOccurrenceRequest(job="a", edit=edit))
    machine.at("2026-01-01T03:30")
    machine.fire()
    request = job_pb2.PreviewScheduleRequest(job="a", from_time=timestamp(START_MS), count=4)

    answer = ask(machine, request, Answer)

    assert times(answer) == [START_MS + hour * HOUR_MS for hour in (1, 2, 3, 4)]
    assert not [item.note for item in answer.occurrences if item.excluded or item.note]


def test_schedules_that_are_not_stored_are_shown_from_a_past_time_on(machine: Machine) -> None:
    machine.create("a", cron="0 * * * *")
    for job in ("", "a"):
        request = job_pb2.PreviewScheduleRequest(
            job=job, schedules=[cron("0 6 * * *")], timing=schedule_pb2.Timing(max_runs=3)
        )
        request.from_time.CopyFrom(timestamp(START_MS - 18 * HOUR_MS))
        answer = ask(machine, request, Answer)

        shown = [item.local_time[:13] for item in answer.occurrences]
        assert shown == ["2025-12-31T06", "2026-01-01T06", "2026-01-02T06"]
        assert not answer.warnings


def test_a_preview_takes_from_the_job_what_it_does_not_say(machine: Machine) -> None:
    machine.create("a", cron="0 9 * * *")
    timing = schedule_pb2.Timing(zone="Asia/Tokyo")

    request = job_pb2.PreviewScheduleRequest(job="a", timing=timing, count=1)

    assert times(ask(machine, request, Answer)) == [instant("2026-01-02T00:00")]


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        (
            job_pb2.PreviewScheduleRequest(schedules=[cron("nonsense")]),
            Reason.ERROR_REASON_CRON_INVALID,
        ),
        (
            job_pb2.PreviewScheduleRequest(schedules=[cron("0 0 31 2 *")]),
            Reason.ERROR_REASON_SCHEDULE_NEVER_FIRES,
        ),
        (
            job_pb2.PreviewScheduleRequest(
                schedules=[cron("@daily")], timing=schedule_pb2.Timing(zone="Mars/Base")
            ),
            Reason.ERROR_REASON_ZONE_UNKNOWN,
        ),
        (
            job_pb2.PreviewScheduleRequest(schedules=[cron("@daily")], count=-1),
            Reason.ERROR_REASON_FIELD_INVALID,
        ),
    ],
)
def test_wrong_schedules_are_refused_as_at_creation(
    machine: Machine, request_: job_pb2.PreviewScheduleRequest, reason: int
) -> None:
    assert refuse(machine, request_) == reason


def forecast(machine: Machine, ahead_ms: int = 0) -> job_pb2.ForecastFiringsResponse:
    request = job_pb2.ForecastFiringsRequest()
    if ahead_ms:
        request.ahead.CopyFrom(duration(ahead_ms))
    workers = [Worker(Offer("w1", 1), 4), Worker(Offer("w2", 1, ("other",)), 8)]
    return ask(machine, request, job_pb2.ForecastFiringsResponse, workers)


def test_a_forecast_counts_firings_by_minute_and_their_peak(machine: Machine) -> None:
    machine.create("a", cron="* * * * *")
    machine.create("b", cron="*/15 * * * *")
    machine.create("c", cron="*/30 * * * * *")
    machine.create("paused", cron="* * * * *")
    machine.do(job_pb2.PauseJobRequest(job="paused"))

    answer = forecast(machine)

    assert len(answer.minutes) == 60
    assert [answer.minutes[at].firings for at in (1, 14, 15, 30)] == [3, 3, 4, 4]
    assert [answer.minutes[at].peak for at in (1, 15)] == [2, 3]
    assert answer.minutes[7].start_time == timestamp(machine.now_ms + 7 * MINUTE_MS)
    assert answer.slots == 4
    assert not answer.partial


def test_a_forecast_is_what_fires(machine: Machine) -> None:
    machine.create("a", cron="*/7 * * * *", overlap=ALLOW)
    machine.create("b", every_ms=11 * MINUTE_MS, overlap=ALLOW)
    machine.create("c", cron="0 * * * *", timing=schedule_pb2.Timing(jitter=duration(HOUR_MS)))
    machine.create("d", once=machine.now_ms + 5_000)
    machine.create("e", cron="*/5 * * * *", timing=schedule_pb2.Timing(max_runs=2), overlap=ALLOW)
    machine.create("f", after_end_ms=MINUTE_MS)
    edit = Edit(
        scheduled_time=timestamp(instant("2026-01-01T00:07")),
        kind=Edit.KIND_MOVE,
        moved_to=timestamp(instant("2026-01-01T00:50")),
    )
    machine.do(job_pb2.EditOccurrenceRequest(job="a", edit=edit))
    answer = forecast(machine)

    fired = []
    for _ in range(60):
        before = sum(len(machine.live(name)) for name in "abcdef")
        machine.advance(MINUTE_MS - 1)
        machine.fire()
        fired.append(sum(len(machine.live(name)) for name in "abcdef") - before)
        machine.advance(1)

    assert [minute.firings for minute in answer.minutes] == fired


def test_a_forecast_of_too_much_says_that_it_is_partial(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.create("a", cron="* * * * *")
    machine.create("b", cron="* * * * *")

    monkeypatch.setattr(firings_ahead, "FIRINGS_MAX", 70)
    few = forecast(machine)
    monkeypatch.setattr(firings_ahead, "FEW_JOBS", 0)
    by_timer = forecast(machine)
    monkeypatch.setattr(firings_ahead, "FIRINGS_MAX", 118)
    whole = forecast(machine)

    for answer in (few, by_timer):
        assert answer.partial
        assert sum(minute.firings for minute in answer.minutes) == 70
        assert to_ms(answer.complete_time) < machine.now_ms + 2 * MINUTE_MS
    assert not whole.partial
    assert to_ms(whole.complete_time) == machine.now_ms + HOUR_MS
    assert to_ms(whole.counted_time) == machine.now_ms


def busy(machine: Machine, dice: random.Random) -> None:
    """Jobs of every kind, some of them late, paused, changed by hand or left out by a calendar."""
    timing = off(machine)
    for number in range(40):
        name = f"j{number}"
        given: Any = dice.choice([
            {"cron": f"{dice.randrange(60)} * * * *"},
            {"cron": f"*/{dice.randrange(2, 9)} * * * *"},
            {"once": machine.now_ms + dice.randrange(2 * HOUR_MS)},
            {"every_ms": dice.randrange(1, 90) * MINUTE_MS}, {"after_end_ms": MINUTE_MS},
            {"cron": "@daily"}, {"once": instant("2026-01-02T00:10")},
        ])  # fmt: skip
        machine.create(name, overlap=ALLOW, timing=dice.choice([None, timing]), **given)
        what = dice.randrange(8)
        if what == 0:
            machine.do(job_pb2.PauseJobRequest(job=name))
        elif what == 1:
            at = timestamp(machine.now_ms + dice.randrange(1, 60) * MINUTE_MS)
            edit = Edit(scheduled_time=at, kind=Edit.KIND_ADD)
            machine.do(job_pb2.EditOccurrenceRequest(job=name, edit=edit))
        if dice.random() < 0.2:
            machine.advance(dice.randrange(3 * MINUTE_MS))
            if dice.random() < 0.5:
                machine.fire()


@pytest.mark.parametrize("begin", ["2026-01-01T00:00", "2026-01-01T23:20"])
def test_jobs_are_counted_by_their_timers_as_one_by_one(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, begin: str
) -> None:
    seed = random.randrange(1 << 32)
    machine.at(begin)
    busy(machine, random.Random(seed))
    one_by_one = forecast(machine)

    monkeypatch.setattr(firings_ahead, "FEW_JOBS", 0)
    monkeypatch.setattr(firings_ahead, "TOGETHER", 3)
    assert forecast(machine) == one_by_one, f"seed {seed}"

    # Whenever it is looked at before it has ended, all before an instant is there.
    for steps in range(12):
        end_ms = machine.now_ms + HOUR_MS
        number = keys.namespace_of(machine.jid("j0"))
        part = FiringsAhead(number, machine.now_ms, end_ms)
        part.count(View(machine.store.snapshot(), machine.now_ms), Steps(steps))
        counted = part.minutes(machine.now_ms, part.whole_ms // MINUTE_MS * MINUTE_MS)
        sure = [firings for _, firings, _ in counted]
        assert sure == [minute.firings for minute in one_by_one.minutes][: len(sure)], (
            f"seed {seed}"
        )


def test_a_job_that_is_due_with_many_has_a_warning(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_warnings, "MANY_DUE", 3)
    first = machine.create("a", cron="0 9 * * *")
    machine.create("b", cron="0 9 * * *")
    machine.create("spread", cron="0 9 * * *",
                   timing=schedule_pb2.Timing(jitter=duration(1)))  # fmt: skip
    machine.create("c", cron="0 9 * * *")

    request = job_pb2.GetJobStatusRequest(job="a")
    status = ask(machine, request, job_pb2.JobStatus)
    spread = ask(machine, job_pb2.GetJobStatusRequest(job="spread"), job_pb2.JobStatus)

    assert not first.status.warnings
    assert list(status.warnings) == [
        "4 jobs are due in the same second at 09:00:00 UTC; give it a jitter"
    ]
    assert not spread.warnings


def test_policies_that_go_against_each_other_are_told_at_creation(machine: Machine) -> None:
    retry = job_pb2.RetryPolicy(first=duration(10 * MINUTE_MS), cap=duration(1_000))
    timeouts = job_pb2.Timeouts(attempt=duration(10 * MINUTE_MS), run=duration(1_000))
    same = job_pb2.Timeouts(attempt=duration(1_000), run=duration(1_000))

    made = machine.create("a", retry=retry, timeouts=timeouts)
    fine = machine.create("b", retry=job_pb2.RetryPolicy(first=retry.cap), timeouts=same)

    assert list(made.status.warnings) == [
        "retry.first is 10 minutes, but no wait is longer than retry.cap, 1 second",
        "timeouts.attempt is 10 minutes, but the whole run has timeouts.run, 1 second",
    ]
    assert not fine.status.warnings


def test_a_schedule_that_may_mean_something_else_is_told_so_at_creation(machine: Machine) -> None:
    made = machine.create("a", cron="59/15 * * * *")

    assert "59/15" in made.status.warnings[0]


def carried(machine: Machine, slots: int = 4) -> int:
    workers = [Worker(Offer("w1", slots), slots)]
    request = job_pb2.ForecastFiringsRequest()
    return ask(machine, request, job_pb2.ForecastFiringsResponse, workers).capacity


def test_what_the_slots_can_carry_follows_from_how_long_runs_took(machine: Machine) -> None:
    machine.create("a", overlap=job_pb2.OverlapPolicy(rule=job_pb2.OverlapPolicy.RULE_ALLOW))
    assert carried(machine) == 0
    for took_ms in (1_000, 3_000):
        machine.trigger("a")
        [lease] = machine.grant()
        machine.advance(took_ms)
        machine.succeed(lease)

    # Two seconds each, so 30 a minute for each slot.
    assert carried(machine) == 120
    assert carried(machine, 0) == 0
    machine.at("2026-01-01T01:59:59")
    assert carried(machine) == 120
    machine.trigger("a")
    [lease] = machine.grant()
    machine.advance(500)
    machine.fail(lease)
    assert carried(machine) == 4 * 60_000 * 3 // 4_500
    machine.at("2026-01-01T02:00")
    assert carried(machine) == 4 * 60_000 // 500
    machine.at("2026-01-01T02:59:59.999")
    assert carried(machine) == 4 * 60_000 // 500
    machine.at("2026-01-01T03:00")
    assert carried(machine) == 0


def test_runs_that_take_no_time_can_be_carried_still(machine: Machine) -> None:
    machine.create("a")
    machine.trigger("a")
    machine.succeed(machine.grant()[0])

    assert carried(machine, 1) == 60_000


def previewed(machine: Machine, count: int = 10, **fields: object) -> list[tuple[str, str]]:
    """The scheduled times that are shown, by hour, with their notes."""
    request = job_pb2.PreviewScheduleRequest(count=count, **fields)  # type: ignore[arg-type]
    shown = ask(machine, request, job_pb2.PreviewScheduleResponse).occurrences
    return [(item.local_time[11:16], item.note) for item in shown]


def test_no_more_is_previewed_than_may_run(machine: Machine) -> None:
    machine.create("a", cron="0 * * * *", timing=schedule_pb2.Timing(max_runs=3))
    hours = [("01:00", ""), ("02:00", ""), ("03:00", "")]

    assert previewed(machine, job="a") == hours
    later = timestamp(instant("2026-01-01T01:30"))
    assert previewed(machine, job="a", from_time=later) == hours[1:]
    assert previewed(machine, job="a", from_time=timestamp(instant("2026-01-01T03:01"))) == []
    machine.at("2026-01-01T01:00")
    machine.fire()
    assert previewed(machine, job="a") == hours
    machine.advance(1)
    assert previewed(machine, job="a") == hours[1:]
    begin = timestamp(instant("2026-01-01T00:30"))
    assert previewed(machine, job="a", from_time=begin) == hours
    assert previewed(machine, 2, job="a", from_time=begin) == hours[:2]
    machine.at("2026-01-01T03:00:00.001")
    machine.fire()
    assert previewed(machine, job="a") == []
    assert previewed(machine, job="a", from_time=begin) == hours


def test_what_was_added_by_hand_is_previewed_and_counts(machine: Machine) -> None:
    machine.create("a", cron="0 * * * *", timing=schedule_pb2.Timing(max_runs=2))
    for at in ("2026-01-01T01:30", "2026-01-01T04:30"):
        edit = schedule_pb2.OccurrenceEdit(
            kind=schedule_pb2.OccurrenceEdit.KIND_ADD, scheduled_time=timestamp(instant(at))
        )
        machine.do(job_pb2.EditOccurrenceRequest(job="a", edit=edit))

    added = "added manually"
    seen = previewed(machine, job="a")
    for hour in range(1, 6):
        machine.at(f"2026-01-01T0{hour}:30")
        machine.fire()

    assert seen == [("01:00", ""), ("01:30", added)]
    ran = list(machine.ledger("a"))
    assert ran == [instant(f"2026-01-01T{clock}") for clock in ("01:00", "01:30")]


def test_of_schedules_that_are_not_stored_no_more_is_previewed_either(machine: Machine) -> None:
    schedules = [schedule_pb2.Schedule(cron=schedule_pb2.Cron(expression="0 * * * *"))]
    timing = schedule_pb2.Timing(max_runs=2)
    later = timestamp(instant("2026-01-01T01:30"))

    assert previewed(machine, schedules=schedules, timing=timing) == [("01:00", ""), ("02:00", "")]
    assert previewed(machine, schedules=schedules, timing=timing, from_time=later) == [
        ("02:00", "")
    ]


def test_runs_of_a_day_ago_say_nothing_of_the_last_hour(machine: Machine) -> None:
    machine.create("a")
    for took_ms, hour in ((1_000, 0), (2_000, 5)):
        machine.at(f"2026-01-01T0{hour}:00")
        machine.trigger("a")
        [lease] = machine.grant()
        machine.advance(took_ms)
        machine.succeed(lease)

    assert carried(machine, 1) == 30


def test_those_due_in_a_second_are_counted_once_in_a_decision(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of many new jobs that were due together walked over a thousand timers."""
    counted: list[int] = []
    genuine = job_warnings._count

    def count(view: View, second: int) -> int:
        counted.append(second)
        return genuine(view, second)

    monkeypatch.setattr(job_warnings, "_count", count)
    jobs = [job_of(f"job-{number}", cron="0 * * * *") for number in range(20)]

    machine.decide(*(job_pb2.CreateJobRequest(job=job) for job in jobs))

    assert len(counted) == 1
