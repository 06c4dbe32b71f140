"""`raftsched bench capacity`."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Literal

import click

from ...client.cli.lazy import ExampleCommand
from .data_folder import data_folder
from .reporting import note_other_work

EXAMPLES = (
    "raftsched bench capacity --quick",
    "raftsched bench capacity --jobs 2000000 --rate 500 --workers 300",
)


@click.command(cls=ExampleCommand, examples=EXAMPLES)
@click.option("--quick", is_flag=True, help="Within a minute, with small sizes: wider spreads.")
@click.option("--jobs", type=click.IntRange(0, 10_000_000_000), default=None,
              help="Will so many jobs fit?")  # fmt: skip
@click.option("--rate", type=click.FloatRange(0, 10_000_000), default=None,
              help="Will so many runs each second fit?")  # fmt: skip
@click.option("--workers", type=click.IntRange(0, 10_000_000), default=None,
              help="Will so many connected workers fit?")  # fmt: skip
@click.option("--headroom", type=click.FloatRange(0, 90), default=50.0, show_default=True,
              help="Percent of everything that stays free.")  # fmt: skip
@click.option("--nodes", type=click.Choice(["1", "3", "5"]), default="3", show_default=True,
              help="Nodes of the cluster, each a process with its own folder.")  # fmt: skip
@click.option("--dir", "folder", type=click.Path(path_type=Path, file_okay=False),
              help="Where nodes keep their data; empty or new. Default: thrown away.")  # fmt: skip
@click.option("--markdown", type=click.Path(path_type=Path, dir_okay=False),
              help="Also write what was found as a page to this file.")  # fmt: skip
@click.option("-o", "output", type=click.Choice(["table", "json"]), default="table",
              show_default=True, help="json: one object, the last line of stdout.")  # fmt: skip
def capacity(
    quick: bool, jobs: int | None, rate: float | None, workers: int | None, headroom: float,
    nodes: str, folder: Path | None, markdown: Path | None, output: Literal["table", "json"],
) -> None:  # fmt: skip
    """What does one of each cost here, and how many will a cluster of such machines hold?

    Measures a run, a stored job, a worker, a lease, a watcher and a page view, each with few sizes
    in turns, lays straight lines through them and says what ends first. Within five minutes.
    With --jobs, --rate or --workers it says whether that load fits, by exit code too: 1 if not.
    """
    from ...client.errors import RaftschedError
    from ...cluster.local.process import ProcessFailed
    from ..bench.capacity import page
    from ..bench.capacity.answer import CapacityAsked
    from ..bench.capacity.loads import QUICK, WHOLE
    from ..bench.capacity.run import Capacity, run
    from ..bench.surroundings import surroundings

    def say(word: str) -> None:
        click.echo(f"capacity: {word}", err=True)

    asked = None
    if (jobs, rate, workers) != (None, None, None):
        asked = CapacityAsked(jobs=jobs or 0, rate=rate or 0, workers=workers or 0)
    wanted = Capacity(
        sizes=QUICK if quick else WHOLE, nodes=int(nodes), headroom=headroom / 100, asked=asked
    )
    with data_folder(folder) as place:
        around = surroundings(place)
        note_other_work()
        try:
            report = run(place, wanted, around, say)
        except (ProcessFailed, RaftschedError) as error:
            click.echo(f"raftsched bench: {error}", err=True)
            sys.exit(1)
    if markdown is not None:
        command = shlex.join(["raftsched", *typed(sys.argv[1:])])
        markdown.write_text(page.markdown(report, command))
        click.echo(f"wrote {markdown}", err=True)
    if output == "json":
        click.echo(json.dumps({"scenario": "capacity", **report.as_json(), "on": report.around}))
    else:
        for line in page.text(report):
            click.echo(line)
    if asked is not None and not report.model.fits(asked, report.headroom):
        sys.exit(1)


def typed(words: list[str]) -> list[str]:
    """The command without where its page goes."""
    return [
        word for number, word in enumerate(words)
        if word != "--markdown" and not word.startswith("--markdown=")
        and (number == 0 or words[number - 1] != "--markdown")
    ]  # fmt: skip
