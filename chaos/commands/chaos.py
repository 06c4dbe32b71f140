"""`raftsched chaos`.

What it needs is loaded when it runs, so that help pages come at once.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from ...client.cli.lazy import ExampleCommand, ExampleGroup
from ..real.faults import SCENARIOS

if TYPE_CHECKING:
    from ..real.run import RunOptions, ScenarioResult
from .data_folder import data_folder

HOSTILE = "hostile"
# The options that set a limit of that scenario; where they are not given it has its own.
WRITTEN = {"max_ms": "late_ms", "p99_ms": "quiet_ms"}


@click.group(cls=ExampleGroup, examples=("raftsched chaos run kill-leader --seconds 60",))
def chaos() -> None:
    """Prove a cluster under faults.

    Starts real nodes behind links that it can cut, and mistreats them by a plan that a seed
    decides, while clients write, jobs fire and workers misbehave. Everything that was seen is
    written down and checked when it is over: nothing lost, nothing doubled, no old token taken.
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
@click.option("--history", type=click.Path(path_type=Path, dir_okay=False),
              help="Also write the calls on records to this file for other checkers: .edn as "
              "Jepsen's, .json for Porcupine.")  # fmt: skip
@click.option("-o", "output", type=click.Choice(["table", "json"]), default="table",
              show_default=True, help="json: one object, the last line of stdout.")  # fmt: skip
@click.option("--late-ms", type=click.FloatRange(1), default=1_000, show_default=True,
              help="So late may a first attempt begin at most, where no fault and no busy machine "
              "explains it.")  # fmt: skip
@click.option("--quiet-ms", type=click.FloatRange(1), default=50, show_default=True,
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
    history: Path | None,
    output: str,
    late_ms: float,
    quiet_ms: float,
    recover_s: float,
    herd: int,
    links: str,
    older: Path | None,
    only: tuple[str, ...],
    list_them: bool,
    kills: bool,
    break_rule: str | None,
) -> None:
    """Mistreat a cluster for a while and check what was seen.

    The exit code is 0 only when every promise was kept. The scenario `hostile` plays attacks of
    callers, tenants, workers, operators and disks beside the load; `upgrade` takes the nodes from
    an older build to this one and back, one after the other; in 30 s or more up again, too.
    `upgrade-by-command` has `raftsched cluster upgrade` do that, however long it takes.
    """
    check_history(history, scenario)
    if scenario == HOSTILE:
        limits = given_limits(max_ms=late_ms, p99_ms=quiet_ms)
        play_hostile(seconds, seed, folder, output, only, list_them, kills, limits)
        return

    from ..real import report as reports
    from ..real.run import RunOptions

    asked = RunOptions(
        scenario=scenario, nodes=int(nodes), seconds=seconds, seed=seed,
        broken_rule=break_rule or "", late_ms=late_ms, quiet_ms=quiet_ms,
        recover_s=recover_s, herd=herd, netns=links == "namespaces", older=older,
    )  # fmt: skip
    result = play(asked, folder)
    if report is not None:
        reports.write(report, asked, result)
        click.echo(f"wrote {report}", err=True)
    if history is not None:
        show_to_others(history, result)
    figures = {
        "scenario": scenario, "nodes": int(nodes), "seconds": seconds, "seed": seed, "links": links,
    }  # fmt: skip
    show_result(figures, result, output)


def play(asked: RunOptions, folder: Path | None) -> ScenarioResult:
    import asyncio

    from ...cluster.local.process import ProcessFailed
    from ..real.netns_links import enter
    from ..real.run import run as run_once

    try:
        if asked.netns:
            # Before there are threads or connections: the program begins again in there.
            enter()
        with data_folder(folder) as place:
            return asyncio.run(run_once(place, asked, lambda word: click.echo(word, err=True)))
    except ProcessFailed as error:
        click.echo(f"raftsched chaos: {error}", err=True)
        sys.exit(1)


def check_history(history: Path | None, scenario: str) -> None:
    if history is not None and (scenario == HOSTILE or history.suffix not in (".edn", ".json")):
        raise click.UsageError(
            f"--history {history}: it ends in .edn or .json, and `{HOSTILE}` writes none; name "
            "another file, or another scenario"
        )


def show_to_others(history: Path, result: ScenarioResult) -> None:
    from ..real.outside import write_history

    click.echo(f"wrote {write_history(history, result.seen)} calls to {history}", err=True)


def show_result(figures: dict[str, object], result: ScenarioResult, output: str) -> None:
    for violation in result.violations[:20]:
        click.echo(str(violation), err=True)
    if output == "json":
        click.echo(json.dumps(figures | result.figures))
    else:
        for key, value in (figures | result.figures).items():
            click.echo(f"{key:>18}  {value}")
    sys.exit(1 if result.violations else 0)


def given_limits(**limits: float) -> dict[str, float]:
    """Those that were given; for the others the scenario has its own."""
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

    from ...cluster.local.process import ProcessFailed
    from ..real.hostile import run as hostile
    from ..real.hostile.checks import HostileLimits
    from ..real.hostile.table import ATTACKS

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
                   f"+{attack['rss_mb_growth']} MiB, "
                   f"HTTP {attack['gateway']['max_ms']} ms")  # fmt: skip
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
    from ..real.total import total

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
