"""A snapshot of a cluster, drawn for a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from ...dev.screen import printable
from ..render.columns import COLUMNS
from ..render.formats import Cell, Column, ValueFormats
from ..session import many
from .strain import strains
from .top_snapshot import ClusterSnapshot, Rates

if TYPE_CHECKING:
    from google.protobuf.message import Message
    from rich.console import RenderableType

    from ..messages import cluster_pb2

ROWS_MIN = 3
# Lines that are there whatever there is to show: words, titles and what parts the tables.
FIXED = 16


def draw(
    snapshot: ClusterSnapshot, formats: ValueFormats, height: int, keys: bool = False
) -> RenderableType:
    """All of it, within so many lines."""
    return Group(*_parts(snapshot, formats, height, keys))


def _parts(
    snapshot: ClusterSnapshot, formats: ValueFormats, height: int, keys: bool
) -> Iterator[RenderableType]:
    status = snapshot.status
    yield _line(
        "bold", f"raftsched  {formats.time(snapshot.at_ms)}", "   q ends it" if keys else ""
    )
    if status is None:
        yield from _missing(snapshot)
        return
    yield from (_words("", line) for line in _summary(status, formats))
    yield _words("bold" if snapshot.rates else "dim", _rates(snapshot.rates))
    for problem in status.problems:
        yield _words("yellow", f"Problem: {problem}")
    for strain in strains(status, formats):
        # What is over has one line, so that there is room for what is not.
        text = f"{strain.label}: {strain}"
        yield _words("yellow", text) if strain.matters else _line("", text)
    for alert in snapshot.alerts or ():
        where = alert.namespace or "the cluster"
        yield _words(
            "red", f"Alert: {alert.name} of {where}, since {formats.time(alert.raised_time)}"
        )
    yield from _missing(snapshot)
    yield from _titled("", _nodes(status, formats))
    rows = max(ROWS_MIN, (height - FIXED - len(status.nodes)) // 3)
    queues = sorted(snapshot.queues or (), key=lambda one: (-one.ready, -one.leased, one.name))
    workers = sorted(snapshot.workers or (), key=lambda one: (-one.leased, one.worker))
    yield from _titled("Queues", _table(queues, "Queue", QUEUE, formats, rows))
    yield from _titled("Workers", _table(workers, "Worker", WORKER, formats, rows))
    newest = list(snapshot.events)[-rows:][::-1]
    yield from _titled("Events", _table(newest, "Event", EVENT, formats, rows))


QUEUE = ("NAME", "STATE", "READY", "OLDEST", "LEASED", "WORKERS")
WORKER = ("WORKER", "STATE", "BUSY", "QUEUES", "SEEN")
EVENT = ("TIME", "EVENT", "WHAT", "MORE")
NODE = ("NODE", "ROLE", "STATE", "ADDRESS", "APPLIED", "CLOCK", "VERSION")


def _summary(status: cluster_pb2.ClusterStatus, formats: ValueFormats) -> Iterator[str]:
    since = f" since {formats.time(status.leader_since)}" if status.HasField("leader_since") else ""
    quorum = f"can lose {status.margin}" if status.quorum else "NO QUORUM"
    yield (
        f"{status.cluster_id}: {status.leader or 'nobody'} leads{since}, term {status.term}; "
        f"{quorum}; as {status.node} sees it"
    )
    backlog = f", backlog {status.backlog:,}" if status.backlog else ""
    yield (
        f"{many(status.jobs, 'job')}, {many(status.live_runs, 'run')} under way, "
        f"{many(status.workers, 'worker')}{backlog}, revision {status.revision}"
    )


def _rates(rates: Rates | None) -> str:
    if rates is None:
        return "Rates come with the next look at the same leader."
    late = ""
    if rates.p50_ms is not None and rates.p99_ms is not None:
        late = f"   late p50 {rates.p50_ms:,.1f} ms, p99 {rates.p99_ms:,.1f} ms"
    dead = f", {rates.dead_letters:,.1f} dead letters" if rates.dead_letters else ""
    return (
        f"A second: {rates.fired:,.1f} fired by schedule, {rates.leased:,.1f} leased, "
        f"{rates.ended:,.1f} ended{dead}{late}"
    )


def _missing(snapshot: ClusterSnapshot) -> Iterator[RenderableType]:
    for part, why in snapshot.missing.items():
        yield _line("dim", f"Not shown: {part}: {why}")


def _nodes(status: cluster_pb2.ClusterStatus, formats: ValueFormats) -> Table:
    """The nodes, and how many entries behind the commit each is, as far as the leader knows."""

    def lag(node: cluster_pb2.Node) -> Cell:
        if status.node != status.leader:
            return Cell("")
        return Cell(f"{max(0, status.commit_index - node.match_index):,}")

    columns = [column for column in COLUMNS["Node"] if column.title in NODE]
    columns.insert(5, Column("LAG", lambda node, _: lag(node)))
    return _grid(columns, status.nodes, formats)


def _table(
    items: Sequence[Message], kind: str, titles: Sequence[str], formats: ValueFormats, rows: int
) -> Table | None:
    if not items:
        return None
    by_title = {column.title: column for column in COLUMNS[kind]}
    return _grid([by_title[title] for title in titles], items[:rows], formats)


def _grid(columns: Sequence[Column], items: Iterable[Any], formats: ValueFormats) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for column in columns:
        # Where there is too little room the last ones give way, and the others stay.
        last = column in columns[-2:]
        table.add_column(column.title, no_wrap=not last, overflow="ellipsis")
    for item in items:
        cells = [column.cell(item, formats) for column in columns]
        table.add_row(*(Text(printable(cell.text), cell.style, no_wrap=True, overflow="ellipsis")
                        for cell in cells))  # fmt: skip
    return table


def _titled(title: str, table: Table | None) -> Iterator[RenderableType]:
    if table is not None:
        yield Text(f"\n{title}" if title else "", style="bold")
        yield table


def _words(style: str, text: str) -> Text:
    """What says what to do at its end, on as many lines as it takes."""
    return Text(printable(text), style, overflow="fold")


def _line(style: str, *words: str) -> Text:
    return Text(printable("".join(words)), style, no_wrap=True, overflow="ellipsis")
