"""Whoever the cluster does not know: what it said to one is said to the next without asking it
again, so that a flood of them costs the nodes nothing.

Whoever shows no token is refused as the last one was who called the same, for a second. Of those
who show one that is not known to be good, so many a second are asked about for each address.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic

from ..sdk.errors import RaftschedError, Unavailable
from .problems import GatewayRefusal, of_error

# What a cluster says to whom it does not know.
UNKNOWN = ("UNAUTHENTICATED", "NOT_BOOTSTRAPPED")
# What it says to those alone whom it knows.
OF_KNOWN = ("PERMISSION_DENIED", "NOT_FOUND", "ALREADY_EXISTS", "FAILED_PRECONDITION", "ABORTED")
# So long what was said to one without a token is true of the next.
SAID_S = 1.0
# Tokens that are not known to be good, from one address, at once and then each second.
TRIES = 50
ADDRESSES_MAX, TOKENS_MAX = 10_000, 10_000


class Doorkeeper:
    """See the head of this file."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        # By call: until when it is so, and what was said. There are as many as calls.
        self._answers: dict[str, tuple[float, RaftschedError]] = {}
        # Tokens that opened something, as their hashes; the one that did longest ago is first.
        self._good: OrderedDict[bytes, None] = OrderedDict()
        # What each address may still try, and since when; the same order.
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def check(self, call: str, token: str, address: str) -> None:
        """Refuse whom the cluster would refuse, before anything is read of the request."""
        if not token:
            until, error = self._answers.get(call, (0.0, None))
            if error is not None and self._clock() < until:
                raise of_error(error)
        elif self._tries(address)[0] < 1 and _digest(token) not in self._good:
            raise GatewayRefusal(
                "NODE_LIMIT",
                f"the gateway has no room: failures is {TRIES} a second and used up by {address}; "
                "ask an admin for a token that is valid, or come back a little later",
                {"limit": "failures", "maximum": str(TRIES), "of": address}, status=429,
            )  # fmt: skip

    @contextmanager
    def asking(self, call: str, token: str, address: str) -> Iterator[None]:
        """Around a call to the cluster: learn what it says."""
        self.check(call, token, address)
        digest = _digest(token) if token else b""
        is_new = bool(token) and digest not in self._good
        if is_new:
            self._spend(address, 1.0)
        try:
            yield
        except RaftschedError as error:
            if error.reason in UNKNOWN and not token:
                self._answers[call] = self._clock() + SAID_S, error
            elif error.reason in UNKNOWN:
                self._good.pop(digest, None)
            elif token and error.code in OF_KNOWN:
                self._opened(digest)
            elif is_new and isinstance(error, Unavailable):
                self._spend(address, -1.0)
            raise
        else:
            if token:
                self._opened(digest)
            if is_new:
                self._spend(address, -1.0)

    def _opened(self, digest: bytes) -> None:
        self._good[digest] = None
        self._good.move_to_end(digest)
        _keep(self._good, TOKENS_MAX)

    def _tries(self, address: str) -> tuple[float, float]:
        """What an address may still try now, and now."""
        now = self._clock()
        left, since = self._left.get(address, (float(TRIES), now))
        return min(float(TRIES), left + (now - since) * TRIES), now

    def _spend(self, address: str, tries: float) -> None:
        left, now = self._tries(address)
        self._left[address] = left - tries, now
        self._left.move_to_end(address)
        _keep(self._left, ADDRESSES_MAX)


def _digest(token: str) -> bytes:
    return hashlib.blake2b(token.encode(), digest_size=16).digest()


def _keep(held: OrderedDict, most: int) -> None:  # type: ignore[type-arg]
    if len(held) > most:
        held.popitem(last=False)
