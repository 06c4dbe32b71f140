"""`raftsched schedule`: what expressions mean, before a job has them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import click

from .. import messages as m
from ..lazy import ExampleGroup
from ..options import command
from ..render import bars
from ..session import Invocation
from ..times import Length, duration
from .preview import of_expressions, preview_options, show


@click.group(
    cls=ExampleGroup,
    examples=(
        "raftsched schedule preview '0 9 * * mon-fri' --zone Europe/Berlin",
        "raftsched schedule forecast --ahead 3h",
    ),
)
def schedule() -> None:
    """Schedules: what an expression means, when it happens, and how much will happen."""


@command(
    schedule, "preview",
    "raftsched schedule preview '0 9 * * mon-fri' --zone Europe/Berlin",
    "raftsched schedule preview '30 2 * * *' --zone Europe/Berlin --from 2027-03-27 -c 3",
    reads=True,
)  # fmt: skip
@click.argument("expressions", nargs=-1, required=True, metavar="EXPRESSION...")
@preview_options
def preview(session: Invocation, expressions: tuple[str, ...], **given: Any) -> None:
    """Show when cron expressions (their union) happen, in words and in two zones."""
    show(session, of_expressions(session, expressions, given), given)


@command(schedule, "forecast", "raftsched schedule forecast --ahead 3h", reads=True)
@click.option(
    "--ahead",
    type=Length(),
    default=timedelta(hours=1) // timedelta(milliseconds=1),
    help="How far, at most 24h.  [1h]",
)
def forecast(session: Invocation, ahead: int) -> None:
    """Show how many scheduled times become due in the time to come.

    On a terminal a line is as many minutes as fit a screen; `-o wide` and all other forms have each
    minute by itself.
    """
    request = m.job_pb2.ForecastFiringsRequest(namespace=session.namespace, ahead=duration(ahead))
    answer = session.read(request, m.job_pb2.ForecastFiringsResponse, "forecast firings")
    busy = [minute for minute in answer.minutes if minute.firings]
    if not session.out.is_table:
        session.out.items(busy, answer)
        return
    if session.out.for_person and session.out.format != "wide":
        _draw(session, answer)
    else:
        session.out.items(busy, answer)
    firings = sum(minute.firings for minute in busy)
    capacity = f"{answer.capacity} a minute" if answer.capacity else "not known yet"
    session.say(f"{firings} firings; {answer.slots} slots of workers; capacity {capacity}.")
    if answer.partial:
        session.say("There are more jobs than were looked at.")


def _draw(session: Invocation, answer: m.job_pb2.ForecastFiringsResponse) -> None:
    """A line for as many minutes as it takes for all to fit a screen."""
    from ..render.formats import Cell  # It loads protobuf, which --help does without.

    step, found = bars.spans(answer.minutes)
    largest = max((span.firings for span in found), default=0)
    formats = session.out.formats
    rows = [
        (
            Cell(formats.time(span.start_ms)), Cell(str(span.firings)), Cell(str(span.peak)),
            # More than all workers together can carry.
            Cell(
                bars.bar(span.firings, largest),
                "red" if 0 < answer.capacity * step < span.firings else "green",
            ),
        )
        for span in found
    ]  # fmt: skip
    if rows and largest:
        of = "a minute" if step == 1 else f"{step} minutes"
        session.out.table(("FROM", "FIRINGS", "PEAK/S", f"IN {of.upper()}"), rows)
