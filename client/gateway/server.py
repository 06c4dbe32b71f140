"""The port: connections with their limits, and the process around it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import socket
import ssl
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, cast

import uvicorn
from uvicorn.server import ServerState

from .app import Gateway
from .config import Settings
from .connection import GatewayConnection
from .idle import IdleConnections
from .room import Room
from .turns import ConnectionTurns

logger = logging.getLogger("raftsched.gateway")
STOP_S = 5
# Files that are no connections of callers: those to the cluster, and what the loop has.
FILES_KEPT = 100
# What the system may keep of a connection, which is what may come at once.
KEPT_BYTES = 64 << 10
BACKLOG = 1_024
# Between two looks at the files of the certificate.
RENEW_S = 5.0
# What a log record has by itself.
PLAIN_RECORD = {*vars(logging.makeLogRecord({})), "message", "asctime", "taskName"}


class Port:
    """Serves a gateway until `stop`."""

    def __init__(self, app: Gateway, settings: Settings) -> None:
        limits = settings.limits
        room = Room("connections", limits.connections, limits.connections_by_address)
        idle, turns = IdleConnections(room), ConnectionTurns()

        def accept(*, config: uvicorn.Config, server_state: ServerState, **_: Any) -> Any:
            app = config.loaded_app
            return GatewayConnection(room, idle, turns, settings, app, server_state)

        self._server = _Server(
            uvicorn.Config(
                app, http=cast("type[asyncio.Protocol]", accept), log_config=None,
                access_log=False, lifespan="off", ws="none",
                timeout_graceful_shutdown=STOP_S, server_header=False, backlog=BACKLOG,
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
            self.load(context)

    def load(self, context: ssl.SSLContext) -> None:
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
