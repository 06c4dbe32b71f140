"""The gateway beside a node while it is attacked: does it live, what does it hold, and how soon is
somebody honest answered, from another address and on a new connection each time?"""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from ....proto.v1 import namespace_pb2
from .checks import Memory
from .gateway_checks import Asked
from .http1 import HttpLine, request

if TYPE_CHECKING:
    from .stand import Stand

SPACE = "door"
ASK_S, GIVEN_UP_S = 0.2, 10.0
# After its node was started a gateway may take so long until it serves.
COMES_S = 15.0
# A node that dies takes its gateway along, and may be seen alive without it for a moment.
GONE_S = 5.0
CALL_S = 30.0


def gateway_of(pid: int) -> int:
    """The gateway that a node has started; 0 for none."""
    for listed in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            for word in listed.read_text().split():
                if b"\0gateway\0" in Path(f"/proc/{word}/cmdline").read_bytes():
                    return int(word)
    return 0


def resident_mb(pid: int) -> int:
    """What a process holds; 0 for one that is gone."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) >> 10
    return 0


class GatewayWatch:
    """See the head of this file."""

    def __init__(self, stand: Stand) -> None:
        self.stand = stand
        self.node = next(iter(stand.cluster.nodes))
        self.address = self.node.address.gateway
        # Jobs that were made through it, as it answered.
        self.made: set[str] = set()
        # Which gateway of which node, and since when this node is there.
        self._pid, self._of, self._since = 0, 0, 0.0
        # Since when this gateway is not seen; 0 while it is.
        self._gone = 0.0

    async def watch(self) -> None:
        """As long as the run lasts."""
        cluster = self.stand.cluster
        async with cluster.client(cluster.nodes.endpoints, CALL_S) as client:
            asked = namespace_pb2.CreateNamespaceRequest()
            asked.namespace.name = SPACE
            await client.call(asked)
        number = 0
        while True:
            number += 1
            self._look()
            if self.node.alive and not self.stand.hands.locked():
                await self._ask(number)
            await asyncio.sleep(ASK_S)

    def _look(self) -> None:
        now, seen = time.monotonic(), self.stand.seen
        if not self.node.alive:
            return
        pid = gateway_of(self.node.pid)
        if self.node.pid != self._of:
            self._of, self._since, self._pid, self._gone = self.node.pid, now, pid, 0.0
        elif not pid and self._pid and (not self._gone or now - self._gone < GONE_S):
            self._gone = self._gone or now
            return
        elif self._pid and pid != self._pid:
            death = f"the gateway of {self.node.name} ended by itself"
            seen.deaths.append((self._gone or now, death))
            self.stand.say(f"         {death}")
            self._pid = pid
        self._pid, self._gone = pid or self._pid, 0.0
        if pid and (held := resident_mb(pid)):
            seen.gateway_memory.append(Memory(now, "gateway", pid, held))

    async def _ask(self, number: int) -> None:
        """A read and a write in turns."""
        token, name = self.stand.cluster.tokens["root"], f"seen-{number}"
        job = {"name": name, "namespace": SPACE, "cron": "0 0 1 1 *",
               "callback_url": "https://example.com/hook"}  # fmt: skip
        read = request("GET", "/v1/jobs/pulse-0?namespace=victim", token=token)
        write = request("POST", "/api/v1/jobs", json.dumps(job).encode(), token=token)
        began, of = time.monotonic(), self.node.pid
        status = await self._status(write if number % 2 else read)
        if status == 201:
            self.made.add(name)
        comes = began - self._since < COMES_S and status == 0
        if self.node.alive and self.node.pid == of and not self.stand.hands.locked() and not comes:
            self.stand.seen.gateway_asked.append(Asked(began, time.monotonic(), status))

    async def _status(self, data: bytes) -> int:
        """Of the answer; 0 for none."""
        line: HttpLine | None = None
        try:
            async with asyncio.timeout(GIVEN_UP_S):
                line = await HttpLine.open(self.address, own=True)
                await line.send(data)
                reply = await line.read(GIVEN_UP_S)
                return reply.status if reply is not None else 0
        except (OSError, TimeoutError):
            return 0
        finally:
            if line is not None:
                line.close()
