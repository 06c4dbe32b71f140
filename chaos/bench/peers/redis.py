"""Redis that writes each change to its disk before it answers: a primary and two replicas.

`appendfsync always` in all three. A replica gets a change behind the answer, so what is answered is
on one disk for sure, where PostgreSQL with a quorum and we have it on two. Three sentinels beside
them, where a primary is to be lost.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ....cluster.local.nodes import READY_S
from ....cluster.local.ports import LOOPBACK, free_ports
from ....cluster.local.process import Process, ProcessFailed, stop_all
from .servers import program

NAMES = ("primary", "r1", "r2")
MASTER = "bench"
SENTINELS, QUORUM = 3, 2
ASK_S, LOOK_S = 5.0, 0.05
# What Redis' own pages show in their examples; the file that comes with it waits for 30 s.
DOWN_MS, FAILOVER_MS = 5_000, 60_000
SETTINGS = {
    "bind": LOOPBACK, "appendonly": "yes", "appendfsync": "always", "save": "",
    # As BullMQ and Celery ask for: nothing is thrown away for want of memory.
    "maxmemory-policy": "noeviction",
}  # fmt: skip


def version() -> str:
    server = program("redis-server", "redis-server")
    words = subprocess.check_output([server, "--version"], text=True, timeout=ASK_S).split()
    return next((word[2:] for word in words if word.startswith("v=")), "")


class RedisServers:
    """The three, and with a failover their sentinels, on free ports of the loopback."""

    def __init__(self, folder: Path, *, sentinels: bool) -> None:
        self.folder = folder.resolve()
        server = program("redis-server", "redis-server")
        ports = free_ports(len(NAMES) + SENTINELS)
        self.ports = dict(zip(NAMES, ports, strict=False))
        self.sentinels = ports[len(NAMES) :] if sentinels else []
        self.servers = {name: self._server(name, server) for name in NAMES}
        self.watchers = [
            Process(f"sentinel-{port}", [str(self._file(port)), "--sentinel"],
                    self.folder / f"sentinel-{port}.log", program=(server,))
            for port in self.sentinels
        ]  # fmt: skip

    @property
    def port(self) -> int:
        return self.ports["primary"]

    def pids(self) -> list[int]:
        return [one.pid for one in (*self.servers.values(), *self.watchers) if one.alive]

    def kill_primary(self) -> None:
        self.servers["primary"].kill()

    def start(self) -> None:
        for name, server in self.servers.items():
            (self.folder / name).mkdir(parents=True)
            server.start()
            self._wait(server, self.ports[name], "ping", "PONG")
        for name in NAMES[1:]:
            self._wait(self.servers[name], self.ports[name], "info replication", "link_status:up")
        for port, watcher in zip(self.sentinels, self.watchers, strict=True):
            lines = [
                f"bind {LOOPBACK}", f"port {port}",
                f"sentinel monitor {MASTER} {LOOPBACK} {self.port} {QUORUM}",
                f"sentinel down-after-milliseconds {MASTER} {DOWN_MS}",
                f"sentinel failover-timeout {MASTER} {FAILOVER_MS}",
            ]  # fmt: skip
            self._file(port).write_text("\n".join(lines) + "\n")
            watcher.start()
        for port, watcher in zip(self.sentinels, self.watchers, strict=True):
            asked = f"sentinel master {MASTER}"
            self._wait(watcher, port, asked, f"num-other-sentinels\n{SENTINELS - 1}\n")
            self._wait(watcher, port, asked, f"num-slaves\n{len(NAMES) - 1}\n")

    def stop(self) -> None:
        stop_all([*self.watchers, *self.servers.values()])

    def _file(self, port: int) -> Path:
        return self.folder / f"sentinel-{port}.conf"

    def _server(self, name: str, server: str) -> Process:
        settings = {**SETTINGS, "port": str(self.ports[name]), "dir": str(self.folder / name)}
        if name != "primary":
            settings["replicaof"] = f"{LOOPBACK} {self.port}"
        words = [word for key, value in settings.items() for word in (f"--{key}", value)]
        return Process(f"redis-{name}", words, self.folder / f"{name}.log", program=(server,))

    def _wait(self, server: Process, port: int, asked: str, wanted: str) -> None:
        until = time.monotonic() + READY_S
        while wanted not in self._ask(port, asked):
            if not server.alive or time.monotonic() > until:
                raise ProcessFailed(f"{server.name} is not ready:\n{server.tail()}")
            time.sleep(LOOK_S)

    def _ask(self, port: int, asked: str) -> str:
        client = program("redis-cli", "redis-tools")
        done = subprocess.run(
            [client, "-h", LOOPBACK, "-p", str(port), *asked.split()],
            capture_output=True, text=True, timeout=ASK_S, check=False,
        )  # fmt: skip
        return done.stdout


@contextmanager
def redis(folder: Path) -> Iterator[RedisServers]:
    """Redis for as long as the block lasts."""
    yield from _running(RedisServers(folder, sentinels=False))


@contextmanager
def redis_with_sentinels(folder: Path) -> Iterator[RedisServers]:
    """The same, with those who choose another primary."""
    yield from _running(RedisServers(folder, sentinels=True))


def _running(servers: RedisServers) -> Iterator[RedisServers]:
    try:
        servers.start()
        yield servers
    finally:
        servers.stop()
