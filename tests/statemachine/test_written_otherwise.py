"""Schedules are others when they name other instants, not when they are written otherwise."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from raftsched.proto.v1 import job_pb2, schedule_pb2
from raftsched.statemachine.core.instants import duration
from raftsched.statemachine.occurrences import next_time

from .driver import HOUR_MS, Machine, job_of

JITTER = duration(HOUR_MS)


def waiting(machine: Machine, cron: str | Iterable[str], zone: str = "") -> None:
    """A job whose scheduled time has come and waits for its jitter."""
    timing = schedule_pb2.Timing(jitter=JITTER, zone=zone)
    machine.create("waits", cron=cron, timing=timing)
    while not 0 < machine.state("waits").next_scheduled_at_ms <= machine.now_ms:
        machine.advance(HOUR_MS // 60)
        machine.fire()


def rewrite(machine: Machine, cron: str | Iterable[str], zone: str = "") -> int:
    """Write the schedules anew; how many scheduled times are missed thereby."""
    job = job_of("waits", cron=cron, timing=schedule_pb2.Timing(jitter=JITTER, zone=zone))
    before = len(machine.ledger("waits"))
    machine.do(job_pb2.UpdateJobRequest(job=job))
    machine.check()
    return len(machine.ledger("waits")) - before


@pytest.mark.parametrize(
    ("cron", "other"),
    [
        ("0 * * * *", "0  * * * *"),
        ("0 * * * *", "@hourly"),
        ("0 * * * mon,thu,fri", "0 * * * 1,4-5"),
        ("0 * * JAN *", "0 * * 1 *"),
        (("0 1 * * *", "0 2 * * *"), ("0 2 * * *", "0 1 * * *")),
        ("H * * * *", "h  * * * *"),
        ("0 * * * *", ("0 * * * *", "1 1 1 1 *")),
        ("0 * * * *", "0,30 * * * *"),
        ("0 * * * *", ("0 0-11 * * *", "0 12-23 * * *")),
    ],
)
def test_what_waits_is_not_missed_when_its_schedule_is_written_otherwise(
    machine: Machine, cron: str | Iterable[str], other: str | Iterable[str]
) -> None:
    waiting(machine, cron)

    assert rewrite(machine, other) == 0


@pytest.mark.parametrize(
    ("cron", "other", "zone"),
    [
        ("0 * * * *", "1 * * * *", ""),
        ("0 9 * * *", "0 9 * * *", "Europe/Berlin"),
        ("H 1 * * *", "H 1 * * *", "Asia/Kolkata"),
    ],
)
def test_what_waits_is_missed_when_its_schedule_is_another(
    machine: Machine, cron: str | Iterable[str], other: str | Iterable[str], zone: str
) -> None:
    waiting(machine, cron)

    assert rewrite(machine, other, zone) == 1


def work(machine: Machine) -> None:
    for lease in machine.grant():
        machine.succeed(lease)


HALF_HOUR = duration(HOUR_MS // 2)
RATE = schedule_pb2.Schedule(interval=schedule_pb2.Interval(every=HALF_HOUR))
REST = schedule_pb2.Schedule(after_end=schedule_pb2.AfterEnd(delay=HALF_HOUR))


@pytest.mark.parametrize(("before", "after"), [(RATE, REST), (REST, RATE)])
@pytest.mark.parametrize("under_way", [False, True])
def test_a_rest_and_a_rate_of_the_same_length_are_others(
    machine: Machine,
    before: schedule_pb2.Schedule,
    after: schedule_pb2.Schedule,
    under_way: bool,
) -> None:
    job = job_of("x", cron=())
    job.spec.schedules.append(before)
    machine.do(job_pb2.CreateJobRequest(job=job))
    machine.advance(HOUR_MS // 2)
    machine.fire()
    if not under_way:
        work(machine)
    job.spec.schedules[0].CopyFrom(after)
    machine.advance(HOUR_MS // 8)
    machine.do(job_pb2.UpdateJobRequest(job=job))

    fired = machine.state("x").fired
    for _ in range(5):
        work(machine)
        machine.advance(HOUR_MS // 2)
        machine.fire()

    assert machine.state("x").state == next_time.ACTIVE
    assert machine.state("x").fired >= fired + 3
    machine.check()
