"""What is behind its time keeps no place before what others have to do: all take turns."""

from __future__ import annotations

import pytest

from raftsched.proto.v1 import job_pb2, namespace_pb2
from raftsched.statemachine.budget import Steps
from raftsched.statemachine.instants import duration, timestamp
from raftsched.statemachine.request import Ring
from raftsched.statemachine.store import MemoryStore

from .driver import HOUR_MS, MINUTE_MS, SECOND_MS, START_MS, Machine

ALLOW = job_pb2.OverlapPolicy(rule=job_pb2.OverlapPolicy.RULE_ALLOW)
CROWD = 20
TICK_MS = 20  # Of the clock, from one decision to the next.
BACKFILLED, LATE = "backfilled", "late"


def crowd(what: str, times: int) -> Machine:
    """Some jobs with so many times each to run; and one of another namespace, each second."""
    machine = Machine(MemoryStore())
    other = namespace_pb2.Namespace(name="other")
    machine.do(namespace_pb2.CreateNamespaceRequest(namespace=other))
    grace = job_pb2.MisfirePolicy(grace=duration(HOUR_MS))
    if what == BACKFILLED:
        machine.advance(times * MINUTE_MS)
    for number in range(CROWD):
        expression = "* * * * *" if what == BACKFILLED else "* * * * * *"
        machine.create(f"j{number}", cron=expression, overlap=ALLOW, misfire=grace)
    if what == LATE:
        machine.advance(times * SECOND_MS)
    else:
        for number in range(CROWD):
            machine.do(job_pb2.BackfillJobRequest(
                job=f"j{number}", from_time=timestamp(START_MS), runs_per_minute=60_000,
                to_time=timestamp(START_MS + times * MINUTE_MS),
            ))  # fmt: skip
    machine.create("a", every_ms=SECOND_MS, namespace="other", overlap=ALLOW)
    return machine


def waits(machine: Machine, seconds: int) -> int:
    """In how many decisions from the one after it is due on the other job has fired, at most."""
    longest = 0
    for _ in range(seconds):
        due_ms = machine.state("a", "other").next_due_at_ms
        decisions = 0
        while machine.state("a", "other").next_due_at_ms == due_ms:
            decisions += machine.now_ms >= due_ms
            machine.do(Ring(1_000))
            machine.advance(TICK_MS)
            assert decisions < 1_000, "the other job does not fire"
        longest = max(longest, decisions)
    return longest


@pytest.mark.parametrize("what", [BACKFILLED, LATE])
@pytest.mark.parametrize("steps", [10, 150])
def test_a_backlog_does_not_stand_before_the_runs_of_others(what: str, steps: int) -> None:
    machine = crowd(what, 400)
    machine.new_budget = lambda: Steps(steps)

    # A backlog takes at most 100 steps at a time.
    most = 2 if (what, steps) == (BACKFILLED, 150) else CROWD + 2
    assert waits(machine, 2) <= most

    assert all(len(machine.live(f"j{number}")) > 3 for number in range(CROWD))
    machine.check()
