"""Clusters of real processes on free ports of this machine."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from raftsched.client import RaftschedError

SRC = Path(__file__).parents[2] / ".src"
SMALL = ("--segment-mb", "8", "--cache-mb", "16", "--heartbeat-ms", "2000")
READY_S = 20.0
# A test's own nodes need not prove who they are.
TRUSTING = ssl._create_unverified_context()
# Below the ports that the system gives to whoever asks for any: one of those could take the port
# of a node while it is down.
PORTS = range(15_000, 31_000, 20)
_places = itertools.count(os.getpid() * 37)


def free_base(count: int) -> int:
    """So many ports in a row and one more, for clients; ten above for nodes, five for HTTP."""
    for place in itertools.islice(_places, len(PORTS)):
        base = PORTS[place % len(PORTS)]
        if all(_is_free(base + above + i) for above in (0, 5, 10) for i in range(count + 1)):
            return base
    raise AssertionError("no free ports")


def _is_free(port: int) -> bool:
    with socket.socket() as trying:
        trying.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with suppress(OSError):
            trying.bind(("127.0.0.1", port))
            return True
    return False


def crowd() -> float:
    """How many times longer things may take, since others want the cores as well.

    What is promised in seconds is promised to who has the machine for itself.
    """
    return max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


async def until(reached: Callable[[], Awaitable[object] | object], seconds: float) -> float:
    """Wait for a condition; the seconds it took. A condition may be refused by a cluster."""
    began = time.monotonic()
    seconds *= crowd()
    while True:
        with suppress(RaftschedError):
            answer = reached()
            if await answer if isinstance(answer, Awaitable) else answer:
                return time.monotonic() - began
        assert time.monotonic() - began < seconds, f"not within {seconds} s: {reached}"
        await asyncio.sleep(0.01)


async def fetch(address: str, path: str) -> tuple[int, str]:
    """Status and text of a page; OSError when there is none."""

    def get() -> tuple[int, str]:
        try:
            with urllib.request.urlopen(address + path, timeout=2, context=TRUSTING) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as refused:
            return refused.code, refused.read().decode()

    return await asyncio.to_thread(get)


def environment() -> dict[str, str]:
    """This checkout, and a parent that may be killed by a test's timeout."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("RAFTSCHED_")}
    return kept | {"PYTHONPATH": str(SRC)}


def node_command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "raftsched.cluster.main", "node", *arguments]


@dataclass
class NodeProcess:
    """One node, running or not; what it says goes into a file."""

    name: str
    arguments: list[str]
    log: Path
    process: subprocess.Popen[bytes] | None = None
    # Its command line begins with these words, which become the node (exec).
    wrap: tuple[str, ...] = ()

    def start(self) -> None:
        with self.log.open("ab") as out:
            self.process = subprocess.Popen(
                [*self.wrap, *node_command(*self.arguments)],
                stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=environment(),
            )  # fmt: skip

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def kill(self) -> None:
        """As a power cut ends it: nothing is said and nothing is written."""
        assert self.process is not None
        self.process.kill()
        self.process.wait(5)

    async def stop(self) -> tuple[int, float]:
        """SIGTERM; the exit code and how long it took."""
        assert self.process is not None
        began = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        await until(lambda: not self.alive, 10)
        return self.process.returncode, time.monotonic() - began

    def said(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.log.read_text().splitlines() if line[:1] == "{"]

    def cpu_seconds(self) -> float:
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@dataclass
class Newcomer:
    """A node and its addresses."""

    process: NodeProcess
    peer: str
    client: str


@dataclass
class Cluster:
    """Nodes n1, n2, ... with one list of members."""

    folder: Path
    base: int
    count: int
    # Flags of each node alone.
    arguments: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    scheme: str = "http"
    wrap: tuple[str, ...] = ()
    nodes: dict[str, NodeProcess] = field(default_factory=dict)

    def __post_init__(self) -> None:
        names = [f"n{number}" for number in range(1, self.count + 1)]
        members = ",".join(
            f"{name}=127.0.0.1:{self.base + 10 + i}/127.0.0.1:{self.base + i}"
            for i, name in enumerate(names)
        )
        for i, name in enumerate(names):
            arguments = [
                "--name", name, "--members", members, "--folder", str(self.folder / name),
                "--http", f"127.0.0.1:{self.base + 5 + i}", *SMALL, *self.arguments.get(name, ()),
            ]  # fmt: skip
            log = self.folder / f"{name}.log"
            self.nodes[name] = NodeProcess(name, arguments, log, wrap=self.wrap)

    def address(self, name: str) -> str:
        return f"127.0.0.1:{self.base + int(name[1:]) - 1}"

    def http(self, name: str) -> str:
        return f"{self.scheme}://127.0.0.1:{self.base + 5 + int(name[1:]) - 1}"

    @property
    def endpoints(self) -> str:
        return ",".join(map(self.address, self.nodes))

    def start(self) -> None:
        for node in self.nodes.values():
            if not node.alive:
                node.start()

    def members_with(self, name: str, peer: str, client: str) -> str:
        """The list of members, but for one that is somewhere else."""
        first = self.nodes["n1"].arguments
        listed = first[first.index("--members") + 1].split(",")
        kept = [member for member in listed if not member.startswith(f"{name}=")]
        return ",".join([*kept, f"{name}={peer}/{client}"])

    def newcomer(self, name: str) -> Newcomer:
        """A node that is to be added; it is told of the others and itself."""
        place = int(name[1:]) - 1
        peer = f"127.0.0.1:{self.base + 10 + place}"
        client = f"127.0.0.1:{self.base + place}"
        first = self.nodes["n1"].arguments
        members = first[first.index("--members") + 1]
        arguments = [
            "--name", name, "--members", f"{members},{name}={peer}/{client}",
            "--folder", str(self.folder / name), "--http", f"127.0.0.1:{self.base + 5 + place}",
            *SMALL,
        ]  # fmt: skip
        process = NodeProcess(name, arguments, self.folder / f"{name}.log")
        self.nodes[name] = process
        return Newcomer(process, peer, client)

    async def ready(self) -> str:
        """Wait until somebody leads; the leader's name."""
        leader = ""

        async def leads() -> bool:
            nonlocal leader
            for node in self.nodes.values():
                assert node.alive, f"{node.name} ended: {node.log.read_text()[-2000:]}"
            leader = await self.leader()
            return bool(leader)

        await until(leads, READY_S)
        return leader

    async def leader(self) -> str:
        """Who leads and says so itself; empty when nobody does."""
        for name, node in self.nodes.items():
            if node.alive:
                with suppress(OSError):
                    _, figures = await fetch(self.http(name), "/metrics")
                    if "\nraftsched_leads 1.0\n" in figures:
                        return name
        return ""

    async def serves(self, name: str) -> None:
        """Wait until a node that was started has caught up and takes calls."""

        async def ready() -> bool:
            with suppress(OSError):
                return (await fetch(self.http(name), "/readyz"))[0] == 200
            return False

        await until(ready, READY_S)

    def end(self) -> None:
        for node in self.nodes.values():
            if node.process is not None and node.alive:
                node.kill()


@asynccontextmanager
async def cluster(
    folder: Path,
    count: int = 3,
    arguments: Mapping[str, tuple[str, ...]] | None = None,
    scheme: str = "http",
    wrap: tuple[str, ...] = (),
) -> AsyncIterator[Cluster]:
    """A cluster that somebody leads; its processes end with the test."""
    made = Cluster(folder, free_base(count), count, arguments or {}, scheme, wrap)
    try:
        made.start()
        await made.ready()
        yield made
    finally:
        made.end()
