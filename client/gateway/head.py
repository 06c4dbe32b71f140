"""The head of a request as it comes, and that of an answer as it goes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any

import h11

from .config import HEAD_BYTES
from .problems import JSON, GatewayRefusal

HEADERS_MAX = 100
# Where h11 begins to show what came, which may be a secret.
QUOTED = re.compile(r":? (?:bytearray\(|b?['\"])")
# How h11 knows the end of a head; and a line that begins with a blank.
END_OF_HEAD, GOES_ON = re.compile(rb"\n\r?\n"), re.compile(rb"\n[ \t]")
Pairs = Sequence[tuple[bytes, bytes]]
STATUS_LINES = {one.value: f"HTTP/1.1 {one.value} {one.phrase}\r\n".encode() for one in HTTPStatus}


class RequestReader(h11.Connection):
    """It reads one request, and no head of more lines than anybody needs, each of which takes as
    long as a short request; and none with a line that goes on, which others take for a header."""

    def __init__(self, came: bytes = b"") -> None:
        super().__init__(h11.SERVER, HEAD_BYTES)
        if came:
            self.receive_data(came)

    def next_event(self) -> Any:
        if self.their_state is h11.IDLE:
            check_head(self.trailing_data[0])
        return super().next_event()


def check_head(came: bytes) -> None:
    """Refuse what came of a head; behind it there may be more."""
    if came.count(b"\n") <= HEADERS_MAX and GOES_ON.search(came) is None:
        return
    end = END_OF_HEAD.search(came)
    head = came[: end.start()] if end is not None else came
    if head.count(b"\n") > HEADERS_MAX:
        raise h11.RemoteProtocolError("too many headers", error_status_hint=431)
    if GOES_ON.search(head) is not None:
        raise h11.RemoteProtocolError("a header goes on in a second line; send it in one")


def stays(request: h11.Request) -> bool:
    """Whether another request may follow on the connection."""
    if request.http_version != b"1.1":
        return False
    texts = [text.lower() for name, text in request.headers if name == b"connection"]
    return not any(b"close" in (word.strip() for word in text.split(b",")) for text in texts)


def head_of(status: int, headers: Pairs) -> bytes:
    """The head of an answer."""
    lines = b"".join(b"%b: %b\r\n" % pair for pair in headers)
    if lines.count(b"\n") != len(headers) or lines.count(b"\r") != len(headers) or b"\0" in lines:
        raise ValueError("a header of the answer holds the end of a line")
    first = STATUS_LINES.get(status) or b"HTTP/1.1 %d \r\n" % status
    return b"%b%b\r\n" % (first, lines)


def refusal_of(error: h11.RemoteProtocolError) -> GatewayRefusal:
    """What came is no HTTP: say why, in the form of all refusals."""
    if error.error_status_hint == 431:
        return GatewayRefusal(
            "LIMIT_EXCEEDED",
            f"the head of the request has over {HEAD_BYTES:,} bytes or {HEADERS_MAX} headers; "
            "send fewer or shorter ones, and long values in the body",
            {"limit": "head", "maximum": str(HEAD_BYTES)},
            status=431,
        )
    why = QUOTED.split(str(error))[0]
    return GatewayRefusal(
        "REQUEST_MALFORMED", f"this is no HTTP/1.1: {why}; ask with a client of HTTP",
        {"detail": why},
    )  # fmt: skip


def whole(refused: GatewayRefusal) -> bytes:
    """A refusal behind which the connection ends."""
    body = refused.body(JSON)
    headers = {
        "content-type": JSON, "content-length": str(len(body)), "connection": "close",
        **refused.headers,
    }  # fmt: skip
    pairs = [(name.encode(), text.encode("latin-1", "replace")) for name, text in headers.items()]
    return head_of(refused.status, pairs) + body
