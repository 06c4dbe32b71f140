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
import logging
import random
import socket
import ssl
from collections.abc import Callable
from typing import Any

from .faults import CallRefused
from .link import CROSSED, PING, Identity, Link, LinkLimits
from .message import Append, Introduce, Message, WireError, encode

logger = logging.getLogger(__name__)

# Of the loop, until one that is being accepted was accepted, turned away and notified of it.
CLOSING_TURNS = 6
CONNECTIONS_MAX = 64  # Strangers included; a cluster needs two dozen at most.
STRANGERS_MAX = 24  # Of these, who came and has not named itself yet.


class PeerLinks:
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
        of the history on this disk, None while there is none; `foreign` is called for a node whose
        disk has another history of this cluster. `leader` is whom this node knows to lead.
        `heard` is called behind the messages that came together."""
        self.heard = heard
        self.origin, self.foreign, self.leader = origin, foreign, leader
        self.identity, self.limits, self.clock, self.dice = identity, limits, clock, dice
        self.received, self._up, self._down = received, up, down
        self.contexts = contexts
        self.sessions: dict[str, Link] = {}
        # Nodes that are to be followed -> why their last connection was refused.
        self.refused: dict[str, str] = {}
        # And what the log has of them: both ends may refuse, each for a reason of its own.
        self.logged: dict[str, set[str]] = {}
        self._all: set[Link] = set()
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
                lambda: Link(self, None), host, port, ssl=context,
                ssl_handshake_timeout=self.limits.hello_max if context else None,
            )  # fmt: skip
        except OSError as error:
            raise CallRefused(
                f"cannot listen on {address}: {error}; choose another address"
            ) from error
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
        self.logged = {name: why for name, why in self.logged.items() if name in wanted}
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
            # What was accepted in this turn becomes a connection in the next one, and asyncio asks
            # the server for it: without that it would be left open, and nobody notified.
            for listening in self._server.sockets:
                asyncio.get_running_loop().remove_reader(listening.fileno())
            await asyncio.sleep(0)
            self._server.close()
        for session in list(self._all):
            session.close("")
        for _ in range(CLOSING_TURNS):
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

    def admit(self, session: Link) -> bool:
        """Take a connection in. A node says who it is at once, so of strangers who are too many
        the one goes that has been silent for longest, of the address that has most of them."""
        if self._closed:
            return False
        strangers: dict[str, list[Link]] = {}
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

    def accept(self, session: Link, node: str) -> None:
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
        self.logged.pop(node, None)
        self.sessions[node] = session
        self._up(node)

    def expects(self, node: object) -> bool:
        """Whether it is the name of one that is followed."""
        return isinstance(node, str) and node in self._addresses

    def leave(self, session: Link) -> None:
        self._all.discard(session)

    def forget(self, session: Link) -> None:
        self.leave(session)
        session.transport = None
        self._drop(session)

    def _drop(self, session: Link) -> None:
        if session.peer is not None and self.sessions.get(session.peer) is session:
            del self.sessions[session.peer]
            self._down(session.peer)

    async def _keep_dialling(self, name: str) -> None:
        """One dial at a time, with ever more time while answers come too late: a machine that
        is too busy for a hello in time would else be kept so by ever more dials."""
        limits, session = self.limits, Link(self, name)
        timeout = limits.hello
        for turn in itertools.count():
            if name in self.sessions:
                timeout = limits.hello
            elif not session.pending:
                known = self._addresses[name]
                if session.too_late:
                    timeout = min(2 * timeout, limits.hello_max)
                session = Link(self, name)
                session.hello_timeout = timeout
                await self._dial(session, name, known[turn % len(known)])
            await asyncio.sleep(self.dice.uniform(limits.dial_min, limits.dial_max))

    async def _dial(self, session: Link, name: str, address: str) -> None:
        host, port = split(address)
        extra: dict[str, Any] = {}
        limit = self.limits.dial_timeout
        if self.contexts is not None:
            # Keys are agreed on within this, which takes a processor at both ends.
            extra, limit = {"ssl": self.contexts[1], "server_hostname": name}, session.hello_timeout
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
        self, session: Link, places: list[tuple[Any, ...]], extra: dict[str, Any]
    ) -> None:
        """To the first of the addresses of a name that somebody listens at."""
        loop = asyncio.get_running_loop()
        for left, (host, port, *_) in enumerate(places, 1 - len(places)):
            try:
                await loop.create_connection(lambda: session, host, port, **extra)
            except BaseException as error:
                # Its time may be over in the turn in which it began, and the link in use by then:
                # the loop closes it, and uvloop does not notify the link, which could not be
                # written to.
                self.forget(session)
                if not left or not isinstance(error, OSError):
                    raise
            else:
                return

    async def _keep_pinging(self) -> None:
        while True:
            await asyncio.sleep(self.limits.ping)
            now = self.clock()
            for session in list(self._all):
                if session.peer is None:
                    if now - session.began_at > session.hello_timeout:
                        session.too_late = True
                        session.close("it did not say who it is in time")
                elif now - session.heard_at > self.limits.dead:
                    session.close(f"silent for {now - session.heard_at:.1f} s")
                else:
                    session.write([PING])


def split(address: str) -> tuple[str, int]:
    """Split host:port, or raise CallRefused."""
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdecimal() or not host:
        raise CallRefused(f"{address!r} is no address; write it as host:port")
    return host.strip("[]"), int(port)
