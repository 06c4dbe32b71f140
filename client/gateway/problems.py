"""Refusals over HTTP: what the contract says of a reason, as JSON that says what to do.

Two forms, by what the caller takes: the one of the contracts, `{"error": {...}}`, and
application/problem+json (RFC 9457), which holds the same.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from ...proto.contract import Next, http_status, reason
from ..sdk.errors import FieldFault, OutcomeUnknown, RaftschedError, Unavailable
from ..sdk.refusals import DOMAIN

JSON = "application/json"
PROBLEM = "application/problem+json"
TYPE = "type.googleapis.com/google.rpc."
SERVER_FAULT = "RULE_FAILED"


class GatewayRefusal(Exception):
    """The gateway, or the cluster behind it, says no."""

    def __init__(
        self,
        word: str,
        message: str,
        values: Mapping[str, str] | None = None,
        *,
        faults: Sequence[FieldFault] = (),
        retry_after: float | None = None,
        status: int = 0,
        code: str = "UNKNOWN",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """`status` is for what has another one here than its reason has, `code` for a reason of a
        later version."""
        super().__init__(message)
        rules = reason(word)
        self.word, self.message, self.values = word, message, dict(values or {})
        self.faults = tuple(faults)
        self.code = rules.code if rules is not None else code
        self.status = status or (rules.http_status if rules is not None else http_status(code))
        if retry_after is None and rules is not None and rules.retry_ms:
            retry_after = rules.retry_ms / 1000
        self.retry_after = retry_after
        self.next = rules.next if rules is not None else Next.NEXT_UNSPECIFIED
        self._headers = dict(headers or {})

    @property
    def headers(self) -> dict[str, str]:
        found = dict(self._headers)
        if self.status in (429, 503) and self.next != Next.NEXT_CHANGE:
            found["retry-after"] = str(max(1, math.ceil(self.retry_after or 0.0)))
        if self.status == 401:
            found["www-authenticate"] = 'Bearer realm="raftsched"'
        return found

    def body(self, media: str) -> bytes:
        made = self._problem() if media == PROBLEM else {"error": self._error()}
        return msgspec.json.encode(made) + b"\n"

    def _error(self) -> dict[str, Any]:
        details: list[dict[str, Any]] = [
            {
                "@type": f"{TYPE}ErrorInfo", "reason": self.word, "domain": DOMAIN,
                "metadata": self.values,
            }
        ]  # fmt: skip
        if self.faults:
            details.append({"@type": f"{TYPE}BadRequest", "fieldViolations": self._faults()})
        if self.retry_after is not None:
            details.append({"@type": f"{TYPE}RetryInfo", "retryDelay": f"{self.retry_after:g}s"})
        return {
            "code": self.status, "status": self.code, "message": self.message, "details": details,
        }  # fmt: skip

    def _problem(self) -> dict[str, Any]:
        title = self.word.replace("_", " ").capitalize()
        made: dict[str, Any] = {
            "type": f"urn:raftsched:reason:{self.word}", "title": title, "status": self.status,
            "detail": self.message, "reason": self.word, "metadata": self.values,
        }  # fmt: skip
        if self.faults:
            made["errors"] = self._faults()
        return made

    def _faults(self) -> list[dict[str, str]]:
        return [
            {"field": one.field, "description": one.message, "reason": one.reason}
            for one in self.faults
        ]


def field_faults(faults: Sequence[FieldFault]) -> GatewayRefusal:
    """Some fields are wrong; the message names the first, as the cluster's do."""
    first = faults[0]
    more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
    place = f"{first.field}: " if first.field else ""
    return GatewayRefusal(
        first.reason, f"{place}{first.message}{more}", {"field": first.field}, faults=faults
    )


def of_error(error: RaftschedError) -> GatewayRefusal:
    """What the SDK raised, as a refusal."""
    word, values, status = error.reason, dict(error.values), 0
    if isinstance(error, OutcomeUnknown):
        # What the last try met says less than that the write may have been done.
        word = "OUTCOME_UNKNOWN"
    elif not word:
        word, status = _word_of_code(error)
    if error.request_id and isinstance(error, OutcomeUnknown | Unavailable):
        values["request_id"] = error.request_id
    if word == "LIMIT_EXCEEDED" and values.get("limit") in ("message", "request"):
        status = 413
    return GatewayRefusal(
        word, error.message, values, faults=error.faults, retry_after=error.retry_after,
        status=status, code=error.code or "UNKNOWN",
    )  # fmt: skip


def _word_of_code(error: RaftschedError) -> tuple[str, int]:
    """Reason, and status if it is another than that of the reason, of what came from gRPC."""
    if isinstance(error, Unavailable):
        return "CLUSTER_UNREACHABLE", 0
    if error.code == "UNIMPLEMENTED":
        return "ROUTE_NOT_FOUND", http_status(error.code)
    return BY_CODE.get(error.code, SERVER_FAULT), 0


BY_CODE = {
    "INVALID_ARGUMENT": "FIELD_INVALID",
    "RESOURCE_EXHAUSTED": "LIMIT_EXCEEDED",
    "UNAUTHENTICATED": "UNAUTHENTICATED",
    "PERMISSION_DENIED": "FORBIDDEN",
}
