"""The gateway beside a node: HTTP for callers, by a process of its own that ends with this one.

It reaches the node over a socket in the node's folder, which only the owner of both may open. When
it dies it is started again, after a pause that grows.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import signal
import tempfile
import time
from contextlib import aclosing, suppress
from pathlib import Path

import msgspec
import structlog

from ..local.lines import lines
from ..local.process import PROGRAM_OF_CLIENT, Process
from ..node.backoff import backoff
from . import listen
from .config import Config

SOCKET = "gateway.sock"
# As long as the path of a socket may be on every system.
PATH_BYTES_MAX = 100
RETRY_FIRST_S, RETRY_MOST_S = 0.2, 30.0
# One that lived so long is started again without a long pause.
LIVED_S = 60.0
STOP_S = 0.5

logs = structlog.get_logger("raftsched.cluster.ops.gateway")


class GatewayBeside:
    """Runs from `start` to `stop`, if the configuration asks for one."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self.socket = ""
        # Of its own, where the path in the node's folder would be too long.
        self._made = ""
        self._process: Process | None = None
        self.task: asyncio.Task[None] | None = None
        if listen.has_gateway(config):
            self.socket = self._place()

    def _place(self) -> str:
        path = str((Path(self._config.folder) / SOCKET).resolve())
        if len(os.fsencode(path)) > PATH_BYTES_MAX:
            self._made = tempfile.mkdtemp(prefix="raftsched-")
            path = os.path.join(self._made, SOCKET)
        return path

    @property
    def url(self) -> str:
        """Where it serves; empty for nowhere."""
        secure = "s" if self._config.tls.server.certificate_file else ""
        return f"http{secure}://{self._config.gateway.listen}" if self.socket else ""

    def start(self) -> None:
        """The node serves on the socket by now."""
        if self.socket:
            self.task = asyncio.create_task(self._keep(), name="gateway")
        elif self._config.gateway.listen:
            logs.warning(
                "starts no gateway, since tls.server.ca_file asks callers for certificates, which "
                "it could not pass on; say --no-gateway, or run `raftsched gateway` with one of "
                "its own"
            )

    async def stop(self) -> None:
        """End it; what it was doing has half a second."""
        process = self._process
        if process is not None and process.alive:
            process.signal(signal.SIGTERM)
            until = time.monotonic() + STOP_S
            while process.alive and time.monotonic() < until:
                await asyncio.sleep(0.01)
            await asyncio.to_thread(process.kill)
        if self.task is not None:
            self.task.cancel()
            await asyncio.gather(self.task, return_exceptions=True)
        self.clean()

    def clean(self) -> None:
        """Remove the socket."""
        if self.socket:
            Path(self.socket).unlink(missing_ok=True)
        if self._made:
            shutil.rmtree(self._made, ignore_errors=True)

    async def _keep(self) -> None:
        waits = backoff(RETRY_FIRST_S, RETRY_MOST_S)
        while True:
            began = time.monotonic()
            code = await self._run()
            if time.monotonic() - began > LIVED_S:
                waits = backoff(RETRY_FIRST_S, RETRY_MOST_S)
            wait = next(waits)
            logs.warning("the gateway ended by itself and is started again", code=code,
                         again_in_s=wait)  # fmt: skip
            await asyncio.sleep(wait)

    async def _run(self) -> int:
        process = self._process = Process(
            # systemd hears of the node's life alone.
            "gateway", self._words(), Path(os.devnull),
            {"RAFTSCHED_CONFIG": os.devnull, "NOTIFY_SOCKET": ""},
            PROGRAM_OF_CLIENT, streams="lines",
        )  # fmt: skip
        await asyncio.to_thread(process.start)
        async with aclosing(lines(process)) as printed:
            async for line in printed:
                log_line(line)
        return await asyncio.to_thread(process.wait)

    def _words(self) -> list[str]:
        config, files = self._config, self._config.tls.server
        words = ["gateway", "--quiet", "--server", f"unix:{self.socket}"]
        words += ["--listen", config.gateway.listen]
        given = {
            "--host": config.gateway.hosts, "--cors-origin": config.gateway.cors_origins,
            "--path-prefix": config.gateway.path_prefix,
            "--trusted-proxy": config.gateway.trusted_proxies,
            "--oidc-issuer": config.gateway.oidc_issuer,
            "--oidc-client-id": config.gateway.oidc_client_id,
            "--oidc-scope": config.gateway.oidc_scopes,
        }  # fmt: skip
        for flag, text in given.items():
            for one in text.replace(",", " ").split():
                words += [flag, one]
        if config.gateway.oidc_secret_file:
            words += ["--oidc-secret-file", config.gateway.oidc_secret_file]
        if files.certificate_file:
            return [*words, "--tls-cert-file", files.certificate_file,
                    "--tls-key-file", files.key_file]  # fmt: skip
        # The leader is asked directly where no node could be asked with encryption.
        return [*words, "--insecure", "yes", "--insecure-http"]


def log_line(line: bytes) -> None:
    """A line of the gateway as one of the node's log."""
    fields: dict[str, object] = {}
    with suppress(msgspec.DecodeError, msgspec.ValidationError):
        fields = msgspec.json.decode(line, type=dict[str, object])
    words = str(fields.pop("message", "")) or line.decode(errors="replace")
    level = logging.getLevelName(str(fields.pop("level", "warning")).upper())
    for name in ("time", "event"):
        fields.pop(name, None)
    fields["message"] = words
    logs.log(level if isinstance(level, int) else logging.WARNING, "the gateway says", **fields)
