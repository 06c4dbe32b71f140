"""From a request of HTTP to a call of the cluster and back: which call it is, and who asks."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, aclosing
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import msgspec
from google.protobuf.message import Message
from starlette.types import Receive, Scope, Send

from ...proto import tracing
from ...proto.contract import method_of
from ...proto.v1 import access_pb2, cluster_pb2, common_pb2
from ..sdk.async_core import AsyncClientCore
from ..sdk.course import WAITING, asked_wait
from ..sdk.errors import RaftschedError
from ..sdk.links import Answer
from . import manners, plain, streams, wire
from .answers import SharedAnswers
from .as_json import as_json
from .bodies import has_body, read_body
from .config import BESIDE_BYTES, MIB, Settings, body_bytes
from .doorkeeper import Doorkeeper
from .exchange import LEFT, Answered, Exchange, Left, first_of, log, logged, until_left
from .headers import Headers
from .pages import Pages, StaticPage
from .problems import JSON, GatewayRefusal, of_error
from .room import Room
from .routes import Binding, Route, Routes
from .sharing import SharedStreams
from .signin import BODY_BYTES as SESSION_BYTES
from .signin import PATH as SESSION
from .signin import SignIn
from .transcode import parse_body, parse_query, request_of

logger = logging.getLogger("raftsched.gateway")
T = TypeVar("T")
# Calls that say how the node that is asked sees things now.
OF_THE_NODE = frozenset({"GetClusterStatus", "GetFigures"})


class Gateway:
    """An application as ASGI has it."""

    def __init__(
        self, client: AsyncClientCore, strangers: AsyncClientCore, settings: Settings
    ) -> None:
        """`strangers` carries the calls of whoever shows no token: their connection may be broken
        off for what they do, and others' must not."""
        self._client, self._strangers, self._settings = client, strangers, settings
        self._doorkeeper = Doorkeeper()
        limits = settings.limits
        self._requests = Room("requests", limits.requests, limits.share(limits.requests))
        # Those that wait for something are no less long than streams.
        self._streams = Room("streams", limits.streams, limits.share(limits.streams))
        self._bodies = Room("body_mb", limits.body_mb, limits.share(limits.body_mb), MIB)
        self._answers = Room("answers_mb", limits.answers_mb, limits.share(limits.answers_mb), MIB)
        self._large = Room("large_bodies", limits.large_bodies, limits.share(limits.large_bodies))
        # One each, so that nobody's answer waits for what others sent.
        self._parsing = ThreadPoolExecutor(1, "gateway-parse")
        self._writing = ThreadPoolExecutor(1, "gateway-write")
        self._routes: Routes = plain.with_contracts()
        self._shared = SharedStreams()
        self._answers_shared = SharedAnswers()
        self._pages = Pages(settings.prefix)
        self._sign_in = SignIn(settings, self._who, self._read_session)
        # Set when the process stops: streams end, for others would not.
        self.stopping = asyncio.Event()

    def close(self) -> None:
        """End the threads as soon as they have done what they are at."""
        self._answers_shared.close()
        for one in (self._parsing, self._writing):
            one.shutdown(wait=False, cancel_futures=True)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        exchange = Exchange(scope, receive, send, Headers(scope["headers"]), self._settings)
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
            logger.exception("the gateway failed over %s %s", exchange.verb, logged(exchange.path))
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
            if exchange.span is not None:
                exchange.span.end()

    async def _serve(self, exchange: Exchange) -> None:
        headers = exchange.headers
        manners.check_single(headers, exchange.scope["http_version"])
        manners.check_host(headers, self._settings)
        exchange.always = manners.check_origin(headers, self._settings)
        if trace := wire.trace_of(headers):
            exchange.always["traceparent"] = trace
        page = self._pages.find(exchange.path, headers)
        if page is not None:
            await self._show(exchange, page)
            return
        if exchange.path == SESSION or exchange.path.startswith(f"{SESSION}/"):
            with self._requests.taken(exchange.address):
                await exchange.answer(await self._sign_in.answer(exchange))
            return
        route, values = self._route(exchange.path)
        asks_first = exchange.verb == "OPTIONS" and "access-control-request-method" in headers
        if asks_first and exchange.always:
            await exchange.answer(Answered(b"", 200, manners.preflight(route.allow)))
            return
        binding = route.bindings.get(exchange.verb)
        if binding is None:
            raise _not_allowed(exchange.path, exchange.verb, route.allow, self._routes)
        exchange.call = binding.call.verb
        if binding.call.streams_out:
            if exchange.scope["method"] == "HEAD":
                raise _not_allowed(exchange.path, "HEAD", "GET")
            await self._stream(exchange, binding, values)
            return
        media = manners.check_accept(headers, (JSON,))
        token = self._token(exchange)
        # Behind that, so that a flood of strangers makes none.
        self._begin_span(exchange, binding)
        request, is_plain = await self._request(exchange, binding, values)
        waits = binding.call.slow or can_wait(binding.call.request)
        with (
            (self._streams if waits else self._requests).taken(exchange.address),
            exchange.held,
        ):
            if not is_plain and not waits and may_share(binding, request):
                key = token, binding.call.name, request.SerializeToString(deterministic=True)
                make = partial(self._answer_for_all, exchange, binding, request, token)
                answered = await self._answers_shared.get(key, make)
            else:
                answered = await self._answer(exchange, binding, request, token, is_plain)
            answered.media = media
            await exchange.answer(answered)

    def _begin_span(self, exchange: Exchange, binding: Binding) -> None:
        if (spans := tracing.active()) is not None:
            from .request_spans import begun  # It loads OpenTelemetry.

            exchange.span = begun(spans, exchange, self._settings.prefix + binding.template)
            if exchange.span is not None:
                exchange.always["traceparent"] = exchange.span.traceparent

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

    def _token(self, exchange: Exchange) -> str:
        """The token that is shown; refused where the cluster would refuse whoever asks."""
        token = self._shown(exchange)
        self._doorkeeper.check(exchange.call, token, exchange.address)
        return token

    def _shown(self, exchange: Exchange) -> str:
        """That of the header Authorization, where there is one, and else that of the cookie."""
        if "authorization" in exchange.headers:
            return manners.token_of(exchange.headers)
        return self._sign_in.token_of(exchange)

    async def _who(self, exchange: Exchange, token: str) -> access_pb2.Caller:
        """Whose token that is; refused as the cluster refuses it."""
        request = access_pb2.WhoAmIRequest()
        exchange.call = method_of(type(request)).verb
        caller: access_pb2.Caller = (await self._ask(exchange, request, token)).message
        return caller

    async def _read_session(self, exchange: Exchange) -> bytes:
        """The body of whoever signs in, who is not known yet."""
        if not has_body(exchange.headers):
            return b""
        with self._bodies.growing(exchange.address) as keep:
            return await read_body(
                exchange, SESSION_BYTES, keep, lambda: self._check_caller(exchange)
            )

    def _caller(self, token: str) -> AsyncClientCore:
        return self._client if token else self._strangers

    async def _answer(
        self, exchange: Exchange, binding: Binding, request: Message, token: str, is_plain: bool
    ) -> Answered:
        headers = exchange.headers
        manners.put_request_id(request, headers)
        manners.put_etag(request, binding, headers)
        # Where there are spans, a run belongs to the one that defers it, below that of the request.
        if exchange.span is None:
            wire.put_trace(request, headers)

        async def ask(one: Message) -> Answer[Any]:
            answer = await self._ask(exchange, one, token)
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
        text = await self._written(exchange, binding, body)
        return Answered(text, status, exchange.about | made)

    async def _answer_for_all(
        self, exchange: Exchange, binding: Binding, request: Message, token: str
    ) -> Answered:
        """The same for several who ask: it lasts longer than the exchange of the first one."""
        own = replace(exchange, held=ExitStack(), about={})
        with own.held:
            answered = await self._answer(own, binding, request, token, is_plain=False)
            if len(answered.body) > BESIDE_BYTES:
                answered.packed = await asyncio.to_thread(wire.packed, answered.body)
            elif len(answered.body) >= wire.PACKED_BYTES:
                answered.packed = wire.packed(answered.body)
        return answered

    async def _written(self, exchange: Exchange, binding: Binding, body: object) -> bytes:
        if not isinstance(body, Message) or (size := body.ByteSize()) <= BESIDE_BYTES:
            return written(body)
        # Whoever does not read what it asked for keeps it here. What was changed is always said.
        hold = self._answers.taken if binding.call.harmless else self._answers.held
        exchange.held.enter_context(hold(exchange.address, size))
        return await asyncio.get_running_loop().run_in_executor(self._writing, written, body)

    async def _ask(self, exchange: Exchange, request: Message, token: str) -> Answer[Any]:
        client, call, wait = self._caller(token), method_of(type(request)), asked_wait(request)
        timeout = call.longest_s if call.slow else min(client.timeout + wait, call.longest_s)
        asking = client.ask(request, token=token, timeout=timeout, stale=_is_stale(request))
        with self._doorkeeper.asking(exchange.call, token, exchange.address):
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
        with self._bodies.growing(exchange.address) as keep:
            sent = await read_body(exchange, maximum, keep, lambda: self._check_caller(exchange))
            if len(sent) <= BESIDE_BYTES:
                return read(sent)
            return await self._read_beside(exchange.address, lambda: read(sent))

    async def _check_caller(self, exchange: Exchange) -> None:
        """Refuse whoever the cluster does not know; what they may do is asked with the call."""
        token = self._shown(exchange)
        try:
            await self._ask(exchange, cluster_pb2.GetClusterStatusRequest(), token)
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
        token = self._token(exchange)
        client = self._caller(token)
        request, _ = await self._request(exchange, binding, values)
        last = exchange.headers.get("last-event-id", "").strip()
        if streams.resume(request, last) or streams.has_place(request):
            await streams.check_place(client, request, token, "Last-Event-ID" if last else "after")
        with self._streams.taken(exchange.address):
            opened = self._shared.messages if has_progress(binding) else streams.messages
            rest = opened(client, request, token, client.timeout)
            async with aclosing(rest):
                # Until something came it may still be refused with a status of its own.
                with self._doorkeeper.asking(exchange.call, token, exchange.address):
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
    made = as_json(body) if isinstance(body, Message) else body
    return msgspec.json.encode(made) + b"\n"


def _not_allowed(
    path: str, method: str, allow: str, routes: Routes | None = None
) -> GatewayRefusal:
    message = f"{path[:200]} takes {allow}, and not {method[:20]}"
    # The short form has few calls; the paths of the contracts have all.
    other = path.removeprefix("/api")
    found = routes.find(other) if routes is not None and other != path else None
    if found is not None and method in found[0].bindings:
        message += f"; type {method} {other[:200]}, which does"
    return GatewayRefusal(
        "METHOD_NOT_ALLOWED", message, {"method": method[:20], "allow": allow},
        headers={"allow": allow},
    )  # fmt: skip


def _is_stale(request: Any) -> bool:
    """Any node may answer, so the next one is asked and not the leader."""
    kind = request.DESCRIPTOR.fields_by_name
    return "read" in kind and request.read.consistency == common_pb2.CONSISTENCY_STALE


def may_share(binding: Binding, request: Message) -> bool:
    """Whether an answer of just now will do: it promises no more."""
    call = binding.call
    return call.harmless and (call.verb in OF_THE_NODE or _is_stale(request))


def can_wait(request: type[Message]) -> bool:
    """Whether a call may ask the cluster to hold its answer back."""
    fields = request.DESCRIPTOR.fields_by_name
    return any(name in fields and fields[name].message_type is not None for name in WAITING)
