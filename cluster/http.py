"""The port for machines that look after machines: /metrics, /healthz, /readyz, /version.

It runs on the node's own loop, so an answer also says that the loop turns. `/healthz` never asks
for a quorum: whoever restarts what is not healthy would restart a healthy minority otherwise.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Iterator, Mapping

import uvicorn
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from .config import ServerFiles
from .consensus.transport import split

STOP_SECONDS = 0.5
CONNECTIONS_MAX = 100
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
    ) -> None:
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
        self._server = _Server(
            uvicorn.Config(
                app, log_config=None, access_log=False, lifespan="off", ws="none",
                limit_concurrency=CONNECTIONS_MAX, timeout_graceful_shutdown=1,
                server_header=False, ssl_certfile=files.certificate_file or None,
                ssl_keyfile=files.key_file or None,
            )
        )  # fmt: skip
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
        return Response(generate_latest(self.registry), media_type=CONTENT_TYPE_LATEST)

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


class _Server(uvicorn.Server):
    """The node has signals of its own."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
