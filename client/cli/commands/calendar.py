"""`raftsched calendar`: days on which jobs do not happen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from .. import messages as m
from ..exits import wrong_use
from ..lazy import ExampleGroup
from ..names import CALENDAR
from ..options import command
from ..session import Invocation, many

if TYPE_CHECKING:
    from ..messages import calendar_pb2

WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
NAME = click.argument("name", type=CALENDAR)


def rule_options(body: Any) -> Any:  # A click callback.
    for option in (
        click.option("--description", help="What it is for, for people."),
        click.option("--zone", help="Where its days begin.  [the job's]"),
        click.option(
            "--range",
            "ranges",
            multiple=True,
            metavar="FIRST:LAST",
            help="Days in a row, with both ends; can be repeated.",
        ),
        click.option(
            "--weekday",
            multiple=True,
            type=click.Choice(WEEKDAYS),
            help="A day of each week; can be repeated.",
        ),
        click.option(
            "--yearly", multiple=True, metavar="MM-DD", help="A day of each year; can be repeated."
        ),
        click.option(
            "--date", multiple=True, metavar="YYYY-MM-DD", help="One day; can be repeated."
        ),
    ):
        body = option(body)
    return body


@click.group(
    cls=ExampleGroup,
    examples=(
        "raftsched calendar create holidays --yearly 12-25 --yearly 01-01 --date 2027-04-05",
        "raftsched job update report --exclude-calendar holidays",
    ),
)
def calendar() -> None:
    """Calendars: shared lists of days on which the jobs that name them do not happen."""


@command(
    calendar, "create",
    "raftsched calendar create holidays --yearly 12-25 --range 2026-12-28:2026-12-31",
    writes=True,
)  # fmt: skip
@click.argument("name")
@rule_options
def create(session: Invocation, name: str, **given: Any) -> None:
    """Create a calendar."""
    wanted, _ = build(session, name, given)
    request = session.write(m.calendar_pb2.CreateCalendarRequest(calendar=wanted))
    made = session.ask(request, m.calendar_pb2.Calendar, f"create calendar {name}")
    then = f"raftsched job update JOB --exclude-calendar {name}"
    session.done(made, f"Calendar {name} created.", then=then)


@command(
    calendar, "update",
    "raftsched calendar update holidays --yearly 12-25 --yearly 12-26",
    writes=True,
)  # fmt: skip
@NAME
@rule_options
@click.option("--etag", default="", help="It is done only to this version of the calendar.")
def update(session: Invocation, name: str, etag: str, **given: Any) -> None:
    """Change a calendar. Its rules, when any are given, are replaced as a whole."""
    wanted, paths = build(session, name, given)
    if not paths:
        raise wrong_use(
            f"nothing to change in calendar {name}", "",
            f"raftsched calendar update {name} --date 2026-12-24",
        )  # fmt: skip
    wanted.etag = etag
    request = session.write(m.calendar_pb2.UpdateCalendarRequest(calendar=wanted))
    request.update_mask.paths.extend(paths)
    changed = session.ask(request, m.calendar_pb2.Calendar, f"update calendar {name}")
    session.done(changed, f"Calendar {name} updated, for {many(changed.jobs, 'job')}.")


@command(calendar, "list", "raftsched calendar list", reads=True, lists=True)
def list_(session: Invocation) -> None:
    """List calendars."""
    request = m.calendar_pb2.ListCalendarsRequest(namespace=session.namespace)
    kind = m.calendar_pb2.ListCalendarsResponse
    session.show_list(request, kind, "calendars", "list calendars")


@command(calendar, "get", "raftsched calendar get holidays", reads=True)
@NAME
def get(session: Invocation, name: str) -> None:
    """Show a calendar with its rules."""
    request = m.calendar_pb2.GetCalendarRequest(namespace=session.namespace, calendar=name)
    session.out.one(session.read(request, m.calendar_pb2.Calendar, f"get calendar {name}"))


@command(
    calendar, "delete", "raftsched calendar delete holidays --yes", writes=True, destroys=True
)  # fmt: skip
@NAME
@click.option("--etag", default="", help="It is done only to this version of the calendar.")
def delete(session: Invocation, name: str, etag: str) -> None:
    """Delete a calendar that no job names."""
    session.confirm(f"Delete calendar {name}?")
    request = session.write(
        m.calendar_pb2.DeleteCalendarRequest(namespace=session.namespace, calendar=name, etag=etag)
    )
    answer = session.ask(request, m.calendar_pb2.DeleteCalendarResponse, f"delete calendar {name}")
    session.done(answer, f"Calendar {name} deleted.")


def build(
    session: Invocation, name: str, given: dict[str, Any]
) -> tuple[calendar_pb2.Calendar, list[str]]:
    """The calendar, and the paths that were given."""
    rule = m.calendar_pb2.CalendarRule
    rules = [rule(date=text) for text in given["date"]]
    rules += [rule(yearly=text) for text in given["yearly"]]
    rules += [rule(weekday=WEEKDAYS.index(text) + 1) for text in given["weekday"]]
    for text in given["ranges"]:
        first, mark, last = text.partition(":")
        if not mark:
            raise wrong_use(f"cannot read --range {text!r}", "", "--range 2026-12-24:2027-01-01")
        rules.append(rule(range=m.calendar_pb2.DateRange(first=first, last=last)))
    made = m.calendar_pb2.Calendar(namespace=session.namespace, name=name, rules=rules)
    paths = ["rules"] if rules else []
    for field in ("description", "zone"):
        if given[field] is not None:
            setattr(made, field, given[field])
            paths.append(field)
    return made, paths
