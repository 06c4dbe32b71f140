"""A job gets other schedules while something of the old ones waits: what both name waits on, and
what the new ones do not name is missed, in every small world."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import pytest

from raftsched.proto.v1 import job_pb2, run_pb2, schedule_pb2
from raftsched.statemachine.core.instants import duration, timestamp
from raftsched.statemachine.core.store import MemoryStore

from ..rows import each
from .asking import ask
from .driver import HOUR_MS, MINUTE_MS, START_MS, Machine, with_mask

Schedule = schedule_pb2.Schedule
Misfire = job_pb2.MisfirePolicy


def cron(*expressions: str) -> list[Schedule]:
    return [Schedule(cron=schedule_pb2.Cron(expression=text)) for text in expressions]


def rate(hours: int) -> list[Schedule]:
    every = schedule_pb2.Interval(every=duration(hours * HOUR_MS), anchor=timestamp(START_MS))
    return [Schedule(interval=every)]


# What somebody may write, and the hours of the first eight that it names.
WRITTEN: dict[str, tuple[list[Schedule], set[int]]] = {
    "hourly": (cron("0 * * * *"), set(range(1, 9))),
    "rate": (rate(1), set(range(1, 9))),
    "union": (cron("0 */2 * * *", "0 1-23/2 * * *"), set(range(1, 9))),
    "rate since creation": (
        [Schedule(interval=schedule_pb2.Interval(every=duration(HOUR_MS)))],
        set(range(1, 9)),
    ),
    "even": (cron("0 */2 * * *"), {2, 4, 6, 8}),
    "rate of two": (rate(2), {2, 4, 6, 8}),
    "odd": (cron("0 1-23/2 * * *"), {1, 3, 5, 7}),
    "some": (cron("0 2,5 * * *", "0 3 * * *"), {2, 3, 5}),
    "half past": (cron("30 * * * *"), set()),
}
FROM, UNTIL = 2, 5  # The hours behind the first one, which ran, that are due when it is changed.


def begun(schedules: list[Schedule], rule: str, jitter_ms: int = 0) -> Machine:
    machine = Machine(MemoryStore())
    job = job_pb2.Job(name="a")
    job.spec.action.handler = "work"
    job.spec.schedules.extend(schedules)
    job.spec.misfire.rule = Misfire.Rule.Value(f"RULE_{rule}")
    if jitter_ms:
        job.spec.timing.jitter.CopyFrom(duration(jitter_ms))
    machine.do(job_pb2.CreateJobRequest(job=job))
    return machine


def for_room(machine: Machine) -> Callable[[], None]:
    """What was missed waits for the end of a run."""
    machine.trigger("a")
    [lease] = machine.grant()
    machine.at(START_MS + FROM * HOUR_MS - MINUTE_MS)
    machine.do(job_pb2.DropBacklogRequest(job="a"))
    machine.at(START_MS + UNTIL * HOUR_MS + 30 * MINUTE_MS)
    machine.fire_all()

    def go_on() -> None:
        machine.succeed(lease)

    return go_on


def for_resume(machine: Machine) -> Callable[[], None]:
    machine.do(job_pb2.PauseJobRequest(job="a"))
    machine.at(START_MS + UNTIL * HOUR_MS + 30 * MINUTE_MS)
    machine.fire_all()

    def go_on() -> None:
        machine.do(job_pb2.ResumeJobRequest(job="a"))

    return go_on


def hours(machine: Machine, before: str) -> dict[int, str]:
    """The outcome of each hour, those of a stretch one by one: it is of the schedules of before."""
    found: dict[int, str] = {}
    for at_ms, entry in machine.ledger("a").items():
        first, last = ((at - START_MS) // HOUR_MS for at in (at_ms, entry.last_at_ms or at_ms))
        inside = {hour for hour in WRITTEN[before][1] if first <= hour <= last}
        found |= dict.fromkeys({first} | inside, run_pb2.Outcome.Name(entry.outcome)[8:])
    return found


def work(machine: Machine) -> None:
    for _ in range(10):
        machine.fire_all()
        for lease in machine.grant():
            machine.succeed(lease)
    machine.check()


def audit(machine: Machine) -> job_pb2.AuditJobResponse:
    return ask(machine, job_pb2.AuditJobRequest(job="a"), job_pb2.AuditJobResponse)


@pytest.mark.parametrize("wait", [for_room, for_resume])
@pytest.mark.parametrize("before", sorted(set(WRITTEN) - {"half past"}))
def test_what_waits_and_is_named_still_waits_on(
    before: str, wait: Callable[[Machine], Callable[[], None]]
) -> None:
    """A schedule that was written in another form made all that waited MISSED."""
    for after, rule in product(WRITTEN, ("ALL", "LATEST", "EARLIEST")):
        machine = begun(WRITTEN[before][0], rule)
        machine.at(START_MS + 30 * MINUTE_MS)
        go_on = wait(machine)
        known = hours(machine, before)
        waited = {hour for hour in WRITTEN[before][1] if hour <= UNTIL} - set(known)
        if rule == "ALL":
            assert waited, "the world has nothing that waits"

        machine.do(with_mask("spec.schedules", name="a", schedules=WRITTEN[after][0]))
        go_on()
        work(machine)

        found = hours(machine, before)
        stays = sorted(waited & WRITTEN[after][1])
        case = (before, after, rule, found)
        gone = sorted(waited - set(stays))
        assert [found.get(hour) for hour in gone] == ["MISSED"] * len(gone), case
        chosen = stays
        if wait is for_resume and rule != "ALL":
            chosen = stays[-1:] if rule == "LATEST" else stays[:1]
        outcomes = ["LATE" if hour in chosen else "COALESCED" for hour in stays]
        assert [found.get(hour) for hour in stays] == outcomes, case
        assert set(found) == set(known) | waited, case
        assert not audit(machine).wrong, (case, audit(machine))


@each(("before", "after"), list(product(WRITTEN, WRITTEN)))
def test_what_waits_for_its_jitter_comes_at_its_time_if_it_is_named_still(
    before: str, after: str
) -> None:
    machine = begun(WRITTEN[before][0], "LATEST", 50 * MINUTE_MS)
    machine.at(START_MS + 3 * HOUR_MS)
    machine.fire_all()
    work(machine)
    state = machine.state("a")
    if state.next_scheduled_at_ms != machine.now_ms:
        return
    due_ms = state.next_due_at_ms
    assert due_ms > machine.now_ms

    machine.do(with_mask("spec.schedules", name="a", schedules=WRITTEN[after][0]))
    machine.at(due_ms)
    work(machine)

    assert hours(machine, before)[3] == ("RAN" if 3 in WRITTEN[after][1] else "MISSED")
    assert not audit(machine).wrong
