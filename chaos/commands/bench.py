"""`raftsched bench`.

What it needs is loaded when it runs, so that help pages come at once.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Literal

import click

from ...client.cli.lazy import ExampleCommand, ExampleGroup

if TYPE_CHECKING:
    from ...cluster.local.nodes import NodeProcesses
from .capacity import capacity
from .compare import compare
from .data_folder import data_folder
from .reporting import note_other_work, report, reporting
from .soak import soak

Figures = dict[str, float | int]
OverTime = dict[str, list[float]]
Command = Callable[..., None]


def common(command: Command) -> Command:
    """What every benchmark of a cluster takes."""
    return click.option(
        "--nodes", type=click.Choice(["1", "3", "5"]), default="3", show_default=True,
        help="Nodes of the cluster, each a process with its own folder.",
    )(reporting(command))  # fmt: skip


@click.group(cls=ExampleGroup, examples=("raftsched bench herd --runs 20000",))
def bench() -> None:
    """Measure a cluster.

    Real nodes, workers and load as processes of this machine, with every write on the disks of a
    majority before it is acknowledged. Each command starts a cluster of its own and prints what it
    was measured on beside the figures. Keep the machine quiet meanwhile.
    """


@bench.command(cls=ExampleCommand, examples=("raftsched bench herd --runs 20000 --workers 4",))
@click.option("--runs", type=click.IntRange(1_000, 5_000_000), default=100_000, show_default=True)
@click.option("--workers", type=click.IntRange(1, 32), default=2, show_default=True)
@click.option("--recurring", is_flag=True, help="Daily cron jobs that fire together.")
@click.option("--jitter", type=float, default=0.0, help="Spread the herd over so many seconds.")
@common
def herd(runs: int, workers: int, recurring: bool, jitter: float, **how: Any) -> None:
    """Jobs inserted ahead, all due at one instant: how fast are they drained?

    Two worker processes with a handler that does nothing. Counted from the instant until the last
    completion is committed.
    """
    from ..bench import herd as scenario

    asked = scenario.Herd(runs=runs, workers=workers, recurring=recurring, jitter_s=jitter)
    measure("herd", how, lambda folder, nodes: scenario.run(folder, nodes, asked))


@bench.command(cls=ExampleCommand, examples=("raftsched bench steady --rate 500 --seconds 20",))
@click.option("--rate", type=click.FloatRange(1, 100_000), default=1_667, show_default=True)
@click.option("--seconds", type=click.FloatRange(1, 3_600), default=60, show_default=True)
@common
def steady(rate: float, seconds: float, **how: Any) -> None:
    """So many jobs due each second: how late do their handlers start?"""
    from ..bench import steady as scenario

    asked = scenario.Steady(rate=rate, seconds=seconds)
    over_time: OverTime = {}
    measure("steady", how, lambda folder, nodes: scenario.run(folder, nodes, asked, over_time),
            over_time=over_time)  # fmt: skip


@bench.command(cls=ExampleCommand, examples=("raftsched bench create --clients 8 --bulk 20000",))
@click.option("--clients", type=click.IntRange(1, 1_000), default=32, show_default=True)
@click.option("--seconds", type=click.FloatRange(1, 600), default=10, show_default=True)
@click.option("--bulk", type=click.IntRange(1_000, 10_000_000), default=200_000, show_default=True)
@common
def create(clients: int, seconds: float, bulk: int, **how: Any) -> None:
    """Create jobs one by one with many clients, then in bulk."""
    from ..bench import create as scenario

    asked = scenario.Create(clients=clients, seconds=seconds, bulk=bulk)
    measure("create", how, lambda folder, nodes: scenario.run(nodes, asked))


@bench.command(cls=ExampleCommand, examples=("raftsched bench defer --rounds 3",))
@click.option("--runs", type=click.IntRange(1_000, 1_000_000), default=10_000, show_default=True)
@click.option("--rounds", type=click.IntRange(1, 1_000), default=9, show_default=True)
@common
def defer(runs: int, rounds: int, **how: Any) -> None:
    """Have so many runs of a task made by one call of an app, in each round."""
    from ..bench import defer as scenario

    asked = scenario.Defer(runs=runs, rounds=rounds)
    measure("defer", how, lambda folder, nodes: scenario.run(nodes, asked))


@bench.command(cls=ExampleCommand, examples=("raftsched bench http --watchers 50 --flood 10",))
@click.option("--clients", type=click.IntRange(1, 900), default=32, show_default=True)
@click.option("--seconds", type=click.FloatRange(1, 600), default=10, show_default=True,
              help="How long each part lasts.")  # fmt: skip
@click.option("--watchers", type=click.IntRange(0, 900), default=500, show_default=True,
              help="Streams of events; 0 leaves that part out.")  # fmt: skip
@click.option("--events", type=click.FloatRange(1, 10_000), default=200, show_default=True,
              help="Events a second that they see.")  # fmt: skip
@click.option("--flood", type=click.FloatRange(0, 3_600), default=60, show_default=True,
              help="Seconds of calls without a token.")  # fmt: skip
@common
def http(
    clients: int, seconds: float, watchers: int, events: float, flood: float, **how: Any
) -> None:
    """Calls over HTTP through a gateway: how fast, and what does a flood do to the rest?

    The callers share the machine's cores with the gateway and the nodes.
    """
    from ..bench import http as scenario

    asked = scenario.Http(
        clients=clients, seconds=seconds, watchers=watchers, events=events, flood_s=flood
    )
    measure("http", how, lambda folder, nodes: scenario.run(folder, nodes, asked))


@bench.command(cls=ExampleCommand, examples=("raftsched bench idle --jobs 100000",))
@click.option("--jobs", type=click.IntRange(1, 20_000_000), default=1_000_000, show_default=True)
@click.option("--rate", type=click.FloatRange(0, 100_000), default=1_667, show_default=True,
              help="A steady load beside them: jobs due each second.")  # fmt: skip
@click.option("--seconds", type=click.FloatRange(1, 3_600), default=15, show_default=True,
              help="How long the steady load lasts.")  # fmt: skip
@common
def idle(jobs: int, rate: float, seconds: float, **how: Any) -> None:
    """Many jobs that are not due: memory, processor, start of a node, lateness of one that is.

    With 10,000,000 jobs it needs minutes for the import and 15 GB of disk; it says how it goes.
    """
    from ..bench import idle as scenario

    asked = scenario.Idle(jobs=jobs, rate=rate, seconds=seconds)
    over_time: OverTime = {}

    def say(word: str) -> None:
        click.echo(f"idle: {word}", err=True)

    measure("idle", how, lambda folder, nodes: scenario.run(folder, nodes, asked, say, over_time),
            over_time=over_time)  # fmt: skip


@bench.command(
    cls=ExampleCommand,
    examples=(
        "raftsched bench pages --jobs 100000",
        "raftsched bench pages --jobs 10000000 --runs 1000000 --dir many",
    ),
)
@click.option("--jobs", type=click.IntRange(2_000, 20_000_000), default=1_000_000,
              show_default=True)  # fmt: skip
@click.option("--runs", type=click.IntRange(1_000, 5_000_000), default=100_000, show_default=True,
              help="So many of them ran before.")  # fmt: skip
@click.option("--open", "opened", type=click.IntRange(0, 400), default=20, show_default=True,
              help="Overviews that stay open; 0 leaves that part out.")  # fmt: skip
@click.option("--seconds", type=click.FloatRange(1, 3_600), default=30, show_default=True,
              help="How long they stay open.")  # fmt: skip
@common
def pages(jobs: int, runs: int, opened: int, seconds: float, **how: Any) -> None:
    """The web page with many jobs: how soon does a page stand, what do open ones cost?

    Pages are opened by Chromium where it is installed, with playwright (.ci/requirements-page.txt).
    A folder that is named with --dir is kept: asked again with it, this command has nothing to
    import, and measures at once.
    """
    from ..bench import kept
    from ..bench import pages as scenario

    asked = scenario.PagesLoad(jobs=jobs, runs=min(runs, jobs), open=opened, seconds=seconds)
    over_time: OverTime = {}

    def say(word: str) -> None:
        click.echo(f"pages: {word}", err=True)

    measure("pages", how, lambda folder, nodes: scenario.run(folder, nodes, asked, say, over_time),
            over_time=over_time, cluster=kept.kept, mark=kept.FILLED)  # fmt: skip


@bench.command(
    cls=ExampleCommand, examples=("raftsched bench leases --leases 10000 --change kill",)
)
@click.option("--leases", type=click.IntRange(1, 1_000_000), default=100_000, show_default=True)
@click.option("--streams", type=click.IntRange(1, 5_000), default=2_000, show_default=True)
@click.option("--seconds", type=click.FloatRange(1, 3_600), default=60, show_default=True)
@click.option("--shared", type=click.IntRange(1, 5_000), default=100, show_default=True,
              help="Streams that share a connection.")  # fmt: skip
@click.option("--heartbeat-ms", type=click.IntRange(100, 60_000), default=10_000, show_default=True,
              help="How often a worker is to speak.")  # fmt: skip
@click.option("--change", type=click.Choice(["kill", "transfer"]), default=None,
              help="Change the leader at the end, and see whether all come back.")  # fmt: skip
@common
def leases(
    leases: int, streams: int, seconds: float, shared: int, heartbeat_ms: int,
    change: str | None, **how: Any,
) -> None:  # fmt: skip
    """Many leases held and kept alive over many streams: what does that cost the leader?"""
    from ..bench import leases as scenario

    asked = scenario.Leases(
        leases=leases, streams=streams, seconds=seconds, shared=shared, change=change or ""
    )
    measure("leases", how, lambda folder, nodes: scenario.run(folder, nodes, asked),
            ("--heartbeat-ms", str(heartbeat_ms)))  # fmt: skip


@bench.command(cls=ExampleCommand, examples=("raftsched bench failover --kills 5",))
@click.option("--kills", type=click.IntRange(1, 10_000), default=50, show_default=True)
@click.option("--rate", type=click.FloatRange(10, 10_000), default=500, show_default=True)
@click.option("--how", "way", type=click.Choice(["kill", "stop", "cut"]), default="kill",
              show_default=True, help="kill: SIGKILL. stop: SIGSTOP, so nothing breaks. cut: only "
              "its workers reach it.")  # fmt: skip
@common
def failover(kills: int, rate: float, way: Literal["kill", "stop", "cut"], **how: Any) -> None:
    """Take the leader away under load, again and again: how long until work goes on?"""
    from ..bench import failover as scenario
    from ..real.link_backend import Proxies

    asked = scenario.Failover(kills=kills, rate=rate, how=way)
    links = Proxies() if way == "cut" else None
    cluster = functools.partial(scenario.behind, links) if links is not None else None
    measure("failover", how, lambda folder, nodes: scenario.run(folder, nodes, asked, links),
            cluster=cluster)  # fmt: skip


@bench.command(cls=ExampleCommand, examples=("raftsched bench scale --most 100000",))
@click.option("--runs", type=click.IntRange(1_000, 1_000_000), default=20_000, show_default=True)
@click.option("--most", type=click.IntRange(10_000, 10_000_000), default=1_000_000,
              show_default=True, help="Jobs beside the herd in the last step.")  # fmt: skip
@common
def scale(runs: int, most: int, **how: Any) -> None:
    """The same herd with ever more jobs beside it: does a run cost more?"""
    from ..bench import scale as scenario

    steps = tuple(jobs for jobs in (10_000, 100_000, 1_000_000, 10_000_000) if jobs <= most)
    asked = scenario.Scale(runs=runs, steps=steps)
    measure("scale", how, lambda folder, nodes: scenario.run(folder, nodes, asked))


def measure(
    name: str, how: dict[str, Any], scenario: Callable[..., Any], settings: Sequence[str] = (),
    over_time: OverTime | None = None,
    cluster: Callable[..., AbstractContextManager[NodeProcesses]] | None = None,
    mark: str = "",
) -> None:  # fmt: skip
    """Start a cluster, run a scenario on it, print what it found. A folder that holds the file
    `mark` may be used again."""
    import asyncio

    from ...client.errors import RaftschedError
    from ...cluster.local.nodes import running
    from ...cluster.local.process import ProcessFailed
    from ..bench.surroundings import surroundings

    with data_folder(how["folder"], mark) as folder:
        around = surroundings(folder)
        note_other_work()
        click.echo(f"{name}: starting {how['nodes']} nodes", err=True)
        try:
            with (cluster or running)(folder, int(how["nodes"]), settings) as nodes:
                figures: Figures = asyncio.run(scenario(folder, nodes))
        except (ProcessFailed, RaftschedError) as error:
            click.echo(f"raftsched bench: {error}", err=True)
            sys.exit(1)
    figures = {"nodes": int(how["nodes"])} | figures
    whole = figures | ({"over_time": over_time} if over_time else {})
    report(name, whole, figures, around, how, over_time)


bench.add_command(compare)
bench.add_command(capacity)
bench.add_command(soak)
