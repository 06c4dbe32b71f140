"""Whether a call shows a secret from a node's folder, by which the first access token is made."""

from __future__ import annotations

import asyncio
import hmac
import time
from collections.abc import Callable

from ..node.bootstrap_token import PREFIX, digest
from .call import Call
from .node_port import NodePort

HEAR_S = 2.0  # How long a leader may take to hear of the secrets of the others.
HEARING_MAX = 50
LOOK_S = 0.01


class BootstrapSecrets:
    """See the head of this file."""

    def __init__(self, node: NodePort) -> None:
        self._node = node
        # Calls with a secret that this node has not heard of.
        self._hearing = 0

    def is_known(self, secret: str) -> bool:
        shown = digest(secret)
        return any(hmac.compare_digest(shown, one) for one in self._node.bootstraps)

    async def hear(self, call: Call, secret: str, is_closed: Callable[[], bool]) -> bool:
        """Whether this is the secret of another node, which sends a fresh leader its hash within a
        second or so; or there is a token meanwhile. Strangers may keep the few places taken: then
        it is as if nobody waited."""
        until = call.began + min(HEAR_S, call.timeout())
        while not self.is_known(secret) and not is_closed():
            if (
                not secret.startswith(PREFIX)
                or time.monotonic() >= until
                or self._hearing >= HEARING_MAX
            ):
                return False
            self._hearing += 1
            try:
                await asyncio.sleep(LOOK_S)
            finally:
                self._hearing -= 1
        return True
