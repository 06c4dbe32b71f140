"""The jobs of a run, and when each is due, by arithmetic of our own.

Nothing of the scheduler's own code for schedules is used here: what a job is due at is counted from
whole periods, or found by looking at each second with the zone files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from ...proto.v1 import job_pb2
from .history import Event, Follows, Limited, RecurringJob

HERD, ONCE, PROBE = "herd", "once", "probe"
HANDS = 5
# Recurring jobs: seconds between their scheduled times, and how many jobs of each.
PERIODS = {1: 10, 2: 10, 5: 20}
ATTEMPTS = 20
FAR_MS = 3_600_000
# A second attempt of these could do harm, so there is none.
FRAIL = {"frail-0": 1, "frail-1": 2}
RESTS = ("rest-0", "rest-1", "rest-2")
REST_GRACE_MS = 300
LIMIT, LIMITED_JOBS, LIMITED_S = 2, 4, 3
FLOW_S = 3
Wall = Callable[[datetime], bool]


@dataclass(frozen=True, slots=True)
class Zoned:
    """A cron expression, and the same again as a question to a clock on the wall."""

    expression: str
    zone: str
    due: Wall

    def times(self, from_ms: int, until_ms: int) -> Iterator[int]:
        zone = ZoneInfo(self.zone)
        for second in range(-(-from_ms // 1000), until_ms // 1000 + 1):
            if self.due(datetime.fromtimestamp(second, UTC).astimezone(zone)):
                yield 1000 * second


# Zones that are no whole hours from UTC show minutes and halves of the day at other times.
ZONED = {
    "zone-0": Zoned("*/4 */2 * * * *", "Asia/Kathmandu",
                    lambda t: t.second % 4 == 0 and t.minute % 2 == 0),
    "zone-1": Zoned("1-59/6 1-59/2 * * * *", "Asia/Kathmandu",
                    lambda t: t.second % 6 == 1 and t.minute % 2 == 1),
    "zone-2": Zoned("*/3 * 0-11 * * *", "Pacific/Chatham",
                    lambda t: t.second % 3 == 0 and t.hour < 12),
    "zone-3": Zoned("2-59/5 * 12-23 * * *", "America/St_Johns",
                    lambda t: t.second % 5 == 2 and t.hour >= 12),
    "zone-4": Zoned("*/7 * * * * MON,WED,FRI", "Pacific/Kiritimati",
                    lambda t: t.second % 7 == 0 and t.weekday() in (0, 2, 4)),
    "zone-5": Zoned("30/10 * * 1-15 * *", "America/Caracas",
                    lambda t: t.second in (30, 40, 50) and t.day <= 15),
}  # fmt: skip


def periods() -> dict[str, int]:
    """The jobs that are due at whole multiples of a period: name -> milliseconds."""
    found = {
        f"every-{seconds}-{number}": 1000 * seconds
        for seconds, count in PERIODS.items()
        for number in range(count)
    }
    found |= dict.fromkeys(RESTS, 1000)
    found |= {f"limited-{number}": 1000 * LIMITED_S for number in range(LIMITED_JOBS)}
    found |= {name: 1000 * seconds for name, seconds in FRAIL.items()}
    return found | {"flow-a": 1000 * FLOW_S}


def recurring() -> list[str]:
    """All that are due by a schedule."""
    return [*periods(), *ZONED]


def everything() -> Iterator[job_pb2.Job]:
    """All jobs that are there from the beginning; upstream before downstream."""
    for number, (name, every_ms) in enumerate(periods().items()):
        job = job_pb2.Job(name=name)
        plain(job.spec)
        schedule(job.spec, every_ms // 1000, cron=number % 2 == 0)
        if name in RESTS:
            job.spec.misfire.rule = job_pb2.MisfirePolicy.RULE_SKIP
            job.spec.misfire.grace.FromMilliseconds(REST_GRACE_MS)
        if name in FRAIL:
            job.spec.delivery = job_pb2.DELIVERY_AT_MOST_ONCE
            job.spec.ClearField("retry")
        if name.startswith("limited-"):
            job.spec.action.handler = "slow"
            job.spec.concurrency.key, job.spec.concurrency.key_limit = "few", LIMIT
        yield job
    for name, zoned in ZONED.items():
        job = job_pb2.Job(name=name)
        plain(job.spec)
        job.spec.schedules.add().cron.expression = zoned.expression
        job.spec.timing.zone = zoned.zone
        yield job
    for name, upstream in (("flow-b", ["flow-a"]), ("flow-c", ["flow-a", "flow-b"])):
        job = job_pb2.Job(name=name)
        plain(job.spec)
        for each in upstream:
            job.spec.upstream.jobs.add(job=each)
        yield job
    for name in (*(f"hand-{number}" for number in range(HANDS)), PROBE):
        job = job_pb2.Job(name=name)
        plain(job.spec)
        yield job


def plans(from_ms: int, until_ms: int) -> Iterator[Event]:
    """What is surely due between two instants, and what else is promised of these jobs."""
    for name, every_ms in periods().items():
        prompt = name.startswith("every-")
        must_run = name not in RESTS
        most = 1 if name in FRAIL else ATTEMPTS
        yield RecurringJob(name, every_ms, from_ms, until_ms, most, prompt, must_run=must_run)
    for name, zoned in ZONED.items():
        # Times before and after are no less scheduled times, only not surely fired.
        times = tuple(zoned.times(from_ms - FAR_MS // 4, until_ms + FAR_MS // 4))
        yield RecurringJob(name, 1000, from_ms, until_ms, ATTEMPTS, True, times, must_run=True)
    yield Limited(tuple(f"limited-{number}" for number in range(LIMITED_JOBS)), LIMIT)
    yield Follows("flow-b", ("flow-a",), from_ms)
    yield Follows("flow-c", ("flow-a", "flow-b"), from_ms)


def plain(spec: job_pb2.JobSpec) -> None:
    """A job with no overlap rule or start deadline to lose runs by: every scheduled time runs."""
    spec.action.handler = "work"
    spec.overlap.rule = job_pb2.OverlapPolicy.RULE_ALLOW
    spec.misfire.grace.FromMilliseconds(FAR_MS)
    spec.retry.max_attempts = ATTEMPTS
    spec.retry.first.FromMilliseconds(100)
    spec.retry.cap.FromMilliseconds(1_000)


def schedule(spec: job_pb2.JobSpec, seconds: int, *, cron: bool) -> None:
    """Two ways to say the same, so that both are tried: all on whole multiples of the period."""
    if cron:
        spec.schedules.add().cron.expression = f"*/{seconds} * * * * *"
    else:
        interval = spec.schedules.add().interval
        interval.every.FromSeconds(seconds)
        interval.anchor.FromSeconds(0)


def valued(name: str, value: str) -> job_pb2.Job:
    job = job_pb2.Job(name=name)
    plain(job.spec)
    job.spec.payload.data = value.encode()
    return job
