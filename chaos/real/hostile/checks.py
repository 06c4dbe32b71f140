"""Did the cluster hold? Checked from what was seen beside the attacks, never from what they say."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...percentile import percentile
from ..lateness import TimeSpans
from . import gateway_checks
from .brief import AttackFindings
from .gateway_checks import Asked

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
class HostileObservations:
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


def elections(
    seen: HostileObservations, began: float, ended: float, *, foreign: bool = False
) -> int:
    """Terms that passed in a stretch, but for those that the harness made pass.

    Of those that passed while others used the machine nobody can say why; they are counted apart.
    """
    ours = TimeSpans((a - 0.2, b + SETTLE_S) for a, b in seen.ours)
    others = TimeSpans((a - 0.2, b + FOREIGN_S) for a, b in seen.foreign)
    count, before = 0, None
    for reading in seen.terms:
        if before is not None and reading.term > before.term and began <= reading.at <= ended:
            # It moved between two looks.
            is_ours = ours.touch(before.at, reading.at)
            if not is_ours and others.touch(before.at, reading.at) == foreign:
                count += reading.term - before.term
        before = reading
    return count


def lateness(
    seen: HostileObservations, began: float, ended: float, *, raw: bool = False
) -> list[float]:
    """Milliseconds of each start, without what deaths of leaders and the machine account for."""
    kills = TimeSpans((a, max(b, a + KILL_S)) for a, b in seen.ours)
    busy = TimeSpans(seen.busy)
    found = []
    for start in seen.starts:
        at = start.due_at + max(0.0, start.late_ms) / 1000
        if not began <= start.due_at <= ended:
            continue
        late = start.late_ms - 1000 * kills.within(start.due_at, at)
        if not raw:
            late -= 1000 * busy.within(start.due_at, at)
        found.append(max(0.0, late))
    return found


def answer(seen: HostileObservations, began: float, ended: float) -> float:
    """Milliseconds that an honest call took at most, without what the harness and the machine
    account for."""
    ours = TimeSpans((a, b + KILL_S) for a, b in seen.ours)
    busy = TimeSpans(seen.busy)
    took = [
        b - a - busy.within(a, b)
        for a, b in seen.asked
        if began <= a <= ended and not ours.touch(a, b)
    ]
    return round(1000 * max(0.0, *took, 0.0), 1)


def growth(seen: HostileObservations, began: float, ended: float) -> float:
    """MiB by which a process of a node grew most, from its first look in a stretch.

    One that was started in it begins small: what counts is how far it comes above what the largest
    node held before.
    """
    before = [reading for reading in seen.memory if reading.at < began]
    known = {reading.pid for reading in before}
    held = max({reading.node: reading.rss_mb for reading in before}.values(), default=0)
    first: dict[int, int] = {}
    most = 0
    for reading in seen.memory:
        if began <= reading.at <= ended:
            least = 0 if reading.pid in known else held
            first.setdefault(reading.pid, max(reading.rss_mb, least))
            most = max(most, reading.rss_mb - first[reading.pid])
    return most


def growth_of_all(seen: HostileObservations) -> float:
    """MiB by which any node came to be above the largest of the first looks.

    A process that is new begins small, and whoever leads holds more than the others.
    """
    first: dict[str, int] = {}
    for reading in seen.memory:
        first.setdefault(reading.node, reading.rss_mb)
    base = max(first.values(), default=0)
    return max(0, max((reading.rss_mb for reading in seen.memory), default=0) - base)


def spread(values: Sequence[float]) -> dict[str, float]:
    return {
        "p99": round(percentile(values, 0.99, 0.0), 1),
        "max": round(max(values, default=0.0), 1),
    }


def verdict(
    seen: HostileObservations, limits: HostileLimits, violations: Iterable[str]
) -> dict[str, Any]:
    """One object: what was promised, what was seen, and each attack by itself."""
    wrong = list(violations)
    late = lateness(seen, seen.began, seen.ended)
    moved = elections(seen, seen.began, seen.ended)
    grown = growth_of_all(seen)
    spreads = spread(late)
    if moved:
        wrong.append(f"the leader changed {moved} times, and the harness did not make it")
    if len(late) >= STARTS_LEAST and spreads["p99"] > limits.p99_ms:
        wrong.append(f"one run in a hundred was late by over {limits.p99_ms:.0f} ms")
    if spreads["max"] > limits.max_ms:
        wrong.append(f"a run was late by {spreads['max']:.0f} ms")
    if grown > limits.rss_mb:
        wrong.append(f"a node grew by {grown} MiB")
    wrong += [words for _, words in seen.deaths]
    wrong += gateway_checks.wrong(seen, seen.began, seen.ended, limits)
    if seen.gateway_lost:
        wrong.append(f"{seen.gateway_lost} jobs that were made through the gateway are gone")
    if seen.never:
        wrong.append(f"{seen.never} runs of the bystander never began")
    if seen.played and seen.ended - seen.began > 5 and not seen.starts:
        wrong.append("no run of the bystander began at all")
    attacks = [attack(seen, each, limits) for each in seen.played]
    failed = [each["name"] for each in attacks if each["verdict"] != "ok"]
    return {
        "verdict": "ok" if not wrong and not failed else "failed",
        "wrong": wrong,
        "failed": failed,
        "leader_changes_by_attack": moved,
        "leader_changes_unclear": elections(seen, seen.began, seen.ended, foreign=True),
        "foreign_share": share(seen, seen.foreign),
        "lateness_ms": spreads,
        "lateness_raw_ms": spread(lateness(seen, seen.began, seen.ended, raw=True)),
        "starts": len(late),
        "rss_mb_growth": grown,
        "gateway": gateway_checks.gateway(seen, seen.began, seen.ended),
        "busy_share": share(seen, seen.busy),
        "attacks": attacks,
    }


def share(seen: HostileObservations, spans: Sequence[tuple[float, float]]) -> float:
    """How much of the time lies in some stretches."""
    whole = seen.ended - seen.began
    return round(TimeSpans(spans).within(seen.began, seen.ended) / whole, 3) if whole else 0.0


def attack(seen: HostileObservations, played: Played, limits: HostileLimits) -> dict[str, Any]:
    """What one attack came to."""
    # What it set going may show a little later.
    ended = played.ended + 0.5
    moved = elections(seen, played.began, ended)
    grown = growth(seen, played.began, ended)
    late = spread(lateness(seen, played.began, ended))
    wrong = list(played.found.wrong)
    wrong += [words for at, words in seen.deaths if played.began <= at <= ended]
    if moved:
        wrong.append(f"{moved} elections")
    if late["max"] > limits.max_ms:
        wrong.append(f"a run was late by {late['max']:.0f} ms")
    if grown > limits.rss_mb:
        wrong.append(f"a node grew by {grown} MiB")
    wrong += gateway_checks.wrong(seen, played.began, ended, limits)
    return {
        "name": played.name,
        "number": played.number,
        "seconds": round(played.ended - played.began, 1),
        "calls": played.found.calls,
        "refused": played.found.refused,
        "codes": played.found.codes,
        "words": played.found.words,
        "leader_changes": moved,
        "leader_changes_unclear": elections(seen, played.began, ended, foreign=True),
        "lateness_ms": late,
        "rss_mb_growth": grown,
        "answer_ms": answer(seen, played.began, ended),
        "gateway": gateway_checks.gateway(seen, played.began, ended),
        **({"figures": played.found.figures} if played.found.figures else {}),
        "verdict": "failed" if wrong else "ok",
        **({"wrong": wrong} if wrong else {}),
    }
