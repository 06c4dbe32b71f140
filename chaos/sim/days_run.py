"""Seeds of days, and the mutants that show what they would find."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from random import Random

from . import days_mutants as wrong
from . import moves
from .days import FAULTS, STARTS, DaysOptions, DaysWorld
from .world import SimViolation


@dataclass(frozen=True, kw_only=True)
class DaysResult:
    """What came of one history."""

    seed: int
    violation: str
    options: str
    counts: dict[str, int]
    fault_events: int
    simulated_s: float
    story: tuple[str, ...] = ()


@dataclass(frozen=True)
class DaysMutant:
    """A rule that is wrong, and within how many seeds that must be found."""

    name: str
    rules: Callable[[], AbstractContextManager[None]]
    reason: str  # What the oracle reports.
    budget: int = 40
    more: frozenset[str] = frozenset()  # Moves, parts and faults without which it cannot show.


def draw(seed: int, more: frozenset[str] = frozenset()) -> DaysOptions:
    """Each seed has its own moves, parts of orders, and faults (a swarm)."""
    dice = Random(f"days options {seed}")
    drawn, parts = moves.draw(dice, more)
    share = dice.choice((0.3, 0.6, 0.9))
    faults = {fault for fault in FAULTS if dice.random() < share} | (more & set(FAULTS))
    start = datetime.fromisoformat(dice.choice(STARTS) + "T00:00+00:00")
    return DaysOptions(
        seed=seed,
        moves=drawn,
        parts=parts,
        faults=frozenset(faults),
        steps=dice.choice((1, 3, 10, 1_000_000, 1_000_000)),
        length=dice.choice((20, 30, 60)),
        start_ms=int(start.timestamp()) * 1000 + dice.randrange(100_000),
    )


def run_days(
    seed: int, *, mutant: DaysMutant | None = None, more: frozenset[str] = frozenset(),
    story: int = 0,
) -> DaysResult:  # fmt: skip
    """Live through one history; the same seed gives the same one."""
    world = DaysWorld(draw(seed, mutant.more if mutant is not None else more))
    violation = ""
    try:
        with mutant.rules() if mutant is not None else nullcontext():
            world.run()
    except SimViolation as error:
        violation = str(error)
    return DaysResult(
        seed=seed,
        violation=violation,
        options=world.options.describe(),
        counts=dict(world.counts),
        fault_events=world.counts["leaders"] + world.counts["outages"],
        simulated_s=(world.now_ms - world.options.start_ms) / 1000,
        story=tuple(world.story[-story:]) if story else (),
    )


def run_many(seeds: Iterable[int], jobs: int) -> Iterable[DaysResult]:
    """Yield the outcomes in the order of the seeds."""
    if jobs == 1:
        yield from map(run_days, seeds)
        return
    with ProcessPoolExecutor(jobs) as pool:
        yield from pool.map(partial(run_days), seeds, chunksize=16)


MUTANTS = [
    DaysMutant(
        "pause-forgotten", wrong.pause_forgotten, "L3", 200,
        frozenset({"pause", "backfill", "outage", "overlap"}),
    ),
    DaysMutant(
        "old-limit-holds", wrong.old_limit_holds, "of its job", 100,
        frozenset({"limit", "update", "overlap"}),
    ),
    DaysMutant(
        "days-by-winter-time", wrong.days_by_winter_time, "L6", 100,
        more=frozenset({"calendars", "calendar", "zone"}),
    ),
    DaysMutant(
        "late-by-the-last-decision", wrong.late_by_the_last_decision, "S2",
        more=frozenset({"outage", "misfire"}),
    ),
    DaysMutant("quota-edit-leaks", wrong.quota_edit_leaks, "S5", more=frozenset({"quota"})),
    DaysMutant("one-run-more", wrong.one_run_more, "L7", more=frozenset({"max_runs"})),
    DaysMutant("answers-forgotten", wrong.answers_forgotten, "S1", more=frozenset({"twice"})),
    DaysMutant("gaps-are-skipped", wrong.gaps_are_skipped, "S2", 400, more=frozenset({"zone"})),
]  # fmt: skip


def hunt(mutant: DaysMutant) -> dict[str, object]:
    """Look for a mutant. It counts only if the same history holds without it."""
    for seed in range(1, mutant.budget + 1):
        found = run_days(seed, mutant=mutant).violation
        if not found:
            continue
        control = run_days(seed, more=mutant.more).violation
        seen = None if control or mutant.reason not in found else seed
        words = f"seed {seed} without it: {control}" if control else found
        return row(mutant, seen, words)
    return row(mutant, None, "")


def hunt_all(jobs: int = 2) -> Iterable[dict[str, object]]:
    with ProcessPoolExecutor(jobs) as pool:
        yield from pool.map(_hunt_number, range(len(MUTANTS)))


def _hunt_number(number: int) -> dict[str, object]:
    """By its number, since a mutant goes to no other process."""
    return hunt(MUTANTS[number])


def row(mutant: DaysMutant, seeds: int | None, found: str) -> dict[str, object]:
    return {
        "mutant": mutant.name, "seeds": seeds, "budget": mutant.budget, "found": found[:160],
    }  # fmt: skip
