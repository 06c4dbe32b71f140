"""`raftsched dead`: runs that used up their attempts and wait for a person."""

from __future__ import annotations

from typing import Any

import click

from .. import messages as m
from ..exits import wrong_use
from ..input.filters import all_of, between, condition, window
from ..input.job_options import CONTENT_TYPE
from ..input.spec import payload
from ..lazy import ExampleGroup
from ..names import DEAD, JOB, QUEUE
from ..options import command
from ..session import Invocation, many
from .change import COUNT

ID = click.argument("run_id", type=DEAD, metavar="RUN")


def filter_options(body: Any) -> Any:  # A click callback.
    for option in (
        window("that ended"),
        click.option(
            "--filter",
            "text",
            default="",
            help="Only what fits, such as 'kind=ValueError OR error:timeout'.",
        ),
        click.option("--kind", metavar="KIND", help="Only those with this kind of error."),
        click.option("--queue", type=QUEUE, help="Only those of this queue."),
        click.option("--job", type=JOB, help="Only those of this job."),
    ):
        body = option(body)
    return body


def fitting(text: str, since: int | None, until: int | None, **given: str | None) -> str:
    """The filter that the options make."""
    return all_of(condition(text, **given), " AND ".join(between("end_time", since, until)))


@click.group(
    cls=ExampleGroup,
    examples=(
        "raftsched dead list --job report --since 1h",
        "raftsched dead edit report.17.1763456400000 --payload @fixed.json --requeue",
        "raftsched dead requeue --job report",
    ),
)
def dead() -> None:
    """Dead letters: runs that used up their attempts."""


@command(dead, "list", "raftsched dead list --kind ValueError", reads=True, lists=True)
@filter_options
@COUNT
def list_(session: Invocation, with_count: bool, **given: Any) -> None:
    """List dead letters, newest first."""
    request = m.dead_letter_pb2.ListDeadLettersRequest(
        namespace=session.namespace, filter=fitting(**given), with_count=with_count
    )
    kind = m.dead_letter_pb2.ListDeadLettersResponse
    session.show_list(request, kind, "runs", "list dead letters")


@command(dead, "get", "raftsched dead get report.17.1763456400000", reads=True)
@ID
def get(session: Invocation, run_id: str) -> None:
    """Show a dead letter with its error and all attempts."""
    request = m.dead_letter_pb2.GetDeadLetterRequest(namespace=session.namespace, run=run_id)
    session.out.one(session.read(request, m.run_pb2.Run, f"get dead letter {run_id}"))


@command(
    dead, "edit",
    "raftsched dead edit report.17.1763456400000 --payload @fixed.json --requeue",
    writes=True,
)  # fmt: skip
@ID
@click.option("--payload", "text", required=True, metavar="TEXT|@FILE", help="The new payload.")
@CONTENT_TYPE
@click.option("--requeue", "again", is_flag=True, help="It runs again with the new payload.")
def edit(
    session: Invocation, run_id: str, text: str, content_type: str | None, again: bool
) -> None:
    """Change the payload of a dead letter, so that the next try may succeed."""
    request = session.write(
        m.dead_letter_pb2.EditDeadLetterRequest(
            namespace=session.namespace, run=run_id, payload=payload(text, content_type)
        )
    )
    edited = session.ask(request, m.run_pb2.Run, f"edit dead letter {run_id}")
    if again:
        edited = requeue_one(session, run_id)
        session.done(edited, f"Run {run_id} has a new payload and runs again.")
    else:
        next_step = f"raftsched dead requeue {run_id}"
        session.done(edited, f"Dead letter {run_id} has a new payload.", then=next_step)


@command(
    dead, "requeue",
    "raftsched dead requeue report.17.1763456400000",
    "raftsched dead requeue --job report --kind ConnectionError",
    writes=True, destroys=True,
)  # fmt: skip
@click.argument("run_ids", type=DEAD, nargs=-1, metavar="[RUN...]")
@filter_options
@click.option("--all", "every", is_flag=True, help="All dead letters of the namespace.")
def requeue(session: Invocation, run_ids: tuple[str, ...], every: bool, **given: Any) -> None:
    """Let dead letters run again: one, some, or all that fit.

    They do what their job says now, in the queue and with the priority that they had.
    """
    chosen = choice(run_ids, fitting(**given), every, "requeue")
    if run_ids:
        for run_id in run_ids:
            run = requeue_one(session, run_id)
            session.done(run, f"Run {run_id} runs again.", then=f"raftsched run wait {run_id}")
        return
    session.confirm(f"Let {chosen or 'all dead letters'} run again?")
    total = 0
    more = True
    while more:
        request = session.write(
            m.dead_letter_pb2.RequeueDeadLettersRequest(namespace=session.namespace, filter=chosen)
        )
        kind = m.dead_letter_pb2.RequeueDeadLettersResponse
        answer = session.ask(request, kind, "requeue dead letters")
        total += answer.requeued
        more = answer.more and not session.dry_run
    left_out = answer.left_out
    sentence = f"{many(total, 'dead letter')} to run again."
    if left_out:
        sentence += f" {many(left_out, 'dead letter')} left out: another run has the business key."
    session.done(kind(requeued=total, more=answer.more, left_out=left_out), sentence)


@command(
    dead, "purge", "raftsched dead purge --job report --yes", writes=True, destroys=True
)  # fmt: skip
@filter_options
@click.option("--all", "every", is_flag=True, help="All dead letters of the namespace.")
def purge(session: Invocation, every: bool, **given: Any) -> None:
    """Forget dead letters for ever; their runs leave the history."""
    chosen = choice((), fitting(**given), every, "purge")
    session.confirm(f"Forget {chosen or 'all dead letters'} for ever?")
    total = 0
    more = True
    while more:
        request = session.write(
            m.dead_letter_pb2.PurgeDeadLettersRequest(namespace=session.namespace, filter=chosen)
        )
        kind = m.dead_letter_pb2.PurgeDeadLettersResponse
        answer = session.ask(request, kind, "purge dead letters")
        total += answer.purged
        more = answer.more and not session.dry_run
    session.done(kind(purged=total, more=answer.more), f"{many(total, 'dead letter')} forgotten.")


def requeue_one(session: Invocation, run_id: str) -> m.run_pb2.Run:
    request = session.write(
        m.dead_letter_pb2.RequeueDeadLetterRequest(namespace=session.namespace, run=run_id)
    )
    return session.ask(request, m.run_pb2.Run, f"requeue dead letter {run_id}")


def choice(run_ids: tuple[str, ...], text: str, every: bool, verb: str) -> str:
    """The filter, once it is clear what is meant: nothing is never taken for everything."""
    if not (run_ids or text or every):
        raise wrong_use(
            f"no option names the dead letters to {verb}", "",
            f"raftsched dead {verb} --job JOB, or --all",
        )  # fmt: skip
    if sum(map(bool, (run_ids, text, every))) > 1:
        raise wrong_use("a run, a filter and --all exclude each other", "", "one of them alone")
    return text
