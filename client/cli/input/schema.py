"""The JSON schema of jobs in files, for editors: made of the options and of the contracts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from ..messages import job_pb2
from ..times import Instant, Length
from . import flat
from .job_options import CONDITIONS

Schema = dict[str, Any]
DRAFT = "https://json-schema.org/draft/2020-12/schema"
LENGTH: Schema = {"type": "string", "pattern": r"^\s*(\d+(\.\d+)?(ms|[smhdw]))+\s*$"}
TEXT: Schema = {"type": ["string", "number", "boolean"]}
TEXTS: Schema = {"type": "object", "additionalProperties": TEXT}
INSTANT: Schema = {"type": "string", "pattern": r"^\d{4}-\d\d-\d\d"}
PAYLOAD: Schema = {
    "type": "object", "additionalProperties": False,
    "properties": {
        "json": {}, "text": {"type": "string"}, "data": {"type": "string"},
        "content_type": {"type": "string"}, "contentType": {"type": "string"},
    },
}  # fmt: skip
# Messages of protobuf, and of ours those that a file writes in another way.
KNOWN = {
    "google.protobuf.Duration": LENGTH,
    "google.protobuf.Timestamp": INSTANT,
    "raftsched.v1.Payload": PAYLOAD,
}
TITLE = "Jobs of raftsched, in a file for `raftsched job apply` and `raftsched job import`"


def schema() -> Schema:
    """The whole document."""
    definitions: Schema = {}
    spec = _message(job_pb2.JobSpec.DESCRIPTOR, definitions)
    schedules = {"type": "array", "items": _message(_schedule(), definitions)}
    words = dict(_words(schedules))
    beside = {word: words[word] for word in flat.BESIDE_SPEC}
    shared = {word: one for word, one in words.items() if word not in ("name", "after")}
    definitions["job"] = {
        "title": "a job in the words of `raftsched job create`", "type": "object",
        "properties": words, "required": ["name"], "additionalProperties": False,
    }  # fmt: skip
    definitions["wire"] = {
        "title": "a job in the form of the API", "type": "object",
        "properties": {**beside, "spec": spec}, "required": ["name", "spec"],
    }  # fmt: skip
    step = {word: one for word, one in words.items() if word != "name"}
    definitions["flow"] = {
        "title": "jobs that come after each other", "type": "object",
        "description": "What stands beside `jobs` goes for all of them, schedules for the first.",
        "properties": {
            "flow": {"type": "string", "description": "Its name, a label of each job."},
            "jobs": {
                "type": "object", "minProperties": 1,
                "additionalProperties": {
                    "type": "object", "properties": step, "additionalProperties": False,
                },
            },
            **shared,
        },
        "required": ["flow", "jobs"], "additionalProperties": False,
    }  # fmt: skip
    job = {"anyOf": [{"$ref": "#/$defs/job"}, {"$ref": "#/$defs/wire"}]}
    jobs = {"type": "object", "properties": {"jobs": {"type": "array", "items": job}},
            "required": ["jobs"], "additionalProperties": False}  # fmt: skip
    return {
        "$schema": DRAFT, "title": TITLE,
        "anyOf": [*job["anyOf"], {"$ref": "#/$defs/flow"}, jobs, {"type": "array", "items": job}],
        "$defs": definitions,
    }  # fmt: skip


def _schedule() -> Any:  # A Descriptor.
    return job_pb2.JobSpec.DESCRIPTOR.fields_by_name["schedules"].message_type


def _words(schedules: Schema) -> Iterator[tuple[str, Schema]]:
    yield "name", {"type": "string", "description": "The job's name."}
    yield "namespace", {"type": "string", "description": "Whose job it is.  [the command's]"}
    for word, option in flat.options().items():
        kind = {"description": option.help or "", **_of_option(word, option)}
        # Both `label` and `labels` are read, and `_` may be `-`.
        for name in dict.fromkeys((flat.SINGULARS.get(word, word), word)):
            yield name, kind
            if "_" in name:
                yield name.replace("_", "-"), kind
    yield "schedules", {"description": "When it runs, in the form of the API.", **schedules}


def _of_option(word: str, option: click.Option) -> Schema:
    if word == "payload":
        return {}
    if option.metavar in flat.MARKS:
        return {"anyOf": [TEXTS, {"type": "array", "items": {"type": "string"}}]}
    one = _one(word, option)
    if option.multiple or word == "shell":
        return {"anyOf": [one, {"type": "array", "items": one if word != "shell" else TEXT}]}
    return one


def _one(word: str, option: click.Option) -> Schema:
    kind = option.type
    if option.is_flag:
        return {"type": "boolean"}
    if word == "after":
        return {"type": "string", "pattern": f"^[^:]+(:({'|'.join(CONDITIONS)}))?$"}
    match kind:
        case click.Choice():
            return {"enum": list(kind.choices)}
        case click.IntRange():
            bounds = {"minimum": kind.min, "maximum": kind.max}
            return {"type": "integer", **{key: one for key, one in bounds.items() if one}}
        case Length():
            return LENGTH
        case Instant():
            return INSTANT
    return {"type": "integer"} if kind is click.INT else TEXT


def _message(kind: Any, definitions: Schema) -> Schema:  # A Descriptor.
    """A reference to what a message of the contracts may hold."""
    if kind.full_name in KNOWN:
        return KNOWN[kind.full_name]
    if kind.name not in definitions:
        made: Schema = {"type": "object", "additionalProperties": False}
        definitions[kind.name] = made
        made["properties"] = {
            name: _field(field, definitions)
            for field in kind.fields
            for name in dict.fromkeys((field.name, field.json_name))
        }
    short = flat.SHORT.get(kind.name)
    there: Schema = {"$ref": f"#/$defs/{kind.name}"}
    if short is None:
        return there
    return {"anyOf": [_field(kind.fields_by_name[short], definitions), there]}


def _field(field: Any, definitions: Schema) -> Schema:  # A FieldDescriptor.
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        return TEXTS
    one = _value(field, definitions)
    return {"anyOf": [{"type": "array", "items": one}, one]} if field.is_repeated else one


def _value(field: Any, definitions: Schema) -> Schema:
    if field.message_type is not None:
        return _message(field.message_type, definitions)
    if field.enum_type is not None:
        values = [one.name for one in field.enum_type.values]
        prefix = values[0].removesuffix("UNSPECIFIED")
        words = [name.removeprefix(prefix).lower() for name in values[1:]]
        return {"enum": [*dict.fromkeys(word.replace("_", "-") for word in words), *values]}
    if field.cpp_type == field.CPPTYPE_BOOL:
        return {"type": "boolean"}
    if field.cpp_type == field.CPPTYPE_STRING:
        return TEXT
    return {"type": ["integer", "string"]}
