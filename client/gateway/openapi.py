"""Writes pages/openapi.json: what the gateway serves, from the contracts and their comments.

    python -m raftsched.client.gateway.openapi            # rewrite it; `./dev proto` does
    python -m raftsched.client.gateway.openapi --check    # fail if it differs

The file is committed, so nothing of this runs in a gateway.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from google.protobuf.descriptor import EnumDescriptor, FieldDescriptor

from ...proto.comments import comment as written
from ...proto.contract import reasons
from ...proto.v1 import options_pb2
from . import plain
from .fields import TEXTS, is_map, is_secret, is_text
from .manners import EVENTS, LINES, creates
from .problems import JSON, PROBLEM
from .routes import Binding

HERE = Path(__file__).resolve().parent
TARGET = HERE / "pages" / "openapi.json"
Json = dict[str, Any]
OUTPUT = "Output only."
# What the contracts say in common.proto of a field that stands in many requests.
SHARED: Mapping[str, str] = {
    "request_id": "Names this write: the same id with the same request does it once.",
    "validate_only": "Every check is run, and nothing is stored.",
    "etag": "Of what was read; refused when it has changed since.",
    "page_size": "How many at most; the cluster may send fewer.",
    "page_token": "next_page_token of the page before.",
}
# Messages below messages in a query, so deep.
QUERY_DEPTH = 3
# Two paths that differ in the names of their variables alone are one in OpenAPI.
SHORT = re.compile(r"\{(\w+)\.\w+\}")
LENGTH = r"^-?[0-9]+(\.[0-9]{1,9})?s$"
WELL_KNOWN: Mapping[str, Json] = {
    "google.protobuf.Timestamp": {"type": "string", "format": "date-time"},
    "google.protobuf.Duration": {"type": "string", "pattern": LENGTH, "examples": ["90s"]},
    "google.protobuf.FieldMask": {"type": "string", "examples": ["spec.priority,spec.queue"]},
}
kinds = FieldDescriptor
SCALARS: Mapping[int, Json] = {
    kinds.CPPTYPE_INT32: {"type": "integer", "format": "int32"},
    kinds.CPPTYPE_UINT32: {"type": "integer", "format": "uint32", "minimum": 0},
    kinds.CPPTYPE_INT64: {"type": "string", "format": "int64", "pattern": "^-?[0-9]{1,19}$"},
    kinds.CPPTYPE_UINT64: {"type": "string", "format": "uint64", "pattern": "^[0-9]{1,20}$"},
    kinds.CPPTYPE_BOOL: {"type": "boolean"},
    kinds.CPPTYPE_DOUBLE: {"type": "number", "format": "double"},
    kinds.CPPTYPE_FLOAT: {"type": "number", "format": "float"},
    kinds.CPPTYPE_STRING: {"type": "string"},
}
DESCRIPTION = """\
Every call of the cluster over HTTP and JSON. Names are written in lowerCamelCase; those of the
contracts (snake_case) are taken too. 64-bit integers are texts, bytes are base64.

* `Authorization: Bearer SECRET` shows an access token, where the cluster has any.
* `If-Match` with the `ETag` of what was read lets a change fail with 412 when somebody came first.
* `Idempotency-Key` is the request id of a write: the same key with the same body does it once.
* Errors are `{"error": {...}}`, or application/problem+json for who takes that: always a reason,
  the wrong fields, and what to do. 429 and 503 say `Retry-After`; 504 says that the outcome is not
  known, and to ask again with the same Idempotency-Key.
* Streams are JSON lines, or Server-Sent Events for `Accept: text/event-stream`, which go on behind
  `Last-Event-ID` on any gateway.
"""


def document() -> Json:
    """All of it."""
    bindings = sorted(plain.with_contracts(), key=lambda one: (one.template, one.verb))
    schemas, paths, used = Schemas(), dict[str, Json](), dict[str, int]()
    for binding in bindings:
        name = binding.call.verb + ("Plain" if binding.plain else "")
        used[name] = used.get(name, 0) + 1
        number = "" if used[name] == 1 else str(used[name])
        place = paths.setdefault(SHORT.sub(r"{\1}", binding.template), {})
        place[binding.verb.lower()] = operation(binding, name + number, schemas)
    tags = sorted({one.call.service for one in bindings})
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "raftsched", "version": metadata.version("raftsched"),
            "description": DESCRIPTION,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "security": [{}, {"token": []}],
        "tags": [{"name": tag_of(one), "description": comment(one)} for one in tags],
        "paths": paths,
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "responses": {"Refused": REFUSED},
            "headers": HEADERS,
            "schemas": dict(sorted((PLAIN_SCHEMAS | schemas.found | errors()).items())),
        },
    }  # fmt: skip


def tag_of(service: str) -> str:
    return service.rpartition(".")[2].removesuffix("Service")


def operation(binding: Binding, name: str, schemas: Schemas) -> Json:
    call = binding.call
    text = comment(f"{call.service}.{call.verb}")
    made: Json = {
        "operationId": name, "tags": [tag_of(call.service)],
        "summary": re.split(r"(?<=[.;:])\s", text, maxsplit=1)[0].rstrip(".;:"),
        "description": text + needs(binding),
        "parameters": list(parameters(binding, schemas)),
        "responses": responses(binding, schemas),
    }  # fmt: skip
    if binding.body:
        content = {JSON: {"schema": body_of(binding, schemas)}}
        made["requestBody"] = {"required": binding.body != "*", "content": content}
    return made


def needs(binding: Binding) -> str:
    role = options_pb2.Role.Name(binding.call.needs).removeprefix("ROLE_").lower()
    return f"\n\nNeeds the role {role}." if binding.call.needs else ""


def body_of(binding: Binding, schemas: Schemas) -> Json:
    request = binding.call.request.DESCRIPTOR
    if binding.plain:
        return ref("PlainJob")
    whole = request if binding.body == "*" else request.fields_by_name[binding.body].message_type
    found = schemas.ref(whole)
    if binding.call.verb == "CreateJob":
        return {"anyOf": [found, ref("PlainJob")]}
    return found


def responses(binding: Binding, schemas: Schemas) -> Json:
    call = binding.call
    answer = schemas.ref(call.response.DESCRIPTOR)
    if call.streams_out:
        events = {"type": "string", "description": "Server-Sent Events, each of them one event."}
        content: Json = {LINES: {"schema": answer}, EVENTS: {"schema": events}}
        return {"200": {"description": "It goes on until one side ends it.", "content": content},
                "default": ref("Refused", "responses")}  # fmt: skip
    if binding.plain:
        answer = ref(PLAIN_ANSWERS[call.verb])
    elif call.verb == "CreateJob":
        answer = {"anyOf": [answer, ref("PlainJobCreated")]}
    headers = {name: ref(name, "headers") for name in ("ETag", "Raftsched-Revision")}
    done = {"description": "Done.", "headers": headers, "content": {JSON: {"schema": answer}}}
    found: Json = {"200": done, "default": ref("Refused", "responses")}
    if creates(binding, call.request()):
        location = {"Location": ref("Location", "headers")}
        found["201"] = done | {"description": "Made.", "headers": headers | location}
        found["200"] = done | {"description": "It would be made (validate_only)."}
    return found


def parameters(binding: Binding, schemas: Schemas) -> Iterator[Json]:
    request = binding.call.request.DESCRIPTOR
    for path in binding.variables:
        field = field_at(request, path)
        yield {"name": path.split(".")[0], "in": "path", "required": True,
               "description": comment(field.full_name),
               "schema": {"type": "string", "minLength": 1}}  # fmt: skip
    if binding.body != "*":
        yield from in_query(binding, request, "", "", schemas, QUERY_DEPTH)
    if "request_id" in request.fields_by_name:
        yield {"name": "Idempotency-Key", "in": "header", "schema": {"type": "string"},
               "description": "The request id of this write."}  # fmt: skip


def in_query(
    binding: Binding, kind: Any, own: str, shown: str, schemas: Schemas, depth: int
) -> Iterator[Json]:
    """The fields of a request that stand neither in the path nor in the body."""
    for field in kind.fields:
        path, name = own + field.name, shown + field.json_name
        if path in binding.variables or path == binding.body or is_map(field):
            continue
        if field.message_type is None or is_text(field):
            yield {"name": name, "in": "query", "description": comment(field.full_name),
                   "schema": schemas.value(field)}  # fmt: skip
        elif depth and not field.is_repeated:
            yield from in_query(
                binding, field.message_type, f"{path}.", f"{name}.", schemas, depth - 1
            )


def field_at(kind: Any, path: str) -> FieldDescriptor:
    *outer, last = path.split(".")
    for name in outer:
        kind = kind.fields_by_name[name].message_type
    found: FieldDescriptor = kind.fields_by_name[last]
    return found


class Schemas:
    """Those of messages and enums, by their names."""

    def __init__(self) -> None:
        self.found: Json = {}

    def ref(self, kind: Any) -> Json:
        name = kind.full_name.removeprefix("raftsched.v1.")
        if name not in self.found:
            self.found[name] = {}
            made = self._enum(kind) if isinstance(kind, EnumDescriptor) else self._message(kind)
            self.found[name] = made
        return ref(name)

    def value(self, field: FieldDescriptor) -> Json:
        """Of a field, in all."""
        if is_map(field):
            entry: Any = field.message_type
            below = self._one(entry.fields_by_name["value"])
            return {"type": "object", "additionalProperties": below}
        one = self._one(field)
        return {"type": "array", "items": one} if field.is_repeated else one

    def _one(self, field: FieldDescriptor) -> Json:
        if field.message_type is not None:
            full = field.message_type.full_name
            return dict(WELL_KNOWN[full]) if full in TEXTS else self.ref(field.message_type)
        if field.enum_type is not None:
            return self.ref(field.enum_type)
        if field.type == FieldDescriptor.TYPE_BYTES:
            return {"type": "string", "contentEncoding": "base64"}
        return dict(SCALARS[field.cpp_type])

    def _message(self, kind: Any) -> Json:
        fields = {field.json_name: self._field(field) for field in kind.fields}
        return {"type": "object", "description": comment(kind.full_name), "properties": fields}

    def _field(self, field: FieldDescriptor) -> Json:
        text, choice = comment(field.full_name), field.containing_oneof
        if choice is not None and len(choice.fields) > 1:
            others = ", ".join(one.json_name for one in choice.fields if one is not field)
            text = f"{text} Instead of {others}.".strip()
        made = self.value(field) | {"description": text}
        if is_secret(field):
            return made | {"writeOnly": True}
        return made | {"readOnly": True} if text.startswith(OUTPUT) else made

    def _enum(self, kind: EnumDescriptor) -> Json:
        text = [comment(kind.full_name), ""]
        scope = kind.full_name.rpartition(".")[0]
        values = {one.name: comment(f"{scope}.{one.name}") for one in kind.values}
        text += [f"* `{name}`: {words}".rstrip(": ") for name, words in values.items()]
        return {"type": "string", "description": "\n".join(text).strip(),
                "enum": [one.name for one in kind.values]}  # fmt: skip


def ref(name: str, place: str = "schemas") -> Json:
    return {"$ref": f"#/components/{place}/{name}"}


def comment(name: str) -> str:
    text = written(name)
    return SHARED.get(name.rpartition(".")[2], text) if text == "See common.proto." else text


def errors() -> Json:
    """What a refusal is."""
    words = sorted(one.word for one in reasons())
    violation = thing("A field that is wrong.", field=TEXT, description=TEXT, reason=ref("Reason"))
    detail = thing("One of google.rpc.", **{"@type": TEXT}) | {"required": ["@type"]}
    held = thing("Why not, and what to do.", code={"type": "integer"}, status=TEXT, message=TEXT,
                 details={"type": "array", "items": detail})  # fmt: skip
    held["required"] = ["code", "status", "message", "details"]
    problem = thing("The same as RFC 9457 has it.", type=TEXT, title=TEXT,
                    status={"type": "integer"}, detail=TEXT, reason=ref("Reason"),
                    metadata={"type": "object", "additionalProperties": TEXT},
                    errors={"type": "array", "items": violation})  # fmt: skip
    problem["required"] = ["type", "title", "status", "detail", "reason", "metadata"]
    of_later = "ErrorReason of the contracts; later versions may have more."
    known = TEXT | {"examples": words, "description": of_later}
    error = thing("A refusal.", error=held) | {"required": ["error"]}
    return {"Reason": known, "Error": error, "Problem": problem}


def thing(text: str, **properties: Json) -> Json:
    return {"type": "object", "description": text, "properties": properties}


TEXT: Json = {"type": "string"}
MAYBE: Json = {"type": ["string", "null"]}
COUNT: Json = {"type": "integer", "minimum": 0}
REFUSED: Json = {
    "description": "Refused: the reason, the fields that are wrong, and what to do.",
    "headers": {"Retry-After": ref("Retry-After", "headers")},
    "content": {JSON: {"schema": ref("Error")}, PROBLEM: {"schema": ref("Problem")}},
}
HEADERS: Json = {
    name: {"description": text, "schema": TEXT}
    for name, text in {
        "ETag": "Of what was answered; for If-Match.",
        "Location": "Where what was made stands.",
        "Raftsched-Revision": "What the answer is true at.",
        "Retry-After": "Seconds, with 429 and 503 where trying again helps.",
    }.items()
}
PLAIN_ANSWERS = {
    "CreateJob": "PlainJobCreated", "GetJobStatus": "PlainJobStatus",
    "ListJobHistory": "PlainJobHistory", "DeleteJob": "PlainJobDeleted",
}  # fmt: skip
PLAIN_FIELDS: Json = {
    "name": TEXT | {"description": "Unique in its namespace; one is made if there is none."},
    "namespace": TEXT,
    "cron": TEXT | {"examples": ["0 9 * * *"]},
    "run_at": TEXT | {"format": "date-time", "description": "Once, then."},
    "every": TEXT | {"examples": ["90s", "2h30m"]},
    "zone": TEXT | {"examples": ["Europe/Berlin"]},
    "callback_url": TEXT | {"format": "uri", "description": "Called with POST."},
    "target": TEXT | {"format": "uri", "description": "Another word for callback_url."},
    "priority": TEXT | {"enum": ["HIGH", "MEDIUM", "LOW"]},
    "payload": {"description": "Any JSON, sent as the body."},
    "retries": COUNT | {"maximum": plain.RETRIES_MAX},
    "jitter": TEXT | {"examples": ["30s"]},
}
PLAIN_RUN = thing(
    "A run.", run_id=TEXT, status=TEXT, scheduled_time=MAYBE, start_time=MAYBE, end_time=MAYBE,
    retry_count=COUNT, error=MAYBE, warning=MAYBE,
)  # fmt: skip
PLAIN_SCHEMAS: Json = {
    "PlainJob": thing("A job in its short form.", **PLAIN_FIELDS) | {"additionalProperties": False},
    "PlainJobCreated": thing("It was made.", job_id=TEXT, next_fire_time=MAYBE)
    | {"required": ["job_id", "next_fire_time"]},
    "PlainJobStatus": thing(
        "How it stands.", job_id=TEXT, status=TEXT, last_run=MAYBE, next_run=MAYBE,
        retry_count=COUNT, warning=MAYBE,
    ) | {"required": ["job_id", "status", "last_run", "next_run", "retry_count", "warning"]},
    "PlainJobHistory": thing(
        "Its runs, newest first.", job_id=TEXT, runs={"type": "array", "items": PLAIN_RUN},
        next_page_token=TEXT,
    ) | {"required": ["job_id", "runs", "next_page_token"]},
    "PlainJobDeleted": thing("It was deleted.", deleted={"type": "boolean"})
    | {"required": ["deleted"]},
}  # fmt: skip


def main(arguments: list[str]) -> int:
    if arguments not in ([], ["--check"]):
        sys.stderr.write("usage: python -m raftsched.client.gateway.openapi [--check]\n")
        return 2
    text = json.dumps(document(), indent=1, ensure_ascii=False) + "\n"
    if not arguments:
        TARGET.write_text(text)
    elif not TARGET.exists() or TARGET.read_text() != text:
        sys.stderr.write(f"{TARGET.name} is out of date; run ./dev proto\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
