"""PostgreSQL as durable as we are: a primary with two standbys and quorum commit.

A commit is acknowledged when it is on the primary's disk and on that of one standby, whichever is
first: on two disks of three.
"""

from __future__ import annotations

import os
import pwd
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ....cluster.local.nodes import READY_S
from ....cluster.local.ports import free_ports
from ....cluster.local.process import STOP_S, Process, ProcessFailed
from .usage import below

DEBIAN = Path("/usr/lib/postgresql")
STANDBYS = ("s1", "s2")
SETUP_S = 120.0
# Room for the whole herd in memory, and no checkpoint forced in the middle of it.
SETTINGS = {"shared_buffers": "512MB", "max_wal_size": "4GB"}


def programs(debian: Path = DEBIAN) -> Path:
    """The folder with the programs of the newest PostgreSQL of this machine."""
    found = [path.parent for path in debian.glob("*/bin/initdb") if path.parts[-3].isdigit()]
    if found:
        return max(found, key=lambda folder: int(folder.parent.name))
    # Not Debian: its programs are on the path.
    if path := shutil.which("initdb"):
        return Path(path).resolve().parent
    raise ProcessFailed(
        f"there is no PostgreSQL below {debian} nor on the path, and the peers need one; "
        "on Debian and Ubuntu: apt-get install postgresql"
    )


def version() -> str:
    version = subprocess.check_output([programs() / "postgres", "--version"], text=True, timeout=10)
    number = re.search(r"\d+(\.\d+)*", version)
    return number.group() if number else version.strip()


def server_user() -> str:
    """Whom the servers run as: they refuse to be root."""
    if os.geteuid() != 0:
        return ""
    try:
        return pwd.getpwnam("postgres").pw_name
    except KeyError:
        raise ProcessFailed(
            "PostgreSQL refuses to run as root, and there is no user postgres to run it as; "
            "create one (adduser --system --group postgres), or run this as another user"
        ) from None


class Postgres:
    """The three servers, below one folder, on free ports of the loopback."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        self.programs = programs()
        self.user = server_user()
        names = ("primary", *STANDBYS)
        self.ports = dict(zip(names, free_ports(len(names)), strict=True))
        self.servers = {name: self._server(name) for name in names}

    @property
    def port(self) -> int:
        """Where clients find the primary; user and database are `postgres`, without a password."""
        return self.ports["primary"]

    @property
    def sentinels(self) -> list[int]:
        return []

    def pids(self) -> list[int]:
        return [server.pid for server in self.servers.values() if server.alive]

    def kill_primary(self) -> None:
        self.servers["primary"].kill()

    def start(self) -> None:
        self.folder.mkdir(parents=True)
        if self.user:
            shutil.chown(self.folder, self.user, self.user)
        self._do("initdb", "-D", str(self.folder / "primary"), "-U", "postgres", "-A", "trust",
                 "-E", "UTF8", "--no-locale")  # fmt: skip
        self._serve("primary")
        for name in STANDBYS:
            place = ["-D", str(self.folder / name), "-h", "127.0.0.1", "-p", str(self.port)]
            self._do("pg_basebackup", *place, "-U", "postgres", "-R", "-c", "fast", "-CS", name)
            self._serve(name)
        self._wait_for_quorum()

    def stop(self) -> None:
        """End them at once; nobody needs what they hold."""
        for server in self.servers.values():
            server.signal(signal.SIGQUIT)
        for server in self.servers.values():
            if server.popen is not None:
                try:
                    server.popen.wait(STOP_S)
                except subprocess.TimeoutExpired:
                    server.kill()

    def ask(self, sql: str) -> str:
        done = subprocess.run(
            [self.programs / "psql", "-XAtq", "-h", "127.0.0.1", "-p", str(self.port),
             "-U", "postgres", "-c", sql],
            capture_output=True, text=True, timeout=READY_S, check=False,
        )  # fmt: skip
        if done.returncode:
            raise ProcessFailed(f"PostgreSQL refused {sql!r}: {done.stderr.strip()}")
        return done.stdout.strip()

    def _server(self, name: str) -> Process:
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": str(self.ports[name]),
            "unix_socket_directories": "",
            # A standby calls itself by this name when it asks the primary for its log.
            "cluster_name": name,
            **SETTINGS,
        }
        if name == "primary":
            settings["synchronous_standby_names"] = f"ANY 1 ({', '.join(STANDBYS)})"
        arguments = ["-D", str(self.folder / name)]
        for setting, value in settings.items():
            arguments += ["-c", f"{setting}={value}"]
        return self._program(f"postgres-{name}", "postgres", arguments)

    def _program(self, name: str, program: str, arguments: list[str]) -> Process:
        return Process(
            name,
            arguments,
            self.folder / f"{name}.log",
            program=(str(self.programs / program),),
            user=self.user,
        )

    def _do(self, program: str, *arguments: str) -> None:
        self._program(program, program, list(arguments)).finish(SETUP_S)

    def _serve(self, name: str) -> None:
        server = self.servers[name]
        server.start()
        until = time.monotonic() + READY_S
        while not accepts(self.folder / name):
            if not server.alive or time.monotonic() > until:
                raise ProcessFailed(f"{server.name} is not ready:\n{server.tail()}")
            time.sleep(0.02)

    def _wait_for_quorum(self) -> None:
        """A standby counts only when the primary has it in its quorum."""
        until = time.monotonic() + READY_S
        asked = "select count(*) from pg_stat_replication where sync_state = 'quorum'"
        while (count := self.ask(asked)) != str(len(STANDBYS)):
            if time.monotonic() > until:
                raise ProcessFailed(f"{count} standbys of {len(STANDBYS)} are in the quorum")
            time.sleep(0.1)


def accepts(folder: Path) -> bool:
    """Whether a server takes connections, as it says in the eighth line of its pid file."""
    try:
        lines = (folder / "postmaster.pid").read_text().splitlines()
    except FileNotFoundError:
        return False
    return len(lines) > 7 and lines[7].strip() == "ready"


def kill_server(folder: Path) -> None:
    """End the server of a data folder with all its processes, as the loss of its machine does."""
    try:
        pid = int((folder / "postmaster.pid").read_text().split()[0])
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, IndexError, ValueError):
        return
    # The number may be that of another program by now.
    if bytes(folder) not in command:
        return
    for one in below([pid]):
        with suppress(ProcessLookupError):
            os.kill(one, signal.SIGKILL)


@contextmanager
def postgres(folder: Path) -> Iterator[Postgres]:
    """The three of them for as long as the block lasts."""
    servers = Postgres(folder)
    try:
        servers.start()
        yield servers
    finally:
        servers.stop()
