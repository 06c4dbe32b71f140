"""The port for machines that look after machines: /metrics, /healthz, /readyz, /version.

It runs on the node's own loop, so an answer also says that the loop turns. `/healthz` never asks
for a quorum: whoever restarts what is not healthy would restart a healthy minority otherwise.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, cast

import uvicorn
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from uvicorn.protocols.http.h11_impl import H11Protocol

from ..raft.port import LoopMeter, Untimed
from ..raft.transport import split
from .config import ServerFiles

STOP_SECONDS = 0.5
# When there are more connections, the one that has been waited on for longest goes: so whoever asks
# at once, as probes do, is answered however many others are silent.
CONNECTIONS_MAX = 32
WAIT_SECONDS = 5.0  # For a request, from the connection or the last answer, and to read the answer.
HEAD_MAX = 16 << 10
# Metrics are written this often at most: of a large state they take tens of milliseconds of the
# loop, and then they are written no more than this share of the time.
METRICS_SECONDS, METRICS_SECONDS_MOST = 0.2, 2.0
METRICS_SHARE = 0.05
Checks = Callable[[], Mapping[str, str]]
"""What must hold before a node takes calls: by name, why it does not; empty where it does."""


class HttpPort:
    """Serves until `stop`."""

    def __init__(
        self,
        registry: CollectorRegistry,
        checks: Checks,
        version: Mapping[str, str],
        files: ServerFiles | None = None,
        steps: LoopMeter | None = None,
    ) -> None:
        self.steps = steps or Untimed()
        self.registry, self.checks, self.version = registry, checks, version
        files = files or ServerFiles()
        app = Starlette(
            routes=[
                Route("/metrics", self._metrics),
                Route("/healthz", self._healthz),
                Route("/readyz", self._readyz),
                Route("/version", self._version),
            ]
        )
        self.connections = ProbeConnections()
        protocol = cast("type[asyncio.Protocol]", partial(_ProbeConnection, self.connections))
        self._server = _ProbeServer(
            uvicorn.Config(
                app, http=protocol, log_config=None, access_log=False, lifespan="off", ws="none",
                timeout_graceful_shutdown=1, h11_max_incomplete_event_size=HEAD_MAX,
                server_header=False, ssl_certfile=files.certificate_file or None,
                ssl_keyfile=files.key_file or None,
            )
        )  # fmt: skip
        self._server.config.load()
        # That of its connections, whose certificate may be renewed; None without TLS.
        self.context: ssl.SSLContext | None = self._server.config.ssl
        # And when they may be written again.
        self._written, self._again_at = b"", float("-inf")
        self._task: asyncio.Task[None] | None = None

    async def start(self, address: str) -> str:
        """Listen; returns the address with its real port. Raises OSError."""
        host, port = split(address)
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listening = socket.create_server((host, port), family=family, backlog=128)
        self._task = asyncio.create_task(self._server.serve([listening]), name="http")
        return f"{host}:{listening.getsockname()[1]}"

    @property
    def task(self) -> asyncio.Task[None] | None:
        """It may not end before `stop`."""
        return self._task

    async def stop(self) -> None:
        if self._task is not None:
            self._server.should_exit = True
            await asyncio.wait([self._task], timeout=STOP_SECONDS)
            self._server.force_exit = True
            await asyncio.wait([self._task], timeout=STOP_SECONDS)

    async def _metrics(self, request: Request) -> Response:
        clock = asyncio.get_running_loop().time
        began = clock()
        if began >= self._again_at:
            self._written = generate_latest(self.registry)
            self.steps.end("metrics", began)
            took = clock() - began
            rest = min(METRICS_SECONDS_MOST, took / METRICS_SHARE)
            self._again_at = began + max(METRICS_SECONDS, rest)
        return Response(self._written, media_type=CONTENT_TYPE_LATEST)

    async def _healthz(self, request: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def _readyz(self, request: Request) -> Response:
        checks = self.checks()
        ready = not any(checks.values())
        every = "verbose" in request.query_params
        lines = [
            f"[-] {name}: {why}" if why else f"[+] {name}"
            for name, why in checks.items()
            if why or every
        ]
        words = "\n".join([*lines, "ready" if ready else "not ready"])
        return PlainTextResponse(words + "\n", 200 if ready else 503)

    async def _version(self, request: Request) -> Response:
        return JSONResponse(dict(self.version))


class ProbeConnections:
    """Those that are open, within their bound."""

    def __init__(self) -> None:
        # The one that has been waited on for longest is first.
        self.open: OrderedDict[_ProbeConnection, None] = OrderedDict()
        # How many went before their time, since there were too many.
        self.dropped = 0

    def heard(self, connection: _ProbeConnection) -> None:
        """It is new, or has got an answer."""
        self.open[connection] = None
        self.open.move_to_end(connection)
        if len(self.open) > CONNECTIONS_MAX:
            oldest, _ = self.open.popitem(last=False)
            self.dropped += 1
            oldest.transport.abort()


class _ProbeConnection(H11Protocol):
    """One that has so much time for each request with its answer."""

    def __init__(self, connections: ProbeConnections, **given: Any) -> None:  # noqa: ANN401
        super().__init__(**given)
        self._all = connections
        self._ending: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait()

    def on_response_complete(self) -> None:
        self._wait()
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._all.open.pop(self, None)
        if self._ending is not None:
            self._ending.cancel()
        super().connection_lost(exc)

    def _wait(self) -> None:
        if self._ending is not None:
            self._ending.cancel()
        if not self.transport.is_closing():
            self._ending = self.loop.call_later(WAIT_SECONDS, self.transport.abort)
            self._all.heard(self)


class _ProbeServer(uvicorn.Server):
    """The node has signals of its own."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
