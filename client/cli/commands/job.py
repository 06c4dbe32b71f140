"""`raftsched job`: the standing orders."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from .. import messages as m
from ..exits import wrong_use
from ..input.filters import all_of, between, condition, window
from ..input.job_options import spec_options
from ..input.spec import build, path_of, warn_of_shell
from ..lazy import ExampleGroup
from ..names import JOB, QUEUE
from ..options import command
from ..render.clean import echo
from ..session import Invocation, many
from ..times import Instant, rough_text, timestamp
from . import change, example, files, job_verbs, preview, summary, transfer

if TYPE_CHECKING:
    from ..messages import job_pb2

JOB_STATES = ("active", "paused", "finished", "deleting", "broken")
BACKFILL_RATE = 60  # Runs a minute, where none are named.
BACKFILL_RATE_MAX = 60_000
RUN_STATES = ("pending", "running", "retrying", "succeeded", "failed", "cancelled", "skipped")
NAME = click.argument("name", type=JOB)


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
    warn_of_shell(spec)
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
    "raftsched job update report --clear jitter",
    writes=True,
)  # fmt: skip
@NAME
@spec_options
@click.option(
    "--clear",
    multiple=True,
    metavar="PATH",
    help="A field that is unset, such as zone or timing.zone; can be repeated.",
)
@click.option("--etag", default="", help="It is done only to this version of the job.")
def update(session: Invocation, name: str, clear: tuple[str, ...], etag: str, **given: Any) -> None:
    """Change what is named, leave the rest of the job as it is."""
    spec, paths = build(given)
    warn_of_shell(spec)
    cleared = [f"spec.{path_of(path.removeprefix('spec.'))}" for path in clear]
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
@click.option("--state", type=click.Choice(JOB_STATES), help="Only jobs in this state.")
@click.option(
    "--label",
    "-l",
    multiple=True,
    metavar="KEY=VALUE",
    help="Only jobs with this label; can be repeated.",
)
@click.option("--queue", type=QUEUE, help="Only jobs of this queue.")
@click.option("--handler", metavar="NAME", help="Only jobs with this handler.")
@click.option("--calendar", metavar="NAME", help="Only jobs that leave its days out.")
@click.option(
    "--filter",
    "text",
    default="",
    help="Only jobs that fit it, such as 'owner=ann OR labels.team=a'.",
)
@click.option(
    "--order-by",
    default="",
    metavar="FIELD",
    help="The order: name, create_time or next_time.  [name]",
)
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


for _made in (
    job_verbs.delete, job_verbs.pause, job_verbs.resume, job_verbs.repair, job_verbs.trigger,
):  # fmt: skip
    job.add_command(_made)


@command(
    job, "next",
    "raftsched job next report -c 10",
    "raftsched job next '30 2 * * *' --zone Europe/Berlin",
    reads=True,
)  # fmt: skip
@click.argument("what", type=JOB, metavar="NAME|EXPRESSION")
@preview.preview_options
def next_(session: Invocation, what: str, **given: Any) -> None:
    """Show when a job, or a cron expression, happens next, in words and in two zones."""
    if " " in what.strip() or what.startswith("@"):
        preview.show(session, preview.of_expressions(session, (what,), given), given)
    else:
        preview.show(session, preview.of_job(session, what, given), given)


@command(
    job, "history",
    "raftsched job history report --state failed --since 24h",
    "raftsched job history report --since 7d --limit 0 --summary",
    "raftsched job history report -o csv --limit 0 > report.csv",
    reads=True, lists=True,
)  # fmt: skip
@NAME
@click.option("--state", type=click.Choice(RUN_STATES), help="Only runs in this state.")
@click.option("--filter", "text", default="", help="Only runs that fit it, such as 'outcome=LATE'.")
@window("that are scheduled")
@click.option("--summary", "in_short", is_flag=True,
              help="Instead of runs, how many ended how, and how long they took.")  # fmt: skip
def history(
    session: Invocation, name: str, state: str | None, text: str, since: int | None,
    until: int | None, in_short: bool,
) -> None:  # fmt: skip
    """List the runs of a job by scheduled time, newest first."""
    spans = between("scheduled_time", since, until)
    request = m.job_pb2.ListJobHistoryRequest(
        namespace=session.namespace, job=name,
        filter=all_of(condition(text, state=state), " AND ".join(spans)),
    )  # fmt: skip
    kind, doing = m.job_pb2.ListJobHistoryResponse, f"list the history of job {name}"
    if in_short:
        summary.show(session, session.pages(request, kind, doing))
        return
    session.show_list(request, kind, "runs", doing)


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
@click.option("--from", "first", type=Instant(), required=True, help="The first scheduled time.")
@click.option("--to", "end", type=Instant(), required=True, help="The end, which is not included.")
@click.option("--rate", type=click.IntRange(1, BACKFILL_RATE_MAX), default=BACKFILL_RATE,
              show_default=True, help="How many runs begin in a minute.")  # fmt: skip
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
@click.option(
    "--move-to", type=Instant(), help="The time to which it is moved, instead of left out."
)
@click.option("--add", is_flag=True, help="It is added: no schedule names it.")
@click.option("--revert", is_flag=True, help="A change of this occurrence is taken back.")
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
    at = session.out.formats.time(scheduled)
    session.done(changed, f"{at} of job {name} is {did}.", then=f"raftsched job next {name}")


def show_explanation(session: Invocation, answer: Any) -> None:
    """The sentence for people, and what stands in the way as a table."""
    if not session.out.is_table:
        session.out.one(answer)
        return
    echo(session.out.folded(answer.summary, 2), err=not session.out.for_person)
    # One obstacle is what the sentence says already.
    if len(answer.obstacles) > 1 or (answer.obstacles and not session.out.for_person):
        session.out.items(answer.obstacles, answer)


for _made in (
    example.init, example.schema, files.apply, files.diff, transfer.import_, transfer.export,
):  # fmt: skip
    job.add_command(_made)
