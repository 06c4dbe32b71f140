"""The options that make up a job's spec, for `job create` and `job update`."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..exits import reason_of, wrong_use
from ..render.clean import echo
from ..times import Instant, Length, duration, timestamp

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from ..messages import common_pb2, job_pb2, schedule_pb2

QUOTED_CHARS = 80  # Of what was typed, in an error.
LENGTH = Length()
INSTANT = Instant()
# Words that only a shell understands.
SHELL_WORDS = frozenset({"|", "||", "&", "&&", ";", ">", ">>", "<", "2>", "2>&1"})
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
    SpecOption("--zone", "timing.zone", "IANA zone of the schedule, such as Europe/Berlin."),
    SpecOption("--queue", "queue", "Where its runs wait.  [default]"),
    SpecOption("--priority", "priority", "Which runs go first.", PRIORITIES),
    SpecOption("--label", "labels", "A label; can be repeated.", many=True, metavar="KEY=VALUE"),
    SpecOption("--owner", "owner", "Whom to ask about it."),
    SpecOption("--description", "description", "For people."),
    SpecOption("--jitter", "timing.jitter", "Delay each job by its own part of this time.", LENGTH),
    SpecOption("--start", "timing.start_time", "Nothing before.", INSTANT),
    SpecOption("--end", "timing.end_time", "Nothing from here on.", INSTANT),
    SpecOption("--max-runs", "timing.max_runs", "Finished after so many.", int),
    SpecOption("--gap", "timing.gap_rule", "For times that the clock skips.",
          click.Choice(("next", "skip"))),
    SpecOption("--fold", "timing.fold_rule", "For times that come twice.",
          click.Choice(("first", "second", "both"))),
    SpecOption("--exclude-calendar", "timing.exclude_calendars", "Days off; can be repeated.",
          many=True, metavar="NAME"),
    SpecOption("--misfire", "misfire.rule", "What runs of what was missed.",
          click.Choice(("skip", "latest", "earliest", "all"))),
    SpecOption("--misfire-max", "misfire.maximum", "Of all missed: the newest so many.  [100]",
          click.IntRange(1)),
    SpecOption("--grace", "misfire.grace", "So late still counts as in time.", LENGTH),
    SpecOption("--start-deadline", "misfire.start_deadline", "Skip what is later.", LENGTH),
    SpecOption("--overlap", "overlap.rule", "When the last run has not ended.",
          click.Choice(("allow", "skip", "queue-one", "queue", "replace"))),
    SpecOption("--overlap-limit", "overlap.limit", "So many may be under way.", int),
    SpecOption("--max-attempts", "retry.max_attempts", "Attempts in all; 1 is no retry.  [4]",
          click.IntRange(1)),
    SpecOption("--retry-first", "retry.first", "The first wait.  [5s]", LENGTH),
    SpecOption("--retry-cap", "retry.cap", "No wait is longer.  [10m]", LENGTH),
    SpecOption("--fatal", "retry.fatal_kinds", "Kinds of errors not to retry.", many=True,
          metavar="KIND"),
    SpecOption("--attempt-timeout", "timeouts.attempt", "For one attempt.", LENGTH),
    SpecOption("--run-timeout", "timeouts.run", "For the run, all attempts.", LENGTH),
    SpecOption("--queue-timeout", "timeouts.queue", "For waiting in the queue.", LENGTH),
    SpecOption("--heartbeat-timeout", "timeouts.heartbeat", "Between progress reports.", LENGTH),
    SpecOption("--concurrency", "concurrency.job", "Runs leased at once.", int),
    SpecOption("--concurrency-key", "concurrency.key",
          "A limit shared by jobs; payload.customer is read from each run's payload.",
          metavar="KEY"),
    SpecOption("--key-limit", "concurrency.key_limit", "The limit of that key.", int),
    SpecOption("--delivery", "delivery", "Whether an attempt may be repeated.",
          click.Choice(("at-least-once", "at-most-once"))),
    SpecOption("--worker-label", "worker_labels", "The worker must have it.", many=True,
          metavar="KEY=VALUE"),
    SpecOption("--join", "upstream.join", "Of several --after.", click.Choice(("all", "any"))),
    SpecOption("--keep-history", "keep_history", "For runs that ended well.", LENGTH),
    SpecOption("--delete-after", "delete_after", "Once nothing is left.", LENGTH),
    SpecOption("--pause-on-failure", "pause_on_failure", "After so many failed runs in a row.",
          click.IntRange(0, 1_000)),
    SpecOption("--on-failure", "on_failure.job", "Trigger it with what failed as payload.",
          metavar="JOB"),
)  # fmt: skip

# Those that make more than one field, in the order of the help page.
ACTIONS = (
    click.option("--handler", metavar="NAME", help="A handler that a worker has registered."),
    click.option(
        "--http", metavar="[METHOD] URL", help="Call this by HTTP; without a METHOD by POST."
    ),
    click.option(
        "--header",
        multiple=True,
        metavar="'NAME: VALUE'",
        help="For --http; can be repeated. secret://NAME in it is a secret.",
    ),
    click.option(
        "--shell",
        metavar="COMMAND",
        help="Run this command; no shell looks at it. Its environment is what --env says and"
        " nothing else; what it prints is the result, up to 64 KiB.",
    ),
    click.option(
        "--env",
        multiple=True,
        metavar="KEY=VALUE",
        help="For --shell; can be repeated. secret://NAME in it is a secret.",
    ),
    click.option(
        "--warn-on-exit",
        multiple=True,
        type=click.IntRange(1, 255),
        metavar="CODE",
        help="For --shell: it succeeded with a warning; can be repeated.",
    ),
    click.option("--grpc", metavar="HOST:PORT/SERVICE/METHOD", help="Call this by gRPC."),
)
SCHEDULES = (
    click.option("--cron", multiple=True, metavar="EXPRESSION", help="When; can be repeated."),
    click.option("--every", multiple=True, type=LENGTH, help="At a fixed rate."),
    click.option("--at", multiple=True, type=INSTANT, help="Once; in the past means now."),
    click.option("--after-end", type=LENGTH, help="So long after the end of the last run."),
    click.option("--after", multiple=True, metavar="JOB[:END]",
                 help=f"After another job; END is {', '.join(CONDITIONS)}."),
)  # fmt: skip
PAYLOAD = click.option("--payload", metavar="TEXT|@FILE", help="Handed to the handler.")
CONTENT_TYPE = click.option(
    "--content-type", metavar="TYPE",
    help="Of the payload.  [JSON if it is some, else text, or bytes from a file]",
)  # fmt: skip
_SCHEDULE_NAMES = ("cron", "every", "at", "after_end")


def spec_options(body: Callable[..., None]) -> Callable[..., None]:
    for field in reversed(FIELDS):
        body = click.option(
            field.flag, field.variable, type=field.type, multiple=field.many, help=field.help,
            metavar=field.metavar,
        )(body)  # fmt: skip
    for option in reversed((*ACTIONS, *SCHEDULES, PAYLOAD, CONTENT_TYPE)):
        body = option(body)
    return body


def build(given: Mapping[str, Any]) -> tuple[job_pb2.JobSpec, list[str]]:
    """The spec, and the paths below the job that were given."""
    from ..messages import job_pb2

    spec = job_pb2.JobSpec()
    paths = []
    if action := _action(given):
        spec.action.CopyFrom(action)
        paths.append("spec.action")
    if any(given[name] not in (None, ()) for name in _SCHEDULE_NAMES):
        spec.schedules.extend(schedules(given))
        paths.append("spec.schedules")
    if given["after"]:
        spec.upstream.jobs.extend(_upstream(text) for text in given["after"])
        paths.append("spec.upstream.jobs")
    if (made := payload(given["payload"], given["content_type"])) is not None:
        spec.payload.CopyFrom(made)
        paths.append("spec.payload")
    for field in FIELDS:
        value = given[field.variable]
        if value not in (None, ()):
            put(spec, field, value)
            paths.append(f"spec.{field.path}")
    return spec, paths


def put(spec: Message, field: SpecOption, value: Any) -> None:
    """Set the field that an option speaks of; its kind follows from the contract."""
    from ...sdk import ranges

    *parents, last = field.path.split(".")
    owner: Any = spec
    for name in parents:
        owner = getattr(owner, name)
    kind = owner.DESCRIPTOR.fields_by_name[last]
    if field.metavar == "KEY=VALUE":
        getattr(owner, last).update(pairs(field.flag, value))
    elif field.many:
        getattr(owner, last).extend(value)
    elif kind.enum_type is not None:
        setattr(owner, last, enum_number(kind.enum_type, value))
    elif kind.message_type is not None:
        is_length = kind.message_type.name == "Duration"
        getattr(owner, last).CopyFrom(duration(value) if is_length else timestamp(value))
    else:
        ranges.put(owner, last, value)


def enum_number(enum: Any, text: str) -> int:  # An EnumDescriptor.
    prefix = enum.values[0].name.removesuffix("UNSPECIFIED")
    return int(enum.values_by_name[prefix + text.upper().replace("-", "_")].number)


def pairs(flag: str, texts: tuple[str, ...]) -> dict[str, str]:
    found = {}
    for text in texts:
        key, mark, value = text.partition("=")
        if not mark or not key:
            raise wrong_use(f"cannot read {flag} {text!r}", "", f"{flag} KEY=VALUE")
        found[key] = value
    return found


def headers(texts: tuple[str, ...]) -> dict[str, str]:
    """As they stand in a request; each once, since a job has one value for each."""
    found: dict[str, str] = {}
    for text in texts:
        name, mark, value = (part.strip() for part in text.partition(":"))
        if not mark or not name:
            # What was typed may be a secret, so it is not shown.
            raise wrong_use("cannot read a --header", "there is no name before a colon in it",
                            "--header 'Accept: text/plain'")  # fmt: skip
        if name.lower() in {one.lower() for one in found}:
            raise wrong_use(f"--header {name} twice", "it can have one value", "one of them alone")
        found[name] = value
    return found


def _action(given: Mapping[str, Any]) -> job_pb2.Action | None:
    from ..messages import job_pb2

    named = [name for name in ("handler", "http", "shell", "grpc") if given[name]]
    if len(named) > 1:
        flags = " and ".join(f"--{name}" for name in named)
        raise wrong_use(f"{flags} together", "a job does one thing", f"--{named[0]} alone")
    for flag, action, what in (
        ("env", "shell", "the environment of a command"), ("header", "http", "a header of a call"),
        ("warn_on_exit", "shell", "an exit code of a command"),
    ):  # fmt: skip
        if given[flag] and named != [action]:
            shown = flag.replace("_", "-")
            raise wrong_use(
                f"--{shown} without --{action}", f"it is {what}", f"the same with --{action}"
            )
    if not named:
        return None
    text = given[named[0]]
    match named[0]:
        case "handler":
            return job_pb2.Action(handler=text)
        case "http":
            method, _, url = text.rpartition(" ")
            http = job_pb2.HttpAction(method=method.upper(), url=url)
            http.headers.update(headers(given["header"]))
            return job_pb2.Action(http=http)
        case "grpc":
            target, _, method = text.partition("/")
            return job_pb2.Action(grpc=job_pb2.GrpcAction(target=target, method=method))
    try:
        argv, environment = shlex.split(text), pairs("--env", given["env"])
        warn_of_shell(argv)
        codes = given["warn_on_exit"]
        return job_pb2.Action(shell=job_pb2.ShellAction(
            argv=argv, environment=environment, warning_exit_codes=codes,
        ))  # fmt: skip
    except ValueError as wrong:
        raise wrong_use(f"cannot read --shell {text!r}", str(wrong), "close the quotes") from wrong


def warn_of_shell(argv: list[str]) -> None:
    found = next((word for word in argv if word in SHELL_WORDS), "")
    if found:
        echo(
            f"Note: no shell looks at the command, so {found!r} is handed to {argv[0]} as a word; "
            "for a shell write: sh -c '…'", err=True,
        )  # fmt: skip


def schedules(given: Mapping[str, Any]) -> list[schedule_pb2.Schedule]:
    from ..messages import schedule_pb2

    made = [
        schedule_pb2.Schedule(cron=schedule_pb2.Cron(expression=text)) for text in given["cron"]
    ]
    made += [
        schedule_pb2.Schedule(interval=schedule_pb2.Interval(every=duration(ms)))
        for ms in given["every"]
    ]
    made += [
        schedule_pb2.Schedule(once=schedule_pb2.Once(time=timestamp(ms))) for ms in given["at"]
    ]
    if given["after_end"] is not None:
        rest = schedule_pb2.AfterEnd(delay=duration(given["after_end"]))
        made.append(schedule_pb2.Schedule(after_end=rest))
    return made


def _upstream(text: str) -> job_pb2.Dependency:
    from ..messages import job_pb2

    name, mark, condition = text.partition(":")
    if mark and condition not in CONDITIONS:
        raise wrong_use(
            f"cannot read --after {text!r}",
            f"{condition!r} is no end; there are {', '.join(CONDITIONS)}",
            f"--after {name}:{CONDITIONS[0]}",
        )
    enum = job_pb2.Dependency.Condition.DESCRIPTOR
    made = job_pb2.Dependency(job=name)
    if mark:
        made.condition = enum_number(enum, condition)  # type: ignore[assignment]
    return made


def payload(text: str | None, kind: str | None = None) -> common_pb2.Payload | None:
    """Text as it is or a file; what is JSON is called so."""
    from ....proto import json_text
    from ..messages import common_pb2

    if text is None:
        if kind is not None:
            raise wrong_use("--content-type without --payload", "", "both, or neither")
        return None
    is_file = text.startswith("@")
    if is_file:
        try:
            data = Path(text[1:]).read_bytes()
        except OSError as wrong:
            raise wrong_use(
                f"cannot read {text[1:]}", reason_of(wrong), "--payload @FILE"
            ) from wrong
    else:
        data = text.encode()
    fault = json_text.fault(data)
    looks = text.endswith(".json") if is_file else text.lstrip()[:1] in ("{", "[")
    if fault and (json_text.is_json(kind) if kind is not None else looks):
        shown = text if len(text) <= QUOTED_CHARS else f"{text[:QUOTED_CHARS]}…"
        why = "looks like JSON and is none" if kind is None else "is not valid JSON"
        raise wrong_use(
            f"the payload {shown!r} {why}", fault,
            "mend it, or say what it is: --content-type text/plain",
        )  # fmt: skip
    if kind is None:
        other = "application/octet-stream" if is_file else "text/plain"
        kind = other if fault else json_text.MEDIA
    return common_pb2.Payload(data=data, content_type=kind)
