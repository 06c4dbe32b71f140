"""A job gets other limits of time while runs of it are under way: which one ends each of them."""

from __future__ import annotations

from typing import Any

from raftsched.proto.v1 import job_pb2, run_pb2
from raftsched.statemachine.core import limits
from raftsched.statemachine.core.instants import duration
from raftsched.statemachine.core.store import MemoryStore
from raftsched.statemachine.model import phases

from ..rows import each
from .driver import DAY_MS, MINUTE_MS, Machine, with_mask

CHANGED = 10  # Minutes after the beginning.
LONG = 100
A_DAY = duration(DAY_MS)
CHANGES = [(0, 20), (20, 0), (20, 60), (60, 20), (60, 5)]
STANDS = [
    ("queue", "READY"), ("queue", "PARKED"), ("start_deadline", "READY"),
    ("start_deadline", "PARKED"), ("start_deadline", "HELD"), ("run", "READY"), ("run", "PARKED"),
    ("run", "LEASED"), ("run", "DELAYED"), ("heartbeat", "LEASED"), ("attempt", "LEASED"),
    ("total", "READY"),
]  # fmt: skip


def spec_of(field: str, minutes: int) -> dict[str, Any]:
    """A limit of a job; 0: without."""
    span: dict[str, Any] = {field: duration(minutes * MINUTE_MS)} if minutes else {}
    if field == "start_deadline":
        return {"misfire": job_pb2.MisfirePolicy(**span)}
    retry = job_pb2.RetryPolicy(max_attempts=2, first=A_DAY, cap=A_DAY)
    if field != "total":
        return {"timeouts": job_pb2.Timeouts(**span), "retry": retry}
    if minutes:
        retry.total.CopyFrom(duration(minutes * MINUTE_MS))
    return {"retry": retry}


def begin(machine: Machine, phase: str, spec: dict[str, Any]) -> str:
    """A run that stands in a phase."""
    rule = job_pb2.OverlapPolicy.RULE_SKIP if phase == "HELD" else job_pb2.OverlapPolicy.RULE_ALLOW
    spec["overlap"] = job_pb2.OverlapPolicy(rule=rule)
    if phase == "PARKED":
        spec["concurrency"] = job_pb2.ConcurrencyLimit(job=1)
    machine.create("a", **spec)
    if phase in ("PARKED", "HELD"):
        machine.trigger("a")
        machine.grant()
    run = machine.trigger("a").id
    if phase in ("PARKED", "LEASED", "DELAYED"):
        leases = machine.grant()
        if phase == "DELAYED":
            machine.fail(leases[0])
    assert machine.record(run).phase == getattr(phases, phase)
    return run


def ended_after(machine: Machine, run: str) -> int:
    """How many minutes after its beginning its limit takes effect; 0: not in a long time."""
    was = machine.record(run).phase
    for minute in range(CHANGED, LONG):
        machine.fire_all()
        if machine.record(run).phase != was:
            return minute
        machine.advance(MINUTE_MS)
    return 0


@each(("before", "after"), CHANGES)
@each(("field", "phase"), STANDS)
def test_a_run_ends_by_the_limits_of_now(field: str, phase: str, before: int, after: int) -> None:
    machine = Machine(MemoryStore())
    run = begin(machine, phase, spec_of(field, before))
    machine.advance(CHANGED * MINUTE_MS)
    machine.fire_all()
    masks = {"start_deadline": "misfire", "total": "retry"}
    machine.do(with_mask(f"spec.{masks.get(field, 'timeouts')}", name="a", **spec_of(field, after)))

    found = ended_after(machine, run)
    machine.check()

    # An attempt keeps its time, and a heartbeat counts from the change on.
    limit = before if field == "attempt" else after
    since = CHANGED if field == "heartbeat" else 0
    late = field == "total"  # It may begin at that very instant.
    assert found == (max(CHANGED, since + limit + late * (limit > CHANGED)) if limit else 0)


def test_many_runs_get_a_limit_in_steps(machine: Machine) -> None:
    machine.create("a")
    for _ in range(2 * limits.STEP + 50):
        machine.trigger("a")
    machine.do(with_mask("spec.timeouts", name="a", timeouts=job_pb2.Timeouts(queue=duration(1))))
    machine.check()
    machine.advance(MINUTE_MS)
    machine.fire_all()
    machine.check()

    assert machine.live("a") == []


def test_an_attempt_that_was_promised_is_made(machine: Machine) -> None:
    machine.create("a", retry=job_pb2.RetryPolicy(max_attempts=5, first=duration(MINUTE_MS)))
    run = machine.trigger("a").id
    machine.fail(machine.grant()[0])
    once = job_pb2.RetryPolicy(max_attempts=1)
    machine.do(with_mask("spec.retry", name="a", retry=once))
    machine.advance(2 * MINUTE_MS)
    machine.fire_all()
    machine.fail(machine.grant()[0])

    assert machine.run(run).state == run_pb2.RUN_STATE_FAILED
