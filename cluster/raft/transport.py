"""The links to the other nodes: TCP, or mutual TLS where the certificate is the identity.

Both ends dial, every 50 to 200 ms and one dial at a time, until there is one connection. Each end
then says which cluster, protocol, node and disk it is; whatever does not fit closes the connection.
Frames are a length and a body, bounded; pings go both ways, so that a link that is dead in one
direction is noticed at both ends. A message may be lost here at any time and consensus expects
that, so a peer that does not read loses messages instead of costing memory.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import random
import socket
import ssl
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

from .faults import Refused
from .membership import NAME_MAX, ORIGIN_MAX
from .message import FRAME_MAX, PROTOCOL, Append, Introduce, Message, WireError, decode, encode

logger = logging.getLogger(__name__)

_LENGTH = struct.Struct("<I")
PING = b"\xff"
HELLO_MAX = 4096
REASONS = 10  # Why one node was refused, that the log says at most.
CROSSED = ("there is a connection already", "replaced by a newer one")
CONNECTIONS_MAX = 64  # Strangers included; a cluster needs two dozen at most.
STRANGERS_MAX = 24  # Of these, who came and has not said yet who it is.


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


class Session(asyncio.Protocol):
    """One connection."""

    def __init__(self, links: Links, dialled: str | None) -> None:
        self.links = links
        self.dialled = dialled
        self.peer: str | None = None
        self.peer_incarnation = 0
        # Who it is on the list, as far as that is known before it is accepted.
        self.claimed = dialled
        self.transport: asyncio.Transport | None = None
        self.buffer = bytearray()
        self.heard_at = self.began_at = links.clock()
        self.patience = links.limits.hello_max
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
        said = {
            "cluster": me.cluster,
            "protocol": PROTOCOL,
            "node": me.node,
            "incarnation": me.incarnation,
            "origin": self.links.origin(),
            "leader": self.links.leader(),
        }
        self.write([json.dumps(said).encode()])

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
            said = json.loads(frame)
            cluster, protocol, node, incarnation = (
                said["cluster"],
                said["protocol"],
                said["node"],
                said["incarnation"],
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
        self.check_history(node, said.get("origin"))
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
        is known the same refusal is told once."""
        name, refused = self.claimed, self.links.refused
        if self.peer is not None or name is None or why in CROSSED:
            self.close(why)
            return
        told = self.links.told_of.setdefault(name, set())
        if why not in told and len(told) < REASONS:
            told.add(why)
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
            # It takes no place any more, though the loop tells of its end only in its next turn.
            self.links.leave(self)
            if why:
                # Both ends dial when a node starts, and one of the two goes: nothing to tell.
                level = logging.DEBUG if why in CROSSED else logging.WARNING
                who = self.peer or self.claimed or "a stranger"
                logger.log(level, "connection with %s at %s closed: %s", who, self.address, why)
            transport, self.transport = self.transport, None
            transport.abort()


class Links:
    """All connections of a node. Not for threads."""

    def __init__(
        self,
        identity: Identity,
        limits: LinkLimits,
        clock: Callable[[], float],
        dice: random.Random,
        received: Callable[[str, int, Message], None],
        up: Callable[[str], None],
        down: Callable[[str], None],
        contexts: tuple[ssl.SSLContext, ssl.SSLContext] | None = None,
        origin: Callable[[], str | None] = lambda: None,
        foreign: Callable[[str, str], None] = lambda peer, origin: None,
        leader: Callable[[], str | None] = lambda: None,
        heard: Callable[[], None] = lambda: None,
    ) -> None:
        """`contexts` are those for accepting and for dialling; None means no TLS. `origin` is that
        of the history on this disk, None while there is none; `foreign` is told of a node whose
        disk has another history of this cluster. `leader` is whom this node knows to lead.
        `heard` is called behind the messages that came together."""
        self.heard = heard
        self.origin, self.foreign, self.leader = origin, foreign, leader
        self.identity, self.limits, self.clock, self.dice = identity, limits, clock, dice
        self.received, self._up, self._down = received, up, down
        self.contexts = contexts
        self.sessions: dict[str, Session] = {}
        # Nodes that are to be followed -> why their last connection was refused.
        self.refused: dict[str, str] = {}
        # And what the log has said of them: both ends may refuse, each for a reason of its own.
        self.told_of: dict[str, set[str]] = {}
        self._all: set[Session] = set()
        self._server: asyncio.Server | None = None
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._addresses: dict[str, list[str]] = {}
        self._shared: tuple[Append | None, bytes] = (None, b"")
        self._closed = False

    async def listen(self, address: str) -> str:
        """Listen on host:port; return the address with the port that was given."""
        host, port = split(address)
        loop = asyncio.get_running_loop()
        context = self.contexts[0] if self.contexts else None
        try:
            self._server = await loop.create_server(
                lambda: Session(self, None), host, port, ssl=context,
                ssl_handshake_timeout=self.limits.hello_max if context else None,
            )  # fmt: skip
        except OSError as error:
            raise Refused(f"cannot listen on {address}: {error}; choose another address") from error
        self._tasks[""] = loop.create_task(self._keep_pinging(), name="pings")
        return f"{host}:{self._server.sockets[0].getsockname()[1]}"

    def follow(self, addresses: dict[str, list[str]]) -> None:
        """Keep connections to exactly these nodes, each at the first of its addresses where it
        answers, and accept others that introduce themselves."""
        wanted = {n: a for n, a in addresses.items() if n != self.identity.node}
        for name in [n for n in self._tasks if n and n not in wanted]:
            self._tasks.pop(name).cancel()
        self._addresses = wanted
        self.refused = {name: why for name, why in self.refused.items() if name in wanted}
        self.told_of = {name: said for name, said in self.told_of.items() if name in wanted}
        for name in wanted:
            if name not in self._tasks and not self._closed:
                task = asyncio.get_running_loop().create_task(self._keep_dialling(name), name=name)
                self._tasks[name] = task

    async def close(self) -> None:
        self._closed = True
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._server is not None:
            self._server.close()
        for session in list(self._all):
            session.close("")
        # The loop tells the sessions in its next turn.
        await asyncio.sleep(0)

    @property
    def tasks(self) -> list[asyncio.Task[None]]:
        """What runs in the background; none of it may end while the node lives."""
        return list(self._tasks.values())

    # Sending.

    def send(self, messages: list[tuple[str, int, Message]]) -> None:
        """Send each message to its node, if the disk it is meant for is there."""
        frames: dict[str, list[bytes]] = {}
        for to, meant_for, message in messages:
            session = self.sessions.get(to)
            if session is None or session.backed_up:
                continue
            if meant_for not in (0, session.peer_incarnation) and type(message) is not Introduce:
                continue
            frames.setdefault(to, []).append(self._encode(message))
        for to, parts in frames.items():
            self.sessions[to].write(parts)

    def _encode(self, message: Message) -> bytes:
        """Encode once what goes to several followers."""
        if type(message) is not Append:
            return encode(message, self.identity.incarnation)
        if self._shared[0] is not message:
            self._shared = (message, encode(message, self.identity.incarnation))
        return self._shared[1]

    # Sessions.

    def admit(self, session: Session) -> bool:
        """Take a connection in. A node says who it is at once, so of strangers who are too many
        the one goes that has been silent for longest, of the address that has most of them."""
        if self._closed:
            return False
        strangers: dict[str, list[Session]] = {}
        for each in self._all:
            if each.peer is None and each.dialled is None:
                strangers.setdefault(each.host, []).append(each)
        if sum(map(len, strangers.values())) >= STRANGERS_MAX:
            most = max(strangers.values(), key=len)
            min(most, key=lambda each: each.began_at).close("too many that do not say who they are")
        if len(self._all) >= CONNECTIONS_MAX:
            return False
        self._all.add(session)
        return True

    def accept(self, session: Session, node: str) -> None:
        """Take a session into use; of two that began together both ends keep the same one."""
        old = self.sessions.get(node)
        if old is not None:
            crossing = session.began_at - old.began_at < self.limits.dial_timeout
            same_disk = session.peer_incarnation == old.peer_incarnation
            dialler = node if session.dialled is None else self.identity.node
            if crossing and same_disk and old.dialler < dialler:
                raise WireError(CROSSED[0])
            self._drop(old)
            old.close(CROSSED[1])
        session.peer = node
        self.refused.pop(node, None)
        self.told_of.pop(node, None)
        self.sessions[node] = session
        self._up(node)

    def expects(self, node: object) -> bool:
        """Whether it is the name of one that is followed."""
        return isinstance(node, str) and node in self._addresses

    def leave(self, session: Session) -> None:
        self._all.discard(session)

    def forget(self, session: Session) -> None:
        self.leave(session)
        session.transport = None
        self._drop(session)

    def _drop(self, session: Session) -> None:
        if session.peer is not None and self.sessions.get(session.peer) is session:
            del self.sessions[session.peer]
            self._down(session.peer)

    async def _keep_dialling(self, name: str) -> None:
        """One dial at a time, with ever more patience while answers come too late: a machine that
        is too busy for a hello in time would else be kept so by ever more dials."""
        limits, session = self.limits, Session(self, name)
        patience = limits.hello
        for turn in itertools.count():
            if name in self.sessions:
                patience = limits.hello
            elif not session.pending:
                known = self._addresses[name]
                if session.too_late:
                    patience = min(2 * patience, limits.hello_max)
                session = Session(self, name)
                session.patience = patience
                await self._dial(session, name, known[turn % len(known)])
            await asyncio.sleep(self.dice.uniform(limits.dial_min, limits.dial_max))

    async def _dial(self, session: Session, name: str, address: str) -> None:
        host, port = split(address)
        extra: dict[str, Any] = {}
        limit = self.limits.dial_timeout
        if self.contexts is not None:
            # Keys are agreed on within this, which takes a processor at both ends.
            extra, limit = {"ssl": self.contexts[1], "server_hostname": name}, session.patience
        loop = asyncio.get_running_loop()
        try:
            # Resolvers ask a dead server first for seconds, and have the answer then. To ask again
            # each time would never come to a dial.
            async with asyncio.timeout(self.limits.lookup):
                found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            session.began_at = self.clock()
            async with asyncio.timeout(limit):
                await self._connect(session, [place[4] for place in found], extra)
        except (OSError, TimeoutError, UnicodeError, OverflowError) as error:
            session.too_late = bool(extra) and isinstance(error, TimeoutError)
            logger.debug("%s at %s is not reachable: %s", name, host, error)
            if isinstance(error, ssl.SSLError):
                # Nobody comes to agree with that by being dialled again.
                session.refuse(f"cannot be trusted: {error}", address)

    async def _connect(
        self, session: Session, places: list[tuple[Any, ...]], extra: dict[str, Any]
    ) -> None:
        """To the first of the addresses of a name that somebody listens at."""
        loop = asyncio.get_running_loop()
        for left, (host, port, *_) in enumerate(places, 1 - len(places)):
            try:
                await loop.create_connection(lambda: session, host, port, **extra)
            except OSError:
                if not left:
                    raise
            else:
                return

    async def _keep_pinging(self) -> None:
        while True:
            await asyncio.sleep(self.limits.ping)
            now = self.clock()
            for session in list(self._all):
                if session.peer is None:
                    if now - session.began_at > session.patience:
                        session.too_late = True
                        session.close("it did not say who it is in time")
                elif now - session.heard_at > self.limits.dead:
                    session.close(f"silent for {now - session.heard_at:.1f} s")
                else:
                    session.write([PING])


def split(address: str) -> tuple[str, int]:
    """Split host:port, or raise Refused."""
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdecimal() or not host:
        raise Refused(f"{address!r} is no address; write it as host:port")
    return host.strip("[]"), int(port)
