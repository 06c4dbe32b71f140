"""Nodes as processes, each with its folder and its log below one folder."""

from __future__ import annotations

import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from .ports import LOOPBACK, free_ports
from .process import Process, ProcessFailed, stop_all

PROGRAM = (sys.executable, "-m", "raftsched.cluster.main", "node")
# What is run for the node of a name.
ProgramOf = Callable[[str], Sequence[str]]
READY_S = 20.0
LOOK_S = 0.02
# How long a node may take to say whether it is ready.
PROBE_S = 0.5


@dataclass(frozen=True, slots=True)
class Address:
    """Where other nodes, clients and HTTP find a node; an empty `http` or `gateway` is none."""

    peer: str
    client: str
    http: str = ""
    gateway: str = ""

    def member(self, name: str) -> str:
        return f"{name}={self.peer}/{self.client}"


def names_of(count: int) -> list[str]:
    return [f"n{number}" for number in range(1, count + 1)]


def free_addresses(
    count: int, hosts: Mapping[str, tuple[str, str]] | None = None, *, http: bool = True
) -> dict[str, Address]:
    """For nodes n1, n2, ... on the loopback address, or on a host and a host for HTTP by name."""
    ports = iter(free_ports(3 * count))
    found = {}
    for name in names_of(count):
        host, watched = (hosts or {}).get(name, (LOOPBACK, LOOPBACK))
        found[name] = Address(
            f"{host}:{next(ports)}", f"{host}:{next(ports)}",
            f"{watched}:{next(ports)}" if http else "",
        )  # fmt: skip
    return found


def members_of(addresses: Mapping[str, Address]) -> str:
    return ",".join(address.member(name) for name, address in addresses.items())


# A process more beside each node is for those who ask, and webhooks of a cluster on one machine go
# to that machine. They are no flags, for earlier builds know none.
LOCAL = {"RAFTSCHED_NODE_GATEWAY_LISTEN": "", "RAFTSCHED_NODE_WEBHOOKS_ALLOW": "loopback"}


def node_flags(name: str, members: str, folder: Path, http: str) -> list[str]:
    """The flags of `raftsched node` that every node needs."""
    return ["--name", name, "--members", members, "--folder", str(folder), "--http", http]


@dataclass(slots=True)
class NodeProcess(Process):
    """One node, and where others find it."""

    address: Address = Address("", "")

    @property
    def client(self) -> str:
        return self.address.client

    @property
    def peer(self) -> str:
        return self.address.peer

    @property
    def http(self) -> str:
        return self.address.http

    def is_ready(self) -> bool:
        """Ask its /readyz."""
        host, _, port = self.http.rpartition(":")
        if not self.alive:
            return False
        try:
            with socket.create_connection((host, int(port)), PROBE_S) as link:
                link.settimeout(PROBE_S)
                link.sendall(b"GET /readyz HTTP/1.0\r\n\r\n")
                return b" 200 " in link.recv(64)
        except OSError:
            return False


class NodeProcesses:
    """The nodes of one cluster. `settings` are flags of all, `own` of one by name."""

    def __init__(
        self,
        folder: Path,
        addresses: Mapping[str, Address],
        *,
        settings: Sequence[str] = (),
        own: Mapping[str, Sequence[str]] | None = None,
        # Where others find a node, when that is not where it listens.
        shown: Mapping[str, Address] | None = None,
        # What is run in place of the node as it is shipped.
        program: ProgramOf = lambda name: PROGRAM,
    ) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        found = shown or addresses
        members = members_of(found)
        self.by_name: dict[str, NodeProcess] = {}
        for name, address in addresses.items():
            flags = node_flags(name, members, folder / name, address.http)
            if shown is not None:
                flags += ["--listen", address.client, "--listen-peer", address.peer]
            if address.gateway:
                flags += ["--gateway-listen", address.gateway]
            flags += [*settings, *(own or {}).get(name, ())]
            self.by_name[name] = NodeProcess(
                name, flags, folder / f"{name}.log", dict(LOCAL), program=program(name),
                address=found[name],
            )  # fmt: skip

    @property
    def names(self) -> list[str]:
        return list(self.by_name)

    @property
    def endpoints(self) -> str:
        """Where clients find the nodes."""
        return ",".join(node.client for node in self)

    def __iter__(self) -> Iterator[NodeProcess]:
        return iter(self.by_name.values())

    def __getitem__(self, name: str) -> NodeProcess:
        return self.by_name[name]

    def __len__(self) -> int:
        return len(self.by_name)

    def spawn(self) -> None:
        """Start those that do not run, and wait for nothing."""
        for node in self:
            if not node.alive:
                node.start()

    def start(self) -> Self:
        self.spawn()
        self.wait_ready()
        return self

    def wait_ready(self, seconds: float = READY_S) -> None:
        """Return when all accept connections and know a leader."""
        until = time.monotonic() + seconds
        while not all(node.is_ready() for node in self):
            for node in self:
                if node.code is not None:
                    raise ProcessFailed(f"{node.name} ended with {node.code}:\n{node.tail()}")
            if time.monotonic() > until:
                raise ProcessFailed(f"not ready after {seconds:.0f} s:\n{self.tails()}")
            time.sleep(LOOK_S)

    def tails(self) -> str:
        """The end of each log."""
        return "\n".join(f"{node.name}: {node.tail()}" for node in self)

    def stop(self) -> None:
        """End all of them: SIGTERM first, then by force."""
        stop_all(self)


@contextmanager
def running(folder: Path, count: int = 3, settings: Sequence[str] = ()) -> Iterator[NodeProcesses]:
    """A cluster on free ports for as long as the block lasts."""
    nodes = NodeProcesses(folder, free_addresses(count), settings=settings)
    try:
        yield nodes.start()
    finally:
        nodes.stop()
