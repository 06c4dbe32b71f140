"""Connections of the HTTP executor: to addresses that may be called, and to no others."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult

from ....proto.addresses import AddressRules

RESOLVE_S = 10.0
# Of an answer: of its first line and of each header.
LINE_BYTES_MAX = 8_190


class AddressDenied(OSError):
    """The name stands for no address that may be called; the text says which it has."""


class _Resolver(AbstractResolver):
    """Leaves out what may not be called; so who has a good address is still reached."""

    def __init__(self, rules: AddressRules) -> None:
        self._rules = rules
        self._inner = aiohttp.DefaultResolver()

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        async with asyncio.timeout(RESOLVE_S):
            found = await self._inner.resolve(host, port, family)
        why = {one["host"]: self._rules.refusal(one["host"]) for one in found}
        good = [one for one in found if not why[one["host"]]]
        if found and not good:
            raise AddressDenied(f"{host}: {', '.join(dict.fromkeys(why.values()))}")
        return good

    async def close(self) -> None:
        await self._inner.close()


def connector(rules: AddressRules, connections: int, per_host: int) -> aiohttp.TCPConnector:
    """See the head of this file."""

    def opened(info: tuple[Any, ...]) -> socket.socket:
        """Asked right before each connection, with the address that it goes to: an address in the
        URL is never looked up, and nothing in between can exchange it."""
        family, kind, number, _, address = info
        if why := rules.refusal(str(address[0])):
            raise AddressDenied(why)
        return socket.socket(family, kind, number)

    return aiohttp.TCPConnector(
        limit=connections, limit_per_host=per_host, resolver=_Resolver(rules),
        socket_factory=opened,
    )  # fmt: skip


def denied(error: aiohttp.ClientError) -> AddressDenied | None:
    """Whether a call failed since its address may not be called."""
    cause = getattr(error, "os_error", None) or error.__cause__
    return cause if isinstance(cause, AddressDenied) else None
