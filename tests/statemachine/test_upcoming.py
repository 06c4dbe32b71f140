"""The next time of a job that is shown will run, and what is left out before it is named."""

from __future__ import annotations

import pytest
from google.protobuf import duration_pb2

from raftsched.proto.v1 import calendar_pb2, job_pb2, run_pb2, schedule_pb2
from raftsched.statemachine.core.instants import timestamp
from raftsched.statemachine.model.request import Offer
from raftsched.statemachine.model.workers import Worker

from .asking import ask
from .driver import DAY_MS, HOUR_MS, MINUTE_MS, START_MS, Machine, instant

Edit = schedule_pb2.OccurrenceEdit
HOLIDAYS = schedule_pb2.Timing(exclude_calendars=["holidays"])
FIRST = START_MS + HOUR_MS


def status(machine: Machine, name: str = "a") -> job_pb2.JobStatus:
    got = ask(machine, job_pb2.GetJobRequest(job=name), job_pb2.Job).status
    listed = ask(machine, job_pb2.ListJobsRequest(), job_pb2.ListJobsResponse)
    [of_list] = [job.status for job in listed.jobs if job.name == name]
    of_status = ask(machine, job_pb2.GetJobStatusRequest(job=name), job_pb2.JobStatus)
    for other in (of_list, of_status):
        assert other.next_due_time == got.next_due_time
        assert other.left_out == got.left_out
    return got


def due_ms(machine: Machine, name: str = "a") -> int:
    return status(machine, name).next_due_time.ToMilliseconds()


def holidays(machine: Machine, **rule: object) -> None:
    rules = [calendar_pb2.CalendarRule(**rule)]  # type: ignore[arg-type]
    made = calendar_pb2.Calendar(name="holidays", rules=rules)
    machine.do(calendar_pb2.CreateCalendarRequest(calendar=made))


def edit(machine: Machine, at_ms: int, kind: Edit.Kind.ValueType, to_ms: int = 0) -> job_pb2.Job:
    change = Edit(scheduled_time=timestamp(at_ms), kind=kind)
    if to_ms:
        change.moved_to.CopyFrom(timestamp(to_ms))
    return machine.ask(job_pb2.EditOccurrenceRequest(job="a", edit=change), job_pb2.Job)


def scheduled(machine: Machine) -> set[int]:
    runs = machine.live("a") + machine.ended("a")
    return {run.scheduled_time.ToMilliseconds() for run in runs}


def explained(machine: Machine) -> list[str]:
    request, idle = job_pb2.ExplainJobRequest(job="a"), Worker(Offer("w1", 2), 2)
    answer = ask(machine, request, run_pb2.Explanation, [idle])
    return [obstacle.message for obstacle in answer.obstacles]


def test_a_skipped_time_is_not_the_next_one(machine: Machine) -> None:
    machine.create("a", cron="0 * * * *")

    answer = edit(machine, FIRST, Edit.KIND_SKIP)

    assert answer.status.next_due_time.ToMilliseconds() == FIRST + HOUR_MS
    assert due_ms(machine) == FIRST + HOUR_MS
    assert status(machine).left_out == "2026-01-01 01:00:00 UTC manually"
    assert explained(machine) == [
        "it is due next at 2026-01-01 02:00:00 UTC",
        "left out before that: 2026-01-01 01:00:00 UTC manually",
    ]


def test_days_that_a_calendar_leaves_out_are_passed_over(machine: Machine) -> None:
    holidays(machine, range=calendar_pb2.DateRange(first="2026-01-01", last="2026-01-03"))
    machine.create("a", cron="*/10 * * * *", timing=HOLIDAYS)

    assert due_ms(machine) == START_MS + 3 * DAY_MS
    assert status(machine).left_out == (
        "2026-01-01 00:10:00 UTC to 2026-01-03 23:50:00 UTC by the calendar 'holidays'"
    )


def test_what_is_added_or_moved_on_a_day_off_is_the_next(machine: Machine) -> None:
    holidays(machine, date="2026-01-01")
    machine.create("a", cron="0 * * * *", timing=HOLIDAYS)
    edit(machine, FIRST + 5 * HOUR_MS, Edit.KIND_MOVE, FIRST + 6 * HOUR_MS + 1)
    assert due_ms(machine) == FIRST + 6 * HOUR_MS + 1

    edit(machine, FIRST + MINUTE_MS, Edit.KIND_ADD)

    assert due_ms(machine) == FIRST + MINUTE_MS
    assert status(machine).left_out.startswith("2026-01-01 01:00:00 UTC by the calendar")


def test_one_that_is_moved_away_gives_place_to_the_one_behind_it(machine: Machine) -> None:
    machine.create("a", cron="0 * * * *")

    edit(machine, FIRST, Edit.KIND_MOVE, FIRST + 90 * MINUTE_MS)

    assert due_ms(machine) == FIRST + HOUR_MS
    assert status(machine).left_out == ""


def test_the_last_of_a_job_that_is_skipped_leaves_none(machine: Machine) -> None:
    machine.create("a", cron="0 * * * *", timing=schedule_pb2.Timing(max_runs=1))

    edit(machine, FIRST, Edit.KIND_SKIP)

    assert not status(machine).HasField("next_due_time")
    assert "01:00:00 UTC manually" in status(machine).left_out


def test_a_calendar_that_leaves_out_everything_is_not_searched_for_ever(machine: Machine) -> None:
    holidays(machine, range=calendar_pb2.DateRange(first="2000-01-01", last="2099-12-31"))
    machine.create("a", cron="* * * * * *", timing=HOLIDAYS)

    assert not status(machine).HasField("next_due_time")
    assert status(machine).left_out.endswith("UTC and what follows")
    assert "no time that will run is known" in explained(machine)[0]


def test_a_job_whose_calendars_leave_out_every_day_has_a_warning(machine: Machine) -> None:
    rules = [calendar_pb2.CalendarRule(weekday=day) for day in range(1, 8)]
    made = calendar_pb2.Calendar(name="holidays", rules=rules)
    machine.do(calendar_pb2.CreateCalendarRequest(calendar=made))

    job = machine.create("a", cron="0 * * * *", timing=HOLIDAYS)

    [said] = job.status.warnings
    assert said.startswith("its calendars leave out what lies ahead: 2026-01-01 01:00:00")
    assert "no time that will run is known" in explained(machine)[0]
    del made.rules[3:]
    machine.do(calendar_pb2.UpdateCalendarRequest(calendar=made))
    assert not machine.create("b", cron="0 * * * *", timing=HOLIDAYS).status.warnings


@pytest.mark.parametrize("every_ms", [7 * MINUTE_MS, HOUR_MS, 5 * HOUR_MS])
def test_it_is_the_one_that_fires(machine: Machine, every_ms: int) -> None:
    holidays(machine, weekday=5)
    rate = schedule_pb2.Interval()
    rate.every.FromMilliseconds(every_ms)
    machine.create("a", schedules=[schedule_pb2.Schedule(interval=rate)], timing=HOLIDAYS)
    first = due_ms(machine)
    edit(machine, first + every_ms, Edit.KIND_SKIP)
    for _ in range(60):
        expected, before = due_ms(machine), scheduled(machine)
        machine.at(expected - 1)
        machine.fire_all()
        assert scheduled(machine) <= before
        machine.at(expected)
        machine.fire_all()
        assert scheduled(machine) - before == {expected}
        for lease in machine.grant("w1"):
            machine.succeed(lease)


def test_a_time_that_was_moved_to_earlier_and_ran_is_not_the_next_one(machine: Machine) -> None:
    machine.create("a", cron="0 * * * *")
    edit(machine, FIRST, Edit.KIND_MOVE, FIRST - 30 * MINUTE_MS)
    machine.at(FIRST - 20 * MINUTE_MS)
    machine.fire()
    assert scheduled(machine) == {FIRST}

    assert due_ms(machine) == FIRST + HOUR_MS
    assert status(machine).left_out == ""
    preview = job_pb2.PreviewScheduleRequest(job="a", count=2)
    shown = ask(machine, preview, job_pb2.PreviewScheduleResponse).occurrences
    assert [(item.excluded, item.note) for item in shown] == [
        (True, "was moved manually, and came before its time"),
        (False, ""),
    ]
    forecast = job_pb2.ForecastFiringsRequest(ahead=duration_pb2.Duration(seconds=3_600))
    minutes = ask(machine, forecast, job_pb2.ForecastFiringsResponse).minutes
    assert sum(minute.firings for minute in minutes) == 0
    machine.at(FIRST)
    machine.fire()
    assert due_ms(machine) == FIRST + HOUR_MS
    assert scheduled(machine) == {FIRST}


def test_what_was_added_has_no_jitter_in_the_preview_nor_when_it_comes(machine: Machine) -> None:
    timing = schedule_pb2.Timing(jitter=duration_pb2.Duration(seconds=1_800))
    machine.create("a", cron="0 12 * * *", timing=timing)
    edit(machine, FIRST, Edit.KIND_ADD)

    preview = job_pb2.PreviewScheduleRequest(job="a", count=2)
    added, daily = ask(machine, preview, job_pb2.PreviewScheduleResponse).occurrences

    assert daily.due_time.ToMilliseconds() > daily.scheduled_time.ToMilliseconds()
    assert added.due_time.ToMilliseconds() == FIRST == due_ms(machine)
    machine.at(FIRST)
    machine.fire()
    assert scheduled(machine) == {FIRST}


# Pause.


def test_a_pause_says_who_until_when_and_why(machine: Machine) -> None:
    machine.create("a", cron="0 * * * *")
    until = timestamp(instant("2026-01-02T00:00"))
    pause = job_pb2.PauseJobRequest(job="a", reason="db migration", until=until)

    machine.do(pause, actor="ann")

    assert status(machine).paused_by == "ann"
    assert explained(machine)[0] == (
        "it is paused until 2026-01-02 00:00:00 UTC by ann because of: db migration"
    )
    machine.do(job_pb2.ResumeJobRequest(job="a"), actor="bob")
    assert status(machine).paused_by == ""
