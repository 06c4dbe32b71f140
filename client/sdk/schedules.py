"""When a job is to happen, as Python says it.

cron("0 6 * * mon-fri", zone="Europe/Berlin")
every(timedelta(minutes=5))
once(datetime(2027, 1, 1, 9, tzinfo=ZoneInfo("Europe/Berlin")))
after_end(30)
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from ...proto.v1 import schedule_pb2
from .values import Length, duration, timestamp


@dataclass(frozen=True)
class When:
    """One schedule of a job; a job takes one or several."""

    message: schedule_pb2.Schedule
    # The zone is shared by all schedules of a job. Empty: not said here.
    zone: str = ""


def cron(expression: str, *, zone: str = "") -> When:
    """By a cron expression of five to seven fields, or `@daily`; see schedule.proto for the words.

    cron("*/5 * * * *", zone="Europe/Berlin")
    """
    return When(schedule_pb2.Schedule(cron=schedule_pb2.Cron(expression=expression)), zone)


def every(period: Length, *, anchor: datetime | None = None) -> When:
    """At a fixed rate: at `anchor` plus a whole number of periods.

    every(timedelta(hours=6), anchor=datetime(2026, 1, 1, tzinfo=UTC))
    """
    fixed = schedule_pb2.Interval(every=duration(period), anchor=timestamp(anchor))
    return When(schedule_pb2.Schedule(interval=fixed))


def once(time: datetime) -> When:
    """One time, at an instant; one in the past runs at once.

    once(datetime(2027, 1, 1, 9, tzinfo=ZoneInfo("Europe/Berlin")))
    """
    return When(schedule_pb2.Schedule(once=schedule_pb2.Once(time=timestamp(time))))


def after_end(delay: Length) -> When:
    """Again and again, so long after the last run ended.

    after_end(timedelta(minutes=10))
    """
    rest = schedule_pb2.AfterEnd(delay=duration(delay))
    return When(schedule_pb2.Schedule(after_end=rest))
