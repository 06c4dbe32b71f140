"""All mutants: each with the seeds within which it must be found, and the faults it needs."""

from __future__ import annotations

from dataclasses import dataclass

from .cluster import Kit, Schedule
from .directed import figure_8, late_ack, lone_leader, pause_and_cut
from .endless import (
    clears_at_once,
    forgets_the_rest,
    notifies_all_dependents,
    notifies_whole_chains,
    walks_over_the_ledger,
)
from .mutants import (
    A1Truncates,
    A2CommitsUnverifiedTail,
    A3DropsTheSuffix,
    A4RewritesInPlace,
    A5IgnoresTheTermOfAcks,
    A5IgnoresTheTermOfRounds,
    A6BelievesTheCommitIndex,
    A7CallsBackBeforeCounting,
    A8SkipsWhatItDoesNotKnow,
    A9GoesOnAfterLosingApplied,
    A10StartsEmpty,
    A11TakesAnyOffer,
    C4RepairsOneByOne,
    C10LeavesCallersWaiting,
    CommitsOldTerms,
    CountsWhatItHasNotSynced,
    ForgetsProgressOfDisk,
    P6ServesCorruption,
    ReadsWithoutARound,
    SyncsNothing,
    VotesTwice,
    speaks_too_soon,
)
from .rule_mutants import (
    DiesOfIt,
    LapsesAtOnce,
    LapsesByTheWall,
    NewLeader,
    coalesces_all,
    counts_held_runs,
    doubles_occurrences,
    drops_neighbours,
    drops_occurrences,
    forgets_tokens,
    forgets_what_is_held,
    ignores_overlap,
    ignores_the_grace,
    ignores_the_time,
    skips_for_overlap,
    skips_for_quota,
    stands_by_hand,
)


@dataclass(frozen=True)
class Mutant:
    """A defect, and within how many seeds it must be found."""

    name: str
    kit: Kit
    budget: int
    faults: frozenset[str] = frozenset()  # Classes without which it cannot show.
    nodes: int = 0  # The size of the cluster it needs to show.
    schedule: Schedule | None = None  # In place of random faults.
    rules: bool = False  # It is one of the scheduler, not of consensus.
    reason: str = (
        ""  # What the oracle reports; with any other words it was not its defect that showed.
    )


MUTANTS = [
    Mutant("A1", Kit(part=A1Truncates), 20),
    Mutant(
        "A2", Kit(part=A2CommitsUnverifiedTail), 100, frozenset({"isolate", "kill"})
    ),
    Mutant("A3", Kit(core=A3DropsTheSuffix), 50, frozenset({"snapshot", "power_all"})),
    Mutant("A4", Kit(journal=A4RewritesInPlace), 300, frozenset({"snapshot", "power_all"})),
    Mutant(
        "A5-rounds",
        Kit(part=A5IgnoresTheTermOfRounds),
        200,
        frozenset({"late", "halves", "isolate"}),
        nodes=5,
    ),
    Mutant("A5-entries", Kit(part=A5IgnoresTheTermOfAcks), 5, schedule=late_ack),
    Mutant("figure-8", Kit(part=CommitsOldTerms), 5, schedule=figure_8),
    Mutant("A6", Kit(core=A6BelievesTheCommitIndex), 100, frozenset({"power_all", "slow_disk"})),
    Mutant("A7", Kit(part=A7CallsBackBeforeCounting), 20, frozenset({"raise"})),
    Mutant("A8", Kit(part=A8SkipsWhatItDoesNotKnow), 30, frozenset({"upgrade"})),
    Mutant("A9", Kit(part=A9GoesOnAfterLosingApplied), 20),
    Mutant("A10", Kit(core=A10StartsEmpty), 100, frozenset({"rot", "kill"})),
    Mutant("P6", Kit(core=P6ServesCorruption), 100, frozenset({"rot", "kill"})),
    Mutant("A11", Kit(part=A11TakesAnyOffer), 100, frozenset({"snapshot", "slow_link"})),
    Mutant("C4", Kit(part=C4RepairsOneByOne), 100, frozenset({"isolate", "cut"})),
    Mutant("C10", Kit(part=C10LeavesCallersWaiting), 5, schedule=lone_leader),
    Mutant("B1-no-sync", Kit(journal=SyncsNothing), 30, frozenset({"power_all"})),
    Mutant("B1-pause-cut", Kit(journal=SyncsNothing), 20, schedule=pause_and_cut),
    Mutant("B1-outbox", Kit(release=speaks_too_soon), 50, frozenset({"power_all"})),
    Mutant(
        "own-unsynced", Kit(part=CountsWhatItHasNotSynced), 60,
        frozenset({"slow_disk", "isolate"})
    ),
    Mutant(
        "A13-votes-twice", Kit(part=VotesTwice), 100, frozenset({"kill", "pause", "cut"})
    ),
    Mutant(
        "read-without-round", Kit(part=ReadsWithoutARound), 100,
        frozenset({"isolate", "halves"})
    ),
    Mutant(
        "disk-progress", Kit(part=ForgetsProgressOfDisk), 200, frozenset({"wipe", "kill"})
    ),
    Mutant(
        "token-reuse", Kit(leader=NewLeader, rules=forgets_tokens), 20, frozenset({"kill"}),
        rules=True,
    ),
    Mutant(
        "early-lapse", Kit(sessions=LapsesAtOnce), 20, frozenset({"kill"}), rules=True
    ),
    Mutant(
        "lapse-by-wall-clock", Kit(sessions=LapsesByTheWall), 40, frozenset({"jump"}), rules=True
    ),
    Mutant(
        "occurrence-dropped", Kit(leader=NewLeader, rules=drops_occurrences), 20,
        frozenset({"kill"}), rules=True,
    ),
    Mutant(
        "occurrence-doubled", Kit(leader=NewLeader, rules=doubles_occurrences), 20,
        frozenset({"kill"}), rules=True,
    ),
    Mutant(
        "B1-nothing-stands", Kit(rules=coalesces_all), 20, frozenset({"kill"}), rules=True,
        reason="S11",
    ),
    Mutant(
        "B2-skip-stands", Kit(rules=stands_by_hand), 60, frozenset({"kill"}), rules=True,
        reason="S11",
    ),
    Mutant(
        "B3-no-overlap", Kit(rules=skips_for_overlap), 60, frozenset({"kill"}), rules=True,
        reason="what is late waits for its overlap policy",
    ),
    Mutant(
        "B4-no-quota", Kit(rules=skips_for_quota), 60, frozenset({"kill"}), rules=True,
        reason="what is late waits for the quota",
    ),
    Mutant(
        "B5-held-count", Kit(rules=counts_held_runs), 60, frozenset({"kill"}), rules=True,
        reason="that the quota allows",
    ),
    Mutant(
        "B6-no-grace", Kit(rules=ignores_the_grace), 60, frozenset({"kill"}), rules=True,
        reason="within the grace",
    ),
    Mutant(
        "overlap-ignored", Kit(rules=ignores_overlap), 20, frozenset({"kill"}), rules=True,
        reason="S12",
    ),
    Mutant(
        "held-for-ever", Kit(rules=forgets_what_is_held), 20, frozenset({"kill"}), rules=True,
        reason="S13",
    ),
    Mutant(
        "A5-endless-decision", Kit(rules=ignores_the_time), 20, frozenset({"hasty"}),
        rules=True,
    ),
    Mutant(
        "A1-whole-chain", Kit(rules=notifies_whole_chains), 20, frozenset({"hasty", "flow"}),
        rules=True,
    ),
    Mutant(
        "A2-all-dependents", Kit(rules=notifies_all_dependents), 20, frozenset({"hasty", "flow"}),
        rules=True,
    ),
    Mutant(
        "A2-forgets-the-rest", Kit(rules=forgets_the_rest), 20, frozenset({"hasty", "flow"}),
        rules=True,
    ),
    Mutant(
        "A3-all-room", Kit(rules=clears_at_once), 20, frozenset({"hasty", "replace"}), rules=True
    ),
    Mutant(
        "A4-P3-walk", Kit(rules=walks_over_the_ledger), 20, frozenset({"backfill"}), rules=True
    ),
    Mutant(
        "A0-dies", Kit(leader=DiesOfIt), 20, frozenset({"planted"}), rules=True
    ),
    Mutant(
        "A0-neighbours", Kit(rules=drops_neighbours), 60, frozenset({"planted"}), rules=True
    ),
]  # fmt: skip
