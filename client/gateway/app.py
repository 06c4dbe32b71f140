"""One request of HTTP: which call it is, who asks, what is answered."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncGenerator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import cached_property
from time import monotonic
from typing import Any, TypeVar
from urllib.parse import unquote

import msgspec
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message
from starlette.datastructures import Headers
from starlette.types import Receive, Scope, Send

from ...proto.contract import method_of
from ...proto.v1 import cluster_pb2, common_pb2
from ..async_client import AsyncClient
from ..course import WAITING, asked_wait
from ..errors import RaftschedError
from ..links import Answer
from . import manners, plain, streams, wire
from .config import BESIDE_BYTES, BODY_S, KNOWN_BYTES, MIB, Settings, body_bytes
from .pages import StaticPage, pages
from .problems import JSON, GatewayRefusal, of_error
from .room import Room
from .routes import Binding, Route, Routes
from .sharing import SharedStreams
from .transcode import parse_body, parse_query, request_of

logger = logging.getLogger("raftsched.gateway")
access = logging.getLogger("raftsched.gateway.access")
# As nginx has it: whoever asked left before the answer. Only the log shows it.
LEFT = 499
# An access token, and the secret that makes the first one.
SECRET = re.compile(r"(rsb?_)[A-Za-z0-9_-]{20,}")
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")


T = TypeVar("T")


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
    # What the cluster says of its answer, and what a browser is told of any, as headers.
    about: dict[str, str] = field(default_factory=dict)
    always: dict[str, str] = field(default_factory=dict)

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

    async def start(self, status: int, headers: dict[str, str]) -> None:
        self.status = status
        whole = {"cache-control": "no-store", "x-content-type-options": "nosniff",
                 "vary": "accept-encoding"}  # fmt: skip
        whole |= self.always | headers
        raw = [(name.encode(), text.encode("latin-1", "replace")) for name, text in whole.items()]
        await self.send({"type": "http.response.start", "status": status, "headers": raw})

    async def write(self, body: bytes, *, more: bool) -> None:
        self.sent += len(body)
        await self.send({"type": "http.response.body", "body": body, "more_body": more})

    async def answer(self, answered: Answered) -> None:
        body, headers = answered.body, dict(answered.headers)
        if len(body) >= wire.PACKED_BYTES and wire.takes_gzip(self.headers):
            if not answered.packed and len(body) > BESIDE_BYTES:
                body = await asyncio.to_thread(wire.packed, body)
            else:
                body = answered.packed or wire.packed(body)
            headers["content-encoding"] = "gzip"
        headers |= {"content-type": answered.media, "content-length": str(len(body))}
        await self.start(answered.status, headers)
        await self.write(body, more=False)

    async def refuse(self, refused: GatewayRefusal) -> None:
        self.reason = refused.word
        media = manners.problem_type(self.headers)
        body = refused.body(media)
        await self.answer(Answered(body, refused.status, refused.headers, media))


class Gateway:
    """An application as ASGI has it."""

    def __init__(self, client: AsyncClient, strangers: AsyncClient, settings: Settings) -> None:
        """`strangers` carries the calls of whoever shows no token: their connection may be broken
        off for what they do, and others' must not."""
        self._client, self._strangers, self._settings = client, strangers, settings
        limits = settings.limits
        self._requests = Room("requests", limits.requests, limits.share(limits.requests))
        # Those that wait for something are no less long than streams.
        self._streams = Room("streams", limits.streams, limits.share(limits.streams))
        self._bodies = Room("body_mb", limits.body_mb, limits.share(limits.body_mb), MIB)
        self._large = Room("large_bodies", limits.large_bodies, limits.share(limits.large_bodies))
        # One each, so that nobody's answer waits for what others sent.
        self._parsing = ThreadPoolExecutor(1, "gateway-parse")
        self._writing = ThreadPoolExecutor(1, "gateway-write")
        self._routes: Routes = plain.with_contracts()
        self._shared = SharedStreams()
        self._pages = pages(settings.prefix)
        # Set when the process stops: streams end, for others would not.
        self.stopping = asyncio.Event()

    def close(self) -> None:
        """End the threads as soon as they have done what they are at."""
        for one in (self._parsing, self._writing):
            one.shutdown(wait=False, cancel_futures=True)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        exchange = Exchange(scope, receive, send, Headers(scope=scope), self._settings)
        try:
            try:
                await self._serve(exchange)
            except GatewayRefusal as refused:
                await exchange.refuse(refused)
            except RaftschedError as error:
                await exchange.refuse(of_error(error))
        except Left:
            exchange.status = exchange.status or LEFT
        except Exception as error:
            logger.exception("the gateway failed over %s %s", exchange.verb, _logged(exchange.path))
            if exchange.status:
                raise
            await exchange.refuse(
                GatewayRefusal(
                    "RULE_FAILED",
                    "the gateway itself is at fault; its log says more, please report it",
                    {"request": type(error).__name__},
                )
            )
        finally:
            log(exchange)

    async def _serve(self, exchange: Exchange) -> None:
        headers = exchange.headers
        manners.check_single(headers)
        manners.check_host(headers, self._settings)
        exchange.always = manners.check_origin(headers, self._settings)
        if trace := wire.trace_of(headers):
            exchange.always["traceparent"] = trace
        page = self._pages.get(exchange.path)
        if page is not None:
            await self._show(exchange, page)
            return
        route, values = self._route(exchange.path)
        asks_first = exchange.verb == "OPTIONS" and "access-control-request-method" in headers
        if asks_first and exchange.always:
            await exchange.answer(Answered(b"", 200, manners.preflight(route.allow)))
            return
        binding = route.bindings.get(exchange.verb)
        if binding is None:
            raise _not_allowed(exchange.path, exchange.verb, route.allow)
        exchange.call = binding.call.verb
        if binding.call.streams_out:
            if exchange.scope["method"] == "HEAD":
                raise _not_allowed(exchange.path, "HEAD", "GET")
            await self._stream(exchange, binding, values)
            return
        waits = binding.call.slow or can_wait(binding.call.request)
        with (self._streams if waits else self._requests).taken(exchange.address):
            await exchange.answer(await self._answer(exchange, binding, values))

    async def _show(self, exchange: Exchange, page: StaticPage) -> None:
        """What is the same for everybody."""
        if exchange.verb != "GET":
            raise _not_allowed(exchange.path, exchange.verb, "GET, HEAD")
        with self._requests.taken(exchange.address):
            if page.etag in exchange.headers.get("if-none-match", ""):
                await exchange.start(304, dict(page.headers))
                await exchange.write(b"", more=False)
                return
            headers = dict(page.headers)
            await exchange.answer(Answered(page.body, 200, headers, page.media, page.packed))

    def _route(self, path: str) -> tuple[Route, list[str]]:
        try:
            found = self._routes.find(path)
        except UnicodeDecodeError:
            found = None
        if found is None:
            shown = path[:200]
            raise GatewayRefusal(
                "ROUTE_NOT_FOUND", f"no call has the path {shown!r}; one that has is /v1/jobs",
                {"path": shown},
            )  # fmt: skip
        return found

    def _caller(self, headers: Headers) -> tuple[AsyncClient, str]:
        token = manners.token_of(headers)
        return (self._client if token else self._strangers), token

    async def _answer(self, exchange: Exchange, binding: Binding, values: list[str]) -> Answered:
        headers = exchange.headers
        media = manners.check_accept(headers, (JSON,))
        client, token = self._caller(headers)
        request, is_plain = await self._request(exchange, binding, values)
        manners.put_request_id(request, headers)
        manners.put_etag(request, binding, headers)
        wire.put_trace(request, headers)

        async def ask(one: Message) -> Answer[Any]:
            answer = await self._ask(exchange, one, client, token)
            exchange.about |= manners.metadata(answer)
            return answer

        if is_plain:
            body: object = await plain.answer(request, ask)
            made = plain.location(request)
        else:
            message = (await ask(request)).message
            body, made = message, manners.etag(message)
            if manners.creates(binding, request):
                made |= manners.location(binding.template, message)
        if "location" in made:
            made["location"] = self._settings.prefix + made["location"]
        status = 201 if "location" in made else 200
        return Answered(await self._written(body), status, exchange.about | made, media)

    async def _written(self, body: object) -> bytes:
        if isinstance(body, Message) and body.ByteSize() > BESIDE_BYTES:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._writing, written, body)
        return written(body)

    async def _ask(
        self, exchange: Exchange, request: Message, client: AsyncClient, token: str
    ) -> Answer[Any]:
        call, wait = method_of(type(request)), asked_wait(request)
        timeout = call.longest_s if call.slow else min(client.timeout + wait, call.longest_s)
        asking = client.ask(request, token=token, timeout=timeout, stale=_is_stale(request))
        # Whoever left waits for nothing any more.
        return await (until_left(exchange, asking) if call.slow or wait else asking)

    async def _request(
        self, exchange: Exchange, binding: Binding, values: list[str]
    ) -> tuple[Message, bool]:
        """The request, and whether the short form of a job is spoken."""
        headers = exchange.headers
        query = parse_query(exchange.scope["query_string"].decode("latin-1"))

        def read(sent: bytes) -> tuple[Message, bool]:
            body = parse_body(sent)
            if plain.is_meant(binding, body):
                return plain.create(body, query, manners.request_id(headers)), True
            return request_of(binding, values, query, body), binding.plain

        if not has_body(headers):
            return read(b"")
        maximum = body_bytes(binding.call.request_bytes)
        manners.check_content(headers)
        with self._bodies.taken(exchange.address, declared(headers, maximum)):
            sent = await read_body(exchange, maximum)
            if len(sent) <= BESIDE_BYTES:
                return read(sent)
            if len(sent) > KNOWN_BYTES:
                await self._check_caller(headers)
            return await self._read_beside(exchange.address, lambda: read(sent))

    async def _check_caller(self, headers: Headers) -> None:
        """Refuse whoever the cluster does not know; what they may do is asked with the call."""
        client, token = self._caller(headers)
        try:
            await client.ask(
                cluster_pb2.GetClusterStatusRequest(), token=token, timeout=client.timeout
            )
        except RaftschedError as error:
            if error.code != "PERMISSION_DENIED":
                raise

    async def _read_beside(self, address: str, read: Callable[[], T]) -> T:
        self._large.take(address)
        reading = asyncio.get_running_loop().run_in_executor(self._parsing, read)
        # The thread goes on although whoever waits for it is cancelled.
        reading.add_done_callback(lambda _: self._large.give(address))
        return await asyncio.shield(reading)

    async def _stream(self, exchange: Exchange, binding: Binding, values: list[str]) -> None:
        media = manners.check_accept(exchange.headers, streams.OFFERED)
        client, token = self._caller(exchange.headers)
        request, _ = await self._request(exchange, binding, values)
        last = exchange.headers.get("last-event-id", "").strip()
        if streams.resume(request, last) or streams.has_place(request):
            await streams.check_place(client, request, token, "Last-Event-ID" if last else "after")
        with self._streams.taken(exchange.address):
            opened = self._shared.messages if has_progress(binding) else streams.messages
            rest = opened(client, request, token, client.timeout)
            async with aclosing(rest):
                # Until something came it may still be refused with a status of its own.
                first = await until_left(exchange, anext(rest))
                await exchange.start(200, {"content-type": media, "x-accel-buffering": "no"})
                await self._write(exchange, first, rest, media)

    async def _write(
        self, exchange: Exchange, first: Message, rest: AsyncGenerator[Any, None], media: str
    ) -> None:
        async def write() -> None:
            async with aclosing(streams.pieces(first, rest, media)) as body:
                async for piece in body:
                    await exchange.write(piece, more=True)

        writing, stopping = asyncio.ensure_future(write()), self.stopping.wait()
        await until_left(exchange, first_of(writing, asyncio.ensure_future(stopping)))
        await exchange.write(b"", more=False)


def has_progress(binding: Binding) -> bool:
    """Whether a stream says how far it is, so that it may go on as another one."""
    return binding.call.verb == "WatchEvents"


def written(body: object) -> bytes:
    """A message, or what is made of one, as JSON."""
    made = MessageToDict(body) if isinstance(body, Message) else body
    return msgspec.json.encode(made) + b"\n"


def _not_allowed(path: str, method: str, allow: str) -> GatewayRefusal:
    return GatewayRefusal(
        "METHOD_NOT_ALLOWED", f"{path[:200]} takes {allow}, and not {method[:20]}",
        {"method": method[:20], "allow": allow}, headers={"allow": allow},
    )  # fmt: skip


def _is_stale(request: Any) -> bool:
    """Any node may answer, so the next one is asked and not the leader."""
    kind = request.DESCRIPTOR.fields_by_name
    return "read" in kind and request.read.consistency == common_pb2.CONSISTENCY_STALE


def can_wait(request: type[Message]) -> bool:
    """Whether a call may ask the cluster to hold its answer back."""
    fields = request.DESCRIPTOR.fields_by_name
    return any(name in fields and fields[name].message_type is not None for name in WAITING)


def has_body(headers: Headers) -> bool:
    return "transfer-encoding" in headers or headers.get("content-length", "0") != "0"


def declared(headers: Headers, maximum: int) -> int:
    """The bytes that a body will have, the most if it does not say; refused if too many."""
    length = headers.get("content-length", "")
    size = int(length) if length.isdecimal() else maximum
    if size > maximum:
        raise too_large(size, maximum)
    return size


def too_large(size: int, maximum: int) -> GatewayRefusal:
    return GatewayRefusal(
        "LIMIT_EXCEEDED",
        f"the body has {size:,} bytes or more, and this call takes {maximum:,}; send less at once, "
        "or keep large payloads elsewhere and send their address",
        {"limit": "body", "maximum": str(maximum), "actual": str(size)},
        status=413,
    )


async def read_body(exchange: Exchange, maximum: int) -> bytes:
    parts, size = [], 0
    try:
        async with asyncio.timeout(BODY_S):
            while True:
                message = await exchange.receive()
                if message["type"] == "http.disconnect":
                    raise Left
                parts.append(message.get("body", b""))
                size += len(parts[-1])
                if size > maximum:
                    raise too_large(size, maximum)
                if not message.get("more_body", False):
                    return b"".join(parts)
    except TimeoutError:
        raise GatewayRefusal(
            "DEADLINE_PASSED", f"the body did not come within {BODY_S:g} s; send it faster",
            {"seconds": f"{BODY_S:g}"}, status=408, headers={"connection": "close"},
        ) from None  # fmt: skip


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


def _logged(path: str) -> str:
    """A path without the secrets that somebody has pasted into it, however they are spelled."""
    plain = unquote(path, errors="replace")
    return SECRET.sub(r"\1...", plain)[:500]


def log(exchange: Exchange) -> None:
    """One line for each request, without what may be a secret: no query, no header, no body."""
    method = str(exchange.scope["method"])
    access.info(
        "request",
        extra={
            "from": exchange.address, "method": method if method in METHODS else method[:20],
            "path": _logged(exchange.path), "call": exchange.call, "status": exchange.status,
            "reason": exchange.reason, "sent": exchange.sent,
            "trace": exchange.always.get("traceparent", "")[3:35],
            "ms": round((monotonic() - exchange.began) * 1000, 1),
        },
    )  # fmt: skip
