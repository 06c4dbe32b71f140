"""Every connection to a node goes through a small proxy here, which can cut, hold and delay it.

A proxy stands before each node, one for other nodes and one for clients. Who speaks is read from
the first frame of a connection between nodes, so each direction of each pair has its own state;
no root, no namespaces and no word of it in the node is needed.
"""

from __future__ import annotations

import asyncio
import json
import os
import struct
import sys
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...cluster.local.lines import lines
from ...cluster.local.process import Process, ProcessFailed

CHUNK = 64 << 10
HELLO_MAX = 4_096
FIRST_S = 5.0
ANSWER_S = 30.0
CLIENTS = "clients"
Pair = tuple[str, str]


@dataclass(slots=True)
class Way:
    """What happens to bytes from one place to another."""

    # Nothing passes, and nobody is notified: a cable that was pulled.
    cut: bool = False
    # Bytes wait, and come when it is open again.
    held: bool = False
    delay_s: float = 0.0
    # Bytes a second; 0 for any number.
    rate: float = 0.0
    # Bytes that were swallowed, held or slowed, and connections that were refused.
    touched: int = 0
    open: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.open.set()

    def set(
        self, *, cut: bool = False, held: bool = False, delay_s: float = 0.0, rate: float = 0.0
    ) -> None:
        self.cut, self.held, self.delay_s, self.rate = cut, held, delay_s, rate
        if held:
            self.open.clear()
        else:
            self.open.set()


class LinkProxies:
    """All proxies of a nodes."""

    def __init__(self) -> None:
        self.ways: dict[Pair, Way] = defaultdict(Way)
        self._servers: list[asyncio.Server] = []
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def touched(self) -> int:
        return sum(way.touched for way in self.ways.values())

    async def put_before(self, node: str, address: str, port: int, *, peers: bool) -> None:
        """Listen on a port for a node that listens elsewhere."""
        host, _, target = address.rpartition(":")

        def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            # A task of ours: asyncio's own is loud when it is cancelled.
            task = asyncio.create_task(carry(reader, writer))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

        async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                await self._connect(node, host, int(target), reader, writer, peers)
            except (OSError, asyncio.IncompleteReadError, TimeoutError):
                # Connections break; that is what they are here for.
                pass
            finally:
                writer.close()

        self._servers.append(await asyncio.start_server(take, "127.0.0.1", port))

    async def close(self) -> None:
        for server in self._servers:
            server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # Faults.

    def heal(self, pairs: Iterable[Pair] | None = None) -> None:
        """These pairs, or all of them."""
        for pair in list(self.ways) if pairs is None else pairs:
            self.ways[pair].set()

    def cut(self, pairs: Iterable[Pair]) -> None:
        for pair in pairs:
            self.ways[pair].set(cut=True)

    def hold(self, pairs: Iterable[Pair]) -> None:
        for pair in pairs:
            self.ways[pair].set(held=True)

    def slow(self, pairs: Iterable[Pair], delay_s: float, rate: float = 0.0) -> None:
        for pair in pairs:
            self.ways[pair].set(delay_s=delay_s, rate=rate)

    # Connections.

    async def _connect(
        self,
        node: str,
        host: str,
        port: int,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        peers: bool,
    ) -> None:
        first = b""
        source = CLIENTS
        if peers:
            async with asyncio.timeout(FIRST_S):
                first = await reader.readexactly(4)
                (length,) = struct.unpack("<I", first)
                body = await reader.readexactly(min(length, HELLO_MAX))
            first += body
            source = str(json.loads(body)["node"])
        there, back = self.ways[source, node], self.ways[node, source]
        if there.cut or back.cut:
            # A handshake needs both directions.
            there.touched += 1
            writer.close()
            return
        async with asyncio.timeout(FIRST_S):
            node_reader, node_writer = await asyncio.open_connection(host, port)
        node_writer.write(first)
        pumps = [
            asyncio.ensure_future(pump(reader, node_writer, there)),
            asyncio.ensure_future(pump(node_reader, writer, back)),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in pumps:
                task.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            writer.close()
            node_writer.close()


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, way: Way) -> None:
    """Carry bytes one way until the connection ends."""
    while data := await reader.read(CHUNK):
        if way.held or way.delay_s or way.rate:
            way.touched += len(data)
        if way.delay_s:
            await asyncio.sleep(way.delay_s)
        if way.rate:
            await asyncio.sleep(len(data) / way.rate)
        await way.open.wait()
        if way.cut:
            # TCP would send it again for minutes; here it is gone, so nothing that comes later may
            # pass either, until one end has given the connection up.
            while data:
                way.touched += len(data)
                data = await reader.read(CHUNK)
            return
        writer.write(data)
        await writer.drain()


class LinksProcess:
    """The links in a process of their own; the same calls, one at a time."""

    def __init__(self) -> None:
        program = ["raftsched.chaos.real.links"]
        self._process = Process("links", program, Path(os.devnull), streams="dialog")
        self._lock = asyncio.Lock()

    async def start(self) -> None:
        self._process.start()
        self._answers = lines(self._process)

    @property
    def pid(self) -> int:
        return self._process.pid if self._process.alive else 0

    async def act(self, what: str, **how: Any) -> int:  # noqa: ANN401
        """Do something to the links; how many bytes were mistreated until now."""
        popen = self._process.popen
        assert popen is not None
        assert popen.stdin is not None
        async with self._lock, asyncio.timeout(ANSWER_S):
            popen.stdin.write(json.dumps({"what": what, **how}).encode() + b"\n")
            popen.stdin.flush()
            answer = await anext(self._answers, b"")
        if not answer:
            raise ProcessFailed(f"the links ended with {self._process.code}")
        return int(answer)

    async def close(self) -> None:
        if self._process.popen is not None:
            await asyncio.to_thread(self._process.kill)
            await self._answers.aclose()


async def obey(links: LinkProxies, what: str, how: dict[str, Any]) -> None:
    if what == "put_before":
        await links.put_before(**how)
    elif how.get("pairs") is None:
        links.heal()
    else:
        how["pairs"] = [tuple(pair) for pair in how["pairs"]]
        getattr(links, what)(**how)


async def main() -> None:
    links = LinkProxies()
    stdin = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(stdin), sys.stdin
    )
    while line := await stdin.readline():
        how = json.loads(line)
        await obey(links, how.pop("what"), how)
        sys.stdout.write(f"{links.touched}\n")
        sys.stdout.flush()
    await links.close()


if __name__ == "__main__":
    asyncio.run(main())
