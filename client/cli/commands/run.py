"""`raftsched run`: what jobs carry out."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING

import click

from .. import messages as m
from ..exits import Exit, Trouble
from ..input.filters import all_of, condition, of_ended_runs, window
from ..input.spec import enum_number
from ..lazy import ExampleGroup
from ..names import FLOW, JOB, QUEUE, RUN, WORKER
from ..options import command
from ..session import Invocation
from ..times import Length, duration, length_text
from . import change
from .job import RUN_STATES, show_explanation

if TYPE_CHECKING:
    from ..messages import run_pb2

ID = click.argument("run_id", type=RUN, metavar="RUN")
# One call waits so long; then its answer shows how far the run is, and the next one waits.
WAIT_MS = 10_000
FIRST_MS = 3_000  # Then it is shown why it has not started.
WAIT_SHARE = 0.8
# While somebody reads along. Progress is no event, so there is nothing to watch.
LOOK_MS = 1_000


@click.group(
    cls=ExampleGroup,
    examples=(
        "raftsched run list --job report",
        "raftsched run wait $(raftsched job trigger report -o name)",
        "raftsched run logs report.17.1763456400000 --follow",
        "raftsched run explain report.17.1763456400000",
    ),
)
def run() -> None:
    """Runs: one for each scheduled time of a job, and for each time it was triggered."""


@command(
    run, "list",
    "raftsched run list",
    "raftsched run list --state failed --since 1h",
    "raftsched run list --job report --since yesterday -o csv --limit 0 > runs.csv",
    reads=True, lists=True,
)  # fmt: skip
@click.option(
    "--state", type=click.Choice(RUN_STATES), help="Only runs in this state.  [those under way]"
)
@click.option("--job", type=JOB, help="Only runs of this job.")
@click.option("--queue", type=QUEUE, help="Only runs of this queue.")
@click.option("--worker", type=WORKER, help="Only runs that this worker holds.")
@click.option("--flow", type=FLOW, help="Only runs of this flow run.")
@click.option(
    "--filter",
    "text",
    default="",
    help="Only runs that fit it, such as 'state=FAILED AND error:timeout'.",
)
@click.option(
    "--order-by",
    default="",
    metavar="FIELD",
    help="The order: scheduled_time of one job or under way; end_time of dead letters.",
)
@window("that ended, or are due,")
@change.COUNT
def list_(
    session: Invocation, text: str, order_by: str, since: int | None, until: int | None,
    with_count: bool, **given: str | None,
) -> None:  # fmt: skip
    """List runs, newest first: those under way, those of one state, or of a time.

    With --since or --until they are those that ended then, and without --until those under way,
    too. `--order-by 'end_time desc'` is backwards.
    """
    wanted = all_of(condition(text, **given), of_ended_runs(text, given["state"], since, until))
    request = m.run_pb2.ListRunsRequest(
        namespace=session.namespace, filter=wanted, with_count=with_count, order_by=order_by
    )
    ended = given["state"] or text or since is not None or until is not None
    job = given["job"]
    others = f"raftsched job history {job}" if job else "--state succeeded"
    session.show_list(
        request, m.run_pb2.ListRunsResponse, "runs", "list runs",
        empty="No such runs." if ended else f"No runs under way; {others} lists others.",
    )  # fmt: skip


@command(
    run, "get", "raftsched run get report.17.1763456400000 --time relative", reads=True
)  # fmt: skip
@ID
def get(session: Invocation, run_id: str) -> None:
    """Show a run with its attempts, its error, its result and the end of its log."""
    request = m.run_pb2.GetRunRequest(namespace=session.namespace, run=run_id)
    session.out.one(session.read(request, m.run_pb2.Run, f"get run {run_id}"))


@command(
    run, "wait", "raftsched run wait report.17.1763456400000 --for 10m && echo done"
)  # fmt: skip
@ID
@click.option("--for", "most", type=Length(),
              help="It gives up after this time, as after --timeout.  [never]")  # fmt: skip
def wait(session: Invocation, run_id: str, most: int | None) -> None:
    """Wait until a run has ended, and end as it did: 0 if it succeeded, 1 if not, 7 if it has not
    ended in the time that was given."""
    if most is None and session.values["timeout"].origin == "--timeout":
        # Whoever types it here means the wait, not one of the calls that it is made of.
        most = round(session.timeout_s * 1000)
    ended = wait_for(session, run_id, most)
    session.out.one(ended)
    error = ended.error
    why = f"{error.kind}: {error.message}" if error.kind else ""
    if not ended.HasField("end_time"):
        raise Trouble(
            f"run {run_id} has not ended", f"it is {word(ended)} after {length_text(most or 0)}",
            f"raftsched run explain {run_id}", Exit.OUTCOME_UNKNOWN,
        )  # fmt: skip
    if ended.state != m.run_pb2.RUN_STATE_SUCCEEDED:
        raise Trouble(f"run {run_id} ended as {word(ended)}", why, f"raftsched run get {run_id}")


def wait_for(session: Invocation, run_id: str, most: int | None) -> run_pb2.Run:
    """The run once it has ended, or as it is when the time is over."""
    began = monotonic()
    # Each call has its timeout, and the answer takes some of that to arrive.
    longest = min(WAIT_MS, WAIT_SHARE * session.timeout_s * 1000)
    piece, is_shown = min(FIRST_MS, longest), False
    with status(f"Waiting for {run_id}") as say:
        while True:
            left = piece if most is None else most - (monotonic() - began) * 1000
            seen = wait_once(session, run_id, min(left, piece))
            if seen.HasField("end_time") or (most is not None and left <= piece):
                return seen
            if not is_shown:
                is_shown, piece = True, longest
                say_why(session, seen)
            say(f"{run_id} is {word(seen)}, attempt {seen.attempt} {far(seen)}")


def say_why(session: Invocation, seen: run_pb2.Run) -> None:
    """What keeps a run from starting: whoever waits for it would see nothing else."""
    if seen.state != m.run_pb2.RUN_STATE_PENDING:
        return
    request = m.run_pb2.ExplainRunRequest(namespace=session.namespace, run=seen.id)
    found = session.ask(request, m.run_pb2.Explanation, f"explain run {seen.id}")
    if found.obstacles:
        session.say(f"{seen.id} waits: {found.obstacles[0].message}")


def wait_once(session: Invocation, run_id: str, ms: float) -> run_pb2.Run:
    request = m.run_pb2.WaitRunRequest(
        namespace=session.namespace, run=run_id, timeout=duration(max(int(ms), 1))
    )
    return session.ask(request, m.run_pb2.Run, f"wait for run {run_id}")


def word(one: run_pb2.Run) -> str:
    from ..render.formats import enum_word

    return enum_word(one, "state")


def far(one: run_pb2.Run) -> str:
    progress = one.progress
    if not one.HasField("progress"):
        return ""
    of = f" of {progress.total}" if progress.total else ""
    return f"({progress.done}{of} {progress.message})".replace(" )", ")")


@contextmanager
def status(text: str) -> Iterator[Callable[[str], None]]:
    """A line on stderr that moves, when a person sits there."""
    if not (sys.stderr and sys.stderr.isatty()):
        yield lambda text: None
        return
    from rich.text import Text

    from ..render.terminal import Terminal

    with Terminal(stderr=True).status(text) as shown:
        # What a handler says of itself is no markup.
        yield lambda text: shown.update(Text(text))


@command(
    run, "logs",
    "raftsched run logs report.17.1763456400000",
    "raftsched run logs $(raftsched job trigger report -o name) --follow",
    reads=True,
)  # fmt: skip
@ID
@click.option("--follow", "-f", is_flag=True, help="It goes on until the run has ended.")
def logs(session: Invocation, run_id: str, follow: bool) -> None:
    """Print the end of what the handler of a run has logged, at most 16,384 bytes of an attempt.

    It is there soon after the handler has reported progress, and when its attempt has ended.
    """
    from .logs import Log

    request = m.run_pb2.GetRunRequest(namespace=session.namespace, run=run_id)
    seen = session.read(request, m.run_pb2.Run, f"read the log of run {run_id}")
    log = Log(session)
    log.show(seen)
    while follow and not seen.HasField("end_time"):
        seen = wait_once(session, run_id, LOOK_MS)
        log.show(seen)
    if follow:
        session.say(f"Run {run_id} is {word(seen)}.")
    elif not seen.log_tail:
        if not session.out.is_table:
            log.say(seen, "")
        then = "" if seen.HasField("end_time") else f"raftsched run logs {run_id} --follow"
        session.say(
            f"Run {run_id} is {word(seen)} and has logged nothing that is kept.\n"
            "Kept is what a handler writes by context.log, and what a command prints. The rest is"
            " in the log of the worker.",
            then=then,
        )  # fmt: skip


@command(
    run, "cancel",
    "raftsched run cancel report.17.1763456400000 --reason 'wrong input'",
    "raftsched run cancel --filter 'job=report AND state=PENDING'",
    writes=True, destroys=True,
)  # fmt: skip
@click.argument("run_ids", type=RUN, nargs=-1, metavar="[RUN...]")
@change.FILTER
@click.option("--reason", default="", help="Why, for people.")
@click.option("--grace", type=Length(), help="How long a running one has to stop.  [30s]")
@click.option("--now", is_flag=True, help="It ends at once, and its worker is not asked.")
def cancel(
    session: Invocation, run_ids: tuple[str, ...], fitting: str | None, reason: str,
    grace: int | None, now: bool,
) -> None:  # fmt: skip
    """End runs: those that wait at once, running ones through their worker."""
    if change.is_by_filter(run_ids, fitting, "raftsched run cancel"):
        several = of_runs(session, fitting, "terminate" if now else "cancel")
        several.reason = reason
        if grace is not None and not now:
            several.grace.CopyFrom(duration(grace))
        change.change(session, several, "run", "cancel", "cancelled")
        return
    for run_id in run_ids:
        request: m.run_pb2.TerminateRunRequest | m.run_pb2.CancelRunRequest
        if now:
            request = m.run_pb2.TerminateRunRequest()
        else:
            request = m.run_pb2.CancelRunRequest()
            if grace is not None:
                request.grace.CopyFrom(duration(grace))
        request.namespace, request.run, request.reason = session.namespace, run_id, reason
        ended = session.ask(session.write(request), m.run_pb2.Run, f"cancel run {run_id}")
        state = "is asked to stop" if ended.cancel_requested else f"is {word(ended)}"
        session.done(ended, f"Run {run_id} {state}.")


def of_runs(session: Invocation, text: str | None, word: str) -> m.run_pb2.ChangeRunsRequest:
    """A change of all runs under way that fit."""
    request = m.run_pb2.ChangeRunsRequest(namespace=session.namespace, filter=text or "")
    kinds = m.run_pb2.ChangeRunsRequest.Change.DESCRIPTOR
    request.change = enum_number(kinds, word)  # type: ignore[assignment]
    return request


@command(
    run, "retry",
    "raftsched run retry report.17.1763456400000",
    "raftsched run retry --filter 'kind=ConnectionError'",
    writes=True, destroys=True,
)  # fmt: skip
@click.argument("run_ids", type=RUN, nargs=-1, metavar="[RUN...]")
@change.FILTER
def retry(session: Invocation, run_ids: tuple[str, ...], fitting: str | None) -> None:
    """Begin the next attempt of runs that wait for it now.

    Runs that have failed for good are dead letters: see raftsched dead requeue.
    """
    if change.is_by_filter(run_ids, fitting, "raftsched run retry"):
        # What has failed for good waits for no attempt; it is among the dead letters.
        other = "raftsched dead requeue --filter 'job=NAME'"
        fits = of_runs(session, fitting, "retry")
        change.change(session, fits, "run", "retry", "retried", other)
        return
    for run_id in run_ids:
        request = session.write(m.run_pb2.RetryRunRequest(namespace=session.namespace, run=run_id))
        again = session.ask(request, m.run_pb2.Run, f"retry run {run_id}")
        session.done(again, f"Run {run_id} is {word(again)}.", then=f"raftsched run wait {run_id}")


@command(run, "explain", "raftsched run explain report.17.1763456400000", reads=True)
@ID
def explain(session: Invocation, run_id: str) -> None:
    """Say why a run has not started or does not go on."""
    request = m.run_pb2.ExplainRunRequest(namespace=session.namespace, run=run_id)
    show_explanation(session, session.read(request, m.run_pb2.Explanation, f"explain run {run_id}"))
