"""The connections of an app: one client for all threads of a process, and one for each loop.

They are made when they are first used, and made anew in a process that was forked.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..calls.aio.client import AsyncClient
from ..calls.blocking.client import Client
from ..sdk.links import Tls

ENDPOINTS = "127.0.0.1:7400"
# Loops that use one app at the same time; closed ones are forgotten.
LOOPS_MAX = 64


class AppClients:
    """See the head of this file."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self.settings = dict(settings)
        self._lock = threading.Lock()
        self._forget()

    def _forget(self) -> None:
        """Neither are they closed: what was made before a fork is the parent's."""
        self._process = os.getpid()
        self._client: Client | None = None
        self._by_loop: dict[asyncio.AbstractEventLoop, AsyncClient] = {}

    def blocking(self) -> Client:
        with self._lock:
            if os.getpid() != self._process:
                self._forget()
            if self._client is None:
                self._client = Client(**self.settings)
            return self._client

    def on_this_loop(self) -> AsyncClient:
        loop = asyncio.get_running_loop()
        with self._lock:
            if os.getpid() != self._process:
                self._forget()
            client = self._by_loop.get(loop)
            if client is None:
                self._drop_closed()
                if len(self._by_loop) >= LOOPS_MAX:
                    raise RuntimeError(
                        f"{LOOPS_MAX} loops use this app; write `async with app:` where each "
                        "begins and ends"
                    )
                client = self._by_loop[loop] = AsyncClient(**self.settings)
            return client

    def _drop_closed(self) -> None:
        for loop in [loop for loop in self._by_loop if loop.is_closed()]:
            del self._by_loop[loop]

    def close(self) -> None:
        """Close the one for threads."""
        with self._lock:
            client, self._client = self._client, None
        if client is not None and os.getpid() == self._process:
            client.close()

    async def close_on_this_loop(self) -> None:
        with self._lock:
            client = self._by_loop.pop(asyncio.get_running_loop(), None)
        if client is not None and os.getpid() == self._process:
            await client.close()


def settings_of(
    endpoints: str | Sequence[str] | None, namespace: str | None, token: str | None,
    tls: Tls | None, *, timeout: float, insecure: bool,
) -> dict[str, Any]:  # fmt: skip
    """What was said, else what the environment says by the words of the command line."""
    env = os.environ.get
    if tls is None and env("RAFTSCHED_CA_FILE"):
        own = env("RAFTSCHED_CERT_FILE") or None, env("RAFTSCHED_KEY_FILE") or None
        tls = Tls(env("RAFTSCHED_CA_FILE"), *own)
    if token is None:
        token = env("RAFTSCHED_TOKEN") or _read(env("RAFTSCHED_TOKEN_FILE", ""))
    return {
        "endpoints": endpoints or env("RAFTSCHED_ENDPOINTS") or ENDPOINTS,
        "namespace": namespace or env("RAFTSCHED_NAMESPACE") or "default",
        "timeout": timeout, "token": token or None, "tls": tls, "insecure": insecure,
    }  # fmt: skip


def _read(name: str) -> str:
    return Path(name).read_text().strip() if name else ""
