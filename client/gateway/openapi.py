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
from ...proto.v1 import options_pb2
from . import plain
from .fields import TEXTS, is_map, is_secret, is_text
from .manners import EVENTS, LINES, creates
from .openapi_beside import (
    ELSEWHERE,
    HEADERS,
    PLAIN_ANSWERS,
    PLAIN_SCHEMAS,
    REFUSED,
    TEXT,
    Json,
    errors,
    ref,
)
from .problems import JSON
from .routes import Binding
from .transcode import NAMESPACE, owns_namespace

HERE = Path(__file__).resolve().parent
TARGET = HERE / "pages" / "openapi.json"
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
STREAMED = (
    "Server-Sent Events. One with data and no name is an Event as JSON, its id the revision: "
    '"17.3". One with an id alone says how far all was looked at. Lines that begin with a colon '
    "keep the connection. One with the name error holds what refused the stream, an Error, and "
    "nothing comes behind it."
)
DESCRIPTION = """\
Every call of the cluster over HTTP and JSON. Names are written in lowerCamelCase; those of the
contracts (snake_case) are taken too. 64-bit integers are texts, bytes are base64.

* `Authorization: Bearer SECRET` shows an access token, where the cluster has any.
* `If-Match` with the `ETag` of what was read lets a change fail with 412 when somebody came first.
* `Idempotency-Key` is the request id of a write: the same key with the same body does it once.
* Errors are `{"error": {...}}`, or application/problem+json for who takes that beside
  application/json: always a reason, the wrong fields, and what to do. The schema Reason has the
  status of each, and what to do next. 429 and 503 say `Retry-After` where trying again helps; 504
  says that the outcome is not known, and to ask again with the same Idempotency-Key.
* A call has 30 s as a rule, and beside that the time that it asks to wait (`wait`, `timeout`).
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
        events = {"type": "string", "description": STREAMED}
        content: Json = {LINES: {"schema": answer}, EVENTS: {"schema": events}}
        return {"200": {"description": "It goes on until one side ends it.", "content": content},
                "default": ref("Refused", "responses")}  # fmt: skip
    if binding.plain:
        answer = ref(PLAIN_ANSWERS[call.verb])
    elif call.verb == "CreateJob":
        answer = {"anyOf": [answer, ref("PlainJobCreated")]}
    headers = {name: ref(name, "headers") for name in HEADERS if name not in ELSEWHERE}
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
    if binding.body and owns_namespace(request, binding.body):
        owner = field_at(request, f"{binding.body}.{NAMESPACE}")
        yield {"name": NAMESPACE, "in": "query", "schema": TEXT,
               "description": f"{comment(owner.full_name)} Or in the body."}  # fmt: skip
    if "request_id" in request.fields_by_name:
        yield in_header("Idempotency-Key", "The request id of this write.")
    if compares_etag(binding):
        yield in_header("If-Match", "Only this version: the ETag of what was read.")
    if binding.call.streams_out:
        yield in_header("Last-Event-ID", "Go on behind this one; it counts before `after`.")


def in_header(name: str, text: str) -> Json:
    return {"name": name, "in": "header", "schema": {"type": "string"}, "description": text}


def compares_etag(binding: Binding) -> bool:
    """Whether the call, or the resource that it changes, names the version that is meant."""
    request: Any = binding.call.request.DESCRIPTOR
    if "etag" in request.fields_by_name:
        return True
    changed = request.fields_by_name.get(binding.body) if binding.verb in ("PATCH", "PUT") else None
    return changed is not None and "etag" in changed.message_type.fields_by_name


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


def comment(name: str) -> str:
    text = written(name)
    return SHARED.get(name.rpartition(".")[2], text) if text == "See common.proto." else text


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
