"""What the description of all calls has beside the messages of the contracts: refusals, headers and
the short form of a job."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...proto.contract import reasons
from ...proto.v1 import options_pb2
from . import plain
from .problems import JSON, PROBLEM

Json = dict[str, Any]


def ref(name: str, place: str = "schemas") -> Json:
    return {"$ref": f"#/components/{place}/{name}"}


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
    known = TEXT | {"examples": words, "description": of_later} | {"x-refusals": refusals()}
    error = thing("A refusal.", error=held) | {"required": ["error"]}
    return {"Reason": known, "Error": error, "Problem": problem}


def refusals() -> Json:
    """The status that each reason comes with, and what to do next."""
    return {
        one.word: {"status": one.http_status, "next": next_of(one.next)}
        for one in sorted(reasons(), key=lambda one: one.word)
    }


def next_of(number: options_pb2.Next.ValueType) -> str:
    """The word of Next, in small letters."""
    return options_pb2.Next.Name(number).removeprefix("NEXT_").lower()


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
        "Raftsched-Cluster": "Whose revision and term these are.",
        "Raftsched-Leader": "Where clients reach the leader, when it is known.",
        "Raftsched-Revision": "What the answer is true at.",
        "Raftsched-Term": "Counts leaderships.",
        "Retry-After": "Seconds, with 429 and 503 where trying again helps.",
    }.items()
}
# Those of some answers only.
ELSEWHERE = ("Location", "Retry-After")
PLAIN_ANSWERS: Mapping[str, str] = {
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
