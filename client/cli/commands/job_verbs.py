"""What is done to jobs that are there: `raftsched job delete, pause, resume, repair, trigger`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from .. import messages as m
from ..exits import wrong_use
from ..input.filters import condition
from ..input.job_options import CONTENT_TYPE
from ..input.spec import enum_number, pairs, payload
from ..names import JOB, QUEUE
from ..options import command
from ..render.progress import bar
from ..session import Invocation, many
from ..times import Instant, Length, duration, timestamp
from . import change
from .files import some

if TYPE_CHECKING:
    from ..messages import job_pb2

NAME = click.argument("name", type=JOB)
MAYBE = click.argument("name", type=JOB, required=False, default="", metavar="[NAME]")


@command(
    None, "delete",
    "raftsched job delete report --yes",
    "raftsched job delete -l team=billing --dry-run",
    "raftsched job delete --filter 'state=FINISHED AND owner=ann'",
    writes=True, destroys=True,
)  # fmt: skip
@click.argument("names", nargs=-1, type=JOB, metavar="[NAME...]")
@change.LABEL
@change.FILTER
@click.option("--etag", default="", help="It is done only to this version of the job.")
def delete(
    session: Invocation, names: tuple[str, ...], label: tuple[str, ...], fitting: str | None,
    etag: str,
) -> None:  # fmt: skip
    """Delete jobs with their history. Runs under way are cancelled."""
    text = selected(names, label, fitting, "raftsched job delete")
    if text is not None:
        from .deletion import delete_fitting

        delete_fitting(session, text, of_jobs(session, text, "delete"))
        return
    session.confirm(f"Delete {some(names)} ({many(len(names), 'job')}) with history?")
    with bar("Deleting", len(names)) as step:
        for name in names:
            request = session.write(
                m.job_pb2.DeleteJobRequest(namespace=session.namespace, job=name, etag=etag)
            )
            answer = session.ask(request, m.job_pb2.DeleteJobResponse, f"delete job {name}")
            runs = many(answer.cancelled_runs, "run")
            session.done(answer, f"Job {name} deleted, {runs} cancelled.")
            step(1)


@command(
    None, "pause",
    "raftsched job pause report --reason 'database migration' --until +2h",
    "raftsched job pause -l team=billing",
    "raftsched job pause --filter 'queue=mail OR labels.team=billing'",
    writes=True, destroys=True,
)  # fmt: skip
@MAYBE
@change.LABEL
@change.FILTER
@click.option("--reason", default="", help="Why, for people.")
@click.option("--until", type=Instant(), help="It resumes by itself then.  [never]")
@click.option("--etag", default="", help="It is done only to this version of the job.")
def pause(
    session: Invocation, name: str, label: tuple[str, ...], fitting: str | None, reason: str,
    until: int | None, etag: str,
) -> None:  # fmt: skip
    """Stop a job, or all that fit, from firing. Runs under way go on."""
    if (text := selected(name, label, fitting, "raftsched job pause")) is not None:
        several = of_jobs(session, text, "pause")
        several.reason = reason
        if until is not None:
            several.until.CopyFrom(timestamp(until))
        change.change(session, several, "job", "pause", "paused")
        return
    request = session.write(
        m.job_pb2.PauseJobRequest(
            namespace=session.namespace, job=name, reason=reason, etag=etag,
            until=timestamp(until) if until is not None else None,
        )
    )  # fmt: skip
    paused = session.ask(request, m.job_pb2.Job, f"pause job {name}")
    session.done(paused, f"Job {name} paused.", then=f"raftsched job resume {name}")


@command(
    None, "resume",
    "raftsched job resume report",
    "raftsched job resume -l team=billing",
    "raftsched job resume --filter 'queue=mail'",
    writes=True, destroys=True,
)  # fmt: skip
@MAYBE
@change.LABEL
@change.FILTER
@click.option("--etag", default="", help="It is done only to this version of the job.")
def resume(
    session: Invocation, name: str, label: tuple[str, ...], fitting: str | None, etag: str
) -> None:
    """Let paused jobs fire again. What was missed is treated by their misfire policy.

    With a name it also brings back a job that stands still after 'raftsched cluster set-time'.
    """
    if (text := selected(name, label, fitting, "raftsched job resume")) is not None:
        several = of_jobs(session, text, "resume")
        change.change(session, several, "job", "resume", "resumed")
        return
    request = session.write(
        m.job_pb2.ResumeJobRequest(namespace=session.namespace, job=name, etag=etag)
    )
    resumed = session.ask(request, m.job_pb2.Job, f"resume job {name}")
    session.done(resumed, f"Job {name} resumed.", then=f"raftsched job next {name}")


@command(None, "repair", "raftsched job repair report", writes=True)
@NAME
@click.option("--etag", default="", help="It is done only to this version of the job.")
def repair(session: Invocation, name: str, etag: str) -> None:
    """Bring back a job that is BROKEN. What came due meanwhile is treated by its misfire policy."""
    seen = m.job_pb2.GetJobRequest(namespace=session.namespace, job=name)
    before = session.read(seen, m.job_pb2.Job, f"repair job {name}")
    request = session.write(
        m.job_pb2.RepairJobRequest(namespace=session.namespace, job=name, etag=etag)
    )
    broken = before.status.state == m.job_pb2.JobStatus.STATE_BROKEN
    repaired = session.ask(request, m.job_pb2.Job, f"repair job {name}")
    did = "repaired" if broken else "was not BROKEN, so nothing was repaired"
    session.done(repaired, f"Job {name} {did}.", then=f"raftsched job explain {name}")


@command(
    None, "trigger",
    "raftsched job trigger report --payload '{\"day\": \"2026-11-17\"}'",
    "raftsched run wait $(raftsched job trigger report -o name)",
    "raftsched job trigger -l team=billing",
    "raftsched job trigger --filter 'labels.team=billing AND last_state=FAILED'",
    writes=True, destroys=True,
)  # fmt: skip
@MAYBE
@click.option(
    "--job-label",
    "-l",
    "label",
    multiple=True,
    metavar="KEY=VALUE",
    help="All jobs with this label; can be repeated.",
)
@change.FILTER
@click.option(
    "--payload", "sent", metavar="TEXT|@FILE", help="The payload, instead of the job's own."
)
@CONTENT_TYPE
@click.option(
    "--priority", type=click.Choice(("high", "medium", "low")), help="Instead of the job's own."
)
@click.option("--queue", default="", type=QUEUE, help="Instead of the job's own.")
@click.option(
    "--concurrency-key", default="", metavar="KEY", help="Instead of the job's; it has a key limit."
)
@click.option(
    "--label",
    "labels",
    multiple=True,
    metavar="KEY=VALUE",
    help="A label of the run; can be repeated.",
)
@click.option(
    "--traceparent",
    default="",
    metavar="TEXT",
    help="Where the run belongs in a trace, as W3C has it.",
)
@click.option(
    "--tracestate", default="", metavar="TEXT", help="What else there is, beside --traceparent."
)
@click.option("--due", "--at", "due", type=Instant(),
              help="When the run is due, such as +10m or tomorrow 09:00.  [now]")  # fmt: skip
@click.option(
    "--unique-key", default="", metavar="KEY", help="There is one run of the job with this key."
)
@click.option(
    "--if-taken",
    type=click.Choice(("return-existing", "reject", "replace")),
    help="What is done when another run has the key.  [return-existing]",
)
@click.option("--hold-key", type=Length(), help="The key stays taken so long after the end.  [0s]")
@click.option(
    "--if-running",
    type=click.Choice(("wait", "refuse")),
    help="What is done while the overlap policy lets no run begin.  [wait]",
)
@click.option(
    "--force", is_flag=True, help="It runs even if the job is paused or a run is under way."
)
def trigger(
    session: Invocation, name: str, label: tuple[str, ...], fitting: str | None, sent: str | None,
    content_type: str | None, priority: str | None, queue: str, concurrency_key: str,
    labels: tuple[str, ...], traceparent: str, tracestate: str, due: int | None, unique_key: str,
    if_taken: str | None, hold_key: int | None, if_running: str | None, force: bool,
) -> None:  # fmt: skip
    """Start a run of a job, or of all that fit, manually."""
    if (text := selected(name, label, fitting, "raftsched job trigger")) is not None:
        given = (sent, content_type, priority, queue, concurrency_key, due, unique_key, if_taken)
        if any((*given, hold_key, if_running, force, labels, traceparent, tracestate)):
            raise wrong_use(
                "other options with a label or --filter", "runs are as their jobs say",
                "the label or --filter alone",
            )  # fmt: skip
        several = of_jobs(session, text, "trigger")
        change.change(session, several, "job", "trigger", "triggered")
        return
    request = m.job_pb2.TriggerJobRequest(
        namespace=session.namespace,
        job=name,
        queue=queue,
        force=force,
        concurrency_key=concurrency_key,
        labels=pairs("--label", labels),
    )
    if traceparent or tracestate:
        request.trace_context.traceparent = traceparent
        request.trace_context.tracestate = tracestate
    if (handed := payload(sent, content_type)) is not None:
        request.payload.CopyFrom(handed)
    if priority:
        request.priority = enum_number(m.common_pb2.Priority.DESCRIPTOR, priority)  # type: ignore[assignment]
    if due is not None:
        request.due_time.CopyFrom(timestamp(due))
    if if_running:
        kinds = m.job_pb2.TriggerJobRequest.IfRunning.DESCRIPTOR
        request.if_running = enum_number(kinds, if_running)  # type: ignore[assignment]
    if not unique_key and (if_taken or hold_key is not None):
        raise wrong_use(
            f"{'--if-taken' if if_taken else '--hold-key'} without --unique-key",
            "it says what happens to a key", f"raftsched job trigger {name} --unique-key KEY ...",
        )  # fmt: skip
    if unique_key:
        request.unique.key = unique_key
        if if_taken:
            policies = m.run_pb2.UniqueKey.Policy.DESCRIPTOR
            request.unique.policy = enum_number(policies, if_taken)  # type: ignore[assignment]
        if hold_key is not None:
            request.unique.hold.CopyFrom(duration(hold_key))
    run = session.ask(session.write(request), m.run_pb2.Run, f"trigger job {name}")
    session.done(run, f"Run {run.id} of job {name}.", then=f"raftsched run wait {run.id}")


def selected(names: object, labels: tuple[str, ...], fitting: str | None, usage: str) -> str | None:
    """The filter that labels and --filter make; None where jobs are named."""
    for one in labels:
        if "=" not in one:
            raise wrong_use(f"cannot read the label {one!r}", "", "KEY=VALUE")
    if labels:
        fitting = condition(fitting or "", labels)
    return fitting if change.is_by_filter(names, fitting, usage) else None


def of_jobs(session: Invocation, text: str, word: str) -> job_pb2.ChangeJobsRequest:
    """A change of all jobs that fit."""
    request = m.job_pb2.ChangeJobsRequest(namespace=session.namespace, filter=text)
    kinds = m.job_pb2.ChangeJobsRequest.Change.DESCRIPTOR
    request.change = enum_number(kinds, word)  # type: ignore[assignment]
    return request
