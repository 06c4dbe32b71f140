"""What a user may write. Each function returns all faults it finds; none raises."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

from google.protobuf.message import Message

from ...proto import json_text, secret_text
from ...proto.v1 import common_pb2, error_pb2, job_pb2
from ..core import limits
from ..core.instants import iso_text, to_ms
from ..core.rejection import Fault
from ..schedule.describe import length
from ..schedule.zones import LATEST_MS, YEAR_MAX, YEAR_MIN
from . import concurrency_key, hiding
from .specs import EXECUTORS

INVALID = error_pb2.ERROR_REASON_FIELD_INVALID
REQUIRED = error_pb2.ERROR_REASON_FIELD_REQUIRED
LIMIT = error_pb2.ERROR_REASON_LIMIT_EXCEEDED
TOO_LARGE = error_pb2.ERROR_REASON_PAYLOAD_TOO_LARGE
NAME = re.compile(r"[a-z0-9][a-z0-9_-]*", re.ASCII)
METHODS = frozenset({"", "GET", "POST", "PUT", "PATCH", "DELETE"})
HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", re.ASCII)  # A token of RFC 9110.
CREDENTIALS = re.compile(r"https?://[^/?#\\]*@")
# Values of keys that end with -bin are bytes, and these are texts.
RPC_KEY = re.compile(r"(?!grpc-)(?!.*-bin$)[0-9a-z_.-]+", re.ASCII | re.IGNORECASE)
RPC_METHOD = re.compile(r"[A-Za-z_][\w.]*/[A-Za-z_]\w*", re.ASCII)


def name(field: str, value: str) -> list[Fault]:
    if not value:
        return [Fault(field, REQUIRED, "it is empty; give a name such as 'daily-report'")]
    if len(value) > limits.NAME_CHARS:
        return [_long(field, len(value), limits.NAME_CHARS)]
    if NAME.fullmatch(value) is None:
        near = re.sub(r"[^a-z0-9_-]+", "-", value.lower()).strip("-_")
        hint = f"; '{near}' would do" if near else ""
        message = f"'{value}' is no name: use a-z, 0-9, '-' and '_', first a letter or digit{hint}"
        return [Fault(field, INVALID, message)]
    return []


def text(field: str, value: str, most: int) -> list[Fault]:
    return [_long(field, len(value), most)] if len(value) > most else []


def _long(field: str, actual: int, most: int) -> Fault:
    return Fault(field, LIMIT, f"it has {actual} characters; the most is {most}")


def between(field: str, value: int, least: int, most: int) -> list[Fault]:
    if least <= value <= most:
        return []
    return [Fault(field, INVALID, f"it is {value}; it must be from {least} to {most}")]


def count(field: str, actual: int, most: int) -> list[Fault]:
    if actual <= most:
        return []
    return [Fault(field, LIMIT, f"there are {actual}; the most is {most}")]


def span(
    field: str, message: Message, name: str, least_ms: int, most_ms: int = limits.LONG_MS
) -> list[Fault]:
    """A duration, if it is set."""
    if not message.HasField(name):
        return []
    ms = to_ms(getattr(message, name))
    if least_ms <= ms <= most_ms:
        return []
    actual, least, most = (length(each, counted=True) for each in (ms, least_ms, most_ms))
    return [Fault(field, INVALID, f"it is {actual}; it must be from {least} to {most}")]


def instant(field: str, message: Message, name: str) -> list[Fault]:
    if not message.HasField(name):
        return []
    stamp = getattr(message, name)
    if 0 <= to_ms(stamp) < LATEST_MS and 0 <= stamp.nanos < 1_000_000_000:
        return []
    actual = f"it is {iso_text(to_ms(stamp))}"
    return [Fault(field, INVALID, f"{actual}; it must be in the years {YEAR_MIN} to {YEAR_MAX}")]


def period(message: Message, from_ms: int, end_ms: int) -> list[Fault]:
    """From one instant to another, each as it was asked for or as it is if that is unset."""
    faults = instant("from_time", message, "from_time") + instant("to_time", message, "to_time")
    if not faults and from_ms > end_ms:
        first, end = iso_text(from_ms), iso_text(end_ms)
        why = f"it is {end}, before from_time, {first}; give from_time before it"
        if not message.HasField("to_time"):
            why = f"it is {first}, after to_time, {end} if not given; give both"
        place = "to_time" if message.HasField("to_time") else "from_time"
        faults.append(Fault(place, INVALID, why))
    return faults


def enum(field: str, message: Message, name: str) -> list[Fault]:
    number = getattr(message, name)
    if not number:
        # What was left unset is known, and looking it up is the dearest part of many a check.
        return []
    kind = message.DESCRIPTOR.fields_by_name[name].enum_type
    assert kind is not None, f"{name} is no enum"
    if number in kind.values_by_number:
        return []
    known = ", ".join(value.name for value in kind.values[1:])
    return [Fault(field, INVALID, f"{number} is not known; use one of {known}")]


def labels(field: str, values: Mapping[str, str], most: int) -> list[Fault]:
    faults = count(field, len(values), most)
    for key, value in sorted(values.items()):
        faults += name(f"{field}[{key}]", key) + text(f"{field}[{key}]", value, limits.LABEL_CHARS)
        if any(char < " " or char == "\x7f" for char in value):
            message = f"{value[:40]!r} has a control character; take it out"
            faults.append(Fault(f"{field}[{key}]", INVALID, message))
    return faults


def payload(field: str, value: common_pb2.Payload) -> list[Fault]:
    if value.hidden:
        return [hiding.sent_back(field)]
    faults: list[Fault] = []
    if content_type := value.content_type:
        faults = text(f"{field}.content_type", content_type, limits.CONTENT_TYPE_CHARS)
    size = len(value.data)
    if size > limits.PAYLOAD_BYTES:
        message = (
            f"it has {size} bytes; the most is {limits.PAYLOAD_BYTES}. Store it elsewhere and "
            "send its address"
        )
        faults.append(Fault(f"{field}.data", TOO_LARGE, message))
    elif content_type and json_text.is_json(content_type) and (why := json_text.fault(value.data)):
        message = (
            f"it is not valid JSON ({why}); mend it, or say what it is by another content_type"
        )
        faults.append(Fault(f"{field}.data", INVALID, message))
    return faults


def notes(spec: job_pb2.JobSpec) -> list[Fault]:
    """What is wrong with what only people read."""
    faults = labels("spec.labels", spec.labels, limits.LABELS)
    faults += text("spec.owner", spec.owner, limits.OWNER_CHARS)
    return faults + text("spec.description", spec.description, limits.DESCRIPTION_CHARS)


def spec_faults(spec: job_pb2.JobSpec) -> list[Fault]:
    """What is wrong with a spec, but for schedules, notes and payload. What is not set costs
    nothing."""
    faults: list[Fault] = []
    for field, value in spec.ListFields():
        check = PARTS.get(field.name)
        if check is not None:
            faults += check(value)
        elif field.name in ("priority", "delivery"):
            faults += enum(f"spec.{field.name}", spec, field.name)
        elif field.name == "pause_on_failure":
            faults += between("spec.pause_on_failure", value, 0, limits.PAUSE_ON_FAILURE)
        elif field.name in ("keep_history", "delete_after"):
            least_ms = limits.SECOND_MS if field.name == "keep_history" else 0
            faults += span(f"spec.{field.name}", spec, field.name, least_ms)
    if not spec.HasField("action"):
        faults += action(spec.action)
    return faults


def action(action: job_pb2.Action) -> list[Fault]:
    return _kind_of_action(action) + _secrets(action)


def _secrets(action: job_pb2.Action) -> list[Fault]:
    """How an action names secrets: as `secret://NAME`."""
    field = f"spec.action.{action.WhichOneof('kind')}"
    faults, texts = list[Fault](), secret_text.values_of(action)
    if any(secret_text.is_wrong(text) for text in texts):
        message = (
            "a value has 'secret://' without the name of a secret behind it; write secret://NAME, "
            "where NAME is of a-z, 0-9, '-' and '_', first a letter or digit"
        )
        faults.append(Fault(field, INVALID, message))
    names = secret_text.names_in(action)
    for name in names:
        if len(name) > limits.NAME_CHARS:
            faults.append(_long(f"{field}: a secret's name", len(name), limits.NAME_CHARS))
    if len(names) > limits.SECRETS_OF_ACTION:
        message = f"it names {len(names)} secrets; the most is {limits.SECRETS_OF_ACTION}"
        faults.append(Fault(field, LIMIT, message))
    return faults


def _kind_of_action(action: job_pb2.Action) -> list[Fault]:
    field = "spec.action"
    match action.WhichOneof("kind"):
        case "handler":
            if action.handler in EXECUTORS:
                message = (
                    f"'{action.handler}' is an executor; set spec.action.{action.handler} instead, "
                    "or take another name for the handler"
                )
                return [Fault(f"{field}.handler", INVALID, message)]
            return _handler(f"{field}.handler", action.handler)
        case "http":
            return _http(action.http) + hiding.faults(field, action)
        case "grpc":
            return _grpc(action.grpc) + hiding.faults(field, action)
        case "shell":
            return _shell(action.shell) + hiding.faults(field, action)
    return [Fault(field, REQUIRED, "nothing to carry out; set handler, http, grpc or shell")]


def _handler(field: str, value: str) -> list[Fault]:
    """A function's name will do, whatever its language: "send-mail", "SendMail", "mail.Send"."""
    if not value:
        return [Fault(field, REQUIRED, "it is empty; give the name that a worker registered")]
    if len(value) > limits.NAME_CHARS:
        return [_long(field, len(value), limits.NAME_CHARS)]
    if " " in value or not value.isprintable():
        message = f"{value!r} is no handler: its name has no spaces, such as 'send-mail'"
        return [Fault(field, INVALID, message)]
    return []


def _has_host(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return bool(parts.hostname) and parts.port != 0
    except ValueError:  # What stands for a port is none.
        return False


def _http(http: job_pb2.HttpAction) -> list[Fault]:
    field = "spec.action.http"
    faults = text(f"{field}.url", http.url, limits.URL_CHARS)
    if not http.url.startswith(("http://", "https://")):
        message = f"'{http.url[:80]}' is no address; it begins with http:// or https://"
        faults.append(Fault(f"{field}.url", INVALID, message))
    elif not _has_host(http.url):
        message = f"'{http.url[:80]}' has no host, or a port that is not in 1 to 65535"
        faults.append(Fault(f"{field}.url", INVALID, message))
    if http.method not in METHODS:
        message = f"'{http.method[:20]}' is not one of GET, POST, PUT, PATCH, DELETE"
        faults.append(Fault(f"{field}.method", INVALID, message))
    faults += _headers(f"{field}.headers", http)
    for status in http.expected_statuses:
        faults += between(f"{field}.expected_statuses", status, 100, 599)
    return faults + count(f"{field}.expected_statuses", len(http.expected_statuses), 64)


def _headers(field: str, http: job_pb2.HttpAction) -> list[Fault]:
    """What no client of HTTP would send, so that no run could ever begin."""
    faults = count(field, len(http.headers), limits.HEADERS)
    for name, value in sorted(http.headers.items()):
        if HEADER.fullmatch(name) is None:
            message = f"{name[:40]!r} is no name of a header; write one such as 'Accept'"
            faults.append(Fault(field, INVALID, message))
        elif any(sign in value for sign in "\r\n\0"):
            message = f"the value of {name[:40]} has a line end or a zero character; take it out"
            faults.append(Fault(f"{field}[{name}]", INVALID, message))
    if CREDENTIALS.match(http.url) and "authorization" in {name.lower() for name in http.headers}:
        message = (
            "the URL holds credentials (before the '@'), and there is a header Authorization; "
            "a request has room for one of them: take the other out"
        )
        faults.append(Fault(field, INVALID, message))
    return faults


def _grpc(grpc: job_pb2.GrpcAction) -> list[Fault]:
    field = "spec.action.grpc"
    faults = text(f"{field}.target", grpc.target, limits.URL_CHARS)
    if not grpc.target:
        faults.append(Fault(f"{field}.target", REQUIRED, "it is empty; give host:port"))
    if RPC_METHOD.fullmatch(grpc.method) is None:
        message = f"'{grpc.method[:80]}' is no method; write package.Service/Method"
        faults.append(Fault(f"{field}.method", INVALID, message))
    faults += count(f"{field}.metadata", len(grpc.metadata), limits.HEADERS)
    for key, value in sorted(grpc.metadata.items()):
        if RPC_KEY.fullmatch(key) is None:
            message = (
                f"{key[:40]!r} is no key of gRPC's: use letters, digits, '-', '_' and '.', and do "
                "not begin with 'grpc-' or end with '-bin'"
            )
            faults.append(Fault(f"{field}.metadata", INVALID, message))
        elif not (value.isascii() and (value.isprintable() or not value)):
            message = f"the value of {key[:40]} has signs beyond printable ASCII; take them out"
            faults.append(Fault(f"{field}.metadata[{key}]", INVALID, message))
    return faults


def _shell(shell: job_pb2.ShellAction) -> list[Fault]:
    field = "spec.action.shell"
    faults = count(f"{field}.argv", len(shell.argv), limits.ARGV)
    faults += count(f"{field}.environment", len(shell.environment), limits.ENVIRONMENT)
    if not shell.argv or not shell.argv[0]:
        faults.append(Fault(f"{field}.argv", REQUIRED, "it is empty; give a program"))
    if shell.use_shell and len(shell.argv) != 1:
        message = f"it has {len(shell.argv)} elements; with use_shell it is one line for the shell"
        faults.append(Fault(f"{field}.argv", INVALID, message))
    for part, texts in (
        ("argv", shell.argv),
        ("environment", [*shell.environment, *shell.environment.values()]),
    ):
        if any("\0" in text for text in texts):
            message = "it has a zero character, which no command can be given; take it out"
            faults.append(Fault(f"{field}.{part}", INVALID, message))
    for code in shell.warning_exit_codes:
        faults += between(f"{field}.warning_exit_codes", code, 1, 255)
    codes = len(shell.warning_exit_codes)
    faults += count(f"{field}.warning_exit_codes", codes, limits.WARNING_EXIT_CODES)
    if any(not name or "=" in name for name in shell.environment):
        message = "the name of a variable is empty or has a '='"
        faults.append(Fault(f"{field}.environment", INVALID, message))
    size = sum(map(len, shell.argv)) + sum(
        len(key) + len(value) for key, value in shell.environment.items()
    )
    if size > limits.PAYLOAD_BYTES:
        faults.append(_long(field, size, limits.PAYLOAD_BYTES))
    return faults


def _misfire(misfire: job_pb2.MisfirePolicy) -> list[Fault]:
    field = "spec.misfire"
    faults = enum(f"{field}.rule", misfire, "rule")
    faults += span(f"{field}.grace", misfire, "grace", 0)
    faults += between(f"{field}.maximum", misfire.maximum, 0, limits.MISFIRE_RUNS)
    return faults + span(f"{field}.start_deadline", misfire, "start_deadline", 1)


def _overlap(overlap: job_pb2.OverlapPolicy) -> list[Fault]:
    field = "spec.overlap"
    faults = enum(f"{field}.rule", overlap, "rule")
    return faults + between(f"{field}.limit", overlap.limit, 0, limits.OVERLAP)


def _retry(retry: job_pb2.RetryPolicy) -> list[Fault]:
    field = "spec.retry"
    faults = between(f"{field}.max_attempts", retry.max_attempts, 0, limits.ATTEMPTS)
    for part in ("first", "cap", "total"):
        faults += span(f"{field}.{part}", retry, part, 0)
    if retry.factor_percent:
        faults += between(f"{field}.factor_percent", retry.factor_percent, 100, 1000)
    if retry.HasField("jitter_percent"):
        faults += between(f"{field}.jitter_percent", retry.jitter_percent, 0, 100)
    faults += count(f"{field}.fatal_kinds", len(retry.fatal_kinds), limits.FATAL_KINDS)
    for kind in retry.fatal_kinds:
        faults += text(f"{field}.fatal_kinds", kind, limits.KIND_CHARS)
    return faults


def _timeouts(timeouts: job_pb2.Timeouts) -> list[Fault]:
    faults: list[Fault] = []
    for part in ("queue", "attempt", "run", "heartbeat"):
        faults += span(f"spec.timeouts.{part}", timeouts, part, 1)
    return faults


def _concurrency(limit: job_pb2.ConcurrencyLimit) -> list[Fault]:
    field = "spec.concurrency"
    faults = between(f"{field}.job", limit.job, 0, limits.CONCURRENCY)
    faults += text(f"{field}.key", limit.key, limits.LIMIT_KEY_CHARS)
    if limit.key and not 1 <= limit.key_limit <= limits.CONCURRENCY:
        message = f"it is {limit.key_limit}; with a key it must be from 1 to {limits.CONCURRENCY}"
        faults.append(Fault(f"{field}.key_limit", INVALID, message))
    if limit.key_limit and not limit.key:
        faults.append(Fault(f"{field}.key", REQUIRED, "key_limit is set; name the key it is for"))
    if why := concurrency_key.fault(limit.key):
        faults.append(Fault(f"{field}.key", INVALID, why))
    return faults


def _upstream(upstream: job_pb2.Upstream) -> list[Fault]:
    field = "spec.upstream"
    faults = count(f"{field}.jobs", len(upstream.jobs), limits.UPSTREAM_JOBS)
    faults += enum(f"{field}.join", upstream, "join")
    faults += span(f"{field}.stuck_after", upstream, "stuck_after", limits.SECOND_MS)
    seen = set()
    for at, dependency in enumerate(upstream.jobs):
        faults += name(f"{field}.jobs[{at}].job", dependency.job)
        faults += enum(f"{field}.jobs[{at}].condition", dependency, "condition")
        if dependency.job in seen:
            message = f"'{dependency.job}' is named twice; name it once"
            faults.append(Fault(f"{field}.jobs[{at}].job", INVALID, message))
        seen.add(dependency.job)
    return faults


PARTS: dict[str, Callable[[Any], list[Fault]]] = {
    "worker_labels": lambda value: labels("spec.worker_labels", value, limits.WORKER_LABELS),
    "queue": lambda value: name("spec.queue", value),
    "action": action,
    "misfire": _misfire,
    "overlap": _overlap,
    "retry": _retry,
    "timeouts": _timeouts,
    "concurrency": _concurrency,
    "upstream": _upstream,
    "on_failure": lambda value: name("spec.on_failure.job", value.job) if value.job else [],
}
