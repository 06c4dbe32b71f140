"""One seed, many seeds, and the mutants."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial

from .cluster import Kit, SimCluster
from .mutant_table import MUTANTS, Mutant
from .options import Options, draw, draw_rules, quiet
from .planted import planted
from .rules import SchedulerCluster
from .scheduler import SLIPS
from .upstream import run_upstream
from .world import SimViolation

UPSTREAM_BUDGET = 5
# What a broken core or journal raises. Of rules, only what they assert shows a defect.
CRASHES = (ArithmeticError, AssertionError, LookupError, ValueError)


@dataclass(frozen=True, kw_only=True)
class SimResult:
    """What came of one history."""

    seed: int
    violation: str
    options: str
    simulated_s: float
    fault_events: int
    acks: int
    reads: int
    counts: dict[str, int] = field(default_factory=dict)  # What the scheduler did.
    story: tuple[str, ...] = ()
    # A mistake in the code of a mutant, by which it shows in place of its defect.
    slip: str = ""


def run_seed(
    seed: int, *, rules: bool = False, mutant: Mutant | None = None, story: int = 0
) -> SimResult:
    """Live through one history. The same seed gives the same one, to the last message."""
    kit = mutant.kit if mutant is not None else Kit()
    options = options_of(seed, mutant, rules=rules)
    cluster = SchedulerCluster(options, kit) if options.workers else SimCluster(options, kit)
    violation = slip = ""
    try:
        with planted(options), kit.rules():
            cluster.run(mutant.schedule if mutant is not None else None)
    except SimViolation as error:
        violation = str(error)
    except (*CRASHES, *SLIPS) as error:
        if mutant is None:
            raise  # A mistake of the simulator, or of the core: either must be seen whole.
        violation = f"{type(error).__name__}: {error}"
        if not isinstance(error, AssertionError if mutant.rules else CRASHES):
            slip = violation
    if isinstance(cluster, SchedulerCluster):
        slip = slip or cluster.oracle.slip
    return SimResult(
        seed=seed,
        violation=violation,
        options=options.describe(),
        simulated_s=cluster.world.now,
        fault_events=cluster.world.fault_events,
        acks=cluster.checker.acks,
        reads=cluster.checker.reads,
        counts=dict(cluster.oracle.counts) if isinstance(cluster, SchedulerCluster) else {},
        story=tuple(cluster.world.story[-story:]) if story else (),
        slip=slip,
    )


def options_of(seed: int, mutant: Mutant | None, *, rules: bool) -> Options:
    if rules or (mutant is not None and mutant.rules):
        return draw_rules(seed, mutant.faults if mutant is not None else frozenset())
    if mutant is None:
        return draw(seed)
    if mutant.schedule is not None:
        return quiet(seed)
    options = draw(seed, mutant.faults)
    return replace(options, nodes=mutant.nodes) if mutant.nodes else options


def run_seeds(seeds: Iterable[int], jobs: int, *, rules: bool = False) -> Iterable[SimResult]:
    """Yield the outcomes in the order of the seeds."""
    run = partial(run_seed, rules=rules)
    if jobs == 1:
        yield from map(run, seeds)
        return
    with ProcessPoolExecutor(jobs) as pool:
        yield from pool.map(run, seeds, chunksize=4)


def hunt(mutant: Mutant) -> dict[str, object]:
    """Look for a mutant; return after how many seeds it was found, and how.

    One that fails by a slip of its own, such as a rule that takes other arguments by now, is not
    found: its defect was never tried. Nor is one that shows by something else than its reason.
    """
    for count in range(1, mutant.budget + 1):
        outcome = run_seed(count, mutant=mutant)
        if outcome.slip:
            why = f"seed {count} shows a slip in the mutant, not its defect: {outcome.slip}"
            return row(mutant.name, mutant.budget, None, why)
        found = outcome.violation
        if found:
            # The same history without the defect must hold, or it was not the defect.
            control = run_seed(count, mutant=replace(mutant, kit=Kit())).violation
            if control:
                return row(mutant.name, mutant.budget, None, f"seed {count} without it: {control}")
            if mutant.reason not in found:
                why = f"seed {count} shows something else: {found}"
                return row(mutant.name, mutant.budget, None, why)
            return row(mutant.name, mutant.budget, count, found)
    return row(mutant.name, mutant.budget, None, "")


def hunt_upstream() -> dict[str, object]:
    """Look for what PySyncObj loses as it is released."""
    for seed in range(1, UPSTREAM_BUDGET + 1):
        found = run_upstream(seed)
        if found:
            return row("released PySyncObj", UPSTREAM_BUDGET, seed, found)
    return row("released PySyncObj", UPSTREAM_BUDGET, None, "")


def row(name: str, budget: int, seeds: int | None, found: str) -> dict[str, object]:
    return {"mutant": name, "seeds": seeds, "budget": budget, "found": found[:160]}


def hunt_all(jobs: int) -> Iterable[dict[str, object]]:
    if jobs == 1:
        yield from map(hunt, MUTANTS)
        return
    with ProcessPoolExecutor(jobs) as pool:
        yield from pool.map(hunt, MUTANTS)
