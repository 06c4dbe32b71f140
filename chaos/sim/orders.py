"""What an order says: schedules, policies, limits, and what it waits for, part by part.

Cron expressions are made from the minutes, hours and weekdays that they mean, so that the oracle
counts their times by hand (`reckoning.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

from ...proto.v1 import calendar_pb2, common_pb2, job_pb2, schedule_pb2
from ...statemachine.core.instants import duration, timestamp

if TYPE_CHECKING:
    from .moves import People

SECOND_MS = 1_000
MINUTE_MS = 60 * SECOND_MS
DAY_MS = 24 * 60 * MINUTE_MS
# Clocks go forward and back by an hour or by half of one, at different hours, or never.
ZONES = ("Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu")
CALENDARS = ("off", "other")
QUEUES = ("default", "slow")
Spec = job_pb2.JobSpec
Misfire, Overlap = job_pb2.MisfirePolicy, job_pb2.OverlapPolicy
Dependency, Timing = job_pb2.Dependency, schedule_pb2.Timing
MINUTES = ("0", "30", "0,30", "10,40", "0,10,20,30,40,50")
HOURS = ("*", "2", "2", "1,2,3", "0,6,12,18", "9")
WEEKDAYS = ("*", "*", "1,2,3,4,5", "0,6")


class Part(NamedTuple):
    """One part of an order: how it is drawn, and the paths that name it in an update."""

    put: Callable[[People, Spec], None]
    paths: tuple[str, ...]


def fill(who: People, spec: Spec) -> None:
    """An order with some of the parts."""
    for name in sorted(who.parts):
        if name == "schedules" or who.dice.random() < 0.4:
            PARTS[name].put(who, spec)


def schedules(who: People, spec: Spec) -> None:
    for _ in range(who.dice.choice((0, 1, 1, 1, 1, 2))):
        _schedule(who, spec.schedules.add())


def _schedule(who: People, wanted: schedule_pb2.Schedule) -> None:
    dice, unit_ms = who.dice, who.unit_ms
    kind = dice.choice(("interval", "interval", "cron", "cron", "cron", "once", "after_end"))
    if kind == "interval":
        wanted.interval.every.CopyFrom(duration(dice.choice((1, 1, 3, 6, 36)) * unit_ms))
        if dice.random() < 0.7:
            wanted.interval.anchor.CopyFrom(timestamp(dice.choice((0, unit_ms // 2))))
    elif kind == "cron" and unit_ms < MINUTE_MS:
        wanted.cron.expression = f"*/{dice.choice((1, 2, 3))} * * * * *"
    elif kind == "cron":
        place = dice.choice(MINUTES), dice.choice(HOURS), dice.choice(WEEKDAYS)
        wanted.cron.expression = "{} {} * * {}".format(*place)
    elif kind == "once":
        wanted.once.time.CopyFrom(timestamp(who.ahead() - dice.choice((0, 20)) * unit_ms))
    else:
        wanted.after_end.delay.CopyFrom(duration(dice.choice((0, 1, 3)) * unit_ms))


def zone(who: People, spec: Spec) -> None:
    spec.timing.zone = who.dice.choice(ZONES)
    spec.timing.gap_rule = who.dice.choice(schedule_pb2.GapRule.values())
    spec.timing.fold_rule = who.dice.choice(schedule_pb2.FoldRule.values())


def calendars(who: People, spec: Spec) -> None:
    """Those that there are, one or all."""
    names = sorted(who.calendars)
    if names:
        spec.timing.exclude_calendars.extend(who.dice.choice((names, names[:1], names[-1:])))


def max_runs(who: People, spec: Spec) -> None:
    spec.timing.max_runs = who.dice.choice((1, 3, 10, 30))


def window(who: People, spec: Spec) -> None:
    """Not before, and not after."""
    if who.dice.random() < 0.5:
        spec.timing.start_time.CopyFrom(timestamp(who.ahead()))
    if who.dice.random() < 0.7:
        spec.timing.end_time.CopyFrom(timestamp(who.ahead() + 60 * who.unit_ms))


def jitter(who: People, spec: Spec) -> None:
    spec.timing.jitter.CopyFrom(duration(who.unit_ms // 2))


def misfire(who: People, spec: Spec) -> None:
    dice = who.dice
    spec.misfire.rule = dice.choice(Misfire.Rule.values())
    spec.misfire.maximum = dice.choice((0, 1, 5, 100))
    spec.misfire.grace.CopyFrom(duration(dice.choice((0, 1, 10, 60)) * who.unit_ms // 10))


def deadline(who: People, spec: Spec) -> None:
    spec.misfire.start_deadline.CopyFrom(duration(who.dice.choice((1, 10, 50)) * who.unit_ms))


def overlap(who: People, spec: Spec) -> None:
    spec.overlap.rule = who.dice.choice(Overlap.Rule.values())
    spec.overlap.limit = who.dice.choice((0, 1, 2, 3))


def limit(who: People, spec: Spec) -> None:
    spec.concurrency.job = who.dice.choice((1, 1, 2, 3))


def key(who: People, spec: Spec) -> None:
    spec.concurrency.key = who.dice.choice("kl")
    spec.concurrency.key_limit = who.dice.choice((1, 2))


def retry(who: People, spec: Spec) -> None:
    dice = who.dice
    spec.retry.max_attempts = dice.choice((1, 2, 3))
    spec.retry.first.CopyFrom(duration(dice.choice((0, who.unit_ms // 10, who.unit_ms))))
    if dice.random() < 0.3:
        spec.retry.total.CopyFrom(duration(dice.choice((1, 3)) * who.unit_ms))


def timeouts(who: People, spec: Spec) -> None:
    for field in ("queue", "attempt", "run", "heartbeat"):
        if who.dice.random() < 0.4:
            getattr(spec.timeouts, field).CopyFrom(
                duration(who.dice.choice((1, 10, 60)) * who.unit_ms // 10)
            )


def priority(who: People, spec: Spec) -> None:
    spec.priority = who.dice.choice(common_pb2.Priority.values())


def queue(who: People, spec: Spec) -> None:
    spec.queue = who.dice.choice(QUEUES)


def upstream(who: People, spec: Spec) -> None:
    """It waits for others, and has no times of its own as a rule."""
    names = sorted(who.jobs)
    if not names:
        return
    if who.dice.random() < 0.8:
        del spec.schedules[:]
    for name in sorted({who.dice.choice(names) for _ in range(who.dice.choice((1, 1, 2)))}):
        condition = who.dice.choice(Dependency.Condition.values())
        spec.upstream.jobs.add(job=name, condition=condition)
    spec.upstream.join = who.dice.choice(job_pb2.Upstream.Join.values())
    if who.dice.random() < 0.3:
        spec.upstream.stuck_after.CopyFrom(duration(10 * who.unit_ms))


def on_failure(who: People, spec: Spec) -> None:
    if who.jobs:
        spec.on_failure.job = who.job()


def pause_on_failure(who: People, spec: Spec) -> None:
    spec.pause_on_failure = who.dice.choice((1, 2))


def delivery(who: People, spec: Spec) -> None:
    spec.delivery = who.dice.choice(job_pb2.Delivery.values())


def payload(who: People, spec: Spec) -> None:
    spec.payload.data = b"%d" % who.count


def keep(who: People, spec: Spec) -> None:
    spec.keep_history.CopyFrom(duration(who.dice.choice((6, 300)) * who.unit_ms))


PARTS: dict[str, Part] = {
    "schedules": Part(schedules, ("spec.schedules",)),
    "zone": Part(zone, ("spec.timing.zone", "spec.timing.gap_rule", "spec.timing.fold_rule")),
    "calendars": Part(calendars, ("spec.timing.exclude_calendars",)),
    "max_runs": Part(max_runs, ("spec.timing.max_runs",)),
    "window": Part(window, ("spec.timing.start_time", "spec.timing.end_time")),
    "jitter": Part(jitter, ("spec.timing.jitter",)),
    "misfire": Part(misfire, ("spec.misfire.rule", "spec.misfire.maximum", "spec.misfire.grace")),
    "deadline": Part(deadline, ("spec.misfire.start_deadline",)),
    "overlap": Part(overlap, ("spec.overlap",)),
    "limit": Part(limit, ("spec.concurrency.job",)),
    "key": Part(key, ("spec.concurrency.key", "spec.concurrency.key_limit")),
    "retry": Part(retry, ("spec.retry",)),
    "timeouts": Part(timeouts, ("spec.timeouts",)),
    "priority": Part(priority, ("spec.priority",)),
    "queue": Part(queue, ("spec.queue",)),
    "upstream": Part(upstream, ("spec.upstream",)),
    "on_failure": Part(on_failure, ("spec.on_failure",)),
    "pause_on_failure": Part(pause_on_failure, ("spec.pause_on_failure",)),
    "delivery": Part(delivery, ("spec.delivery",)),
    "payload": Part(payload, ("spec.payload",)),
    "keep": Part(keep, ("spec.keep_history",)),
}


def leave_out(who: People, rule: calendar_pb2.CalendarRule) -> None:
    """One of the days around, each weekend, or some in a row."""
    day = datetime.fromtimestamp(who.now_ms() // 1000, UTC).toordinal() + who.dice.randrange(6)
    kind = who.dice.choice(("date", "date", "yearly", "weekday", "range"))
    text = datetime.fromordinal(day).date().isoformat()
    if kind == "date":
        rule.date = text
    elif kind == "yearly":
        rule.yearly = text[5:]
    elif kind == "weekday":
        rule.weekday = who.dice.choice((6, 7))
    else:
        rule.range.first = text
        rule.range.last = datetime.fromordinal(day + 1).date().isoformat()
