"""`raftsched watch`: what happens, as it happens."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING

import click

from .. import messages as m
from ..exits import wrong_use
from ..input.filters import condition
from ..names import JOB, QUEUE, RUN
from ..options import command
from ..render.clean import echo
from ..session import Invocation
from ..times import INSTANTS, PastInstant, now_ms

if TYPE_CHECKING:
    from ..messages import common_pb2, event_pb2

# A stream that broke is taken up again, at another node; so often in a row without an event.
TRIES_MAX = 20
REST_S = 0.5
REVISION = re.compile(r"\d+(\.\d+)?")


@command(
    None, "watch",
    "raftsched watch",
    "raftsched watch --job 'report*' --kind run-failed -o jsonl",
    "raftsched watch --since 10m --no-follow",
)  # fmt: skip
@click.option("--job", type=JOB, metavar="NAME[*]", help="Only events of this job.")
@click.option("--kind", metavar="KIND", help="Only events of this kind, such as run-failed.")
@click.option("--queue", type=QUEUE, help="Only events of this queue.")
@click.option("--run", type=RUN, help="Only events of this run.")
@click.option(
    "--filter",
    "text",
    default="",
    help="Only what fits, such as 'kind=RUN_FAILED OR kind=RUN_RETRYING'.",
)
@click.option("--all-namespaces", "-A", is_flag=True, help="Events of all namespaces.")
@click.option(
    "--since", metavar="TIME|REVISION|oldest",
    help="It begins at this time, such as 10m for ten minutes ago, or behind a revision.  [now]",
)  # fmt: skip
@click.option("--until", type=PastInstant(), metavar="TIME", help="It ends at this time.  [never]")
@click.option("--no-follow", is_flag=True, help="It ends with what is there now.")
@click.option("--count", "-c", type=click.IntRange(min=1), help="It ends after so many.  [never]")
def watch(
    session: Invocation, text: str, kind: str | None, all_namespaces: bool, since: str | None,
    until: int | None, no_follow: bool, count: int | None, **given: str | None,
) -> None:  # fmt: skip
    """Follow events. A stream that breaks is taken up where it was, at another node.

    It goes on until it is stopped: --timeout is how long no node may answer, not an end.
    """
    namespace = "" if all_namespaces else session.namespace
    if kind:
        given["kind"] = kind.upper().replace("-", "_")
    first, after = beginning(since)
    request = m.event_pb2.WatchEventsRequest(
        namespace=namespace, filter=condition(text, **given), after=after
    )
    # What has passed does not follow.
    stop = no_follow or (until is not None and until <= now_ms())
    events = follow(session, request, oldest=since is not None and after is None, stop=stop)
    for event in islice(within(events, first, until), count):
        session.out.line(event)


def beginning(since: str | None) -> tuple[int, common_pb2.Revision | None]:
    """The instant or the revision at which it begins."""
    if since is None or since == "oldest":
        return 0, None
    if REVISION.fullmatch(since):
        return 0, revision(since)
    try:
        return PastInstant().convert(since, None, None), None
    except click.BadParameter:
        raise wrong_use(
            f"{since!r} is neither a time nor a revision",
            f"a revision is written change.position, as `watch` prints it; {INSTANTS}",
            "--since 10m, --since 17.3, or --since oldest",
        ) from None


def within(
    events: Iterator[event_pb2.Event], first: int, until: int | None
) -> Iterator[event_pb2.Event]:
    """Those from one instant on to another."""
    for event in events:
        at = event.time.ToMilliseconds()
        if until is not None and at >= until:
            return
        if at >= first:
            yield event


def revision(text: str) -> common_pb2.Revision:
    from ...sdk.ranges import made

    change, _, position = text.partition(".")
    return made(m.common_pb2.Revision, change=int(change), position=int(position or 0))


def follow(
    session: Invocation, request: event_pb2.WatchEventsRequest, *, oldest: bool, stop: bool
) -> Iterator[event_pb2.Event]:
    """The past as far as it is asked for, then what comes."""
    if oldest or stop:
        yield from past(session, request)
    if not stop:
        yield from present(session, request)


def past(session: Invocation, request: event_pb2.WatchEventsRequest) -> Iterator[event_pb2.Event]:
    """Pages of what is kept; leaves in the request where they end."""
    while True:
        page = m.event_pb2.ListEventsRequest(
            namespace=request.namespace, filter=request.filter, page_size=1000
        )
        if request.HasField("after"):
            page.after.CopyFrom(request.after)
        answer = session.ask(page, m.event_pb2.ListEventsResponse, "list events")
        yield from answer.events
        request.after.CopyFrom(answer.progress)
        if answer.end:
            return


def present(
    session: Invocation, request: event_pb2.WatchEventsRequest
) -> Iterator[event_pb2.Event]:
    from ...sdk.errors import Unavailable
    from ..refused import refusals

    failures, is_noted = 0, not session.out.for_person
    while True:
        with refusals(session, "watch events"):
            try:
                for response in session.client.stream(request, timeout=session.timeout_s):
                    if not is_noted:
                        # Else whoever looks takes it for one that waits for a node.
                        is_noted = True
                        echo("Watching; Ctrl-C ends it.", err=True)
                    yield from response.events
                    request.after.CopyFrom(response.progress)
                    failures = 0
            except Unavailable as broken:
                failures += 1
                if failures > TRIES_MAX or not request.HasField("after"):
                    raise
                limit = broken.values.get("limit", "")
                why = f" by the limit '{limit}'" if limit else ""
                echo(f"The stream broke{why}; taking it up where it was.", err=True)
                if session.debug:
                    echo(f"  {broken.message}", err=True)
        time.sleep(REST_S)
