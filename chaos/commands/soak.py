"""`raftsched bench soak`."""

from __future__ import annotations

import asyncio
import json
import shlex
import sys
from pathlib import Path
from typing import Literal

import click

from ...client.cli.lazy import ExampleCommand
from .data_folder import data_folder
from .reporting import note_other_work


@click.command(
    cls=ExampleCommand,
    examples=(
        "raftsched bench soak --seconds 60 --rate 200",
        "raftsched bench soak --markdown soak.md",
    ),
)
@click.option("--rate", type=click.FloatRange(2, 10_000), default=500, show_default=True,
              help="Runs each second.")  # fmt: skip
@click.option("--seconds", type=click.FloatRange(10, 30 * 86_400), default=7_200,
              show_default=True,
              help="How long. Ctrl-C ends it early, with its figures.")  # fmt: skip
@click.option("--dir", "folder", type=click.Path(path_type=Path, file_okay=False),
              help="Where nodes keep their data; empty or new. Default: thrown away.")  # fmt: skip
@click.option("--markdown", type=click.Path(path_type=Path, dir_okay=False),
              help="Also write a page to this file, and its picture beside it.")  # fmt: skip
@click.option("-o", "output", type=click.Choice(["table", "json"]), default="table",
              show_default=True, help="json: one object, the last line of stdout.")  # fmt: skip
def soak(
    rate: float, seconds: float, folder: Path | None, markdown: Path | None,
    output: Literal["table", "json"],
) -> None:  # fmt: skip
    """A load for hours, with jobs, workers and clients that come and go: does anything grow?

    Three nodes. Jobs are made and delete themselves, a worker ends and is started again, clients
    open connections and leave, the leadership moves. Shown are memory, descriptors and disk of each
    node and the lateness of runs, behind a warm-up of a sixth of the time and at the end.
    """
    from ...client.errors import RaftschedError
    from ...cluster.local.nodes import running
    from ...cluster.local.process import ProcessFailed
    from ..bench import soak_page
    from ..bench.soak import Soak, SoakSeen, figures, run
    from ..bench.surroundings import surroundings

    def say(word: str) -> None:
        click.echo(f"soak: {word}", err=True)

    asked, seen = Soak(rate=rate, seconds=seconds), SoakSeen()
    with data_folder(folder) as place:
        around = surroundings(place)
        note_other_work()
        error: Exception | None = None
        try:
            with running(place) as nodes:
                asyncio.run(run(place, nodes, asked, say, seen))
        except (ProcessFailed, RaftschedError, OSError) as raised:
            # What was seen until then is shown all the same.
            error = raised
            click.echo(f"raftsched bench: after {seen.lasted:,.0f} s: {raised}", err=True)
        if "lateness_p99_ms" not in seen.gauges:
            sys.exit(1)
        found = figures(asked, seen)
    if markdown is not None:
        image = markdown.with_suffix(".svg")
        image.write_text(soak_page.picture(seen))
        command = shlex.join(["raftsched", "bench", "soak", "--rate", f"{rate:g}",
                              "--seconds", f"{seconds:g}"])  # fmt: skip
        markdown.write_text(soak_page.markdown(seen, found, around, command, image))
        click.echo(f"wrote {markdown} and {image}", err=True)
    if output == "json":
        whole = {"at": seen.at, "gauges": seen.gauges}
        click.echo(json.dumps({"scenario": "soak", **found, "over_time": whole, "on": around}))
    else:
        for key, value in found.items():
            click.echo(f"{key:>32}  {value:,}")
    if error is not None:
        sys.exit(1)
