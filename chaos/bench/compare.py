"""The same load on us and on others, in turns, on one machine, in one go.

At any time only one system is there, fresh. Each has its turn in every round, so that whatever
disturbs the machine for a while disturbs all; then the best turn of each counts.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...cluster.local.nodes import NodeProcesses, running
from ...cluster.local.process import ProcessFailed
from . import compare_failover, herd, steady
from .compare_turns import PeerTurn, figures_of_turn
from .peers.peer import PEERS, Number, PeerSystem, installed, missing
from .peers.postgres import server_user
from .peers.usage import UsageWatch

OURS = "ours"
NODES = 3
Figures = Mapping[str, Number]
Say = Callable[[str], None]
USED = ("servers_us_per_run", "workers_us_per_run", "servers_mb")


@dataclass(frozen=True, kw_only=True)
class ComparedLoad:
    """What is put on everybody."""

    runs: int
    workers: int = 2
    # Jobs due each second; all at one instant when 0.
    rate: float = 0.0
    # Whether the primary, or the leader, is killed under a steady load.
    failover: bool = False
    # Jobs a second that may be inserted; decides how far ahead the instant lies.
    insert_rate: int = 8_000

    @property
    def steady(self) -> bool:
        return self.rate > 0

    @property
    def name(self) -> str:
        return "failover" if self.failover else "steady" if self.steady else "herd"

    @property
    def key(self) -> str:
        """The figure that decides."""
        return {"failover": "pause_ms", "steady": "lateness_p99_ms", "herd": "runs_per_s"}[
            self.name
        ]

    @property
    def less_is_better(self) -> bool:
        return self.name != "herd"

    @property
    def keys(self) -> tuple[str, ...]:
        """The figures that are shown of everybody."""
        if self.failover:
            return ("pause_ms", "lateness_max_ms", "lost", "twice")
        if self.steady:
            names = ("lateness_p50_ms", "lateness_p95_ms", "lateness_p99_ms", "lateness_max_ms")
            return names + USED
        return ("runs_per_s", "inserted_per_s", *USED)


def taking_part(names: Sequence[str], load: ComparedLoad, say: Say) -> list[PeerSystem]:
    """Those that can be measured here; one that was asked for by name must be among them."""
    found = []
    for peer in map(PEERS.__getitem__, names):
        why = missing(peer, failover=load.failover)
        if why and len(names) == 1:
            raise ProcessFailed(f"{peer.name} cannot be measured: {why}")
        if why:
            say(f"{peer.name} is left out: {why}")
        else:
            found.append(peer)
    if not found:
        raise ProcessFailed("no peer is left to be compared with")
    return found


def run(
    folder: Path, load: ComparedLoad, peers: Sequence[PeerSystem], rounds: int, say: Say,
    *, all_or_none: bool = True,
) -> dict[str, object]:  # fmt: skip
    """All rounds; what they found. A single peer that fails is an error, if not asked otherwise."""
    kits = {}
    for peer in peers:
        say(f"{peer.name}: {' and '.join(peer.packages)}, downloaded if not yet here")
        kits[peer.name] = installed(peer, folder)
    let_servers_in(folder)
    turns: dict[str, list[Figures]] = {OURS: [], **{peer.name: [] for peer in peers}}
    failed: dict[str, str] = {}
    for number in range(rounds):
        for name, found in turns.items():
            place = folder / f"{name}-{number + 1}"
            try:
                if name == OURS:
                    figures = ours(place, load)
                else:
                    figures = theirs(place, PEERS[name], kits[name], load)
            except ProcessFailed as error:
                # One that cannot keep up does not take the others' figures with it.
                if name == OURS or (all_or_none and len(peers) == 1):
                    raise
                failed[name] = str(error).splitlines()[-1]
                say(f"round {number + 1} of {rounds}, {name}: no figures: {error}")
                continue
            finally:
                shutil.rmtree(place, ignore_errors=True)
            found.append(figures)
            shown = ", ".join(f"{key} {value:,}" for key, value in figures.items())
            say(f"round {number + 1} of {rounds}, {name}: {shown}")
    return summary(load, turns, failed)


def let_servers_in(folder: Path) -> None:
    """Servers that may not run as root get through to their folders below this one."""
    if server_user():
        folder.chmod(folder.stat().st_mode | 0o011)


def ours(folder: Path, load: ComparedLoad) -> Figures:
    with running(folder, NODES) as nodes:
        pids = [node.pid for node in nodes]
        with UsageWatch(lambda: pids, lambda: [os.getpid()]) as usage:
            found = _ours(folder, load, nodes)
    return chosen(load, found | {
        "servers_us_per_run": found.get("nodes_us_per_run", 0.0),
        "servers_mb": usage.memory / 1e6,
    })  # fmt: skip


def _ours(folder: Path, load: ComparedLoad, nodes: NodeProcesses) -> dict[str, Number]:
    if load.steady:
        lasting = steady.Steady(
            rate=load.rate, seconds=load.runs / load.rate, workers=load.workers,
            insert_rate=load.insert_rate,
        )  # fmt: skip
        if load.failover:
            return asyncio.run(compare_failover.run(folder, nodes, lasting))
        return asyncio.run(steady.run(folder, nodes, lasting))
    at_once = herd.Herd(runs=load.runs, workers=load.workers, insert_rate=load.insert_rate)
    return asyncio.run(herd.run(folder, nodes, at_once))


def theirs(folder: Path, peer: PeerSystem, kit: Path, load: ComparedLoad) -> Figures:
    asked = {
        "runs": load.runs,
        "workers": 1 if peer.one_worker else load.workers,
        "rate": load.rate,
        "failover": load.failover,
        "insert_rate": load.insert_rate,
        "warm_up": peer.warm_up,
        "least_rate": peer.least_rate,
        "payload": herd.PAYLOAD.decode(),
        **(peer.steady if load.steady else peer.herd),
    }
    turn = PeerTurn(folder, peer, kit, asked)
    found = turn.play()
    if len(turn.pairs) < load.runs and not load.failover:
        raise ProcessFailed(f"{peer.name} began {len(turn.pairs)} of {load.runs} runs")
    return chosen(load, figures_of_turn(turn, found))


def chosen(load: ComparedLoad, found: Figures) -> Figures:
    return {key: rounded(key, found[key]) for key in load.keys}


def rounded(key: str, value: Number) -> Number:
    if key.startswith("lateness"):
        return round(value, 2)
    return round(value, 1) if key.endswith("_us_per_run") else round(value)


def best(load: ComparedLoad, turns: Sequence[Figures]) -> Figures:
    """The turn with the best of the figure that decides, whole: no figures of different turns."""
    choose = min if load.less_is_better else max
    return choose(turns, key=lambda turn: turn[load.key])


def ratio(load: ComparedLoad, mine: Figures, other: Figures) -> float:
    """How many times better we are: above 1 in our favour, below in theirs."""
    a, b = mine[load.key], other[load.key]
    if load.less_is_better:
        a, b = b, a
    return round(a / b, 2) if b else float("inf")


def summary(
    load: ComparedLoad,
    turns: Mapping[str, Sequence[Figures]],
    failed: Mapping[str, str] | None = None,
) -> dict[str, object]:
    mine = best(load, turns[OURS])
    whole: dict[str, object] = {
        "of": load.name,
        "runs": load.runs,
        "workers": load.workers,
        "rounds": len(turns[OURS]),
        **({"rate": load.rate} if load.steady else {}),
        OURS: {**mine, "nodes": NODES, "turns": [turn[load.key] for turn in turns[OURS]]},
    }
    for name in (name for name in turns if name != OURS):
        peer = PEERS[name]
        settings = peer.steady if load.steady else peer.herd
        about = {
            "versions": " ".join(peer.packages),
            "settings": ", ".join(f"{key} {value}" for key, value in settings.items()),
            "turns": [turn[load.key] for turn in turns[name]],
        }
        if not turns[name]:
            whole[name] = {"failed": (failed or {}).get(name, ""), **about}
            continue
        other = best(load, turns[name])
        whole[name] = {"ratio": ratio(load, mine, other), **other, **about}
    return whole


def flat(whole: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    """What was found as rows of a name and a value."""
    for key, value in whole.items():
        if isinstance(value, Mapping):
            yield from ((f"{key} {inner}", each) for inner, each in value.items())
        else:
            yield key, value
