"""One connection: its requests come one after the other, in turns with those of other addresses.

h11 reads the requests. Answers are written here, head and body at once: made as events of h11 and
sent apart they cost a third of all that a short call costs the gateway.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from typing import Any, Protocol, cast

import h11
from starlette.types import ASGIApp, Message, Scope

from .config import HEAD_S, IDLE_S, READ_S, Settings
from .head import RequestReader, head_of, refusal_of, stays, whole
from .idle import IdleConnections
from .problems import GatewayRefusal
from .room import Room
from .turns import ConnectionTurns
from .wire import is_in

logger = logging.getLogger("raftsched.gateway")
# Looked at in one turn: a body in the smallest chunks takes some 15 ms for it.
READ_BYTES = 8 << 10
# Of a body, so much may wait until somebody reads it.
AHEAD_BYTES = 64 << 10
NO_ROOM = 503  # For all, where 429 is for one address.
BODILESS = (204, 304)
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


class ServedByPort(Protocol):
    """What a port has at a time, and what every answer says."""

    connections: set[Any]
    tasks: set[asyncio.Task[None]]
    default_headers: list[tuple[bytes, bytes]]


class GatewayConnection(asyncio.Protocol):
    """One that has so much time for the head of a request, and to read an answer."""

    def __init__(
        self, room: Room, idle: IdleConnections, turns: ConnectionTurns, settings: Settings,
        app: ASGIApp, state: ServedByPort,
    ) -> None:  # fmt: skip
        self._room, self._idle, self._turns = room, idle, turns
        self._proxies = settings.proxies
        self._app, self.state = app, state
        self._loop = asyncio.get_running_loop()
        self.transport: asyncio.Transport = None  # type: ignore[assignment]
        self.client = ("", 0)
        # Of whoever has a place.
        self._address: str | None = None
        # It is of a proxy, which asks for many.
        self._is_shared = False
        # What came and waits for its turn, and whether that was asked for.
        self._came, self._waits = b"", False
        self._reader = RequestReader()
        self._request: AsgiRequest | None = None
        # A request has begun to come.
        self._begun = False
        self.writable = asyncio.Event()
        self.writable.set()
        # When it is broken off: for a head that does not come, and for an answer nobody reads.
        self._ending: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None

    # What the loop says.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # That of uvloop is none by its class.
        self.transport = cast(asyncio.Transport, transport)
        self.state.connections.add(self)
        # Else the body of an answer waits, for some 40 ms, until the caller has confirmed its head.
        one = transport.get_extra_info("socket")
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        peer = transport.get_extra_info("peername") or ("", 0)
        self.client = str(peer[0]), int(peer[1])
        address = self.client[0]
        self._is_shared = is_in(address, self._proxies)
        try:
            self._take_place(address)
        except GatewayRefusal as refused:
            self._refuse(refused)
        else:
            self._address = address
            self._end_after(HEAD_S)
            self._is_idle(asked=False)

    def _take_place(self, address: str) -> None:
        try:
            self._room.take(address, shared=self._is_shared)
        except GatewayRefusal as refused:
            if refused.status != NO_ROOM or not self._idle.give_way(address):
                raise
            self._room.take(address, shared=self._is_shared)

    def _is_idle(self, *, asked: bool) -> None:
        # A socket of this machine has no address, and whoever is behind it may be many, too.
        if self._address and not self._is_shared:
            self._idle.add(self._address, self, asked=asked)

    def break_off(self) -> None:
        """Its place is for another address. Nothing was asked on it that is not answered."""
        self._leave_place()
        self.transport.abort()

    def _leave_place(self) -> None:
        address, self._address = self._address, None
        if address is not None:
            self._room.give(address)
            self._idle.remove(address, self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.state.connections.discard(self)
        self._leave_place()
        self._came = b""
        self._end_after(None)
        self.resume_writing()
        if self._request is not None:
            self._request.leave()

    def data_received(self, data: bytes) -> None:
        if self._address is None:
            return
        self._came += data
        if len(self._came) > READ_BYTES:
            self.transport.pause_reading()
        self._ask_for_turn()

    def pause_writing(self) -> None:
        self.writable.clear()
        if self._unread is None:
            self._unread = self._loop.call_later(READ_S, self.transport.abort)

    def resume_writing(self) -> None:
        self.writable.set()
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def shutdown(self) -> None:
        """The process ends: what is under way is the last."""
        if self._request is None or self._request.answered:
            self.transport.close()
        else:
            self._request.stays = False

    # What came.

    def _may_read(self) -> bool:
        one = self._request
        if one is None or (one.answered and not one.whole):
            return True
        return not one.whole and len(one.body) <= AHEAD_BYTES

    def _ask_for_turn(self) -> None:
        if self._came and not self._waits and self._address is not None and self._may_read():
            self._waits = True
            self._turns.add(self._address, self._work)

    def go_on(self) -> None:
        """There is room again: look at what waits, or let more come."""
        if self.transport.is_closing():
            return
        if self._came:
            self._ask_for_turn()
        else:
            self.transport.resume_reading()

    def _work(self) -> None:
        """Its turn: read some of what came."""
        self._waits = False
        if self.transport.is_closing() or not self._may_read():
            return
        data, self._came = self._came[:READ_BYTES], self._came[READ_BYTES:]
        if self._request is None and not self._begun:
            self._begun = True
            self._end_after(HEAD_S)
        self._reader.receive_data(data)
        try:
            self._read()
        except h11.RemoteProtocolError as error:
            self._stop_reading(error)
        self.go_on()

    def _read(self) -> None:
        while True:
            event = self._reader.next_event()
            match event:
                case h11.Request():
                    self._begin(event)
                case h11.Data():
                    if self._request is not None:
                        self._request.add(event.data)
                case h11.EndOfMessage():
                    # What there is behind it belongs to the next one.
                    self._end_of_request()
                    return
                case _:
                    return

    def _end_of_request(self) -> None:
        assert self._request is not None, "h11 ends what it has begun"
        self._request.end()
        if self._request.answered:
            self._next()

    def _begin(self, event: h11.Request) -> None:
        path, _, query = event.target.partition(b"?")
        scope: Scope = {
            "type": "http", "http_version": event.http_version.decode(), "raw_path": path,
            "method": event.method.decode(), "query_string": query, "client": self.client,
            "headers": [(bytes(name), bytes(text)) for name, text in event.headers],
        }  # fmt: skip
        waits = self._reader.they_are_waiting_for_100_continue
        self._request = request = AsgiRequest(self, scope, stays(event), waits)
        self._end_after(None)
        if self._address is not None:
            self._idle.remove(self._address, self)
        task = self._loop.create_task(request.run(self._app))
        self.state.tasks.add(task)
        task.add_done_callback(self.state.tasks.discard)

    def _stop_reading(self, error: h11.RemoteProtocolError) -> None:
        """What came is no HTTP."""
        if self._request is not None and self._request.started:
            # It comes behind an answer, which a second one would follow as if asked for.
            self._request.leave()
            self.transport.close()
            return
        if self._request is not None:
            self._request.leave()
        self._refuse(refusal_of(error))

    def _refuse(self, refused: GatewayRefusal) -> None:
        self.transport.write(whole(refused))
        self.transport.close()

    # What goes.

    def answered(self, request: AsgiRequest) -> None:
        """All of its answer is written."""
        if not request.stays:
            self.transport.close()
        elif request.whole:
            self._next()
            self.go_on()
        else:
            # The rest of its body is dropped, and must come soon.
            self._end_after(HEAD_S)
            self.go_on()

    def _next(self) -> None:
        """Be ready for another request, of which some may be here."""
        self._came = self._reader.trailing_data[0] + self._came
        self._reader, self._request, self._begun = RequestReader(), None, False
        self._end_after(IDLE_S)
        self._is_idle(asked=True)

    def _end_after(self, seconds: float | None) -> None:
        if self._ending is not None:
            self._ending.cancel()
        self._ending = None
        if seconds is not None and not self.transport.is_closing():
            self._ending = self._loop.call_later(seconds, self.transport.abort)


class AsgiRequest:
    """A request and its answer, as the application has them."""

    __slots__ = (
        "_came", "_chunked", "_connection", "_head", "_left", "_scope", "_waits_for_100",
        "answered", "body", "started", "stays", "whole",
    )  # fmt: skip

    def __init__(
        self, connection: GatewayConnection, scope: Scope, stays: bool, waits: bool
    ) -> None:
        self._connection, self._scope = connection, scope
        self.stays, self._waits_for_100 = stays, waits
        # What came of the body and was not read, and whether all of it came.
        self.body, self.whole = bytearray(), False
        self._came = asyncio.Event()
        self._left = False
        # Some of the answer is written; all of it is.
        self.started = self.answered = False
        self._head, self._chunked = b"", False

    def add(self, data: bytes | bytearray) -> None:
        if not self.answered:
            self.body += data
            self._came.set()

    def end(self) -> None:
        self.whole = True
        self._came.set()

    def leave(self) -> None:
        """Nobody is there any more."""
        self._left = True
        self._came.set()

    async def run(self, app: ASGIApp) -> None:
        try:
            await app(self._scope, self.receive, self.send)
        except Exception:
            logger.exception("a request failed")
        if not (self.answered or self._left):
            self._connection.transport.abort()

    async def receive(self) -> Message:
        if self._waits_for_100 and not (self.started or self._left):
            self._connection.transport.write(CONTINUE)
        self._waits_for_100 = False
        if not (self._left or self.answered):
            await self._came.wait()
            self._came.clear()
        if self._left or self.answered:
            return {"type": "http.disconnect"}
        body, self.body = bytes(self.body), bytearray()
        self._connection.go_on()
        return {"type": "http.request", "body": body, "more_body": not self.whole}

    async def send(self, message: Message) -> None:
        connection = self._connection
        if not self._left:
            await connection.writable.wait()
        if self._left:
            return
        if message["type"] == "http.response.start":
            self._head = self._begun(message["status"], list(message["headers"]))
            return
        body, more = message["body"], message["more_body"]
        if self._scope["method"] == "HEAD":
            body = b""
        elif self._chunked:
            body = b"%x\r\n%b\r\n" % (len(body), body) if body else b""
            body += b"" if more else b"0\r\n\r\n"
        head, self._head = self._head, b""
        self.started = True
        if head or body:
            connection.transport.write(head + body)
        if not more:
            self.answered = True
            self._came.set()
            connection.answered(self)

    def _begun(self, status: int, headers: list[tuple[bytes, bytes]]) -> bytes:
        """The head, with how the body's end will be known."""
        names = {name for name, _ in headers}
        if (b"connection", b"close") in headers:
            self.stays = False
        elif not self.stays:
            headers.append((b"connection", b"close"))
        if b"content-length" not in names and status not in BODILESS:
            self._chunked = self._scope["http_version"] == "1.1"
            if self._chunked:
                headers.append((b"transfer-encoding", b"chunked"))
            else:
                self.stays = False
        return head_of(status, [*self._connection.state.default_headers, *headers])
