"""The options that make up a job's spec: their words stand in files, too."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import click

from ..times import Instant, Length

LENGTH = Length()
INSTANT = Instant()
PRIORITIES = click.Choice(("high", "medium", "low"))
CONDITIONS = ("success", "failure", "any-end")


@dataclass(frozen=True, slots=True)
class SpecOption:
    """An option that sets one field of the spec."""

    flag: str
    path: str
    help: str
    type: Any = None
    many: bool = False
    metavar: str | None = None

    @property
    def variable(self) -> str:
        return self.flag.lstrip("-").replace("-", "_")


FIELDS = (
    SpecOption("--zone", "timing.zone",
          "The zone in which the schedule is read, such as Europe/Berlin.  [UTC]"),
    SpecOption("--queue", "queue", "The queue in which its runs wait.  [default]"),
    SpecOption("--priority", "priority", "Runs of a higher one start first.  [medium]", PRIORITIES),
    SpecOption("--label", "labels", "A label of the job; can be repeated.", many=True,
          metavar="KEY=VALUE"),
    SpecOption("--owner", "owner", "Whom to ask about the job."),
    SpecOption("--description", "description", "What the job is for, for people."),
    SpecOption("--jitter", "timing.jitter",
          "Its times are delayed by up to this, always by the same.  [0s]", LENGTH),
    SpecOption("--start", "timing.start_time", "Its schedule begins at this instant.  [at once]",
          INSTANT),
    SpecOption("--end", "timing.end_time", "Its schedule ends before this instant.  [never]",
          INSTANT),
    SpecOption("--max-runs", "timing.max_runs",
          "The job is finished after so many scheduled times.  [no limit]", int),
    SpecOption("--gap", "timing.gap_rule",
          "What a time does that the clock skips in spring (DST).  [next]",
          click.Choice(("next", "skip"))),
    SpecOption("--fold", "timing.fold_rule",
          "Which of two runs when the clock repeats an hour (DST).  [first]",
          click.Choice(("first", "second", "both"))),
    SpecOption("--exclude-calendar", "timing.exclude_calendars",
          "A calendar whose days are left out; can be repeated.", many=True, metavar="NAME"),
    SpecOption("--misfire", "misfire.rule",
          "Which of the runs that were missed, in an outage or a pause, are made up.  [latest]",
          click.Choice(("skip", "latest", "earliest", "all"))),
    SpecOption("--misfire-max", "misfire.maximum",
          "Of all runs that were missed the newest so many are made up.  [100]",
          click.IntRange(1)),
    SpecOption("--grace", "misfire.grace", "A run that is this late is not missed yet.  [1m]",
          LENGTH),
    SpecOption("--start-deadline", "misfire.start_deadline",
          "A run that has not started within this is skipped.  [no limit]", LENGTH),
    SpecOption("--overlap", "overlap.rule",
          "What is done while the previous run is still going.  [skip; allow without a schedule]",
          click.Choice(("allow", "skip", "queue-one", "queue", "replace"))),
    SpecOption("--overlap-limit", "overlap.limit",
          "The maximum that may be going, or for queue wait.  [1; allow has none]", int),
    SpecOption("--max-attempts", "retry.max_attempts",
          "The maximum of attempts of a run; 1 means no retry.  [4]", click.IntRange(1)),
    SpecOption("--retry-first", "retry.first", "How long the first retry waits.  [5s]", LENGTH),
    SpecOption("--retry-cap", "retry.cap", "No retry waits longer.  [10m]", LENGTH),
    SpecOption("--retry-factor", "retry.factor_percent",
          "Each retry waits so many percent of the one before.  [200]", click.IntRange(100, 1_000)),
    SpecOption("--retry-jitter", "retry.jitter_percent",
          "A retry may wait so many percent longer.  [10]", click.IntRange(0, 100)),
    SpecOption("--retry-total", "retry.total",
          "No attempt begins so long after the run was ready.  [no limit]", LENGTH),
    SpecOption("--fatal", "retry.fatal_kinds",
          "A kind of error that is non-retryable; can be repeated.", many=True, metavar="KIND"),
    SpecOption("--attempt-timeout", "timeouts.attempt",
          "An attempt that takes longer has failed.  [no limit]", LENGTH),
    SpecOption("--run-timeout", "timeouts.run",
          "A run that takes longer, with all attempts, has failed.  [no limit]", LENGTH),
    SpecOption("--queue-timeout", "timeouts.queue",
          "A run that waits longer for a worker has failed.  [no limit]", LENGTH),
    SpecOption("--heartbeat-timeout", "timeouts.heartbeat",
          "An attempt that reports no progress for so long has failed.  [no limit]", LENGTH),
    SpecOption("--concurrency", "concurrency.job",
          "The maximum of its runs that are carried out at once.  [no limit]", int),
    SpecOption("--concurrency-key", "concurrency.key",
          "A limit shared by jobs; payload.customer is read from each run's payload.  [none]",
          metavar="KEY"),
    SpecOption("--key-limit", "concurrency.key_limit",
          "The maximum of runs with that key that are carried out at once.", int),
    SpecOption("--delivery", "delivery",
          "Whether an attempt that was lost may be repeated.  [at-least-once]",
          click.Choice(("at-least-once", "at-most-once"))),
    SpecOption("--worker-label", "worker_labels",
          "A label that a worker must have; can be repeated.", many=True, metavar="KEY=VALUE"),
    SpecOption("--join", "upstream.join", "How many of several --after must have ended.  [all]",
          click.Choice(("all", "any"))),
    SpecOption("--stuck-after", "upstream.stuck_after",
          "A flow run that waits longer for its upstream is stuck.  [24h]", LENGTH),
    SpecOption("--keep-history", "keep_history",
          "How long runs that ended well are kept.  [as long as the namespace says]", LENGTH),
    SpecOption("--delete-after", "delete_after",
          "The job is deleted so long after nothing is left to run.  [never]", LENGTH),
    SpecOption("--pause-on-failure", "pause_on_failure",
          "The job is paused after so many failed runs in a row.  [never]",
          click.IntRange(0, 1_000)),
    SpecOption("--on-failure", "on_failure.job",
          "A job that is triggered, with what failed as payload.  [none]", metavar="JOB"),
)  # fmt: skip

# Those that make more than one field, in the order of the help page.
ACTIONS = (
    click.option("--handler", metavar="NAME", help="A handler that a worker has registered."),
    click.option(
        "--http", metavar="[METHOD] URL", help="An address that is called.  [METHOD: POST]"
    ),
    click.option(
        "--header", multiple=True, metavar="'NAME: VALUE'",
        help="For --http and --grpc; can be repeated. secret://NAME in it is a secret.",
    ),
    click.option(
        "--expect-status", multiple=True, type=click.IntRange(100, 599), metavar="STATUS",
        help="For --http: a status that is a success; can be repeated.  [200 to 299]",
    ),
    click.option(
        "--shell", metavar="COMMAND",
        help="A command that is run; no shell looks at it. Its environment is what --env says and"
        " which run it is (RAFTSCHED_RUN, ...); what it prints is the result, up to 64 KiB.",
    ),
    click.option("--use-shell", is_flag=True, help="For --shell: /bin/sh reads the command."),
    click.option(
        "--env", multiple=True, metavar="KEY=VALUE",
        help="For --shell; can be repeated. secret://NAME in it is a secret.",
    ),
    click.option(
        "--warn-on-exit", multiple=True, type=click.IntRange(1, 255), metavar="CODE",
        help="For --shell: a code that is a success with a warning; can be repeated.  [none]",
    ),
    click.option(
        "--grpc", metavar="HOST:PORT/SERVICE/METHOD", help="A method that is called by gRPC."
    ),
    click.option("--tls", is_flag=True, help="For --grpc: the connection is encrypted."),
)  # fmt: skip
SCHEDULES = (
    click.option("--cron", multiple=True, metavar="EXPRESSION",
                 help="When it runs; can be repeated."),
    click.option("--every", multiple=True, type=LENGTH, help="It runs at a fixed rate."),
    click.option("--at", multiple=True, type=INSTANT,
                 help="It runs once, such as +10m or tomorrow 09:00; in the past means now."),
    click.option("--after-end", type=LENGTH, help="It runs so long after its last run has ended."),
    click.option("--after", multiple=True, metavar="JOB[:END]",
                 help=f"It runs after another job; END is {', '.join(CONDITIONS)}.  [success]"),
)  # fmt: skip
PAYLOAD = click.option("--payload", metavar="TEXT|@FILE", help="What the handler gets.  [nothing]")
CONTENT_TYPE = click.option(
    "--content-type", metavar="TYPE",
    help="The payload's type.  [JSON if it is some, else text, or bytes from a file]",
)  # fmt: skip


def spec_options(body: Callable[..., None]) -> Callable[..., None]:
    for field in reversed(FIELDS):
        body = click.option(
            field.flag, field.variable, type=field.type, multiple=field.many, help=field.help,
            metavar=field.metavar,
        )(body)  # fmt: skip
    for option in reversed((*ACTIONS, *SCHEDULES, PAYLOAD, CONTENT_TYPE)):
        body = option(body)
    return body
