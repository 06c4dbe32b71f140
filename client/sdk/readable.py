"""Messages of the cluster on one line, as a prompt of Python shows them.

    >>> client.jobs.get("report")
    <Job report ACTIVE, next Mon 2026-11-23 08:00 UTC, 12 succeeded, 1 failed>

`print(message)` still shows all of one, as protobuf writes it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.timestamp_pb2 import Timestamp

from .values import instant

LINE_CHARS, VALUE_CHARS = 200, 60
PACKAGE = "raftsched.v1."
# What a message is called by, the first of them that is set.
NAMES = ("name", "id", "job", "run", "worker", "flow")
# What says nothing at a glance.
LEFT_OUT = frozenset({"namespace", "etag", "uid", "version"})
_marked: set[type[Message]] = set()


def mark(kind: type[Message]) -> None:
    """Have messages of this kind, and all that they hold, print so."""
    found = [kind]
    while found:
        one = found.pop()
        if one in _marked or not one.DESCRIPTOR.full_name.startswith(PACKAGE):
            continue
        _marked.add(one)
        one.__repr__ = line  # type: ignore[method-assign]
        inner: list[Any] = [field.message_type for field in one.DESCRIPTOR.fields]
        found += [GetMessageClass(held) for held in inner if held is not None]


def line(message: Any) -> str:  # noqa: ANN401  # Any message of the contracts.
    """On one line, in `<>`."""
    name = message.DESCRIPTOR.name
    text = {"Job": job_text, "Run": run_text, "Payload": payload_text}.get(name, _text)(message)
    return f"<{name} {cut(text, LINE_CHARS)}>" if text else f"<{name}>"


def job_text(job: Any) -> str:  # noqa: ANN401
    status = job.status
    said = [f"{job.name} {word(status, 'state')}".rstrip()]
    if status.HasField("next_due_time"):
        said.append(f"next {shown(status.next_due_time)}")
    if job.HasField("status"):
        said.append(f"{status.succeeded} succeeded, {status.failed} failed")
    return ", ".join(said)


def run_text(run: Any) -> str:  # noqa: ANN401
    said = [f"{run.id} {word(run, 'state')}".rstrip()]
    if run.attempt > 1:
        said.append(f"attempt {run.attempt}")
    if run.error.kind:
        said.append(f"{run.error.kind}: {cut(run.error.message, VALUE_CHARS)}")
    elif run.HasField("result"):
        said.append(f"result {payload_text(run.result)}")
    if not run.HasField("end_time") and run.HasField("due_time"):
        said.append(f"due {shown(run.due_time)}")
    elif run.HasField("end_time") and run.HasField("start_time"):
        took_ms = run.end_time.ToMilliseconds() - run.start_time.ToMilliseconds()
        said.append(f"took {took_ms / 1000:.3g} s")
    return ", ".join(said)


def payload_text(payload: Any) -> str:  # noqa: ANN401
    if payload.hidden:
        return "(hidden)"
    kind = payload.content_type
    if "json" in kind or kind.startswith("text/"):
        return cut(payload.data[: 4 * VALUE_CHARS].decode(errors="replace"), VALUE_CHARS)
    return f"{len(payload.data):,} bytes of {kind or 'no type'}"


def word(message: Any, field: str) -> str:  # noqa: ANN401
    """ "SUCCEEDED" of RUN_STATE_SUCCEEDED; empty for what was never said."""
    number, kind = getattr(message, field), message.DESCRIPTOR.fields_by_name[field].enum_type
    return _word(kind, number) if number else ""


def shown(stamp: Timestamp) -> str:
    try:
        return f"{instant(stamp):%a %Y-%m-%d %H:%M} UTC"
    except (ValueError, OverflowError):
        return f"second {stamp.seconds}"


def cut(text: str, most: int) -> str:
    """As much of it as there is room for, on one line, without signs that steer a terminal."""
    text = " ".join(text.split())
    if not text.isprintable():
        text = "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in text)
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _text(message: Any) -> str:  # noqa: ANN401
    name = next((text for one in NAMES if (text := getattr(message, one, "")) and text is not True
                 and isinstance(text, str)), "")  # fmt: skip
    parts = ", ".join(_parts(message, name))
    return f"{name}: {parts}" if name and parts else name or parts


def _parts(message: Message, name: str) -> Iterator[str]:
    for field, value in message.ListFields():
        if field.name in LEFT_OUT or (name and value == name and field.name in NAMES):
            continue
        if field.name == "secret" or field.GetOptions().debug_redact:
            yield f"{field.name} (hidden)"
        elif field.is_repeated:
            many = len(value) > 1
            yield f"{len(value)} {field.name if many else field.name.removesuffix('s')}"
        elif value is True:
            yield field.name
        else:
            yield f"{field.name}={_value(field, value)}"


def _value(field: FieldDescriptor, value: Any) -> str:  # noqa: ANN401
    if field.enum_type is not None:
        return _word(field.enum_type, value)
    if field.message_type is None:
        return cut(repr(value), VALUE_CHARS) if isinstance(value, bytes | str) else str(value)
    match field.message_type.full_name:
        case "raftsched.v1.Payload":
            return payload_text(value)
        case "google.protobuf.Timestamp":
            return shown(value)
        case "google.protobuf.Duration":
            return str(value.ToTimedelta())
    return cut(line(value), VALUE_CHARS)


def _word(kind: Any, number: int) -> str:  # noqa: ANN401  # An EnumDescriptor.
    prefix = kind.values[0].name.removesuffix("UNSPECIFIED")
    known = kind.values_by_number.get(number)
    return str(number) if known is None else known.name.removeprefix(prefix)
