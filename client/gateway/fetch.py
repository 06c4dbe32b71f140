"""Asks the identity provider that the gateway was started with, and nobody else: by https, or by
http on loopback; redirects are not followed, no proxy is used, and link-local addresses, where
clouds keep their secrets, are never asked."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import ssl
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from urllib.parse import SplitResult, urlencode, urlsplit

import h11

FETCH_S = 5.0  # From the look-up of the name to the last byte.
BODY_MAX, HEAD_MAX, READ_BYTES = 64 << 10, 16 << 10, 16 << 10
ADDRESSES_MAX = 8  # Of one name.
LOCAL = ("localhost", "127.0.0.1", "::1")


class NotFetched(Exception):
    """What came instead."""


def is_address(url: str) -> bool:
    """Whether anybody may be asked there."""
    try:
        place = urlsplit(url)
        host = place.hostname or ""
        _ = place.port
    except ValueError:
        return False
    plain = url.isascii() and url.isprintable() and " " not in url and "@" not in place.netloc
    return plain and bool(host) and (
        place.scheme == "https" or (place.scheme == "http" and host in LOCAL)
    )  # fmt: skip


async def fetch(
    url: str, form: Mapping[str, str] | None = None, headers: Mapping[str, str] | None = None
) -> bytes:
    """What is answered there, to GET or to a form; NotFetched if nothing is in time."""
    if not is_address(url):
        raise NotFetched(f"{url[:200]} is no https address, nor http on loopback")
    place = urlsplit(url)
    try:
        async with asyncio.timeout(FETCH_S):
            return await _exchange(place, form, headers or {})
    except TimeoutError:
        raise NotFetched(f"{place.netloc} did not answer within {FETCH_S:.0f} s") from None
    except (OSError, h11.ProtocolError, UnicodeError) as error:
        raise NotFetched(f"{place.netloc}: {error}") from error


async def _exchange(
    place: SplitResult, form: Mapping[str, str] | None, headers: Mapping[str, str]
) -> bytes:
    host, secure = place.hostname or "", place.scheme == "https"
    port = place.port or (443 if secure else 80)
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    addresses = [str(one[4][0]) for one in found][:ADDRESSES_MAX]
    for address in addresses:
        where = ipaddress.ip_address(address.partition("%")[0])
        if where.is_link_local or where.is_multicast or where.is_unspecified:
            raise NotFetched(f"{host} is {address}, which is never asked")
    reader, writer = await _connection(addresses, port, host if secure else None)
    try:
        peer = h11.Connection(h11.CLIENT, max_incomplete_event_size=HEAD_MAX)
        writer.write(_request(peer, place, form, headers))
        return await _body(peer, place.netloc, reader)
    finally:
        writer.close()


async def _connection(
    addresses: Sequence[str], port: int, name: str | None
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """To the first of them that takes one; `name` is that of its certificate."""
    for address in addresses[:-1]:
        with suppress(OSError):
            return await _opened(address, port, name)
    return await _opened(addresses[-1], port, name)


async def _opened(
    address: str, port: int, name: str | None
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    trusted = _trust() if name else None
    return await asyncio.open_connection(
        address, port, ssl=trusted, server_hostname=name, limit=READ_BYTES
    )


def _request(
    peer: h11.Connection, place: SplitResult, form: Mapping[str, str] | None,
    headers: Mapping[str, str],
) -> bytes:  # fmt: skip
    body = b"" if form is None else urlencode(form).encode()
    sent = {"Host": place.netloc, "User-Agent": "raftsched", "Accept": "application/json",
            "Connection": "close", **headers}  # fmt: skip
    if form is not None:
        sent |= {"Content-Type": "application/x-www-form-urlencoded",
                 "Content-Length": str(len(body))}  # fmt: skip
    target = (place.path or "/") + (f"?{place.query}" if place.query else "")
    method = "GET" if form is None else "POST"
    request = h11.Request(method=method, target=target, headers=list(sent.items()))
    parts = [peer.send(request), peer.send(h11.Data(body)) if body else b""]
    return b"".join(part or b"" for part in (*parts, peer.send(h11.EndOfMessage())))


async def _body(peer: h11.Connection, name: str, reader: asyncio.StreamReader) -> bytes:
    body, status = b"", 0
    while True:
        event = peer.next_event()
        if event is h11.NEED_DATA:
            peer.receive_data(await reader.read(READ_BYTES))
        elif isinstance(event, h11.Response):
            status = event.status_code
        elif isinstance(event, h11.Data):
            body += event.data
            if len(body) > BODY_MAX:
                raise NotFetched(f"{name} sends over {BODY_MAX} bytes")
        elif isinstance(event, h11.EndOfMessage):
            if status != 200:
                text = body[:300].decode(errors="replace")
                raise NotFetched(f"{name} answers {status}, and 200 is needed: {text}")
            return body


@cache
def _trust() -> ssl.SSLContext:
    """Whom this machine trusts; to read that takes a while."""
    return ssl.create_default_context()
