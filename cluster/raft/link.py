"""One connection with another node: who is at the other end, and frames both ways.

Each end says first which cluster, protocol, node and disk it is; whatever does not fit closes the
connection. Frames are a length and a body, bounded.
"""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, cast

from .membership import NAME_MAX, ORIGIN_MAX
from .message import FRAME_MAX, PROTOCOL, Message, WireError, decode

logger = logging.getLogger(__name__)

_LENGTH = struct.Struct("<I")
PING = b"\xff"
HELLO_MAX = 4096
REASONS = 10  # Why one node was refused, that the log says at most.
CROSSED = ("there is a connection already", "replaced by a newer one")


@dataclass(frozen=True, kw_only=True)
class LinkLimits:
    """Seconds and bytes."""

    ping: float = 0.1
    dead: float = 2.0  # Without a byte for so long the connection is given up.
    # From the connection to an accepted hello; more where the last ones came too late.
    hello: float = 1.0
    hello_max: float = 3.0
    dial_min: float = 0.05
    dial_max: float = 0.2
    dial_timeout: float = 1.0
    lookup: float = 30.0  # What the resolver of names may take.
    queued: int = 32 << 20  # Written to a peer and not read by it; beyond, messages are lost.


@dataclass(frozen=True, kw_only=True)
class Identity:
    """What a node says of itself first."""

    cluster: str
    node: str
    incarnation: int


class Owner(Protocol):
    """What a connection asks of those it is one of."""

    identity: Identity
    limits: LinkLimits
    clock: Callable[[], float]
    origin: Callable[[], str | None]  # Of the history on this disk; None while there is none.
    foreign: Callable[[str, str], None]
    leader: Callable[[], str | None]  # Whom this node knows to lead.
    received: Callable[[str, int, Message], None]
    heard: Callable[[], None]  # Called behind the messages that came together.
    refused: dict[str, str]  # Nodes that are followed -> why their last connection was refused.
    logged: dict[str, set[str]]  # And what the log has of them.

    def admit(self, link: Link) -> bool: ...
    def accept(self, link: Link, node: str) -> None: ...
    def expects(self, node: object) -> bool: ...
    def leave(self, link: Link) -> None: ...
    def forget(self, link: Link) -> None: ...


class Link(asyncio.Protocol):
    """One connection."""

    def __init__(self, links: Owner, dialled: str | None) -> None:
        self.links = links
        self.dialled = dialled
        self.peer: str | None = None
        self.peer_incarnation = 0
        # Who it is on the list, as far as that is known before it is accepted.
        self.claimed = dialled
        self.transport: asyncio.Transport | None = None
        self.buffer = bytearray()
        self.heard_at = self.began_at = links.clock()
        self.hello_timeout = links.limits.hello_max
        self.too_late = False
        self.lost_messages = 0

    @property
    def dialler(self) -> str:
        return self.links.identity.node if self.dialled is not None else str(self.peer)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.set_write_buffer_limits(high=self.links.limits.queued)
        if not self.links.admit(self):
            self.close("too many connections")
            return
        me = self.links.identity
        hello = {
            "cluster": me.cluster,
            "protocol": PROTOCOL,
            "node": me.node,
            "incarnation": me.incarnation,
            "origin": self.links.origin(),
            "leader": self.links.leader(),
        }
        self.write([json.dumps(hello).encode()])

    def connection_lost(self, error: Exception | None) -> None:
        if isinstance(error, ssl.SSLError):
            # With TLS 1.3 who dials hears only now that its certificate was not taken.
            self.refuse(f"ended the connection: {error}")
        self.links.forget(self)

    def data_received(self, data: bytes) -> None:
        self.heard_at = self.links.clock()
        buffer = self.buffer
        buffer += data
        start = 0
        while len(buffer) - start >= _LENGTH.size and self.transport is not None:
            (length,) = _LENGTH.unpack_from(buffer, start)
            if length > (FRAME_MAX if self.peer is not None else HELLO_MAX):
                self.close(f"a frame of {length} bytes is too large")
                return
            end = start + _LENGTH.size + length
            if end > len(buffer):
                break
            frame = bytes(memoryview(buffer)[start + _LENGTH.size : end])
            start = end
            try:
                self.take(frame)
            except WireError as error:
                self.refuse(str(error))
                return
        del buffer[:start]
        self.links.heard()

    def take(self, frame: bytes) -> None:
        if self.peer is None:
            self.take_hello(frame)
        elif frame != PING:
            message, incarnation = decode(frame)
            if incarnation != self.peer_incarnation:
                raise WireError(f"{self.peer} speaks for disk {incarnation}, not its own")
            self.links.received(self.peer, incarnation, message)

    def take_hello(self, frame: bytes) -> None:
        """Accept the peer, or raise WireError saying what does not fit."""
        try:
            hello = json.loads(frame)
            cluster, protocol, node, incarnation = (
                hello["cluster"],
                hello["protocol"],
                hello["node"],
                hello["incarnation"],
            )
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise WireError(f"sends no hello: {error}") from error
        me = self.links.identity
        if self.claimed is None and self.links.expects(node):
            self.claimed = node
        if cluster != me.cluster:
            raise WireError(
                f"says that its cluster is {str(cluster)[:80]!r}, and that of {me.node} is "
                f"{me.cluster!r}; give both the same, or each its own addresses"
            )
        if protocol != PROTOCOL:
            raise WireError(
                f"speaks protocol {str(protocol)[:80]}, and {me.node} speaks {PROTOCOL}; give both "
                "the same version"
            )
        named = isinstance(node, str) and 0 < len(node) <= NAME_MAX and node != me.node
        if not named or not isinstance(incarnation, int):
            raise WireError("does not say who it is")
        if self.dialled not in (None, node):
            raise WireError(f"was called, and {str(node)[:80]!r} answers; correct the addresses")
        if not 0 < incarnation < 1 << 56:
            raise WireError(f"says that its disk is {incarnation}, which cannot be")
        self.check_certificate(node)
        self.check_history(node, hello.get("origin"))
        self.peer_incarnation = incarnation
        self.links.accept(self, node)

    def check_certificate(self, node: str) -> None:
        """With TLS, the name in the certificate is who the peer is."""
        if self.transport is None or self.transport.get_extra_info("sslcontext") is None:
            return
        certificate = self.transport.get_extra_info("peercert") or {}
        names = [value for kind, value in certificate.get("subjectAltName", ()) if kind == "DNS"]
        if node not in names:
            raise WireError(f"says that it is {node!r}, and its certificate says {names}")

    def check_history(self, node: str, theirs: object) -> None:
        """Two histories of one cluster have nothing to say to each other but this."""
        mine = self.links.origin()
        if None in (mine, theirs) or mine == theirs:
            return
        self.links.foreign(node, str(theirs)[:ORIGIN_MAX])
        raise WireError(
            "has another history of this cluster on its disk, from before or from beside a "
            "restore or recovery; stop the one that is not wanted, empty its folder, start it again"
        )

    def write(self, frames: list[bytes]) -> None:
        if self.transport is not None and not self.transport.is_closing():
            parts: list[bytes] = []
            for frame in frames:
                parts += (_LENGTH.pack(len(frame)), frame)
            self.transport.writelines(parts)

    @property
    def pending(self) -> bool:
        """It may still become a connection that is used."""
        return self.transport is not None and self.peer is None

    @property
    def backed_up(self) -> bool:
        return (
            self.transport is None
            or self.transport.get_write_buffer_size() > self.links.limits.queued
        )

    def refuse(self, why: str, address: str = "") -> None:
        """End the connection with a peer that does not fit. It goes on dialling, so of a node that
        is known the same refusal is logged once."""
        name, refused = self.claimed, self.links.refused
        if self.peer is not None or name is None or why in CROSSED:
            self.close(why)
            return
        logged = self.links.logged.setdefault(name, set())
        if why not in logged and len(logged) < REASONS:
            logged.add(why)
            logger.warning("%s at %s %s", name, address or self.address, why)
        refused[name] = why
        self.close("")

    @property
    def host(self) -> str:
        peer = self.transport.get_extra_info("peername") if self.transport is not None else None
        return str(peer[0]) if peer else ""

    @property
    def address(self) -> str:
        peer = self.transport.get_extra_info("peername") if self.transport is not None else None
        return f"{peer[0]}:{peer[1]}" if peer else "an unknown address"

    def close(self, why: str) -> None:
        """End the connection at once; what is queued is lost."""
        if self.transport is not None:
            # It takes no place any more, though the loop reports its end only in its next round.
            self.links.leave(self)
            if why:
                # Both ends dial when a node starts, and one of the two goes: no reason to log it.
                level = logging.DEBUG if why in CROSSED else logging.WARNING
                who = self.peer or self.claimed or "a stranger"
                logger.log(level, "connection with %s at %s closed: %s", who, self.address, why)
            transport, self.transport = self.transport, None
            transport.abort()
