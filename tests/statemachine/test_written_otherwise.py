"""Schedules are others when they name other instants, not when they are written otherwise."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from raftsched.proto.v1 import job_pb2, schedule_pb2
from raftsched.statemachine.core.instants import duration

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
        ("0 * * * *", ("0 * * * *", "1 1 1 1 *"), ""),
        ("0 9 * * *", "0 9 * * *", "Europe/Berlin"),
        ("H 1 * * *", "H 1 * * *", "Asia/Kolkata"),
    ],
)
def test_what_waits_is_missed_when_its_schedule_is_another(
    machine: Machine, cron: str | Iterable[str], other: str | Iterable[str], zone: str
) -> None:
    waiting(machine, cron)

    assert rewrite(machine, other, zone) == 1
