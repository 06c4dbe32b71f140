"""What callers cost before anybody knows who they are: each of their connections is bounded.

gRPC takes in what comes before somebody can say whose it is, and a byte of headers may stand for a
hundred in memory. An honest caller is known by its first call, and gRPC lets some 64 KiB come
before that is read. So a connection that sent more while nobody showed who they are is broken off,
with all that is kept for it; and so are those with the oldest answers that strangers do not take.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
import sys
from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

from ..memory import Resident
from .connections import cut, each_connection

logger = logging.getLogger(__name__)

# What a connection may cost before it is known, at once and then each second: probes of the health
# service are never known. A call that is answered costs more than it sends, since a caller who does
# not read keeps it here.
STRANGER_BYTES = 80 << 10
STRANGER_RATE = 8 << 10
CALL_BYTES = 4 << 10
HEALTH_BYTES = 512  # The same for the health service, whose answers are small.
HEARD_S = 0.5  # So long the first call of a connection may wait to be heard.
LOOK_S = 5.0  # Between two looks at the connections,
GROWN_BYTES = 8 << 20  # or less, if the process has grown by so much or somebody asked much,
LEAST_S = 0.02  # but no less than this, and than so many times what the last look took.
REST = 10
# Who has shown who they are before so many others did is a stranger again.
KNOWN_MAX = 20_000
# Where Linux says how many bytes came on a connection.
TCP_INFO: int | None = getattr(socket, "TCP_INFO", None) if sys.platform == "linux" else None
RECEIVED, INFO_BYTES = struct.Struct("=128xQ"), 136


class Cost(NamedTuple):
    """What a connection may still cost, what it had cost when, and since when it is too much."""

    left: float
    spent: int
    at: float
    since: float = 0.0


class Strangers:
    """See the head of this file."""

    def __init__(self, size: Callable[[], int] | None = None) -> None:
        """`size` says how large the process is."""
        self._size = size or (Resident().bytes if TCP_INFO is not None else lambda: 0)
        self._known: OrderedDict[str, None] = OrderedDict()
        # Of each connection of a stranger, by its other end: what its answers cost since the last
        # look, what they cost before it, and all that it cost.
        self._asked: dict[str, int] = {}
        self._calls: dict[str, int] = {}
        self._costs: dict[str, Cost] = {}
        self._looking: asyncio.Task[None] | None = None
        self._hurry = False
        self._port = 0
        self._before, self._least, self._due = 0, 0.0, 0.0

    def serve(self, port: int) -> None:
        """Callers come to this port from now on."""
        self._port, self._before = port, self._size()

    def met(self, peer: str) -> None:
        """Somebody has shown who they are on this connection, as gRPC writes it."""
        known = self._known
        if peer in known:
            known.move_to_end(peer)
            return
        known[peer] = None
        if len(known) > KNOWN_MAX:
            known.popitem(last=False)

    def answered(self, peer: str, size: int = CALL_BYTES) -> None:
        """A stranger is answered on this connection."""
        asked = self._asked[peer] = self._asked.get(peer, 0) + size
        self._hurry = self._hurry or asked > STRANGER_BYTES or len(self._asked) > KNOWN_MAX

    def look(self, now: float) -> None:
        """Begin to look at the connections, if it is time."""
        if self._looking is not None:
            if not self._looking.done():
                return
            self._looking.result()
            self._looking, self._before, self._due = None, self._size(), now + LOOK_S
        if not self._port or now < self._least:
            return
        if self._hurry or now >= self._due or self._size() > self._before + GROWN_BYTES:
            self._looking = asyncio.create_task(self._look(now), name="strangers")

    async def _look(self, now: float) -> None:
        self._hurry = False
        costs, calls, asked = dict[str, Cost](), dict[str, int](), self._asked
        self._asked, ended = {}, 0

        def visit(one: socket.socket, peer: str) -> None:
            nonlocal ended
            if peer in self._known or one.getsockname()[1] != self._port:
                return
            calls[peer] = self._calls.get(peer, 0) + asked.get(peer, 0)
            costs[peer] = self._cost(peer, received(one) + calls[peer], now)
            # Whose first calls wait to be heard may be somebody who says who they are.
            if costs[peer].left < 0 and (calls[peer] or now - costs[peer].since >= HEARD_S):
                ended += 1
                cut(one)

        took = await each_connection(visit)
        self._costs, self._calls = costs, calls
        self._least = now + max(LEAST_S, REST * took)
        if ended:
            logger.warning(
                "broke off %d connections on which much came and nobody showed who calls; whoever "
                "calls sends 'authorization: Bearer SECRET', and not more than %d KiB before that",
                ended, STRANGER_BYTES >> 10,
            )  # fmt: skip

    def _cost(self, peer: str, spent: int, now: float) -> Cost:
        before = self._costs.get(peer, Cost(STRANGER_BYTES, 0, now))
        may = min(float(STRANGER_BYTES), before.left + STRANGER_RATE * (now - before.at))
        left = may - (spent - before.spent)
        return Cost(left, spent, now, before.since if before.left < 0 else now)


def received(one: socket.socket) -> int:
    """How many bytes came on a connection; 0 where the system does not say."""
    if TCP_INFO is None:
        return 0
    info = one.getsockopt(socket.IPPROTO_TCP, TCP_INFO, INFO_BYTES)
    return int(RECEIVED.unpack(info)[0]) if len(info) == INFO_BYTES else 0
