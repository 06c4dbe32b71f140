"""The nodes a client knows, and which of them it asks first."""

from __future__ import annotations

import ipaddress
import logging
import random
import threading
from collections.abc import Callable, Sequence

from .backoff import backoff

logger = logging.getLogger(__name__)

DEFAULT_PORT = 7400
# A node on this machine by a socket of its own: "unix:/var/lib/raftsched/gateway.sock".
SOCKET = "unix:/"
# A client learns of leaders beyond the list it was given; it remembers this many.
LEARNED_MAX = 16
# An endpoint that failed is passed over for this long, twice as long each time.
SUSPECT_FIRST_S = 0.5
SUSPECT_CAP_S = 30.0


def parse(endpoints: str | Sequence[str]) -> tuple[str, ...]:
    """Read "host:port,host,[::1]:7400" or a list of such; a missing port is 7400."""
    words = endpoints.split(",") if isinstance(endpoints, str) else list(endpoints)
    found = tuple(dict.fromkeys(_endpoint(word.strip()) for word in words if word.strip()))
    if not found:
        raise ValueError(f"endpoints {endpoints!r} name no node; write host:port,host:port")
    return found


def _endpoint(word: str) -> str:
    if word.startswith(SOCKET):
        return word
    if "/" in word:
        raise ValueError(f"endpoint {word!r} is not host:port; write it without scheme and path")
    bracketed = word.startswith("[")
    if not bracketed and word.count(":") > 1:
        raise ValueError(f"endpoint {word!r} is not host:port; write IPv6 as [{word}]:7400")
    host, mark, port = word.rpartition(":") if word.rfind(":") > word.rfind("]") else (word, "", "")
    if not mark:
        return f"{word}:{DEFAULT_PORT}"
    if not host or not port.isdecimal() or not 0 < int(port) < 65_536:
        raise ValueError(f"endpoint {word!r} is not host:port with a port from 1 to 65535")
    return word


def is_loopback(address: str) -> bool:
    """Whether what is sent there stays on this machine."""
    host = address.rpartition(":")[0].strip("[]")
    if address.startswith(SOCKET):
        return True
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class Endpoints:
    """Shared by all calls of a client, from any thread."""

    def __init__(
        self, configured: Sequence[str], may_learn: Callable[[str], bool] = lambda address: True
    ) -> None:
        self.configured = tuple(configured)
        self._may_learn = may_learn
        self._warned = False
        self.leader = ""
        self._learned: dict[str, None] = {}
        self._current = 0
        # Endpoint -> (failures in a row, the last of them, passed over until).
        self._suspects: dict[str, tuple[int, float, float]] = {}
        self._lock = threading.Lock()

    def pick(self, now: float, tried: Sequence[str], *, any_node: bool = False) -> str:
        """The endpoint to ask now: the leader, else the one that answered last, else the next.

        `tried` are the endpoints of this call so far, once for each try. With `any_node` the load
        is spread over those that were configured.
        """
        with self._lock:
            last = tried[-1] if tried else ""
            order = self._order()
            if any_node:
                order = random.sample(self.configured, len(self.configured))
            return min(
                order,
                key=lambda one: (self._suspect(one, now), tried.count(one), one == last),
            )

    def _order(self) -> list[str]:
        turned = self.configured[self._current :] + self.configured[: self._current]
        first = [self.leader] if self.leader else []
        return [*dict.fromkeys([*first, *turned])]

    def _suspect(self, address: str, now: float) -> bool:
        return self._suspects.get(address, (0, 0.0, 0.0))[2] > now

    def suspect(self, address: str, now: float) -> bool:
        with self._lock:
            return self._suspect(address, now)

    def elsewhere(self, addresses: str) -> Endpoints | None:
        """The nodes of another cluster that a refusal names. None: it names none that may be asked,
        as where an access token would go there without encryption."""
        try:
            named = parse(addresses)
        except ValueError:
            logger.warning("a refusal names %r as the addresses of another cluster", addresses)
            return None
        allowed = [address for address in named[:LEARNED_MAX] if self._may_learn(address)]
        if not allowed:
            logger.warning(
                "the cluster at %s is not asked, since the access token would go there without "
                "encryption; give tls=Tls(ca=...), or insecure=True", addresses
            )  # fmt: skip
        return Endpoints(allowed, self._may_learn) if allowed else None

    def all_in(self, tried: Sequence[str]) -> bool:
        """There is none among those that were configured that was not tried."""
        return set(self.configured) <= set(tried)

    def answered(self, address: str, leader: str) -> None:
        """A node answered, if only to refuse; `leader` is whom it named, perhaps nobody."""
        with self._lock:
            self._suspects.pop(address, None)
            if address in self.configured:
                self._current = self.configured.index(address)
            if leader:
                self._learn(leader)

    def learn(self, leader: str) -> None:
        """Some node says that this one leads."""
        with self._lock:
            self._learn(leader)

    def forget_leader(self, address: str) -> None:
        """This node does not lead, and does not know who does."""
        with self._lock:
            if self.leader == address:
                self.leader = ""

    def broke(self, address: str, now: float) -> None:
        """A node could not be reached, fell silent or broke off."""
        with self._lock:
            count = self._suspects.get(address, (0, 0.0, 0.0))[0] + 1
            rest = backoff(count, SUSPECT_FIRST_S, SUSPECT_CAP_S)
            self._suspects[address] = (count, now, now + rest)
            if address == self.leader:
                self.leader = ""
            if self.configured[self._current] == address:
                self._current = (self._current + 1) % len(self.configured)

    def _learn(self, leader: str) -> None:
        if leader not in self.configured and not self._may_learn(leader):
            if not self._warned:
                self._warned = True
                logger.warning(
                    "the leader at %s is not asked directly, since the access token would go there "
                    "without encryption; give tls=Tls(ca=...), or insecure=True", leader
                )  # fmt: skip
            return
        self.leader = leader
        if leader in self._suspects:
            # A node that lives names it, so it may be back. One that is named and does not answer
            # is not asked again and again for all that.
            count, failed, until = self._suspects[leader]
            self._suspects[leader] = (count, failed, min(until, failed + SUSPECT_FIRST_S))
        if leader in self.configured:
            return
        self._learned.pop(leader, None)
        self._learned[leader] = None
        while len(self._learned) > LEARNED_MAX:
            oldest = next(iter(self._learned))
            del self._learned[oldest]
            self._suspects.pop(oldest, None)

    @property
    def known(self) -> frozenset[str]:
        """All endpoints a client may hold a connection to."""
        with self._lock:
            return frozenset((*self.configured, *self._learned))
