"""Fetches small documents by HTTP: key sets of issuers, which an admin has named.

So what is asked is that address and nothing else: redirects are not followed, no proxy is used, a
name is looked up once and that address is asked. Link-local addresses, where clouds keep their
secrets, are never asked; loopback only if the address says so itself. Private ones are, since that
is where many issuers stand.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from functools import cache
from ipaddress import IPv4Address, IPv6Address, ip_address
from urllib.parse import SplitResult, urlsplit

import h11

from ...statemachine.tenants.providers import is_address, is_loopback

FETCH_S = 5.0  # From the look-up of the name to the last byte.
BODY_MAX = 64 << 10
HEAD_MAX = 16 << 10
READ_BYTES = 16 << 10


class FetchFailed(Exception):
    """What came instead, for the log."""


async def fetch(url: str) -> bytes:
    """The document there; FetchFailed if there is none in time."""
    if not is_address(url):
        raise FetchFailed(f"{url[:200]} is no https address, nor http on loopback")
    place = urlsplit(url)
    try:
        async with asyncio.timeout(FETCH_S):
            return await _get(place)
    except TimeoutError:
        raise FetchFailed(f"{place.netloc} did not answer within {FETCH_S:.0f} s") from None
    except (OSError, h11.ProtocolError, UnicodeError) as error:
        raise FetchFailed(f"{place.netloc}: {error}") from error


async def _get(place: SplitResult) -> bytes:
    host = place.hostname or ""
    context = _trust() if place.scheme == "https" else None
    port = place.port or (443 if context else 80)
    address = await _address_of(host, port)
    name = host if context else None
    reader, writer = await asyncio.open_connection(
        address, port, ssl=context, server_hostname=name, limit=READ_BYTES
    )
    try:
        return await _exchange(place, reader, writer)
    finally:
        writer.close()


async def _address_of(host: str, port: int) -> str:
    """Where that is, if it may be asked."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    addresses = [str(one[4][0]) for one in found]
    for address in addresses:
        why = _why_not(address, host)
        if why:
            raise FetchFailed(f"{host} is {address}, {why}")
    return addresses[0]


def _why_not(address: str, host: str) -> str:
    """Why nobody asks this address; empty if one does."""
    where: IPv4Address | IPv6Address = ip_address(address.partition("%")[0])
    if isinstance(where, IPv6Address):
        where = where.ipv4_mapped or where
    if where.is_link_local or where.is_multicast or where.is_unspecified:
        return "which is never asked"
    if where.is_loopback and not is_loopback(host):
        return "and loopback is asked only by an address that says so"
    return ""


async def _exchange(
    place: SplitResult, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> bytes:
    peer = h11.Connection(h11.CLIENT, max_incomplete_event_size=HEAD_MAX)
    target = (place.path or "/") + (f"?{place.query}" if place.query else "")
    headers = [
        ("Host", place.netloc), ("User-Agent", "raftsched"), ("Accept", "application/json"),
        ("Connection", "close"),
    ]  # fmt: skip
    request = h11.Request(method="GET", target=target, headers=headers)
    writer.write(peer.send(request) + peer.send(h11.EndOfMessage()))
    body = b""
    while True:
        event = peer.next_event()
        if event is h11.NEED_DATA:
            peer.receive_data(await reader.read(READ_BYTES))
        elif isinstance(event, h11.Response) and event.status_code != 200:
            raise FetchFailed(f"{place.netloc} answers {event.status_code}, and 200 is needed")
        elif isinstance(event, h11.Data):
            body += event.data
            if len(body) > BODY_MAX:
                raise FetchFailed(f"{place.netloc} sends over {BODY_MAX} bytes")
        elif isinstance(event, h11.EndOfMessage):
            return body


@cache
def _trust() -> ssl.SSLContext:
    """Whom this machine trusts; to read that takes a while."""
    return ssl.create_default_context()
