"""From path, query and body to the request of a call; all wrong fields are refused at once."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import parse_qsl

from google.protobuf.message import Message

from .config import VALUES_MAX
from .fields import Reader, names
from .problems import GatewayRefusal, field_faults
from .routes import Binding

QUERY_FIELDS_MAX = 200
NAMESPACE = "namespace"
# The body of these holds a job, below which the contract counts the paths of its faults.
JOB = "job"
# As many as Python turns into a number.
DIGITS_MAX = 4_300
# Some of a text. What is searched goes on for so long only, as nothing else runs in this process
# meanwhile.
TEXT = re.compile(rb'(?:[^"\\]{1,4096}+|\\.){1,1024}+', re.DOTALL)
# A name with its colon, or a value: its text, its word or number, or its opening bracket; where a
# text goes on behind what is searched; and much of what stands between. No part is tried often, so
# the time goes with the length whatever comes.
TOKEN = re.compile(
    rb'"(?:[^"\\]{1,4096}+|\\.){0,1024}+(?:"(\s{0,65536}+:)?|(?=(.)))?'
    rb'|[^\s,:\[\]{}"]{1,65536}+|[\[{]|([\s,:\]}]{16,65536}+)',
    re.DOTALL,
)


NAME, GOES_ON, BETWEEN = 1, 2, 3


def parse_body(body: bytes) -> object:
    """What JSON holds, None for nothing; refused if it is none, or an object names a key twice."""
    if not body:
        return None
    check_values(body)
    try:
        return json.loads(
            body.decode(), object_pairs_hook=_unique, parse_constant=_constant, parse_int=_integer
        )
    except UnicodeDecodeError as error:
        why = f"byte {error.start + 1} is no UTF-8"
    except json.JSONDecodeError as error:
        why = f"line {error.lineno}, column {error.colno}: {error.msg}"
    except RecursionError:
        why = "it is nested too deep"
    except ValueError as error:
        # Of the two above and of numbers with thousands of digits.
        why = str(error)[:200]
    raise GatewayRefusal(
        "REQUEST_MALFORMED", f"the body is no JSON: {why}; mend it, for example with jq",
        {"detail": why},
    )  # fmt: skip


def check_values(body: bytes) -> None:
    """Refuse a body of too many values before any object is made of it."""
    values = named = 0
    at = 0
    while token := TOKEN.search(body, at):
        at, kind = token.end(), token.lastindex
        if kind == BETWEEN:
            continue
        if kind == GOES_ON:
            while text := TEXT.match(body, at):
                at = text.end()
            at += 1
        if kind == NAME:
            named += 1
        else:
            values += 1
        if max(values, named) > VALUES_MAX:
            raise GatewayRefusal(
                "LIMIT_EXCEEDED",
                f"the body has over {VALUES_MAX:,} values; send it in several calls",
                {"limit": "values", "maximum": str(VALUES_MAX)},
                status=413,
            )


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(key for key, times in Counter(key for key, _ in pairs).items() if times > 1)
        raise ValueError(f"an object has the key {twice[:60]!r} twice")
    return found


def _integer(digits: str) -> int:
    if len(digits) > DIGITS_MAX:
        raise ValueError(f"a number has {len(digits):,} digits; {DIGITS_MAX:,} are the most")
    return int(digits)


def _constant(word: str) -> None:
    raise ValueError(f"{word} is no number of JSON")


def parse_query(query: str) -> dict[str, list[str]]:
    """The texts of a query, by field; refused if they are none."""
    found = dict[str, list[str]]()
    try:
        pairs = parse_qsl(
            query, keep_blank_values=True, errors="strict", max_num_fields=QUERY_FIELDS_MAX
        )
    except ValueError:
        raise GatewayRefusal(
            "REQUEST_MALFORMED",
            f"the query has over {QUERY_FIELDS_MAX} fields or is no UTF-8; send less, or a body",
            {"detail": "query"},
        ) from None
    for name, value in pairs:
        found.setdefault(name, []).append(value)
    return found


def request_of(
    binding: Binding, in_path: Sequence[str], query: Mapping[str, list[str]], body: object
) -> Message:
    """The request that is meant; GatewayRefusal with every wrong field."""
    values = dict(zip(binding.variables, in_path, strict=True))
    request, reader = binding.call.request(), Reader()
    if body is not None:
        _fill_body(request, binding.body, body, reader)
    seen = set[str]()
    for name, texts in query.items():
        there = _own_name(request, name)
        if there in seen:
            reader.note(there, "it stands in the query in two spellings; keep one of them")
        elif there in values:
            reader.note(there, "it stands in the path; take it out of the query")
        elif binding.body not in ("", "*") and there.split(".")[0] == binding.body:
            reader.note(there, "it stands in the body; take it out of the query")
        elif body is not None and binding.body == "*" and _is_set(request, there):
            reader.note(there, "it stands in the body and in the query; keep one of them")
        elif there == NAMESPACE and owns_namespace(request.DESCRIPTOR, binding.body):
            _put_namespace(getattr(request, binding.body), texts, reader)
        else:
            reader.put_text(request, name, texts, there)
        seen.add(there)
    for name, text in values.items():
        _fill_path(request, name, text, reader)
    if reader.faults:
        raise field_faults(reader.faults)
    return request


def _put_namespace(resource: Any, texts: list[str], reader: Reader) -> None:
    """Whose the resource in the body is, as the path of what was made has it behind it."""
    if resource.namespace not in ("", *texts):
        reader.note(NAMESPACE, f"it is {resource.namespace!r} in the body; keep one of them")
    else:
        reader.put_text(resource, NAMESPACE, texts, NAMESPACE)


def owns_namespace(request: Any, place: str) -> bool:  # A descriptor of protobuf.
    """Whether the body is a resource that says itself whose it is."""
    if NAMESPACE in request.fields_by_name or place in ("", "*"):
        return False
    return NAMESPACE in request.fields_by_name[place].message_type.fields_by_name


def _fill_body(request: Message, place: str, body: object, reader: Reader) -> None:
    if not place:
        reader.note("", "this call takes no body; send its fields in the query")
    elif place == "*":
        reader.fill(request, body)
    else:
        inner = getattr(request, place)
        inner.SetInParent()
        reader.fill(inner, body, "" if place == JOB else place)


def _fill_path(request: Message, name: str, text: str, reader: Reader) -> None:
    held: Any = request
    *outer, last = name.split(".")
    for part in outer:
        held = getattr(held, part)
    given = getattr(held, last)
    if given and given != text:
        path = name.removeprefix(f"{JOB}.")
        reader.note(path, f"it is {given!r} in the body and {text!r} in the path; keep one")
        return
    setattr(held, last, text)


def _own_name(request: Message, name: str) -> str:
    """A path as the contract writes it; as it was given, from the first field that is unknown."""
    kind: Any = request.DESCRIPTOR
    parts = name.split(".")
    for number, part in enumerate(parts):
        field = names(kind).get(part) if kind is not None else None
        if field is None:
            break
        parts[number], kind = field.name, field.message_type
    return ".".join(parts)


def _is_set(request: Any, path: str) -> bool:
    """Whether the first field of a path has another value than by default."""
    first = path.split(".")[0]
    return any(field.name == first for field, _ in request.ListFields())
