"""What a backfill planned runs: each time that its answer counted, once."""

from __future__ import annotations

from itertools import combinations

import pytest

from raftsched.proto.v1 import job_pb2, run_pb2, schedule_pb2, worker_pb2
from raftsched.statemachine.core.instants import timestamp, to_ms
from raftsched.statemachine.core.store import MemoryStore
from raftsched.statemachine.model import keys
from raftsched.statemachine.model.record import LedgerRecord, ProofRecord, encode

from ..rows import each
from .asking import ask
from .driver import HOUR_MS, MINUTE_MS, START_MS, Machine, with_mask

Misfire = job_pb2.MisfirePolicy
Overlap = job_pb2.OverlapPolicy
Edit = schedule_pb2.OccurrenceEdit
SKIP = Misfire(rule=Misfire.RULE_SKIP)
HALF = HOUR_MS // 2


def backfill(machine: Machine, first: int, end: int, rate: int = 60_000) -> int:
    """Order a backfill between two instants; how many times it planned."""
    request = job_pb2.BackfillJobRequest(
        job="a", from_time=timestamp(first), to_time=timestamp(end), runs_per_minute=rate
    )
    return machine.ask(request, job_pb2.BackfillJobResponse).planned


def audit(machine: Machine) -> job_pb2.AuditJobResponse:
    return ask(machine, job_pb2.AuditJobRequest(job="a"), job_pb2.AuditJobResponse)


def work(machine: Machine, ms: int, step_ms: int = 10_000) -> None:
    """Let runs come and end."""
    for _ in range(0, ms, step_ms):
        machine.advance(step_ms)
        machine.fire_all()
        for lease in machine.grant():
            machine.succeed(lease)


def backfilled(machine: Machine) -> list[int]:
    """Hours of the start, of which a backfill has run a time."""
    runs = (run for run in machine.ended("a") if run.cause == run_pb2.CAUSE_BACKFILL)
    return sorted((to_ms(run.scheduled_time) - START_MS) // HOUR_MS for run in runs)


def missed(machine: Machine, hours: int, overlap: Overlap | None = None) -> None:
    """An hourly job of which so many times were missed."""
    machine.create("a", cron="0 * * * *", misfire=SKIP, overlap=overlap or Overlap())
    machine.advance(hours * HOUR_MS + HALF)
    machine.fire_all()
    work(machine, MINUTE_MS)


RANGES = list(combinations(range(0, 7, 2), 2))


@each("first", RANGES)
@each("second", RANGES)
@each("third", [None, (0, 6)])
def test_each_time_that_a_backfill_planned_runs(
    first: tuple[int, int], second: tuple[int, int], third: tuple[int, int] | None
) -> None:
    machine = Machine(MemoryStore())
    missed(machine, 6)

    planned, hours = 0, set()
    for low, high in (one for one in (first, second, third) if one is not None):
        planned += backfill(machine, START_MS + low * HOUR_MS + HALF, START_MS + high * HOUR_MS + 1)
        hours |= set(range(low + 1, high + 1))
    work(machine, 2 * MINUTE_MS)

    assert backfilled(machine) == sorted(hours)
    assert planned == len(hours)
    answer = audit(machine)
    assert (answer.sound, answer.requested, answer.requested_ended) == (True, planned, planned)
    assert machine.job("a").status.backlog == 0
    machine.check()


def test_a_backfill_in_parts_keeps_its_rate(machine: Machine) -> None:
    """It is cut where another one waits."""
    missed(machine, 6)
    assert backfill(machine, START_MS + 3 * HOUR_MS, START_MS + 3 * HOUR_MS + 1, 1) == 1
    assert backfill(machine, START_MS + HALF, START_MS + 6 * HOUR_MS + 1, 1) == 5

    work(machine, 3 * MINUTE_MS)

    assert len(backfilled(machine)) <= 4
    work(machine, 6 * MINUTE_MS)
    assert len(backfilled(machine)) == 6


def test_a_planned_time_that_stays_missed_is_named() -> None:
    """The audit counts the times of a backfill, and not how many there are."""
    machine = Machine(MemoryStore())
    missed(machine, 6)
    backfill(machine, START_MS + HALF, START_MS + 4 * HOUR_MS + 1)
    work(machine, 5 * MINUTE_MS)
    jid, at_ms = machine.jid("a"), START_MS + 3 * HOUR_MS
    of_before = ProofRecord(decided_at_ms=START_MS + 6 * HOUR_MS, decided_in=2)
    entry = LedgerRecord(outcome=run_pb2.OUTCOME_MISSED, proof=of_before)
    ended = keys.ended(jid, keys.occurrence_of(at_ms))
    machine.store.write([(keys.ledger(jid, at_ms), encode(entry))], [ended])
    machine.forget()

    answer = audit(machine)

    assert answer.wrong == 1
    assert "it still has the outcome of before" in answer.findings[0].reason


RULES = {rule: getattr(Overlap, f"RULE_{rule}") for rule in ("SKIP", "ALLOW", "QUEUE", "QUEUE_ONE",
                                                             "REPLACE")}  # fmt: skip


def slow_work(machine: Machine, ms: int, takes_ms: int) -> None:
    """Let each run take so long."""
    busy: list[tuple[int, worker_pb2.Lease]] = []
    for _ in range(0, ms, MINUTE_MS):
        machine.advance(MINUTE_MS)
        machine.fire_all()
        for end_ms, lease in [one for one in busy if one[0] <= machine.now_ms]:
            busy.remove((end_ms, lease))
            machine.succeed(lease)
        machine.fire_all()
        busy += [(machine.now_ms + takes_ms, lease) for lease in machine.grant()]


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("how", ["backfill", "outage"])
def test_what_waits_for_room_replaces_none_and_is_not_replaced(rule: str, how: str) -> None:
    """No time of it is lost to another one of it, nor to one that comes in time."""
    machine = Machine(MemoryStore())
    misfire = SKIP if how == "backfill" else Misfire(rule=Misfire.RULE_ALL)
    overlap = Overlap(rule=RULES[rule], limit=2 if rule == "ALLOW" else 0)
    machine.create("a", cron="0 * * * *", misfire=misfire, overlap=overlap)
    machine.advance(6 * HOUR_MS + HALF)
    if how == "backfill":
        machine.fire_all()
        assert backfill(machine, START_MS + HALF, machine.now_ms, 60) == 6

    slow_work(machine, 4 * HOUR_MS, 12 * MINUTE_MS)

    done = [run for run in machine.ended("a") if run.state == run_pb2.RUN_STATE_SUCCEEDED]
    ran = sorted((to_ms(run.scheduled_time) - START_MS) // HOUR_MS for run in done)
    if how == "backfill" or rule != "REPLACE":
        assert ran[:6] == [1, 2, 3, 4, 5, 6]
    assert {run.outcome for run in machine.ended("a")} <= {
        run_pb2.OUTCOME_RAN,
        run_pb2.OUTCOME_LATE,
    }
    assert audit(machine).sound
    machine.check()


def test_a_newer_run_waits_for_the_end_of_a_backfilled_one(machine: Machine) -> None:
    """REPLACE cancels what its schedule began, and not what somebody asked for."""
    missed(machine, 2, Overlap(rule=Overlap.RULE_REPLACE))
    backfill(machine, START_MS + HALF, START_MS + HOUR_MS + 1)
    machine.advance(1)
    machine.fire_all()
    [lease] = machine.grant()
    machine.advance(HALF - MINUTE_MS)
    machine.fire_all()

    [old, new] = machine.live("a")
    assert (old.cancel_requested, new.held) == (False, True)
    machine.succeed(lease)
    machine.fire_all()
    [lease] = machine.grant()
    assert lease.run == new.id


def update(machine: Machine, expression: str, *, dry: bool = False) -> list[str]:
    """Give the job another schedule; what the answer warns of."""
    wanted = [schedule_pb2.Schedule(cron=schedule_pb2.Cron(expression=expression))]
    request = with_mask("spec.schedules", name="a", schedules=wanted)
    request.validate_only = dry
    return list(machine.ask(request, job_pb2.Job).status.warnings)


@pytest.mark.parametrize("expression", ["30 * * * *", "0 */2 * * *", "*/30 * * * *", "0 0 1 1 *"])
@pytest.mark.parametrize("again", [False, True])
def test_what_a_backfill_planned_runs_when_the_schedules_change(
    machine: Machine, expression: str, again: bool
) -> None:
    """It was asked for by its times."""
    missed(machine, 8)
    assert backfill(machine, START_MS + HALF, machine.now_ms, 1) == 8
    work(machine, 3 * MINUTE_MS)
    assert len(backfilled(machine)) == 3

    assert update(machine, expression, dry=True) == []
    assert update(machine, expression) == []
    if again:
        assert update(machine, "15 * * * *") == []
    answer = audit(machine)
    assert (answer.requested, answer.requested_ended, answer.requested_under_way) == (8, 3, 5)
    work(machine, 8 * MINUTE_MS)

    assert backfilled(machine) == list(range(1, 9))
    answer = audit(machine)
    assert (answer.sound, answer.requested, answer.requested_ended) == (True, 8, 8)
    assert sum(max(1, entry.count) for entry in machine.ledger("a").values()) == 8
    assert machine.job("a").status.backlog == 0
    machine.check()


def test_an_update_says_how_many_times_of_a_backfill_it_gives_up(machine: Machine) -> None:
    machine.create("a", cron="* * * * *", misfire=SKIP)
    machine.advance(1)
    assert backfill(machine, START_MS - 4 * HOUR_MS, START_MS, 1) == 240

    dry = update(machine, "30 12 * * *", dry=True)
    said = update(machine, "30 12 * * *")

    assert dry == said
    assert said[0].startswith("140 times of a backfill do not run")
    assert machine.job("a").status.backlog == 100
    machine.check()


@pytest.mark.parametrize("paused", [False, True])
def test_an_update_says_how_many_times_it_makes_missed(machine: Machine, paused: bool) -> None:
    misfire = Misfire(rule=Misfire.RULE_ALL)
    machine.create("a", cron="0 * * * *", misfire=misfire)
    machine.advance(HOUR_MS)
    machine.fire_all()
    if paused:
        machine.do(job_pb2.PauseJobRequest(job="a"))
    machine.advance(5 * HOUR_MS)
    machine.fire_all()

    dry = update(machine, "0 */2 * * *", dry=True)
    said = update(machine, "0 */2 * * *")

    assert dry == said
    # 03:00 and 05:00; of what waits 02:00 has begun where it could.
    assert said[0].startswith("2 scheduled times that have passed and wait are MISSED")
    assert update(machine, "0 */2 * * *") == []
    machine.check()


def test_a_backfill_leaves_alone_what_was_skipped_or_moved(machine: Machine) -> None:
    """Somebody said of each of them when it is to run, or that it is not."""
    machine.create("a", cron="0 * * * *", misfire=SKIP)
    for hour, to_hour in ((2, 0), (4, 0), (3, 9)):
        edit = Edit(
            scheduled_time=timestamp(START_MS + hour * HOUR_MS),
            kind=Edit.KIND_MOVE if to_hour else Edit.KIND_SKIP,
            moved_to=timestamp(START_MS + to_hour * HOUR_MS + HALF) if to_hour else None,
        )
        machine.do(job_pb2.EditOccurrenceRequest(job="a", edit=edit))
    machine.advance(2 * HOUR_MS + HALF)
    machine.fire_all()
    machine.do(job_pb2.PauseJobRequest(job="a"))
    machine.advance(3 * HOUR_MS)

    # 02:00 was skipped, 03:00 is moved, 04:00 is to be skipped when it is decided on.
    assert backfill(machine, START_MS + HALF, machine.now_ms) == 2
    machine.do(job_pb2.ResumeJobRequest(job="a"))
    work(machine, MINUTE_MS)

    assert backfilled(machine) == [1, 5]
    answer = audit(machine)
    assert (answer.wrong, answer.requested, answer.requested_ended) == (0, 2, 2)
    work(machine, 4 * HOUR_MS + MINUTE_MS, MINUTE_MS)
    ran = {(to_ms(run.scheduled_time) - START_MS) // HOUR_MS for run in machine.ended("a")}
    assert 3 in ran
    assert not ran & {2, 4}
    machine.check()
