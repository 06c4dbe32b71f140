"""The port: connections with their limits, and the process around it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import re
import socket
import ssl
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from typing import Any, cast

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from .app import Gateway
from .config import HEAD_BYTES, HEAD_S, IDLE_S, READ_S, Settings
from .problems import JSON, GatewayRefusal
from .room import Room
from .turns import ConnectionTurns
from .wire import is_in

logger = logging.getLogger("raftsched.gateway")
STOP_S = 5
# Files that are no connections of callers: those to the cluster, and what the loop has.
FILES_KEPT = 100
HEADERS_MAX = 100
# Looked at in one turn of a connection: a body in the smallest chunks takes some 15 ms for it. And
# what the system may keep of a connection, which is what may come at once.
READ_BYTES, KEPT_BYTES = 8 << 10, 64 << 10
BACKLOG = 1_024
# Between two looks at the files of the certificate.
RENEW_S = 5.0
# Where h11 begins to show what came, which may be a secret.
QUOTED = re.compile(r":? (?:bytearray\(|b?['\"])")
# How h11 knows the end of a head; and a line that begins with a blank.
END_OF_HEAD, GOES_ON = re.compile(rb"\n\r?\n"), re.compile(rb"\n[ \t]")
# What a log record has by itself.
PLAIN_RECORD = {*vars(logging.makeLogRecord({})), "message", "asctime", "taskName"}


class HeadConnection(h11.Connection):
    """It reads no head of more lines than anybody needs, each of which takes as long as a short
    request; and none with a line that goes on, which others take for a header of its own."""

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


class _Connection(H11Protocol):
    """One that has so much time for the head of a request, and to read an answer; and that is read
    a little at a time, in turns with others."""

    def __init__(
        self, room: Room, turns: ConnectionTurns, settings: Settings, **given: Any
    ) -> None:
        super().__init__(**given)
        self.conn = HeadConnection(h11.SERVER, HEAD_BYTES)
        self._room, self._turns, self._proxies = room, turns, settings.proxies
        # What came and waits for its turn.
        self._came = b""
        # Of whoever has a place.
        self._address: str | None = None
        self._begun = False
        # When it is broken off: for a head that does not come, and for an answer nobody reads.
        self._ending: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        # Else the body of an answer waits, for some 40 ms, until the caller has confirmed its head.
        one = transport.get_extra_info("socket")
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        address = self.client[0] if self.client else ""
        try:
            self._room.take(address, shared=is_in(address, self._proxies))
        except GatewayRefusal as refused:
            self._refuse(refused)
        else:
            self._address = address
            self._end_after(HEAD_S)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._address is not None:
            self._room.give(self._address)
        self._came = b""
        self._end_after(None)
        self.resume_writing()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._address is None:
            return
        if not self._came:
            self._turns.add(self._address, self._work)
        self._came += data
        if len(self._came) > READ_BYTES:
            self.transport.pause_reading()

    def _work(self) -> None:
        """Its turn: read some of what came."""
        if self.transport.is_closing() or self._address is None:
            return
        data, self._came = self._came[:READ_BYTES], self._came[READ_BYTES:]
        super().data_received(data)
        self._look()
        if self._came:
            self._turns.add(self._address, self._work)
        elif not self.flow.read_paused and not self.transport.is_closing():
            self.transport.resume_reading()

    def on_response_complete(self) -> None:
        self._begun = False
        self._end_after(IDLE_S)
        super().on_response_complete()
        self._look()

    def _look(self) -> None:
        """A request that came whole has its own limits; one that has begun must come soon."""
        if self.cycle is not None and not self.cycle.response_complete:
            self._end_after(None)
        elif not self._begun:
            self._begun = True
            self._end_after(HEAD_S)

    def _end_after(self, seconds: float | None) -> None:
        if self._ending is not None:
            self._ending.cancel()
        self._ending = None
        if seconds is not None and not self.transport.is_closing():
            self._ending = self.loop.call_later(seconds, self.transport.abort)

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._unread is None:
            self._unread = self.loop.call_later(READ_S, self.transport.abort)

    def resume_writing(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None
        super().resume_writing()

    def send_400_response(self, msg: str) -> None:
        """What came is no HTTP: say why, in the form of all refusals."""
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            # It comes behind an answer, which a second one would follow as if asked for.
            self.transport.close()
            return
        error = sys.exc_info()[1]
        if isinstance(error, h11.RemoteProtocolError) and error.error_status_hint == 431:
            refused = GatewayRefusal(
                "LIMIT_EXCEEDED",
                f"the head of the request has over {HEAD_BYTES:,} bytes or {HEADERS_MAX} headers; "
                "send fewer or shorter ones, and long values in the body",
                {"limit": "head", "maximum": str(HEAD_BYTES)},
                status=431,
            )
        else:
            why = QUOTED.split(str(error) or msg)[0]
            refused = GatewayRefusal(
                "REQUEST_MALFORMED", f"this is no HTTP/1.1: {why}; ask with a client of HTTP",
                {"detail": why},
            )  # fmt: skip
        self._refuse(refused)

    def _refuse(self, refused: GatewayRefusal) -> None:
        body = refused.body(JSON)
        headers = {
            "content-type": JSON, "content-length": str(len(body)), "connection": "close",
            **refused.headers,
        }  # fmt: skip
        head = "".join(f"{name}: {text}\r\n" for name, text in headers.items())
        self.transport.write(f"HTTP/1.1 {refused.status} \r\n{head}\r\n".encode("latin-1") + body)
        self.transport.close()


class Port:
    """Serves a gateway until `stop`."""

    def __init__(self, app: Gateway, settings: Settings) -> None:
        limits = settings.limits
        room = Room("connections", limits.connections, limits.connections_by_address)
        protocol = cast(
            "type[asyncio.Protocol]", partial(_Connection, room, ConnectionTurns(), settings)
        )
        self._server = _Server(
            uvicorn.Config(
                app, http=protocol, log_config=None, access_log=False, lifespan="off", ws="none",
                timeout_graceful_shutdown=STOP_S, timeout_keep_alive=int(IDLE_S),
                h11_max_incomplete_event_size=HEAD_BYTES, server_header=False, backlog=BACKLOG,
                proxy_headers=False,
                ssl_certfile=settings.certificate or None, ssl_keyfile=settings.key or None,
            )
        )  # fmt: skip
        self._app = app
        self._task: asyncio.Task[None] | None = None
        self._renewing: asyncio.Task[None] | None = None
        self._certificate = Certificate(settings) if settings.certificate else None

    async def start(self, host: str, port: int) -> str:
        """Listen; returns the address with its real port. Raises OSError."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listening = socket.create_server((host, port), family=family, backlog=BACKLOG)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, KEPT_BYTES)
        self._server.config.load()
        if self._certificate is not None and self._server.config.ssl is not None:
            self._renewing = asyncio.create_task(self._certificate.renew(self._server.config.ssl))
        self._task = asyncio.create_task(self._server.serve([listening]), name="gateway")
        shown = f"[{host}]" if ":" in host else host
        return f"{shown}:{listening.getsockname()[1]}"

    @property
    def task(self) -> asyncio.Task[None]:
        """It ends with `stop` only."""
        if self._task is None:
            raise RuntimeError("the port is not started; await start() first")
        return self._task

    async def stop(self) -> None:
        """Let what is under way end, for some seconds; streams are ended at once."""
        self._app.stopping.set()
        self._server.should_exit = True
        await asyncio.wait([self.task], timeout=STOP_S + 1)
        self._server.force_exit = True
        await self.task
        if self._renewing is not None:
            self._renewing.cancel()
        self._app.close()


class Certificate:
    """Its files, which may change while connections stand: each new one shows the new one."""

    def __init__(self, settings: Settings) -> None:
        self._files = settings.certificate, settings.key
        self._known = self._stamps()

    def _stamps(self) -> list[tuple[int, int, int]]:
        looked = [os.stat(name) for name in self._files]
        return [(one.st_mtime_ns, one.st_size, one.st_ino) for one in looked]

    async def renew(self, context: ssl.SSLContext) -> None:
        """Look now and then, until it is cancelled."""
        while True:
            await asyncio.sleep(RENEW_S)
            self.look(context)

    def look(self, context: ssl.SSLContext) -> None:
        """Take files that have changed; the former certificate goes on if they are no pair."""
        try:
            now = self._stamps()
            if now == self._known:
                return
            self._known = now
            # Key and certificate of two pairs would spoil the context that is in use.
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(*self._files)
            context.load_cert_chain(*self._files)
        except OSError as error:
            logger.warning(
                "the certificate %s was not read again, and the former goes on: %s",
                self._files[0], error,
            )  # fmt: skip
        else:
            logger.info("the certificate was read again, as its files changed")


def may_have(connections: int) -> int:
    """Raise what this process may have open for so many; how many it may have then."""
    if sys.platform == "win32":
        return connections
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + FILES_KEPT
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    least = wanted if soft == resource.RLIM_INFINITY else soft
    return max(1, min(connections, least - FILES_KEPT))


class _Server(uvicorn.Server):
    """Whoever starts it has signals of its own."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class Lines(logging.Formatter):
    """A log record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC)
        line = {
            "time": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "message": record.getMessage(),
        }
        line |= {key: value for key, value in vars(record).items() if key not in PLAIN_RECORD}
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)
