"""`raftsched queue`: where runs wait for workers."""

from __future__ import annotations

import click

from .. import messages as m
from ..exits import wrong_use
from ..lazy import ExampleGroup
from ..names import QUEUE
from ..options import command
from ..session import Invocation, waiting

NAME = click.argument("name", type=QUEUE)


@click.group(
    cls=ExampleGroup,
    examples=(
        "raftsched queue list",
        "raftsched queue update mail --rate 50 --burst 100",
        "raftsched queue pause mail --reason 'provider is down'",
    ),
)
def queue() -> None:
    """Queues: named lines of runs. A queue is there as soon as a job names it."""


@command(queue, "list", "raftsched queue list -o wide", reads=True, lists=True)
def list_(session: Invocation) -> None:
    """List queues with what waits in them."""
    request = m.queue_pb2.ListQueuesRequest(namespace=session.namespace)
    session.show_list(request, m.queue_pb2.ListQueuesResponse, "queues", "list queues")


@command(queue, "get", "raftsched queue get mail", reads=True)
@NAME
def get(session: Invocation, name: str) -> None:
    """Show a queue."""
    request = m.queue_pb2.GetQueueRequest(namespace=session.namespace, queue=name)
    session.out.one(session.read(request, m.queue_pb2.Queue, f"get queue {name}"))


@command(queue, "pause", "raftsched queue pause mail --reason 'provider is down'", writes=True)
@NAME
@click.option("--reason", default="", help="Why, for people.")
def pause(session: Invocation, name: str, reason: str) -> None:
    """Grant no leases from a queue; runs that are leased go on."""
    request = session.write(
        m.queue_pb2.PauseQueueRequest(namespace=session.namespace, queue=name, reason=reason)
    )
    paused = session.ask(request, m.queue_pb2.Queue, f"pause queue {name}")
    session.done(
        paused,
        f"Queue {name} paused, {waiting(paused.ready)}.",
        then=f"raftsched queue resume {name}",
    )


@command(queue, "resume", "raftsched queue resume mail", writes=True)
@NAME
def resume(session: Invocation, name: str) -> None:
    """Grant leases from a queue again."""
    request = session.write(m.queue_pb2.ResumeQueueRequest(namespace=session.namespace, queue=name))
    resumed = session.ask(request, m.queue_pb2.Queue, f"resume queue {name}")
    session.done(resumed, f"Queue {name} resumed, {waiting(resumed.ready)}.")


@command(
    queue, "update",
    "raftsched queue update mail --concurrency 20 --rate 50 --burst 100",
    "raftsched queue update mail --rate 0",
    writes=True,
)  # fmt: skip
@NAME
@click.option(
    "--concurrency",
    type=click.IntRange(min=0),
    help="The maximum of runs carried out at once; 0 is no limit.",
)
@click.option(
    "--rate",
    type=click.IntRange(min=0),
    help="The maximum of runs that begin in a second; 0 is no limit.",
)
@click.option(
    "--burst", type=click.IntRange(min=0), help="How many may begin at once after a rest."
)
@click.option("--etag", default="", help="It is done only to this version of the queue.")
def update(session: Invocation, name: str, etag: str, **limits: int | None) -> None:
    """Change the limits of a queue."""
    from ...sdk.ranges import put

    given = {field: value for field, value in limits.items() if value is not None}
    if not given:
        raise wrong_use(
            f"nothing to change in queue {name}", "", f"raftsched queue update {name} --rate 50"
        )
    wanted = m.queue_pb2.Queue(namespace=session.namespace, name=name, etag=etag)
    for field, value in given.items():
        put(wanted, field, value)
    fresh = newness(session, name)
    request = session.write(m.queue_pb2.UpdateQueueRequest(queue=wanted))
    request.update_mask.paths.extend(given)
    changed = session.ask(request, m.queue_pb2.Queue, f"update queue {name}")
    shown = ", ".join(f"{field} {value or 'without limit'}" for field, value in given.items())
    session.done(changed, f"Queue {name} has {shown}.{fresh}")


def newness(session: Invocation, name: str) -> str:
    """What to say of a queue that is made by naming it, which may be a slip of the fingers."""
    from ...sdk.errors import NotFound, RaftschedError

    try:
        request = m.queue_pb2.GetQueueRequest(namespace=session.namespace, queue=name)
        session.client.call(request, timeout=session.timeout_s)
    except NotFound:
        return " It is new: no job has named it yet."
    except RaftschedError:
        pass  # The write says what is wrong.
    return ""
