"""`raftsched schedule`: what expressions mean, before a job has them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import click

from .. import messages as m
from ..lazy import ExampleGroup
from ..options import command
from ..session import Invocation
from ..times import Length, duration
from . import preview as foresight


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
@foresight.preview_options
def preview(session: Invocation, expressions: tuple[str, ...], **given: Any) -> None:
    """Show when cron expressions (their union) happen, in words and in two zones."""
    foresight.show(session, foresight.of_expressions(session, expressions, given), given)


@command(schedule, "forecast", "raftsched schedule forecast --ahead 3h", reads=True)
@click.option(
    "--ahead",
    type=Length(),
    default=timedelta(hours=1) // timedelta(milliseconds=1),
    help="How far, at most 24h.  [1h]",
)
def forecast(session: Invocation, ahead: int) -> None:
    """Show how many scheduled times become due in each minute to come."""
    request = m.job_pb2.ForecastFiringsRequest(namespace=session.namespace, ahead=duration(ahead))
    answer = session.read(request, m.job_pb2.ForecastFiringsResponse, "forecast firings")
    busy = [minute for minute in answer.minutes if minute.firings]
    if session.out.is_table:
        session.out.items(busy, answer)
        firings = sum(minute.firings for minute in busy)
        capacity = f"{answer.capacity} a minute" if answer.capacity else "not known yet"
        session.say(f"{firings} firings; {answer.slots} slots of workers; capacity {capacity}.")
        if answer.partial:
            session.say("There are more jobs than were looked at.")
    else:
        session.out.items(busy, answer)
