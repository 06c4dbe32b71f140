"""`raftsched dev`: a cluster to try things on."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from ..exits import Trouble
from ..options import Command
from ..render.clean import echo


class Shown(Command):
    """It talks to a cluster of its own, so it shares no options with the others."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, shared=[], **kwargs)
        self.examples = ("raftsched dev", "raftsched dev --dir ~/raftsched --nodes 5")


@click.command(cls=Shown)
@click.option("--dir", "folder", type=click.Path(path_type=Path, file_okay=False), metavar="FOLDER",
              help="The folder for the data, which it goes on with. Without it, data is "
              "thrown away at the end.")  # fmt: skip
@click.option("--nodes", type=click.Choice(["1", "3", "5"]), default="3", show_default=True,
              help="How many nodes.")  # fmt: skip
@click.option("--port", type=click.IntRange(1024, 65_000), default=7400, show_default=True,
              help="Its first port; the next free ones if they are in use.")  # fmt: skip
def dev(folder: Path | None, nodes: str, port: int) -> None:
    """Start a cluster on this machine: nodes and a worker as processes, and a few example jobs.

    Its lines and all that happens are shown until q, Ctrl-C or SIGTERM; then nothing is left
    behind. On a terminal, keys kill and revive nodes and move the leadership.
    """
    from ...dev import ports as found
    from ...dev.cluster import CannotStart, DevCluster
    from ...dev.ports import NoPorts

    with _folder(folder) as (place, where):
        try:
            ports = found.choose(place, port, int(nodes))
            if ports.base != port:
                echo(f"Ports from {port} on are in use, so it takes {ports.base}.", err=True)
            found.remember(place, ports)
            asyncio.run(DevCluster(place, ports, where).run())
        except (NoPorts, CannotStart) as error:
            raise Trouble("The cluster did not start.", str(error)) from error


@contextlib.contextmanager
def _folder(folder: Path | None) -> Iterator[tuple[Path, str]]:
    """Where the data is, and what is shown of it."""
    if folder is None:
        made = Path(tempfile.mkdtemp(prefix="raftsched-dev-"))
        try:
            yield made, f"{made}, thrown away at the end; --dir FOLDER keeps it"
        finally:
            shutil.rmtree(made, ignore_errors=True)
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Trouble(f"{folder} cannot be made.", error.strerror or str(error)) from error
    yield folder, f"{folder.resolve()}, kept"
