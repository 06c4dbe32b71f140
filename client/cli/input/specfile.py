"""From what files hold to jobs, in one of two forms.

A job without `spec` is in the words of the options of `job create`: see flat.py. One with it is the
API's JSON of a Job. What people would rather write is understood there as well: `5m` for a length
of time, `high` for PRIORITY_HIGH, `cron: "0 9 * * *"` for the message around it, `payload: {json:
{...}}` or `{text: ...}` for base64. Instants without a zone are in UTC, since a file must mean the
same on every machine.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from difflib import get_close_matches
from typing import Any

from google.protobuf import json_format
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from ...sdk.lengths import parse_length
from ...sdk.ranges import OutOfRange, fit
from .. import payloads
from ..exits import wrong_use
from ..messages import job_pb2
from ..times import INSTANTS
from . import flat
from .documents import documents, every_file, quoted

FAULTS_MAX = 20
NEAR = 0.8  # How like a field elsewhere must be to be the one that was meant.


@dataclass(frozen=True, slots=True)
class FileJob:
    """A job, and where it stands."""

    job: job_pb2.Job
    origin: str


def load(paths: Iterable[str]) -> list[FileJob]:
    """All jobs of files and folders; all faults at once, as one error."""
    faults: list[str] = []
    found: list[FileJob] = []
    for path in every_file(paths):
        for number, document in enumerate(documents(path), 1):
            origin = path if path != "-" else "stdin"
            found.append(FileJob(read_job(document, f"{origin}: job {number}", faults), origin))
    faults += _twice(found)
    complain(faults)
    return found


def complain(faults: list[str]) -> None:
    if faults:
        more = len(faults) - FAULTS_MAX
        shown = faults[:FAULTS_MAX] + ([f"and {more} others"] if more > 0 else [])
        raise wrong_use(
            "cannot read the jobs", shown,
            "mend the files; `raftsched job init` shows how a job is written",
        )  # fmt: skip


def read_job(document: Any, where: str, faults: list[str]) -> job_pb2.Job:
    """One job; what is wrong with it is added to the faults."""
    job = job_pb2.Job()
    if isinstance(document, Mapping) and isinstance(document.get("name"), str):
        where = f"{where.rsplit(': job ', 1)[0]}: job {document['name']}"
    if flat.is_meant(document):
        reader = SpecReader(where, faults)
        flat.read(job, document, reader.note, reader.fill)
        if not job.name:
            faults.append(f"{where}: it has no name; write `name: my-job`")
        return job
    try:
        # The API's own form, which is most of what is read, takes the fast way.
        json_format.ParseDict(document, job)
        _strict(document, job)
    except (json_format.ParseError, AttributeError, TypeError, ValueError):
        job.Clear()
        SpecReader(where, faults).fill(job, document, "")
    if not job.name:
        faults.append(f"{where}: it has no name; write `name: my-job`")
    return job


def _strict(document: Any, job: job_pb2.Job) -> None:
    """Protobuf drops what is no base64, and so would make another payload of a text."""
    data = job.spec.payload.data
    if data and base64.b64encode(data).decode() != document["spec"]["payload"]["data"]:
        raise ValueError("not base64")


def _twice(found: list[FileJob]) -> list[str]:
    seen: dict[tuple[str, str], str] = {}
    faults = []
    for one in found:
        key = (one.job.namespace, one.job.name)
        if one.job.name and key in seen:
            faults.append(
                f"{one.origin}: job {one.job.name} is also in {seen[key]}; keep one of them"
            )
        seen[key] = one.origin
    return faults


class SpecReader:
    """Fills a message from what a file says; wrong fields are noted, not raised."""

    def __init__(self, where: str, faults: list[str]) -> None:
        self._where = where
        self._faults = faults

    def fill(self, message: Message, given: Any, path: str) -> None:
        kind = message.DESCRIPTOR
        if kind.name in flat.SHORT and not isinstance(given, Mapping):
            given = {flat.SHORT[kind.name]: given}
        if kind.name == "Payload":
            try:
                message.CopyFrom(payloads.read(given))
            except ValueError as wrong:
                self.note(path, str(wrong))
            return
        if not isinstance(given, Mapping):
            self.note(path, f"{quoted(given)} is not a table of fields")
            return
        fields = {**kind.fields_by_name, **{field.json_name: field for field in kind.fields}}
        for key, value in given.items():
            field = fields.get(str(key))
            below = f"{path}.{key}".lstrip(".")
            if field is None:
                hint = _meant(str(key), path, tuple(kind.fields_by_name))
                self.note(below, f"there is no such field; {hint}")
            elif value is not None:
                self._field(message, field, value, below)

    def _field(self, message: Message, field: Any, value: Any, path: str) -> None:
        oneof = field.containing_oneof
        taken = message.WhichOneof(oneof.name) if oneof else None
        if taken and oneof and len(oneof.fields) > 1:
            self.note(path, f"{taken} is set as well; keep one of them")
        elif field.message_type is not None and field.message_type.GetOptions().map_entry:
            if isinstance(value, Mapping):
                entries = getattr(message, field.name)
                entries.update({str(key): _text(one) for key, one in value.items()})
            else:
                self.note(path, f"{quoted(value)} is not a table of texts")
        elif field.is_repeated:
            target = getattr(message, field.name)
            for number, one in enumerate(value if isinstance(value, list) else [value]):
                there = f"{path}[{number}]"
                if field.message_type is not None:
                    self._message(target.add(), one, there)
                elif (plain := self._scalar(field, one, there)) is not None:
                    target.append(plain)
        elif field.message_type is not None:
            target = getattr(message, field.name)
            target.SetInParent()
            self._message(target, value, path)
        elif (plain := self._scalar(field, value, path)) is not None:
            setattr(message, field.name, plain)

    def _message(self, target: Any, value: Any, path: str) -> None:
        match target.DESCRIPTOR.full_name:
            case "google.protobuf.Duration":
                try:
                    target.FromMilliseconds(parse_length(str(value)))
                except ValueError as wrong:
                    self.note(path, str(wrong))
            case "google.protobuf.Timestamp":
                try:
                    target.FromDatetime(_instant(value))
                except ValueError:
                    self.note(path, f"{quoted(value)} is not an instant; {INSTANTS}")
            case _:
                self.fill(target, value, path)

    def _scalar(self, field: FieldDescriptor, value: Any, path: str) -> Any:
        if field.enum_type is not None:
            return self._enum(field, value, path)
        kind = field.cpp_type
        if kind == FieldDescriptor.CPPTYPE_BOOL and isinstance(value, bool):
            return value
        if kind == FieldDescriptor.CPPTYPE_STRING and not isinstance(value, list | Mapping | bool):
            if field.type != FieldDescriptor.TYPE_BYTES:
                return _text(value)
        elif kind != FieldDescriptor.CPPTYPE_BOOL and not isinstance(value, bool):
            try:
                if int(value) == value or isinstance(value, str):
                    return fit(field, int(value))
            except OutOfRange as wrong:
                self.note(path, str(wrong))
                return None
            except (TypeError, ValueError, OverflowError):
                pass
        wanted = {
            FieldDescriptor.CPPTYPE_BOOL: "true or false",
            FieldDescriptor.CPPTYPE_STRING: "a text",
        }
        self.note(path, f"{quoted(value)} is not {wanted.get(kind, 'a whole number')}")
        return None

    def _enum(self, field: FieldDescriptor, value: Any, path: str) -> int | None:
        enum = field.enum_type
        assert enum is not None
        prefix = enum.values[0].name.removesuffix("UNSPECIFIED")
        upper = str(value).upper().replace("-", "_").replace(" ", "_")
        for name in (upper, prefix + upper):
            if name in enum.values_by_name:
                return int(enum.values_by_name[name].number)
        known = [one.name.removeprefix(prefix).lower().replace("_", "-") for one in enum.values[1:]]
        self.note(path, f"{quoted(value)} is none of {', '.join(known)}")
        return None

    def note(self, path: str, why: str) -> None:
        self._faults.append(f"{self._where}: {path}: {why}" if path else f"{self._where}: {why}")


def _meant(word: str, path: str, here: tuple[str, ...]) -> str:
    """What somebody may have meant by a field that is not there."""
    known = {place.rsplit(".", 1)[-1]: place for place in reversed(flat.places())}
    if word in known:
        beside = f", or {word} beside the name of a job without spec"
        return f"did you mean {known[word]}{beside if word in flat.words() else ''}?"
    if near := get_close_matches(word, here, n=1):
        return f"did you mean {f'{path}.{near[0]}'.lstrip('.')}?"
    if near := get_close_matches(word, known, n=1, cutoff=NEAR):
        return f"did you mean {known[near[0]]}?"
    return f"known: {', '.join(here)}"


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value.isoformat() if isinstance(value, date) else str(value)


def _instant(value: Any) -> datetime:
    instant = value if isinstance(value, datetime) else datetime.fromisoformat(str(value))
    instant = instant.replace(tzinfo=UTC) if instant.tzinfo is None else instant.astimezone(UTC)
    return instant.replace(tzinfo=None)
