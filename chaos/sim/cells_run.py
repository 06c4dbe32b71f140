"""Seeds of cells, and the mutants that show what they would find."""

from __future__ import annotations

import random
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial

from .cells_directory import Guards
from .cells_world import FAULTS, FAULTS_S, QUIET_S, SILENT, CellOptions, CellsWorld
from .world import SimViolation


@dataclass(frozen=True)
class CellsMutant:
    """Moves without one of their guards, and within how many seeds that must be found."""

    name: str
    guards: Guards
    reason: str  # What the checks report.
    budget: int = 40
    faults: frozenset[str] = frozenset()  # Without which it cannot show.


@dataclass(frozen=True, kw_only=True)
class CellsResult:
    """What came of one history."""

    seed: int
    violation: str
    options: str
    counts: dict[str, int]
    fault_events: int
    excused: int
    story: tuple[str, ...] = ()
    simulated_s: float = FAULTS_S + QUIET_S


MUTANTS = [
    CellsMutant("no-fence", Guards(seal_stops_firing=False), "doubled"),
    CellsMutant(
        "fence-in-memory", Guards(seal_is_logged=False), "", faults=frozenset({"leader"})
    ),
    CellsMutant("reports-after-seal", Guards(seal_stops_reports=False), "doubled"),
    CellsMutant(
        "late-seal", Guards(seal_names_the_epoch=False), "", 400, frozenset({"late", "abort"})
    ),
    CellsMutant("copy-before-seal", Guards(copy_after_seal=False), "", faults=frozenset({"late"})),
    CellsMutant("switch-before-import", Guards(whole_before_switch=False), ""),
    CellsMutant(
        "two-deciders", Guards(directory_decides=False), "at once", 200, frozenset({"abort"})
    ),
    CellsMutant(
        "abort-without-epoch", Guards(abort_takes_an_epoch=False), "", 400,
        frozenset({"abort", "late"}),
    ),
    CellsMutant("stale-map", Guards(cell_asks_itself=False), "", 100),
    CellsMutant("requests-stay", Guards(requests_move=False), "doubled", 100, frozenset({"lost"})),
    CellsMutant("times-stay", Guards(times_move=False), "doubled"),
    CellsMutant("tokens-start-again", Guards(tokens_go_on=False), "has token"),
    CellsMutant(
        "old-copy-wakes", Guards(newest_copy_counts=False), "", 400, frozenset({SILENT})
    ),
    CellsMutant(
        "backup-goes-on", Guards(restored_waits=False), "at once", 200, frozenset({"gone"})
    ),
    CellsMutant(
        "moved-on-too-soon", Guards(arrival_is_awaited=False), "lost", 200, frozenset({"abort"})
    ),
    CellsMutant(
        "restore-keeps-moves", Guards(restore_ends_moves=False), "", 800,
        frozenset({"gone", "late", "mover"}),
    ),
]  # fmt: skip


def draw(seed: int, more: frozenset[str] = frozenset()) -> CellOptions:
    dice = random.Random(f"cells {seed}")
    share = dice.choice((0.2, 0.5, 0.8))
    faults = {f for f in FAULTS if dice.random() < share} | more
    return CellOptions(
        seed=seed,
        cells=dice.choice((2, 3, 4)),
        spaces=dice.choice((1, 2, 3)),
        faults=frozenset(faults),
        delay=dice.choice((0.005, 0.03, 0.1)),
        quiet=dice.choice((0.5, 1.5, 4.0)),
        moves=dice.choice((0.4, 1.0, 3.0)),
        until_restored=dice.choice((0.3, 3.0, 10.0)),
        ask=dice.choice((0.3, 0.7, 3.0)),
        late=dice.choice((0.02, 0.2)),
    )


def run_cells(
    seed: int, *, guards: Guards | None = None, more: frozenset[str] = frozenset(), story: int = 0
) -> CellsResult:
    """Live through one history of cells; the same seed gives the same one."""
    world = CellsWorld(draw(seed, more), guards or Guards())
    violation = ""
    try:
        world.run()
    except SimViolation as error:
        violation = str(error)
    return CellsResult(
        seed=seed,
        violation=violation,
        options=world.options.describe(),
        counts=world.oracle.figures() | {"moves": world.moves()},
        fault_events=world.world.fault_events,
        excused=len(world.oracle.excused),
        story=tuple(world.world.story[-story:]) if story else (),
    )


def run_many(seeds: Iterable[int], jobs: int) -> Iterable[CellsResult]:
    """Yield the outcomes in the order of the seeds."""
    if jobs == 1:
        yield from map(run_cells, seeds)
        return
    with ProcessPoolExecutor(jobs) as pool:
        yield from pool.map(partial(run_cells), seeds, chunksize=16)


def hunt(mutant: CellsMutant) -> dict[str, object]:
    """Look for a mutant. It counts only if the same history holds with all guards."""
    for seed in range(1, mutant.budget + 1):
        found = run_cells(seed, guards=mutant.guards, more=mutant.faults).violation
        if not found:
            continue
        control = run_cells(seed, more=mutant.faults).violation
        seen = None if control or mutant.reason not in found else seed
        words = f"seed {seed} without it: {control}" if control else found
        return row(mutant, seen, words)
    return row(mutant, None, "")


def row(mutant: CellsMutant, seeds: int | None, found: str) -> dict[str, object]:
    return {
        "mutant": mutant.name, "seeds": seeds, "budget": mutant.budget, "found": found[:160],
    }  # fmt: skip
