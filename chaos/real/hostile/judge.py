"""Did the cluster hold? Judged from what was seen beside the attacks, never from what they say."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...percentile import percentile
from ..lateness import TimeSpans
from . import judge_gateway
from .brief import AttackFindings
from .judge_gateway import Asked

# After a change that the harness made itself, terms may move for so long.
SETTLE_S = 3.0
# So long after others used the machine, an election may be their doing.
FOREIGN_S = 1.0
# So long after the death of a leader a run may be late.
KILL_S = 1.0
# Of so many starts at least, one in a hundred can be distinguished from the worst.
STARTS_LEAST = 100


@dataclass(frozen=True, slots=True)
class HostileLimits:
    """What is promised."""

    p99_ms: float = 20.0
    max_ms: float = 500.0
    rss_mb: float = 150.0
    # Of the gateway: what it holds, and how soon somebody honest is answered through it.
    gateway_mb: float = 400.0
    http_ms: float = 1_000.0


@dataclass(frozen=True, slots=True)
class Played:
    """An attack, and when it was."""

    name: str
    number: str
    began: float
    ended: float
    found: AttackFindings


@dataclass(frozen=True, slots=True)
class HighestTerm:
    """The highest term that any node named."""

    at: float
    term: int


@dataclass(frozen=True, slots=True)
class Memory:
    """What a process of a node held, in MiB."""

    at: float
    node: str
    pid: int
    rss_mb: int


@dataclass(frozen=True, slots=True)
class Start:
    """A run of the bystander's: when it was due, and how late it began."""

    due_at: float
    late_ms: float


@dataclass(slots=True)
class Sight:
    """All that was seen, by the machine's monotonic clock."""

    played: list[Played] = field(default_factory=list)
    terms: list[HighestTerm] = field(default_factory=list)
    memory: list[Memory] = field(default_factory=list)
    starts: list[Start] = field(default_factory=list)
    # Calls of somebody honest to each node: from, until.
    asked: list[tuple[float, float]] = field(default_factory=list)
    # Changes of the leader that the harness made: from, until.
    ours: list[tuple[float, float]] = field(default_factory=list)
    # When the machine kept a process of the run waiting.
    busy: list[tuple[float, float]] = field(default_factory=list)
    # When others used this machine so much that a node may have stood still for it.
    foreign: list[tuple[float, float]] = field(default_factory=list)
    # Nodes that ended by themselves: when, and their last word.
    deaths: list[tuple[float, str]] = field(default_factory=list)
    began: float = 0.0
    ended: float = 0.0
    # Runs of the bystander's that were due and never began.
    never: int = 0
    # Of the gateway: what it held, who honest asked it, and jobs made through it that are gone.
    gateway_memory: list[Memory] = field(default_factory=list)
    gateway_asked: list[Asked] = field(default_factory=list)
    gateway_lost: int = 0


def elections(sight: Sight, began: float, ended: float, *, foreign: bool = False) -> int:
    """Terms that passed in a stretch, but for those that the harness made pass.

    Of those that passed while others used the machine nobody can say why; they are counted apart.
    """
    ours = TimeSpans((a - 0.2, b + SETTLE_S) for a, b in sight.ours)
    others = TimeSpans((a - 0.2, b + FOREIGN_S) for a, b in sight.foreign)
    count, before = 0, None
    for seen in sight.terms:
        if before is not None and seen.term > before.term and began <= seen.at <= ended:
            # It moved between two looks.
            is_ours = ours.touch(before.at, seen.at)
            if not is_ours and others.touch(before.at, seen.at) == foreign:
                count += seen.term - before.term
        before = seen
    return count


def lateness(sight: Sight, began: float, ended: float, *, raw: bool = False) -> list[float]:
    """Milliseconds of each start, without what deaths of leaders and the machine account for."""
    kills = TimeSpans((a, max(b, a + KILL_S)) for a, b in sight.ours)
    busy = TimeSpans(sight.busy)
    found = []
    for start in sight.starts:
        at = start.due_at + max(0.0, start.late_ms) / 1000
        if not began <= start.due_at <= ended:
            continue
        late = start.late_ms - 1000 * kills.within(start.due_at, at)
        if not raw:
            late -= 1000 * busy.within(start.due_at, at)
        found.append(max(0.0, late))
    return found


def answer(sight: Sight, began: float, ended: float) -> float:
    """Milliseconds that an honest call took at most, without what the harness and the machine
    account for."""
    ours = TimeSpans((a, b + KILL_S) for a, b in sight.ours)
    busy = TimeSpans(sight.busy)
    took = [
        b - a - busy.within(a, b)
        for a, b in sight.asked
        if began <= a <= ended and not ours.touch(a, b)
    ]
    return round(1000 * max(0.0, *took, 0.0), 1)


def growth(sight: Sight, began: float, ended: float) -> float:
    """MiB by which a process of a node grew most, from its first look in a stretch.

    One that was started in it begins small: what counts is how far it comes above what the largest
    node held before.
    """
    before = [seen for seen in sight.memory if seen.at < began]
    known = {seen.pid for seen in before}
    held = max({seen.node: seen.rss_mb for seen in before}.values(), default=0)
    first: dict[int, int] = {}
    most = 0
    for seen in sight.memory:
        if began <= seen.at <= ended:
            least = 0 if seen.pid in known else held
            first.setdefault(seen.pid, max(seen.rss_mb, least))
            most = max(most, seen.rss_mb - first[seen.pid])
    return most


def growth_of_all(sight: Sight) -> float:
    """MiB by which any node came to be above the largest of the first looks.

    A process that is new begins small, and whoever leads holds more than the others.
    """
    first: dict[str, int] = {}
    for seen in sight.memory:
        first.setdefault(seen.node, seen.rss_mb)
    base = max(first.values(), default=0)
    return max(0, max((seen.rss_mb for seen in sight.memory), default=0) - base)


def spread(values: Sequence[float]) -> dict[str, float]:
    return {
        "p99": round(percentile(values, 0.99, 0.0), 1),
        "max": round(max(values, default=0.0), 1),
    }


def verdict(sight: Sight, limits: HostileLimits, violations: Iterable[str]) -> dict[str, Any]:
    """One object: what was promised, what was seen, and each attack by itself."""
    wrong = list(violations)
    late = lateness(sight, sight.began, sight.ended)
    moved = elections(sight, sight.began, sight.ended)
    grown = growth_of_all(sight)
    spreads = spread(late)
    if moved:
        wrong.append(f"the leader changed {moved} times, and the harness did not make it")
    if len(late) >= STARTS_LEAST and spreads["p99"] > limits.p99_ms:
        wrong.append(f"one run in a hundred was late by over {limits.p99_ms:.0f} ms")
    if spreads["max"] > limits.max_ms:
        wrong.append(f"a run was late by {spreads['max']:.0f} ms")
    if grown > limits.rss_mb:
        wrong.append(f"a node grew by {grown} MiB")
    wrong += [words for _, words in sight.deaths]
    wrong += judge_gateway.wrong(sight, sight.began, sight.ended, limits)
    if sight.gateway_lost:
        wrong.append(f"{sight.gateway_lost} jobs that were made through the gateway are gone")
    if sight.never:
        wrong.append(f"{sight.never} runs of the bystander never began")
    if sight.played and sight.ended - sight.began > 5 and not sight.starts:
        wrong.append("no run of the bystander began at all")
    attacks = [attack(sight, each, limits) for each in sight.played]
    failed = [each["name"] for each in attacks if each["verdict"] != "ok"]
    return {
        "verdict": "ok" if not wrong and not failed else "failed",
        "wrong": wrong,
        "failed": failed,
        "leader_changes_by_attack": moved,
        "leader_changes_unclear": elections(sight, sight.began, sight.ended, foreign=True),
        "foreign_share": share(sight, sight.foreign),
        "lateness_ms": spreads,
        "lateness_raw_ms": spread(lateness(sight, sight.began, sight.ended, raw=True)),
        "starts": len(late),
        "rss_mb_growth": grown,
        "gateway": judge_gateway.gateway(sight, sight.began, sight.ended),
        "busy_share": share(sight, sight.busy),
        "attacks": attacks,
    }


def share(sight: Sight, spans: Sequence[tuple[float, float]]) -> float:
    """How much of the time lies in some stretches."""
    whole = sight.ended - sight.began
    return round(TimeSpans(spans).within(sight.began, sight.ended) / whole, 3) if whole else 0.0


def attack(sight: Sight, played: Played, limits: HostileLimits) -> dict[str, Any]:
    """What one attack came to."""
    # What it set going may show a little later.
    ended = played.ended + 0.5
    moved = elections(sight, played.began, ended)
    grown = growth(sight, played.began, ended)
    late = spread(lateness(sight, played.began, ended))
    wrong = list(played.found.wrong)
    wrong += [words for at, words in sight.deaths if played.began <= at <= ended]
    if moved:
        wrong.append(f"{moved} elections")
    if late["max"] > limits.max_ms:
        wrong.append(f"a run was late by {late['max']:.0f} ms")
    if grown > limits.rss_mb:
        wrong.append(f"a node grew by {grown} MiB")
    wrong += judge_gateway.wrong(sight, played.began, ended, limits)
    return {
        "name": played.name,
        "number": played.number,
        "seconds": round(played.ended - played.began, 1),
        "calls": played.found.calls,
        "refused": played.found.refused,
        "codes": played.found.codes,
        "words": played.found.words,
        "leader_changes": moved,
        "leader_changes_unclear": elections(sight, played.began, ended, foreign=True),
        "lateness_ms": late,
        "rss_mb_growth": grown,
        "answer_ms": answer(sight, played.began, ended),
        "gateway": judge_gateway.gateway(sight, played.began, ended),
        **({"figures": played.found.figures} if played.found.figures else {}),
        "verdict": "failed" if wrong else "ok",
        **({"wrong": wrong} if wrong else {}),
    }
