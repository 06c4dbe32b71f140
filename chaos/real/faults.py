"""What is done to a cluster: drawn from a seed before it begins, so that a seed replays.

A fault names a role or a place ("the leader", "follower 1"); who that is is found out at its
moment. Each fault ends, by itself or by `undo`, before the next one of its kind begins.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

LEADER, FOLLOWER, ANY, MAJORITY, ALL = "leader", "follower", "any", "majority", "all"
# In `upgrade`: a node of the older build, or of the present one.
OLD, NEW = "old", "new"
UPGRADE, BY_COMMAND = "upgrade", "upgrade-by-command"
UPGRADES = (UPGRADE, BY_COMMAND)
BUILD_STEPS = ("upgrade", "rollback", "upgrade-all", "rollback-all")
AGAIN_S = 30.0  # The shortest in which all nodes go up a second time.


@dataclass(frozen=True, slots=True)
class Planned:
    """One fault: at an instant, counted from the beginning of the faults, for so long."""

    at: float
    what: str
    target: str = ANY
    seconds: float = 0.0
    # A finer choice: a shape, an error, milliseconds.
    how: str = ""


SHAPES = ("alone", "halves", "one-way-in", "one-way-out", "bridge", "ring", "from-clients")
FAILPOINTS = tuple(
    f"{side}-{name}" for name in ("append", "sync", "send", "apply") for side in ("before", "after")
)
# Where a node is on the way to a snapshot and to a shorter journal; and where as it starts.
SNAPSHOT = tuple(
    f"{s}-{n}" for n in ("checkpoint", "rename", "remove") for s in ("before", "after")
)
START = tuple(f"{s}-{n}" for n in ("append", "sync", "send", "apply") for s in ("before", "after"))
# A clock that is set back and forth, by so much and as often.
STROBE, STROBE_SET_MS, STROBE_MS = "strobe", 400.0, 40.0
# Seconds of quiet after a fault of a kind, so that there is something to lose again.
QUIET_S = 2.0


def kill(dice: random.Random, at: float, target: str) -> Planned:
    return Planned(at, "kill", target, dice.uniform(0.3, 1.5))


def pause(dice: random.Random, at: float, target: str = ANY) -> Planned:
    seconds = dice.choice([0.05, 0.2, 0.5, 1.0, 3.0, 8.0, 30.0])
    return Planned(at, "pause", target, seconds)


def partition(dice: random.Random, at: float) -> Planned:
    return Planned(at, "partition", dice.choice([LEADER, ANY]), dice.uniform(1, 8),
                   dice.choice(SHAPES))  # fmt: skip


def slow_link(dice: random.Random, at: float) -> Planned:
    return Planned(at, dice.choice(["delay", "hold", "throttle"]), ANY, dice.uniform(1, 6))


def clock(dice: random.Random, at: float) -> Planned:
    how = dice.choice(["-5000", "-200", "200", "5000", "60000", "drift", STROBE])
    return Planned(at, "clock", dice.choice([LEADER, ANY]), dice.uniform(2, 10), how)


def disk(dice: random.Random, at: float) -> Planned:
    what = dice.choice(
        ["full", "slow", "eio", "failpoint", "failpoint", "snapshot", "start", "wipe", "files"]
    )
    places = {"failpoint": FAILPOINTS, "snapshot": SNAPSHOT, "start": START}
    how = dice.choice(places[what]) if what in places else ""
    return Planned(at, what, dice.choice([LEADER, FOLLOWER]), dice.uniform(1, 5), how)


def workers(dice: random.Random, at: float) -> Planned:
    return Planned(at, dice.choice(["kill-workers", "pause-workers"]), ANY, dice.uniform(0.5, 9))


def churn(dice: random.Random, at: float) -> Planned:
    how = dice.choice(["", "leader-dies"])
    return Planned(at, "remove-and-add", dice.choice([LEADER, FOLLOWER]), dice.uniform(0.5, 2), how)


def plan(scenario: str, seconds: float, seed: int, nodes: int = 3) -> list[Planned]:
    """All faults of a run, in order."""
    dice = random.Random(f"{scenario}/{seed}")
    if scenario == "herd-failover":
        return [Planned(3.0, "herd"), Planned(3.3, "kill", LEADER, 1.0)]
    if scenario == UPGRADE:
        return upgrade(dice, seconds, nodes)
    if scenario == BY_COMMAND:
        return [Planned(2.0, "upgrade-all", ALL), Planned(2.1, "rollback-all", ALL)]
    line: list[Planned] = []
    at = 2.0
    while at < seconds - 4:
        fault = _draw(scenario, dice, at)
        line.append(fault)
        # Never two at a time, but for `mixed`, where the next may come into the last.
        held = fault.seconds if scenario != "mixed" else fault.seconds * dice.random()
        at += held + _pause(scenario, dice)
    return [fault for fault in line if fault.at + fault.seconds <= seconds] or line[:1]


def upgrade(dice: random.Random, seconds: float, nodes: int) -> list[Planned]:
    """All nodes to the present build, one after the other, and back, and a leader dies among both
    builds; if there is time, once more with a death behind each."""
    up, back, dies = ("upgrade", OLD), ("rollback", NEW), ("kill", LEADER)
    steps = [up, dies, *[up] * (nodes - 1), *[back] * nodes]
    if seconds >= AGAIN_S:
        steps += [up, dies] * nodes
    every = (seconds - 4) / len(steps)
    most = min(1.0, every / 2)
    return [
        Planned(2 + number * every, what, target, most * dice.random() if what == "kill" else 0.0)
        for number, (what, target) in enumerate(steps)
    ]


def _pause(scenario: str, dice: random.Random) -> float:
    return dice.uniform(1.0, 2.5) if scenario == "kill-leader" else QUIET_S + dice.random() * 2


def _draw(scenario: str, dice: random.Random, at: float) -> Planned:
    if scenario == "kill-leader":
        return kill(dice, at, LEADER)
    if scenario == "kill-any":
        return kill(dice, at, dice.choice([LEADER, FOLLOWER, ANY]))
    if scenario == "kill-all":
        return kill(dice, at, dice.choice([MAJORITY, ALL]))
    if scenario == "pause":
        return pause(dice, at, dice.choice([LEADER, FOLLOWER]))
    if scenario == "partition":
        return dice.choice([partition, partition, slow_link])(dice, at)
    if scenario == "clock":
        return clock(dice, at)
    if scenario == "disk":
        return disk(dice, at)
    if scenario == "workers":
        return workers(dice, at)
    if scenario == "churn":
        return churn(dice, at)
    if scenario == "rolling":
        return Planned(at, "restart", ALL, 1.0)
    return _draw(dice.choice(MIXED), dice, at)


SINGLE = (
    "kill-leader", "kill-any", "kill-all", "pause", "partition", "clock", "disk", "workers",
    "churn", "rolling",
)  # fmt: skip
MIXED = SINGLE
SCENARIOS = (*SINGLE, "mixed", "herd-failover", *UPGRADES)


def split(shape: str, target: str, names: Sequence[str], clients: str) -> list[tuple[str, str]]:
    """The pairs, from and to, between which nothing passes."""
    others = [name for name in names if name != target]
    half = others[: (len(names) - 1) // 2]
    if shape == "alone":
        return _both([target], others)
    if shape == "halves":
        minority = [target, *half[: (len(names) - 1) // 2 - 1]]
        return _both(minority, [name for name in names if name not in minority])
    if shape == "one-way-in":
        return [(other, target) for other in others]
    if shape == "one-way-out":
        return [(target, other) for other in others]
    if shape == "bridge":
        # Two camps that only the target reaches.
        return _both(others[: len(others) // 2], others[len(others) // 2 :])
    if shape == "ring":
        # Each reaches its neighbours only; of three nodes that is everybody, so one link goes.
        line = list(names)
        far = [
            (a, b) for a in line for b in line
            if 1 < abs(line.index(a) - line.index(b)) < len(line) - 1
        ]  # fmt: skip
        return far or _both([line[0]], [line[1]])
    assert shape == "from-clients", shape
    return _both([target], [clients])


def _both(some: Sequence[str], others: Sequence[str]) -> list[tuple[str, str]]:
    return [(a, b) for a in some for b in others] + [(b, a) for a in some for b in others]
