"""One request of HTTP and its answer, as the rest of the gateway sees them."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from time import monotonic
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from starlette.types import Receive, Scope, Send

from . import manners, wire
from .config import BESIDE_BYTES, Settings
from .headers import Headers
from .problems import JSON, GatewayRefusal

if TYPE_CHECKING:
    from .request_spans import RequestSpan

access = logging.getLogger("raftsched.gateway.access")
# An access token, and the secret that makes the first one.
SECRET = re.compile(r"(rsb?_)[A-Za-z0-9_-]{20,}")
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
# As nginx has it: whoever asked left before the answer. Only the log shows it.
LEFT = 499
# Of a long answer: the next piece is written when this one was taken.
PIECE_BYTES = 64 << 10


class Left(Exception):
    """Whoever asked is gone."""


@dataclass(slots=True)
class Answered:
    """A whole answer."""

    body: bytes
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    media: str = JSON
    # The body as gzip, where somebody has made it so already.
    packed: bytes = b""
    # What a browser is to keep, one header `Set-Cookie` each.
    cookies: tuple[str, ...] = ()


@dataclass
class Exchange:
    """A request, and what is known about its answer."""

    scope: Scope
    receive: Receive
    send: Send
    headers: Headers
    settings: Settings
    began: float = field(default_factory=monotonic)
    # For the log.
    status: int = 0
    sent: int = 0
    call: str = ""
    reason: str = ""
    # What the cluster says of its answer, and what a browser learns of any, as headers.
    about: dict[str, str] = field(default_factory=dict)
    always: dict[str, str] = field(default_factory=dict)
    # Where spans are made: its own.
    span: RequestSpan | None = None
    # What its answer takes of what is bounded, until it was read.
    held: ExitStack = field(default_factory=ExitStack)

    @property
    def verb(self) -> str:
        """HEAD is GET, whose body is left out when it is sent."""
        method = str(self.scope["method"])
        return "GET" if method == "HEAD" else method

    @cached_property
    def address(self) -> str:
        """Where the caller is."""
        client = self.scope.get("client")
        return wire.caller_of(str(client[0]) if client else "", self.headers, self.settings.proxies)

    @property
    def path(self) -> str:
        return wire.without(self.settings.prefix, bytes(self.scope["raw_path"]).decode("ascii"))

    @cached_property
    def is_secure(self) -> bool:
        """Whether the caller speaks TLS, to us or to a proxy that is trusted."""
        client = self.scope.get("client")
        peer = str(client[0]) if client else ""
        proxied = wire.is_in(peer, self.settings.proxies) and wire.was_https(self.headers)
        return bool(self.settings.certificate) or proxied

    async def start(
        self, status: int, headers: dict[str, str], cookies: tuple[str, ...] = ()
    ) -> None:
        self.status = status
        whole = {"cache-control": "no-store", "x-content-type-options": "nosniff",
                 "vary": "accept-encoding"}  # fmt: skip
        whole |= self.always | headers
        raw = [(name.encode(), text.encode("latin-1", "replace")) for name, text in whole.items()]
        raw += [(b"set-cookie", one.encode("ascii")) for one in cookies]
        await self.send({"type": "http.response.start", "status": status, "headers": raw})

    async def write(self, body: bytes, *, more: bool) -> None:
        """In pieces, so that whoever does not read has little waiting."""
        self.sent += len(body)
        last = max(0, len(body) - 1) // PIECE_BYTES * PIECE_BYTES
        for at in range(0, last, PIECE_BYTES):
            piece = body[at : at + PIECE_BYTES]
            await self.send({"type": "http.response.body", "body": piece, "more_body": True})
        piece = body[last:] if last else body
        await self.send({"type": "http.response.body", "body": piece, "more_body": more})

    async def answer(self, answered: Answered) -> None:
        body, headers = answered.body, dict(answered.headers)
        if len(body) >= wire.PACKED_BYTES and wire.takes_gzip(self.headers):
            if not answered.packed and len(body) > BESIDE_BYTES:
                body = await asyncio.to_thread(wire.packed, body)
            else:
                body = answered.packed or wire.packed(body)
            headers["content-encoding"] = "gzip"
        headers |= {"content-type": answered.media, "content-length": str(len(body))}
        await self.start(answered.status, headers, answered.cookies)
        await self.write(body, more=False)

    async def refuse(self, refused: GatewayRefusal) -> None:
        self.reason = refused.word
        media = manners.problem_type(self.headers)
        body = refused.body(media)
        await self.answer(Answered(body, refused.status, refused.headers, media))


async def first_of(*tasks: asyncio.Future[Any]) -> None:
    """Wait until one of these has ended, and end the others."""
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for one in tasks:
            one.cancel()
        await asyncio.wait(tasks)
    for one in tasks:
        if not one.cancelled():
            one.result()


async def until_left(exchange: Exchange, work: Awaitable[Any]) -> Any:
    """What work comes to; it is ended when whoever asked for it is gone."""
    task = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_left(exchange))
    await first_of(task, gone)
    if task.cancelled():
        raise Left
    return task.result()


async def _left(exchange: Exchange) -> None:
    while (await exchange.receive())["type"] != "http.disconnect":
        pass


def logged(path: str) -> str:
    """A path without the secrets that somebody has pasted into it, however they are spelled."""
    plain = unquote(path, errors="replace")
    return SECRET.sub(r"\1...", plain)[:500]


def log(exchange: Exchange) -> None:
    """One line for each request, without what may be a secret: no query, no header, no body."""
    if not access.isEnabledFor(logging.INFO):
        return
    method = str(exchange.scope["method"])
    access.info(
        "request",
        extra={
            "from": exchange.address, "method": method if method in METHODS else method[:20],
            "path": logged(exchange.path), "call": exchange.call, "status": exchange.status,
            "reason": exchange.reason, "sent": exchange.sent,
            "trace": exchange.always.get("traceparent", "")[3:35],
            "ms": round((monotonic() - exchange.began) * 1000, 1),
        },
    )  # fmt: skip
