"""The same load on us and on others, in turns, on one machine, in one go.

At any time only one system is there, fresh. Each has its turn in every round, so that whatever
disturbs the machine for a while disturbs all; then the best turn of each counts.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...cluster.local.nodes import running
from ...cluster.local.process import ProcessFailed
from . import herd, steady
from .peers.peer import PEERS, Number, PeerSystem, installed, missing, put_load
from .peers.postgres import postgres, server_user

OURS = "ours"
NODES = 3
Figures = Mapping[str, Number]
Say = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class ComparedLoad:
    """What is put on everybody."""

    runs: int
    workers: int = 2
    # Jobs due each second; all at one instant when 0.
    rate: float = 0.0
    # Jobs a second that may be inserted; decides how far ahead the instant lies.
    insert_rate: int = 8_000

    @property
    def steady(self) -> bool:
        return self.rate > 0

    @property
    def limit_s(self) -> float:
        """Until a turn is given up: generous, the programs have closer limits of their own."""
        run_s = self.runs / self.rate if self.steady else self.runs / 1_000
        return 240 + self.runs / self.insert_rate + run_s

    @property
    def key(self) -> str:
        """The figure that decides."""
        return "lateness_p99_ms" if self.steady else "runs_per_s"

    @property
    def keys(self) -> tuple[str, ...]:
        """The figures that are shown of everybody."""
        if self.steady:
            return ("lateness_p50_ms", "lateness_p95_ms", "lateness_p99_ms", "lateness_max_ms")
        return ("runs_per_s", "inserted_per_s")


def taking_part(names: Sequence[str], load: ComparedLoad, say: Say) -> list[PeerSystem]:
    """Those that can be measured here; one that was asked for by name must be among them."""
    found = []
    for peer in map(PEERS.__getitem__, names):
        why = missing(peer)
        if load.steady and not peer.steady:
            why = "it is measured with a herd only"
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
    folder: Path, load: ComparedLoad, peers: Sequence[PeerSystem], rounds: int, say: Say
) -> dict[str, object]:
    """All rounds; what they found."""
    kits = {}
    for peer in peers:
        say(f"{peer.name}: {' and '.join(peer.packages)}, downloaded if not yet here")
        kits[peer.name] = installed(peer, folder)
    if server_user():
        # Who is not us has to get to the folders of the servers.
        folder.chmod(folder.stat().st_mode | 0o011)
    turns: dict[str, list[Figures]] = {OURS: [], **{peer.name: [] for peer in peers}}
    for number in range(rounds):
        for name, found in turns.items():
            place = folder / f"{name}-{number + 1}"
            if name == OURS:
                figures = ours(place, load)
            else:
                figures = theirs(place, PEERS[name], kits[name], load)
            found.append(figures)
            shutil.rmtree(place)
            shown = ", ".join(f"{key} {value:,}" for key, value in figures.items())
            say(f"round {number + 1} of {rounds}, {name}: {shown}")
    return summary(load, turns)


def ours(folder: Path, load: ComparedLoad) -> Figures:
    with running(folder, NODES) as nodes:
        if load.steady:
            lasting = steady.Steady(
                rate=load.rate, seconds=load.runs / load.rate, workers=load.workers,
                insert_rate=load.insert_rate,
            )  # fmt: skip
            return chosen(load, asyncio.run(steady.run(folder, nodes, lasting)))
        at_once = herd.Herd(runs=load.runs, workers=load.workers, insert_rate=load.insert_rate)
        return chosen(load, asyncio.run(herd.run(folder, nodes, at_once)))


def theirs(folder: Path, peer: PeerSystem, kit: Path, asked: ComparedLoad) -> Figures:
    wanted = {
        "runs": asked.runs,
        "workers": asked.workers,
        "rate": asked.rate,
        "insert_rate": asked.insert_rate,
        "payload": herd.PAYLOAD.decode(),
        **(peer.steady if asked.steady else peer.herd),
    }
    with postgres(folder) as servers:
        found = put_load(peer, kit, servers, wanted, asked.limit_s)
    if found["begun"] < asked.runs:
        raise ProcessFailed(f"{peer.name} began {found['begun']} of {asked.runs} runs")
    return chosen(asked, found | {"runs_per_s": asked.runs / found["seconds"]})


def chosen(load: ComparedLoad, found: Figures) -> Figures:
    digits = 2 if load.steady else None
    return {key: round(found[key], digits) for key in load.keys}


def best(load: ComparedLoad, turns: Sequence[Figures]) -> Figures:
    """The turn with the best of the figure that decides, whole: no figures of different turns."""
    choose = min if load.steady else max
    return choose(turns, key=lambda turn: turn[load.key])


def ratio(load: ComparedLoad, mine: Figures, other: Figures) -> float:
    """How many times better we are: above 1 in our favour, below in theirs."""
    a, b = mine[load.key], other[load.key]
    return round(b / a if load.steady else a / b, 2)


def summary(load: ComparedLoad, turns: Mapping[str, Sequence[Figures]]) -> dict[str, object]:
    mine = best(load, turns[OURS])
    whole: dict[str, object] = {
        "of": "steady" if load.steady else "herd",
        "runs": load.runs,
        "workers": load.workers,
        "rounds": len(turns[OURS]),
        **({"rate": load.rate} if load.steady else {}),
        OURS: {**mine, "nodes": NODES, "turns": [turn[load.key] for turn in turns[OURS]]},
    }
    for name in (name for name in turns if name != OURS):
        peer = PEERS[name]
        other = best(load, turns[name])
        settings = peer.steady if load.steady else peer.herd
        whole[name] = {
            "ratio": ratio(load, mine, other),
            **other,
            "versions": " ".join(peer.packages),
            "settings": ", ".join(f"{key} {value}" for key, value in settings.items()),
            "turns": [turn[load.key] for turn in turns[name]],
        }
    return whole


def flat(whole: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    """What was found as rows of a name and a value."""
    for key, value in whole.items():
        if isinstance(value, Mapping):
            yield from ((f"{key} {inner}", each) for inner, each in value.items())
        else:
            yield key, value
