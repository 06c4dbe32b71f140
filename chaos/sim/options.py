"""What one seed decides: the size of the cluster, the sizes in it, the faults it meets."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from ...cluster.consensus.journal import JournalLimits
from ...cluster.consensus.port import Settings
from .world import Wire

FAULTS = (
    "cut", "one_way", "bridge", "isolate", "silent", "kill", "power", "power_all", "pause",
    "wipe", "eio", "full", "slow_disk", "flip", "snapshot", "member", "transfer", "drift",
    "slow_link", "rot", "upgrade", "raise", "duplicate", "reorder", "late", "halves",
)  # fmt: skip


HABITS = ("stall", "die", "twice", "stubborn", "slow", "fails", "silent")  # Of workers.


@dataclass(kw_only=True)
class Options:
    """One history."""

    seed: int
    nodes: int
    faults: frozenset[str]
    calm: float  # Mean seconds between faults.
    fault_seconds: float
    wire: Wire
    settings: Settings
    limits: JournalLimits
    clients: int
    payload: int
    workers: int = 0  # With any, the machine is the scheduler's.
    habits: frozenset[str] = frozenset()  # Of the workers.
    planted: str = ""  # Where a rule raises for one job: "fire", "lease", or nowhere.
    steps: int = 1_000_000  # After so many pieces of work a decision has used up its time.

    def describe(self) -> str:
        """One line that says what this seed switches on."""
        return (
            f"seed={self.seed} nodes={self.nodes} calm={self.calm:.2f}s clients={self.clients} "
            f"payload<={self.payload} segment={self.limits.segment} "
            f"compact={self.settings.compact_bytes} tail={self.settings.tail_entries} "
            f"append={self.settings.append_bytes} delay={self.wire.delay * 1e3:.1f}ms "
            f"faults={','.join(sorted(self.faults))}"
            + (
                f" workers={self.workers} habits={','.join(sorted(self.habits))}"
                * bool(self.workers)
            )
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
    settings = Settings(
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
        calm=dice.choice((0.1, 0.3, 0.6, 1.5)),
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
    drawn = draw(seed, more - {"planted", "hasty"})
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
    return replace(
        drawn,
        faults=faults - {"upgrade", "raise"},
        settings=settings,
        limits=limits,
        clients=max(dice.choice((1, 2, 3)), 3 if "hasty" in more else 1),
        workers=dice.choice((1, 3, 5)),
        habits=habits,
        steps=random.Random(f"steps {seed}").choice(
            (1,) if "hasty" in more else (1, 2, 5, 20, 1_000_000)
        ),
        planted=random.Random(f"planted {seed}").choice(
            ("fire", "lease") if "planted" in more else ("", "", "", "fire", "lease")
        ),
    )


def quiet(seed: int) -> Options:
    """Return five nodes without faults, for a schedule that brings its own."""
    drawn = draw(seed)
    settings = Settings(append_bytes=1500, window_bytes=6000, compact_bytes=1 << 20)
    return replace(
        drawn, nodes=5, faults=frozenset(), wire=Wire(), settings=settings, payload=1500, clients=2
    )
