"""What one seed decides: the size of the cluster, the sizes in it, the faults it meets."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from ...cluster.raft.journal import JournalLimits
from ...cluster.raft.port import RaftSettings
from . import moves as table
from .world import Wire

FAULTS = (
    "cut", "one_way", "bridge", "isolate", "silent", "kill", "power", "power_all", "pause",
    "wipe", "eio", "full", "slow_disk", "flip", "snapshot", "member", "transfer", "drift",
    "slow_link", "rot", "upgrade", "raise", "duplicate", "reorder", "late", "halves",
)  # fmt: skip


BULK = ("flow", "replace", "backfill")  # What somebody asks for much of; see bulk.py.
BACKFILL_TIMES = 200
# With fewer it would not be done in time: a change takes two ways over the wire and a sync.
BACKFILL_STEPS = 20
MOVELESS = 0.4  # Of the seeds: in these some ask for much at once, or a rule fails on purpose.
SLOW_STEPS = 5  # On a slow wire, of whatever else is much.
SLOW_WIRE = 0.005  # Seconds for a way.
HABITS = ("stall", "die", "twice", "stubborn", "slow", "fails", "silent")  # Of workers.


@dataclass(kw_only=True)
class Options:
    """One history."""

    seed: int
    nodes: int
    faults: frozenset[str]
    quiet: float  # Mean seconds between faults.
    fault_seconds: float
    wire: Wire
    settings: RaftSettings
    limits: JournalLimits
    clients: int
    payload: int
    workers: int = 0  # With any, the machine is the scheduler's.
    habits: frozenset[str] = frozenset()  # Of the workers.
    planted: str = ""  # Where a rule raises for one job: "fire", "lease", or nowhere.
    bulk: str = ""  # One of BULK, or nothing.
    moves: frozenset[str] = frozenset()  # Of people, and what their orders say; see moves.py.
    parts: frozenset[str] = frozenset()
    steps: int = 1_000_000  # After so many pieces of work a decision has used up its time.

    def describe(self) -> str:
        """One line that says what this seed switches on."""
        return (
            f"seed={self.seed} nodes={self.nodes} quiet={self.quiet:.2f}s clients={self.clients} "
            f"payload<={self.payload} segment={self.limits.segment} "
            f"compact={self.settings.compact_bytes} tail={self.settings.tail_entries} "
            f"append={self.settings.append_bytes} delay={self.wire.delay * 1e3:.1f}ms "
            f"faults={','.join(sorted(self.faults))}"
            + (
                f" workers={self.workers} habits={','.join(sorted(self.habits))}"
                f" bulk={self.bulk} steps={self.steps}"
                f" moves={','.join(sorted(self.moves))} parts={','.join(sorted(self.parts))}"
            )
            * bool(self.workers)
        )


def draw(seed: int, more: frozenset[str] = frozenset(), fault_seconds: float = 12.0) -> Options:
    """Return the history of a seed. Each switches on its own classes of faults (a swarm)."""
    dice = random.Random(f"options {seed}")
    share = dice.choice((0.2, 0.4, 0.7))
    faults = {f for f in FAULTS if dice.random() < share} | {dice.choice(("kill", "power"))} | more
    wire = Wire(
        delay=dice.choice((0.0002, 0.001, 0.01, 0.03)),
        jitter=dice.choice((0.0001, 0.001, 0.01)),
        duplicate=dice.choice((0.01, 0.1)) if "duplicate" in faults else 0.0,
        reorder="reorder" in faults,
        late=dice.choice((0.01, 0.05, 0.3)) if "late" in faults else 0.0,
        silent=0.5 if "silent" in faults else 0.0,
    )
    payload = dice.choice((20, 200, 1500))
    limits = JournalLimits(
        segment=dice.choice((16, 24, 64)) << 10,
        cache=dice.choice((2, 16, 256)) << 10,
        entry=4 << 10,
    )
    settings = RaftSettings(
        append_bytes=dice.choice((1500, 4000, 64 << 10)),
        window_bytes=dice.choice((6000, 64 << 10)),
        compact_bytes=dice.choice((48 << 10, 96 << 10, 1 << 20)),
        tail_entries=dice.choice((0, 5, 50)),
        tail_bytes=random.Random(f"tail {seed}").choice((0, 32 << 10, 1 << 30)),
        chunk_bytes=dice.choice((512, 2048, 16384)),
        chunk_window=dice.choice((1, 4)),
        apply_step=dice.choice((1, 16, 256)),
        heartbeat=dice.choice((0.03, 0.05, 0.07)),
    )
    return Options(
        seed=seed,
        nodes=dice.choice((3, 3, 3, 5)),
        faults=frozenset(faults),
        quiet=dice.choice((0.1, 0.3, 0.6, 1.5)),
        fault_seconds=fault_seconds,
        wire=wire,
        settings=settings,
        limits=limits,
        clients=dice.choice((2, 4, 8)),
        payload=payload,
    )


def draw_rules(seed: int, more: frozenset[str] = frozenset()) -> Options:
    """Return a history of the scheduler: entries are larger, and there are workers and clocks."""
    dice = random.Random(f"rules {seed}")
    drawn = draw(seed, more - {"planted", "hasty", *BULK})
    faults = drawn.faults | ({"jump"} if dice.random() < 0.4 else frozenset())
    habits = frozenset(h for h in HABITS if dice.random() < 0.4)
    limits = JournalLimits(
        segment=dice.choice((300, 500, 1000)) << 10,
        cache=dice.choice((16, 256)) << 10,
        entry=256 << 10,
    )
    settings = replace(
        drawn.settings,
        append_bytes=dice.choice((16, 64, 256)) << 10,
        window_bytes=dice.choice((64, 512)) << 10,
        compact_bytes=dice.choice((500, 800, 2000)) << 10,
        chunk_bytes=dice.choice((16, 64, 256)) << 10,
    )
    planted = random.Random(f"planted {seed}").choice(
        ("fire", "lease") if "planted" in more else ("", "", "", "fire", "lease")
    )
    moves, parts = draw_moves(seed, more)
    bulk = "" if moves else draw_bulk(seed, more, planted)
    planted = "" if bulk or moves else planted
    wire = drawn.wire
    if moves and random.Random(f"asleep {seed}").random() < 0.5:
        # What was sent before it arrives nowhere any more.
        faults, wire = faults | {"asleep"}, replace(wire, late=0.0)
    return replace(
        drawn,
        wire=wire,
        moves=moves,
        parts=parts,
        faults=faults - {"upgrade", "raise"},
        settings=settings,
        limits=limits,
        clients=max(dice.choice((1, 2, 3)), 3 if "hasty" in more else 1),
        workers=dice.choice((1, 3, 5)),
        habits=habits,
        bulk=bulk,
        steps=draw_steps(seed, more, bulk, drawn.wire.delay),
        planted=planted,
    )


def draw_moves(seed: int, more: frozenset[str]) -> tuple[frozenset[str], frozenset[str]]:
    """The moves of people and the parts of their orders; none where something else is played."""
    dice = random.Random(f"moves {seed}")
    if more or dice.random() < MOVELESS:
        return frozenset(), frozenset()
    return table.draw(dice)


def draw_steps(seed: int, more: frozenset[str], bulk: str, delay: float) -> int:
    """How much a decision may do: enough to be done with what is much before the end."""
    choices = (1,) if "hasty" in more else (1, 2, 5, 20, 1_000_000)
    steps = random.Random(f"steps {seed}").choice(choices)
    if bulk == "backfill":
        return BACKFILL_STEPS
    return max(steps, SLOW_STEPS) if bulk and delay > SLOW_WIRE else steps


def draw_bulk(seed: int, more: frozenset[str], planted: str) -> str:
    """What one user asks for much of; nothing where another job fails on purpose."""
    wanted = [bulk for bulk in BULK if bulk in more]
    drawn = random.Random(f"bulk {seed}").choice(("", "", "", *BULK))
    return wanted[0] if wanted else "" if planted or more else drawn


def quiet(seed: int) -> Options:
    """Return five nodes without faults, for a schedule that brings its own."""
    drawn = draw(seed)
    settings = RaftSettings(append_bytes=1500, window_bytes=6000, compact_bytes=1 << 20)
    return replace(
        drawn, nodes=5, faults=frozenset(), wire=Wire(), settings=settings, payload=1500, clients=2
    )
