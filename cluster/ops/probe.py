"""Whether the other nodes are there, as somebody finds out who is no node: by their first word."""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import struct
from collections.abc import Mapping

from ..raft.link import HELLO_MAX
from ..raft.transport import split

SECONDS = 1.0
_LENGTH = struct.Struct("<I")


def histories(
    addresses: Mapping[str, str], contexts: tuple[ssl.SSLContext, ssl.SSLContext] | None
) -> dict[str, str | None]:
    """The origin of each node's history, by name; None: it answers and has no history yet. Who
    does not answer as a node of this name is left out."""
    return {name: hello.get("origin") for name, hello in _hellos(addresses, contexts).items()}


def leader_of_majority(
    me: str,
    addresses: Mapping[str, str],
    contexts: tuple[ssl.SSLContext, ssl.SSLContext] | None,
) -> str:
    """Whom so many of the others know to lead that they are a majority without this node; empty
    if there is nobody."""
    others = {name: address for name, address in addresses.items() if name != me}
    leaders = [hello.get("leader") for hello in _hellos(others, contexts).values()]
    for name in others:
        if leaders.count(name) > len(addresses) // 2:
            return name
    return ""


def _hellos(
    addresses: Mapping[str, str], contexts: tuple[ssl.SSLContext, ssl.SSLContext] | None
) -> dict[str, dict[str, str]]:
    found = {}
    for name, address in addresses.items():
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError, struct.error):
            hello = _hello(name, address, contexts[1] if contexts else None)
            if hello["node"] == name:
                found[name] = hello
    return found


def _hello(name: str, address: str, context: ssl.SSLContext | None) -> dict[str, str]:
    with contextlib.ExitStack() as stack:
        plain = stack.enter_context(socket.create_connection(split(address), SECONDS))
        line = plain if context is None else context.wrap_socket(plain, server_hostname=name)
        stack.enter_context(line)
        (length,) = _LENGTH.unpack(_read(line, _LENGTH.size))
        if length > HELLO_MAX:
            raise ValueError(f"a hello of {length} bytes")
        hello: dict[str, str] = json.loads(_read(line, length))
        return hello


def _read(line: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size and (more := line.recv(size - len(data))):
        data += more
    return data
