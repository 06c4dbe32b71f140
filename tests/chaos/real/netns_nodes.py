"""Run by test_netns_links.py in a network namespace of its own: cut, slow and heal real links.

Each node is an ear that prints which datagrams it got; the last line of stdout says what was seen.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from raftsched.chaos.real import netns_links
from raftsched.chaos.real.links import CLIENTS, Pair
from raftsched.chaos.real.netns_links import NetnsLinks
from raftsched.cluster.local.nodes import PROGRAM

PORT = 9_000
LONG_S = 20.0
# It answers "<word>" with a line, and "to <address> <word>" by sending the word there.
EAR = """
import socket, sys
ear = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
ear.bind(("0.0.0.0", int(sys.argv[1])))
print("ready", flush=True)
while True:
    words = ear.recv(2000).decode().split()
    if words[0] == "to":
        ear.sendto(words[2].encode(), (words[1], int(sys.argv[1])))
        print("sent", flush=True)
    else:
        print(words[0][:8], flush=True)
"""


class Ear:
    """A process in a node's namespace, or here."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    @classmethod
    async def begin(cls, program: Sequence[str]) -> Ear:
        ear = cls(
            await asyncio.create_subprocess_exec(
                *program, "-c", EAR, str(PORT), stdout=asyncio.subprocess.PIPE
            )
        )
        assert await ear.next() == "ready"
        return ear

    async def next(self) -> str:
        assert self.process.stdout is not None
        async with asyncio.timeout(LONG_S):
            return (await self.process.stdout.readline()).decode().strip()


async def seen_by(folder: Path) -> dict[str, object]:
    links = NetnsLinks()
    links.nodes(folder, 2, [], lambda name: PROGRAM)
    await links.start()
    ears = {"n1": await Ear.begin([*links._nodes["n1"].wrap, sys.executable])}
    ears["n2"] = await Ear.begin([*links._nodes["n2"].wrap, sys.executable])
    ears[CLIENTS] = await Ear.begin([sys.executable])
    sender, _ = await asyncio.get_running_loop().create_datagram_endpoint(
        asyncio.DatagramProtocol, local_addr=("0.0.0.0", 0)
    )

    async def send(pair: Pair, word: str) -> None:
        """Over the watch address, which is never cut, have the one send to the other."""
        source, target = (links.places[name] for name in pair)
        at = "127.0.0.1" if pair[0] == CLIENTS else netns_links._watch_address(source)
        sender.sendto(f"to {netns_links._address(target)} {word}".encode(), (at, PORT))
        assert await ears[pair[0]].next() == "sent"

    seen: dict[str, object] = {}
    for name, cut in {
        "one-way": [("n1", "n2")],
        "clients": [(CLIENTS, "n1"), ("n1", CLIENTS)],
    }.items():
        before = await links.act("cut", pairs=cut)
        passed = []
        for pair in links._all():
            # The second word goes when all is well again, so what comes first says what passed.
            await send(pair, "first")
            if pair in cut:
                await links.act("heal", pairs=[pair])
                await send(pair, "second")
            passed.append((pair, await ears[pair[1]].next()))
            if pair in cut:
                await links.act("cut", pairs=[pair])
        swallowed = await links.act("heal") - before
        seen[name] = {
            "lost": sorted("-".join(pair) for pair, word in passed if word == "second"),
            "came": len([word for _, word in passed if word == "first"]),
            "swallowed": swallowed > 0,
        }
    before = await links.act("slow", pairs=[("n1", "n2"), ("n2", "n1")], delay_s=0.0, rate=50_000)
    for _ in range(60):
        await send(("n1", "n2"), "x" * 1_000)
    seen["slow"] = [await ears["n2"].next() for _ in range(60)] == ["x" * 8] * 60
    seen["waited"] = await links.act("heal") - before > 0
    for ear in ears.values():
        ear.process.kill()
        await ear.process.wait()
    await links.close()
    return seen


if __name__ == "__main__":
    netns_links.enter()
    sys.stdout.write(json.dumps(asyncio.run(seen_by(Path(sys.argv[1])))) + "\n")
