"""`raftsched bench` and `raftsched chaos`.

What they need is loaded when they run, so that help pages come at once.
"""

from __future__ import annotations

import functools
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click
from click.core import ParameterSource

from ..client.cli.lazy import ExampleCommand, ExampleGroup
from .real.faults import SCENARIOS

if TYPE_CHECKING:
    from ..cluster.local.nodes import NodeProcesses
    from .real.run import ScenarioResult

Figures = dict[str, float | int]
OverTime = dict[str, list[float]]
Command = Callable[..., None]
HOSTILE = "hostile"
# The options that set a limit of that scenario; where they are not said it has its own.
WRITTEN = {"max_ms": "late_ms", "p99_ms": "calm_ms"}


def telling(command: Command) -> Command:
    """Where a benchmark works and how it tells what it found."""
    for option in (
        click.option("--dir", "folder", type=click.Path(path_type=Path, file_okay=False),
                     help="Where the nodes keep their data; empty or new. Default: thrown away."),
        click.option("--report", type=click.Path(path_type=Path, dir_okay=False),
                     help="Also write the figures as a page to this file."),
        click.option("-o", "output", type=click.Choice(["table", "json"]), default="table",
                     show_default=True, help="json: one object, the last line of stdout."),
    ):  # fmt: skip
        command = option(command)
    return command


def common(command: Command) -> Command:
    """What every benchmark of a cluster takes."""
    return click.option(
        "--nodes", type=click.Choice(["1", "3", "5"]), default="3", show_default=True,
        help="Nodes of the cluster, each a process with its own folder.",
    )(telling(command))  # fmt: skip


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
    from .bench import herd as scenario

    asked = scenario.Herd(runs=runs, workers=workers, recurring=recurring, jitter_s=jitter)
    measure("herd", how, lambda folder, nodes: scenario.run(folder, nodes, asked))


@bench.command(cls=ExampleCommand, examples=("raftsched bench steady --rate 500 --seconds 20",))
@click.option("--rate", type=click.FloatRange(1, 100_000), default=1_667, show_default=True)
@click.option("--seconds", type=click.FloatRange(1, 3_600), default=60, show_default=True)
@common
def steady(rate: float, seconds: float, **how: Any) -> None:
    """So many jobs due each second: how late do their handlers start?"""
    from .bench import steady as scenario

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
    from .bench import create as scenario

    asked = scenario.Create(clients=clients, seconds=seconds, bulk=bulk)
    measure("create", how, lambda folder, nodes: scenario.run(nodes, asked))


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
    from .bench import http as scenario

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

    With 10,000,000 jobs it needs minutes for the import and 15 GB of disk; it tells how it goes.
    """
    from .bench import idle as scenario

    asked = scenario.Idle(jobs=jobs, rate=rate, seconds=seconds)
    over_time: OverTime = {}

    def say(word: str) -> None:
        click.echo(f"idle: {word}", err=True)

    measure("idle", how, lambda folder, nodes: scenario.run(folder, nodes, asked, say, over_time),
            over_time=over_time)  # fmt: skip


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
    from .bench import leases as scenario

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
    from .bench import failover as scenario
    from .real.wiring import Proxies

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
    from .bench import scale as scenario

    steps = tuple(jobs for jobs in (10_000, 100_000, 1_000_000, 10_000_000) if jobs <= most)
    asked = scenario.Scale(runs=runs, steps=steps)
    measure("scale", how, lambda folder, nodes: scenario.run(folder, nodes, asked))


@bench.command(cls=ExampleCommand, examples=("raftsched bench compare --peer pgqueuer --rounds 1",))
@click.option("--runs", type=click.IntRange(1_000, 1_000_000), default=50_000, show_default=True,
              help="Jobs of the herd.")  # fmt: skip
@click.option("--peer", type=click.Choice(["pgqueuer", "graphile", "all"]), default="all",
              show_default=True)  # fmt: skip
@click.option("--workers", type=click.IntRange(1, 32), default=2, show_default=True)
@click.option("--rounds", type=click.IntRange(1, 20), default=2, show_default=True)
@click.option("--steady", is_flag=True, help="A steady load instead of a herd: lateness.")
@click.option("--rate", type=click.FloatRange(1, 100_000), default=1_667, show_default=True,
              help="With --steady: jobs due each second.")  # fmt: skip
@click.option("--seconds", type=click.FloatRange(1, 3_600), default=20, show_default=True,
              help="With --steady: how long.")  # fmt: skip
@telling
def compare(
    runs: int, peer: str, workers: int, rounds: int, steady: bool, rate: float, seconds: float,
    **how: Any,
) -> None:  # fmt: skip
    """The same load on us and on others, in turns: how many times faster are we?

    The others keep their jobs in PostgreSQL (on Debian and Ubuntu: apt-get install postgresql),
    set up as durable as three of our nodes: a primary with two standbys and quorum commit, so that
    a commit is on two of three disks. PGQueuer (Python) and graphile-worker (Node.js) are
    downloaded at the first time, into a cache of their own. All of them have the same number of
    worker processes, handlers that do nothing, jobs inserted ahead, and the settings that were
    found best for them. Only one system is there at a time; the best turn of each counts. A ratio
    above 1 is in our favour.
    """
    from ..cluster.local.process import ProcessFailed
    from .bench import compare as scenario
    from .bench.peers import postgres
    from .bench.peers.peer import PEERS
    from .bench.surroundings import surroundings

    def say(word: str) -> None:
        click.echo(f"compare: {word}", err=True)

    load = scenario.ComparedLoad(runs=int(rate * seconds) if steady else runs, workers=workers,
                         rate=rate if steady else 0.0)  # fmt: skip
    with data_folder(how["folder"]) as folder:
        around = surroundings(folder)
        note_other_work()
        try:
            around["postgresql"] = postgres.version()
            names = list(PEERS) if peer == "all" else [peer]
            peers = scenario.taking_part(names, load, say)
            told = scenario.run(folder, load, peers, rounds, say)
        except ProcessFailed as error:
            click.echo(f"raftsched bench: {error}", err=True)
            sys.exit(1)
    tell("compare", told, dict(scenario.flat(told)), around, how)


def measure(
    name: str, how: dict[str, Any], scenario: Callable[..., Any], settings: Sequence[str] = (),
    over_time: OverTime | None = None,
    cluster: Callable[..., AbstractContextManager[NodeProcesses]] | None = None,
) -> None:  # fmt: skip
    """Start a cluster, run a scenario on it, print what it found."""
    import asyncio

    from ..client.errors import RaftschedError
    from ..cluster.local.nodes import running
    from ..cluster.local.process import ProcessFailed
    from .bench.surroundings import surroundings

    with data_folder(how["folder"]) as folder:
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
    tell(name, whole, figures, around, how, over_time)


def note_other_work() -> None:
    if os.getloadavg()[0] > 0.5:
        click.echo("note: this machine has other work to do, which disturbs", err=True)


def tell(
    name: str,
    found: Mapping[str, object],
    rows: Mapping[str, object],
    around: Mapping[str, object],
    how: dict[str, Any],
    over_time: OverTime | None = None,
) -> None:
    """Write what was found, as rows or whole, and what it was measured on."""
    from .bench.page import shown, write_page

    if how["report"] is not None:
        write_page(how["report"], name, rows, around, over_time or {})
        click.echo(f"wrote {how['report']}", err=True)
    if how["output"] == "json":
        click.echo(json.dumps({"scenario": name, **found, "on": around}))
        return
    for key, value in rows.items():
        click.echo(f"{key:>26}  {shown(value)}")
    click.echo("measured on: " + ", ".join(f"{k} {v}" for k, v in around.items()), err=True)


@contextmanager
def data_folder(given: Path | None) -> Iterator[Path]:
    """The folder that was named, or one that is thrown away."""
    if given is not None:
        given.mkdir(parents=True, exist_ok=True)
        if any(given.iterdir()):
            raise click.UsageError(f"{given} is not empty; name another folder, or leave --dir out")
        yield given
        return
    made = Path(tempfile.mkdtemp(prefix="raftsched-"))
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


@click.group(cls=ExampleGroup, examples=("raftsched chaos run kill-leader --seconds 60",))
def chaos() -> None:
    """Prove a cluster under faults.

    Starts real nodes behind links that it can cut, and mistreats them by a plan that a seed
    decides, while clients write, jobs fire and workers misbehave. Everything that was seen is
    written down and judged when it is over: nothing lost, nothing doubled, no old token taken.
    """


@chaos.command(cls=ExampleCommand, examples=("raftsched chaos run kill-leader --seconds 60",))
@click.argument("scenario", type=click.Choice((*SCENARIOS, HOSTILE)), default="mixed")
@click.option("--nodes", type=click.Choice(["3", "5"]), default="3", show_default=True)
@click.option("--seconds", type=click.FloatRange(10, 86_400), default=120, show_default=True)
@click.option("--seed", type=int, default=1, show_default=True, help="Decides the faults.")
@click.option("--dir", "folder", type=click.Path(path_type=Path, file_okay=False),
              help="Keep history, logs and the nodes' data here; empty or new.")  # fmt: skip
@click.option("--report", type=click.Path(path_type=Path, dir_okay=False),
              help="Also write a page with a timeline to this file.")  # fmt: skip
@click.option("-o", "output", type=click.Choice(["table", "json"]), default="table",
              show_default=True, help="json: one object, the last line of stdout.")  # fmt: skip
@click.option("--late-ms", type=click.FloatRange(1), default=1_000, show_default=True,
              help="So late may a first attempt begin at most, where no fault and no busy machine "
              "explains it.")  # fmt: skip
@click.option("--calm-ms", type=click.FloatRange(1), default=50, show_default=True,
              help="So late may 99 of 100 begin where neither was near.")  # fmt: skip
@click.option("--recover", "recover_s", type=click.FloatRange(0.1), default=10, show_default=True,
              help="Seconds after a fault in which it may be later.")  # fmt: skip
@click.option("--herd", type=click.IntRange(1_000, 1_000_000), default=100_000, show_default=True,
              help="Jobs due at one instant in herd-failover.")  # fmt: skip
@click.option("--links", type=click.Choice(["proxies", "namespaces"]), default="proxies",
              show_default=True, help="How links are cut: by small proxies, or by the kernel with "
              "each node in a network namespace of its own (Linux).")  # fmt: skip
@click.option("--with", "older", type=click.Path(path_type=Path, exists=True, file_okay=False),
              metavar="PATH", help="upgrade: the older build, a checkout or a virtual environment. "
              "Default: the newest release before this commit, from git.")  # fmt: skip
@click.option(
    "--only",
    multiple=True,
    metavar="ATTACK",
    help="hostile: play this attack, and no other one that is not named. Repeatable.",
)
@click.option("--list", "list_them", is_flag=True, help="hostile: name all attacks, and stop.")
@click.option("--kills/--no-kills", default=True, show_default=True,
              help="hostile: kill the leader now and then as well.")  # fmt: skip
@click.option("--break-rule", type=click.Choice(["tokens", "firing", "commit"]), hidden=True)
def run(
    scenario: str,
    nodes: str,
    seconds: float,
    seed: int,
    folder: Path | None,
    report: Path | None,
    output: str,
    late_ms: float,
    calm_ms: float,
    recover_s: float,
    herd: int,
    links: str,
    older: Path | None,
    only: tuple[str, ...],
    list_them: bool,
    kills: bool,
    break_rule: str | None,
) -> None:
    """Mistreat a cluster for a while and judge what was seen.

    The exit code is 0 only when every promise was kept. The scenario `hostile` plays attacks of
    callers, tenants, workers, operators and disks beside the load; `upgrade` takes the nodes from
    an older build to this one and back, one after the other; in 30 s or more up again, too.
    """
    import asyncio

    if scenario == HOSTILE:
        limits = given_limits(max_ms=late_ms, p99_ms=calm_ms)
        play_hostile(seconds, seed, folder, output, only, list_them, kills, limits)
        return

    from ..cluster.local.process import ProcessFailed
    from .real import report as reports
    from .real.cables import enter
    from .real.run import RunOptions
    from .real.run import run as run_once

    if links == "namespaces":
        # Before there are threads or connections: the program begins again in there.
        try:
            enter()
        except ProcessFailed as error:
            click.echo(f"raftsched chaos: {error}", err=True)
            sys.exit(1)
    asked = RunOptions(
        scenario=scenario, nodes=int(nodes), seconds=seconds, seed=seed,
        broken_rule=break_rule or "", late_ms=late_ms, calm_ms=calm_ms,
        recover_s=recover_s, herd=herd, cables=links == "namespaces", older=older,
    )  # fmt: skip
    with data_folder(folder) as place:
        try:
            told = asyncio.run(run_once(place, asked, lambda word: click.echo(word, err=True)))
        except ProcessFailed as error:
            click.echo(f"raftsched chaos: {error}", err=True)
            sys.exit(1)
    if report is not None:
        reports.write(report, asked, told)
        click.echo(f"wrote {report}", err=True)
    figures = {
        "scenario": scenario, "nodes": int(nodes), "seconds": seconds, "seed": seed, "links": links,
    }  # fmt: skip
    show_told(figures, told, output)


def show_told(figures: dict[str, object], told: ScenarioResult, output: str) -> None:
    for violation in told.violations[:20]:
        click.echo(str(violation), err=True)
    if output == "json":
        click.echo(json.dumps(figures | told.figures))
    else:
        for key, value in (figures | told.figures).items():
            click.echo(f"{key:>18}  {value}")
    sys.exit(1 if told.violations else 0)


def given_limits(**limits: float) -> dict[str, float]:
    """Those that were said; for the others the scenario has its own."""
    context = click.get_current_context()
    return {
        name: limit for name, limit in limits.items()
        if context.get_parameter_source(WRITTEN[name]) is not ParameterSource.DEFAULT
    }  # fmt: skip


def play_hostile(
    seconds: float, seed: int, folder: Path | None, output: str, only: tuple[str, ...],
    list_them: bool, kills: bool, limits: dict[str, float],
) -> None:  # fmt: skip
    """`chaos run hostile`."""
    import asyncio

    from ..cluster.local.process import ProcessFailed
    from .real.hostile import run as hostile
    from .real.hostile.judge import HostileLimits
    from .real.hostile.table import ATTACKS

    if list_them:
        for attack in ATTACKS.values():
            click.echo(f"{attack.name:<32} {attack.number:<9} {attack.words}")
        return
    unknown = [name for name in only if name not in ATTACKS]
    if unknown:
        raise click.UsageError(
            f"there is no attack '{unknown[0]}'; `chaos run hostile --list` names all of them"
        )
    asked = hostile.HostileOptions(seconds=seconds, seed=seed, only=only, kills=kills,
                            limits=HostileLimits(**limits))  # fmt: skip
    with data_folder(folder) as place:
        try:
            found = asyncio.run(hostile.run(place, asked, lambda word: click.echo(word, err=True)))
        except ProcessFailed as error:
            click.echo(f"raftsched chaos: {error}", err=True)
            sys.exit(1)
    figures = {"verdict": found.pop("verdict"), "scenario": HOSTILE, "seconds": seconds,
               "seed": seed} | found  # fmt: skip
    if output == "json":
        click.echo(json.dumps(figures))
    else:
        show_hostile(figures)
    sys.exit(0 if figures["verdict"] == "ok" else 1)


def show_hostile(figures: dict[str, Any]) -> None:
    for attack in figures.pop("attacks"):
        click.echo(f"{attack['verdict']:>7}  {attack['name']:<32} {attack['calls']:>7} calls, "
                   f"{attack['leader_changes']} elections, late {attack['lateness_ms']['max']} ms, "
                   f"+{attack['rss_mb_growth']} MiB")  # fmt: skip
        for words in attack.get("wrong", ()):
            click.echo(f"{'':>9}{words}")
    for key, value in figures.items():
        click.echo(f"{key:>24}  {value}")


@chaos.command("sum", cls=ExampleCommand, examples=("raftsched chaos sum one.json two.json",))
@click.argument("files", nargs=-1, required=True,
                type=click.Path(path_type=Path, exists=True, dir_okay=False))  # fmt: skip
@click.option("-o", "output", type=click.Choice(["table", "json"]), default="table",
              show_default=True, help="json: one object, the last line of stdout.")  # fmt: skip
def sum_up(files: tuple[Path, ...], output: str) -> None:
    """Add up what several runs found, each a file with the output of `run -o json`.

    The exit code is 0 only when every promise was kept in all of them.
    """
    from .real.total import total

    runs = []
    for file in files:
        lines = file.read_text().splitlines()
        try:
            runs.append(json.loads(lines[-1]))
        except (IndexError, ValueError):
            raise click.UsageError(
                f"{file} does not end with an object of `chaos run -o json`; leave it out, or run "
                "it again"
            ) from None
    found = total(runs)
    if output == "json":
        click.echo(json.dumps(found))
    else:
        for key, value in found.items():
            click.echo(f"{key:>20}  {value}")
    sys.exit(0 if found["verdict"] == "ok" else 1)
