"""Real nodes as processes, each with its folder and its log, on free ports of this machine.

Whatever is started here is ended by its own id, and ends when this process does.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from ..cluster.raft.bench import free_ports as free_ports

LOOPBACK = "127.0.0.1"
READY_S = 20.0
STOP_S = 8.0
# A child that ends when this process does. It asks for that itself (prctl, PR_SET_PDEATHSIG) and
# then becomes what it is to be: code of ours between fork and exec would run in a copy of gRPC's
# threads, and now and then die in it.
LAUNCH = """
import ctypes, os, pwd, sys
user, *command = sys.argv[1:]
if user:
    them = pwd.getpwnam(user)
    os.initgroups(user, them.pw_gid)
    os.setgid(them.pw_gid)
    os.setuid(them.pw_uid)
    os.chdir("/")
ctypes.CDLL(None).prctl(1, 9)
os.execv(command[0], command)
"""


class StageFailed(Exception):
    """A process did not do what it was started for."""


@dataclass(slots=True)
class Process:
    """A program, ours unless another is named, with what it says in a file."""

    name: str
    arguments: Sequence[str]
    log: Path
    environment: dict[str, str] = field(default_factory=dict)
    program: Sequence[str] = (sys.executable, "-m")
    # Whom it runs as, when we are root and it refuses to be.
    user: str = ""
    popen: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        if self.alive:
            raise StageFailed(f"{self.name} runs already")
        with self.log.open("ab") as log:
            self.popen = subprocess.Popen(
                [sys.executable, "-S", "-c", LAUNCH, self.user, *self.program, *self.arguments],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                env={**os.environ, **self.environment},
            )

    @property
    def alive(self) -> bool:
        return self.popen is not None and self.popen.poll() is None

    @property
    def pid(self) -> int:
        if self.popen is None:
            raise StageFailed(f"{self.name} was never started")
        return self.popen.pid

    @property
    def code(self) -> int | None:
        """What it ended with; None while it runs."""
        return None if self.popen is None else self.popen.poll()

    @property
    def state(self) -> str:
        """One letter, as the kernel calls it: R, S, T for stopped."""
        return Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0]

    def signal(self, number: int) -> None:
        if self.alive:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """As `kill -9`, and wait until it is gone."""
        self.signal(signal.SIGKILL)
        if self.popen is not None:
            self.popen.wait(STOP_S)

    def stop(self) -> int:
        """Ask it to stop, insist after a while; its exit code."""
        if self.popen is None:
            return 0
        self.signal(signal.SIGCONT)
        self.signal(signal.SIGTERM)
        try:
            return self.popen.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise StageFailed(f"{self.name} did not stop within {STOP_S:.0f} s") from None

    def finish(self, seconds: float) -> None:
        """Start it and wait until its work is done, which must be in time and without a fault."""
        self.start()
        assert self.popen is not None
        try:
            code = self.popen.wait(seconds)
        except subprocess.TimeoutExpired:
            raise StageFailed(
                f"{self.name} took over {seconds:.0f} s:\n{self.last_words()}"
            ) from None
        finally:
            self.kill()
        if code:
            raise StageFailed(f"{self.name} ended with {code}:\n{self.last_words()}")

    def cpu_s(self) -> float:
        """Processor time it has used, its own and the kernel's for it."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def rss_mb(self, *, peak: bool = False) -> int:
        """Memory that is resident, now or at most since it started."""
        field = "VmHWM:" if peak else "VmRSS:"
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith(field):
                return int(line.split()[1]) >> 10
        return 0

    def last_words(self) -> str:
        lines = self.log.read_text(errors="replace").splitlines() if self.log.exists() else []
        return "\n".join(lines[-15:])


@dataclass(slots=True)
class NodeProcess(Process):
    """One node, and where others find it."""

    client: str = ""
    peer: str = ""
    http: str = ""


class Stage:
    """A cluster of node processes below one folder."""

    def __init__(
        self,
        folder: Path,
        count: int = 3,
        *,
        settings: Sequence[str] = (),
        # Where the others, and clients, find a node, when that is not where it listens.
        front: Callable[[str, str, str], tuple[str, str]] | None = None,
        # Where each listens, and where its HTTP does, when that is not this machine's loopback.
        hosts: Mapping[str, tuple[str, str]] | None = None,
    ) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        ports = iter(free_ports(3 * count))
        self.nodes: dict[str, NodeProcess] = {}
        addresses: dict[str, tuple[str, str, str]] = {}
        for name in (f"n{number}" for number in range(1, count + 1)):
            host, watched = (hosts or {}).get(name, (LOOPBACK, LOOPBACK))
            ours = f"{host}:{next(ports)}", f"{host}:{next(ports)}"
            addresses[name] = (*ours, f"{watched}:{next(ports)}")
        shown = {}
        for name, (peer, client, _) in addresses.items():
            shown[name] = (peer, client) if front is None else front(name, peer, client)
        members = ",".join(f"{name}={peer}/{client}" for name, (peer, client) in shown.items())
        for name, (peer, client, http) in addresses.items():
            arguments = [
                "raftsched.cluster.main", "node", "--name", name, "--cluster", "stage",
                "--folder", str(folder / name), "--members", members, "--http", http,
                "--log-format", "json", *settings,
            ]  # fmt: skip
            if front is not None:
                arguments += ["--listen", client, "--listen-peer", peer]
            self.nodes[name] = NodeProcess(
                name, arguments, folder / f"{name}.log",
                client=shown[name][1], peer=shown[name][0], http=http,
            )  # fmt: skip

    @property
    def endpoints(self) -> str:
        """Where clients find the nodes."""
        return ",".join(node.client for node in self.nodes.values())

    def start(self) -> None:
        for node in self.nodes.values():
            node.start()
        self.wait_ready()

    def wait_ready(self, count: int | None = None, seconds: float = READY_S) -> None:
        """Return when so many nodes (all) accept connections and know a leader."""
        wanted = len(self.nodes) if count is None else count
        until = time.monotonic() + seconds
        while sum(map(is_ready, self.nodes.values())) < wanted:
            dead = [node for node in self.nodes.values() if node.popen and not node.alive]
            if dead and count is None:
                raise StageFailed(f"{dead[0].name} ended:\n{dead[0].last_words()}")
            if time.monotonic() > until:
                words = "\n".join(f"{n.name}: {n.last_words()}" for n in self.nodes.values())
                raise StageFailed(f"the nodes are not ready after {seconds:.0f} s:\n{words}")
            time.sleep(0.02)

    def stop(self) -> None:
        """End all of them: a word first, then by force."""
        for node in self.nodes.values():
            node.signal(signal.SIGCONT)
            node.signal(signal.SIGTERM)
        for node in self.nodes.values():
            if node.popen is not None:
                try:
                    node.popen.wait(STOP_S)
                except subprocess.TimeoutExpired:
                    node.kill()


def is_ready(node: NodeProcess) -> bool:
    """Ask its /readyz."""
    host, _, port = node.http.partition(":")
    if not node.alive:
        return False
    try:
        with socket.create_connection((host, int(port)), 0.5) as link:
            link.settimeout(0.5)
            link.sendall(b"GET /readyz HTTP/1.0\r\n\r\n")
            return b" 200 " in link.recv(64)
    except OSError:
        return False


@contextmanager
def staged(folder: Path, count: int = 3, settings: Sequence[str] = ()) -> Iterator[Stage]:
    """A cluster for as long as the block lasts."""
    stage = Stage(folder, count, settings=settings)
    try:
        stage.start()
        yield stage
    finally:
        stage.stop()
