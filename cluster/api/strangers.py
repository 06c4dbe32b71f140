"""What connections cost before what came on them was heard: each is bounded, and all together are.

gRPC takes in what comes before somebody can say whose it is, and a byte of headers may stand for a
hundred in memory; calls that it refuses by itself nobody here hears of. So what came on each
connection is held against what was heard of it. An honest caller is known by its first call, and
gRPC lets some 64 KiB come before that is read. A connection on which more came while nobody showed
who they are is broken off, with all that is kept for it; and so are the largest of those that
together have sent too much unheard, of the caller with most of it first.

It is done by a thread of its own: what it is for keeps the loop busy.
"""

from __future__ import annotations

import logging
import socket
import struct
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Set
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from ..node.memory import Resident
from .connections import cut, each_connection

logger = logging.getLogger(__name__)

# What a connection may cost before it is known, at once and then each second: probes of the health
# service are never known. A call that is answered costs more than it sends, since a caller who does
# not read keeps it here.
STRANGER_BYTES = 80 << 10
STRANGER_RATE = 8 << 10
CALL_BYTES = 4 << 10
HEALTH_BYTES = 512  # The same for the health service, whose answers are small.
# What may have come on all connections and was not heard, beside the messages that are being read;
# and with those. Windows and pings of a connection come without a call, and are not counted. What
# went with its connection gRPC still works off, so fast.
UNHEARD_BYTES, READ_BYTES = 4 << 20, 32 << 20
NEAR_BYTES = 8 << 20  # With so much in all, connections are looked at without a pause.
SILENT_RATE = 64 << 10
DONE_RATE = 1 << 20
LITTLE_BYTES = 16 << 10  # Who sent less is not broken off for all others.
# So long what came may wait to be heard, in which the loop must have gone round so often.
HEARD_S, HEARD_TURNS = 0.1, 3
LOOK_S = 5.0  # Between two looks at the connections,
GROWN_BYTES = 8 << 20  # or less, if the process has grown by so much or somebody is over a limit,
LEAST_S = 0.02  # but no less than this, and than so many times what the last look took.
QUIET_S = 0.1  # The thread sleeps so long where nobody is over a limit, and costs little then.
REST = 10
# Who has shown who they are before so many others did is a stranger again.
KNOWN_MAX = 20_000
# Where Linux says how many bytes came on a connection.
TCP_INFO: int | None = getattr(socket, "TCP_INFO", None) if sys.platform == "linux" else None
RECEIVED, INFO_BYTES = struct.Struct("=128xQ"), 136


class Since(NamedTuple):
    """Since when something is so, and how often the loop had gone round by then."""

    at: float
    turns: int


@dataclass(slots=True)
class Meter:
    """A connection: when it was looked at, and what had come by then."""

    at: float
    # What a stranger may still cost, since when that is less than nothing, and whether one was
    # answered on it.
    left: float
    since: Since | None = None
    answered: bool = False
    received: int = 0
    # What of it was not heard.
    unheard: float = 0.0

    def count(self, received: int, heard: int, asked: int, now: Since) -> None:
        """What came and was heard since it was looked at, and what was answered to a stranger."""
        came, seconds = received - self.received, now.at - self.at
        self.received, self.at = received, now.at
        self.unheard = max(0.0, self.unheard + came - heard - SILENT_RATE * seconds)
        self.left = min(float(STRANGER_BYTES), self.left + STRANGER_RATE * seconds) - came - asked
        self.since = None if self.left >= 0 else now if self.since is None else self.since
        self.answered = self.answered or asked > 0


class Strangers:
    """See the head of this file."""

    def __init__(self, size: Callable[[], int] | None = None) -> None:
        """`size` says how large the process is."""
        self._size = size or (Resident().bytes if TCP_INFO is not None else lambda: 0)
        # Of each connection, by its other end: who is known to call, what was heard of it and what
        # answers to strangers cost since the last look, and how much of messages may be under way.
        self._known: OrderedDict[str, str] = OrderedDict()
        self._heard: dict[str, int] = {}
        self._asked: dict[str, int] = {}
        self._reading: dict[str, int] = {}
        self._meters: dict[str, Meter] = {}
        # What waits to be heard on which, since when it is much, and what went with its connection.
        self._beside: dict[str, float] = {}
        self._waiting: dict[str, Since] = {}
        self._gone, self._looked = 0.0, 0.0
        self._turns = 0
        self._is_urgent = False
        self._port = 0
        self._before, self._least, self._due = 0, 0.0, 0.0
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._error: Exception | None = None

    # On the loop.

    def serve(self, port: int) -> None:
        """Callers come to this port from now on."""
        self._port, self._before = port, self._size()

    def start(self) -> None:
        """Look at them from now on."""
        self._thread = threading.Thread(target=self._run, name="strangers", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def turn(self) -> None:
        """The loop goes round, and may hear what came. Raises what ended the thread."""
        self._turns += 1
        if self._error is not None:
            raise self._error

    def met(self, peer: str, caller: str) -> None:
        """Somebody has shown who they are on this connection, as gRPC writes it."""
        known = self._known
        known[peer] = caller
        known.move_to_end(peer)
        if len(known) > KNOWN_MAX:
            known.popitem(last=False)
        self.heard(peer, CALL_BYTES)

    def heard(self, peer: str, size: int) -> None:
        """So much of what came on this connection was heard."""
        heard = self._heard
        heard[peer] = heard.get(peer, 0) + size
        self._is_urgent = self._is_urgent or len(heard) > KNOWN_MAX

    def reads(self, peer: str, most: int) -> None:
        """A message of so much at most is read from now on."""
        reading = self._reading
        reading[peer] = reading.get(peer, 0) + most

    def has_read(self, peer: str, most: int, size: int) -> None:
        """It is read no more, and so much of it came."""
        left = self._reading.pop(peer) - most
        if left:
            self._reading[peer] = left
        self.heard(peer, size)

    def answered(self, peer: str, size: int = CALL_BYTES) -> None:
        """A stranger is answered on this connection."""
        costs = self._asked
        asked = costs[peer] = costs.get(peer, 0) + size
        self._is_urgent = self._is_urgent or asked > STRANGER_BYTES or len(costs) > KNOWN_MAX

    # On the thread.

    def _run(self) -> None:
        try:
            while not self._stop.wait(LEAST_S if self._is_urgent else QUIET_S):
                self.look(time.monotonic())
        except Exception as error:
            # The loop raises it, and the node ends.
            self._error = error

    def look(self, now: float) -> None:
        """Look at the connections, if it is time."""
        if not self._port or now < self._least:
            return
        if self._is_urgent or now >= self._due or self._size() > self._before + GROWN_BYTES:
            took = self._look(now)
            self._least = now + max(LEAST_S, REST * took)
            self._before, self._due = self._size(), now + LOOK_S

    def _look(self, at: float) -> float:
        """Seconds that it took."""
        now, self._is_urgent = Since(at, self._turns), False
        heard, self._heard = self._heard, {}
        asked, self._asked = self._asked, {}
        meters = dict[str, Meter]()

        def visit(one: socket.socket, peer: str) -> None:
            if one.getsockname()[1] == self._port:
                meter = meters[peer] = self._meters.get(peer) or Meter(at, STRANGER_BYTES)
                meter.count(received(one), heard.get(peer, 0), asked.get(peer, 0), now)

        took = each_connection(visit)
        gone = sum(size for peer, size in self._beside.items() if peer not in meters)
        self._gone = max(0.0, self._gone - DONE_RATE * (at - self._looked)) + gone
        self._meters, self._looked = meters, at
        strangers, largest = self._strangers(now), self._largest(now)
        if strangers or largest:
            took += each_connection(partial(end, strangers | largest))
            report(len(strangers), len(largest - strangers))
        return took

    def _strangers(self, now: Since) -> set[str]:
        """Connections that cost too much, and nobody has shown who calls."""
        over = {
            peer: meter
            for peer, meter in self._meters.items()
            if meter.since is not None and peer not in self._known
        }
        self._is_urgent = self._is_urgent or bool(over)
        # Whose first calls wait to be heard may be somebody who says who they are.
        return {peer for peer, meter in over.items() if meter.answered or waited(meter.since, now)}

    def _largest(self, now: Since) -> set[str]:
        """Connections on which most came that was not heard, if it is too much for all of them."""
        whole = {peer: meter.unheard for peer, meter in self._meters.items()}
        beside = {peer: max(0.0, size - self._reading.get(peer, 0)) for peer, size in whole.items()}
        self._beside = beside
        much = {peer for peer, size in beside.items() if size > LITTLE_BYTES}
        self._waiting = {peer: self._waiting.get(peer, now) for peer in much}
        over = sum(beside[peer] for peer in much) + self._gone - UNHEARD_BYTES
        came = sum(whole.values())
        # A message that is read comes as fast as it is sent, some 10 MiB until a usual look.
        near = came > NEAR_BYTES
        self._is_urgent = self._is_urgent or near or (over > 0 and bool(much))
        late = {peer: beside[peer] for peer in much if waited(self._waiting[peer], now)}
        ended = largest(late, over, self._caller)
        return ended | largest(whole, came - READ_BYTES, self._caller)

    def _caller(self, peer: str) -> str:
        return self._known.get(peer) or peer.rpartition(":")[0]


def waited(since: Since | None, now: Since) -> bool:
    """Whether what came could have been heard meanwhile."""
    if since is None or now.at - since.at < HEARD_S:
        return False
    return now.turns - since.turns >= HEARD_TURNS


def largest(sizes: dict[str, float], over: float, caller: Callable[[str], str]) -> set[str]:
    """So many of the largest that the rest is not over; of the caller with most of it first."""
    by_caller: dict[str, list[tuple[float, str]]] = {}
    for peer, size in sizes.items():
        by_caller.setdefault(caller(peer), []).append((size, peer))
    found = set[str]()
    for line in sorted(by_caller.values(), key=lambda line: -sum(size for size, _ in line)):
        for size, peer in sorted(line, reverse=True):
            if over <= 0:
                return found
            found.add(peer)
            over -= size
    return found


def end(peers: Set[str], one: socket.socket, peer: str) -> None:
    if peer in peers:
        cut(one)


def report(strangers: int, others: int) -> None:
    if strangers:
        logger.warning(
            "broke off %d connections on which much came and nobody showed who calls; whoever "
            "calls sends 'authorization: Bearer SECRET', and not more than %d KiB before that",
            strangers, STRANGER_BYTES >> 10,
        )  # fmt: skip
    if others:
        logger.warning(
            "broke off %d connections, those with most of what came and could not be heard, which "
            "was over %d MiB for all; look at who calls from there, or let them call less at once",
            others, UNHEARD_BYTES >> 20,
        )  # fmt: skip


def received(one: socket.socket) -> int:
    """How many bytes came on a connection; 0 where the system does not say."""
    if TCP_INFO is None:
        return 0
    info = one.getsockopt(socket.IPPROTO_TCP, TCP_INFO, INFO_BYTES)
    return int(RECEIVED.unpack(info)[0]) if len(info) == INFO_BYTES else 0
