"""Every load on every system, one after the other, and what they found as one page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ...cluster.local.process import ProcessFailed
from .compare import OURS, ComparedLoad, Say, let_servers_in, run, taking_part
from .peers.peer import PEERS, PeerSystem

Found = Mapping[str, object]
# A load is not put on what manages less than this share of its rate at its best: it would only
# show how long a queue grows.
MANAGES = 0.5
LOADS = {
    "10,000 jobs due at one instant": ComparedLoad(runs=10_000),
    "10 jobs due each second, 20 s": ComparedLoad(runs=200, rate=10.0),
    "1,667 jobs due each second, 20 s": ComparedLoad(runs=33_340, rate=1_667.0),
    "10,000 jobs due each second, 10 s": ComparedLoad(runs=100_000, rate=10_000.0),
    "50 jobs due each second, the primary killed": ComparedLoad(
        runs=3_000, rate=50.0, failover=True
    ),
}
SHOWN = {
    "runs_per_s": "runs/s", "inserted_per_s": "inserted/s", "servers_us_per_run": "servers, µs/run",
    "workers_us_per_run": "workers, µs/run", "servers_mb": "servers, MB",
    "lateness_p50_ms": "p50 ms", "lateness_p95_ms": "p95 ms", "lateness_p99_ms": "p99 ms",
    "lateness_max_ms": "max ms", "pause_ms": "nothing runs for, ms", "lost": "never ran",
    "twice": "ran twice",
}  # fmt: skip
NAMES = {
    OURS: "raftsched", "pgqueuer": "PGQueuer", "graphile": "graphile-worker", "pgboss": "pg-boss",
    "bullmq": "BullMQ", "procrastinate": "Procrastinate", "celery": "Celery",
    "apscheduler": "APScheduler",
}  # fmt: skip


def run_all(
    folder: Path, names: Sequence[str], workers: int, rounds: int, say: Say
) -> Iterator[dict[str, Found]]:
    """Play all loads; what each found, by its title, again behind each of them."""
    found: dict[str, Found] = {}
    manages: dict[str, float] = {}
    let_servers_in(folder)
    for number, (title, load) in enumerate(LOADS.items()):
        say(f"load {number + 1} of {len(LOADS)}: {title}")
        load = replace(load, workers=workers)
        peers = [
            peer for peer in taking_part(names, load, say) if keeps_up(peer, load, manages, say)
        ]
        if not peers:
            raise ProcessFailed(f"no peer is left for: {title}")
        place = folder / f"load-{number}"
        place.mkdir()
        rounds = 1 if load.failover else rounds
        found[title] = run(place, load, peers, rounds, say, all_or_none=False)
        if load.name == "herd":
            manages |= {peer.name: rate_of(found[title], peer.name) for peer in peers}
        yield found


def keeps_up(peer: PeerSystem, load: ComparedLoad, manages: Mapping[str, float], say: Say) -> bool:
    most = manages.get(peer.name)
    if most is None or most >= MANAGES * load.rate:
        return True
    say(f"{peer.name} is left out: it managed {most:,.0f} runs/s, and {load.rate:,.0f} are asked")
    return False


def rate_of(found: Found, name: str) -> float:
    figures = found[name]
    assert isinstance(figures, Mapping), name
    return float(figures.get("runs_per_s", 0.0))


def markdown(found: Mapping[str, Found], around: Found, command: str) -> str:
    """A table for each load; before them where others are ahead of us, and by how much."""
    lines = [
        "# Others under the same load", "",
        f"Made by `{command}`: each system alone on the machine, in turns, the best turn of each. "
        "PostgreSQL has two standbys and quorum commit, Redis syncs each change before it answers "
        "and has two replicas; what that leaves out, and which settings each has, is in "
        "[chaos/bench/DESIGN.md](../chaos/bench/DESIGN.md). Lateness is from the due time to the "
        "handler's start. Processor time of servers and of workers is counted apart, for a run.",
        "", f"Measured on: {', '.join(f'{key} {value}' for key, value in around.items())}.", "",
        "## Where others are ahead", "", *(ahead(found) or ["Nowhere in these loads."]), "",
    ]  # fmt: skip
    for title, figures in found.items():
        lines += [f"## {title[0].upper()}{title[1:]}", "", *table(figures), ""]
    lines += ["## Versions and settings", "", *versions(found), ""]
    return "\n".join(lines)


def ahead(found: Mapping[str, Found]) -> list[str]:
    """One line for each figure in which another is better than we are."""
    lines = []
    for title, figures in found.items():
        mine = figures[OURS]
        assert isinstance(mine, Mapping)
        for name, other in figures.items():
            if name in NAMES and name != OURS and isinstance(other, Mapping):
                better = [
                    f"{SHOWN[key]} {other[key]:,} to our {mine[key]:,}"
                    for key in mine
                    if key in SHOWN and key in other and is_better(key, other[key], mine[key])
                ]
                lines += [f"* {title}: {NAMES[name]}: {', '.join(better)}."] if better else []
    return lines


def is_better(key: str, other: float, mine: float) -> bool:
    return other > mine if key in ("runs_per_s", "inserted_per_s") else other < mine


def table(figures: Found) -> Iterator[str]:
    mine = figures[OURS]
    assert isinstance(mine, Mapping)
    keys = [key for key in SHOWN if key in mine]
    yield "| | " + " | ".join([*(SHOWN[key] for key in keys), "we are better by"]) + " |"
    yield "|---|" + "---|" * (len(keys) + 1)
    for name, shown in NAMES.items():
        one = figures.get(name)
        if not isinstance(one, Mapping):
            continue
        if "failed" in one:
            yield f"| {shown} | no figures: {one['failed']} |" + " |" * len(keys)
            continue
        cells = [f"{one[key]:,}" for key in keys]
        yield f"| {shown} | " + " | ".join([*cells, f"{one.get('ratio', '')}"]) + " |"
    for name in (name for name in PEERS if name not in figures):
        yield f"| {NAMES[name]} | not measured |" + " |" * len(keys)


def versions(found: Mapping[str, Found]) -> Iterator[str]:
    for name in PEERS:
        rows = [figures[name] for figures in found.values() if name in figures]
        settings = dict.fromkeys(
            str(row["settings"]) for row in rows if isinstance(row, Mapping) and "settings" in row
        )
        if settings:
            yield f"* {NAMES[name]}: {' '.join(PEERS[name].packages)}; {'; or '.join(settings)}."
