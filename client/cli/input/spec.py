"""From the options of a job to its spec."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..exits import reason_of, wrong_use
from ..render.clean import echo
from ..times import EPOCH, duration, timestamp
from .job_options import CONDITIONS, FIELDS, SpecOption

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from ..messages import common_pb2, job_pb2, schedule_pb2

QUOTED_CHARS = 80  # Of what was typed, in an error.
# Words that only a shell understands.
SHELL_WORDS = frozenset({"|", "||", "&", "&&", ";", ">", ">>", "<", "2>", "2>&1"})
# What stands beside an action, and beside which.
BESIDE = {
    "header": (("http", "grpc"), "a header of a call"),
    "expect_status": (("http",), "a status of an answer"),
    "use_shell": (("shell",), "how a command is read"),
    "env": (("shell",), "the environment of a command"),
    "warn_on_exit": (("shell",), "an exit code of a command"),
    "tls": (("grpc",), "how a call is encrypted"),
}
_SCHEDULE_NAMES = ("cron", "every", "at", "after_end")


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


def path_of(word: str) -> str:
    """Where a word of the options stands in a spec; what is a path already stays one."""
    from ..messages import job_pb2

    word = word.replace("-", "_")
    if word in job_pb2.JobSpec.DESCRIPTOR.fields_by_name:
        return word
    paths = {field.variable: field.path for field in FIELDS}
    paths |= dict.fromkeys(("handler", "http", "shell", "grpc"), "action")
    paths |= dict.fromkeys(_SCHEDULE_NAMES, "schedules") | {"after": "upstream.jobs"}
    return paths.get(word, word)


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
            raise wrong_use(f"cannot read {flag} {cut(text)!r}", "", f"{flag} KEY=VALUE")
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
    for flag, (actions, what) in BESIDE.items():
        if given[flag] and not {*named} & {*actions}:
            shown, needed = flag.replace("_", "-"), " or ".join(f"--{one}" for one in actions)
            raise wrong_use(
                f"--{shown} without {needed}", f"it is {what}", f"the same with --{actions[0]}"
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
            http.expected_statuses.extend(given["expect_status"])
            return job_pb2.Action(http=http)
        case "grpc":
            # The target may be a URI with slashes of its own.
            target, *method = text.rsplit("/", 2)
            grpc = job_pb2.GrpcAction(target=target, method="/".join(method), tls=given["tls"])
            grpc.metadata.update(headers(given["header"]))
            return job_pb2.Action(grpc=grpc)
    return job_pb2.Action(shell=_shell(text, given))


def _shell(text: str, given: Mapping[str, Any]) -> job_pb2.ShellAction:
    from ..messages import job_pb2

    try:
        argv = [text] if given["use_shell"] else shlex.split(text)
    except ValueError as wrong:
        raise wrong_use(
            f"cannot read --shell {cut(text)!r}", str(wrong), "close the quotes"
        ) from wrong
    return job_pb2.ShellAction(
        argv=argv, environment=pairs("--env", given["env"]), use_shell=given["use_shell"],
        warning_exit_codes=given["warn_on_exit"],
    )  # fmt: skip


def warn_of_shell(spec: job_pb2.JobSpec) -> None:
    """Say that a command has words which only a shell understands."""
    argv = spec.action.shell.argv
    found = next((word for word in argv if word in SHELL_WORDS), "")
    if found:
        echo(
            f"Note: no shell looks at the command, so {found!r} is handed to {argv[0]} as a word; "
            "with --use-shell a shell does", err=True,
        )  # fmt: skip


def schedules(given: Mapping[str, Any]) -> list[schedule_pb2.Schedule]:
    from ...sdk.schedules import after_end, cron, every, once

    whens = [cron(text) for text in given["cron"]]
    whens += [every(timedelta(milliseconds=ms)) for ms in given["every"]]
    whens += [once(EPOCH + timedelta(milliseconds=ms)) for ms in given["at"]]
    if given["after_end"] is not None:
        whens.append(after_end(timedelta(milliseconds=given["after_end"])))
    return [when.message for when in whens]


def _upstream(text: str) -> job_pb2.Dependency:
    from ..messages import job_pb2

    name, mark, condition = text.partition(":")
    if mark and condition not in CONDITIONS:
        raise wrong_use(
            f"cannot read --after {cut(text)!r}",
            f"{condition!r} is no end; there are {', '.join(CONDITIONS)}",
            f"--after {name}:{CONDITIONS[0]}",
        )
    enum = job_pb2.Dependency.Condition.DESCRIPTOR
    made = job_pb2.Dependency(job=name)
    if mark:
        made.condition = enum_number(enum, condition)  # type: ignore[assignment]
    return made


def cut(text: str) -> str:
    """What was typed, in an error about it."""
    return text if len(text) <= QUOTED_CHARS else f"{text[:QUOTED_CHARS]}…"


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
        why = "looks like JSON and is none" if kind is None else "is not valid JSON"
        raise wrong_use(
            f"the payload {cut(text)!r} {why}", fault,
            "mend it, or say what it is: --content-type text/plain",
        )  # fmt: skip
    if kind is None:
        other = "application/octet-stream" if is_file else "text/plain"
        kind = other if fault else json_text.MEDIA
    return common_pb2.Payload(data=data, content_type=kind)
