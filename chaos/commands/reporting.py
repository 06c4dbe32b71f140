"""Where a benchmark works, and how it reports what it found."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click

OverTime = dict[str, list[float]]
Command = Callable[..., None]


def reporting(command: Command) -> Command:
    """Where a benchmark works and how it reports what it found."""
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


def note_other_work() -> None:
    if os.getloadavg()[0] > 0.5:
        click.echo("note: this machine has other work to do, which disturbs", err=True)


def report(
    name: str,
    found: Mapping[str, object],
    rows: Mapping[str, object],
    around: Mapping[str, object],
    how: dict[str, Any],
    over_time: OverTime | None = None,
) -> None:
    """Write what was found, as rows or whole, and what it was measured on."""
    from ..bench.page import shown, write_page

    if how["report"] is not None:
        write_page(how["report"], name, rows, around, over_time or {})
        click.echo(f"wrote {how['report']}", err=True)
    if how["output"] == "json":
        click.echo(json.dumps({"scenario": name, **found, "on": around}))
        return
    for key, value in rows.items():
        click.echo(f"{key:>26}  {shown(value)}")
    click.echo("measured on: " + ", ".join(f"{k} {v}" for k, v in around.items()), err=True)
