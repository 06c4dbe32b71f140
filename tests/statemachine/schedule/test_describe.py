"""Schedules in words."""

from __future__ import annotations

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from raftsched.proto.v1.schedule_pb2 import AfterEnd, Cron, Interval, Once, Schedule
from raftsched.statemachine.schedule.describe import describe

from ...rows import each


@each(
    ("expression", "words"),
    [
        ("0 9 * * mon-fri", "at 09:00 on Monday to Friday, Europe/Berlin"),
        ("0 9 * * sat,sun", "at 09:00 on Saturday and Sunday, Europe/Berlin"),
        ("0 9 * * mon,wed,fri", "at 09:00 on Monday, Wednesday and Friday, Europe/Berlin"),
        ("30 2 * * *", "at 02:30 every day, Europe/Berlin"),
        ("0 8,12,17 * * *", "at 08:00, 12:00 and 17:00 every day, Europe/Berlin"),
        ("15 30 9 * * *", "at 09:30:15 every day, Europe/Berlin"),
        ("@daily", "at 00:00 every day, Europe/Berlin"),
        ("@hourly", "every hour at minute 0, Europe/Berlin"),
        ("@weekly", "at 00:00 on Sunday, Europe/Berlin"),
        ("@yearly", "at 00:00 on day 1 of the month in January, Europe/Berlin"),
        ("* * * * *", "every minute, Europe/Berlin"),
        ("*/5 * * * *", "every 5 minutes, Europe/Berlin"),
        ("* * * * * *", "every second, Europe/Berlin"),
        ("*/10 * * * * *", "every 10 seconds, Europe/Berlin"),
        ("30 */5 * * * *", "every 5 minutes, 30 s past, Europe/Berlin"),
        ("5,35 * * * *", "every hour at minutes 5 and 35, Europe/Berlin"),
        ("*/15 8-17 * * mon-fri",
         "every 15 minutes from 08:00 to 17:45 on Monday to Friday, Europe/Berlin"),
        ("* 9-10 * * *", "every minute from 09:00 to 10:59 every day, Europe/Berlin"),
        ("30 8-17 * * *", "every hour from 08:30 to 17:30 every day, Europe/Berlin"),
        ("0 */6 * * *", "at 00:00, 06:00, 12:00 and 18:00 every day, Europe/Berlin"),
        ("0 */2 * * *", "every 2 hours from 00:00 to 22:00 every day, Europe/Berlin"),
        ("20 */3 * * mon", "every 3 hours from 00:20 to 21:20 on Monday, Europe/Berlin"),
        ("0 0 1,15 * *", "at 00:00 on days 1 and 15 of the month, Europe/Berlin"),
        ("0 0 L * *", "at 00:00 on the last day of the month, Europe/Berlin"),
        ("0 0 L-1 * *", "at 00:00 1 day before the last of the month, Europe/Berlin"),
        ("0 0 15,L-3 * *",
         "at 00:00 on day 15 of the month or 3 days before the last of the month, Europe/Berlin"),
        ("0 0 LW * *", "at 00:00 on the last weekday of the month, Europe/Berlin"),
        ("0 0 31W * *", "at 00:00 on the weekday nearest to day 31, Europe/Berlin"),
        ("0 0 */15 * mon",
         "at 00:00 on days 1, 16 and 31 of the month, but only on Monday, Europe/Berlin"),
        ("0 0 1-31 * mon", "at 00:00 every day, Europe/Berlin"),
        ("0 0 15W * *", "at 00:00 on the weekday nearest to day 15, Europe/Berlin"),
        ("0 0 * * fri#2", "at 00:00 on the second Friday of the month, Europe/Berlin"),
        ("0 0 * * L5", "at 00:00 on the last Friday of the month, Europe/Berlin"),
        ("0 0 13 * fri", "at 00:00 on day 13 of the month or on Friday, Europe/Berlin"),
        ("0 0 * 1,7 *", "at 00:00 in January and July, Europe/Berlin"),
        ("0 0 9 1 1 * 2027", "at 09:00 on day 1 of the month in January of 2027, Europe/Berlin"),
        ("@every 90m", "every 90 minutes"),
        # No short sentence is exact.
        ("7,9,23 1-20 * * *", "cron '7,9,23 1-20 * * *', Europe/Berlin"),
        ("*/7 * * * *", "cron '*/7 * * * *', Europe/Berlin"),
        ("*/10 5 * * * *", "cron '*/10 5 * * * *', Europe/Berlin"),
        ("not cron", "cron 'not cron', Europe/Berlin"),
    ],
)  # fmt: skip
def test_an_expression_is_said_in_english(expression: str, words: str) -> None:
    assert describe(Schedule(cron=Cron(expression=expression)), "Europe/Berlin") == words


@each(
    ("schedule", "words"),
    [
        (Schedule(once=Once(time=Timestamp(seconds=1_800_000_000))),
         "once at 2027-01-15 08:00:00 UTC"),
        (Schedule(interval=Interval(every=Duration(seconds=60))), "every minute"),
        (Schedule(interval=Interval(every=Duration(seconds=172_800))), "every 2 days"),
        (Schedule(interval=Interval(every=Duration(seconds=1, nanos=500_000_000))),
         "every 1500 ms"),
        (Schedule(after_end=AfterEnd(delay=Duration(seconds=3600))),
         "1 hour after the end of the last run"),
        (Schedule(after_end=AfterEnd()), "at once after the end of the last run"),
        (Schedule(cron=Cron(expression="0 9 * * *")), "at 09:00 every day, UTC"),
        (Schedule(), "never"),
    ],
)  # fmt: skip
def test_other_schedules_are_said_in_english(schedule: Schedule, words: str) -> None:
    assert describe(schedule) == words


def test_a_spread_place_is_said_as_the_job_has_it() -> None:
    schedule = Schedule(cron=Cron(expression="H H * * *"))

    assert describe(schedule, seed="default/report") == "at 03:24 every day, UTC"
