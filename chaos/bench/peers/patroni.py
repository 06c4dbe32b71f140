"""PostgreSQL that chooses another primary: Patroni with etcd, and HAProxy before it.

The usual set, with the timings that each has by itself, and Patroni's quorum commit, so that what
was answered is not lost. Clients have one address; HAProxy asks Patroni where the primary is, as in
the file that comes with Patroni.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ....cluster.local.ports import LOOPBACK, free_ports
from ....cluster.local.process import STOP_S, Process, ProcessFailed, stop_all
from . import postgres
from .servers import program

PACKAGES = ("patroni[etcd3,psycopg3]==4.1.5",)
NAMES = ("p1", "p2", "p3")
READY_S, INSTALL_S, ASK_S, LOOK_S = 120.0, 300.0, 2.0, 0.2
# Connections in a row that end at the primary: more than there are servers to go round.
ASKED = 12
# What Patroni has when nothing is set: the primary's place is free this long after its last word.
TTL_S, LOOP_S, RETRY_S = 30, 10, 10
SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin"
PROXY = """\
global
    maxconn 500
defaults
    mode tcp
    retries 2
    timeout client 30m
    timeout connect 4s
    timeout server 30m
    timeout check 5s
listen primary
    bind {host}:{port}
    option httpchk OPTIONS /primary
    http-check expect status 200
    default-server inter 3s fall 3 rise 2 on-marked-down shutdown-sessions
"""


class PatroniServers:
    """Three of PostgreSQL, each looked after by a Patroni, with etcd and HAProxy."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        self.user = postgres.server_user()
        self.etcd_program = program("etcd", "etcd-server")
        self.proxy_program = program("haproxy", "haproxy")
        ports = free_ports(3 + 2 * len(NAMES))
        self.port, self.etcd_port, self.etcd_peer_port = ports[:3]
        self.postgres_ports = dict(zip(NAMES, ports[3::2], strict=True))
        self.rest_ports = dict(zip(NAMES, ports[4::2], strict=True))
        self.etcd = self._process("etcd", self.etcd_program, [
            "--name", "bench", "--data-dir", str(self.folder / "etcd"),
            *self._urls("listen-client", self.etcd_port),
            *self._urls("advertise-client", self.etcd_port),
            *self._urls("listen-peer", self.etcd_peer_port),
            *self._urls("initial-advertise-peer", self.etcd_peer_port),
            "--initial-cluster", f"bench=http://{LOOPBACK}:{self.etcd_peer_port}",
        ])  # fmt: skip
        self.proxy = self._process(
            "haproxy", self.proxy_program, ["-db", "-f", str(self.folder / "haproxy.cfg")]
        )
        self.guard = Process(
            "guard", ["raftsched.chaos.bench.peers.guard", *map(str, map(self._data, NAMES))],
            self.folder / "guard.log",
        )  # fmt: skip
        self.agents = {
            name: self._process(
                name, str(self.folder / "patroni/bin/patroni"), [str(self.folder / f"{name}.yml")],
                self.user,
            )
            for name in NAMES
        }  # fmt: skip

    @property
    def sentinels(self) -> list[int]:
        return []

    def pids(self) -> list[int]:
        return [one.pid for one in (self.etcd, self.proxy, *self.agents.values()) if one.alive]

    def start(self) -> None:
        self.folder.mkdir(parents=True)
        if self.user:
            shutil.chown(self.folder, self.user, self.user)
        self._install()
        for name in NAMES:
            # A JSON text is a YAML text.
            (self.folder / f"{name}.yml").write_text(json.dumps(self._settings(name)))
        servers = "".join(
            f"    server {name} {LOOPBACK}:{self.postgres_ports[name]} maxconn 200 "
            f"check port {self.rest_ports[name]}\n"
            for name in NAMES
        )
        text = PROXY.format(host=LOOPBACK, port=self.port) + servers
        (self.folder / "haproxy.cfg").write_text(text)
        self.guard.start()
        self.etcd.start()
        for agent in self.agents.values():
            agent.start()
        self._wait("a primary with a quorum of standbys", self._is_whole)
        self.proxy.start()
        self._wait("a way to the primary", self._accepts)

    def stop(self) -> None:
        """Patroni ends its PostgreSQL; what is left of one that was killed ends here."""
        stop_all([self.proxy, *self.agents.values()], seconds=2 * STOP_S)
        stop_all([self.etcd])
        for name in NAMES:
            postgres.kill_server(self._data(name))
        stop_all([self.guard])

    def kill_primary(self) -> None:
        name = self.primary()
        self.agents[name].kill()
        postgres.kill_server(self._data(name))

    def primary(self) -> str:
        for name in NAMES:
            if self._status(name, "/primary") == 200:
                return name
        raise ProcessFailed(f"Patroni has no primary:\n{self.agents['p1'].tail()}")

    def _install(self) -> None:
        """Below the servers' folder, with an interpreter that the servers' user can reach."""
        log = self.folder / "install.log"
        kit, tools = self.folder / "patroni", self.folder / "tools"
        python = interpreter(self.user)
        Process("venv for patroni", ["-I", "-m", "venv", "--without-pip", str(kit)], log,
                program=(python,)).finish(INSTALL_S)  # fmt: skip
        Process("venv for pip", ["venv", str(tools)], log).finish(INSTALL_S)
        pip = (str(tools / "bin/python"), "-I", "-m", "pip", "--python", str(kit / "bin/python"))
        Process("pip install for patroni",
                ["install", "--disable-pip-version-check", *PACKAGES], log,
                program=pip).finish(INSTALL_S)  # fmt: skip

    def _settings(self, name: str) -> dict[str, object]:
        address = f"{LOOPBACK}:{self.postgres_ports[name]}"
        rest = f"{LOOPBACK}:{self.rest_ports[name]}"
        return {
            "scope": "bench", "name": name,
            "restapi": {"listen": rest, "connect_address": rest},
            "etcd3": {"host": f"{LOOPBACK}:{self.etcd_port}"},
            "bootstrap": {
                "dcs": {
                    "ttl": TTL_S, "loop_wait": LOOP_S, "retry_timeout": RETRY_S,
                    "synchronous_mode": "quorum", "synchronous_node_count": 1,
                    "postgresql": {"use_pg_rewind": True, "parameters": dict(postgres.SETTINGS)},
                },
                "initdb": [{"encoding": "UTF8"}, {"locale": "C"}, {"auth": "trust"}],
            },
            "postgresql": {
                "listen": address, "connect_address": address,
                "data_dir": str(self._data(name)), "bin_dir": str(postgres.programs()),
                "pgpass": str(self.folder / f"pgpass-{name}"),
                "authentication": {
                    "superuser": {"username": "postgres"}, "replication": {"username": "postgres"},
                },
                "parameters": {"unix_socket_directories": "", "max_connections": 300},
                "pg_hba": [
                    f"host all all {LOOPBACK}/32 trust",
                    f"host replication all {LOOPBACK}/32 trust",
                ],
            },
        }  # fmt: skip

    def _is_whole(self) -> bool:
        return (
            any(self._status(name, "/primary") == 200 for name in NAMES)
            and sum(self._status(name, "/quorum") == 200 for name in NAMES) == len(NAMES) - 1
        )

    def _accepts(self) -> bool:
        """HAProxy takes every server for a primary until it has asked each three times."""
        return all(self._is_primary_behind_proxy() for _ in range(ASKED))

    def _is_primary_behind_proxy(self) -> bool:
        done = subprocess.run(
            [postgres.programs() / "psql", "-XAtq", "-h", LOOPBACK, "-p", str(self.port),
             "-U", "postgres", "-c", "select pg_is_in_recovery()"],
            capture_output=True, text=True, timeout=READY_S, check=False,
        )  # fmt: skip
        return done.stdout.strip() == "f"

    def _status(self, name: str, path: str) -> int:
        asked = f"http://{LOOPBACK}:{self.rest_ports[name]}{path}"
        try:
            with urllib.request.urlopen(asked, timeout=ASK_S) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code
        except OSError:
            return 0

    def _wait(self, what: str, reached: Callable[[], bool]) -> None:
        until = time.monotonic() + READY_S
        while not reached():
            for one in (self.etcd, *self.agents.values()):
                if not one.alive:
                    raise ProcessFailed(f"{one.name} ended:\n{one.tail()}")
            if time.monotonic() > until:
                tails = "\n".join(agent.tail() for agent in self.agents.values())
                raise ProcessFailed(f"after {READY_S:.0f} s there is not yet {what}:\n{tails}")
            time.sleep(LOOK_S)

    def _data(self, name: str) -> Path:
        return self.folder / f"data-{name}"

    def _urls(self, flag: str, port: int) -> list[str]:
        return [f"--{flag}-urls", f"http://{LOOPBACK}:{port}"]

    def _process(self, name: str, command: str, arguments: list[str], user: str = "") -> Process:
        return Process(name, arguments, self.folder / f"{name}.log", program=(command,), user=user)


def interpreter(user: str) -> str:
    """One that a user can run: ours, or that of the system where ours is in our own home."""
    mine = Path(sys.executable).resolve()
    if not user or all(folder.stat().st_mode & 0o001 for folder in mine.parents):
        return sys.executable
    found = shutil.which("python3", path=SYSTEM_PATH)
    if found is None:
        raise ProcessFailed(
            f"Patroni runs as the user {user}, who cannot reach {mine}, and there is no python3 in "
            f"{SYSTEM_PATH}; on Debian and Ubuntu: apt-get install python3"
        )
    return found


@contextmanager
def patroni(folder: Path) -> Iterator[PatroniServers]:
    """All of it for as long as the block lasts."""
    servers = PatroniServers(folder)
    try:
        servers.start()
        yield servers
    finally:
        servers.stop()
