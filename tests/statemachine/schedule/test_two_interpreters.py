"""Two nodes agree, whatever the seed of their interpreters' hashes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import raftsched.statemachine

SCRIPT = """
import json
from raftsched.proto.v1.calendar_pb2 import Calendar, CalendarRule
from raftsched.proto.v1.schedule_pb2 import Cron, Schedule, Timing
from raftsched.statemachine.schedule.calendar_days import compile_calendar
from raftsched.statemachine.schedule.describe import describe
from raftsched.statemachine.schedule.preview import preview
from raftsched.statemachine.schedule.compiler import compile_plan, lints

calendars = {"off": compile_calendar(Calendar(rules=[CalendarRule(yearly="12-25")]))}
told = []
for name in ("a", "b", "c"):
    for zone in ("Europe/Berlin", "Africa/Cairo", "Berlin", "Nowhere"):
        timing = Timing(zone=zone, exclude_calendars=["off", "of"][: len(name)])
        timing.jitter.seconds = 3600
        said = ["H H * * fri#2,mon#1", "*/7 1,2 * * *", "H/7 H(2-3) 1,L * *", "0 0 1 1 mon-wed"]
        schedules = [Schedule(cron=Cron(expression=one)) for one in said]
        plan = compile_plan(
            schedules, timing, seed="x/" + name, created_at_ms=1790000000000, calendars=calendars
        )
        told.append(
            repr(plan)
            if isinstance(plan, list)
            else [repr(one) for one in preview(plan, 1792000000000, 200)] + lints(plan)
        )
        told.append([describe(one, zone, seed="x/" + name) for one in schedules])
print(json.dumps(told))
"""


def told_by(hash_seed: str) -> str:
    source = Path(raftsched.statemachine.__file__).parents[1].parent
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env={"PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(source)},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stdout


@pytest.mark.slow
def test_two_interpreters_with_different_hash_seeds_say_the_same() -> None:
    first, second = told_by("1"), told_by("4242")

    assert first == second
    assert len(first) > 10_000
