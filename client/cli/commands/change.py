"""Changes of all jobs or runs that fit a filter: counted first, asked, then done step by step."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from .. import messages as m
from ..exits import Trouble, wrong_use
from ..session import Invocation, many

if TYPE_CHECKING:
    from ..messages import common_pb2

    Request = m.job_pb2.ChangeJobsRequest | m.run_pb2.ChangeRunsRequest

SHOWN = 20  # Refusals that are printed one by one.
FILTER = click.option(
    "--filter",
    "fitting",
    metavar="FILTER",
    help="All that fit it, such as 'queue=mail OR owner=ann'; '' is all.",
)
LABEL = click.option(
    "--label",
    "-l",
    multiple=True,
    metavar="KEY=VALUE",
    help="All with this label; can be repeated.",
)
COUNT = click.option(
    "--count", "with_count", is_flag=True, help="Only how many there are is printed."
)


def is_by_filter(name: object, text: str | None, usage: str) -> bool:
    """Whether a filter says what is meant; nothing is never taken for everything."""
    if text is not None and name:
        raise wrong_use("a name and a label or --filter exclude each other", "", f"{usage} NAME")
    if text is None and not name:
        raise wrong_use("nothing says which", "name one, a label or a filter", f"{usage} NAME")
    return text is not None


def change(
    session: Invocation, request: Request, noun: str, verb: str, did: str, instead: str = ""
) -> None:
    """Count what fits, ask, and change it in as many steps as it takes. `instead`: what to type
    where nothing fits."""
    doing = f"{verb} {noun}s by filter"
    found = trial(session, request, doing)
    count = many(found.matched, noun)
    if not found.matched_is_exact:
        count = f"at least {count}"
    if not found.matched and found.matched_is_exact:
        session.done(found, f"No {noun} fits {request.filter!r}.", then=instead)
        return
    if session.dry_run:
        session.done(found, f"{count.capitalize()} would be {did}{some(found)}.")
        for line in refusals(found):
            session.say(line)
        return
    session.confirm(f"{verb.capitalize()} {count}{some(found)}?")
    done = steps(session, request, doing)
    session.done(done, f"{many(done.changed, noun)} {did}.")
    if done.failed:
        raise Trouble(f"{many(done.failed, noun)} refused", list(refusals(done)))


def steps(session: Invocation, request: Request, doing: str) -> common_pb2.BulkChange:
    """Change what fits, in as many steps as it takes."""
    done = m.common_pb2.BulkChange()
    while True:
        step = session.ask(session.write(request), m.common_pb2.BulkChange, doing)
        done.MergeFrom(
            m.common_pb2.BulkChange(failures=step.failures[: SHOWN - len(done.failures)])
        )
        done.changed, done.failed = done.changed + step.changed, done.failed + step.failed
        if not step.next_page_token:
            return done
        request.page_token = step.next_page_token


def trial(session: Invocation, request: Request, doing: str) -> common_pb2.BulkChange:
    request.validate_only = True
    found = session.ask(request, m.common_pb2.BulkChange, doing)
    request.validate_only = False
    return found


def some(found: common_pb2.BulkChange) -> str:
    """Some of those that it is about, as a person reads them."""
    names = list(found.sample[:3])
    if not names:
        return ""
    return f" ({', '.join(names)}{', …' if found.matched > len(names) else ''})"


def refusals(found: common_pb2.BulkChange) -> list[str]:
    lines = [f"{one.name}: {one.message}" for one in found.failures[:SHOWN]]
    rest = found.failed - len(lines)
    return [*lines, f"and {rest:,} more"] if rest > 0 else lines
