"""A gateway in this process, before a stage, and what asks it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp

from raftsched.client import AsyncClient
from raftsched.client.gateway.app import Gateway
from raftsched.client.gateway.config import Settings
from raftsched.client.gateway.server import Port


@dataclass(slots=True)
class Got:
    """An answer."""

    status: int
    headers: dict[str, str]
    body: Any

    @property
    def error(self) -> Any:
        return self.body["error"]

    @property
    def reason(self) -> str:
        return str(self.error["details"][0]["reason"])

    @property
    def fields(self) -> list[str]:
        """The wrong ones."""
        kinds = [one for one in self.error["details"] if "fieldViolations" in one]
        return [fault["field"] for one in kinds for fault in one["fieldViolations"]]


@dataclass(slots=True)
class Served:
    """A gateway and one caller."""

    host: str
    port: int
    session: aiohttp.ClientSession
    server: Port
    # For callers with a token, and for those without.
    clients: tuple[AsyncClient, AsyncClient]

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    async def ask(self, method: str, path: str, body: Any = None, **headers: str) -> Got:
        """Send JSON, get JSON; names of headers are written with underscores."""
        named = {name.replace("_", "-"): text for name, text in headers.items()}
        async with self.session.request(
            method, self.url + path, json=body, headers=named
        ) as answer:
            text = await answer.text()
            made = await answer.json(content_type=None) if text else None
            lower = {name.lower(): value for name, value in answer.headers.items()}
            return Got(answer.status, lower, made)

    async def raw(self, data: bytes) -> bytes:
        """Send bytes, and read until the other side closes."""
        reader, writer = await asyncio.open_connection(self.host, self.port)
        try:
            writer.write(data)
            async with asyncio.timeout(20):
                return await reader.read()
        finally:
            writer.close()


@asynccontextmanager
async def serving(
    endpoints: str, settings: Settings | None = None, timeout: float = 5.0
) -> AsyncIterator[Served]:
    made = settings or Settings()
    async with (
        AsyncClient(endpoints, timeout=timeout) as client,
        AsyncClient(endpoints, timeout=timeout) as strangers,
        aiohttp.ClientSession() as session,
    ):
        port = Port(Gateway(client, strangers, made), made)
        host, _, number = (await port.start("127.0.0.1", 0)).rpartition(":")
        try:
            yield Served(host, int(number), session, port, (client, strangers))
        finally:
            await port.stop()
