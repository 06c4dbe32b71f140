"""`raftsched bench compare`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import click

from ...client.cli.lazy import ExampleCommand
from .data_folder import data_folder
from .reporting import note_other_work, report, reporting

PEERS = ("pgqueuer", "graphile", "pgboss", "bullmq", "procrastinate", "celery", "apscheduler")
EXAMPLES = (
    "raftsched bench compare --peer pgqueuer --rounds 1",
    "raftsched bench compare --steady --rate 100 --peer bullmq --peer pgboss",
    "raftsched bench compare --failover --rate 50 --seconds 60",
)
COMMAND = "raftsched bench compare --page FILE"
STEADY_RATE, STEADY_S = 1_667.0, 20.0
# Patroni looks away for half a minute before it chooses; the load goes on for twice as long.
FAILOVER_RATE, FAILOVER_S = 50.0, 60.0


@click.command(cls=ExampleCommand, examples=EXAMPLES)
@click.option("--runs", type=click.IntRange(100, 1_000_000), default=50_000, show_default=True,
              help="Jobs of the herd.")  # fmt: skip
@click.option("--peer", "chosen", type=click.Choice([*PEERS, "all"]), multiple=True,
              default=("all",), show_default=True, help="Can be given again.")  # fmt: skip
@click.option("--workers", type=click.IntRange(1, 32), default=2, show_default=True)
@click.option("--rounds", type=click.IntRange(1, 20), default=2, show_default=True)
@click.option("--steady", is_flag=True, help="A steady load instead of a herd: lateness.")
@click.option("--failover", is_flag=True,
              help="A steady load, and the primary is killed: how long nothing runs.")  # fmt: skip
@click.option(
    "--rate",
    type=click.FloatRange(1, 100_000),
    default=None,
    help="Jobs due each second. Default: 1667 with --steady, 50 with --failover.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(1, 3_600),
    default=None,
    help="How long. Default: 20 with --steady, 60 with --failover.",
)
@click.option(
    "--page",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Play every load, some 40 minutes a round, and write them to this file.",
)
@reporting
def compare(
    runs: int, chosen: tuple[str, ...], workers: int, rounds: int, steady: bool, failover: bool,
    rate: float | None, seconds: float | None, page: Path | None, **how: Any,
) -> None:  # fmt: skip
    """The same load on us and on others, in turns: how many times faster are we?

    PGQueuer, graphile-worker, pg-boss, Procrastinate and APScheduler keep their jobs in PostgreSQL
    (apt-get install postgresql): a primary with two standbys and quorum commit, so that a commit is
    on two of three disks, as with three of our nodes. BullMQ and Celery keep them in Redis (apt-get
    install redis-server) that syncs each change, which puts it on one disk. With --failover Patroni
    (apt-get install etcd-server haproxy) or sentinels choose another primary.

    Each is downloaded at the first time, into a cache of its own; one that this machine cannot run
    is left out with a word. All have the same number of worker processes, handlers that do nothing,
    jobs inserted ahead, and the settings that were found best for them. Only one system is there at
    a time; the best turn of each counts. A ratio above 1 is in our favour.
    """
    from ...cluster.local.process import ProcessFailed
    from ..bench import compare as scenario
    from ..bench.peers import postgres, redis
    from ..bench.surroundings import surroundings

    if page is not None and (steady or failover):
        raise click.UsageError("--page plays every load: leave --steady and --failover out")
    if not (steady or failover) and (rate, seconds) != (None, None):
        raise click.UsageError("--rate and --seconds are of a load that lasts: add --steady")
    rate = rate or (FAILOVER_RATE if failover else STEADY_RATE)
    seconds = seconds or (FAILOVER_S if failover else STEADY_S)
    lasting = steady or failover
    load = scenario.ComparedLoad(
        runs=int(rate * seconds) if lasting else runs, workers=workers,
        rate=rate if lasting else 0.0, failover=failover,
    )  # fmt: skip
    with data_folder(how["folder"]) as folder:
        around = surroundings(folder)
        note_other_work()
        try:
            names = list(PEERS) if "all" in chosen else list(dict.fromkeys(chosen))
            peers = scenario.taking_part(names, load, say)
            for kind, version in (("postgres", postgres.version), ("redis", redis.version)):
                if any(peer.server == kind for peer in peers):
                    around[kind] = version()
            if page is not None:
                write_page(page, folder, [peer.name for peer in peers], (workers, rounds), around)
                return
            found = scenario.run(folder, load, peers, rounds, say)
        except ProcessFailed as error:
            click.echo(f"raftsched bench: {error}", err=True)
            sys.exit(1)
    report("compare", found, dict(scenario.flat(found)), around, how)


def say(word: str) -> None:
    click.echo(f"compare: {word}", err=True)


def write_page(
    page: Path, folder: Path, names: list[str], how_many: tuple[int, int],
    around: dict[str, object],
) -> None:  # fmt: skip
    """Every load, and a page of them; as JSON on stdout what the page is made of."""
    from ..bench import compare_page

    found: dict[str, Any] = {}
    for found in compare_page.run_all(folder, names, *how_many, say):
        page.write_text(compare_page.markdown(found, around, COMMAND))
    click.echo(json.dumps({"scenario": "compare", "loads": found, "on": around}))
    click.echo(f"wrote {page}", err=True)
