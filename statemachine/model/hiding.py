"""What a viewer without `see_payloads` may not see: the one table of fields that may hold secrets.

Payloads, results, checkpoints and logs are taken out whole, and marked, so that they do not look
like none. Where a job or an alert says how to reach somebody, the names stay and the values go, so
that such a viewer still sees what calls whom. The audit log writes no value of these fields down at
all, whoever reads it.

Of an error its kind stays. What a worker says of it may repeat arguments, an answer's body or what
a command printed, so it goes, and so does a warning; what the cluster itself says of a run stays.

Of a command its program stays: an argument is often a password, and with a shell even the one
argument is a whole script. The path of a job's URL stays, as it says what is called; that of a
webhook goes, since for most chat services the path is the secret.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from google.protobuf.message import Message

from ...proto.v1 import common_pb2, error_pb2
from ..core.rejection import Fault

HIDDEN = "(hidden)"
# Scheme, credentials, host with port, path, and all behind it.
URL = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]*:///?)?([^/?#\\]*@)?([^/?#\\]*)([^?#]*)(.*)", re.DOTALL)

# Bytes that a handler wrote, in whichever message they stand.
WRITTEN = frozenset({"log_tail", "checkpoint"})
# Kinds of errors that the rules make, whose words are theirs.
OWN_KINDS = frozenset(
    {
        "cancelled", "terminated", "lapsed", "replaced", "overlap", "start_deadline",
        "timeout.attempt", "timeout.heartbeat", "timeout.queue", "timeout.run",
        "timeout.total",
    }
)  # fmt: skip


def bare(url: str) -> str:
    """A URL without its credentials, its query and its fragment."""
    scheme, credentials, host, path, rest = _parts(url)
    return f"{scheme}{_sign(credentials, '@')}{host}{path}{rest[:1]}{_sign(rest)}"


def host_only(url: str) -> str:
    """A URL of which only the scheme and the host stay."""
    scheme, credentials, host, path, rest = _parts(url)
    return f"{scheme}{host}" + (f"/{HIDDEN}" if credentials or path.strip("/") or rest else "")


def _parts(url: str) -> tuple[str, ...]:
    found = URL.fullmatch(url)
    assert found is not None, "every part of it may be empty"
    return tuple(part or "" for part in found.groups())


def _sign(text: str, end: str = "") -> str:
    return f"{HIDDEN}{end}" if text else ""


def _values(message: Any, name: str) -> None:  # noqa: ANN401
    values = getattr(message, name)
    # A map that is written while it is walked leaves some of its keys out.
    for key in list(values):
        values[key] = HIDDEN


def _arguments(message: Any, name: str) -> None:  # noqa: ANN401
    shown = 0 if message.use_shell else 1
    for place in range(shown, len(message.argv)):
        message.argv[place] = HIDDEN


def _url(message: Any, name: str) -> None:  # noqa: ANN401
    setattr(message, name, bare(getattr(message, name)))


def _host(message: Any, name: str) -> None:  # noqa: ANN401
    setattr(message, name, host_only(getattr(message, name)))


def _text(message: Any, name: str) -> None:  # noqa: ANN401
    setattr(message, name, HIDDEN)


def _words(message: Any, name: str) -> None:  # noqa: ANN401
    if message.kind not in OWN_KINDS:
        setattr(message, name, HIDDEN)


FIELDS: dict[str, Callable[[Any, str], None]] = {
    "raftsched.v1.HttpAction.url": _url,
    "raftsched.v1.HttpAction.headers": _values,
    "raftsched.v1.GrpcAction.target": _url,
    "raftsched.v1.GrpcAction.metadata": _values,
    "raftsched.v1.ShellAction.argv": _arguments,
    "raftsched.v1.ShellAction.environment": _values,
    "raftsched.v1.ResolveSecretsResponse.secrets": _values,
    "raftsched.v1.Alert.webhook": _host,
    "raftsched.v1.RunError.message": _words,
    "raftsched.v1.RunError.trace": _words,
    "raftsched.v1.Run.warning": _text,
    "raftsched.v1.JobStatus.last_warning": _text,
}


def hidden(message: Message) -> Message:
    """A copy without what such a viewer may not see."""
    copy = type(message)()
    copy.CopyFrom(message)
    hide(copy)
    return copy


def faults(field: str, message: Message) -> list[Fault]:
    """Refuse what was hidden from whoever sends it back: it would overwrite what is there."""
    found = [
        sent_back(f"{field}.{part.name}")
        for part, value in message.ListFields()
        if part.full_name in FIELDS and HIDDEN in _texts(value)
    ]
    for part, value in message.ListFields():
        if part.message_type is not None and not isinstance(value, Iterable):
            found += faults(f"{field}.{part.name}", value)
    return found


def sent_back(field: str) -> Fault:
    return Fault(
        field,
        error_pb2.ERROR_REASON_FIELD_INVALID,
        f"it holds '{HIDDEN}', which stands for what a viewer may not see; write the value "
        "itself, or export again with a token that may see payloads",
    )


def _texts(value: Any) -> str:  # noqa: ANN401
    if isinstance(value, str):
        return value
    return "\n".join(value.values() if isinstance(value, Mapping) else value)


def hide(message: Message) -> None:
    """Take out of an answer what such a viewer may not see."""
    if isinstance(message, common_pb2.Payload):
        message.Clear()
        message.hidden = True
        return
    for field, value in message.ListFields():
        inner = field.message_type
        if field.name in WRITTEN:
            setattr(message, field.name, f"{HIDDEN}\n".encode())
        elif field.full_name in FIELDS:
            FIELDS[field.full_name](message, field.name)
        elif inner is not None:
            _hide_inside(inner, value)


def _hide_inside(inner: Any, value: Any) -> None:  # noqa: ANN401
    if inner.GetOptions().map_entry:
        if inner.fields_by_name["value"].message_type is not None:
            for one in value.values():
                hide(one)
        return
    for one in value if isinstance(value, Iterable) else (value,):
        hide(one)
