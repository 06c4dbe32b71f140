"""`raftsched job`: the standing orders."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import click

from .. import messages as m
from ..exits import wrong_use
from ..input.spec import CONTENT_TYPE, build, enum_number, pairs, payload, spec_options
from ..lazy import ExampleGroup
from ..names import JOB, QUEUE
from ..options import command
from ..render.clean import echo
from ..session import Invocation, many
from ..times import Instant, Length, duration, rough_text, timestamp
from . import change, files
from . import preview as foresight

if TYPE_CHECKING:
    from ..messages import job_pb2

JOB_STATES = ("active", "paused", "finished", "deleting", "broken")
BACKFILL_RATE = 60  # Runs a minute, where none are named.
BACKFILL_RATE_MAX = 60_000
RUN_STATES = ("pending", "running", "retrying", "succeeded", "failed", "cancelled", "skipped")
NAME = click.argument("name", type=JOB)
MAYBE = click.argument("name", type=JOB, required=False, default="", metavar="[NAME]")
# What a value in a filter may not have unless it stands in quotes.
QUOTED = re.compile(r'[\s()"\\]|^=')


@click.group(
    cls=ExampleGroup,
    examples=(
        "raftsched job create report --cron '0 9 * * mon-fri' --handler build-report",
        "raftsched job next report",
        "raftsched job apply -f jobs/ --dry-run",
    ),
)
def job() -> None:
    """Jobs: standing orders that say what is done, when, and what if it goes wrong."""


@command(
    job, "create",
    "raftsched job create report --cron '0 9 * * mon-fri' --zone Europe/Berlin --handler report",
    "raftsched job create ping --every 5m --http 'GET https://example.org/health'",
    "raftsched job create cleanup --after report:any-end --shell 'find /var/tmp -mtime +7 -delete'",
    writes=True,
)  # fmt: skip
@click.argument("name")
@spec_options
def create(session: Invocation, name: str, **given: Any) -> None:
    """Create a job. It must say what is done: --handler, --http, --shell or --grpc."""
    spec, _ = build(given)
    wanted = m.job_pb2.Job(namespace=session.namespace, name=name, spec=spec)
    request = session.write(m.job_pb2.CreateJobRequest(job=wanted))
    made = session.ask(request, m.job_pb2.Job, f"create job {name}")
    session.done(made, f"Job {name} created.", then=after_creation(name, spec))
    for warning in made.status.warnings:
        session.say(f"Note: {warning}")


def after_creation(name: str, spec: job_pb2.JobSpec) -> str:
    if spec.schedules:
        return f"raftsched job next {name}"
    return f"raftsched flow graph {name}" if spec.upstream.jobs else f"raftsched job trigger {name}"


@command(
    job, "update",
    "raftsched job update report --priority high --jitter 30s",
    "raftsched job update report --clear timing.jitter",
    writes=True,
)  # fmt: skip
@NAME
@spec_options
@click.option("--clear", multiple=True, metavar="PATH", help="Unset a field, such as timing.zone.")
@click.option("--etag", default="", help="Only this version of the job.")
def update(session: Invocation, name: str, clear: tuple[str, ...], etag: str, **given: Any) -> None:
    """Change what is named, leave the rest of the job as it is."""
    spec, paths = build(given)
    cleared = [f"spec.{path.removeprefix('spec.')}" for path in clear]
    for path in cleared:
        if path in paths:
            raise wrong_use(
                f"--clear {path.removeprefix('spec.')} and an option that sets it",
                "an update does one of the two", "leave one of them out",
            )  # fmt: skip
    paths += dict.fromkeys(cleared)
    if not paths:
        raise wrong_use(
            f"nothing to change in job {name}", "no option names a field of it",
            f"raftsched job update {name} --priority high",
        )  # fmt: skip
    wanted = m.job_pb2.Job(namespace=session.namespace, name=name, spec=spec, etag=etag)
    request = session.write(m.job_pb2.UpdateJobRequest(job=wanted))
    request.update_mask.paths.extend(paths)
    made = session.ask(request, m.job_pb2.Job, f"update job {name}")
    session.done(made, f"Job {name} updated: {', '.join(paths)}.")
    for warning in made.status.warnings:
        session.say(f"Note: {warning}")


@command(job, "get", "raftsched job get report", "raftsched job get report -o yaml", reads=True)
@NAME
def get(session: Invocation, name: str) -> None:
    """Show a job with all that is known of it."""
    request = m.job_pb2.GetJobRequest(namespace=session.namespace, job=name)
    session.out.one(session.read(request, m.job_pb2.Job, f"get job {name}"))


@command(
    job, "list",
    "raftsched job list --state paused",
    "raftsched job list -l team=billing -o name --limit 0",
    reads=True, lists=True,
)  # fmt: skip
@click.option("--state", type=click.Choice(JOB_STATES), help="Only those.")
@click.option("--label", "-l", multiple=True, metavar="KEY=VALUE", help="Only with this label.")
@click.option("--queue", type=QUEUE, help="Only those of this queue.")
@click.option("--handler", metavar="NAME", help="Only those with this handler.")
@click.option("--calendar", metavar="NAME", help="Only those that leave its days out.")
@click.option("--filter", "text", default="", help="Such as 'owner=ann OR labels.team=a'.")
@click.option("--order-by", default="", metavar="FIELD", help="name, create_time or next_time.")
@change.COUNT
@click.argument("name", default="", metavar="[NAME*]")
def list_(
    session: Invocation, name: str, text: str, label: tuple[str, ...], order_by: str,
    with_count: bool, **given: str,
) -> None:  # fmt: skip
    """List jobs by name, or in another order; `--order-by 'next_time desc'` is backwards."""
    request = m.job_pb2.ListJobsRequest(
        namespace=session.namespace,
        filter=condition(text, label, name=name, **given),
        order_by=order_by,
        with_count=with_count,
    )
    session.show_list(request, m.job_pb2.ListJobsResponse, "jobs", "list jobs")


@command(
    job, "delete",
    "raftsched job delete report --yes",
    "raftsched job delete -l team=billing --dry-run",
    "raftsched job delete --filter 'state=FINISHED AND owner=ann'",
    writes=True, destroys=True,
)  # fmt: skip
@click.argument("names", nargs=-1, type=JOB, metavar="[NAME...]")
@click.option("--label", "-l", multiple=True, metavar="KEY=VALUE", help="All with this label.")
@change.FILTER
@click.option("--etag", default="", help="Only this version of the job.")
def delete(
    session: Invocation,
    names: tuple[str, ...],
    label: tuple[str, ...],
    fitting: str | None,
    etag: str,
) -> None:
    """Delete jobs with their history. Runs under way are cancelled."""
    if fitting is not None and label:
        raise wrong_use("a label and --filter exclude each other", "", "labels.KEY=VALUE in it")
    if fitting is not None and change.is_by_filter(names, fitting, "raftsched job delete"):
        several = of_jobs(session, fitting, "delete")
        change.change(session, several, "job", "delete", "deleted, with history")
        return
    if bool(names) == bool(label):
        raise wrong_use(
            "no option names the jobs to delete", "name them, or a label, not both",
            "raftsched job delete NAME",
        )  # fmt: skip
    if label:
        names = tuple(files.names_with(session, label))
        if not names:
            session.say(f"No job has {' and '.join(label)}.")
            return
    session.confirm(f"Delete {files.some(names)} ({many(len(names), 'job')}) with history?")
    with files.bar("Deleting", len(names)) as step:
        for name in names:
            request = session.write(
                m.job_pb2.DeleteJobRequest(namespace=session.namespace, job=name, etag=etag)
            )
            answer = session.ask(request, m.job_pb2.DeleteJobResponse, f"delete job {name}")
            runs = many(answer.cancelled_runs, "run")
            session.done(answer, f"Job {name} deleted, {runs} cancelled.")
            step(1)


@command(
    job, "pause",
    "raftsched job pause report --reason 'database migration' --until +2h",
    "raftsched job pause --filter 'queue=mail OR labels.team=billing'",
    writes=True, destroys=True,
)  # fmt: skip
@MAYBE
@change.FILTER
@click.option("--reason", default="", help="For people.")
@click.option("--until", type=Instant(), help="Resume by itself then.")
@click.option("--etag", default="", help="Only this version of the job.")
def pause(
    session: Invocation, name: str, fitting: str | None, reason: str, until: int | None, etag: str
) -> None:
    """Stop a job, or all that fit a filter, from firing. Runs under way go on."""
    if change.is_by_filter(name, fitting, "raftsched job pause"):
        several = of_jobs(session, fitting, "pause")
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
    job, "resume",
    "raftsched job resume report",
    "raftsched job resume --filter 'queue=mail'",
    writes=True, destroys=True,
)  # fmt: skip
@MAYBE
@change.FILTER
@click.option("--etag", default="", help="Only this version of the job.")
def resume(session: Invocation, name: str, fitting: str | None, etag: str) -> None:
    """Let paused jobs fire again. What was missed is treated by their misfire policy.

    With a name it also brings back a job that stands still after 'raftsched cluster set-time'.
    """
    if change.is_by_filter(name, fitting, "raftsched job resume"):
        several = of_jobs(session, fitting, "resume")
        change.change(session, several, "job", "resume", "resumed")
        return
    request = session.write(
        m.job_pb2.ResumeJobRequest(namespace=session.namespace, job=name, etag=etag)
    )
    resumed = session.ask(request, m.job_pb2.Job, f"resume job {name}")
    session.done(resumed, f"Job {name} resumed.", then=f"raftsched job next {name}")


@command(job, "repair", "raftsched job repair report", writes=True)
@NAME
@click.option("--etag", default="", help="Only this version of the job.")
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
    job, "trigger",
    "raftsched job trigger report --payload '{\"day\": \"2026-11-17\"}'",
    "raftsched run wait $(raftsched job trigger report -o name)",
    "raftsched job trigger --filter 'labels.team=billing AND last_state=FAILED'",
    writes=True, destroys=True,
)  # fmt: skip
@MAYBE
@change.FILTER
@click.option("--payload", "text", metavar="TEXT|@FILE", help="Instead of the job's own.")
@CONTENT_TYPE
@click.option("--priority", type=click.Choice(("high", "medium", "low")), help="Likewise.")
@click.option("--queue", default="", type=QUEUE, help="Likewise.")
@click.option(
    "--concurrency-key", default="", metavar="KEY", help="Instead of the job's; it has a key limit."
)
@click.option(
    "--label", "labels", multiple=True, metavar="KEY=VALUE", help="On the run; can be repeated."
)
@click.option(
    "--traceparent", default="", metavar="TEXT", help="Where it belongs in a trace, as W3C has it."
)
@click.option("--tracestate", default="", metavar="TEXT", help="Beside --traceparent.")
@click.option("--due", type=Instant(), help="Not now but then.")
@click.option("--unique-key", default="", metavar="KEY", help="One run of the job with this key.")
@click.option(
    "--if-taken",
    type=click.Choice(("return-existing", "reject", "replace")),
    help="What to do when another run has the key.",
)
@click.option("--hold-key", type=Length(), help="The key stays taken so long after the end.")
@click.option(
    "--if-running",
    type=click.Choice(("wait", "refuse")),
    help="What to do while the overlap policy lets no run begin.  [wait]",
)
@click.option("--force", is_flag=True, help="Even if the job is paused or a run is under way.")
def trigger(
    session: Invocation, name: str, fitting: str | None, text: str | None, content_type: str | None,
    priority: str | None, queue: str, concurrency_key: str, labels: tuple[str, ...],
    traceparent: str, tracestate: str, due: int | None, unique_key: str,
    if_taken: str | None, hold_key: int | None, if_running: str | None, force: bool,
) -> None:  # fmt: skip
    """Start a run of a job, or of all that fit a filter, manually."""
    if change.is_by_filter(name, fitting, "raftsched job trigger"):
        given = (text, content_type, priority, queue, concurrency_key, due, unique_key, if_taken)
        if any((*given, hold_key, if_running, force, labels, traceparent, tracestate)):
            raise wrong_use("other options with --filter", "runs are as their jobs say", "--filter")
        several = of_jobs(session, fitting, "trigger")
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
    if (sent := payload(text, content_type)) is not None:
        request.payload.CopyFrom(sent)
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


@command(
    job, "next",
    "raftsched job next report -c 10",
    "raftsched job next '30 2 * * *' --zone Europe/Berlin",
    reads=True,
)  # fmt: skip
@click.argument("what", type=JOB, metavar="NAME|EXPRESSION")
@foresight.preview_options
def next_(session: Invocation, what: str, **given: Any) -> None:
    """Show when a job, or a cron expression, happens next, in words and in two zones."""
    if " " in what.strip() or what.startswith("@"):
        foresight.show(session, foresight.of_expressions(session, (what,), given), given)
    else:
        foresight.show(session, foresight.of_job(session, what, given), given)


@command(
    job, "history",
    "raftsched job history report --state failed",
    reads=True, lists=True,
)  # fmt: skip
@NAME
@click.option("--state", type=click.Choice(RUN_STATES), help="Only those.")
@click.option("--filter", "text", default="", help="Such as 'outcome=LATE'.")
def history(session: Invocation, name: str, state: str | None, text: str) -> None:
    """List the runs of a job, newest first."""
    request = m.job_pb2.ListJobHistoryRequest(
        namespace=session.namespace, job=name, filter=condition(text, state=state)
    )
    kind = m.job_pb2.ListJobHistoryResponse
    session.show_list(request, kind, "runs", f"list the history of job {name}")


@command(job, "explain", "raftsched job explain report", reads=True)
@NAME
def explain(session: Invocation, name: str) -> None:
    """Say why a job does not fire, or when it will."""
    request = m.job_pb2.ExplainJobRequest(namespace=session.namespace, job=name)
    answer = session.read(request, m.run_pb2.Explanation, f"explain job {name}")
    show_explanation(session, answer)


@command(
    job, "backfill",
    "raftsched job backfill report --from 2026-11-01 --to 2026-11-08 --rate 30",
    writes=True,
)  # fmt: skip
@NAME
@click.option("--from", "first", type=Instant(), required=True, help="From here on.")
@click.option("--to", "end", type=Instant(), required=True, help="Up to, not including, here.")
@click.option("--rate", type=click.IntRange(1, BACKFILL_RATE_MAX), default=BACKFILL_RATE,
              show_default=True, help="Runs a minute.")  # fmt: skip
def backfill(session: Invocation, name: str, first: int, end: int, rate: int) -> None:
    """Run a past range of scheduled times; what ran already is left alone."""
    from ...sdk.ranges import made

    request = made(
        m.job_pb2.BackfillJobRequest,
        namespace=session.namespace, job=name, runs_per_minute=rate,
        from_time=timestamp(first), to_time=timestamp(end),
    )  # fmt: skip
    answer = session.ask(
        session.write(request), m.job_pb2.BackfillJobResponse, f"backfill job {name}"
    )
    least = rough_text(answer.planned * 60_000 // rate)
    session.done(
        answer,
        f"{many(answer.planned, 'scheduled time')} of job {name} will run, {rate:,} a minute "
        f"({least} at least); {answer.left_alone} left alone. `job explain` says how many are "
        "left, `job drop-backlog` gives them up.",
        then=f"raftsched job explain {name}",
    )


@command(
    job, "drop-backlog", "raftsched job drop-backlog report --yes", writes=True, destroys=True
)  # fmt: skip
@NAME
def drop_backlog(session: Invocation, name: str) -> None:
    """Give up the missed scheduled times of a job that still wait for their run."""
    session.confirm(f"Give up what job {name} has missed?")
    request = session.write(m.job_pb2.DropBacklogRequest(namespace=session.namespace, job=name))
    answer = session.ask(request, m.job_pb2.DropBacklogResponse, f"drop the backlog of job {name}")
    session.done(answer, f"{many(answer.dropped, 'scheduled time')} of job {name} given up.")


@command(
    job, "skip", "raftsched job skip report 2026-12-24T08:00:00Z", writes=True
)  # fmt: skip
@NAME
@click.argument("scheduled", type=Instant(), metavar="INSTANT")
@click.option("--move-to", type=Instant(), help="Do not leave it out, move it.")
@click.option("--add", is_flag=True, help="Add this instant, which no schedule names.")
@click.option("--revert", is_flag=True, help="Take the change of this occurrence back.")
def skip(
    session: Invocation, name: str, scheduled: int, move_to: int | None, add: bool, revert: bool
) -> None:
    """Leave one future occurrence of a job out, or move it, or add one."""
    if sum((move_to is not None, add, revert)) > 1:
        raise wrong_use("--move-to, --add and --revert exclude each other", "", "one of them alone")
    if revert:
        request: Any = m.job_pb2.RevertOccurrenceRequest(
            namespace=session.namespace, job=name, scheduled_time=timestamp(scheduled)
        )
        did = "back to what the schedule says"
    else:
        kinds = m.schedule_pb2.OccurrenceEdit
        edit = kinds(scheduled_time=timestamp(scheduled), kind=kinds.KIND_SKIP)
        did = "left out"
        if move_to is not None:
            edit.kind, did = kinds.KIND_MOVE, "moved"
            edit.moved_to.CopyFrom(timestamp(move_to))
        elif add:
            edit.kind, did = kinds.KIND_ADD, "added"
        request = m.job_pb2.EditOccurrenceRequest(namespace=session.namespace, job=name, edit=edit)
    changed = session.ask(
        session.write(request), m.job_pb2.Job, f"edit an occurrence of job {name}"
    )
    at = session.out.look.time(scheduled)
    session.done(changed, f"{at} of job {name} is {did}.", then=f"raftsched job next {name}")


def of_jobs(session: Invocation, text: str | None, word: str) -> job_pb2.ChangeJobsRequest:
    """A change of all jobs that fit."""
    request = m.job_pb2.ChangeJobsRequest(namespace=session.namespace, filter=text or "")
    kinds = m.job_pb2.ChangeJobsRequest.Change.DESCRIPTOR
    request.change = enum_number(kinds, word)  # type: ignore[assignment]
    return request


def condition(text: str, labels: tuple[str, ...] = (), /, **equal: str | None) -> str:
    """A filter from what options say, joined by AND."""
    parts = [text] if text else []
    parts += [
        f"labels.{key}={_value(value)}" for key, _, value in (one.partition("=") for one in labels)
    ]
    for field, value in equal.items():
        if value:
            parts.append(f"{field}={value.upper() if field == 'state' else _value(value)}")
    if text and len(parts) > 1:
        # It may have an OR.
        parts[0] = f"({text})"
    return " AND ".join(parts)


def _value(text: str) -> str:
    if text and not QUOTED.search(text):
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def show_explanation(session: Invocation, answer: Any) -> None:
    """The sentence for people, and what stands in the way as a table."""
    if not session.out.is_table:
        session.out.one(answer)
        return
    echo(session.out.folded(answer.summary, 2), err=not session.out.for_person)
    # One obstacle is what the sentence says already.
    if len(answer.obstacles) > 1 or (answer.obstacles and not session.out.for_person):
        session.out.items(answer.obstacles, answer)


for _made in (files.apply, files.diff, files.import_, files.export):
    job.add_command(_made)
