"""When a schedule happens: in words, in its own zone and in the viewer's, clock changes marked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from .. import messages as m
from ..render.clean import echo
from ..session import Invocation
from ..times import Instant, Length, duration, timestamp

if TYPE_CHECKING:
    from ..messages import job_pb2, schedule_pb2
    from ..render.formats import Cell, ValueFormats


def preview_options(body: Callable[..., None]) -> Callable[..., None]:
    for option in reversed((
        click.option("--zone", default="",
                     help="The zone of an expression, such as Europe/Berlin.  [UTC]"),
        click.option("--count", "-c", type=click.IntRange(1, 1000), default=5, show_default=True,
                     help="How many times are shown."),
        click.option("--from", "first", type=Instant(),
                     help="The time from which on they are shown.  [now]"),
        click.option("--jitter", type=Length(), help="The jitter that the job will have.  [0s]"),
        click.option("--as", "name", default="", metavar="NAME",
                     help="The name the job will have, for `H` and jitter."),
    )):  # fmt: skip
        body = option(body)
    return body


def of_job(
    session: Invocation, name: str, given: Mapping[str, Any]
) -> job_pb2.PreviewScheduleResponse:
    request = m.job_pb2.PreviewScheduleRequest(namespace=session.namespace, job=name)
    return _ask(session, request, given, f"show the next times of job {name}")


def of_expressions(
    session: Invocation, expressions: Sequence[str], given: Mapping[str, Any]
) -> job_pb2.PreviewScheduleResponse:
    request = m.job_pb2.PreviewScheduleRequest(
        namespace=session.namespace, job=given["name"] or "preview"
    )
    for text in expressions:
        request.schedules.add().cron.expression = text
    request.timing.zone = given["zone"]
    if given["jitter"] is not None:
        request.timing.jitter.CopyFrom(duration(given["jitter"]))
    return _ask(session, request, given, f"preview {' and '.join(map(repr, expressions))}")


def _ask(
    session: Invocation,
    request: job_pb2.PreviewScheduleRequest,
    given: Mapping[str, Any],
    doing: str,
) -> job_pb2.PreviewScheduleResponse:
    request.count = given["count"]
    if given["first"] is not None:
        request.from_time.CopyFrom(timestamp(given["first"]))
    return session.read(request, m.job_pb2.PreviewScheduleResponse, doing)


def show(
    session: Invocation, answer: job_pb2.PreviewScheduleResponse, given: Mapping[str, Any]
) -> None:
    if not session.out.is_table:
        if session.out.format in ("jsonl", "name"):
            for occurrence in answer.occurrences:
                name_only = session.out.format == "name"
                echo(occurrence.local_time) if name_only else session.out.one(occurrence)
        else:
            session.out.one(answer)
        return
    for text in answer.descriptions:
        echo(text, err=not session.out.for_person)
    for warning in answer.warnings:
        echo(f"Note: {warning}", err=True)
    if not answer.occurrences:
        echo("Nothing is left to happen.", err=True)
        return
    from ..render.formats import Cell

    formats = session.out.formats
    notes = _notes(answer.occurrences)
    jitter = any(one.due_time != one.scheduled_time for one in answer.occurrences)
    here = {"local": "HERE", "utc": "UTC", "relative": "WHEN"}[session.out.time_style]
    titles = ["ITS ZONE", here, *(["DUE"] if jitter else []), *(["NOTE"] if any(notes) else [])]
    rows: list[list[Cell]] = []
    for occurrence, note in zip(answer.occurrences, notes, strict=True):
        style = "dim strike" if occurrence.excluded else ""
        rows.append([
            Cell(wall(occurrence.local_time, exact=formats.exact), style),
            Cell(formats.time(occurrence.scheduled_time), style),
            *([_due(occurrence, formats)] if jitter else []),
            *([Cell(note, "yellow")] if any(notes) else []),
        ])  # fmt: skip
    session.out.table(titles, rows)


def _due(occurrence: schedule_pb2.Occurrence, formats: ValueFormats) -> Cell:
    """When it is due; a time that is left out is never, and its note says why."""
    from ..render.formats import Cell

    return Cell("" if occurrence.excluded else formats.time(occurrence.due_time))


def wall(local: str, *, exact: bool) -> str:
    """A time on the wall of the schedule's zone: "Sun 2027-03-28 03:00:00 +02:00"."""
    instant = datetime.fromisoformat(local)
    offset = instant.strftime("%z")
    return local if exact else f"{instant:%a %Y-%m-%d %H:%M:%S} {offset[:3]}:{offset[3:]}"


def _notes(occurrences: Sequence[schedule_pb2.Occurrence]) -> list[str]:
    """What the server says, and where the clock was changed since the occurrence before."""
    notes = []
    before = None
    for occurrence in occurrences:
        offset = datetime.fromisoformat(occurrence.local_time).utcoffset()
        parts = [occurrence.note] if occurrence.note else []
        if before is not None and offset != before and offset is not None:
            ahead = offset > before
            parts.append(f"clock {'forward' if ahead else 'back'} since the one before")
        before = offset
        notes.append("; ".join(parts))
    return notes
