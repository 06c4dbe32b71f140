"""One call of a webhook: to an address that may be called, signed if there is a secret.

Whoever may set an alert names the target, and the node stands inside of a network. So what counts
is the address that its name stands for, and that one is connected to. Redirects are not followed.
"""

from __future__ import annotations

import asyncio
import base64
import socket
import ssl
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from urllib.parse import SplitResult, unquote, urlsplit

from ...proto import signatures
from ...proto.addresses import AddressRules
from ...statemachine.model.hiding import host_only

LINE_MAX = 4_096
# Of one name; whoever has more of them is called at these.
ADDRESSES_MAX = 4
NAMES_MAX = 4  # Looked up at a time.


class Sender:
    """See the head of this file. ValueError for rules or secrets that are none."""

    def __init__(self, rules: AddressRules | None = None, secrets: Sequence[str] = ()) -> None:
        self._rules = rules or AddressRules()
        self._keys = signatures.keys_of(secrets)
        # A name whose server is silent holds a thread for a while, and the node needs its own.
        self._names = ThreadPoolExecutor(NAMES_MAX, "webhook-names")

    def close(self) -> None:
        self._names.shutdown(wait=False, cancel_futures=True)

    async def post(self, url: str, body: bytes, number: str, now_s: int) -> int:
        """POST some JSON; the status of the answer."""
        place = urlsplit(url)
        if not place.hostname:
            raise ValueError(f"'{host_only(url)}' names no host")
        head = _head(place, body, signatures.signed(self._keys, number, now_s, body))
        reader, writer = await self._connect(place)
        try:
            writer.write(head + body)
            await writer.drain()
            words = (await reader.readuntil(b"\n")).split(None, 2)
            if len(words) < 2 or not words[0].startswith(b"HTTP/") or not words[1].isdigit():
                raise ValueError(f"'{host_only(url)}' does not speak HTTP")
            return int(words[1])
        finally:
            writer.close()

    async def _connect(
        self, place: SplitResult
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        host = place.hostname or ""
        context = _trust() if place.scheme == "https" else None
        port = place.port or (443 if context else 80)
        look_up = partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
        found = await asyncio.get_running_loop().run_in_executor(self._names, look_up)
        addresses = list(dict.fromkeys(str(one[4][0]) for one in found))
        why = {one: self._rules.refusal(one) for one in addresses}
        good = [one for one in addresses if not why[one]][:ADDRESSES_MAX]
        if not good:
            raise ValueError(f"{host}: {', '.join(why.values())}; [webhooks] allow may open it")
        for address in good[:-1]:
            try:
                return await _open(address, port, context, host)
            except OSError:
                continue  # The error of the last one is raised.
        return await _open(good[-1], port, context, host)


async def _open(
    address: str, port: int, context: ssl.SSLContext | None, host: str
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection(
        address, port, ssl=context, server_hostname=host if context else None, limit=LINE_MAX
    )


def _head(place: SplitResult, body: bytes, signature: dict[str, str]) -> bytes:
    target = (place.path or "/") + (f"?{place.query}" if place.query else "")
    fields = {
        "Host": place.netloc.rpartition("@")[2], "User-Agent": "raftsched",
        "Content-Type": "application/json", "Content-Length": str(len(body)),
        "Connection": "close", **signature,
    }  # fmt: skip
    if place.username is not None:
        user = f"{unquote(place.username)}:{unquote(place.password or '')}"
        fields["Authorization"] = "Basic " + base64.b64encode(user.encode()).decode()
    lines = [f"POST {target} HTTP/1.1", *(f"{name}: {text}" for name, text in fields.items())]
    if " " in target or not all(line.isascii() and line.isprintable() for line in lines):
        raise ValueError("its address holds signs that no address has; write them as %20 and so on")
    return "\r\n".join([*lines, "", ""]).encode()


@cache
def _trust() -> ssl.SSLContext:
    """Whom this machine trusts; to read that takes a while."""
    return ssl.create_default_context()
